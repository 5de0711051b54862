"""The root of the repository, and the names of its pages, chapters and labs."""

from pathlib import Path

from coursebook import contents

ROOT = Path(__file__).resolve().parents[1]
LABS = sorted(path.stem for path in (ROOT / "solutions").glob("lab-*.md"))
COURSES = [tuple(LABS[::2]), tuple(LABS[1::2])]  # the labs of each course that test_labs grades
PAGES = contents.read_pages()
MAINTAINERS_PAGES = contents.read_maintainers_pages()
# The pages of each chapter, such as "linear-models/index", by the name of the chapter
PAGES_OF = {
    entry.page.removeprefix("book/").removesuffix("/index"): [page.removeprefix("book/") for page in entry.pages]
    for entry in contents.read_chapters()
}
CHAPTERS = list(PAGES_OF)
CHAPTER_PAGES = [page for pages in PAGES_OF.values() for page in pages]
