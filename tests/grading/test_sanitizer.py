"""The sanitiser shows honest texts as they were meant, and makes hostile ones harmless."""

import base64
import functools
import html
import io
import math
import random
import re
import time

import matplotlib.figure
import nbformat
import numpy as np
import pandas as pd
import pytest
from jinja2 import Environment
from markdown_it import MarkdownIt

from coursegrader import pictures, sanitizer
from coursegrader.formulas import mathml
from coursegrader.preprocessors import PAGE_CHARACTERS, ShowWithinLimits
from coursegrader.protocol import NOTEBOOK_OUTPUTS, OutputBudget
from coursegrader.sanitizer import clean, coloured, highlighted, in_blocks, rendered
from coursegrader.similarity import normalised
from unchanged import NIGHTLY

with_mathml = functools.partial(rendered, formula=mathml)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def picture(kind):
    file = io.BytesIO()
    matplotlib.figure.Figure(figsize=(0.1, 0.1)).savefig(file, format=kind)
    return base64.b64encode(file.getvalue()).decode()


def tags(page):
    return set(re.findall(r"<(\w+)", page))


# Honest answers


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A **bold** and *slanted* `a*b*c`", "<p>A <strong>bold</strong> and <em>slanted</em> <code>a*b*c</code></p>"),
        ("# A heading", "<h1>A heading</h1>"),
        ("3. three\n4. four", '<ol start="3">\n<li>three</li>\n<li>four</li>\n</ol>'),
        ("> a quote", "<blockquote>\n<p>a quote</p>\n</blockquote>"),
        ("```python\nif x < 1: pass\n```", "<pre><code>if x &lt; 1: pass\n</code></pre>"),
        ("H<sub>2</sub>O and m<sup>2</sup>", "<p>H<sub>2</sub>O and m<sup>2</sup></p>"),
        ("1 < 2 & 3 > 2", "<p>1 &lt; 2 &amp; 3 &gt; 2</p>"),
        ("~~wrong~~", "<p><s>wrong</s></p>"),
    ],
)
def test_an_honest_answer_looks_as_it_was_meant(text, shown):
    assert rendered(text).strip() == shown


def test_a_table_in_markdown_is_a_table():
    page = rendered("| model | error |\n|---|--:|\n| linear | 0.3 |")
    assert re.sub(r"\s", "", page).startswith("<table><thead><tr><th>model</th><th>error</th></tr></thead>")
    assert "<td>linear</td>" in page


@pytest.mark.parametrize("formula", [r"$a_1 * b_2 * c_3$", r"$x < y$", r"$\text{a \$ sign} [x](y)$", r"$$a_1 * b_2$$"])
@pytest.mark.parametrize("around", ["{}", "Before {} after", "- In a list {}", "> {}", "**Bold {}**"])
def test_markdown_changes_nothing_within_a_formula(formula, around):
    assert formula in html.unescape(rendered(around.format(formula)))


@pytest.mark.parametrize(
    "formula",
    [
        "$$\na\n= b\n\n- c\n$$",
        r"\begin{align} a_1 &= b_1 \\ c_* &= d_* \end{align}",
        "\\begin{align}\na &= b \\\\\n\n- c &= d\n\\end{align}",
    ],
)
def test_a_formula_of_several_lines_remains_one(formula):
    shown = html.unescape(rendered(f"Before\n{formula}\n\nafter"))
    assert shown == f"<p>Before</p>\n<p>{formula}</p>\n<p>after</p>\n"


def test_a_formula_in_a_quote_loses_the_marks_of_the_quote():
    assert "$$\na = b\n$$" in rendered("> $$\n> a = b\n> $$")


def test_dollars_that_are_no_formula_stay_dollars():
    assert rendered("It costs $5.").strip() == "<p>It costs $5.</p>"
    assert rendered(r"It costs \$5 or \$6.").strip() == r"<p>It costs \$5 or \$6.</p>"  # as MathJax wants it


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_a_picture_that_was_pasted_into_an_answer_is_shown(kind):
    data = picture(kind)
    attachments = {"my picture.png": {f"image/{kind}": data}}
    page = rendered("![a plot](attachment:my%20picture.png)", attachments)
    shown = pictures.picture(f"image/{kind}", data).data
    assert page.strip() == f'<p><img src="data:image/{kind};base64,{shown}" alt="a plot"></p>'
    assert rendered('<img src="attachment:my picture.png" alt="a plot" width="300"/>', attachments) == page


@pytest.mark.parametrize(
    ("address", "attachments"),
    [
        ("attachment:gone.png", {}),
        ("attachment:gone.png", {"gone.png": {}}),
        ("attachment:gone.png", {"gone.png": {"image/png": "no base64"}}),
        ("attachment:gone.png", {"gone.png": {"image/png": base64.b64encode(b"<svg/>").decode()}}),
        ("attachment:gone.png", {"gone.png": {"image/svg+xml": "PHN2Zy8+"}}),
        ("gone.png", {}),
        ("https://example.org/gone.png", {}),
        ("/logout?gone.png", {}),
    ],
)
def test_a_missing_picture_is_named_with_what_to_do(address, attachments):
    page = rendered(f"Before ![x]({address}) after", attachments)
    assert "Before" in page and "after" in page
    assert re.search(r"\[The picture \S*gone.png is missing: paste a PNG, JPEG, GIF or WebP picture", page)
    assert "img" not in tags(page)


def test_a_large_picture_is_in_the_page_once_however_often_it_is_named():
    spellings = "![x](attachment:a.png) ![x](attachment:%61.png) ![x](attachment:a%2Epng) ![x](attachment:a%2epng)\n"
    page = rendered(spellings * 50, {"a.png": {"image/png": PIXEL}})
    assert page.count(PIXEL) == 1
    assert "The picture a.png is shown above." in page


def test_a_table_of_pandas_keeps_its_cells():
    table = '<table border="1" class="dataframe"><tr><td>1.5</td></tr></table>'
    page = clean(f"<div><style scoped>td {{color: red}}</style>{table}</div>")
    assert page == "<div><table><tbody><tr><td>1.5</td></tr></tbody></table></div>"


# Hostile texts


@pytest.mark.parametrize(
    "page",
    [
        '<div class="btn full-credit" id="x" style="position: fixed; inset: 0" data-link="x" name="y">cover</div>',
        '<a class="full-credit" href="/logout" onclick="alert(1)">cover</a>',
        '<p title="x" onmouseover="alert(1)" tabindex="1" accesskey="x" contenteditable draggable hidden>cover</p>',
        '<table class="cover" background="https://example.org"><td style="background: url(/logout)">cover</td></table>',
    ],
)
@pytest.mark.parametrize("written", [rendered, clean])
def test_nothing_that_a_student_writes_has_a_class_a_style_a_name_or_an_action(page, written):
    shown = written(page)
    assert "cover" in shown
    assert set(re.findall(r'([\w-]+)="', shown)) <= {"rel", "target"}


@pytest.mark.parametrize(
    "page",
    [
        "<img src=https://example.org/x>",
        "<img src=/logout>",
        "<img src=//example.org/x srcset=//example.org/x>",
        '<img src="data:image/svg+xml;base64,PHN2Zy8+">',
        '<img src="data:text/html;base64,PHN2Zy8+">',
        "<style>@import url(/logout)</style>",
        '<link rel="stylesheet" href="/logout">',
        "<iframe src=/logout></iframe><object data=/logout></object><embed src=/logout>",
        "<video poster=/logout src=/logout></video><audio src=/logout></audio><input type=image src=/logout>",
        '<svg><image href="/logout"/><use href="/logout"/></svg><math href="/logout">x</math>',
        '<meta http-equiv="refresh" content="0; /logout"><base href="https://example.org">',
        "<form action=/logout><button>x</button></form>",
        "<script>fetch('/logout')</script>",
        "<svg><style><img src=/logout></style></svg><math><mtext><table><mglyph><style><img src=/logout>",
        "<!--><img src=/logout>--><noscript><img src=/logout></noscript><template><img src=/logout></template>",
    ],
)
@pytest.mark.parametrize("written", [rendered, clean])
def test_no_tag_remains_that_asks_a_server_for_something(page, written):
    shown = written(page)
    assert tags(shown) <= {"p", "em", "table"}
    assert not re.search(r"<[^>]*logout", shown)


@pytest.mark.parametrize(
    "address",
    [
        "/logout",
        "logout",
        "//example.org",
        "?x",
        "#x",
        "http://localhost:8888/logout",
        "http://LOCALHOST./",
        "http://jupyter/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://example.org@localhost/",
        "http:example.org",
        "https://hub.example.org/user/eve/static/page.html",
        "https://hub.example.org/jupyter/%75ser/eve/page.html",
        "https://hub.example.org/hub/spawn",
        "https://hub.example.org/x/..\\user\\eve",
        "https://hub.example.org/us&#9;er/eve",
        "https://hub.example.org/services?x",
        "https://hub.example.org/user-redirect/git-pull?repo=https://example.org",
        "https://hub.example.org/spawn/ada",
        "https://hub.example.org/logout",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "attachment:x",
    ],
)
def test_a_link_to_the_server_of_who_reads_cannot_be_clicked(address):
    for shown in (
        rendered(f"[x]({address})"),
        rendered(f"<a href='{address}'>x</a>"),
        clean(f'<a href="{address}">x</a>'),
    ):
        assert "x" in shown and "href" not in shown


@pytest.mark.parametrize(
    "address", ["https://scikit-learn.org/stable/user_guide.html?a=b#c", "http://example.org:80", "mailto:a@b.org"]
)
def test_a_link_opens_another_site_in_a_tab_of_its_own_and_tells_it_nothing(address):
    link = f'<a href="{address}" target="_blank" rel="noopener noreferrer nofollow">x</a>'
    assert rendered(f"[x]({address})").strip() == f"<p>{link}</p>"
    assert clean(f'<a target="_top" href="{address}">x</a>') == link


@pytest.mark.parametrize("written", [highlighted, coloured])
def test_signs_that_turn_the_order_of_code_are_shown(written):
    page = re.sub("<.*?>", "", written("x = 'user\u202e \u2066# admin\u2069 \u2066'"))
    assert "user<U+202E> <U+2066># admin<U+2069> <U+2066>" in html.unescape(page)


@pytest.mark.parametrize("end", "\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_a_comment_is_shown_as_far_as_python_reads_it(end):
    source = f"# the fit{end}print(fit(x, y))\nprint(0.93)"
    page = html.unescape(re.sub("<.*?>", "", highlighted(source)))
    assert page.strip() == f"# the fit<U+{ord(end):04X}>print(fit(x, y))\nprint(0.93)"


@pytest.mark.parametrize("code", ["\x1b\u202e", "\x1b\x1b[m[31m", "\x1b[31m"])
def test_a_text_with_many_codes_of_a_terminal_is_shown_without_them(code):
    [output] = shown(stream(code * 10_000))
    assert "\x1b" not in output.text and "<span" not in coloured(output.text)


@pytest.mark.parametrize("letter", ["\u0301", "\U0001f3fb", "\u05d0"])
def test_the_formulas_of_a_page_have_no_more_other_letters_than_a_block(letter):
    for text in (f"$a{letter * 19_000}$", f"$a{letter * 400}$ " * 20):
        formulas = re.findall("<math.*?</math>", with_mathml(text))
        assert sum(one.count(letter) for one in formulas) <= sanitizer.BLOCK_LETTERS
        assert letter == "\u05d0" or with_mathml(text).replace("</mi><mi>", "").count(letter * 17) == 0
    assert with_mathml("$\\text{Größe}$").startswith("<p><math")


def test_codes_of_a_terminal_hide_no_marks_on_a_letter():
    assert coloured("a" + "\u0301\x1b[K" * 1000).count("\u0301") == sanitizer.JOINED


def test_no_sign_that_is_named_makes_a_code_of_a_terminal():
    assert html.unescape(coloured("\x1b\u202em")) == "\x1b<U+202E>m"


# Broken texts


@pytest.mark.parametrize(
    "text",
    ["&#" + "9" * 5000 + ";", "&#x" + "f" * 5000 + ";", '<a href="&#' + "9" * 5000 + ';">x</a>', "\ud800", "&#xd800;"]
    + ["\x1b[38m", "\x1b[48;5m", "\x1b[38;2;1m", f"\x1b[{'9' * 5000}m", "\x1b[;m", "\x1b[38;5;999m"],
)
@pytest.mark.parametrize("written", [rendered, clean, highlighted, coloured])
def test_a_broken_text_is_shown_as_well_as_can_be(written, text):
    page = written(f"before {text} after")
    assert "before" in page and "after" in page
    page.encode("utf-8")


def test_text_in_colours_is_shown_in_colours_and_else_as_it_is():
    assert coloured("\x1b[31ma < b\x1b[0m") == '<span class="ansi-red-fg">a &lt; b</span>'
    assert coloured("\x1b[38ma < b\x1b[0m") == "a &lt; b"


PIECES = [
    "\x1b[",
    "38",
    "48",
    ";",
    "5",
    "2",
    "m",
    "&#",
    "x",
    "9" * 5000,
    "d800",
    "&",
    "<a href=",
    "'",
    '"',
    ">",
    "<",
    "$",
]
PIECES += [
    "\\begin{a}",
    "\\end{a}",
    "![",
    "](",
    ")",
    "|",
    "|-|\n",
    "\n",
    " ",
    "`",
    "\0",
    "\ud800",
    "\udc00",
    "\u202e",
    "<td ",
]
PIECES += [
    "colspan=",
    "attachment:",
    "data:image/png;base64,",
    "é",
    "😀",
    "\r",
    "<!--",
    "-->",
    "</",
    "<style",
    "[",
    "]",
    "%",
]


@pytest.mark.parametrize("written", [rendered, with_mathml])
def test_a_text_at_which_the_parser_fails_is_shown_as_it_was_written(written):
    text = "> | a | b |\n> |---|---|\n>"
    with pytest.raises(IndexError):  # else: take another text
        MarkdownIt("commonmark").enable("table").render(text)
    assert html.unescape(written(text)) == f"<pre>{text}</pre>"


@pytest.mark.parametrize("written", [rendered, with_mathml, clean, highlighted, coloured])
def test_no_text_makes_a_page_fail(written):
    draw = random.Random(0)
    for _ in range(500 if NIGHTLY else 100):
        written("".join(draw.choices(PIECES, k=draw.randrange(1, 40))))


# Time


def seconds(function, *arguments):
    begin = time.process_time()
    function(*arguments)
    return time.process_time() - begin


MARKDOWN = [
    r"\begin{a}x",
    r"![\begin{a}](x)\begin{a}",
    "\\begin{a}\n",
    "[",
    "![",
    "[[a](",
    "*",
    "_a",
    "*a **a ",
    "`",
    "> ",
    ">",
    "- ",
    "\n- a",
    "$",
    "$a",
]
MARKDOWN += [
    "$$\n",
    "<",
    "<!--",
    "&",
    "\\",
    "|a\n|-\n",
    "[a]: b\n",
    "a\n=\n",
    "```\n",
    "(",
    "~~a",
    "# ",
    "> $$\n",
    "[a](<",
    ">>>>#\nx\n",
    ">#\nx\n",
    "> ```\nx\n",
    ">***\nx\n",
    ">1.\nx\n",
]
PAGES = [
    "<ul><li>",
    "<div><p>",
    "<b a=1><p>",
    "<a href=x><table><td>",
    "</x>",
    "<x>",
    "<!--",
    "<a ",
    "<img src='",
    "&",
    "<style>",
]
PAGES += ["<div><table></div></table>", "<table><b>", "<dd><dl>"]
CODE = ["\n ", " \n", "\t\n", "\x0b\n", "\x0c", "a.", "'''", "(", "\\\n", 'f"{', "@", "1.", "\r"]


def takes_less(function, long, times, short, spare=0.0, most=math.inf):
    """Whether the long text takes less than `times` the processor time of the short one, at the best of three tries.

    It must also take less than `most` seconds.
    """
    longest, shortest = [], []
    for _ in range(3):
        longest.append(seconds(function, long))
        shortest.append(seconds(function, short))
        if min(longest) < min(times * min(shortest) + spare, most):
            return True
    return False


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("function", "part"),
    [(function, part) for part in MARKDOWN for function in (rendered, with_mathml)]
    + [(clean, part) for part in PAGES]
    + [(highlighted, part) for part in CODE],
)
def test_twice_the_text_takes_about_twice_the_time(function, part, monkeypatch):
    for limit in ("TEXT_CHARACTERS", "CODE_CHARACTERS", "HTML_CHARACTERS"):
        monkeypatch.setattr(sanitizer, limit, 10**9)
    once, twice = (part * (size // len(part)) for size in (10_000, 20_000))
    assert takes_less(function, twice, 3, once, spare=0.05, most=3)


@pytest.mark.parametrize("part", ["<p>", "x<br>", "<b>x</b>", "<img src='data:a'>"])
def test_what_stands_beside_the_cells_of_a_table_takes_a_time_in_proportion_to_its_length(part):
    # In proportion to its square, the time would be 64 times as long
    assert takes_less(clean, "<table>" + 40_000 * part, 24, "<table>" + 5_000 * part)


def test_what_stands_beside_the_cells_of_a_table_is_read_before_it():
    page = clean("<table>wind <b>and</b> rain<tr>x<td><b>1</b><p>mm</td>y</tr></table>after")
    assert (
        page.startswith("wind  and rainxy<table>") and "<td><b>1</b><p>mm</p></td>" in page and page.endswith("after")
    )


@pytest.mark.nightly
def test_the_longest_text_of_quotes_takes_about_twice_the_time_of_half_of_it():
    quotes = ">-\nx\n"
    longest = quotes * (sanitizer.TEXT_CHARACTERS // len(quotes))
    assert takes_less(rendered, longest, 3, longest[: len(longest) // 2])


def test_a_long_quote_remains_one_quote():
    lines = "\n".join(f"> {number}" for number in range(500))
    assert rendered(f"> It\nbegins without marks\n{lines}").count("<blockquote>") == 1


@pytest.mark.parametrize("part", [r"\begin{a}x", "[", "<table><tr><td>", "> "])
def test_a_megabyte_is_shown_in_seconds_and_cut_off(part):
    text = part * (2**20 // len(part))
    assert seconds(rendered, text) < 10
    assert "cut off here, since more than 50,000 characters are not shown" in rendered(text)


def test_a_table_in_markdown_is_not_filled_up_to_millions_of_cells():
    wide = "|" + "a|" * 5000 + "\n|" + "-|" * 5000 + "\n" + "|\n" * 10_000
    assert len(rendered(wide)) < 10 * len(wide)


def test_all_tables_of_a_page_together_have_no_more_cells_than_a_browser_can_bear():
    table = "|" + "a|" * 99 + "\n|" + "-|" * 99 + "\n" + "|\n" * 1000 + "| the last |\n"
    page = rendered(table * 20)
    assert page.count("<td>") + page.count("<th>") <= sanitizer.TABLE_CELLS
    assert page.count("the last") == 20
    environment, left = Environment(), {}
    environment.filters["markdown"] = sanitizer.markdown
    page = environment.from_string("{{ text | markdown }}" * 20).render(text=table, resources=left)
    assert page.count("<td>") + page.count("<th>") <= sanitizer.TABLE_CELLS


def test_all_texts_of_a_page_together_are_shown_in_seconds():
    left = {}
    pages = [rendered("![" * 20_000, left=left) for _ in range(20)]
    assert sum(map(len, pages)) < 2 * sanitizer.PAGE_TEXT_CHARACTERS
    assert "cut off here" not in pages[0] and all("cut off here" in page for page in pages[5:])


def test_tags_that_a_browser_opens_again_in_each_paragraph_do_not_multiply():
    page = "".join(f"<b a{n}>" for n in range(7000)) + "<p>" * 16_000
    assert len(clean(page)) < len(page)


def test_lines_without_code_are_compared_at_once():
    assert seconds(normalised, "\n" * 99_000) < 5
    assert seconds(normalised, " " * 99_000 + "\n" * 900) < 5
    assert normalised("  %time x = 1\n!ls\ny = 2") == "v = 2"


# Outputs of cells


def shown(*outputs):
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.from_dict(output) for output in outputs])
    return ShowWithinLimits().preprocess(nbformat.v4.new_notebook(cells=[cell]), {})[0].cells[0].outputs


def stream(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def display(**data):
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {f"text/{kind}": text for kind, text in data.items()},
    }


def test_what_a_cell_prints_is_cut_off_where_nobody_reads_on():
    short, long = shown(stream("short"), stream("x" * 10**6))
    assert short.text == "short"
    assert len(long.text) < 200_000 and "cut off here" in long.text


def test_many_cells_together_do_not_make_a_page_that_no_browser_opens():
    outputs = shown(*[stream("x" * 90_000)] * 200)
    assert sum(len(output.text) for output in outputs) < 1.1 * PAGE_CHARACTERS


@pytest.mark.nightly
def test_the_words_of_pictures_that_a_browser_cannot_draw_are_as_few_as_those_of_a_block():
    tag = f'<img src="data:image/png;base64,{PIXEL}" alt="{{}}">'
    assert clean(tag.format("a\u0628" * 90_000)).count("\u0628") <= 250
    assert clean(tag.format("e" + "&#769;" * 200)).count("\u0301") <= 20
    page = clean(f"<p>a <b>bold {tag.format('ö' * 240) * 30}</b></p>")
    assert page.count("<div></div>") == page.count("</b><div></div><b>") == 6


def test_a_formula_that_a_cell_shows_is_shown_as_one_in_a_text():
    assert shown(display(latex="$a$", plain="a"))[0].data == {"text/markdown": "$a$", "text/plain": "a"}


def test_outputs_without_end_do_not_make_a_page_that_no_browser_opens():
    cells = [nbformat.v4.new_code_cell(outputs=[nbformat.from_dict(display(plain=""))] * 200) for _ in range(240)]
    cells.append(nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("error", evalue="the hint")]))
    shown = ShowWithinLimits().preprocess(nbformat.v4.new_notebook(cells=cells), {})[0].cells
    assert sum(len(cell.outputs) for cell in shown) < NOTEBOOK_OUTPUTS + 2 * len(cells)
    assert "more than 2,000 outputs" in shown[10].outputs[-1].data["text/plain"]
    assert shown[-1].outputs[0].evalue == "the hint"


def test_a_notebook_keeps_no_outputs_without_end_but_one_of_each_cell():
    budget = OutputBudget()
    kept = [budget.fitted([display(plain="")] * 200) for _ in range(240)]
    assert sum(map(len, kept)) < NOTEBOOK_OUTPUTS + len(kept)
    assert budget.fitted([display(plain="the hint")]) == [display(plain="the hint")]


@pytest.mark.parametrize("sign", ["\n", "\u2028", "\x1b", '"'])
def test_signs_that_a_notebook_file_writes_longer_count_as_they_are_written(sign):
    budget = OutputBudget(1_000_000)
    outputs = [stream(sign * 1000) for _ in range(900)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell()])
    kept = [one for one in outputs if budget.fitted([one]) == [one]]
    notebook.cells[0].outputs = [nbformat.from_dict(one) for one in kept]
    assert 0 < len(nbformat.writes(notebook)) < 1_100_000


def test_a_table_that_is_too_long_is_shown_as_its_text():
    [table] = shown(display(html="<table>" * 100_000, plain="a  b"))
    assert table.data == {"text/plain": "a  b"}
    [table] = shown(display(html="<table>" * 100_000))
    assert "too long" in table.data["text/plain"]


def test_colours_of_a_text_are_kept_unless_they_are_thousands():
    kept, dropped = shown(stream("\x1b[31mred\x1b[0m"), stream("\x1b[31mred" * 5000))
    assert "\x1b" in kept.text
    assert dropped.text == "red" * 5000


@pytest.mark.parametrize(
    "table",
    [
        "<tr>" + "<td>" * 6000 + "</tr>" + "<tr><td>x</tr>" * 1900,
        "<tr>" + "<td>" * 6000 + "</tr>" + "<td>x</tr>" * 1900,
        "<tr><td colspan=999><td colspan=999>" + "<tr><td>x" * 15_000,
        "<tr><td><table></table>" * 3000 + "<tr>" + "<td><table></table>" * 3000,
        "<tr>" * 5000 + "<td>x" * 5000,
        "<tr>" + "<td>" * 6000 + "<tbody><td></tbody>" * 1350,
        "<tr>" + "<td>" * 6000 + "<thead><td>" * 1350,
    ],
    ids=["wide", "without rows", "spans", "tables in tables", "rows", "bodies", "heads"],
)
def test_a_table_has_places_in_proportion_to_its_cells(table):
    widths, rows = [0], 0
    page = clean(f"<table>{table}</table>")
    for row in re.split("<tr>", page)[1:]:
        rows += 1
        widths.append(sum(int(span or 1) for span in re.findall(r'<t[dh](?: colspan="(\d+)")?>', row)))
    assert rows * max(widths) <= 3 * page.count("<td") + 2000


@pytest.mark.parametrize(
    "page",
    [
        f'<p><a href="https://a.bc/{"x" * 24000}">' + "<div>y</div>" * 2000,
        f'<table><a href="https://a.bc/{"x" * 1900}">' + "<tr>y" * 2000,
        "<p>" + "<b><i><u><s><em><strong><code>" * 3 + "<div>y</div>" * 2000,
    ],
    ids=["a long link", "a link in a table", "bold"],
)
def test_a_page_does_not_grow_by_tags_that_html_opens_again(page):
    cleaned = clean(page)
    text = re.sub(r"<[^>]*>", "", cleaned)
    assert len(cleaned) <= 10 * len(page) + 1000 and text.count("y") == 2000


LETTERS = "a\u0628" * 3000


def test_cleaned_html_is_what_a_parser_reads():
    # Otherwise a browser reads something else than what was cleaned, such as an end of the box around it
    tags = "<a> </a> <b> </b> <em> <div> </div> <p> </p> <h1> <h2> </h2> <li> <ul> <pre> <td> x".split()
    rng = random.Random(5)
    for _ in range(2000):
        page = clean("".join(rng.choices(tags, k=rng.choice((8, 15, 40)))).replace("<a>", "<a href='https://a.bc/'>"))
        assert clean(page) == page
    blank = "<pre>" + "\n" * 50 + "x</pre><b>y</b>"
    assert clean(blank) == clean(clean(blank)) == blank


@pytest.mark.parametrize("show", [rendered, clean, coloured, highlighted], ids=lambda show: show.__name__)
def test_a_long_text_of_letters_that_keep_a_browser_busy_is_divided_into_blocks(show):
    # Chromium needed 30 s for it as one block
    for letter in ("\u0628", "\U0001d4b3", "\u2c00", "\u0100", "\u3000", "\u2603", "\u4e2d", "\x7f"):
        page = show(f"a{letter}" * 24_500 + "a")
        assert max(map(len, re.split("<div></div>", page))) < 2200 and page.count(letter) == 24_500
    assert "<div></div>" not in show("a" * 24_500) + show("\u05e9\u05dc\u05d5\u05dd " * 150)


def test_paragraphs_of_any_language_stay_as_they_are():
    chinese, russian, greek = "\u4e2d\u6587" * 300, "\u0436" * 900, "<li>" + "\u03b1" * 800 + "</li>"
    assert "<div></div>" not in rendered("\n\n".join([chinese, russian, "**\u0436** e " * 90] * 20))
    assert "<div></div>" not in clean(f"<p>{chinese}</p><ul>{greek * 20}</ul>")


def test_a_formula_in_a_paragraph_does_not_count_as_its_end():
    assert "<div></div>" in in_blocks("<p>" + ("\u0436" * 800 + "<math><mi>x</mi></math>") * 3 + "</p>")


def test_no_block_begins_within_an_attribute():
    page = '<p><img alt="x>' + "\u0436" * 3000 + '"></p>'
    assert in_blocks(page) == page


@pytest.mark.parametrize(
    ("show", "text"),
    [
        (rendered, f"**{LETTERS}** and [a *{LETTERS}*](https://example.org)"),
        (
            clean,
            f"<b>{LETTERS}</b><div><u><i>{LETTERS}</i></u></div><a href='https://example.org'><code>{LETTERS}</code></a>",
        ),
        (coloured, f"\x1b[31m{LETTERS}\x1b[1m{LETTERS}\x1b[0m"),
    ],
    ids=["Markdown", "HTML", "a terminal"],
)
def test_such_a_text_is_divided_within_bold_text_and_links_too(show, text):
    # To a browser, a block within an inline element is one with the text around it
    page, opened = show(text), []
    for end, name in re.findall(r"<(/?)(\w+)", page):
        if name == "div" and not end:
            assert not {*opened} & {"a", "b", "code", "em", "i", "span", "strong", "u"}
        if end:
            assert opened.pop() == name
        elif name not in ("br", "img"):
            opened.append(name)
    plain = re.sub("<[^>]*>", "", page)
    assert opened == [] and plain.count("\u0628") == text.count("\u0628") and page.count("<div></div>") >= 6
    bold = re.findall(r"<(?:strong|b)>([^<]*)", page)
    assert sum(map(len, bold)) in (0, len(LETTERS)), "what was bold stays bold"


def test_a_long_address_is_not_written_again_and_again():
    page = clean(f'<a href="https://a.bc/{"x" * 1900}">' + "a\u0628" * 24_500 + "</a>")
    assert len(page) < 60_000 and page.count("<a ") <= 1


def test_quotes_in_quotes_leave_width_for_the_text():
    assert rendered("> " * 19 + "text").count("<blockquote>") == 8 and "text" in rendered("> " * 19 + "text")
    assert clean("<ul><li>" * 19 + "text").count("<ul>") == 8


def test_an_honest_table_keeps_its_cells():
    frame = pd.DataFrame(np.ones((300, 20)), index=pd.MultiIndex.from_product([range(30), range(10)]))
    assert clean(frame.to_html(max_rows=None)).count("<td>1.0</td>") == 6000
    lines = "".join(f"<tr><td>{n}</td></tr>" for n in range(500))
    assert clean(f"<table>{lines}</table>").count("<td>") == 500


@pytest.mark.parametrize("cell", ["<td colspan=999>x", "<tr><td rowspan=999 colspan=999>x", "<tr><td rowspan=0>x"])
def test_cells_of_a_table_cover_no_more_than_a_browser_can_bear(cell):
    page = clean("<table><tr>" + cell * 3000)
    covered = [int(one) * int(two or 1) for one, two in re.findall(r'span="(\d+)"(?: \w+span="(\d+)")?', page)]
    assert sum(covered) <= 2000 and 0 not in covered and page.count("x") == 3000
    assert 'colspan="24"' in clean('<table><tr><th colspan="24">hours</th></tr></table>')


def test_pictures_that_are_missing_are_explained_once():
    page = clean("<p>" + "<img>" * 1000)
    assert page.count("paste a PNG") == 1 and page.count("is missing") == 1000 and len(page) < 60_000
