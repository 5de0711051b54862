"""nbgrader's configuration: run `nbgrader ...` in this folder."""

import os
import sys

from traitlets.config import Application

# Else nbgrader says that this file cannot be read and goes on without it, and so without the sandbox for students' code
Application.raise_config_file_errors = True

from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    SaveAutoGrades,
)

from coursegrader import sanitizer
from coursegrader.preprocessors import (
    DrawAnew,
    GradeInSandbox,
    SayAsHandedIn,
    SayWhatHappened,
    ShowHintsOnly,
    ShowRawAsText,
    ShowWithinLimits,
)
from coursegrader.submissions import ReadSubmission, before_grading

c = get_config()  # noqa: F821 (nbgrader defines it)

# nbgrader calls `alembic` by its name alone, which is not on the PATH unless the environment is activated.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])

c.CourseDirectory.course_id = "mlcourse"

# `source` is generated from `solutions` (make labs); students get `labs`.
c.CourseDirectory.source_directory = "source"
c.CourseDirectory.release_directory = "labs"
# The default, `solution`, is one letter from the folder of the sources.
c.CourseDirectory.solution_directory = "solved"

# A mark scheme stands beside the question. It is released to nobody and reappears for the grader.
c.ClearMarkScheme.enforce_metadata = False

# What students hand in is checked and repaired first.
c.Autograde.exporter_class = ReadSubmission
c.Autograde.pre_convert_hook = before_grading
# All outputs but those of cells that need not run are made anew
c.Autograde.sanitize_preprocessors = [
    step for step in Autograde.sanitize_preprocessors.default() if step is not ClearOutput
]
# Nor is what was put aside there copied.
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.unreadable*"]

# Students' code runs in a sandbox, and the tests where it cannot reach them.
# The data of hidden tests depend on a secret, in a file that the first grading makes. Keep it with the gradebook.
c.GradeInSandbox.secret_file = "secret.json"
c.Autograde.autograde_preprocessors = [GradeInSandbox, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]

c.GenerateFeedback.preprocessors = [
    *GenerateFeedback.preprocessors.default(),
    ClearHiddenTests,
    ClearMarkScheme,
    ShowHintsOnly,
    SayWhatHappened,
    DrawAnew,
]

# What students write must not act in the browser of who reads it, in the formgrader or on a feedback page, nor keep the
# page from being written. These are all the filters by which nbgrader's templates put it there; the first makes it
# harmless already, so that nothing is left for the second.
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {
    "markdown2html": sanitizer.markdown,
    "strip_files_prefix": str.strip,
    "clean_html": sanitizer.clean,
    "highlight_code": sanitizer.highlighted,
    "ansi2html": sanitizer.coloured,
    "mathjax_itself": sanitizer.mathjax,
    "csp_hash": sanitizer.csp_hash,
    "nbgrader_scripts": sanitizer.nbgrader_scripts,
}
c.HTMLExporter.preprocessors = [ShowRawAsText, SayAsHandedIn, ShowWithinLimits]

# In the head of both pages, where nbgrader's templates load MathJax, stands the course's own: nbconvert looks there.
os.environ["JUPYTER_PATH"] = os.pathsep.join([sanitizer.TEMPLATES, *filter(None, [os.environ.get("JUPYTER_PATH")])])
