"""What instructors run: the labs made from their sources, and the steps that nbgrader takes with them."""


class GradingError(Exception):
    """A step of the grading cannot go on; the message says why and what to do."""
