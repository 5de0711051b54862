"""The helper package of the course *Machine Learning for the Environmental Sciences*: what students get.

Chapters and labs import `mlcourse.datasets` (the course's data), `mlcourse.plotting` (its figures), `mlcourse.quiz` and
`mlcourse.explore` (questions and figures with sliders) and `mlcourse.checks` (whether an answer is right). The command
``mlcourse`` is `mlcourse.cli`. Nothing is imported here, so that ``import mlcourse`` costs nothing.
"""

__version__ = "0.1.0"


class CourseError(Exception):
    """A command cannot go on; the message says why and what to do."""
