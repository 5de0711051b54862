"""Search, the lists of figures and pitfalls, and the links to launch notebooks and to report mistakes."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

import mlcourse
from browser import SHOW_ALL
from mlcourse.setup_cell import students_repository
from mlcourse.student.notebooks import read
from paths import CHAPTER_PAGES, LABS, PAGES, ROOT

SITE = ROOT / "_build" / "html"
REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]


def page_of(name):
    return BeautifulSoup((SITE / f"{name}.html").read_text("utf-8"), "html.parser")


@pytest.mark.parametrize(
    ("asked", "term"),
    [
        ("ridge", "ridge regression"),
        ("bootstrap", "bootstrap"),
        ("precision", "precision of a classifier"),
        ("decision trees", "decision tree"),
        ("Bias", "bias"),
        ("nearest neighbour", "nearest neighbours"),
    ],
)
def test_search_gives_the_definition_of_a_term_first_and_then_pages(chromium, address, asked, term):
    page = chromium.new_page()
    page.goto(f"{address}/search.html?q={asked}")
    page.wait_for_selector(".search-summary:has-text('finished')")
    first = page.locator("ul.search li").first
    words, link = first.inner_text(), first.locator("a").get_attribute("href")
    n_results = page.locator("ul.search li").count()
    page.close()
    anchor = urlsplit(link).fragment
    entry = page_of("book/glossary").find(id=anchor)
    assert entry.find(string=True).strip() == term
    definition = entry.find_next_sibling("dd")
    for formula in definition.select(".katex"):
        formula.replace_with("\\(")
    definition = " ".join(definition.get_text().split())
    assert words.startswith(f"Glossary > {term}") and definition.split("\\(")[0] in words
    assert n_results > 1


def test_the_search_button_is_called_what_it_shows(chromium, address):
    page = chromium.new_page()
    page.goto(f"{address}/book/glossary.html")
    shown = " ".join(page.locator(".search-button-field").inner_text().split())
    assert shown == "Search Ctrl + K"
    assert page.get_by_role("button", name=shown, exact=True).count() == 1
    page.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_letters_that_one_types_into_the_search_are_not_hidden_by_its_icon(chromium, address, width):
    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.goto(f"{address}/book/glossary.html")
    page.keyboard.press("Control+k")
    field, icon = page.locator("dialog form.bd-search input"), page.locator("dialog form.bd-search i")
    field.wait_for()
    padding = field.evaluate("field => parseFloat(getComputedStyle(field).paddingLeft)")
    text, sign = field.bounding_box()["x"] + padding, icon.bounding_box()
    page.close()
    assert sign["x"] + sign["width"] < text


def test_an_excerpt_of_a_page_is_from_its_text(chromium, address):
    page = chromium.new_page()
    page.goto(f"{address}/search.html?q=colab")
    page.wait_for_selector("ul.search p.context")
    excerpts = page.locator("ul.search p.context").all_inner_texts()
    page.close()
    assert not any("Suggest edit" in excerpt for excerpt in excerpts)


def test_every_figure_is_listed_with_its_number_caption_and_page():
    listed, titles = {}, {}
    for row in page_of("book/lists").select("#figures tbody tr"):
        cells = [" ".join(cell.get_text().split()) for cell in row.find_all("td")]
        if len(cells) == 1:
            title = cells[0]
        else:
            listed[row.a["href"]], titles[row.a["href"]] = cells, title
    for name in PAGES:
        page = page_of(name)
        for figure in page.select("figure[id]:has(.caption-number)"):
            link = f"{name.removeprefix('book/')}.html#{figure['id']}"
            number, caption = listed.pop(link)
            assert number == figure.select_one(".caption-number").get_text().strip()
            assert caption == " ".join(figure.select_one(".caption-text").get_text().split())
            assert titles[link] in page.h1.get_text()
    assert not listed


def test_every_pitfall_is_listed_with_its_title_and_page():
    rows = page_of("book/lists").select("#where-people-go-wrong tbody tr")
    listed = {row.a["href"]: row.get_text() for row in rows if "#" in row.a["href"]}
    for name in CHAPTER_PAGES:
        for box in page_of(f"book/{name}").select(".admonition.pitfall"):
            words = listed.pop(f"{name}.html#{box['id']}")
            assert box.select_one(".admonition-title").get_text() in words
    assert not listed


def test_the_launch_buttons_name_files_that_exist_where_they_point():
    name = urlsplit(REPOSITORY).path
    for page in CHAPTER_PAGES:
        links = [link["href"] for link in page_of(f"book/{page}").select(".dropdown-launch-buttons a")]
        on_binder, on_colab = links
        assert (ROOT / on_binder.split("?urlpath=lab/tree/")[1]).exists()
        path = on_colab.split(f"/github{name}/blob/gh-pages/")[1]  # the branch of the built site
        assert path.endswith(".ipynb") and (SITE / path).exists()
    assert (SITE / ".nojekyll").exists()


@pytest.mark.parametrize("lab", LABS)
def test_the_page_of_a_lab_has_its_task_without_checks_and_opens_or_downloads_the_notebook_of_students(lab):
    page, name, notebook = page_of(f"book/labs/{lab}"), urlsplit(students_repository()).path, f"labs/{lab}/{lab}.ipynb"
    binder, colab, download = (link["href"] for link in page.select(".launch-lab a"))
    assert f"/v2/gh{name}/main?urlpath=lab/tree/{notebook}" in binder
    assert f"/github{name}/blob/main/{notebook}" in colab
    assert [link["href"] for link in page.select(".dropdown-launch-buttons a")] == [binder, colab]
    assert (SITE / "book" / "labs" / download).resolve().read_bytes() == (ROOT / notebook).read_bytes()
    assert page.h1.get_text().startswith(f"Lab {int(lab[4:6])} · ") and "What is graded." in page.get_text()
    source = read(ROOT / notebook)["cells"]
    titles = re.findall(r"^## (Exercise .+)$", "\n".join(cell["source"] for cell in source), re.M)
    shown = [heading.find(string=True).replace("’", "'") for heading in page.select("h2") if "Exercise" in heading.text]
    assert shown == titles
    assert "checks." not in page.get_text()


def test_a_report_names_page_section_and_version(chromium, address):
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}/book/introduction/outside-the-data.html")
    page.wait_for_load_state("networkidle")
    page.evaluate(SHOW_ALL)
    page.locator("#outside-the-data").evaluate("section => section.scrollIntoView({ behavior: 'instant' })")
    page.locator(".dropdown-source-buttons > button").press("Enter")
    page.locator("a.btn-report-button").focus()
    address_of_report = urlsplit(page.locator("a.btn-report-button").get_attribute("href"))
    page.close()
    assert address_of_report.geturl().startswith(f"{REPOSITORY}/issues/new?")
    fields = parse_qs(address_of_report.query)
    assert "book/introduction/outside-the-data.html" in fields["title"][0]
    assert re.search(r"^Page: book/introduction/outside-the-data.html$", fields["body"][0], re.M)
    assert re.search(r"^Section: 1\.5\. Outside the data \(#outside-the-data\)$", fields["body"][0], re.M)
    assert re.search(f"^Version: {re.escape(mlcourse.__version__)}$", fields["body"][0], re.M)
