"""nbgrader's configuration: run `nbgrader ...` in this folder."""

import os
import sys

from traitlets.config import Application

# Without this, nbgrader ignores a broken configuration with a warning, and runs students' code without the sandbox.
Application.raise_config_file_errors = True

from nbgrader.converters import Autograde
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    SaveAutoGrades,
)

from coursegrader import sanitizer
from coursegrader.deadlines import LatePenalty
from coursegrader.exchange import Collect, ReleaseFeedback
from coursegrader.feedback import FeedbackPage
from coursegrader.preprocessors import (
    DrawAnew,
    GradeInSandbox,
    KeepAnswers,
    SayAsHandedIn,
    ShowHintsOnly,
    ShowMarks,
    ShowRawAsText,
    ShowWithinLimits,
)
from coursegrader.submissions import ReadSubmission, before_grading, let_nbgrader_read_times
from mlcourse.student.nbgrader_pages import csp_hash, protect

c = get_config()  # noqa: F821 (nbgrader defines it)

# nbgrader looks up `alembic` on the PATH, where it is missing unless the environment is activated.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])

c.CourseDirectory.course_id = "mlcourse"

# `source` is generated from `solutions` (make labs); students get `labs`.
c.CourseDirectory.source_directory = "source"
c.CourseDirectory.release_directory = "labs"
# The default, `solution`, is too close to `solutions`.
c.CourseDirectory.solution_directory = "solved"

# A mark scheme stands in the cell of the question. Releases omit it; the formgrader shows it.
c.ClearMarkScheme.enforce_metadata = False

# From the exchange, take only what students may hand in, follow none of their links, and let nobody stop the class.
c.ExchangeFactory.collect = Collect
c.ExchangeFactory.release_feedback = ReleaseFeedback

# Check and repair submissions first.
c.Autograde.exporter_class = ReadSubmission
c.Autograde.pre_convert_hook = before_grading
# Keep the outputs of cells that need not run; grading replaces all others.
c.Autograde.sanitize_preprocessors = [
    step for step in Autograde.sanitize_preprocessors.default() if step is not ClearOutput
]
# Do not copy what `before_grading` put aside in the submission.
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.unreadable*"]

# No pipe or odd text in the place of a time stops the formgrader.
let_nbgrader_read_times()

# Students' code runs in a sandbox; the tests run outside, where students' code cannot reach them.
# The data of hidden tests depend on a secret. The first grading writes it to this file; keep it with the gradebook.
c.GradeInSandbox.secret_file = "secret.json"
c.Autograde.autograde_preprocessors = [
    GradeInSandbox,
    SaveAutoGrades,
    KeepAnswers,
    AssignLatePenalties,
    CheckCellMetadata,
]

# The part of its points that a submission loses for each late day begun. The page for instructors lists more settings.
c.LatePenalty.per_day = 0
c.AssignLatePenalties.plugin_class = LatePenalty

# The feedback is a page of the course's own, which needs no network.
c.GenerateFeedback.exporter_class = FeedbackPage
c.GenerateFeedback.preprocessors = [
    ShowMarks,
    ClearHiddenTests,
    ClearMarkScheme,
    ShowHintsOnly,
    ShowWithinLimits,
    DrawAnew,
]
# What these steps make of a notebook is always a notebook. To check that after each takes longer than the page.
c.FeedbackPage.optimistic_validation = True

# Students' text must not run scripts in the browser of a reader of the formgrader, nor stop the page from being
# written. These are all the filters through which nbgrader's templates insert it. `markdown` already
# sanitises, so `strip_files_prefix` has nothing to do.
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {
    "markdown2html": sanitizer.markdown,
    "strip_files_prefix": str.strip,
    "clean_html": sanitizer.clean_output,
    "highlight_code": sanitizer.highlighted,
    "ansi2html": sanitizer.coloured,
    "mathjax_itself": sanitizer.mathjax,
    "csp_hash": csp_hash,
    "nbgrader_scripts": sanitizer.nbgrader_scripts,
}
c.HTMLExporter.preprocessors = [ShowRawAsText, ShowWithinLimits, SayAsHandedIn]

# The formgrader loads the course's own MathJax: nbconvert finds the template for its head on this path.
os.environ["JUPYTER_PATH"] = os.pathsep.join([sanitizer.TEMPLATES, *filter(None, [os.environ.get("JUPYTER_PATH")])])

# No link or text may run a script in the formgrader, and no link may have it load another configuration. The server
# does this already, unless its environment was set up before the course brought its own settings for Jupyter.
protect()
