"""Differences between two builds of the site: numbers, outputs and figures, and nothing else."""

import subprocess

import matplotlib.image
import numpy as np
import pytest

from coursebook import BookError, build, site_diff
from mlcourse.cli import main
from tiny import TinyCourse

FIGURE = "import matplotlib.pyplot as plt\nplt.plot([0, {height}]);"


class Sites:
    """Two built sites of one page, `old` and `new`."""

    def __init__(self, root):
        self.old, self.new = root / "old", root / "new"

    def page(self, site, content, name="page"):
        path = site / "book" / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<nav>1 of 2</nav><article>{content}</article>")

    def figure(self, site, name="a.png", **pixels):
        self.page(site, f'<figure id="fig-a"><img src="{name}"></figure>')
        image = np.ones(pixels.pop("shape", (40, 60, 3)))
        image[:, : pixels.get("columns", 0)] -= pixels.get("darker", 1)
        matplotlib.image.imsave(site / "book" / name, image)

    def differences(self):
        return site_diff.differences(self.old, self.new)


@pytest.fixture
def sites(tmp_path):
    return Sites(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<p>The error is 0.16.</p>", "<p>The <b>mean</b> error was 0.16.</p>"),
        ("<p>Words.</p>", "<p>Other words.</p><p>And more.</p>"),
        ("<p>See <a class='reference internal'>Fig. 3</a>.</p>", "<p><a class='reference internal'>Fig. 4</a></p>"),
        ("<div class='cell_input'>fit(3)</div>", "<div class='cell_input'>fit(degree=3, n=4)</div>"),
        ("<div class='times'><p>7.5 s</p></div>", "<div class='times'><p>8.1 s</p></div>"),
        ("<div class='cell_output'><pre>a  1\n</pre></div>", "<div class='cell_output'><pre>a 1</pre></div>"),
    ],
)
def test_wording_code_numbering_and_times_are_no_difference(sites, old, new):
    sites.page(sites.old, old)
    sites.page(sites.new, new)
    assert sites.differences() == {}


def test_the_dark_picture_of_a_figure_is_not_compared(sites):
    for site in (sites.old, sites.new):
        sites.figure(site)
    sites.page(sites.new, '<figure id="fig-a"><img src="a.png"><img class="dark-figure" src="dark.png"></figure>')
    assert sites.differences() == {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("<p>The error is 0.16.</p>", "<p>It is 0.17.</p>", ["- The error is 0.16.", "+ It is 0.17."]),
        ("<li>1</li><li>-2</li>", "<li>1</li><li>2</li>", ["- -2", "+ 2"]),
        ("<pre>slow</pre>", "<pre>fast</pre>", ["- slow", "+ fast"]),
        ("<pre>a\nb\nc</pre>", "<pre>a\nc</pre>", ["- b"]),
        ('<script type="application/json">{"k": 3}</script>', "", ['- {"k": 3}']),
    ],
)
def test_a_changed_number_or_line_of_an_output_is_shown_with_what_it_was(sites, old, new, expected):
    for site, content in ((sites.old, old), (sites.new, new)):
        sites.page(site, f"<div class='cell_output'>{content}</div>" if "<pre>" in content else content)
    assert sites.differences() == {"book/page.html": expected}


def test_a_change_in_the_middle_of_a_long_paragraph_is_in_sight(sites):
    for site, number in ((sites.old, 41), (sites.new, 42)):
        sites.page(site, f"<p>{'word ' * 100}{number}{' word' * 100}</p>")
    (old, new) = sites.differences()["book/page.html"]
    assert " 41 " in old and " 42 " in new and len(new) < 130


def test_pages_and_figures_that_came_or_went_are_named(sites):
    sites.page(sites.old, "<p>1</p>", "first")
    sites.figure(sites.new)
    assert sites.differences() == {"book/first.html": ["the page is gone"], "book/page.html": ["the page is new"]}
    sites.page(sites.old, "")
    assert sites.differences()["book/page.html"] == ["figure fig-a is new"]


def test_figures_are_compared_by_what_can_be_seen(sites):
    sites.figure(sites.old)
    sites.figure(sites.new, name="another-name.png", columns=60, darker=0.05)
    assert sites.differences() == {}
    sites.figure(sites.new, columns=15)
    assert sites.differences() == {"book/page.html": ["figure fig-a: 25.00% of the pixels differ"]}
    sites.figure(sites.new, shape=(40, 50, 3))
    assert sites.differences() == {"book/page.html": ["figure fig-a: 60 x 40 pixels became 50 x 40"]}


def test_a_long_report_is_cut_and_an_empty_one_says_so():
    lines = site_diff.report({"book/page.html": [f"- {i}" for i in range(50)]}, "HEAD").splitlines()
    assert lines[0] == "book/page.html" and "and 30 more" in lines[-2] and "since HEAD in 1 page" in lines[-1]
    assert site_diff.report({}, "HEAD") == "No number, output or figure has changed since HEAD."


@pytest.fixture
def course(tmp_path):
    """A course of one page with a number and a figure, committed."""
    course = TinyCourse(tmp_path)
    (tmp_path / ".gitignore").write_text("_build\n")
    course.write(code=f"print('MSE', 0.16)\n{FIGURE.format(height=1)}")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=First"]):
        author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *command], cwd=tmp_path, check=True)
    return course


@pytest.mark.nightly
def test_a_changed_number_and_a_changed_figure_of_the_working_tree_are_found_and_nothing_before(course, monkeypatch):
    monkeypatch.setattr(build, "ROOT", course.root)
    with pytest.raises(SystemExit) as same:
        main(["book", "diff", "HEAD"])
    course.write(code=f"print('MSE', 0.17)\n{FIGURE.format(height=2)}\nplt.title('New');")
    found = site_diff.diff_site("HEAD", course.root)["book/index.html"]
    assert same.value.code == 0
    assert found[:2] == ["- MSE 0.16", "+ MSE 0.17"] and "image 1: " in found[2] and len(found) == 3


@pytest.mark.parametrize("name", ["no-such-thing", "", "--all"])
def test_a_revision_that_does_not_exist_is_one_clear_error(course, name):
    with pytest.raises(BookError, match=f"there is no revision {name!r}: name a commit, branch or tag"):
        site_diff.diff_site(name, course.root)
