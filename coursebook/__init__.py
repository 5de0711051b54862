"""What builds the site: executing the chapters, Sphinx extensions, the PDF, the offline copy, comparing two sites."""

from mlcourse import CourseError


class BookError(CourseError):
    """The book cannot be built or served; the message says why and what to do."""
