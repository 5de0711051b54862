"""Build the site: execute the chapters, extend Sphinx, print the PDF, pack the offline copy, compare two sites."""

from mlcourse import CourseError


class BookError(CourseError):
    """The book cannot be built or served; the message says why and what to do."""
