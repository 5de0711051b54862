"""Helper package of the course *Machine Learning for the Environmental Sciences*.

Students import `mlcourse.datasets` (the course's data), `mlcourse.plotting` (its figures) and `mlcourse.checks`
(whether an answer is right); `mlcourse.grading` is what instructors run. Nothing is imported here, so that
``import mlcourse`` costs nothing.
"""

__version__ = "0.1.0"
