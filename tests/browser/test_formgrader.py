"""The formgrader in a browser: an instructor clicks to grade, marks a written answer, and sees the total.

Nothing that students write runs in the browser, and an honest answer looks as intended.
"""

import base64
import contextlib
import html
import http.client
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import nbformat
import pytest
import requests
from axe_playwright_python.sync_playwright import Axe

from browser import wait_until_loaded
from course import Lab, make_course
from coursegrader.formulas import SETTINGS, is_plain
from coursegrader.sanitizer import TEMPLATES, mathjax
from jupyterlab_page import Student
from paths import ROOT
from servers import served, wait_until_ended

LAB = "lab-01-toy-regression"
STUDENT = "perfect"
PLAIN_OR_NOT = [r"\frac{a}{b}", r"\href{x}{y}", r"\begin{align} a &= b \end{align}", r"\begin{picture}x\end{picture}"]
PLAIN_OR_NOT += [
    "{" * 20 + "}" * 20,
    "{" * 21,
    r"\left(" * 21,
    "a % b",
    r"a \% b",
    "\\",
    r"\(",
    r"\\[999em]",
    r"\\[9em]",
]
PLAIN_OR_NOT += ["\\\n", r"\begin {align}", r"\left. x \right|", r"\unicode{65}", r"\,\;\!\{\}", "}{", "x^{2}"]
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
$\rlap{{\raise 20em{{\Huge cover}}}}$ $\mmlToken{{mtext}}[fontsize="300px" href="javascript:alert(1)"]{{My answer}}$
$\mmlToken{{mtext}}[class="full-credit" id="best-degree" style="position: fixed; inset: 0"]{{cover}}$
![$\mmlToken{{mi}}[href="/logout"]{{a}}$](attachment:gone.png)

| $\mmlToken{{mi}}[href="/logout"]{{a}}$ |
|---|

# $\mmlToken{{mi}}[href="/logout"]{{a}}$ and $\alpha$

"""
OUTPUTS = f"""from IPython.display import HTML, Image, Javascript, Latex, Markdown, SVG, display
display(HTML('<a {COVER}>cover</a><img src="/logout"><iframe src="/logout"></iframe><script>alert(1)</script>'))
display(Image(url="https://elsewhere.example/c"), Markdown("![](/logout)"), Latex(r"$\\href{{/logout}}{{x}}$"))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"><image href="/logout"/></svg>'), Javascript("fetch('/logout')"))
display(Latex(r"$\\mmlToken{{mi}}[href='/logout']{{x}}$"), HTML(r"\\(\\mmlToken{{mi}}[href='/logout']{{x}}\\)"))
print("\\x1b[1m" * 300_000)
print("\\x1b[38m")"""

FROM_STUDENTS = "mjx-container :is(a, .full-credit, #best-degree, [style*='position'])"
RAW = rf"""<a {COVER}>cover</a> a raw cell $\rule[-20em]{{60em}}{{40em}}$"""
FORMULAS = "\n\n".join(
    [
        r"First $\alpha$.",
        r"$\begin{matrix}" + r"&\\" * 5000 + r"\end{matrix}$",
        "$" + r"\xrightarrow{" * 24 + "x" + "}" * 24 + "$",
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


@contextlib.contextmanager
def jupyter_server(folder):
    """Run a Jupyter server in a folder; return its address."""
    log = folder / "server.log"
    options = ["--no-browser", "--ServerApp.token=", "--ServerApp.password=", "--ServerApp.port=0", "--allow-root"]
    places = {"JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces")}
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options], cwd=folder, stderr=file, env={**os.environ, **places}
        )
    try:
        yield served(folder / "runtime", server, log)
    finally:
        server.terminate()
        wait_until_ended(server)


@pytest.fixture(scope="module")
def address(lab):
    """The address of a Jupyter server that runs in the folder of the course."""
    with jupyter_server(lab.root) as address:
        yield address


@pytest.fixture(scope="module")
def graded(lab):
    """The lab with all submissions graded, and their feedback."""
    lab.nbgrader("autograde", LAB, "--force")
    lab.nbgrader("generate_feedback", LAB, "--force")
    return lab


@pytest.fixture
def opened(graded, address, chromium):
    """Open the formgrader's page of a student, and record its requests and errors."""
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


# Formulas


@pytest.fixture(scope="module")
def formulas(chromium, tmp_path_factory):
    """A page with the same MathJax as students' pages; `shown` typesets a text on it."""
    base = Path(TEMPLATES) / "nbconvert" / "templates" / "base"
    style, settings = [(base / name).read_text("utf-8") for name in ("contained.css", "formulas.js")]
    scripts = [settings, mathjax("tex-svg-full.js"), mathjax("ui/safe.js")]
    file = tmp_path_factory.mktemp("formulas") / "page.html"
    scripts = "".join(f"<script>{one}</script>" for one in scripts)
    file.write_text(f"<meta charset=utf-8><style>{style}</style><body>{scripts}", "utf-8")
    page = chromium.new_page()
    page.goto(file.as_uri())
    page.evaluate("MathJax.startup.promise")
    yield page
    page.close()


def shown(page, text):
    """Typeset a text; return the number of its formulas, the number of errors, and the HTML of the formulas."""
    return page.evaluate(
        """(text) => {
          document.body.innerHTML = "<p></p>";
          document.body.firstChild.textContent = text;
          MathJax.texReset();
          MathJax.typesetClear();
          MathJax.typeset();
          const found = [...document.querySelectorAll("mjx-container")];
          const wrong = document.querySelectorAll("mjx-merror, [data-mjx-error], [data-mml-node=merror]").length;
          return [found.length, wrong, found.map((one) => one.outerHTML).join()];
        }""",
        text,
    )


HONEST_FORMULAS = [
    r"$\frac{a}{b} \le \left(\sum_{i=1}^n x_i^2\right)^{1/2} \, \text{if } x \in \mathbb{R}$",
    r"\begin{align*} \hat y &= \boldsymbol{w}^\top \mathbf x + b \\ &= \underbrace{1 + 2}_{3} \end{align*}",
    r"$$\begin{pmatrix} 1 & 0 \\[2pt] 0 & 1 \end{pmatrix} \begin{cases} a & \text{costs \$5} \\ b \end{cases}$$",
    r"$\displaystyle \int\limits_{0}^{\infty} e^{- x}\, dx = \log{\left(x \right)}$",  # written by SymPy
    r"\(\operatorname{argmin}_\theta \lVert \theta \rVert\)",
    "$" + r"\sqrt{1 + " * 15 + "x" + "}" * 15 + "$",
]


@pytest.mark.parametrize("formula", HONEST_FORMULAS)
def test_an_honest_formula_is_typeset(formulas, formula):
    assert shown(formulas, f"Before {formula} after")[:2] == [1, 0]


@pytest.mark.nightly
@pytest.mark.parametrize("folder", ["book", "solutions"])
def test_every_formula_of_the_course_may_stand_in_an_answer(formulas, folder):
    for path in sorted((ROOT / folder).rglob("*.md")):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
        for formula in re.findall(r"\$\$.+?\$\$|(?<![\\$])\$(?![\s$])[^$]*?[^\s\\$]\$(?!\d)", text, flags=re.DOTALL):
            assert shown(formulas, formula)[:2] == [1, 0], (path.name, formula)


HOSTILE_FORMULAS = [
    r"$\mmlToken{mi}[href=/logout]{x}$",
    r"$\text{a $\mmlToken{mi}[href=/logout]{x}$}$",
    r"$x \\\mmlToken{mi}[href=/logout]{x}$",
    "$x % \\\n\\mmlToken{mi}[href=/logout]{x}$",
    r"$\href{/logout}{x}$",
    r"$\class{a}{x}$",
    r"$\cssId{a}{x}$",
    r"$\style{color: red}{x}$",
    r"$\unicode[x; background: url(/logout)]{65}$",
    r"$\require{html} x$",
    r"$\cancel[mathbackground=url(/logout)]{a}$",
    r"$\bbox[border: 1px solid red]{x}$",
    r"$\enclose{circle}[mathcolor=red]{x}$",
    r"$\DeclarePairedDelimitersX\a[1]{.}{.}{#1#1}$",
    r"$\def\x{y} x$",
    r"$\newcommand\y{y} x$",
    r"$\let\z=\y x$",
    r"$\label{x} x$",
    r"$\tag{x} x$",
    r"$x \ref{x}$",
    r"\ref{x}",
    r"$\rule{1em}{9999999em}$",
    r"$\kern-9999em x$",
    r"$\begin{matrix} a \\[9999999em] b \end{matrix}$",
    r"\begin{align*} a \\ * [-9999999em] b \end{align*}",
    r"\begin{xalignat}{2} x \end{xalignat}",
    r"$\begin {numcases}x x \end{numcases}$",
    "$" + r"\xrightarrow{" * 24 + "x" + "}" * 24 + "$",
    "$" + r"\underbracket{" * 15 + "x" + "}" * 15 + "$",
    "$" + "{" * 21 + "x" + "}" * 21 + "$",
    "$" + r"\left(" * 21 + "x" + r"\right)" * 21 + "$",
    "$" + "{ % }\n" * 30 + "x" + "}" * 30 + "$",
    "$" + "x" * 2001 + "$",
]


@pytest.mark.parametrize("formula", HOSTILE_FORMULAS)
def test_what_is_more_than_signs_stays_as_it_was_written(formulas, formula):
    assert shown(formulas, f"Before {formula} after")[0] == 0
    assert formulas.evaluate("document.body.textContent") == f"Before {formula} after"


def test_mathjax_itself_forbids_what_the_list_might_miss(formulas):
    token = r"""$\mmlToken{mi}[href="https://example.org" class="x" id="y" style="color: red"]{x}$"""
    formulas.evaluate("MACROS.add('mmlToken')")
    number, _, page = shown(formulas, token)
    formulas.evaluate("MACROS.delete('mmlToken')")
    assert number == 1
    assert not re.search(r'href="http|class="x"|id="y"|color: red', html.unescape(page))


def test_a_page_has_room_for_hundreds_of_formulas_and_not_for_thousands(formulas):
    assert shown(formulas, "$x$ " * 300)[0] == 300
    assert shown(formulas, "$x$ " * 5000)[0] < 600


@pytest.mark.parametrize("part", ["$a{", r"\begin{align}x", r"\(a"])
def test_the_search_for_the_ends_of_formulas_does_not_keep_the_browser_busy(formulas, part):
    begin = time.monotonic()
    shown(formulas, part * (200_000 // len(part)))
    assert time.monotonic() - begin < 10


# Addresses


@pytest.mark.parametrize(
    "page", ["manage_students", "manage_submissions", "gradebook", "gradebook/x", "manage_students/x"]
)
@pytest.mark.parametrize(
    "part",
    [
        '";alert(1)//',
        "</script><script>alert(1)</script>",
        "a\\",
        "a\nb",
        "../../files/x",
        "..",
        ".",
        "a?b",
        "a#b",
        "a%41",
    ],
)
def test_no_part_of_an_address_becomes_a_script_or_another_address(address, page, part):
    for once in (urllib.parse.quote(part, safe=""), urllib.parse.quote(part, safe="").lower().replace(".", "%2e")):
        # The server refuses two dots before it looks for a page
        assert status_of_path(address, f"/formgrader/{page}/{once}") == (403 if ".." in part else 404)
        assert status_of_path(address, f"/formgrader/{page}/{once.replace('%', '%25')}") == 404 or "%" not in once


def test_the_address_of_a_page_may_have_what_names_have(address):
    assert status(f"{address}/formgrader/manage_students/{urllib.parse.quote('zoë.o-brien+1@example.org')}") == 200
    assert status(f"{address}/formgrader/gradebook/{LAB}/{LAB}") == 200


def test_an_address_cannot_have_a_configuration_loaded(lab, address, tmp_path):
    (tmp_path / "nbgrader_config.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert status(f"{address}/formgrader?path={tmp_path}") == 404
    assert status(f"{address}/formgrader/?path={tmp_path}") == 404
    assert not (tmp_path / "ran").exists()
    (tmp_path / "link").symlink_to(lab.root)  # somebody could let it lead elsewhere later
    assert status(f"{address}/formgrader?path={tmp_path / 'link'}") == 404
    assert status(f"{address}/formgrader?path={lab.root}") == 200


def test_a_server_in_any_folder_of_the_environment_refuses_them_too(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "course").mkdir()
    with jupyter_server(tmp_path / "course") as address:
        assert status(f"{address}/formgrader/manage_students/%22%3Balert(1)%2F%2F") == 404
        assert status(f"{address}/formgrader?path={tmp_path}") == 404
        assert status(f"{address}/formgrader/manage_students/x") == 200
    assert not (tmp_path / "ran").exists()


def test_a_notebook_that_is_saved_is_written_into_no_other_file(lab, address):
    session = requests.Session()
    session.get(f"{address}/formgrader/manage_students", timeout=30)
    answer = session.put(
        f"{address}/api/contents/saved.ipynb",
        json={
            "type": "notebook",
            "content": nbformat.v4.new_notebook(metadata={"jupytext": {"formats": "ipynb,py:percent"}}),
        },
        headers={"X-XSRFToken": session.cookies["_xsrf"]},
        timeout=30,
    )
    assert answer.status_code == 201, answer.text
    assert [path.name for path in lab.root.glob("saved.*")] == ["saved.ipynb"]
    (lab.root / "saved.ipynb").unlink()


@pytest.mark.parametrize(
    "path", ["nbgrader_version?version=<img src=x onerror=alert(1)>", "formgrader/api/students", "courses"]
)
def test_what_nbgrader_answers_as_data_is_no_page(address, path):
    answer = requests.get(f"{address}/{path}", timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=UTF-8")


def test_a_page_of_the_formgrader_does_not_take_what_a_student_handed_in_for_its_table(lab, address, chromium):
    path = lab.root / "submitted" / STUDENT / LAB / "table.ipynb"
    path.write_text('{"id": null, "name": "<img src=x onerror=alert(1)>"}')
    page = chromium.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    files = urllib.parse.quote(f"../../../files/submitted/{STUDENT}/{LAB}", safe="")
    assert page.goto(f"{address}/formgrader/manage_students/{files}/table.ipynb").status == 403
    page.wait_for_timeout(500)
    page.close()
    path.unlink()
    assert not [url for url in asked if "/files/" in url]


def status_of_path(address, path):
    """Return the status of a request for this path, which no client has shortened."""
    parts = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", parts.path + path)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def status(url):
    return requests.get(url, timeout=30).status_code


# The pages


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


@pytest.mark.parametrize(
    "page",
    [
        "manage_assignments",
        "manage_submissions/{0}",
        "manage_students",
        "manage_students/{1}",
        "manage_students/{1}/{0}",
    ]
    + ["gradebook", "gradebook/{0}", "gradebook/{0}/{0}"],
)
def test_a_page_shows_its_table_and_runs_no_script_that_is_added_to_it(graded, address, chromium, page):
    opened, raised = chromium.new_page(), []
    opened.on("console", lambda message: raised.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: raised.append(str(error)))
    opened.goto(f"{address}/formgrader/{page.format(LAB, STUDENT)}")
    opened.locator("tbody tr td").nth(1).wait_for()
    opened.wait_for_timeout(300)
    assert not raised
    if page in ("manage_assignments", "manage_students"):
        opened.get_by_role("link", name="Add new").click()
        opened.get_by_role("button", name="Cancel").click()
    if page.count("{0}") == 2:
        opened.locator("#toggle_names").click()
        assert opened.locator("a.name-shown").first.is_visible()
    assert (
        opened.evaluate("""async () => {
      window.ran = [];
      $("body").append("<script>ran.push('script')</" + "script><img src=x onerror=ran.push('error')>");
      $("body").append("<b id=added onclick=ran.push('click')>b</b><a id=link href='javascript:ran.push(1)'>a</a>");
      document.getElementById("added").click();
      document.getElementById("link").click();
      await new Promise((resolve) => setTimeout(resolve, 500));
      return ran;
    }""")
        == []
    )
    opened.close()


def test_a_page_of_another_site_gets_no_hold_of_jupyterlab(graded, address, chromium):
    # nbgrader would run each command that such a page sends, after its formgrader in JupyterLab was closed
    page = chromium.new_page()
    page.goto(f"{address.replace('localhost', '127.0.0.1')}/api")
    with page.expect_popup() as opening:
        page.evaluate("address => { window.opened = window.open(address) }", f"{address}/lab")
    opened = opening.value
    opened.get_by_role("menuitem", name="Nbgrader").wait_for()
    assert page.evaluate("window.opened.closed") and not opened.is_closed()
    opened.goto(f"{address}/lab?formgrader=true")
    opened.get_by_role("menuitem", name="Nbgrader").wait_for()
    opened.wait_for_timeout(2000)
    assert not opened.locator("iframe").count()
    opened.close()
    page.close()


def test_no_other_site_opens_in_a_frame_of_jupyterlab(address, chromium):
    page, forbidden = chromium.new_page(), []
    page.on("console", lambda message: forbidden.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/lab")
    elsewhere = address.replace("localhost", "127.0.0.1")
    assert elsewhere != address
    add = "url => document.body.append(Object.assign(document.createElement('iframe'), {src: url}))"
    page.evaluate(add, f"{elsewhere}/api")
    page.wait_for_timeout(1000)
    page.close()
    assert any("frame-src" in text for text in forbidden)


@pytest.mark.parametrize("kind", ["notebooks", "tree", "edit"])
def test_a_link_of_the_formgrader_to_a_file_opens_jupyterlab(address, kind):
    answer = requests.get(f"{address}/{kind}/source/{LAB}", timeout=30, allow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/lab/tree/source/{LAB}")


def test_a_notebook_that_is_opened_in_jupyterlab_asks_no_other_site_and_its_cells_run(lab, address, chromium):
    elsewhere = address.replace("localhost", "127.0.0.1")
    figure = {
        "$schema": "https://vega.github.io/schema/vega/v5.json",
        "data": [{"name": "read", "url": f"{elsewhere}/vega"}],
        "marks": [{"type": "text", "encode": {"update": {"text": {"value": "a figure"}}}}],
    }
    shown = {"application/vnd.vega.v5+json": figure, "text/plain": "the text"}
    outputs = [
        nbformat.v4.new_output("display_data", data=shown),
        nbformat.v4.new_output("display_data", data={"text/html": f"<b>a picture</b><img src='{elsewhere}/picture'>"}),
    ]
    cells = [nbformat.v4.new_code_cell("1", outputs=outputs), nbformat.v4.new_code_cell("print(6 * 111)")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab.root / "opened.ipynb")
    page, answered = chromium.new_page(), []
    page.on("response", lambda response: answered.append(response.url))
    # On a busy machine, JupyterLab sometimes asks something
    page.add_locator_handler(page.locator("dialog.jp-Dialog"), lambda one: one.locator(".jp-mod-accept").last.click())
    page.goto(f"{address}/lab/tree/opened.ipynb")
    page.get_by_text("a picture").wait_for()
    page.get_by_text("the text").wait_for()
    student = Student(page, lab.root / "opened.ipynb")
    student.idle()
    student.choose("Run", "Run All Cells")
    page.get_by_text("666").wait_for()
    page.close()
    (lab.root / "opened.ipynb").unlink()
    assert not [url for url in answered if url.startswith(elsewhere)]


def test_a_link_of_another_site_opens_jupyterlab_and_nothing_else_of_the_server(address):
    def opened(path, site, mode="navigate", in_advance=None):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": "document"}
        headers |= {"Sec-Purpose": in_advance} if in_advance else {}
        return requests.get(address + path, headers=headers, timeout=30, allow_redirects=False).status_code

    inner = (
        "/api/status",
        "/logout",
        "/lab/api/licenses/",
        "/formgrader/manage_students",
        "/formgrader/manage_assignments/lab-01",
        "/nbgrader_version?version=1",
    )
    assert {path: opened(path, "cross-site") for path in inner} == dict.fromkeys(inner, 403)
    assert {path: opened(path, "same-site", "no-cors") for path in inner} == dict.fromkeys(inner, 403)
    assert 403 not in {opened(path, "none") for path in inner if path != "/logout"}
    entrances = ("/", "/lab", "/formgrader", "/formgrader/manage_assignments", "/login")
    assert 403 not in {opened(path, "cross-site") for path in entrances}
    # A notebook that opens starts Python in its folder, where it takes modules from
    notebooks = [
        f"{page}/class/ada/{LAB}.ipynb" for page in ("/lab/tree", "/tree", "/notebooks", "/lab/workspaces/a/tree")
    ]
    assert {path: opened(path, "cross-site") for path in notebooks} == dict.fromkeys(notebooks, 403)
    assert 403 not in {opened(path, "none") for path in notebooks}
    assert opened("/lab?reset", "cross-site") == 403
    # Speculation rules
    in_advance = ["/lab", *inner, *notebooks]
    assert {path: opened(path, "none", in_advance="prefetch") for path in in_advance} == dict.fromkeys(in_advance, 403)
    assert opened("/lab", "none", in_advance="prefetch;prerender") == opened("/lab", "none", "cors") == 403
    # JupyterLab takes each "/tree/" out of a path
    all_dots = ("..%2f..", "%2e%2e%2f.%2E", ".%2Ftree%2F./.%2Ftree%2F.")
    assert {opened(f"/lab/tree/{dots}%2ffiles%2fx.ipynb", "none") for dots in all_dots} == {403}
    assert {opened(f"/{mode}?clone=%252e%252e/files/x", "same-origin") for mode in ("lab", "doc", "lab/tree/x")} == {
        403
    }
    assert opened("/lab?clone=auto-A", "none") == opened("/lab?token=a", "cross-site") == 200
    assert opened("/lab?redirects=1", "same-site") == 200  # JupyterHub's, when it has started the server
    assert opened("/lab/api/licenses/?bundles=.*", "none") == 403  # an expression without end would stop the server


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Dest": "image"}, {"Accept": "image/avif,image/webp,*/*;q=0.8"}])
def test_a_page_asked_for_as_a_picture_is_refused(address, headers):
    asked = {
        path: requests.get(address + path, headers=headers, timeout=30).status_code for path in ("/logout", "/lab")
    }
    assert set(asked.values()) == {403}
    assert requests.get(f"{address}/favicon.ico", headers=headers, timeout=30).status_code == 200


def test_a_notebook_of_others_is_read_without_what_acts_in_jupyterlab(lab, address, chromium):
    name, script = "others.ipynb", "<img src=x onerror=\"document.title = 'ran'\">"
    figure = {"text/html": f"<b>a table</b>{script}", "application/javascript": "document.title = 'ran'"}
    outputs = [
        nbformat.v4.new_output("stream", text="printed"),
        nbformat.v4.new_output("display_data", data=figure, metadata={"isolated": True}),
        nbformat.v4.new_output("error", ename="ValueError", evalue="it failed", traceback=["it failed"]),
        # nbformat takes no account of this type where it decides whether a notebook is trusted
        nbformat.from_dict({"output_type": "update_display_data", "data": figure, "metadata": {}}),
    ]
    pictures = {"dot.png": {"image/png": PIXEL, "text/html": script}}
    text = "![](attachment:dot.png) ![](/logout) ![](/files/dot.png)\n\n# A head\n\n"
    text += "<button data-CommandLinker-command='notebook:run-all-cells'>press</button>"
    answer = nbformat.v4.new_markdown_cell(text, attachments=pictures)
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "env": {"A": "b"}},
        "language_info": {"name": "python", "nbconvert_exporter": "os.path"},
        "widgets": {"application/vnd.jupyter.widget-state+json": {}},
        "jupytext": {"formats": "ipynb,py:percent"},
        "toc": {"base_numbering": f"1{script}"},
        "toc-autonumbering": True,
        "mlcourse": {"draw": 1},
    }
    notebook = nbformat.v4.new_notebook(cells=[answer, nbformat.v4.new_code_cell("1")], metadata=metadata)
    notebook.cells[1].outputs = outputs
    (lab.root / name).write_text(json.dumps(notebook))
    (lab.root / "dot.png").write_bytes(base64.b64decode(PIXEL))

    page, answered = chromium.new_page(), {}
    page.on("response", lambda response: answered.update({response.url.removeprefix(address): response.status}))
    for _ in range(2):  # and once more after it was saved
        page.goto(f"{address}/lab/tree/{name}")
        page.get_by_text("a table").wait_for()
        page.locator(".jp-MarkdownOutput img").nth(2).wait_for(state="attached")
        page.wait_for_timeout(500)
        page.evaluate("html => document.body.insertAdjacentHTML('beforeend', html)", script)
        page.wait_for_timeout(200)
        assert page.title() != "ran"
        assert page.get_by_text("printed").count() and page.get_by_text("it failed").count()
        widths = page.locator(".jp-MarkdownOutput img").evaluate_all("all => all.map((one) => one.naturalWidth)")
        assert widths == [1, 0, 1]
        page.get_by_role("button", name="press").click()
        page.wait_for_timeout(500)
        assert not page.locator("dialog.jp-Dialog").count() and not page.get_by_text("[1]:").count()
        page.get_by_text("a table").click()
        page.keyboard.press("Control+s")
        page.wait_for_timeout(1000)
    page.close()
    assert answered["/logout"] == 403
    assert "update_display_data" not in (lab.root / name).read_text()

    (lab.root / name).write_text(json.dumps(notebook))
    read = requests.get(f"{address}/api/contents/{name}", timeout=30).json()["content"]
    assert [output["output_type"] for output in read["cells"][1]["outputs"]] == ["stream", "display_data", "error"]
    assert read["cells"][1]["outputs"][1]["data"].keys() == {"text/html"}
    assert read["metadata"]["language_info"].get("nbconvert_exporter") != "os.path"
    assert read["metadata"].keys() == {"kernelspec", "language_info", "mlcourse"}
    assert "env" not in read["metadata"]["kernelspec"]
    from_lab = {"Referer": f"{address}/lab"}
    kinds = ("html", "webpdf", "WebPDF", "qtpdf", "script")
    urls = {kind: f"{address}/nbconvert/{kind}/{name}" for kind in kinds}
    pages = {kind: requests.get(url, headers=from_lab, timeout=60).status_code for kind, url in urls.items()}
    assert pages == {"html": 200, "webpdf": 403, "WebPDF": 403, "qtpdf": 403, "script": 200}
    (lab.root / name).unlink()
    (lab.root / "dot.png").unlink()


def test_a_file_is_downloaded_and_not_taken_for_an_answer_of_the_server(lab, address, chromium):
    # A link to %2e%2e/%2e%2e/files/lab.ipynb let JupyterLab read a notebook from the file that a student had written
    text = '{"type": "file", "path": "answer.json", "name": "answer.json", "content": "x"}'
    (lab.root / "answer.json").write_text(text)
    page = chromium.new_page()
    page.goto(f"{address}/lab")
    assert page.evaluate("async () => (await fetch('/files/answer.json')).status") == 403
    assert requests.get(f"{address}/files/answer.json", headers={"X-XSRFToken": "x"}, timeout=30).status_code == 403
    with page.expect_download() as download:
        page.evaluate("""() => {
          const link = Object.assign(document.createElement("a"), {href: "/files/answer.json", download: ""});
          document.body.append(link);
          link.click();
        }""")
    assert Path(download.value.path()).read_text() == text
    page.close()
    (lab.root / "answer.json").unlink()


def test_a_workspace_of_others_is_not_loaded(lab, address, chromium):
    # JupyterLab would write it to the address that it names
    named = {"id": "%2e%2e/%2e%2e/%2e%2e/api/contents/written.txt"}
    workspace = {"type": "file", "format": "text", "content": "x", "data": {}, "metadata": named}
    path = lab.root / "others.jupyterlab-workspace"
    path.write_text(json.dumps(workspace))
    page = chromium.new_page()
    page.goto(f"{address}/lab/tree/{path.name}")
    page.wait_for_timeout(4000)
    page.close()
    path.unlink()
    assert not (lab.root / "written.txt").exists()


def test_jupyterlab_says_where_to_read_what_was_handed_in(lab, address, chromium):
    page = chromium.new_page()
    page.goto(f"{address}/lab/tree/submitted/{STUDENT}/{LAB}/{LAB}.ipynb")
    page.locator("dialog.jp-Dialog").get_by_text("read it with `mlcourse mark` or in the formgrader").wait_for()
    assert not page.locator(".jp-MarkdownCell").count()
    page.close()
    inside = f"submitted/{STUDENT}/{LAB}/{LAB}.ipynb"
    pages = (
        f"api/contents/{inside}",
        f"files/{inside}",
        f"files/%73ubmitted//{inside[10:]}",
        f"nbconvert/html/{inside}",
        f"nbconvert/html/%73ubmitted/{inside[10:]}",
    )
    from_lab = {"Referer": f"{address}/lab"}
    asked = [requests.get(f"{address}/{one}", headers=from_lab, timeout=60) for one in pages]
    assert [answer.status_code for answer in asked] == [403] * len(pages)
    doubled = f"{address}/nbconvert/html/%73ubmitted//{inside[10:]}"  # no page of the server
    assert requests.get(doubled, headers=from_lab, timeout=60).status_code == 404
    assert requests.get(f"{address}/files/nbgrader_config.py", headers=from_lab, timeout=60).status_code == 200


def test_a_file_beside_a_notebook_is_no_page_of_the_formgrader(graded, address):
    with graded.gradebook() as gradebook:
        [notebook] = gradebook.find_submission(LAB, STUDENT).notebooks
        number = notebook.id
    path = graded.root / "autograded" / STUDENT / LAB / "page.html"
    path.write_text("<script>alert(1)</script>")
    pages = {name: status(f"{address}/formgrader/submissions/{number}/{name}") for name in ("page.html", "a/b", "next")}
    path.unlink()
    assert pages == {"page.html": 404, "a/b": 404, "next": 200}
    assert status(f"{address}/formgrader/submissions/{number}") == 200


@pytest.mark.nightly
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
        button.click(trial=True)  # fails if something else covers the button
    page.mouse.click(600, 450)
    page.wait_for_timeout(500)
    assert page.url.partition("?")[0] == before
    assert graded.read_scores("manual_score")["hostile"][name] is None
    # The page itself uses this class where MathJax ignores formulas
    own = ":is([class]:not([class=mathjax_ignore]), [id], [style]):not(mjx-container, mjx-container *)"
    assert page.locator(f".rendered_html {own}").count() == 0
    assert page.locator("a[href*=logout]").count() == 0


def test_a_formula_gets_nothing_from_a_student_but_its_signs(opened):
    page = opened("hostile")
    assert page.locator("mjx-container").count()
    assert page.locator(FROM_STUDENTS).count() == 0
    assert page.get_by_text(r"\mmlToken{mtext}[fontsize=").count() == 1


def test_a_raw_cell_is_shown_as_plain_text(opened):
    cell = opened("hostile").get_by_text("a raw cell")
    assert r"cover</a> a raw cell $\rule[-20em]" in cell.inner_text()
    assert cell.evaluate("one => one.closest('.rendered_html pre') !== null")


def test_formulas_without_end_do_not_keep_the_instructor_from_marking(opened, lab):
    page = opened("formulas")  # fails after half a minute
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


def test_the_page_runs_no_script_but_its_own(opened):
    page = opened("honest")
    page.locator(".glyphicon-eye-open").click()
    assert page.locator("a.name-shown").is_visible()  # nbgrader's own button still runs its script
    assert page.evaluate("""async () => {
      window.ran = [];
      const forbidden = [];
      document.addEventListener("securitypolicyviolation", (one) => forbidden.push(one.violatedDirective));
      const box = document.querySelector(".rendered_html");
      box.innerHTML = `<img src="data:," onerror="ran.push('error')"><b onclick="ran.push('click')">b</b>
        <a href="javascript:void ran.push('link')">a</a>`;
      for (const one of box.querySelectorAll("a, b")) one.click();
      const script = document.createElement("script");
      script.src = "/formgrader/static/js/utils.js";
      script.onload = () => ran.push("file");
      box.append(script);
      await new Promise((resolve) => setTimeout(resolve, 500));
      return [ran, forbidden.filter((one) => !one.startsWith("script-src")), forbidden.length];
    }""") == [[], [], 4]


def test_the_feedback_page_reads_well_without_a_network_and_runs_nothing_of_the_student(graded, chromium):
    for student in graded.submitted:
        page = chromium.new_page(viewport={"width": 390, "height": 800})
        raised, answered, own = [], [], graded.feedback(student).as_uri()
        page.on("dialog", lambda dialog: raised.append(dialog.message))
        page.on("pageerror", lambda error: raised.append(str(error)))
        page.on("request", lambda request: answered.append(request.url))
        page.goto(own)
        text = page.inner_text("body")
        assert page.locator("math :is(a, [href], [class], [id], [style])").count() == 0
        assert page.locator("math").first.bounding_box()["height"] > 0
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        broken = "[...document.querySelectorAll('a[href^=\"#\"]')].filter((one) => !document.querySelector(one.hash))"
        assert page.evaluate(f"{broken}.length") == 0
        page.close()
        assert not raised
        assert {url for url in answered if not url.startswith("data:")} == {own}
        assert text.index("What to look at first") < text.index("Your notebook")
        for message in graded.messages(student).values():
            assert message[:60] in " ".join(text.split())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_barrier_on_a_feedback_page(graded, chromium, theme):
    context = chromium.new_context(color_scheme=theme, bypass_csp=True)  # axe is a script
    page = context.new_page()
    page.goto(graded.feedback(STUDENT).as_uri())
    found = Axe().run(page).response["violations"]
    context.close()
    # The first cell of a table of pandas is empty
    assert {one["id"] for one in found} <= {"empty-table-header"}


def test_the_feedback_page_allows_the_formulas_that_the_formgrader_allows(chromium):
    page = chromium.new_page()
    page.add_script_tag(content=SETTINGS.read_text("utf-8"))
    plain = page.evaluate("(formulas) => formulas.map(isPlain)", PLAIN_OR_NOT)
    page.close()
    assert [is_plain(formula) for formula in PLAIN_OR_NOT] == plain and {*plain} == {True, False}
