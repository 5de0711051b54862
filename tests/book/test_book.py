"""Building the book: errors that fail it, cells that are executed again, and messages."""

import contextlib
import re
import socket
import subprocess
import tempfile

import pytest
from bs4 import BeautifulSoup

from coursebook import BookError
from coursebook import build as book
from mlcourse.cli import main
from tiny import TinyCourse


@pytest.fixture
def course(tmp_path):
    return TinyCourse(tmp_path)


def test_a_cell_that_raises_fails_the_build_again_and_again_until_it_is_mended(course):
    course.write(code="undefined_name")
    for _ in range(2):
        message = course.failure()
        assert "book/index" in message and "NameError: name 'undefined_name' is not defined" in message
        assert "a cell raised an error" in message.splitlines()[-1]
    course.write(code="defined = 1")
    assert (course.build() / "book" / "index.html").exists()


CLAIM = """from mlcourse.claims import general
@general(at_least=95)
def rule(seed):
    \"\"\"A seed is *always* positive.\"\"\"
    return seed > 0"""


def test_a_claim_and_the_table_of_claims_give_no_warning(course):
    course.write(text="{{ claims }}", code=CLAIM)
    page = BeautifulSoup((course.build() / "book" / "index.html").read_text(), "html.parser")
    assert page.td.get_text() == "A seed is *always* positive. (A page)" and "3\N{NO-BREAK SPACE}of" in page.get_text()
    assert "General, in at least 95 of 100 draws: A seed" in page.select_one(".cell_output").get_text()


def test_references_to_nothing_fail_the_build_and_each_is_named(course):
    texts = {
        "nowhere": "See [](#nowhere).",
        "no-label": "See {ref}`no-label`.",
        "word that is in no glossary": "A {term}`word that is in no glossary`.",
        "nobody1900": "As {cite:t}`nobody1900` says.",
        "never_glued": "{glue:text}`never_glued`",
    }
    course.write(text="\n\n".join(texts.values()))
    *warnings, last = course.failure().splitlines()
    for name in texts:
        assert any("book/index.md" in line and name in line for line in warnings), name
    assert "warnings are errors" in last


def test_a_build_with_nothing_changed_ends_at_once_and_changed_text_executes_nothing(course, capsys):
    course.write()
    course.build()
    capsys.readouterr()
    course.build()
    assert capsys.readouterr().out == "The book is up to date.\n"
    course.write(text="Other text.")
    page = course.build() / "book" / "index.html"
    assert "Other text." in page.read_text() and course.executions() == 1


def test_a_page_shows_what_its_cells_give_now_and_how_long_they_took(course):
    (course.root / "helper.py").write_text("word = 'before'\n")
    draw = "import helper\nfrom matplotlib import pyplot\npyplot.title(helper.word)\npyplot.show()\nhelper.word"
    course.write(text="{{ times }}", code=draw)
    site = course.build()
    page, before = site / "book" / "index.html", {path.name for path in (site / "_images").iterdir()}
    assert "before" in page.read_text() and BeautifulSoup(page.read_text(), "html.parser").select_one(".times td a")
    (course.root / "helper.py").write_text("word = 'afterwards'\n")
    course.build()
    afterwards = {path.name for path in (site / "_images").iterdir()}
    assert "afterwards" in page.read_text()
    assert len(before) == len(afterwards) == 2, "one for the light theme, one for the dark"
    assert not before & afterwards and all(name in page.read_text() for name in afterwards)


@pytest.mark.parametrize("changed", ["mlcourse/helper.py", "data/table.csv", "requirements.lock", "references.bib"])
def test_a_build_ends_at_once_only_if_no_source_of_the_site_has_changed(course, changed):
    before = book.fingerprint(course.root, book.SITE_INPUTS)
    with (course.root / changed).open("a") as file:
        file.write("% 2\n")
    assert book.fingerprint(course.root, book.SITE_INPUTS) != before


def test_a_port_in_use_is_said_before_anything_is_built(course):
    course.write()
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BookError, match=f"port {port} cannot be used.*make serve PORT="):
            book.serve(port, course.root)
    assert course.executions() == 0


def test_an_error_ends_the_command_with_one_sentence_and_a_status(monkeypatch):
    def fail():
        raise BookError("the reason")

    monkeypatch.setattr(book, "build", fail)
    with pytest.raises(SystemExit) as stop:
        main(["book", "build"])
    assert stop.value.code == "Error: the reason"


ASK = """from mlcourse import quiz
total = 1 + 1
quiz.choice("sum", "{question}", ("two", total == 2, "add"), ("three", total == 3, "no"))"""


def test_formulas_of_text_and_questions_are_set_when_the_site_is_built_and_nothing_runs_on(course, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        course.write(
            text="The slope ($w_1$), 3 mm$^2$ and\n\n$$\n\\sqrt{x}\n$$", code=ASK.format(question="Is it $z^2$?")
        )
        page = BeautifulSoup((course.build() / "book" / "index.html").read_text(), "html.parser")
        running = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True).stdout
    assert {one.get_text(strip=True) for one in page.select("annotation")} == {"w_1", "^2", "\\sqrt{x}", "z^2"}
    bracket, unit = page.select("p .together")
    assert bracket.get_text().startswith("(") and unit.get_text().startswith("mm")
    assert page.select_one(".quiz .katex") and folder not in running
    assert page.select_one(".quiz .together").get_text().endswith("?")


def test_a_page_without_a_place_in_the_contents_is_named_and_a_page_that_was_deleted_leaves_the_site(two_pages):
    later = two_pages.build() / "book" / "later.html"
    assert later.exists()
    (two_pages.root / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    assert "book/later.md: WARNING: document isn't included in any toctree" in two_pages.failure()
    (two_pages.root / "book" / "later.md").unlink()
    two_pages.build()
    assert not later.exists()


@pytest.fixture
def two_pages(course):
    """A course whose second page recalls a question of the first."""
    (course.root / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters:\n- file: book/later\n")
    (course.root / "book" / "later.md").write_text("# Later\n\n```{recall} sum\n```\n")
    course.write(code=ASK.format(question="How much is it?"))
    return course


@pytest.mark.nightly
def test_a_recalled_question_stands_in_the_later_page_and_follows_the_earlier_one(two_pages):
    later = two_pages.build() / "book" / "later.html"
    text = later.read_text()
    assert "How much is it?" in text and 'id="recall-sum"' in text and 'id="quiz-sum"' not in text
    assert 'href="index.html#a-page"' in text
    two_pages.write(code=ASK.format(question="What is the sum?"))
    two_pages.build()
    assert "What is the sum?" in later.read_text() and "How much" not in later.read_text()
    written = later.stat().st_mtime_ns
    two_pages.write(text="Other text.", code=ASK.format(question="What is the sum?"))
    assert "Other text." in (two_pages.build() / "book" / "index.html").read_text()
    assert later.stat().st_mtime_ns == written, "no question has changed"


@pytest.mark.nightly
def test_a_citation_leads_to_its_work_after_another_work_was_added(course):
    work = "@book{%s, author = {%s, Ann}, title = {A title}, publisher = {A publisher}, year = {2001}}\n"
    (course.root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n- file: book/later\n- file: book/works\n"
    )
    (course.root / "references.bib").write_text(work % ("nobel2001", "Nobel"))
    (course.root / "book" / "works.md").write_text("# Works\n\n```{bibliography}\n```\n")
    (course.root / "book" / "later.md").write_text("# Later\n\nSee {cite:p}`nobel2001`.\n")
    course.write()
    course.build()
    (course.root / "references.bib").write_text(work % ("abel2001", "Abel") + work % ("nobel2001", "Nobel"))
    course.write(text="See {cite:p}`abel2001`.")
    site = course.build() / "book"
    for page in ("index", "later"):
        [anchor] = re.findall(r'href="works.html#([^"]+)"', (site / f"{page}.html").read_text())
        [entry] = re.findall(rf'id="{anchor}".*?</div>', (site / "works.html").read_text(), re.DOTALL)
        assert ("Abel" in entry) == (page == "index") and ("Nobel" in entry) == (page == "later")


@pytest.mark.nightly
def test_to_recall_a_question_that_no_page_asks_fails_the_build(two_pages):
    two_pages.build()
    two_pages.write(code=ASK.replace('"sum"', '"total"').format(question="How much?"))
    message = two_pages.failure()
    assert "no page has a quiz that is called sum" in message and "book/later.md" in message


def test_a_key_that_is_no_longer_right_fails_the_build(course):
    course.write(code=ASK.replace("1 + 1", "2 + 2").format(question="How much?"))
    assert "quiz sum: exactly one of at least two options must be right, not 0 of 2" in course.failure()
