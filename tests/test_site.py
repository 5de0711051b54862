"""The built site: links, other hosts, figures, and what a browser says about each page."""

import re
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

from paths import CHAPTERS, PAGES, ROOT

SITE = ROOT / "_build" / "html"


@pytest.fixture(scope="module")
def pages():
    assert (SITE / "index.html").exists(), "the site is not built: run `make book` first"
    found = {path: BeautifulSoup(path.read_text("utf-8"), "html.parser") for path in sorted(SITE.rglob("*.html"))}
    return {path: page for path, page in found.items() if "_static" not in path.parts}


def test_every_page_of_the_contents_is_there(pages):
    for name in PAGES:
        assert SITE / f"{name}.html" in pages, name


def test_every_link_within_the_site_leads_somewhere(pages):
    ids = {path: {tag["id"] for tag in page.find_all(id=True)} for path, page in pages.items()}
    broken = []
    for path, page in pages.items():
        for tag, key in [(tag, name) for name in ("href", "src") for tag in page.find_all(attrs={name: True})]:
            url = urlsplit(tag[key])
            if url.scheme or url.netloc or tag[key] == "#":
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.exists() or (url.fragment and target in ids and unquote(url.fragment) not in ids[target]):
                broken.append(f"{path.relative_to(SITE)}: {tag[key]}")
    assert not broken, "\n".join(broken)


def test_no_page_loads_anything_from_another_host(pages):
    loads = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
    for path, page in pages.items():
        for tag in page.find_all(list(loads)):
            if tag.name == "link" and tag.get("rel") in (["canonical"], ["next"], ["prev"], ["search"]):
                continue
            assert not urlsplit(tag.get(loads[tag.name], "")).netloc, f"{path.relative_to(SITE)}: {tag}"
    for path in [*SITE.rglob("*.css")]:
        elsewhere = re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']+", path.read_text("utf-8"))
        assert not elsewhere, f"{path.relative_to(SITE)}: {elsewhere}"


def test_every_picture_has_a_text_for_those_who_cannot_see_it(pages):
    for path, page in pages.items():
        for picture in page.select(".bd-article img"):
            assert len(picture.get("alt", "")) > 40, f"{path.relative_to(SITE)}: {picture}"


def test_the_introduction_shows_the_figures_of_the_toy_regression():
    text = BeautifulSoup((SITE / "book" / "introduction.html").read_text("utf-8"), "html.parser").get_text()
    assert "w = 0.45, b = 0.02, MSE = 0.16" in text and "degree 5: MSE = 0.01" in text
    assert "falls from 0.16 to 0.01" in " ".join(text.split())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_can_be_edited_launched_and_downloaded(chapter, pages):
    repository = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
    links = " ".join(tag["href"] for tag in pages[SITE / "book" / f"{chapter}.html"].find_all("a", href=True))
    name = repository.removeprefix("https://github.com/")
    assert f"{repository}/edit/main/book/{chapter}.md" in links
    assert f"mybinder.org/v2/gh/{name}/main?urlpath=lab/tree/book/{chapter}.md" in links
    assert f"colab.research.google.com/github/{name}/" in links
    assert (SITE / "_sources" / "book" / f"{chapter}.ipynb").exists()


def test_the_place_in_the_book_that_a_hint_names_exists(pages):
    for lab in sorted((ROOT / "solutions").glob("lab-*.md")):
        places = set(re.findall(r'see="([^"]+)"', lab.read_text("utf-8")))
        assert places
        for place in places:
            page, anchor = place.split("#")
            assert pages[SITE / "book" / page].find(id=anchor), place


# --- in a real browser ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen_needs_no_other_host_and_gives_no_error(chromium, address, name, width, theme):
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    elsewhere, errors = [], []
    page.on("request", lambda request: elsewhere.append(request.url) if address not in request.url else None)
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}/{name}.html", wait_until="networkidle")
    if page.locator(".math").count():
        page.wait_for_selector("mjx-container")
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    unread = page.locator("mjx-merror").count()
    theme_shown = page.evaluate("document.documentElement.dataset.theme")
    page.close()
    assert not [url for url in elsewhere if not url.startswith("data:")]
    assert not errors
    assert wide <= shown, f"the page is {wide} pixels wide on a screen of {shown}"
    assert not unread, "a formula could not be read"
    assert theme_shown == theme
