"""The course's own steps in nbgrader's work, named in ``nbgrader_config.py``."""

from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade


class ShowHintsOnly(NbGraderPreprocessor):
    """Leave of a failed test just its sentence, so that a feedback page shows no line of a hidden test."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code" and is_grade(cell):
            cell.outputs = [output for output in cell.outputs if output.output_type == "error"]
            for output in cell.outputs:
                output.traceback = [output.evalue or output.ename]
        return cell, resources
