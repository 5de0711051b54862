"""The helper package of the course *Machine Learning for the Environmental Sciences*, for students.

Chapters and labs import `mlcourse.datasets` (the course's data), `mlcourse.plotting` (its figures), `mlcourse.quiz` and
`mlcourse.explore` (questions and figures with sliders) and `mlcourse.checks` (checks of answers). The command
``mlcourse`` is `mlcourse.cli`. This module imports nothing, so ``import mlcourse`` is fast.
"""

__version__ = "0.1.0"


class CourseError(Exception):
    """A command cannot go on; the message says why and what to do."""
