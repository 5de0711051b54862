"""``mlcourse book sweep`` finds what holds for the draw of a page and for few others, and reasons that are none."""

import contextlib
import io
import re
import types

import pytest

from coursebook import BookError, sweep
from coursebook.execution import execute_what_changed
from mlcourse.cli import main

HEAD = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3, language: python}
---
(sec-draws)=
# Draws

```{code-cell} ipython3
import numpy as np
from mlcourse.claims import general, reason

def draw(seed, size):
    return np.random.default_rng(seed).standard_normal(size)
```

```{code-cell} ipython3
:tags: [claim]
assert draw(11, 5).mean() > 0.3
```

"""
# The first holds for the seed of the page, and for one of four others; the effect of the second stays without its cause
FALSE = """```{code-cell} ipython3
:tags: [claim, general, reason]
@general(at_least=95)
def above(seed):
    \"\"\"The mean of five numbers is *always* above 0.3.\"\"\"
    return bool(draw(seed, 5).mean() > 0.3)

@reason(at_least=95)
def since_the_seed(seed):
    \"\"\"The mean of twenty numbers is near 0 since the seed is what it is.\"\"\"
    return bool(abs(draw(seed, 20).mean()) < 0.3), bool(abs(draw(seed + 1000, 20).mean()) < 0.3)
```

"""
TRUE = """(sec-many)=
## Many

```{code-cell} ipython3
:tags: [claim, general]
@general(on_average=True)
def more_numbers(seed):
    \"\"\"With more numbers the mean is closer to 0.\"\"\"
    return abs(draw(seed, 5).mean()) - abs(draw(seed, 500).mean())
```

```{code-cell} ipython3
open("runs", "a").write("x")
```
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course with a page that has two false claims and a true one: built, then swept."""
    root = tmp_path_factory.mktemp("course")
    (root / "book").mkdir()
    (root / "_config.yml").write_text("execute: {timeout: 60}")
    (root / "requirements.lock").write_text("numpy==2")
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters:\n- file: book/draws\n")
    (root / "book" / "index.md").write_text("# Not a notebook")
    (root / "book" / "draws.md").write_text(HEAD + FALSE + TRUE)
    (page,) = execute_what_changed(root, root / "_build", None)
    assert not page.error and (root / "book" / "runs").exists()
    unswept, said = listed(root), io.StringIO()
    with pytest.raises(BookError) as error, contextlib.redirect_stdout(said):
        sweep.sweep(100, ["draws"], root)
    return types.SimpleNamespace(root=root, unswept=unswept, said=said.getvalue(), error=str(error.value))


def listed(root):
    """Return the claims as the page for maintainers lists them."""
    return sweep.page_of_claims(sweep.read_last_claims(root / "_build"), root).replace("\N{NO-BREAK SPACE}", " ")


def test_false_rules_and_false_reasons_fall_although_the_page_runs(course):
    first, rule, reason = course.error.splitlines()
    assert first == "2 of 3 claims fall short:"
    assert rule.startswith("book/draws, above: held in 22 of 100 draws, to hold in at least 95 of 100 draws: The mean")
    assert reason.startswith("book/draws, since_the_seed: held in 19 of 100 draws, to hold in at least 95")


def test_the_table_says_how_often_each_claim_held_where_it_fell_and_how_long_it_took(course):
    above = r"^above +book/draws +22 of 100 +\d+\.\d  1001, 1002, 1003, 1004, 1005 and 73 more$"
    assert re.search(above, course.said, re.M)
    assert re.search(r"^more_numbers +book/draws +\d\d of 100 +\d+\.\d", course.said, re.M)


def test_only_cells_up_to_the_last_claim_run_again(course):
    assert (course.root / "book" / "runs").read_text() == "x"


def test_what_was_swept_is_not_swept_again_and_falls_short_all_the_same(course, capsys):
    with pytest.raises(BookError, match="2 of 3 claims fall short"):
        sweep.sweep(100, [], course.root)
    assert "Pages that had to be executed: 0 of 1." in capsys.readouterr().out


def test_the_page_for_maintainers_lists_the_last_sweep_and_what_was_not_swept(course):
    rule = (
        r"^\| The mean of five numbers is \\\*always\\\* above 0\.3\. \(\[\]\(#sec-draws\)\) \| general, in at least 95"
    )
    assert re.search(rf"{rule} of 100 draws \| 1 of 3 \| 1001, 1002 \|$", course.unswept, re.M)
    assert "3 of these claims were not swept" in course.unswept and "not swept" not in listed(course.root)
    assert re.search(rf"{rule} of 100 draws \| 22 of 100 \|", listed(course.root), re.M)
    assert re.search(r"\(#sec-many\)\) \| general, on average over draws \| \d\d of 100 \|", listed(course.root))
    built = course.root / "_build" / "notebooks" / "draws.ipynb"
    built.write_text(built.read_text().replace("more numbers", "500 numbers"))  # as after a change of the claim
    assert re.search(r"With 500 numbers .* \| [23] of 3 \|", listed(course.root))


def test_what_cannot_be_swept_is_said(course):
    with pytest.raises(BookError, match="book/nothing has no claim .*these pages have: book/draws"):
        sweep.sweep(3, ["nothing.md"], course.root)
    with pytest.raises(SystemExit, match="Error: --seeds 0: a claim needs at least one draw"):
        main(["book", "sweep", "--seeds", "0"])
