"""One PDF and one archive of the site: ``mlcourse book pdf``, ``mlcourse book offline`` and ``mlcourse book site``.

Chromium prints the built site, in the order of its contents, with the site's own print style. So formulas, numbers and
figures are the same on the screen and on paper. Folded content is printed unfolded, and solutions move to the end of
their page. The code that draws figures and the code that checks claims are left out: the notebooks have them.
"""

import posixpath
import shutil
import tempfile
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup

from coursebook import BookError, contents
from coursebook.build import ROOT, build
from mlcourse import __version__

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Elements for the screen only, and code that is only in the notebooks
LEFT_OUT = ".headerlink, script, style, .dark-figure, .tag_claim, .tag_hide-input > details, .launch-lab, .screen-only"
REFERENCES = ("for", "aria-labelledby", "aria-describedby", "aria-controls")
PREFACE = (
    "This is the printed form of a website whose pages are notebooks. Solutions stand at the end of their page. "
    "The code that draws the figures and the code that checks the claims of the text are in the notebooks."
)
# Width between the page margins of course.css, in CSS pixels
PRINTED_WIDTH = 658
PRINTS = 5

FIT = """async () => {
  await document.fonts.ready;
  await Promise.all([...document.images].map((image) => image.decode()));
  for (const wide of document.querySelectorAll(".katex-display > .katex, table")) {
    const room = wide.parentElement.clientWidth;
    if (wide.scrollWidth > room) wide.style.zoom = 0.99 * room / wide.scrollWidth;
  }
}"""
# Otherwise the page breaks of a long page alternate between two layouts
LAY_OUT_ANEW = """() => {
  for (const hidden of [true, false]) {
    document.body.hidden = hidden;
    document.body.getBoundingClientRect();
  }
}"""
NUMBER_CONTENTS = """(pages) => {
  for (const link of document.querySelectorAll(".print-contents a")) link.dataset.page = pages[link.hash.slice(1)];
}"""


def print_book(root: Path = ROOT) -> Path:
    """Build the site and print all of it.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    pathlib.Path
        The PDF, ``_build/book.pdf``.

    Raises
    ------
    BookError
        If there is no Chromium, or the site cannot be built.
    """
    browser = _browser()
    site = build(root)
    target = root / "_build" / "book.pdf"
    if target.exists() and target.stat().st_mtime > (root / "_build" / "built.json").stat().st_mtime:
        print("The PDF is up to date.")
        return target
    print("Printing the book ...", flush=True)
    print_site(one_page(root, site), site, target, browser)
    print(f"Written to {target.relative_to(root)}.")
    return target


def print_site(book: BeautifulSoup, site: Path, target: Path, browser: str | None = None) -> None:
    """Print pages of a site.

    Parameters
    ----------
    book : bs4.BeautifulSoup
        The pages as one, as `one_page` returns them.
    site : pathlib.Path
        The built site.
    target : pathlib.Path
        The PDF to write.
    browser : str, optional
        The path of a Chromium. The default is the one that is installed.

    Raises
    ------
    BookError
        If there is no Chromium.
    """
    with tempfile.TemporaryDirectory(dir=site.parent) as folder:
        page = Path(folder) / "book.html"
        page.write_text(str(book), encoding="utf-8")
        _print(page, target, browser or _browser())


def pack_site(root: Path = ROOT) -> Path:
    """Build the site and pack it for readers without a network.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    pathlib.Path
        The archive, ``_build/book-offline.zip``. Unpacked, ``book/index.html`` leads to the first page.

    Raises
    ------
    BookError
        If the site cannot be built.
    """
    site = build(root)
    target = root / "_build" / "book-offline.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(site.rglob("*")):
            if path.is_file() and "reports" not in path.relative_to(site).parts:
                archive.write(path, Path("book", path.relative_to(site)))
    print(f"Written to {target.relative_to(root)}.")
    return target


def complete_site(root: Path = ROOT) -> Path:
    """Build the site, and offer its PDF and its archive on the first page.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    pathlib.Path
        The folder to publish, ``_build/site``.

    Raises
    ------
    BookError
        If there is no Chromium, or the site cannot be built.
    """
    files = {"The whole book as one PDF": print_book(root), "an archive to read without a network": pack_site(root)}
    target = root / "_build" / "site"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "_build" / "html", target, ignore=shutil.ignore_patterns("reports"))
    offer(files, target, contents.read_pages(root)[0])
    print(f"Written to {target.relative_to(root)}.")
    return target


def offer(files: dict[str, Path], site: Path, page: str) -> None:
    """Put files beside the pages of a site, and links to them in the place of how to make them.

    Parameters
    ----------
    files : dict of str to pathlib.Path
        What each file is, in the order of the sentence, and the file.
    site : pathlib.Path
        Changed in place.
    page : str
        The name of the page with an element of the class ``downloads``.
    """
    path = site / f"{page}.html"
    html = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    links = []
    for name, file in files.items():
        shutil.copy(file, site)
        size = f", {file.stat().st_size / 1e6:.0f} MB"
        links.append(f'<a href="{posixpath.relpath(file.name, posixpath.dirname(page))}" download>{name}</a>{size}')
    place = html.select_one(".downloads")
    place.clear()
    place.append(BeautifulSoup(f"<p>{'; '.join(links)}.</p>", "html.parser"))
    path.write_text(str(html), encoding="utf-8")


def one_page(root: Path, site: Path) -> BeautifulSoup:
    """Return all pages of a site as one, in the order of the contents.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course, for ``_toc.yml`` and ``_config.yml``.
    site : pathlib.Path
        The built site. The page that is returned must be written into a folder beside it.

    Returns
    -------
    bs4.BeautifulSoup
        One page. Identifiers start with the name of their original page, and links are adapted.
    """
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    names = contents.read_pages(root)
    articles = {name: _article(site, name, names) for name in names}
    title = articles[names[0]].h1.extract()
    book = BeautifulSoup(
        f"<!DOCTYPE html><html lang='en-GB' data-theme='light' class='print-book'><head></head><body>"
        f"<header class='print-title'><p>{config['author']}</p><p>Version {__version__}</p><p>{PREFACE}</p>"
        f"<p>{config['html']['extra_footer']}</p></header><nav class='print-contents' aria-label='Contents'></nav>"
        f"</body></html>",
        "html.parser",
    )
    book.head.extend(_head(site, names[0]))
    book.head.append(_tag(book, "style", "".join(_running_title(articles[name]) for name in names[1:])))
    book.header.insert(0, title)
    book.body.append(articles[names[0]])
    book.nav.append(_tag(book, "p", "Contents", "print-heading"))
    for part in contents.read_parts(root):
        book.nav.append(_tag(book, "p", part.caption, "print-part"))
        for entry in part.entries:
            book.nav.append(_contents(book, [articles[name] for name in entry.pages]))
            book.body.extend([articles[name] for name in entry.pages])
    return book


def _head(site, name):
    """Return the styles in a page's head."""
    page = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
    kept = page.head.select("meta[charset], title, link[rel=stylesheet]")
    for tag in kept:
        _move(tag, name)
    return kept


def _article(site, name, names):
    """Return the text of a page, with identifiers and links adapted to the whole book."""
    page = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
    article = page.select_one("article.bd-article")
    for tag in article.select(LEFT_OUT):
        tag.decompose()
    for tag in article.select("noscript"):
        tag.unwrap()
    for tag in article.select("details"):
        tag["open"] = ""
    _gather_solutions(page, article)
    for tag in article.find_all(True):
        if tag.get("id"):
            tag["id"] = f"{_slug(name)}--{tag['id']}"
        for key in REFERENCES:
            if tag.get(key):
                tag[key] = f"{_slug(name)}--{tag[key]}"
        if tag.name == "a" and tag.get("href"):
            _lead(tag, name, names)
        _move(tag, name)
    article["id"] = _slug(name)
    return article


def _gather_solutions(page, article):
    """Move the solutions of a page to its end, and link each exercise to its solution."""
    solutions = article.select(".solution")
    if not solutions:
        return
    end = _tag(page, "section", "", "print-solutions", id="solutions")
    end.append(_tag(page, "h2", "Solutions"))
    for solution in solutions:
        exercise = article.find(id=urlsplit(solution.a["href"]).fragment)
        words = _tag(page, "p", "", "print-to-solution")
        words.append(_tag(page, "a", "Solution", href=f"#{solution['id']}"))
        exercise.append(words)
        end.append(solution.extract())
    article.append(end)


def _lead(link, name, names):
    """Point a link to a page of the book to its place in the one page, and drop links to the rest of the site."""
    url = urlsplit(link["href"])
    if url.scheme or url.netloc:
        return
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(url.path))) if url.path else name
    page = path.removesuffix(".html")
    if page in names:
        link["href"] = f"#{_slug(page)}" + (f"--{unquote(url.fragment)}" if url.fragment else "")
    else:
        link.unwrap()


def _move(tag, name):
    """Adapt the path of a picture, style or script to a page in a folder beside that of the site."""
    for key in ("src", "href"):
        url = urlsplit(tag.get(key, "") if tag.name != "a" else "")
        if url.path and not url.scheme:
            tag[key] = "../html/" + posixpath.normpath(posixpath.join(posixpath.dirname(name), url.path))
    tag.attrs.pop("loading", None)


def _slug(name):
    return name.replace("/", "-")


def _running_title(article):
    """Return the style that prints the title of a page at the top of its sheets."""
    title = article.h1.get_text().strip().replace("\\", r"\\").replace('"', r"\"")
    name = article["id"]
    return f'@page {name} {{ @top-right {{ content: "{title}"; font: 9pt sans-serif }} }} #{name} {{ page: {name} }}\n'


def _contents(book, articles):
    """Return the entries of a chapter in the contents: its title and its pages, or, if it is one page, its sections."""
    chapter, *below = articles
    entries = _tag(book, "ul")
    found = [("h1", chapter.h1, chapter["id"])]
    found += [("h2", one, one.find_parent("section")["id"]) for one in chapter.find_all("h2") if not below]
    found += [("h2", page.h1, page["id"]) for page in below]
    for level, heading, target in found:
        entry = _tag(book, "li", "", f"print-{level}")
        entry.append(_tag(book, "a", heading.get_text().strip(), href=f"#{target}"))
        entries.append(entry)
    return entries


def _tag(page, tag_name, text="", css_class=None, **attributes):
    if css_class:
        attributes["class"] = css_class
    tag = page.new_tag(tag_name, attrs=attributes)
    tag.string = text
    return tag


def _browser():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        raise BookError("no Chromium was found: on Debian and Ubuntu, type: sudo apt-get install chromium")
    return browser


def _print(path, target, browser):
    """Print a page until the page numbers in its contents are right; the first print is a draft to find them."""
    from playwright.sync_api import sync_playwright
    from pypdf import PdfReader

    options = {"path": target, "prefer_css_page_size": True, "print_background": True}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": PRINTED_WIDTH, "height": 900}, color_scheme="light")
        page.set_default_timeout(0)
        page.emulate_media(media="print")
        page.goto(path.as_uri())
        page.evaluate(FIT)
        shown = None
        for attempt in range(PRINTS):
            page.evaluate(LAY_OUT_ANEW)
            page.pdf(**options, outline=attempt > 0, tagged=attempt > 0)
            reader = PdfReader(target)
            places = {
                name.lstrip("/"): reader.get_destination_page_number(at) + 1
                for name, at in reader.named_destinations.items()
            }
            if places == shown:
                break
            page.evaluate(NUMBER_CONTENTS, shown := places)
        else:
            print("Some numbers in the contents of the PDF may be one off: delete it and print it again.")
        chromium.close()
