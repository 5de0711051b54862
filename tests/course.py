"""A temporary course: nbgrader releases its labs, collects them from a class of six, and grades them.

``released`` hands in the notebook unchanged, ``half`` the first half of the exercises, ``perfect`` the instructor's
answers, ``noisy`` the same with prints and warnings everywhere, ``wrong`` the same with a function that returns None,
and ``script`` a notebook that tries to run a script in the grader's browser.
"""

import ast
import contextlib
import copy
import functools
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import nbformat
import pytest
from nbgrader.api import Gradebook

import coursegrader.labs
from classroom import put_gradebook
from coursegrader.labs import grade_id, grader, release, secret_lines
from mlcourse.cli import main
from paths import ROOT

NOISE = 'import sys, warnings\nprint("debug")\nprint("debug", file=sys.stderr)\nwarnings.warn("careful")'
ATTACK = (
    '<script>alert(1)</script> <img src="x" onerror="alert(1)"> <a href="javascript:alert(1)">a link</a>\n\n'
    "[another link](javascript:alert(1))"
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOWN = {"image/png": PIXEL, "text/html": "<table><tr><td>1</td></tr></table>"}
LIVELY = ["text/html", "text/markdown", "text/latex", "image/svg+xml", "application/javascript"]


def make_course(root, labs):
    """Copy what nbgrader needs to `root` and release some labs."""
    (root / "solutions").mkdir()
    for name in labs:
        shutil.copy(ROOT / "solutions" / f"{name}.md", root / "solutions")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    put_gradebook(root)
    release(root)
    return root


def command_in(root, capsys):
    """Return a function that runs a command in a course, and returns its exit code, or its error, and what it says."""

    def type(*words):
        with contextlib.chdir(root), pytest.raises(SystemExit) as exit:
            main([str(word) for word in words])
        said = capsys.readouterr()
        return exit.value.code, said.out + said.err

    return type


class Lab:
    """A lab of the course at `root`: its notebooks, and the results of the class."""

    def __init__(self, root, name):
        self.root, self.name = root, name
        self.source = nbformat.read(root / "source" / name / f"{name}.ipynb", as_version=4)
        self.released = nbformat.read(root / "labs" / name / f"{name}.ipynb", as_version=4)
        graded = [cell for cell in self.source.cells if grader(cell).get("grade")]
        self.points = {grade_id(cell): grader(cell)["points"] for cell in graded}
        self.written = [grade_id(cell) for cell in graded if grader(cell)["solution"]]
        self.tests = {grade_id(cell): cell.source for cell in graded if not grader(cell)["solution"]}
        answers = {grade_id(cell): without_markers(cell) for cell in self.source.cells if grader(cell).get("solution")}
        code = {name: answer for name, answer in answers.items() if name not in self.written}
        self.exercises = list(code)
        self.first_half = self.exercises[: (len(code) + 1) // 2]
        last = max((name for name in code if functions(code[name])), key=self.exercises.index)
        self.broken = functions(code[last])[-1].name
        self.submitted = {
            "released": self.released,
            "half": self.filled_in({name: code[name] for name in self.first_half}),
            "perfect": self.filled_in(answers),
            "noisy": self.filled_in({**answers, **{name: noisy(code[name]) for name in code}}),
            "wrong": self.filled_in({**answers, last: returning_none(code[last])}),
            "script": with_attacks(self.filled_in(dict.fromkeys(self.written, ATTACK))),
        }

    def filled_in(self, answers):
        """Return the student notebook with `answers`, code or text by grade_id, and outputs of given cells."""
        notebook = copy.deepcopy(self.released)
        for cell in notebook.cells:
            cell.source = answers.get(grade_id(cell), cell.source)
            if cell.cell_type == "code" and "nbgrader" not in cell.metadata:
                cell.outputs = [nbformat.v4.new_output("display_data", SHOWN)]
        return notebook

    def hand_in(self):
        """Put the notebook of every student into the folder of submissions."""
        for student, notebook in self.submitted.items():
            path = self.root / "submitted" / student / self.name / f"{self.name}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(notebook, path)

    def read_written_answers(self):
        """Save the automatic results, then give the written answers of `noisy` full marks, as a person would."""
        self.automatic = self.read_scores("auto_score")
        self.waiting = self.read_scores("needs_manual_grade")
        with self.gradebook() as gradebook:
            for name in self.written:
                grade = gradebook.find_grade(name, self.name, self.name, "noisy")
                grade.manual_score, grade.needs_manual_grade = grade.max_score, False
            gradebook.db.commit()

    def nbgrader(self, *arguments):
        command = [sys.executable, "-m", "nbgrader", *arguments]
        run = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"nbgrader {' '.join(arguments)} failed:\n{run.stdout}\n{run.stderr}"

    def gradebook(self):
        return Gradebook(f"sqlite:///{self.root / 'gradebook.db'}")

    def read_scores(self, attribute):
        """Return an attribute of every grade in the gradebook, by student and grade_id."""
        with self.gradebook() as gradebook:
            return {
                submission.student_id: {
                    grade.name: getattr(grade, attribute) for grade in submission.notebooks[0].grades
                }
                for submission in gradebook.find_assignment(self.name).submissions
            }

    def totals(self):
        """Return the score of every student in the gradebook."""
        with self.gradebook() as gradebook:
            return {one.student_id: one.score for one in gradebook.find_assignment(self.name).submissions}

    def autograded(self, student):
        return nbformat.read(self.root / "autograded" / student / self.name / f"{self.name}.ipynb", as_version=4)

    def feedback(self, student):
        return self.root / "feedback" / student / self.name / f"{self.name}.html"

    @property
    def exported(self):
        return self.root / "grades.csv"

    def messages(self, student):
        """Return the message of each test cell that failed for a student, by grade_id."""
        raised = errors(self.autograded(student))
        return {name: raised[name] for name in self.tests if name in raised}

    def secrets(self, region):
        """Return the lines of at least 20 visible characters in regions of one kind, except those in given code."""
        return secret_lines(self.source, region)


class Course:
    """A course at `root` whose labs are graded together."""

    def __init__(self, root, names):
        make_course(root, names)
        self.labs = {name: Lab(root, name) for name in names}
        for lab in self.labs.values():
            # `noisy` contains the answers of `perfect`, and `wrong` can contain the attacks of `script`
            wrong = with_attacks(copy.deepcopy(lab.submitted["wrong"]))
            for cell in wrong.cells:
                cell.source = ATTACK if grade_id(cell) in lab.written else cell.source
            lab.submitted = {name: lab.submitted[name] for name in ("released", "half", "noisy")} | {"wrong": wrong}

    @functools.cached_property
    def graded(self):
        """The labs after all steps of an instructor: grade, mark written answers, write feedback, export."""
        first, *_ = labs = self.labs.values()
        for lab in labs:
            lab.hand_in()
        first.nbgrader("autograde", "lab-*")
        for lab in labs:
            lab.read_written_answers()
        first.nbgrader("generate_feedback", "lab-*")
        first.nbgrader("export", "--to", first.exported.name)
        return self.labs


def without_markers(cell):
    return re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", cell.source, flags=re.MULTILINE)


def functions(code):
    return [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]


def calls(code, name):
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(ast.parse(code)))


def noisy(code):
    """Make a cell, and every function in it, print and warn."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef):
            node.body[:0] = ast.parse(NOISE).body
    return ast.unparse(tree)


def returning_none(code):
    """Make the last function of a cell return None."""
    tree = ast.parse(code)
    [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1].body = ast.parse("return None").body
    return ast.unparse(tree)


def with_attacks(notebook):
    """Add cells with a script in a text, in an output, and in an error message."""
    notebook.cells += [
        nbformat.v4.new_markdown_cell(ATTACK),
        *(nbformat.v4.new_code_cell(f"display({{{kind!r}: {ATTACK!r}}}, raw=True)") for kind in LIVELY),
        nbformat.v4.new_code_cell(f"raise ValueError({ATTACK!r})"),
    ]
    return notebook


def errors(notebook):
    """Return the error messages of the cells of a notebook, by grade_id or else by the cell's identifier."""
    return {
        grade_id(cell) or cell.id: output.evalue
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    }


def text_of(path):
    """Return the raw text of a file and, for a page or a notebook, also the text that a person reads."""
    return coursegrader.labs.text_of(path.name, path.read_bytes())


def leaks(secrets, paths):
    """Return a sentence for each secret line and each marker that a file contains."""
    found, find = [], coursegrader.labs.leak_finder(secrets)
    for path in paths:
        lines = find(text_of(path))
        # The page for instructors explains the markers, and the search finds them there
        explained = coursegrader.labs.MARKERS if path.stem in ("for-instructors", "search-index") else ()
        found += [f"{path.name} holds: {line}" for line in lines if line not in explained]
    return found


class LiveParts(HTMLParser):
    """Collect the parts of a page that a browser would run."""

    def __init__(self, page):
        super().__init__()
        self.found, self.inside = [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        if tag in ("script", "iframe", "object", "embed"):
            self.found.append((tag, *attributes))
        self.found += [
            (key, value)
            for key, value in attributes
            if key.startswith("on") or (value or "").strip().lower().startswith("javascript:")
        ]

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside == "script":
            self.found.append(text)
