"""What a reader did is there again the next day, on the reader's device alone, and can be forgotten."""

import datetime
import json
import re
import zoneinfo

import pytest

from browser import NEXT_WIDTH, SETTLED, barriers_of
from paths import CHAPTER_PAGES, CHAPTERS, PAGES_OF, ROOT

SITE = ROOT / "_build" / "html"
CHAPTER, PAGE, SECTION = "introduction", "introduction/the-words", "instances-as-points"
ZONE = "Europe/Berlin"
TODAY = datetime.datetime(2026, 3, 29, 23, tzinfo=zoneinfo.ZoneInfo(ZONE))  # a day of 23 hours
TO_SECTION = f"document.getElementById('{SECTION}').scrollIntoView({{ behavior: 'instant' }})"
TO_END = "scrollTo({ top: document.body.scrollHeight, behavior: 'instant' })"
STORE = "Object.fromEntries(Object.entries(localStorage).filter(([key]) => key.startsWith('mlcourse ')))"


def html(page):
    return (SITE / "book" / f"{page}.html").read_text("utf-8")


def questions(page):
    """Return the names of the questions that a page asks, without those that it repeats."""
    return re.findall(r'<fieldset class="quiz" id="quiz-(.*?)"', html(page))


def words(locator):
    return " ".join(locator.inner_text().split())


def mark(page, name):
    """Return the mark of a page or chapter in the sidebar, as assistive technology finds it."""
    return page.locator(f".bd-sidebar-primary a[href$='{name}.html']").get_by_role("img", name="read", exact=True)


def row(page, name):
    return page.locator(f"article :is(tr, .sd-card):has(a[href*='{name}.html']) .reading")


def read(page, base, end=True):
    """Read the page of the test: answer its first question, perhaps look at its end, and go back to the section."""
    page.goto(f"{base}/book/{PAGE}.html")
    quiz = page.locator("fieldset.quiz").first
    quiz.locator("input").first.check()
    quiz.locator(".quiz-check").click()
    if end:
        page.evaluate(TO_END)
        page.locator(".bd-sidebar-primary .current > .read").wait_for(state="attached")
    page.evaluate(TO_SECTION)
    page.wait_for_function(f"localStorage.getItem('mlcourse place')?.includes('#{SECTION}')")


@pytest.fixture(params=["server", "disk"])
def base(request):
    """The address of the site on a server, or opened from a disk like the offline copy."""
    return request.getfixturevalue("address") if request.param == "server" else SITE.as_uri()


@pytest.fixture
def context(chromium):
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, timezone_id=ZONE)
    context.clock.set_fixed_time(TODAY)
    context.errors = []
    context.on("weberror", lambda error: context.errors.append(str(error.error)))
    yield context
    context.close()
    assert not context.errors


def test_a_reader_finds_the_place_the_pages_and_the_questions_the_next_day(context, base):
    page = context.new_page()
    read(page, base)
    page.close()
    context.clock.set_fixed_time(TODAY + datetime.timedelta(hours=10))
    page, n_pages = context.new_page(), len(PAGES_OF[CHAPTER]) - 1
    of_page, of_chapter = len(questions(PAGE)), sum(len(questions(name)) for name in PAGES_OF[CHAPTER])

    page.goto(f"{base}/book/index.html")
    box = page.locator(".continue")
    assert "Continue: 1.2. Terminology, section “Instances as points”, read yesterday." in words(box)
    assert f"1 of {sum(len(pages) - 1 for pages in PAGES_OF.values())} pages read, 1 of" in words(box)
    assert "on this device only" in words(box)
    done = f"1 of {n_pages} pages read, 1 of {of_chapter} questions answered"
    assert words(row(page, f"{CHAPTER}/index")) == done
    assert not words(row(page, f"{CHAPTERS[1]}/index"))

    page.goto(f"{base}/book/{CHAPTER}/index.html")
    assert f"{done}." in words(box)
    assert words(row(page, "the-words")) == f"✓ read, 1 of {of_page} questions answered"
    assert not words(row(page, "a-line-and-its-loss"))
    assert mark(page, "the-words").is_visible() and mark(page, "").count() == 1

    box.get_by_role("link").click()
    assert page.evaluate("location.hash") == f"#{SECTION}"
    page.goto(f"{base}/book/{CHAPTERS[1]}/index.html")
    assert not words(box), "the opening of a chapter is silent about other chapters"


def test_from_the_end_of_a_page_the_reader_continues_with_the_next(context, address):
    page, following = context.new_page(), PAGES_OF[CHAPTER][PAGES_OF[CHAPTER].index(PAGE) + 1]
    read(page, address)
    page.evaluate(TO_END)
    page.wait_for_function("JSON.parse(localStorage.getItem('mlcourse place')).atEnd")
    page.goto(f"{address}/book/index.html")
    assert "You read 1.2. Terminology today." in words(page.locator(".continue"))
    page.locator(".continue").get_by_role("link").click()
    assert page.url == f"{address}/book/{following}.html"


def test_a_page_that_was_only_opened_is_not_read(context, address):
    page = context.new_page()
    read(page, address, end=False)
    page.goto(f"{address}/book/{CHAPTER}/index.html")
    assert "section “Instances as points”, read today" in words(page.locator(".continue"))
    assert "read" not in words(row(page, "the-words")) and not mark(page, "").count()


def test_a_look_back_at_a_page_that_was_read_keeps_the_place_until_it_has_lasted(context, address):
    page = context.new_page()
    page.clock.install()
    page.goto(f"{address}/book/{PAGES_OF[CHAPTER][1]}.html")
    page.evaluate(TO_END)
    page.locator(".bd-sidebar-primary .current > .read").wait_for(state="attached")
    read(page, address, end=False)
    page.goto(f"{address}/book/{PAGES_OF[CHAPTER][1]}.html")

    def place_after(seconds):
        page.clock.run_for(1000 * seconds)
        page.evaluate("document.dispatchEvent(new Event('scroll'))")
        page.clock.run_for(1000)
        return page.evaluate("JSON.parse(localStorage.getItem('mlcourse place')).page")

    assert place_after(30).endswith(f"{PAGE}.html")
    assert place_after(60).endswith(f"{PAGES_OF[CHAPTER][1]}.html")


def keep_read(page, names):
    """Keep pages as read, and tell this tab what the browser tells the others."""
    keep = "names.forEach((name) => localStorage.setItem(`mlcourse read-book/${name}.html`, 'yes'))"
    page.evaluate(f"names => {{ {keep}; dispatchEvent(new Event('storage')) }}", names)


def test_a_chapter_is_read_if_all_its_pages_are(context, address):
    page, (*names, last) = context.new_page(), PAGES_OF[CHAPTER][1:]
    page.goto(f"{address}/book/glossary.html")
    keep_read(page, names)
    assert not mark(page, f"{CHAPTER}/index").count()
    keep_read(page, [last])
    assert mark(page, f"{CHAPTER}/index").is_visible()


@pytest.mark.parametrize("width", [390, 1440])
def test_marks_of_the_sidebar_move_nothing(context, address, width):
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}/book/glossary.html")
    if width == 390:
        page.locator("button.primary-toggle").click()
    page.evaluate("document.querySelectorAll('.bd-sidebar-primary details').forEach((one) => { one.open = true })")
    places = """[...document.querySelectorAll(".bd-sidebar-primary :is(a, li)")]
      .map((one) => [one.offsetLeft, one.offsetTop, one.offsetWidth, one.offsetHeight])"""
    before = page.evaluate(places)
    keep_read(page, CHAPTER_PAGES)
    assert mark(page, "").count() == len(CHAPTER_PAGES)
    assert page.evaluate(places) == before


def test_without_a_history_nothing_is_shown_and_no_room_is_taken(context, address):
    page = context.new_page()
    for name in ("index", f"{CHAPTER}/index"):
        page.goto(f"{address}/book/{name}.html")
        assert page.locator(".continue").bounding_box()["height"] == 0
        assert not any(page.locator(".reading").all_inner_texts()) and not mark(page, "").count()
    assert page.evaluate(STORE) == {}


def test_reading_and_answers_are_forgotten_each_by_a_button(context, address):
    page = context.new_page()
    read(page, address)
    page.goto(f"{address}/book/index.html")
    page.evaluate("localStorage.setItem('of another site', 'stays')")
    box = page.locator(".continue")
    box.get_by_role("button", name="Forget my reading").click()  # nobody answers: the browser says no
    assert "Continue" in words(box)
    page.on("dialog", lambda dialog: dialog.accept())
    box.get_by_role("button", name="Forget my reading").click()
    assert words(box).startswith("Forgotten.") and "Continue" not in words(box) and "0 of" in words(box)
    assert not mark(page, "").count() and [*page.evaluate(STORE)] == [f"mlcourse quiz-{questions(PAGE)[0]}"]

    opening, first, *_ = PAGES_OF[CHAPTERS[2]]  # repeats questions of earlier chapters
    page.evaluate("name => localStorage.setItem(`mlcourse quiz-${name}`, '')", questions(first)[0])
    page.goto(f"{address}/book/{opening}.html")
    repeated = page.locator(".recall fieldset").first
    repeated.locator("input").first.check()
    repeated.locator(".quiz-check").click()
    assert len(page.evaluate(STORE)) == 3 and words(repeated.locator(".quiz-verdict"))
    box.get_by_role("button", name="Forget all answers").click()
    assert words(box) == "Forgotten." and page.evaluate(STORE) == {} and not words(repeated.locator(".quiz-verdict"))
    assert page.evaluate("localStorage.getItem('of another site')") == "stays"
    page.reload()
    assert not words(box)


def test_another_tab_shows_what_was_read_meanwhile(context, address):
    index, page = context.new_page(), context.new_page()
    index.goto(f"{address}/book/{CHAPTER}/index.html")
    read(page, address)
    index.get_by_text("✓ read").wait_for()


def test_a_browser_that_refuses_to_keep_anything_shows_no_history_and_all_else_works(chromium, chromium_path, tmp_path):
    settings = tmp_path / "Default" / "Preferences"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"profile": {"default_content_setting_values": {"cookies": 2}}}))
    context = chromium.browser_type.launch_persistent_context(
        tmp_path, executable_path=chromium_path, args=["--no-sandbox"], color_scheme="light"
    )
    errors, page = [], context.new_page()
    context.on("weberror", lambda error: errors.append(str(error.error)))
    page.goto(f"{SITE.as_uri()}/book/{PAGE}.html")
    assert page.evaluate("!(localStorage instanceof Storage)")
    quiz = page.locator("fieldset.quiz").first
    quiz.locator("input").first.check()
    quiz.locator(".quiz-check").click()
    assert words(quiz.locator(".quiz-verdict")) and not quiz.get_by_text("remembered").is_visible()
    page.evaluate(TO_END)
    page.get_by_role("button", name="Color mode").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    for name in (PAGE, f"{CHAPTER}/index", "index"):
        page.goto(f"{SITE.as_uri()}/book/{name}.html")
        assert not any(page.locator(".continue, .reading, .read").all_inner_texts())
    context.close()
    assert not errors


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1440, "light")])
def test_what_is_shown_of_the_reading_fits_and_has_no_barrier(context, address, width, theme):
    page = context.new_page()
    read(page, address)
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)
    for name in ("index", f"{CHAPTER}/index"):
        page.goto(f"{address}/book/{name}.html")
        assert words(page.locator(".continue")) and page.evaluate(NEXT_WIDTH) <= width
        page.wait_for_function(SETTLED)
        assert not barriers_of(page)


def test_the_opening_of_a_chapter_names_the_questions_of_each_page():
    for chapter, (opening, *pages) in PAGES_OF.items():
        rows = re.findall(r'href="([\w-]+)\.html.*?data-questions="(.*?)"', html(opening))
        assert {f"{chapter}/{page}": names.split() for page, names in rows} == {page: questions(page) for page in pages}
