"""Release and grade the labs: sources, submissions, the sandbox, the gradebook, reports and audits."""

from mlcourse import CourseError


class GradingError(CourseError):
    """A step of the grading cannot go on; the message says why and what to do."""
