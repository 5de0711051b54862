"""The contents of the book, ``_toc.yml``: its parts, their chapters, and the pages of each chapter in order.

A chapter is a page with sections: its opening and the pages that a reader goes through one by one. The pages in the
folder ``book/maintainers`` are on the site, but not in the contents: neither the sidebar nor the PDF has them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
MAINTAINERS = "book/maintainers"


@dataclass
class Entry:
    """A page that stands in a part of the contents, and the pages below it, by names such as ``book/glossary``."""

    page: str
    below: list[str]

    @property
    def pages(self) -> list[str]:
        """All pages of the entry in order."""
        return [self.page, *self.below]


@dataclass
class Part:
    """A part of the contents: its caption, whether its entries are the numbered chapters, and the entries."""

    caption: str
    numbered: bool
    entries: list[Entry]


def read_parts(root: Path = ROOT) -> list[Part]:
    """Return the parts of the book in order; the first page is in none of them."""
    parts = _read(root).get("parts", [])
    return [
        Part(
            part.get("caption", ""),
            bool(part.get("numbered")),
            [Entry(one["file"], list(_below(one))) for one in part["chapters"]],
        )
        for part in parts
    ]


def read_chapters(root: Path = ROOT) -> list[Entry]:
    """Return the numbered chapters in order."""
    return [entry for part in read_parts(root) if part.numbered for entry in part.entries]


def read_pages(root: Path = ROOT) -> list[str]:
    """Return the names of all pages of the contents in order, the first page of the book first."""
    return [_read(root)["root"], *(page for part in read_parts(root) for one in part.entries for page in one.pages)]


def read_maintainers_pages(root: Path = ROOT) -> list[str]:
    """Return the names of the pages for those who change the book."""
    return [f"{MAINTAINERS}/{path.stem}" for path in sorted((root / MAINTAINERS).glob("*.md"))]


def _read(root: Path) -> dict:
    return yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))


def _below(entry: dict) -> Iterator[str]:
    for one in entry.get("sections", ()):
        yield one["file"]
        yield from _below(one)
