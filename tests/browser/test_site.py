"""The built site: links, other hosts, figures, and each page in a browser."""

import itertools
import re
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import yaml
from bs4 import BeautifulSoup

from browser import CUT, DISTORTED, NEXT_WIDTH, SETTLED, SHOW_ALL, barriers_of, bytes_sent
from course import leaks
from coursegrader.labs import given_text, read_lab, secret_lines, squeezed
from coursegrader.labs import leaks as found_in
from paths import CHAPTER_PAGES, LABS, MAINTAINERS_PAGES, PAGES, PAGES_OF, ROOT
from unchanged import NIGHTLY, nightly_but

SITE = ROOT / "_build" / "html"


@pytest.fixture(scope="module")
def pages():
    assert (SITE / "index.html").exists(), "the site is not built: run `make book` first"
    found = {path: BeautifulSoup(path.read_text("utf-8"), "html.parser") for path in sorted(SITE.rglob("*.html"))}
    return {path: page for path, page in found.items() if "_static" not in path.parts}


def test_every_page_of_the_contents_is_there(pages):
    for name in PAGES:
        assert SITE / f"{name}.html" in pages, name


def test_maintainers_find_their_pages_which_are_not_in_the_sidebar(pages):
    assert MAINTAINERS_PAGES
    sidebar = [link["href"] for link in pages[SITE / "book" / "index.html"].select(".bd-sidebar-primary a[href]")]
    assert len(sidebar) > len(PAGES) - 5 and not [link for link in sidebar if "maintainers" in link]
    links = " ".join(link["href"] for link in pages[SITE / "book" / "for-instructors.html"].select("article a[href]"))
    for name in MAINTAINERS_PAGES:
        assert f"{name.removeprefix('book/')}.html" in links


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


def test_no_heading_of_a_page_skips_a_level(pages):
    for path, page in pages.items():
        levels = [int(heading.name[1]) for heading in page.select("article :is(h1, h2, h3, h4, h5, h6)")]
        assert levels.count(1) == 1 or path.parent == SITE, path.relative_to(SITE)
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), path.relative_to(SITE)


def test_the_introduction_shows_the_figures_of_the_toy_regression():
    pages = [
        BeautifulSoup((SITE / "book" / f"{page}.html").read_text("utf-8"), "html.parser")
        for page in PAGES_OF["introduction"]
    ]
    text = " ".join(page.get_text() for page in pages)
    assert "w = 0.45, b = 0.02, MSE = 0.16" in text and "degree 5: MSE = 0.01" in text
    assert "falls from 0.16 to 0.01" in " ".join(text.split())


def test_every_chapter_can_be_edited_launched_and_downloaded(pages):
    repository = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
    name = repository.removeprefix("https://github.com/")
    for page in CHAPTER_PAGES:
        links = " ".join(tag["href"] for tag in pages[SITE / "book" / f"{page}.html"].find_all("a", href=True))
        assert f"{repository}/edit/main/book/{page}.md" in links
        assert f"mybinder.org/v2/gh/{name}/main?urlpath=lab/tree/book/{page}.md" in links
        assert f"colab.research.google.com/github/{name}/" in links
        assert (SITE / "_sources" / "book" / f"{page}.ipynb").exists()


def test_the_place_in_the_book_that_a_hint_names_exists(pages):
    for lab in sorted((ROOT / "solutions").glob("lab-*.md")):
        places = set(re.findall(r'see="([^"]+)"', lab.read_text("utf-8")))
        assert places
        for place in places:
            page, anchor = place.split("#")
            assert pages[SITE / "book" / page].find(id=anchor), place


def test_nothing_secret_reaches_the_site():
    chapters = squeezed("\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "book").rglob("*.md")))
    labs = [read_lab(ROOT / "solutions" / f"{name}.md") for name in LABS]
    secrets = set()
    for notebook in labs:
        secrets |= secret_lines(notebook, "HIDDEN TESTS") | secret_lines(notebook, "MARK SCHEME")
        secrets |= {line for line in secret_lines(notebook, "SOLUTION") if squeezed(line) not in chapters}
    secrets -= set(found_in(secrets, "\n".join(map(given_text, labs))))  # what another lab gives, which is on the site
    assert len(secrets) > 100 * len(LABS)
    assert leaks(secrets, [path for path in SITE.rglob("*") if path.is_file()]) == []


# --- in a real browser ------------------------------------------------------------------------------------------------


PAGE_BYTES = 1_000_000

# Screens, the first of which a page is opened on, each with its theme
SCREENS = {320: "dark", 768: "dark", 1440: "light"}
EVERY_PAGE = [*PAGES, *MAINTAINERS_PAGES]
# `make test` opens every tenth page, and axe looks at one screen of it. Colours, which cost axe most, are those of
# the same style sheet on every page: it looks at them on every third of these. `make cold` does all of it.
A_FEW = EVERY_PAGE[::10]
AXE_LOOKS_AT = dict(zip(EVERY_PAGE, itertools.cycle([(320, 1440)] if NIGHTLY else [(320,), (1440,), (320,)])))
WITH_COLOURS = EVERY_PAGE if NIGHTLY else A_FEW[::3]


# Pages of chapters whose source has a question
ASKING_PAGES = [
    page
    for page in CHAPTER_PAGES
    if re.search(r"quiz\.(choice|number)\(", (ROOT / "book" / f"{page}.md").read_text("utf-8"))
]


# Give no answer, every wrong one and then the right one to each question of a page. Returns the right answers, and what
# was said where something else was expected.
ANSWER_ALL = r"""() => {
  const plain = (one) => one.textContent.replace(/\s+/g, " ").trim();
  const unexpected = [], given = [];
  for (const quiz of document.querySelectorAll("fieldset.quiz:not(.recall *)")) {
    const verdict = () => plain(quiz.querySelector(".quiz-verdict"));
    const check = (expected) => {
      quiz.querySelector(".quiz-check").click();
      if (!verdict().includes(expected)) unexpected.push([quiz.id, expected, verdict()]);
    };
    const give = (value, expected) => {
      const inputs = [...quiz.querySelectorAll(".quiz-answers input")];
      const input = inputs.find((one) => one.type === "text" || one.value === value);
      if (input.type === "text") {
        input.value = value;
        input.dispatchEvent(new Event("input", { bubbles: true }));
      } else input.click();
      if (verdict()) unexpected.push([quiz.id, "nothing more of another answer", verdict()]);
      check(expected);
    };
    if (quiz.textContent.includes("\\(")) unexpected.push([quiz.id, "every formula is set", ""]);
    check("first");
    const isNumber = quiz.querySelector(".quiz-answers input").type === "text";
    const answers = [...quiz.querySelectorAll("details li")].map((one) =>
      [isNumber ? one.dataset.value : one.dataset.key, plain(one.querySelector(".quiz-why"))]);
    const right = answers.find(([, text]) => text.includes("Right."));
    for (const [value, text] of answers) if (text !== right[1]) give(value, text);
    if (isNumber) give("1e9", "none of the usual mistakes");
    give(isNumber ? right[0].replace(".", ",") : right[0], right[1]);
    given.push(isNumber ? right[0].replace(".", ",") : right[0]);
  }
  return { given, unexpected };
}"""
# What a page that is opened again says of each question: the answer given, the verdict, and how many say it aloud
REMEMBERED = """() => [...document.querySelectorAll("fieldset.quiz:not(.recall *)")].map((quiz) => [
  (quiz.querySelector(":checked") ?? quiz.querySelector("input")).value,
  quiz.querySelector(".quiz-verdict").textContent.includes("Right."),
  quiz.querySelectorAll(".quiz-verdict[aria-live=polite]").length])"""


@pytest.mark.parametrize("name", nightly_but(A_FEW, EVERY_PAGE))
def test_a_page_fits_every_screen_loads_little_has_no_barrier_and_explains_and_remembers_every_answer(
    chromium, address, name, record_property
):
    page = chromium.new_page(viewport={"width": 320, "height": 900}, color_scheme=SCREENS[320])
    requests, errors = set(), []
    page.on("request", lambda request: requests.add(request.url))
    page.on("console", lambda one: errors.append((one.text, one.location["url"])) if one.type == "error" else None)
    page.on("pageerror", lambda error: errors.append((str(error), "")))
    page.goto(f"{address}/{name}.html")
    loaded = compressed_bytes(requests)
    too_wide = {"at once": page.evaluate("document.documentElement.scrollWidth") - 320}
    unseen = page.evaluate(SHOW_ALL)
    unset = page.locator(".katex-error, .math:not(:has(.katex))").count()
    distorted, cut, barriers, themes = [], [], [], []
    for width, theme in SCREENS.items():
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        too_wide[width] = page.evaluate(NEXT_WIDTH) - width
        page.wait_for_function(SETTLED)
        themes.append(page.evaluate("document.documentElement.dataset.theme"))
        distorted += page.evaluate(DISTORTED)
        cut += page.evaluate(CUT)
        barriers += barriers_of(page, colours=name in WITH_COLOURS) if width in AXE_LOOKS_AT[name] else []
        large = page.add_style_tag(content="html { font-size: 200% !important }")
        too_wide[width, "text of twice the size"] = page.evaluate(NEXT_WIDTH) - width
        large.evaluate("tag => tag.remove()")
    everything = compressed_bytes(requests) / 1000
    answered, remembered = page.evaluate(ANSWER_ALL), []
    if answered["given"]:
        page.reload()
        remembered = page.evaluate(REMEMBERED)
    cookies = page.context.cookies()
    page.close()
    record_property("summary", f"{name}: {loaded / 1000:.0f} kB compressed, {everything:.0f} kB when all was seen")
    assert themes == list(SCREENS.values())
    assert not [url for url in requests if address not in url and not url.startswith("data:")]
    # axe looks for the style sheet that another imports beside the page
    assert not [(text, url) for text, url in errors if not url.endswith("/basic.css")]
    assert not unseen and not distorted and not cut
    assert not unset, "a formula could not be read"
    assert not barriers, "\n".join(barriers)
    assert max(too_wide.values()) <= 0, f"pixels by which the page is wider than the screen: {too_wide}"
    assert everything * 1000 < PAGE_BYTES
    assert not answered["unexpected"] and bool(answered["given"]) == (name.removeprefix("book/") in ASKING_PAGES)
    assert remembered == [[answer, True, 1] for answer in answered["given"]] and not cookies


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1440, 900)])
def test_the_first_screen_of_the_book_shows_a_picture_and_the_page_is_short(chromium, address, width, height):
    page = chromium.new_page(viewport={"width": width, "height": height})
    page.goto(f"{address}/book/index.html")
    picture = page.locator("div.explore img.light-figure").bounding_box()
    assert picture["y"] + 0.8 * picture["height"] < height and picture["width"] > 300
    article = page.locator("article").bounding_box()
    cards = page.locator(".chapter-cards img.light-figure").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().width)"
    )
    page.close()
    assert width < 1000 or article["height"] < 5 * height
    assert len(cards) > 6 and min(cards) > 110


def test_text_that_is_too_pale_is_a_barrier(chromium):
    page = chromium.new_page()
    text = '<html lang="en"><title>A page</title><main><h1>A page</h1><p>Black text</p><p style="{}">Text</p></main>'
    for style, is_barrier in {"color: #767676": False, "color: #777": True, "opacity: 0.5": True}.items():
        page.set_content(text.format(style))
        assert bool(barriers_of(page)) == is_barrier, style
    page.close()


def compressed_bytes(urls):
    """Return the bytes that a server sends for the addresses that are files of the site."""
    size = 0
    for url in urls:
        path = SITE / unquote(urlsplit(url).path).lstrip("/")
        if url.startswith("http") and path.is_file():
            size += bytes_sent(path)
    return size


WITH_BOTH_KINDS = "introduction/under-and-overfitting"
# --- questions --------------------------------------------------------------------------------------------------------


REASON = re.compile(r"[,:;]|\b(since|so|although|because|as)\b")
# Strategies to guess without reading, by the place or the form of an option
GUESSES = {
    "the first": lambda texts: texts[0],
    "the last": lambda texts: texts[-1],
    "the shortest": lambda texts: min(texts, key=len),
    "the longest": lambda texts: max(texts, key=len),
    "the shortest of those without a reason": lambda texts: min(
        [text for text in texts if not REASON.search(text)] or texts, key=len
    ),
}


@pytest.mark.parametrize("guess", GUESSES)
def test_the_right_option_of_a_question_cannot_be_told_by_its_place_or_form(pages, guess):
    hits, chances = [], []
    for page in pages.values():
        for quiz in page.select("fieldset.quiz[id^=quiz-]"):
            if quiz.select("input[type=radio]"):
                texts = [one.get_text() for one in quiz.select(".quiz-text")]
                right = quiz.select_one("li:has(.right) .quiz-text").get_text()
                hits.append(GUESSES[guess](texts) == right)
                chances.append(1 / len(texts))
    assert len(hits) > 80
    assert np.mean(hits) < np.mean(chances) + 0.12, f"{sum(hits)} of {len(hits)}"


def test_a_recalled_question_leads_to_the_part_of_an_earlier_chapter_that_asks_it(pages):
    recalled = [(path, one) for path, page in pages.items() for one in page.select(".recall fieldset.quiz")]
    assert recalled
    for path, quiz in recalled:
        name, _, anchor = quiz.find_next_sibling("p").a["href"].partition("#")
        part = pages[(path.parent / name).resolve()].find(id=anchor)
        assert part.find(id=quiz["id"].replace("recall", "quiz", 1))
        assert part.find(["h1", "h2"], recursive=False)


def answer_by_keyboard(page, quiz):
    """Give every wrong answer and then the right one, check the page's verdicts, and return the right one."""
    field, explanations = quiz.locator(".quiz-answers input"), quiz.locator("details li")
    texts = [" ".join(text.split()) for text in explanations.locator(".quiz-why").all_text_contents()]
    right = next(i for i, text in enumerate(texts) if "Right." in text)
    field.first.focus()
    if field.first.get_attribute("type") == "text":
        values = [one.get_attribute("data-value") for one in explanations.all()]
        answers = [(value, text) for value, text in zip(values, texts) if text != texts[right]]
        answers += [("1e9", "none of the usual mistakes"), (values[right].replace(".", ","), texts[right])]
        for value, text in answers:
            page.keyboard.press("Control+A")
            page.keyboard.type(value)
            page.keyboard.press("Enter")
            assert text in verdict_of(quiz)
        return answers[-1][0]
    page.keyboard.press("Space")
    steps = [*texts, *texts[: right + 1]]  # all options, then on to the right one
    for i, text in enumerate(steps):
        if i:
            page.keyboard.press("ArrowDown")
            assert not verdict_of(quiz), "what was said of another answer is gone"
        walk(page, "Tab", ".quiz-check")
        page.keyboard.press("Enter")
        assert verdict_of(quiz) == text
        walk(page, "Shift+Tab", "input:checked")
    return explanations.nth(right).get_attribute("data-key")


def walk(page, key, target):
    """Press a key until the target has the focus."""
    for _ in range(30):
        page.keyboard.press(key)
        if page.evaluate("target => document.activeElement.matches(target)", target):
            return
    pytest.fail(f"{key} does not lead to {target}")


def verdict_of(quiz):
    return " ".join(quiz.locator(".quiz-verdict").text_content().split())


def given_in(quiz):
    return quiz.evaluate("one => (one.querySelector(':checked') ?? one.querySelector('input')).value")


def test_questions_are_answered_by_keyboard_and_forgotten(chromium, address):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{address}/book/{WITH_BOTH_KINDS}.html")
    quizzes = page.locator("css:light=fieldset.quiz").all()
    assert {quiz.locator(".quiz-answers input").first.get_attribute("type") for quiz in quizzes} == {"radio", "text"}
    given = [answer_by_keyboard(page, quiz) for quiz in quizzes]
    page.reload()
    assert [given_in(quiz) for quiz in quizzes] == given
    quizzes[0].get_by_role("button", name="Forget it").click()
    assert not verdict_of(quizzes[0]) and verdict_of(quizzes[1])
    page.on("dialog", lambda dialog: dialog.accept())
    quizzes[-1].get_by_role("button", name="Forget all answers").click()
    page.reload()
    assert not any(map(verdict_of, quizzes))
    context.close()


@pytest.mark.parametrize(
    ("name", "write", "verdict"),
    [
        ("linear-models/wrong-assumptions", lambda right: f"{right:,.0f}", "Right."),
        ("linear-models/wrong-assumptions", lambda right: f"{right:,.0f}".replace(",", " "), "Right."),
        ("linear-models/wrong-assumptions", lambda right: f"{1.03 * right:.0f}", "Nearly."),
        ("linear-models/from-numbers-to-classes", lambda right: f"{right:g} %", "Right."),
        ("linear-models/logistic-regression", lambda right: f"{right:g}".replace(".", ","), "Right."),
        ("linear-models/logistic-regression", lambda right: "about two", "Type a number first"),
    ],
)
def test_a_number_is_read_as_people_write_it(chromium, address, name, write, verdict):
    page = chromium.new_page()
    page.goto(f"{address}/book/{name}.html")
    quiz = page.locator("css:light=fieldset.quiz:has(input[type=text])").first
    right = float(quiz.locator("li:has(.quiz-why.right)").get_attribute("data-value"))
    quiz.locator("input").fill(write(right))
    quiz.locator(".quiz-check").click()
    assert verdict in verdict_of(quiz)
    page.close()


def test_without_a_script_and_in_print_the_answers_of_the_questions_are_there(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/book/{ASKING_PAGES[0]}.html")
    quiz = page.locator("fieldset.quiz").first
    answer = quiz.locator("details li").first
    assert not quiz.locator(".quiz-check").is_visible() and not answer.is_visible()
    quiz.locator("summary").focus()
    page.keyboard.press("Enter")
    assert answer.is_visible()
    page.keyboard.press("Enter")
    page.emulate_media(media="print")
    assert answer.is_visible() and quiz.locator("label").first.is_visible()
    context.close()
