"""Search, the lists of figures and pitfalls, and the links to launch notebooks and to report mistakes."""

import functools
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

import mlcourse
from browser import SHOW_ALL
from mlcourse.setup_cell import students_repository
from mlcourse.student.notebooks import read
from paths import CHAPTER_PAGES, LABS, PAGES, ROOT

SITE = ROOT / "_build" / "html"
REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]


@functools.cache
def page_of(name):
    return BeautifulSoup((SITE / f"{name}.html").read_text("utf-8"), "html.parser")


@pytest.fixture(scope="module")
def dialog(chromium, address):
    """The search of an ordinary page, opened by its shortcut."""
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}/book/linear-models/solvers.html")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#found", state="attached")
    yield page.locator("#pst-search-dialog")
    page.close()


def results(place, asked):
    """Return the links of the results, in their order, to a question that is typed into the search of a place."""
    place.locator("input").fill(asked)
    return [link.get_attribute("href") for link in place.locator("#found a").all()]


NAMES = {
    "ridge": "ridge regression",
    "bootstrap": "bootstrap",
    "precision": "precision of a classifier",
    "decision trees": "decision tree",
    "Bias": "bias",
    "nearest neighbour": "nearest neighbours",
    "regularization": "regularisation",
    "standardi": "standardisation",
}
# What environmental scientists and users of R call it
OTHER_NAMES = {
    "target variable": "response",
    "dependent variable": "response",
    "outcome": "response",
    "predictor": "feature",
    "covariates": "feature",
    "regressor": "feature",
    "observation": "instance",
    "model matrix": "design matrix",
    "hold-out": "holdout",
    "train test split": "holdout",
    "tuning parameter": "hyperparameter",
    "LOOCV": "leave-one-out",
    "jackknife": "leave-one-out",
    "spatial CV": "block cross-validation",
    "spatial autocorrelation": "autocorrelation",
    "kriging": "nearest neighbours",
    "kNN": "nearest neighbours",
    "goodness of fit": "coefficient of determination",
    "R²": "coefficient of determination",
    "Nash-Sutcliffe": "coefficient of determination",
    "RMSE": "mean squared error",
    "CART": "decision tree",
    "ROC AUC": "area under the ROC curve",
    "error matrix": "confusion matrix",
    "sensitivity": "recall",
    "user's accuracy": "precision of a classifier",
    "dummy variable": "one-hot encoding",
    "factor": "categorical feature",
    "normalisation": "min-max scaling",
    "z-scores": "standardisation",
    "EOF": "principal component analysis",
    "ordination": "multidimensional scaling",
    "OLS": "linear model",
    "logit": "logistic regression",
    "shrinkage": "regularisation",
    "gap filling": "imputation",
    "Occam": "law of parsimony",
}


def test_the_definition_of_a_term_is_found_first_and_then_pages_also_by_its_other_names(dialog):
    entries = {entry.find(string=True).strip(): entry["id"] for entry in page_of("book/glossary").select("dt")}
    for asked, term in (NAMES | OTHER_NAMES).items():
        first, *_ = results(dialog, asked)
        assert urlsplit(first).fragment == entries[term], asked
        item = dialog.locator("#found li").first.inner_text()
        named, definition = item.split("\n", 1)
        assert named.endswith(term) and ("here called" in named or ": see" in named) == (asked in OTHER_NAMES), asked
        assert len(definition) > 20
    assert len(results(dialog, "ridge")) > 5


def test_results_appear_as_one_types_by_page_and_section_with_the_words_marked(dialog):
    dialog.locator("input").fill("")
    assert not dialog.locator("#found").is_visible()
    dialog.locator("input").press_sequentially("condition numb")
    groups = dialog.locator("#found section")
    assert groups.count() > 3
    titles = [title.inner_text() for title in groups.locator("h2").all()]
    assert len(set(titles)) == len(titles)
    for item in groups.locator("li:has(p)").all():
        assert item.locator("mark").count()
        marked = {word.lower() for word in item.locator("mark").all_inner_texts()}
        assert all(word.startswith(("condition", "numb")) for word in marked)
    definitions, pages = map(int, re.findall(r"\d+", dialog.get_by_role("status").inner_text()))
    most = int(re.search(r"\bPAGES = (\d+)", (ROOT / "book" / "_static" / "search.js").read_text("utf-8"))[1])
    assert definitions == 1 and min(pages, most) == groups.count() - 1


def test_a_page_whose_title_has_the_words_comes_before_those_that_mention_them(dialog):
    pages = [link for link in results(dialog, "leakage winner") if "#" not in link]
    assert pages[0].endswith("model-selection/leakage-and-optimism.html")


def test_code_is_found_by_its_names_and_formulas_are_readable_in_what_is_shown(dialog):
    assert any("cross-validation.html" in link for link in results(dialog, "cross_val_score"))
    assert dialog.locator("#found code mark").count()
    results(dialog, "soft thresholding")
    text = dialog.locator("#found").inner_text()
    assert "\\" not in text and "Cov(x,y)" in text


def test_the_search_says_when_it_finds_nothing_or_not_all_and_where_else_to_look(dialog):
    links = results(dialog, "xyzzy")
    assert dialog.get_by_role("status").inner_text() == "Nothing was found for “xyzzy”."
    assert len(links) == 1 and links[0].endswith("book/glossary.html")
    assert results(dialog, "xyzzy ridge")
    assert dialog.get_by_role("status").inner_text().startswith("No section has all of these words.")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_barrier_in_the_results(dialog, theme):
    page = dialog.page
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    results(dialog, "target variable")
    page.wait_for_function("document.getAnimations().every((one) => one.playState !== 'running')")
    found = Axe().run(page, context="#pst-search-dialog", options={"resultTypes": ["violations"]})
    assert not found.response["violations"], found.generate_report()


def test_the_keyboard_reaches_the_section_that_was_found(chromium, address):
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    requests = []
    page.on("request", lambda request: requests.append(request.url.rsplit("/")[-1]))
    page.goto(f"{address}/book/linear-models/index.html", wait_until="networkidle")
    assert "search-index.js" not in requests  # what is heavy is loaded when a reader is about to search
    page.keyboard.press("Control+k")
    page.wait_for_selector("#found", state="attached")
    page.keyboard.press("Escape")
    assert not page.locator("#pst-search-dialog").is_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("soft thresholding")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.name") == "q"
    links = page.locator("#found a").all()
    place = next(i for i, link in enumerate(links) if "#" in link.get_attribute("href"))
    for _ in range(place + 1):
        page.keyboard.press("ArrowDown")
    target = links[place].evaluate("link => link.href")
    page.keyboard.press("Enter")
    page.wait_for_url(target)
    section = page.locator(f"[id='{urlsplit(target).fragment}']")
    page.wait_for_selector("article .highlighted")
    assert section.evaluate("one => { const { top } = one.getBoundingClientRect(); return -5 < top && top < 450; }")
    assert requests.count("search-index.js") == 1
    page.close()


def test_enter_leads_to_the_search_page_which_has_the_question_in_its_address(chromium, address):
    page = chromium.new_page()
    page.goto(f"{address}/book/glossary.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("ridge")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=ridge")
    page.wait_for_selector("#found mark")
    page.keyboard.type(" housing")
    page.wait_for_url("**/search.html?q=ridge%20housing")  # Playwright learns of it after the key
    assert page.locator("#found a").first.get_attribute("href").endswith("ridge-and-lasso.html")
    page.close()


def test_without_scripts_the_search_page_names_other_ways(chromium, address):
    page = chromium.new_page(java_script_enabled=False)
    page.goto(f"{address}/search.html?q=ridge")
    names = page.locator(".bd-search-container noscript a").all_inner_texts()
    page.close()
    assert names == ["glossary", "course map"]


@pytest.mark.nightly
def test_every_section_of_every_page_is_in_the_index_but_those_that_repeat_others():
    script = (SITE / "_static" / "search-index.js").read_text("utf-8")
    index = json.loads(script.removeprefix("const SEARCH_INDEX = ").removesuffix(";\n"))
    listed = {(one["page"], one["anchor"]) for one in index["sections"]}
    for name in PAGES:
        headings = page_of(name).select("article section > :is(h1, h2, h3, h4)")
        expected = {(f"{name}.html", "" if one.name == "h1" else one.parent["id"]) for one in headings}
        repeats = (ROOT / f"{name}.md").read_text("utf-8").startswith("---\nno-search: true\n")
        assert expected and expected & listed == (set() if repeats else expected), name
    assert [one["name"] for one in index["terms"]] == [
        " ".join(one.get_text().removesuffix("#").split()) for one in page_of("book/glossary").select("dt")
    ]


def test_the_search_button_is_called_what_it_shows(chromium, address):
    page = chromium.new_page()
    page.goto(f"{address}/book/glossary.html")
    shown = " ".join(page.locator(".search-button-field").inner_text().split())
    assert shown == "Search Ctrl + K"
    assert page.get_by_role("button", name=shown, exact=True).count() == 1
    page.close()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize(("name", "place"), [("book/glossary", "dialog"), ("search", ".bd-search-container")])
def test_the_letters_that_one_types_into_the_search_are_not_hidden_by_its_icon(chromium, address, width, name, place):
    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.goto(f"{address}/{name}.html")
    page.keyboard.press("Control+k")
    field, icon = page.locator(f"{place} form.bd-search input"), page.locator(f"{place} form.bd-search i")
    field.wait_for()
    padding = field.evaluate("field => parseFloat(getComputedStyle(field).paddingLeft)")
    text, sign = field.bounding_box()["x"] + padding, icon.bounding_box()
    page.close()
    assert sign["x"] + sign["width"] < text


@pytest.mark.nightly
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
    set_up, binder, colab, download = (link["href"] for link in page.select(".launch-lab a"))
    assert (SITE / "book" / "labs" / set_up).resolve() == SITE / "book" / "setting-up.html"
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
