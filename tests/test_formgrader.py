"""The formgrader in a browser, as an instructor uses it: grade by its button, mark a written answer, see the total.

And what students may write there: nothing of it acts in the browser, and an honest answer looks as it was meant.
"""

import os
import subprocess
import sys

import nbformat
import pytest

from course import Lab, make_course
from coursegrader.sanitizer import mathjax
from servers import served

LAB = "lab-01-toy-regression"
STUDENT = "perfect"
MATHJAX = "https://cdn.jsdelivr.net/npm/mathjax@3.2.2/es5/tex-svg-full.js"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HONEST = r"""An **answer** with $\alpha_1 = \frac{a}{b}$ and

\begin{align} a &= b \\ c &= d \end{align}

| model | error |
|---|--:|
| linear | $0.3$ |

![a plot](attachment:plot.png) ![another](attachment:gone.png) ![a third](attachment:empty.png)
"""
COVER = 'class="full-credit" style="position: fixed; inset: 0; z-index: 9999; display: block" href="/logout"'
HOSTILE = rf"""<a {COVER}>cover</a> [a link](/logout) [another](http://127.0.0.1:8888/logout)
![](https://elsewhere.example/a) ![](/logout) <img src="//elsewhere.example/b"> <style>@import "/logout";</style>
$\class{{full-credit}}{{x}} \style{{position: fixed; inset: 0}}{{y}} \href{{/logout}}{{z}}$
$\rlap{{\raise 20em{{\Huge cover}}}}$

"""
OUTPUTS = f"""from IPython.display import HTML, Image, Javascript, Latex, Markdown, SVG, display
display(HTML('<a {COVER}>cover</a><img src="/logout"><iframe src="/logout"></iframe><script>alert(1)</script>'))
display(Image(url="https://elsewhere.example/c"), Markdown("![](/logout)"), Latex(r"$\\href{{/logout}}{{x}}$"))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"><image href="/logout"/></svg>'), Javascript("fetch('/logout')"))
print("\\x1b[1m" * 300_000)"""

RAW = rf"""<a {COVER}>cover</a> a raw cell $\rule[-20em]{{60em}}{{40em}}$"""
FORMULAS = "\n\n".join(
    [
        r"First $\alpha$.",
        r"$\begin{matrix}" + r"&\\" * 5000 + r"\end{matrix}$",
        r"$\def\a{" + "x" * 1000 + r"\a}\a$ ",
        r"$\def\b{x\b}\b$ " + r"$\b$ " * 5000,
    ]
)


def with_pictures(notebook):
    for cell in notebook.cells:
        if cell.source == HONEST:
            cell.attachments = {"plot.png": {"image/png": PIXEL}, "empty.png": {}}
    return notebook


@pytest.fixture(scope="module")
def lab(tmp_path_factory, bubblewrap):
    lab = Lab(make_course(tmp_path_factory.mktemp("course"), [LAB]), LAB)
    lab.submitted = {name: lab.submitted[name] for name in (STUDENT, "script")}
    lab.submitted["honest"] = with_pictures(lab.filled_in(dict.fromkeys(lab.written, HONEST)))
    lab.submitted["hostile"] = lab.filled_in(dict.fromkeys(lab.written, HOSTILE + r"\begin{a}x" * 100_000))
    lab.submitted["hostile"].cells += [nbformat.v4.new_code_cell(code) for code in (OUTPUTS, "\n " * 10_000)]
    lab.submitted["hostile"].cells.insert(3, nbformat.v4.new_raw_cell(RAW))
    lab.submitted["formulas"] = lab.filled_in(dict.fromkeys(lab.written, FORMULAS))
    lab.hand_in()
    return lab


@pytest.fixture(scope="module")
def address(lab):
    """The address of a Jupyter server in the folder of the course."""
    log = lab.root / "server.log"
    options = ["--no-browser", "--ServerApp.token=", "--ServerApp.password=", "--ServerApp.port=0", "--allow-root"]
    runtime = {"JUPYTER_RUNTIME_DIR": str(lab.root / "runtime")}
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options], cwd=lab.root, stderr=file, env={**os.environ, **runtime}
        )
    try:
        yield served(lab.root / "runtime", server, log)
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def graded(lab):
    """The lab with everybody graded, and their feedback."""
    lab.nbgrader("autograde", LAB, "--force")
    lab.nbgrader("generate_feedback", LAB, "--force")
    return lab


@pytest.fixture
def opened(graded, address, chromium):
    """Open the formgrader's page of a student, which keeps what it asks for and what it says of errors."""
    pages = []

    def opened(student):
        with graded.gradebook() as gradebook:
            [notebook] = gradebook.find_submission(LAB, student).notebooks
            number = notebook.id
        page = chromium.new_page(viewport={"width": 1200, "height": 900})
        pages.append(page)
        page.asked, page.raised = [], []
        page.on("request", lambda request: page.asked.append(request.url.removeprefix(address)))
        page.on("dialog", lambda dialog: page.raised.append(dialog.message))
        page.on("pageerror", lambda error: page.raised.append(str(error)))
        assert page.goto(f"{address}/formgrader/submissions/{number}/").status == 200
        wait_until_loaded(page)
        return page

    yield opened
    for page in pages:
        page.close()


def wait_until_loaded(page):
    """Wait until a page has its scores and formulas; not by Playwright's own means, which the page forbids."""
    for _ in range(300):
        if page.evaluate("Boolean(window.formgrader?.grades?.loaded && MathJax.loaded)"):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(page.url)


def test_an_instructor_grades_by_the_button_and_marks_by_hand(lab, address, chromium):
    page = chromium.new_page()
    page.goto(f"{address}/formgrader/manage_assignments")
    row = page.locator("tr", has_text=LAB)
    row.wait_for()
    assert row.locator("td.num-submissions").inner_text().strip() == str(len(lab.submitted))

    page.goto(f"{address}/formgrader/manage_submissions/{LAB}")
    page.locator("tr", has_text=STUDENT).locator("td.autograde a").click()
    page.get_by_text(f"Successfully autograded '{LAB}' for student '{STUDENT}'").wait_for(timeout=90_000)
    automatic = sum(points for name, points in lab.points.items() if name not in lab.written)
    assert lab.totals()[STUDENT] == automatic

    page.goto(f"{address}/formgrader/gradebook/{LAB}/{LAB}")
    page.get_by_role("link", name="Submission #1").click()
    wait_until_loaded(page)
    for name in lab.written:
        box = page.locator(f"input.score#{name}")
        box.fill(str(lab.points[name] - 1))
        with page.expect_response(lambda response: response.request.method == "PUT" and "/api/grade/" in response.url):
            box.press("Tab")
    page.close()
    assert lab.totals()[STUDENT] == sum(lab.points.values()) - len(lab.written)


def test_an_honest_answer_reads_well_in_the_formgrader(opened, lab):
    page = opened("honest")
    answer = page.locator(".nbgrader_cell", has=page.locator(f"#{lab.written[0]}")).locator(".rendered_html")
    assert answer.locator("mjx-container").count() == 3
    assert not answer.locator("mjx-merror, [data-mjx-error]").count()
    assert answer.locator("td").first.inner_text() == "linear"
    assert answer.locator("img").evaluate_all("all => all.map((image) => image.naturalWidth)") == [1]
    assert "The picture gone.png is missing" in answer.inner_text()
    assert "The picture empty.png is missing" in answer.inner_text()
    assert not page.raised


@pytest.mark.parametrize("student", ["hostile", "script"])
def test_what_a_student_writes_asks_no_server_for_anything(opened, student):
    page = opened(student)
    page.wait_for_timeout(500)
    own = ("/formgrader/static/", "/formgrader/submissions/", "/formgrader/api/", "data:")
    assert [url for url in page.asked if not url.startswith(own)] == []
    assert not page.raised


def test_an_answer_covers_nothing_and_a_click_on_it_does_nothing(opened, graded):
    page = opened("hostile")
    before, name = page.url.partition("?")[0], graded.written[0]
    cell = page.locator(".nbgrader_cell", has=page.locator(f"#{name}"))
    for place in (cell.locator(".rendered_html"), cell.get_by_text("cover"), page.locator(".output_html")):
        place.first.click()
    cell.scroll_into_view_if_needed()
    for button in cell.locator("button:visible").all():
        button.click(trial=True)  # fails where something else would receive the click
    page.mouse.click(600, 450)
    page.wait_for_timeout(500)
    assert page.url.partition("?")[0] == before
    assert graded.read_scores("manual_score")["hostile"][name] is None
    assert page.locator(".rendered_html :is([class], [id], [style]):not(mjx-container, mjx-container *)").count() == 0
    assert page.locator("a[href*=logout]").count() == 0


def test_a_raw_cell_is_shown_as_plain_text(opened):
    cell = opened("hostile").get_by_text("a raw cell")
    assert r"cover</a> a raw cell $\rule[-20em]" in cell.inner_text()
    assert cell.evaluate("one => one.closest('.rendered_html pre') !== null")


def test_formulas_without_end_do_not_keep_the_instructor_from_marking(opened, lab):
    page = opened("formulas")  # within half a minute
    answer = page.locator(".nbgrader_cell", has=page.locator(f"#{lab.written[0]}")).locator(".rendered_html")
    assert answer.locator("mjx-container").count() >= 1
    assert r"$\b$ $\b$" in answer.inner_text()


def test_the_page_itself_forbids_what_the_cleaning_might_miss(opened):
    page = opened("honest")
    page.evaluate("""() => document.querySelector(".rendered_html").insertAdjacentHTML("beforeend",
      '<img src="/logout"><img src="https://elsewhere.example/x"><iframe src="/logout"></iframe>' +
      '<i id="cover" style="position: fixed; inset: 0; z-index: 9999"></i>')""")
    page.wait_for_timeout(500)
    assert page.frames == [page.main_frame] or [frame.url for frame in page.frames[1:]] == [
        "chrome-error://chromewebdata/"
    ]
    assert page.evaluate("[...document.images].filter((one) => !one.src.startsWith('data:') && one.naturalWidth)") == []
    assert page.evaluate("document.elementFromPoint(600, 10).id") != "cover"


def test_the_feedback_page_reads_well_in_a_browser_and_runs_nothing_of_the_student(graded, chromium):
    headers = {"access-control-allow-origin": "*", "content-type": "text/javascript"}
    for student in graded.submitted:
        page = chromium.new_page()
        raised, answered, own = [], [], graded.feedback(student).as_uri()
        page.on("dialog", lambda dialog: raised.append(dialog.message))
        page.on("pageerror", lambda error: raised.append(str(error)))
        page.on("response", lambda response: answered.append(response.url))
        page.route(MATHJAX, lambda route: route.fulfill(body=mathjax("tex-svg-full.js"), headers=headers))
        page.goto(own)
        page.locator("mjx-container").first.wait_for()
        text = page.inner_text("body")
        page.close()
        assert not raised
        assert {url for url in answered if not url.startswith("data:")} <= {own, MATHJAX}
        assert f"{graded.name}" in text and "Score" in text
        for message in graded.messages(student).values():
            assert message[:60] in " ".join(text.split())
