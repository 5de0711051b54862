"""`mlcourse mark` in a browser: an instructor marks a class by keyboard, and nothing that was typed is lost."""

import functools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

from classroom import Classroom
from coursegrader.protocol import NOTEBOOK_OUTPUTS
from coursegrader.sanitizer import clean
from paths import ROOT

LAB = "lab-01-toy-regression"
SCHEME = "### BEGIN MARK SCHEME\n2 points for $\\sigma^2$\n### END MARK SCHEME"
STUDENTS = ("ada", "ben", "cleo")


@pytest.fixture
def room(tmp_path):
    """A class of three that waits to be marked."""
    room = Classroom(tmp_path)
    room.add_lab(LAB, {}, {"essay": 4})
    grader = {"schema_version": 3, "cell_type": "markdown", "task": False, "locked": False, "points": 4}
    grader |= {"grade_id": "essay", "grade": True, "solution": True}

    def put(step, who, text):
        new = nbformat.v4.new_markdown_cell
        path = tmp_path / step / who / LAB / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        cells = [new("# Lab\n\n## In words\n\nWhy?"), new(SCHEME), new(text, metadata={"nbgrader": grader})]
        table = "<table><tr><td>0.84</td></tr></table><img src=x onerror=alert(1)><script>alert(1)</script>"
        output = nbformat.v4.new_output("execute_result", {"text/html": table})
        cells.append(nbformat.v4.new_code_cell("table.round(2) " + "# wide " * 40, outputs=[output]))
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)

    put("source", ".", "Your answer")
    for student in STUDENTS:
        room.hand_in(LAB, student, {})
        put("autograded", student, f"It is {student}'s $\\frac{{a}}{{b}}$ <script>alert(1)</script>" + " word" * 100)
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / f"{LAB}.md").write_text("")
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    return room


@pytest.fixture
def server(room):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mlcourse.cli", "mark", LAB]
    # A job in the background ignores Ctrl-C, and so do the processes that it starts
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    options = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": heard}
    server = subprocess.Popen(command, cwd=room.root, env=environment, **options)
    server.address = server.stdout.readline().split()[1]
    yield server
    server.send_signal(signal.SIGINT)
    assert server.wait() == 0


@pytest.fixture
def page(server, chromium):
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.raised = []
    page.on("pageerror", lambda error: page.raised.append(str(error)))
    page.on("console", lambda said: page.raised.append(said.text))
    page.goto(server.address)
    yield page
    page.close()


def marks(room):
    """Return points, comment and whether it waits, of each student in the order of the page."""
    room.gradebook.db.expire_all()
    notebooks = sorted(room.gradebook.notebook_submissions(LAB, LAB), key=lambda one: one.id)
    return [
        (one.grades[0].manual_score, one.comments[0].manual_comment, one.grades[0].needs_manual_grade)
        for one in notebooks
    ]


def wait_until_stored(page):
    """Wait until the page holds nothing that is on its way; its security policy forbids `wait_for_function`."""
    for _ in range(100):
        if page.evaluate(
            "[...document.querySelectorAll('[data-stored]')].every((one) => one.value === one.dataset.stored)"
        ):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(states(page))


def states(page):
    return page.locator("article output").all_inner_texts()


def test_a_class_is_marked_by_keyboard(room, page):
    assert page.inner_text("#left") == "3 of 3 wait." and page.locator("article math").count() == 3
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.keyboard.type("1.5")
    page.keyboard.press("Tab")
    page.keyboard.type("Which one?")
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.type("0")
    page.keyboard.press("Enter")
    page.get_by_text("All are marked.").wait_for()
    wait_until_stored(page)
    assert marks(room) == [(3, None, False), (1.5, "Which one?", False), (0, None, False)]
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Delete")
    page.keyboard.press("Enter")
    page.get_by_text("1 of 3 wait.").wait_for()
    assert marks(room)[1] == (None, "Which one?", True) and not page.raised
    page.reload()
    assert page.locator("textarea").first.input_value() == "Which one?"  # what waits comes first


def test_an_answer_that_waits_again_waits_until_its_points_are_typed_also_if_they_are_the_same(room, page):
    for submission in room.gradebook.notebook_submissions(LAB, LAB):
        submission.grades[0].manual_score, submission.grades[0].needs_manual_grade = 3, True
    room.gradebook.db.commit()
    page.reload()
    assert states(page) == ["waits to be marked again: type the points, also the same"] * 3
    for key in ("Tab", "Alt+ArrowUp", "Enter", "Enter", "Enter"):  # from one to the next
        page.keyboard.press(key)
    assert page.inner_text("#left") == "3 of 3 wait."
    for key in ("3", "Enter", "3", "Tab", "Alt+ArrowDown", "2", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("All are marked.").wait_for()
    assert marks(room) == [(3, None, False), (3, None, False), (2, None, False)] and not page.raised


def test_the_same_points_are_stored_also_after_a_comment_could_not_be(room, page):
    submission = room.gradebook.notebook_submissions(LAB, LAB)[0]
    submission.grades[0].manual_score, submission.grades[0].needs_manual_grade = 3, True
    room.gradebook.db.commit()
    page.reload()
    article = page.locator(f"#a{submission.id}")
    page.route("**/mark/*", lambda route: route.abort())
    article.locator("textarea").fill("again")
    page.keyboard.press("Tab")
    page.get_by_text("comment not stored").wait_for()
    page.unroute("**/mark/*")
    article.locator("input").press("Enter")
    assert "comment not stored" in article.inner_text()  # nobody has typed the points
    article.locator("input").press("3")
    article.locator("input").fill("3")
    with page.expect_response("**/mark/*"):
        page.keyboard.press("Tab")
    article.locator("textarea").focus()
    with page.expect_response("**/mark/*"):
        page.keyboard.press("Tab")
    article.get_by_text("stored", exact=True).wait_for()
    grade = room.gradebook.find_grade("essay", LAB, LAB, submission.student.id)
    room.gradebook.db.refresh(grade)
    assert (grade.manual_score, grade.needs_manual_grade) == (3, False)


def test_points_beyond_the_maximum_are_not_stored_and_stay_in_their_field(room, page):
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    assert states(page)[0].startswith("points not stored: ") and page.locator("input").first.input_value() == "5"
    assert marks(room)[0] == (None, None, True)


def test_points_that_could_not_be_stored_are_still_said_when_the_comment_is_stored(room, page):
    for key in ("3", "Enter", "3", "Enter", "3", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("All are marked.").wait_for()
    points, comment = page.locator("input").first, page.locator("textarea").first
    points.fill("5")
    comment.fill("too much")
    with page.expect_response("**/mark/*"):
        page.keyboard.press("Tab")
    page.wait_for_function("document.querySelector('textarea').dataset.stored === 'too much'")
    assert states(page)[0].startswith("points not stored: ") and page.inner_text("#left") == "1 of 3 wait."
    assert marks(room)[0] == (3, "too much", False)
    points.fill("1")
    page.keyboard.press("Tab")
    page.get_by_text("All are marked.").wait_for()
    assert marks(room)[0] == (1, "too much", False) and not page.raised


def test_what_was_typed_while_the_server_was_away_can_be_stored_later(room, page, server):
    page.route("**/mark/*", lambda route: route.abort())
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.get_by_text("not stored: mlcourse mark does not answer").wait_for()
    page.unroute("**/mark/*")
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Enter")
    page.get_by_text("2 of 3 wait.").wait_for()
    assert marks(room)[0] == (2, None, False)


def test_what_the_students_code_gave_unfolds_below_an_answer_and_fits(page):
    answer = page.locator("article").first
    assert answer.locator("td").count() == 0
    answer.locator(".code summary").click()
    answer.locator(".code td").wait_for()
    assert answer.locator(".code td").inner_text() == "0.84" and "table.round" in answer.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and page.raised == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_barrier(server, chromium, theme):
    context = chromium.new_context(color_scheme=theme, bypass_csp=True)  # axe is a script
    page = context.new_page()
    page.goto(server.address)
    found = Axe().run(page).response["violations"]
    context.close()
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_and_asks_nobody_else(page, server, width):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": width, "height": 800})
    page.reload()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert asked == [server.address] and not page.raised
    assert page.locator(".scheme math").count() == 1


def test_an_answer_without_end_leaves_room_for_the_others(page):
    page.evaluate("document.querySelector('article .text').insertAdjacentHTML('beforeend', '<h1>a</h1>'.repeat(12000))")
    assert page.evaluate("document.documentElement.scrollHeight") < 30_000
    page.locator("article .text").first.evaluate("one => one.scrollTo(0, one.scrollHeight)")
    assert page.locator("article h1").last.is_visible()


# HTML of which a parser makes headings or items within others: read as it writes that, one closes the box around it
ESCAPES = [
    "<h1><div><h2><a href='https://a.bc/'>x<h2><a href='https://a.bc/'>y</h1>",
    "<h2><div><h1><table><td><div><tr></tr><h1>x</h2>",
    "<li><table><td><b><td></b><div><li>",
]
TAGS = (
    "</a> <b> </b> <em> <div> </div> <p> </p> <h1> <h2> </h2> <li> </li> <ul> <pre> <table> <tr> </tr> <td> x".split()
)


def test_an_answer_stays_within_its_box(chromium):
    rng = random.Random(5)
    parts = ["".join(rng.choices(["<a href='https://a.bc/'>", *TAGS], k=rng.choice((8, 15, 40)))) for _ in range(3000)]
    page = chromium.new_page()
    escaped = page.evaluate(
        """(answers) => answers.map((answer) => {
            const inside = `<article><div>${answer}</div><p id="after"></p></article>`;
            const page = new DOMParser().parseFromString(inside, "text/html");
            const [article] = page.body.children, [box, after] = article.children;
            return page.body.children.length !== 1 || article.children.length !== 2 || box.nextSibling.id !== "after";
        })""",
        [clean(part) for part in (*ESCAPES, *parts)],
    )
    page.close()
    assert not any(escaped)


def test_outputs_without_end_leave_room_for_the_marks_of_the_last_cell(chromium):
    [sheet] = (ROOT / "coursegrader").rglob("contained.css")
    tall = "<div class=output_subarea><p style='height: 20000px'></div>"
    page = chromium.new_page()
    page.set_content(f"<style>{sheet.read_text('utf-8')}</style>{tall * (NOTEBOOK_OUTPUTS + 5000)}")
    assert 3 * page.evaluate("document.documentElement.scrollHeight") < 33_000_000, "3 pixels of the screen for each"
    page.close()


@pytest.mark.parametrize(
    ("sheet", "box"),
    [
        ("feedback.html.jinja", "text"),
        ("mark.html.jinja", "text"),
        ("jupyter/nbconvert/templates/base/contained.css", "rendered_html"),
    ],
)
def test_letters_that_are_kerned_keep_a_browser_no_longer_than_others(chromium, sheet, box):
    style = (ROOT / "coursegrader" / sheet).read_text("utf-8")
    if sheet.endswith("jinja"):
        style = re.search(r"<style.*?>(.*)</style>", style, re.DOTALL)[1]

    def seconds(word):
        page = chromium.new_page(viewport={"width": 700, "height": 900})
        begin = time.monotonic()
        quotes = "<blockquote>" * 8 + "<h1>"
        page.set_content(
            f"<style>{style}</style><div class={box} style='font-family: sans-serif'>{quotes}{word * 3000}"
        )
        page.evaluate("document.documentElement.scrollHeight")
        page.close()
        return time.monotonic() - begin

    kerned, others = (min(seconds(word) for _ in range(3)) for word in ("AVATAVATAVAT ", "abcdabcdabcd "))
    assert kerned < 10 * others
