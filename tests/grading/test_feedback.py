"""A student's page opens with what to look at first, and needs no network."""

import html
import json
import re

import nbformat
import pytest

from classroom import Classroom
from coursegrader import sanitizer
from coursegrader.feedback import page_of, refusal_page
from coursegrader.formulas import TAGS, mathml
from mlcourse.setup_cell import setup_cell
from paths import ROOT

LAB = "lab-01"
SITE = "https://example.org"


# Formulas


def test_every_formula_of_the_labs_is_shown_as_one():
    texts = [
        "".join(cell["source"])
        for path in sorted((ROOT / "labs").glob("*/*.ipynb"))
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    ]
    formulas = [one for text in texts for one in re.findall(r"\$\$.+?\$\$|\$(?:[^$\\\n]|\\.)+\$", text, re.DOTALL)]
    assert len(formulas) > 100
    assert [formula for formula in formulas if not mathml(formula).startswith("<math")] == []


@pytest.mark.parametrize(
    ("formula", "read"),
    [
        (r"$\frac{1}{n} \sum_{i=1}^n x_i$", "1n∑i=1nxi"),
        (r"\begin{align} a &= b \\ c &= d \end{align}", "a=bc=d"),
        (r"$$\begin{aligned} a &= b \end{aligned}$$", "a=b"),
        (r"\begin{equation} a = b \nonumber \end{equation}", "a=b"),
        (r"$\arg\min_w L(w)$", "argminwL(w)"),
        (r"$\operatorname*{arg\,min}_w$", "argminw"),
        (r"$\mathbb{R}^d$", "ℝd"),
        (r"$\text{<b>no tag</b>}$", "<b>no tag</b>"),
        ("$a < b & c$", None),
        (r"$\href{javascript:alert(1)}{x}$", None),
        (r"$\style{color:red}{x}$", None),
        (r"$\frac{a$", None),
        ("$x^$", None),
        ("$" + "x" * 2001 + "$", None),
        (r"\begin{matrix}" + "a&" * 900 + r"\end{matrix}", None),
        ("$" + r"\bar " * 380 + "x$", None),
        ("$" + r"\hat " * 50 + "x$", "x" + "^" * 50),
        ("$ $", None),
    ],
)
def test_a_formula_is_mathml_or_else_the_text_that_was_written(formula, read):
    page = mathml(formula)
    text = html.unescape(re.sub("<[^>]*>", "", page)).replace("\N{NO-BREAK SPACE}", " ")
    assert re.match(r"<(\w+)", page)[1] == ("math" if read else "code")
    assert text == (read or formula)
    assert set(re.findall(r"<(\w+)", page)) <= {*TAGS, "code"}


# The page


def cell(kind, source, grade_id=None, outputs=(), **grader):
    new = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    made = new(source)
    if grade_id:
        keys = {"grade": "points" in grader, "solution": False, "comment": None, "waiting": False}
        made.metadata["nbgrader"] = {"grade_id": grade_id, **keys, **grader}
    if outputs:
        made.outputs = list(outputs)
    return made


def failed(message):
    return nbformat.v4.new_output("error", ename="CheckFailed", evalue=message, traceback=[message])


SEE = "The sum is not the mean. See introduction.html#loss in the book."
CELLS = [
    cell("markdown", "# The lab\n\n## Mean"),
    cell("code", "def mean(x): ...", "mean", solution=True),
    cell("code", "check(mean)", "mean-1", [failed("That is no list.")], points=1, score=0),
    cell("code", "check(mean)", "mean-2", points=1, score=1),
    cell("markdown", "## Line"),
    cell("code", "check(line)", "line-1", [failed(SEE)], points=3, score=0.5),
    cell("markdown", "## In words"),
    cell("markdown", r"It is $\sigma^2$.", "essay", solution=True, points=4, score=0, waiting=True, comment="*Why?*"),
]


@pytest.fixture
def root(tmp_path):
    room = Classroom(tmp_path)
    sections = {"Mean": ["mean", "mean-1", "mean-2"], "Line": ["line-1"], "In words": ["essay"]}
    room.write_release(LAB, "The lab", sections)
    (tmp_path / "pyproject.toml").write_text(f'[tool.mlcourse]\nsite = "{SITE}"\n')
    return tmp_path


def write(root, cells=CELLS, name="Ada", late="", **happened):
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"mlcourse": happened})
    about = {"assignment": LAB, "name": name, "score": 1.5, "max_score": 9, "late": late}
    return page_of(notebook, about, root)


def text_of(page):
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", re.sub("(?s)<style.*?</style>", "", page))).split())


def first(page):
    """Return what stands under "What to look at first", with its links."""
    part = page[page.index('id="first"') : page.index("</section>", page.index('id="first"'))]
    return text_of(part), re.findall(r'href="([^"]*)"', part)


def test_the_page_opens_with_the_exercises_that_lost_most(root):
    text, links = first(write(root))
    assert text.index("Line , 2.5 points lost") < text.index("Mean , 1 point lost") and "essay" not in text
    assert "The sum is not the mean. Read about it in the book" in text and "That is no list." in text
    assert links == [f"{SITE}/book/introduction.html#loss", "#line-1", "#mean-1"]


def test_without_the_address_of_the_site_the_page_names_the_place_in_the_book(root):
    (root / "pyproject.toml").unlink()
    text, links = first(write(root))
    assert SEE in text and links == ["#line-1", "#mean-1"]


def test_name_points_what_waits_and_lateness_stand_above(root):
    page = write(root, late="Of 9 points, 7 count.")
    opening = text_of(page[: page.index("</header>")])
    assert "Feedback for Ada" in opening and "1.5 of 9 points; 4 more points can come from written" in opening
    assert "Of 9 points, 7 count." in opening


def test_points_that_are_marked_again_are_not_promised_twice(root):
    changed = [cell("markdown", "Another text.", "essay", points=4, score=3, waiting=True, solution=True)]
    page = text_of(write(root, changed))
    assert "; 1 more point can come from" in page and "; 3 points can change, since what was marked has changed" in page
    assert "waits to be marked again, 3 of 4 points until then" in page and "you have all points" not in page


def test_who_has_all_points_reads_so(root):
    full = [cell("code", "check(mean)", "mean-2", points=1, score=1)]
    assert "you have all points" in first(write(root, full))[0]
    assert "Every check passed" in first(write(root, [*full, CELLS[-1]]))[0]


def test_comments_stand_before_the_notebook_and_beside_the_answer(root):
    page = write(root)
    comments = page[page.index('id="comments"') : page.index('id="notebook"')]
    assert "<em>Why?</em>" in comments and 'href="#essay"' in comments and "In words" in comments
    assert "<em>Why?</em>" in page[page.index('id="essay"') :]


def test_headings_of_the_notebook_are_below_those_of_the_page(root):
    page = write(root, [*CELLS, nbformat.v4.new_markdown_cell("# Mine\n\n###### Deep")])
    assert page.count("<h1") == 1 and "<h2>Mine</h2>" in page and "<h6>Deep</h6>" in page
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["Mean", "Line", "In words"]


def test_formulas_tables_and_pictures_need_no_network(root):
    page = write(root)
    assert "<msup><mi>σ</mi><mn>2</mn></msup>" in page
    elsewhere = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)', page)
    assert "script" not in page and elsewhere == [f"{SITE}/book/introduction.html#loss"] * 2


def test_the_cell_that_fetches_the_course_is_left_out(root):
    page = write(root, [setup_cell("labs/lab-01/lab-01.ipynb"), *CELLS])
    assert "find_spec" not in page and "check(mean)" in text_of(page).replace(" ", "")


def test_a_cell_that_only_begins_like_the_one_that_fetches_the_course_is_shown(root):
    fetches = setup_cell("labs/lab-01/lab-01.ipynb").source
    own = [
        fetches[: fetches.index("import")] + "mse = 0.1",
        f"{fetches}\nmse = 0.2",
        fetches.replace("[", "[mse(3), ", 1),
        # IPython ends lines here, and these begin a command and a line of code
        *(fetches.replace("\n", f"{end}%pwd{end}mse = 0.3\n", 1) for end in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
    ]
    page = text_of(write(root, [*map(nbformat.v4.new_code_cell, own), *CELLS])).replace(" ", "")
    assert all(text in page for text in ("mse=0.1", "mse=0.2", "mse(3)"))
    assert page.count("mse=0.3") == 8


EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def test_nothing_of_a_student_becomes_a_tag_of_the_page(root):
    evil = [
        cell("code", EVIL, "mean-1", [failed(EVIL)], points=1, score=0, comment=EVIL),
        cell("markdown", f"{EVIL} ${EVIL}$ $$\\text{{{EVIL}}}$$", "essay", solution=True, points=4, score=0),
        nbformat.v4.new_raw_cell(EVIL),
        cell(
            "code",
            "1",
            outputs=[
                nbformat.v4.new_output("stream", text=EVIL),
                nbformat.v4.new_output("error", ename=EVIL, evalue=EVIL, traceback=[EVIL]),
                *(
                    nbformat.v4.new_output("display_data", {kind: EVIL})
                    for kind in ("text/html", "text/markdown", "text/latex", "text/plain", "image/png", "image/svg+xml")
                ),
            ],
        ),
    ]
    page = write(root, evil, name=EVIL, refused=EVIL, repairs=[EVIL], stopped=EVIL)
    assert not re.search(r"<script|<img src=.?x|<[^>]*\sonerror", page) and "alert(1)" in page


def test_raw_cells_are_shown_as_typed_within_the_limits_of_texts(root):
    page = write(root, [nbformat.v4.new_raw_cell("*as* <b>typed</b>\n    # and\nkept")])
    assert "*as* <b>typed</b>\n    # and\nkept" in html.unescape(page)
    page = write(root, [nbformat.v4.new_raw_cell("\u0628\n" * 20_000) for _ in range(20)])
    assert page.count("\u0628") < sanitizer.PAGE_TEXT_CHARACTERS and max(map(len, page.split("<div></div>"))) < 50_000


def test_a_text_cannot_name_the_place_of_a_formula(root):
    """The words that stand for formulas while a text is cleaned are drawn anew for each text."""
    page = write(root, [nbformat.v4.new_markdown_cell("$a$ and -0- and formula-0- and $b$")])
    assert "and -0- and formula-0- and" in page and page.count("<math") == 2


def test_the_reasons_of_repairs_and_refusals_come_first(root):
    text = text_of(write(root, repairs=["A cell was put back."], stopped="the time was over"))
    assert text.index("Before you read on") < text.index("What to look at first")
    for said in ("A cell was put back.", "nothing was run, since the time was over"):
        assert said in text


def test_who_was_refused_reads_why_and_no_list_of_what_is_missing(root):
    text = text_of(write(root, refused="too large"))
    assert "could not be graded: too large" in text and "What to look at first" not in text


def test_who_was_refused_at_collection_gets_a_page_with_the_reason(root):
    text = text_of(refusal_page(LAB, root, "Ada Lovelace", 9, "there is no notebook among its files (x.pdf)."))
    assert "Feedback for Ada Lovelace 0 of 9 points" in text and "(x.pdf)" in text and "What to look at" not in text
