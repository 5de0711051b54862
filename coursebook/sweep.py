"""Run the general claims and the reasons of the pages for many seeds: ``mlcourse book sweep`` (see `mlcourse.claims`).

A page runs as for the site, but only up to its last such claim, each claim in a cell of its own. So a claim that falls
short does not hide the others. Results are cached like those of the site; the page *Claims* lists the last ones.
"""

import ast
import copy
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nbformat import NotebookNode
from nbformat import read as read_notebook
from nbformat.v4 import new_code_cell

from coursebook import BookError, execution
from coursebook.build import ROOT, failures
from mlcourse.claims import RESULT

KINDS = {"general", "reason"}
SEEDS = 'import os\n\nos.environ["MLCOURSE_CLAIM_SEEDS"] = "{}"'
SHOWN_SEEDS = 5
LABEL = re.compile(r"^\(([\w-]+)\)=\n#", re.M)


@dataclass
class Claim:
    """A claim of a page, and what became of it when the page last ran.

    ``fell`` are the seeds for which it did not hold. ``seconds`` is the time of all draws, or None if the page ran for
    the site. The rest is what `mlcourse.claims` shows.
    """

    page: str
    name: str
    kind: str
    sentence: str
    required: str
    draws: int
    fell: list[int]
    refuted: bool
    seconds: float | None = None

    @property
    def held(self) -> str:
        """In how many draws it held."""
        return f"{self.draws - len(self.fell)} of {self.draws}"

    @property
    def seeds(self) -> str:
        """The first seeds for which it fell."""
        more = len(self.fell) - SHOWN_SEEDS
        return ", ".join(map(str, self.fell[:SHOWN_SEEDS])) + (f" and {more} more" if more > 0 else "")


def sweep(seeds: int = 100, names: Iterable[str] = (), root: Path = ROOT) -> None:
    """Run the claims of pages for many seeds, and print how often each held.

    Parameters
    ----------
    seeds : int
        The number of seeds.
    names : iterable of str
        The pages, such as ``model-selection/index``. The default is all pages with such claims.
    root : pathlib.Path
        The repository of the course.

    Raises
    ------
    BookError
        If a claim falls short, a page cannot be executed, or one of `names` has no such claims.
    """
    if seeds < 1:
        raise BookError(f"--seeds {seeds}: a claim needs at least one draw")
    output = folder_of(root / "_build")
    output.mkdir(parents=True, exist_ok=True)
    pages = [page for page in execution.chapters(root) if _positions(page.notebook)]
    chosen = _choose(names, [page.name for page in pages])
    for page in pages:
        page.notebook = _with_a_cell_per_claim(page.notebook, seeds)
    print(f"Running the claims of {', '.join(names) or 'all pages'} for {seeds} seeds ...", flush=True)
    started = time.perf_counter()
    with (output / "log").open("w", encoding="utf-8") as log:
        runs = execution.execute_what_changed(
            root,
            output,
            log,
            pages,
            chosen,
            _say,
            timeout=seeds * execution.settings(root)["execute"]["timeout"],
            allow_error_names=["ClaimError"],
            record_timing=True,
            on_cell_executed=_note_seconds,
        )
    claims = [claim for name in chosen for claim in read_claims(name, output)]
    print(table(claims))
    print(
        f"Done in {time.perf_counter() - started:.0f} s. Pages that had to be executed: {len(runs)} of {len(chosen)}."
    )
    if failed := [run for run in runs if run.error]:
        raise BookError(f"{failures(failed)}\na page cannot be executed, see above")
    if short := [claim for claim in claims if claim.refuted]:
        lines = [
            f"{one.page}, {one.name}: held in {one.held} draws, to hold {one.required}: {one.sentence}" for one in short
        ]
        raise BookError("\n".join([f"{len(short)} of {len(claims)} claims fall short:", *lines]))


def folder_of(output: Path) -> Path:
    """Return the folder of the results in a build folder."""
    return output / "sweep"


def read_claims(page: str, output: Path) -> list[Claim]:
    """Return the general claims and the reasons of a page, with the results of its last execution.

    Parameters
    ----------
    page : str
        The name of the page, such as ``book/model-selection/index``.
    output : pathlib.Path
        The build folder: that of the site, or of the sweep.
    """
    path = execution.notebook_of(page, output)
    return _claims(page, read_notebook(path, as_version=4)) if path.exists() else []


def read_last_claims(output: Path) -> list[Claim]:
    """Return the claims of the site in the build folder `output`, as the last sweep left those that it had."""
    claims = [claim for page in execution.read_runs(output) for claim in read_claims(page, output)]
    pages = {claim.page for claim in claims}
    last = {_what_it_says(claim): claim for page in pages for claim in read_claims(page, folder_of(output))}
    return [last.get(_what_it_says(claim), claim) for claim in claims]


def table(claims: list[Claim]) -> str:
    """Return how often claims held as lines of text."""
    rows = [("claim", "page", "held", "seconds", "fell for the seeds")]
    rows += [(one.name, one.page, one.held, f"{one.seconds:.1f}", one.seeds) for one in claims]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{name:{wide[0]}}  {page:{wide[1]}}  {held:>{wide[2]}}  {seconds:>7}  {seeds}".rstrip()
        for name, page, held, seconds, seeds in rows
    )


def page_of_claims(claims: list[Claim], root: Path) -> str:
    """Return the claims as a Markdown table, with links to their sections.

    Parameters
    ----------
    claims : list of Claim
        The claims that `read_last_claims` returns.
    root : pathlib.Path
        The repository of the course.
    """
    rows = ["| claim | must hold | held | fell for the seeds |", "|---|---|---:|---|"]
    for one in claims:
        claim = f"{_plain(one.sentence)} ({_place(one, root)})"
        held = one.held.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append(f"| {claim} | {one.kind}, {one.required} | {held} | {one.seeds or 'none'} |")
    few = sum(one.seconds is None for one in claims)
    told = (
        f"{few} of these claims were not swept as they are now, so the table has the draws of their page."
        if few
        else ""
    )
    return "\n".join([*rows, "", told])


def _what_it_says(claim):
    return claim.page, claim.name, claim.kind, claim.sentence, claim.required


def _place(claim, root):
    """Return a link to the section of a claim."""
    text = (root / f"{claim.page}.md").read_text(encoding="utf-8")
    labels = LABEL.findall(text.partition(f"def {claim.name}(")[0])
    return f"[](#{labels[-1]})" if labels else f"[](/{claim.page}.md)"


def _plain(text):
    """Return a text without the meaning of its characters in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|$#])", r"\\\1", text)


def _choose(names, pages):
    """Return the pages that were asked for by names, or else all of them."""
    wanted = [f"book/{name.removeprefix('book/').removesuffix('.md')}" for name in names]
    for name in wanted:
        if name not in pages:
            raise BookError(f"{name} has no claim that runs for many seeds; these pages have: {', '.join(pages)}")
    return wanted or pages


def _say(run):
    claims = _claims(run.name, run.notebook)
    short = sum(claim.refuted for claim in claims)
    print(f"{run.name}: {len(claims)} claims, {short or 'none'} fell short ({run.seconds:.0f} s)", flush=True)


def _claims(page, notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [Claim(page, **output.metadata[RESULT]) for output in outputs if RESULT in output.get("metadata", {})]


def _note_seconds(cell, **_):
    """Move the time of a cell to its claim, since the cache identifies a cell by its metadata too."""
    times = cell.metadata.pop("execution")
    busy, idle = (datetime.fromisoformat(times[f"iopub.status.{name}"]) for name in ("busy", "idle"))
    for output in cell.outputs:
        if RESULT in output.get("metadata", {}):
            output.metadata[RESULT]["seconds"] = (idle - busy).total_seconds()


def _positions(notebook):
    """Return the positions of the cells with claims that run for many seeds."""
    return [i for i, cell in enumerate(notebook.cells) if KINDS & {*cell.metadata.get("tags", ())}]


def _with_a_cell_per_claim(notebook: NotebookNode, seeds: int) -> NotebookNode:
    """Return a page up to its last claim, for a number of seeds."""
    swept, positions = copy.deepcopy(notebook), _positions(notebook)
    swept.cells = [new_code_cell(SEEDS.format(seeds))]
    for i, cell in enumerate(notebook.cells[: positions[-1] + 1]):
        swept.cells += map(new_code_cell, _parts(cell.source)) if i in positions else [cell]
    return swept


def _parts(code):
    """Split the code of a cell before each claim."""
    lines = code.splitlines()
    starts = [
        statement.decorator_list[0].lineno - 1
        for statement in ast.parse(code).body
        if isinstance(statement, ast.FunctionDef) and statement.decorator_list
    ]
    return ["\n".join(lines[start:end]) for start, end in zip([0, *starts], [*starts, len(lines)], strict=True)]
