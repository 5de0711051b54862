"""The printed and the offline book: one PDF, one archive, and a page as the browser prints it.

`make test` prints a few pages of each kind; in `make cold`, these tests print the whole book.
"""

import io
import shutil
import subprocess
import sys
import unicodedata
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from bs4 import BeautifulSoup
from pypdf import PdfReader
from pypdf.generic import IndirectObject

from browser import DISTORTED, SHOW_ALL
from coursebook import printing
from paths import PAGES, PAGES_OF, ROOT
from unchanged import NIGHTLY

SITE = ROOT / "_build" / "html"
# Height between the margins of a sheet, in CSS pixels: A4 less 20 mm above and 22 mm below
SHEET = (297 - 20 - 22) / 25.4 * 96


pytestmark = [pytest.mark.nightly] if NIGHTLY else []
CHAPTER = [f"book/{page}" for page in PAGES_OF["introduction"][:3]]
PRINTED = PAGES if NIGHTLY else ["book/index", *CHAPTER, "book/glossary", "book/lists"]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    root = tmp_path_factory.mktemp("printed")
    shutil.copy(ROOT / "_config.yml", root)
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    if not NIGHTLY:
        for part in toc["parts"]:
            part["chapters"] = [one for one in part["chapters"] if one["file"] in PRINTED]
    (root / "_toc.yml").write_text(yaml.safe_dump(toc), "utf-8")
    return printing.one_page(root, SITE)


@pytest.fixture(scope="module")
def pdf(chromium, book, tmp_path_factory):
    if NIGHTLY:
        subprocess.run([sys.executable, "-m", "mlcourse.cli", "book", "pdf"], cwd=ROOT, check=True)
        return PdfReader(ROOT / "_build" / "book.pdf")
    target = tmp_path_factory.mktemp("pdf") / "book.pdf"
    with ThreadPoolExecutor() as thread:  # a thread has one Playwright, and this one has that of the tests
        thread.submit(printing.print_site, book, SITE, target).result()
    return PdfReader(target)


def flat(outline):
    for entry in outline:
        yield from flat(entry) if isinstance(entry, list) else [entry]


def titles():
    for name in PRINTED:
        heading = BeautifulSoup((SITE / f"{name}.html").read_text("utf-8"), "html.parser").select_one("article h1")
        heading.select_one(".headerlink").decompose()
        yield heading.get_text().strip()


@pytest.mark.nightly
def test_the_outline_of_the_pdf_has_every_page_in_order_and_its_sections(pdf):
    top = [entry for entry in pdf.outline if not isinstance(entry, list)]
    assert [entry.title for entry in top] == list(titles())
    pages = [pdf.get_destination_page_number(entry) for entry in flat(pdf.outline)]
    assert pages == sorted(pages) and len(pages) > 3 * len(top)


def test_the_contents_give_the_page_on_which_each_chapter_begins(pdf):
    starts = {one.title: pdf.get_destination_page_number(one) for one in pdf.outline[1:] if not isinstance(one, list)}
    front = "\n".join(pdf.pages[number].extract_text() for number in range(1, min(starts.values())))
    front = unicodedata.normalize("NFKC", front)  # two letters that are drawn as one
    for title, page in starts.items():
        assert title in unicodedata.normalize("NFKC", pdf.pages[page].extract_text())
        assert f"{title}\n{page + 1}" in front or f"{title} {page + 1}" in front, title


def test_every_link_of_the_pdf_leads_somewhere(pdf, book):
    names = {name.lstrip("/") for name in pdf.named_destinations}
    links = [link.get_object() for page in pdf.pages for link in page.get("/Annots", [])]
    inner = [str(link["/Dest"]).lstrip("/") for link in links if "/Dest" in link]
    outer = [link["/A"]["/URI"] for link in links if "/URI" in link.get("/A", {})]
    assert len(inner) > len(book.select('article a[href^="#"]')) // 2 > 50 and set(inner) <= names
    assert all(url.startswith(("https://", "http://", "mailto:")) for url in outer)


def test_every_sheet_has_its_number_and_text_or_a_picture(pdf):
    for number, page in enumerate(pdf.pages, start=1):
        words = page.extract_text().split()
        assert str(number) in words, f"sheet {number} has no number"
        assert len(words) > 12 or "/XObject" in page["/Resources"], f"sheet {number} is empty: {words}"


def test_every_picture_of_the_pages_is_in_the_pdf(pdf, book):
    shown = {image["src"] for image in book.select("article img[src*=_images]")}
    drawn = set()
    for page in pdf.pages:
        for one in page["/Resources"].get("/XObject", {}).values():
            if isinstance(one, IndirectObject) and one.get_object().get("/Subtype") == "/Image":
                drawn.add(one.idnum)
    assert len(drawn) >= len(shown) > 5


def test_nothing_on_paper_is_cut(chromium, book):
    """No box is wider than the sheet, and no unbreakable box is higher."""
    folder = ROOT / "_build" / "print-test"
    folder.mkdir(exist_ok=True)
    (folder / "book.html").write_text(str(book), encoding="utf-8")
    page = chromium.new_page(viewport={"width": printing.PRINTED_WIDTH, "height": 900})
    page.set_default_timeout(0)
    page.emulate_media(media="print")
    page.goto((folder / "book.html").as_uri())
    page.evaluate(printing.FIT)
    wide = page.evaluate(
        """() => [...document.querySelectorAll("article :not(.katex *)")]
          .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
          .map((one) => `${one.closest("article").id}: <${one.tagName}> ${one.textContent.slice(0, 60)}`)"""
    )
    high = page.evaluate(
        """(sheet) => [...document.querySelectorAll("article *")]
          .filter((one) => getComputedStyle(one).breakInside === "avoid" && one.getBoundingClientRect().height > sheet)
          .map((one) => `${one.closest("article").id}: <${one.tagName} ${one.className}>`)""",
        SHEET,
    )
    raw = page.locator(".katex-error").count()
    distorted = page.evaluate(DISTORTED)
    page.close()
    assert not distorted
    assert not wide and not high, "\n".join([*wide, *high])
    assert not raw


def test_the_solutions_are_printed_behind_their_page_and_every_exercise_leads_to_its_own(book):
    assert book.select(".exercise") and not book.select("details:not([open])")
    for exercise in book.select(".exercise"):
        (link,) = exercise.select(".print-to-solution a")
        solution = book.find(id=link["href"].removeprefix("#"))
        assert solution.find_parent("section")["class"] == ["print-solutions"]
        assert solution.find_parent("article") is exercise.find_parent("article")


def test_a_page_is_printed_dark_on_white_even_from_the_dark_theme(chromium, address):
    page = chromium.new_page(color_scheme="dark")
    page.goto(f"{address}/{CHAPTER[1]}.html")
    page.evaluate(
        """addEventListener("beforeprint", () => {
          window.printed = getComputedStyle(document.querySelector("article p")).color;
        })"""
    )
    sheets = PdfReader(io.BytesIO(page.pdf())).pages
    printed = page.evaluate("window.printed.match(/\\d+/g).map(Number)")
    after = page.evaluate("document.documentElement.dataset.theme")
    figures = page.locator("img.light-figure[src*=_images]").count()
    page.close()
    assert max(printed[:3]) < 90 and after == "dark"
    corners = [one.image.convert("RGB").getpixel((0, 0)) for sheet in sheets for one in sheet.images]
    assert len(corners) >= figures > 0 and {*corners} == {(255, 255, 255)}


def test_the_published_site_offers_the_pdf_and_the_archive_and_another_site_does_not(tmp_path):
    (tmp_path / "site" / "book").mkdir(parents=True)
    shutil.copy(SITE / "book" / "index.html", tmp_path / "site" / "book")
    files = {"One PDF": tmp_path / "book.pdf", "an archive": tmp_path / "book.zip"}
    for file in files.values():
        file.write_bytes(bytes(2_000_000))
    path = tmp_path / "site" / "book" / "index.html"
    assert not BeautifulSoup(path.read_text("utf-8"), "html.parser").select(".downloads a")
    printing.offer(files, tmp_path / "site", "book/index")
    place = BeautifulSoup(path.read_text("utf-8"), "html.parser").select_one(".downloads")
    assert place.get_text() == "One PDF, 2 MB; an archive, 2 MB."
    assert all((path.parent / link["href"]).resolve().is_file() for link in place.find_all("a"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    with zipfile.ZipFile(printing.pack_site()) as archive:
        archive.extractall(folder)
    return (folder / "book").as_uri()


@pytest.mark.parametrize("name", ["book/index", CHAPTER[1], "book/lists"])
def test_the_unpacked_archive_can_be_read_from_a_disk(chromium, unpacked, name):
    page = chromium.new_page()
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{unpacked}/{name}.html")
    page.wait_for_load_state("networkidle")
    broken = page.evaluate(SHOW_ALL)
    assert page.locator(".katex").count() or not page.locator(".math").count()
    page.close()
    assert not [url for url in requests if not url.startswith((unpacked, "data:"))]
    assert not errors and not broken


def test_the_first_page_of_the_archive_leads_to_the_book_and_its_search_works(chromium, unpacked):
    page = chromium.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{unpacked}/index.html")
    page.wait_for_url(f"{unpacked}/book/index.html", wait_until="networkidle")
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input").press_sequentially("ridge")
    page.wait_for_selector("#found mark")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=ridge")
    page.wait_for_selector("#found mark")
    sections = page.locator("#found section").count()
    page.locator("#found li a").first.click()
    page.wait_for_url("**/glossary.html#term-ridge-regression")
    page.close()
    assert sections > 3 and not errors
