"""Report which numbers, outputs and figures differ from the site of an earlier revision.

``mlcourse book diff REVISION`` prints them, and exits with status 1 if there are any.

Wording and code are not compared, since git shows them. Figure and section numbers are not compared, since additions
shift them. Text outputs are compared by line, sentences by their numbers, figures by their pixels.
"""

import difflib
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from bs4 import BeautifulSoup, Tag
from PIL import Image

from coursebook import BookError
from coursebook.build import build

# A revision is built in a separate process, since it has its own helper package.
BUILD = """
from pathlib import Path
from coursebook import BookError
from coursebook.build import build
try:
    build(Path.cwd())
except BookError as error:
    raise SystemExit(f"Error: {error}")
"""
SHOWN_CHANGES, SHOWN_CHARACTERS = 20, 110
# A pixel differs if a colour channel differs by more than a tenth; a figure differs if more than ten pixels do.
COLOUR_TOLERANCE, PIXEL_TOLERANCE = 0.1, 10
PICTURES = {".png", ".webp"}
NUMBER = r"(?<![\w.])[-−+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?"
OUTPUT = ".cell_output, script[type='application/json']"
BLOCKS = "p, li, dt, dd, td, th, h1, h2, h3, h4, figcaption"
NOT_COMPARED = ".times, .cell_input, .highlight, .headerlink, .section-number, .caption-number, a.reference.internal"


def diff_site(revision: str, root: Path) -> dict[str, list[str]]:
    """Build the site of a revision and of the working tree, and return what differs.

    Parameters
    ----------
    revision : str
        A commit, branch or tag of the repository.
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    dict of str to list of str
        The changes of each page that differs, one line each; see `differences`.

    Raises
    ------
    BookError
        If there is no such revision, or one of the two sites cannot be built.
    """
    tree = _check_out(_commit(revision, root), root)
    new = build(root)
    print(f"Building the book of {revision} in {tree} ...", flush=True)
    _share_results(root / "_build", tree / "_build")
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-c", BUILD]
    result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BookError(f"the book of {revision} cannot be built:\n{result.stdout}{result.stderr}")
    return differences(tree / "_build" / "html", new)


def _commit(revision, root):
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode or not revision:
        raise BookError(
            f"there is no revision {revision!r}: name a commit, branch or tag, as in make diff-site REV=HEAD~1"
        )
    return result.stdout.strip()


def _check_out(commit, root):
    """Check out a commit and return its folder, which is kept so that the next comparison executes only changes."""
    tree = root / "_build" / "revision"
    if not (tree / ".git").exists():
        shutil.rmtree(tree, ignore_errors=True)
        _git(root, "worktree", "prune")
        _git(root, "worktree", "add", "--quiet", "--detach", "--no-checkout", str(tree), commit)
    _git(tree, "checkout", "--quiet", "--detach", "--force", commit)
    return tree


def _git(folder, *arguments):
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BookError(f"git {' '.join(arguments)} failed: {result.stderr.strip()}")


def _share_results(output, other):
    """Copy the cache of this working tree, so that the revision reuses results with the same inputs."""
    if not (other / ".jupyter_cache").exists() and (output / ".jupyter_cache").exists():
        shutil.copytree(output / ".jupyter_cache", other / ".jupyter_cache")


def differences(old: Path, new: Path) -> dict[str, list[str]]:
    """Return what differs between two built sites.

    Parameters
    ----------
    old, new : pathlib.Path
        Their folders.

    Returns
    -------
    dict of str to list of str
        For each page, the lines that only the old (``- ``) or the new site (``+ ``) has, and a sentence for each figure
        that differs. Pages without a difference are left out.
    """
    pages = sorted({page.relative_to(site).as_posix() for site in (old, new) for page in site.glob("book/**/*.html")})
    found = {page: list(_changes(old / page, new / page)) for page in pages}
    return {page: changes for page, changes in found.items() if changes}


def _changes(old: Path, new: Path) -> Iterator[str]:
    if not (old.exists() and new.exists()):
        yield "the page is new" if new.exists() else "the page is gone"
        return
    before, after = _article(old), _article(new)
    figures_before, figures_after = _figures(before, old), _figures(after, new)
    yield from _changed_lines(_lines(before), _lines(after))
    for name in figures_before | figures_after:
        if name not in figures_before or name not in figures_after:
            yield f"{name} is {'new' if name in figures_after else 'gone'}"
        elif difference := _difference(figures_before[name], figures_after[name]):
            yield f"{name}: {difference}"


def _article(page: Path) -> Tag:
    article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").find("article")
    for tag in article.select(NOT_COMPARED):
        if not tag.find_parent(class_="cell_output"):
            tag.decompose()
    return article


def _lines(article):
    """Yield the lines of outputs and the sentences with numbers, each as a pair: its key to compare and its text."""
    for output in article.select(OUTPUT):
        text = output.string if output.name == "script" else output.get_text()
        yield from ((line.split(), line.strip()) for line in (text or "").splitlines() if line.strip())
        output.clear()
    for block in article.select(BLOCKS):
        if not block.select_one(BLOCKS):
            text = " ".join(block.get_text().split())
            if numbers := re.findall(NUMBER, text):
                yield numbers, text


def _changed_lines(before, after):
    before, after = list(before), list(after)
    keys = [[" ".join(key) for key, _ in lines] for lines in (before, after)]
    for kind, start, stop, new_start, new_stop in difflib.SequenceMatcher(None, *keys, False).get_opcodes():
        if kind == "equal":
            continue
        for (_, old), (_, new) in itertools.zip_longest(
            before[start:stop], after[new_start:new_stop], fillvalue=("", "")
        ):
            same = len(os.path.commonprefix([old, new]))  # noqa: RUF071 (compare by character)
            yield from (f"{sign} {_excerpt(text, same)}" for sign, text in (("-", old), ("+", new)) if text)


def _excerpt(text, place):
    """Return at most a line of a text, around the given place."""
    start = max(0, min(place - SHOWN_CHARACTERS // 2, len(text) - SHOWN_CHARACTERS))
    stop = start + SHOWN_CHARACTERS
    return f"{'... ' if start else ''}{text[start:stop]}{' ...' if stop < len(text) else ''}"


def _figures(article, page):
    """Map the name of each image's figure, or else its number on the page, to its file."""
    files = {}
    for number, image in enumerate(article.select("img[src]:not(.dark-figure)"), start=1):
        figure = image.find_parent(id=re.compile("^fig-"))
        name = f"figure {figure['id']}" if figure else f"image {number}"
        while name in files:
            name += " (next)"
        files[name] = page.parent / unquote(image["src"])
    return files


def _difference(old, new):
    """Return how two images differ, or an empty text."""
    if old.read_bytes() == new.read_bytes():
        return ""
    if {old.suffix, new.suffix} - PICTURES:
        return "the file differs"
    before, after = (np.asarray(Image.open(path).convert("RGB")) / 255 for path in (old, new))
    if before.shape != after.shape:
        return f"{before.shape[1]} x {before.shape[0]} pixels became {after.shape[1]} x {after.shape[0]}"
    differ = np.count_nonzero(np.abs(before - after).reshape(*before.shape[:2], -1).max(axis=2) > COLOUR_TOLERANCE)
    return f"{differ / before[..., 0].size:.2%} of the pixels differ" if differ > PIXEL_TOLERANCE else ""


def report(changes: dict[str, list[str]], revision: str) -> str:
    """Format the changes that `diff_site` found as a short list."""
    lines = []
    for page, found in changes.items():
        lines += [page, *(f"  {line}" for line in found[:SHOWN_CHANGES])]
        if len(found) > SHOWN_CHANGES:
            lines.append(f"  ... and {len(found) - SHOWN_CHANGES} more lines")
    if not changes:
        return f"No number, output or figure has changed since {revision}."
    pages = "1 page" if len(changes) == 1 else f"{len(changes)} pages"
    return "\n".join([*lines, f"Numbers, outputs or figures have changed since {revision} in {pages}."])
