"""Write a page for instructors on the results of a class in a lab."""

import io
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import jinja2
import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from nbgrader.api import Gradebook
from traitlets.config import Config

from coursegrader import GradingError, sanitizer
from coursegrader.deadlines import count, moment, points
from coursegrader.files import write_whole
from coursegrader.people import Person
from coursegrader.scores import joined, notebook_cells, read_autograded, read_scores, sections
from coursegrader.similarity import SimilarPairs, similar_pairs
from coursegrader.standing import Standing, classes, labs_handed_in
from coursegrader.submissions import shown
from mlcourse.plotting import STYLE_FILE

MOST_HINTS = 15
MOST_TIMES = 8
MOST_LINES = 60
UNDEFINED = "–"

# Figures are drawn in these colours, which the page replaces by its own, light or dark
_COLOURS = {"#000001": "currentColor", "#000002": "var(--bar)", "#000003": "var(--line)"}
_INK, _BAR, _LINE = _COLOURS


def write_report(
    lab: str,
    root: Path,
    gradebook: Gradebook,
    tell: Callable[[str], None] = lambda sentence: None,
    config: Config | None = None,
    people: Sequence[Person] = (),
) -> Path:
    """Write ``reports/LAB.html``: one page without scripts that needs no other file and no network.

    Parameters
    ----------
    lab : str
        Name of the lab.
    root : pathlib.Path
        The folder of the course, with ``autograded/``, and with ``source/`` and ``labs/`` for titles and given code.
        The page leaves out what is missing there.
    gradebook : nbgrader.api.Gradebook
        The marks.
    tell : callable
        Called with a sentence on every student whose autograded notebook cannot be read. The page leaves them out.
    config : traitlets.config.Config, optional
        nbgrader's configuration, which may set the traits of `SimilarPairs` and `coursegrader.deadlines.LatePenalty`.
    people : sequence of Person
        The roster.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    GradingError
        If the gradebook does not know the lab or nothing was graded.
    """
    title, marks, titles = _marks(lab, root, gradebook)
    (of_class,) = classes([lab], gradebook, root, people, config)
    marks = _of_class(marks, of_class)
    if marks.empty:
        raise GradingError(f"nothing handed in for {lab} is in the gradebook: run `mlcourse grade {lab}` first")
    students = sorted(marks.student.unique())
    found = {student: read_autograded(lab, student, root) for student in students}
    read = {student: autograded for student, autograded in found.items() if autograded}
    with _style():
        content = {
            "points": _points(marks, of_class),
            "exercises": _exercises(marks, titles),
            "tests": _tests(marks, titles),
            "hints": _hints(marks, read),
            "times": _times(read),
            "notices": _notices(read),
            "pairs": _pairs(read, _stub(lab, root), _model(lab, root), titles, SimilarPairs(config=config)),
            **_people(of_class),
        }
    unread = [student for student in students if student not in read]
    for student in unread:
        notebook = f"autograded/{student}/{lab}/{lab}.ipynb"
        tell(f"{shown(student)}: {shown(notebook)} cannot be read; type `mlcourse grade {lab}`.")
    known = {"lab": lab, "title": title, "n_students": len(students), "unread": unread}
    return _write_page(root / "reports" / f"{lab}.html", "report.html.jinja", **known, **content)


def write_term_report(
    root: Path, gradebook: Gradebook, config: Config | None = None, people: Sequence[Person] = ()
) -> Path:
    """Write ``reports/all-labs.html``, a page about all labs for which anything was handed in.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.
    gradebook : nbgrader.api.Gradebook
    config : traitlets.config.Config, optional
        nbgrader's configuration.
    people : sequence of Person
        The roster.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    GradingError
        If nothing was handed in for any lab.
    """
    of_labs = classes(labs_handed_in(gradebook, root), gradebook, root, people, config)
    rows, standings = [], {}
    for one in of_labs:
        title, marks, titles = _marks(one.lab, root, gradebook)
        marks = _of_class(marks, one)
        points = np.array([standing.result.points for standing in one.standings if standing.finished])
        rows.append(
            {
                **_people(one),
                "title": title,
                "short": re.sub(r"^(lab-\d+)-.*", r"\1", one.lab),
                "largest": one.largest,
                "handed_in": sum(not standing.nothing for standing in one.standings),
                "refused": sum(standing.refused is not None for standing in one.standings),
                "waiting": sum(not (standing.nothing or standing.finished) for standing in one.standings),
                "n": len(points),
                "mean": points.mean() if len(points) else None,
                "median": np.median(points) if len(points) else None,
                "exercises": _exercise_rows(marks, titles),
            }
        )
        for standing in one.standings:
            standings.setdefault(standing.student, {})[one.lab] = standing
    largest = sum(one.largest for one in of_labs)
    persons = []
    for student, of_person in standings.items():
        person = next(iter(of_person.values()))
        # Who is not on the roster stands only in the labs that they handed in
        missing = Standing(student, person.name, nothing=True)
        total = sum(one.result.points for one in of_person.values() if one.result)
        share = total / largest if largest else None
        own = [of_person.get(one.lab, missing) for one in of_labs]
        persons.append({"person": person, "standings": own, "total": total, "share": share})
    persons.sort(key=lambda row: row["person"].order)
    absent = [row["person"] for row in persons if all(one.nothing for one in row["standings"])]
    known = {"labs": rows, "people": persons, "absent": absent, "largest": largest}
    groups = any(row["person"].group for row in persons)
    return _write_page(root / "reports" / "all-labs.html", "term.html.jinja", groups=groups, **known)


def item_analysis(points: pd.DataFrame, max_points: pd.Series) -> pd.DataFrame:
    """Return difficulty and discrimination of every test cell.

    The difficulty of a test cell is the share p of the submissions that get all of its points. Its discrimination is
    the corrected point-biserial correlation: with x = 1 for a submission that passes and 0 for the others, and R its
    points in all *other* test cells,

        r = (mean of R where x = 1 - mean of R where x = 0) * sqrt(p * (1 - p)) / sd(R),

    with the population standard deviation, which is Pearson's correlation of x and R. A total that includes the test
    cell correlates with it by construction, hence R: Guilford, "The correlation of an item with a composite of
    the remaining items in a test", Educational and Psychological Measurement 13 (1953), 87-93.

    Parameters
    ----------
    points : DataFrame, shape (n_submissions, n_tests)
        Automatic points.
    max_points : Series, shape (n_tests,)
        Points of each test cell.

    Returns
    -------
    DataFrame
        One row for each test cell, with the columns ``failed`` (number of submissions), ``difficulty`` and
        ``discrimination`` (NaN if all pass, none does, or R is the same for all).
    """
    passed = points >= max_points - 1e-9
    table = pd.DataFrame({"failed": (~passed).sum(), "difficulty": passed.mean()})
    for name in points:
        x, rest = passed[name].to_numpy(float), points.drop(columns=name).sum(axis=1).to_numpy(float)
        spread = len(np.unique(x)) > 1 and np.ptp(rest) > 1e-9
        table.loc[name, "discrimination"] = np.corrcoef(x, rest)[0, 1] if spread else np.nan
    return table


# --- the content of the page ------------------------------------------------------------------------------------------


def _marks(lab, root, gradebook):
    """Return the title of a lab, every mark with its exercise, in the order of the lab, and the exercises' titles."""
    marks = read_scores(lab, gradebook)
    title, headings = sections(lab, root)
    marks["exercise"] = marks.grade_id.str.replace(r"-\d+$", "", regex=True)
    marks["place"] = marks.grade_id.map({grade_id: at for at, grade_id in enumerate(headings)})
    marks = marks.sort_values(["student", "place", "grade_id"])
    titles = {name: headings.get(grade_id, name) for grade_id, name in zip(marks.grade_id, marks.exercise, strict=True)}
    return title, marks, titles


def _of_class(marks, one_class):
    """Return the marks that count: the gradebook keeps those of submissions that were deleted."""
    return marks[marks.student.isin(one_class.results)]


def _stub(lab, root):
    """Return the released code of every cell that a student fills in, by grade_id."""
    return {
        cell["metadata"]["nbgrader"]["grade_id"]: joined(cell["source"])
        for cell in notebook_cells(root / "labs" / lab / f"{lab}.ipynb")
        if cell["cell_type"] == "code" and cell["metadata"].get("nbgrader", {}).get("solution")
    }


def _model(lab, root):
    """Return the model solution of every cell that a student fills in, by grade_id."""
    return {
        cell["metadata"]["nbgrader"]["grade_id"]: joined(cell["source"])
        for cell in notebook_cells(root / "source" / lab / f"{lab}.ipynb")
        if cell["cell_type"] == "code" and cell["metadata"].get("nbgrader", {}).get("solution")
    }


def _automatic(marks):
    """Return the automatic points by student and test cell, and the maximum of each, of the graded submissions."""
    tests = marks[~marks.written]
    points = tests.pivot(index="student", columns="grade_id", values="automatic")[tests.grade_id.unique()].dropna()
    return points, tests.groupby("grade_id").max_score.first()[points.columns]


def _people(of_class):
    """Return the part of the page about persons: all of them, and who handed in late or nothing."""
    lateness = [one.lateness for one in of_class.results.values()]
    return {
        "people": of_class.standings,
        "silent": of_class.silent,
        "groups": any(one.group for one in of_class.standings),
        "due": of_class.due,
        "late": sum(one.days > 0 for one in lateness),
        "untimed": sum(one.handed_in is None for one in lateness),
        "penalised": any(one.penalty for one in lateness),
    }


def _points(marks, of_class):
    """Return the totals on the page: automatic points, and all points of the students who are completely marked."""
    automatic, max_automatic = _automatic(marks)
    waiting = marks[marks.written & marks.waiting]
    marked = marks[~marks.student.isin(marks[marks.waiting].student)]
    totals = []
    if len(max_automatic):
        totals.append(("Automatic points", automatic.sum(axis=1), max_automatic.sum()))
    if marks.written.any():
        largest = marks.drop_duplicates("grade_id").max_score.sum()
        totals.append(("All points, with the written answers", marked.groupby("student").score.sum(), largest))
    if any(one.penalty for one in of_class.results.values()):
        counting = pd.Series([one.result.points for one in of_class.standings if one.finished], dtype=float)
        totals.append(("Points that count, after late penalties", counting, of_class.largest))
    return {
        "ungraded": marks[~marks.written & marks.automatic.isna()].student.nunique(),
        "waiting": len(waiting),
        "waiting_students": waiting.student.nunique(),
        "written": marks.written.any(),
        "totals": [_total(name, values, largest) for name, values, largest in totals],
    }


def _total(name, values, largest):
    values = values.to_numpy(float)
    figure = None
    if len(values) and largest > 0:
        end = max(largest, values.max())
        width = max(1, int(np.ceil(end / 40)))
        edges = np.arange(-width / 2, end + width, width)
        figure = _histogram(values, edges, name, f"points of {largest:g}", "points")
    return {
        "name": name,
        "max": largest,
        "n": len(values),
        "mean": values.mean() if len(values) else None,
        "median": np.median(values) if len(values) else None,
        "sd": values.std(ddof=1) if len(values) > 1 else None,
        "figure": figure,
    }


def _exercises(marks, titles):
    rows = _exercise_rows(marks, titles)
    return {"rows": rows, "figure": _bars([row for row in rows if row["share"] is not None])}


def _exercise_rows(marks, titles):
    """Return the points of each exercise over the students of whom every part of it is marked."""
    graded = marks[~marks.waiting]
    rows = []
    for name in marks.exercise.unique():
        cells = marks[marks.exercise == name]
        of_students = (
            graded[graded.exercise == name]
            .groupby("student")
            .agg(score=("score", "sum"), max_score=("max_score", "sum"), n=("score", "size"))
        )
        complete = of_students[of_students.n == cells.grade_id.nunique()]
        share = (complete.score / complete.max_score).mean() if complete.max_score.gt(0).any() else None
        points = cells.drop_duplicates("grade_id").max_score.sum()
        row = {"name": name, "title": titles[name], "points": points, "share": share, "n": len(complete)}
        rows.append(row | {"mean": complete.score.mean(), "median": complete.score.median()})
    return rows


def _tests(marks, titles):
    points, max_points = _automatic(marks)
    table = item_analysis(points, max_points).assign(points=max_points)
    exercises = marks.drop_duplicates("grade_id").set_index("grade_id").exercise
    groups = defaultdict(list)
    for row in table.reset_index(names="grade_id").to_dict("records"):
        groups[titles[exercises[row["grade_id"]]]].append(row)
    return {"groups": groups, "n": len(points)}


def _hints(marks, read):
    """Return the most frequent hints of failed test cells: message, number of students, names of the test cells."""
    tests = marks[~marks.written]
    failed = set(map(tuple, tests.loc[tests.automatic < tests.max_score, ["student", "grade_id"]].to_numpy()))
    students, cells = defaultdict(set), defaultdict(set)
    for student, autograded in read.items():
        for grade_id, sentence in autograded.hints.items():
            if (student, grade_id) in failed:
                students[sentence].add(student)
                cells[sentence].add(grade_id)
    most = sorted(students, key=lambda sentence: (-len(students[sentence]), sentence))[:MOST_HINTS]
    rows = [{"sentence": one, "n": len(students[one]), "cells": sorted(cells[one])} for one in most]
    return {"rows": rows, "n": len(students)}


def _times(read):
    seconds = {student: one.seconds for student, one in read.items() if one.seconds is not None}
    if not seconds:
        return None
    values = np.array(list(seconds.values()))
    edges = np.geomspace(max(values.min(), 0.01), max(values.max(), 0.1) * 1.001, 25)
    slowest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:MOST_TIMES]
    return {
        "n": len(values),
        "median": np.median(values),
        "total": values.sum(),
        "slowest": slowest,
        "figure": _histogram(values.clip(min=0.01), edges, "Time for each submission", "seconds", "seconds", log=True),
    }


def _notices(read):
    rows = []
    for student, one in read.items():
        for what, reason in (("refused", one.refused), ("stopped", one.stopped)):
            if reason:
                rows.append((what, student, [reason]))
        if one.repairs:
            rows.append(("repaired", student, one.repairs))
    order = ("refused", "stopped", "repaired")
    rows.sort(key=lambda row: order.index(row[0]))
    return {"rows": rows, "counts": {what: sum(row[0] == what for row in rows) for what in order}}


def _pairs(read, stub, model, titles, chosen):
    code = {student: one.code for student, one in read.items()}
    pairs = similar_pairs(code, stub, chosen)
    rows = []
    for pair in pairs[: chosen.most]:
        exercises = []
        for one in pair.exercises:
            others = stub.get(one.grade_id, ""), model.get(one.grade_id, "")
            sides = [(student, _shown(_own_lines(code[student][one.grade_id], *others))) for student in pair.students]
            title = titles.get(one.grade_id, one.grade_id)
            exercises.append({"title": title, "alike": one.alike, "others": one.others, "sides": sides})
        rows.append({"students": pair.students, "exercises": exercises})
    return {"rows": rows, "n": len(pairs), "compared": len(code)}


def _own_lines(source, stub, model):
    """Return a student's code as it was typed, in parts of own lines, each with a remark on what is left out after it.

    Given lines are left out without a remark, but for the heads of functions.
    """
    given = {line for line in stub.splitlines() if not line.startswith(("def ", "class "))}
    solution = {_packed(line) for line in model.splitlines()} - {_packed(line) for line in stub.splitlines()} - {""}
    source = sanitizer.legible(source).translate(sanitizer.NAMED)
    own = [line[:200] for line in source.splitlines() if line not in given]
    parts, more = [], len(own) - MOST_LINES
    for of_model, group in itertools.groupby(own[:MOST_LINES], lambda line: _packed(line) in solution):
        lines = list(group)
        remark = f"… {count(len(lines), 'line')} as in the model solution"
        parts.append(("", remark) if of_model else ("\n".join(lines), ""))
    return parts + [("", f"… and {more} more lines")] * (more > 0)


def _shown(parts):
    """Return the HTML of parts of code with their remarks."""
    code, remark = Markup("<code>{}</code>"), Markup("<em>{}</em>")
    shown = "".join((code.format(one) if one else "") + (remark.format(after) if after else "") for one, after in parts)
    return Markup(sanitizer.in_blocks(shown))


def _packed(line):
    """Return a line of code without its blanks and its comment."""
    return "".join(re.sub(r"(^|\s)#.*", "", line).split())


# --- figures and templates --------------------------------------------------------------------------------------------


def _write_page(path, template, **content):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": _number, "percent": _percent, "points": points, "moment": moment, "time": _time}
    write_whole(path, environment.get_template(template).render(**content), errors="replace")
    return path


def _number(value, digits=1):
    return UNDEFINED if value is None or np.isnan(value) else f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _time(value):
    return f"{value:%Y-%m-%d %H:%M %Z}"


def _percent(value):
    return UNDEFINED if value is None or np.isnan(value) else f"{100 * value:.0f} %"


def _histogram(values, edges, name, label, unit, log=False):
    counts, _ = np.histogram(values, edges)
    median, peak = np.median(values), int(np.argmax(counts))
    figure = Figure(figsize=(4.6, 2.5), layout="constrained")
    axes = figure.subplots()
    axes.bar(edges[:-1], counts, np.diff(edges) * 0.9, align="edge", color=_BAR)
    axes.axvline(median, color=_INK, linestyle="--", linewidth=1.2)
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    left = median > edges[15 * len(edges) // 25]
    axes.annotate(
        f"median {median:.3g}",
        (median, 1.02),
        xycoords=("data", "axes fraction"),
        ha="right" if left else "left",
        va="bottom",
        color=_INK,
    )
    axes.set(xlabel=label, ylabel="submissions", xlim=(edges[0], edges[-1]))
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False, axis="x")
    says = (
        f"{name}: {len(values)} submissions from {values.min():.3g} to {values.max():.3g} {unit}, half of them at or "
        f"below {median:.3g}; the highest bar, {counts[peak]}, is at {(edges[peak] + edges[peak + 1]) / 2:.3g}"
    )
    return _svg(figure, says)


def _bars(rows):
    """Draw the mean share of the points of every exercise, each title above its bar."""
    if not rows:
        return None
    figure = Figure(figsize=(4.6, 0.5 + 0.48 * len(rows)), layout="constrained")
    axes = figure.subplots()
    at, shares = np.arange(len(rows)), [100 * row["share"] for row in rows]
    axes.barh(at, shares, 0.42, color=_BAR)
    for y, row, share in zip(at, rows, shares, strict=True):
        title = re.sub(r"^Exercise ", "", row["title"])
        axes.text(0, y - 0.26, title if len(title) < 56 else f"{title[:54]} …", va="bottom", color=_INK)
        axes.text(share + 1, y, f"{share:.0f}", va="center", color=_INK)
    axes.set(xlabel="mean share of the points, in %", xlim=(0, 110), ylim=(len(rows) - 0.6, -0.9))
    axes.set(yticks=[], xticks=range(0, 101, 25))
    axes.spines["left"].set_visible(False)
    says = ", ".join(f"{row['title']}: {share:.0f} %" for row, share in zip(rows, shares, strict=True))
    return _svg(figure, f"Mean share of the points in each exercise: {says}")


def _style():
    """Return a context for figures in the course's style, with colours that the page replaces."""
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    own = {"svg.fonttype": "none", "text.parse_math": False, "grid.color": _LINE, "font.size": 10}
    return matplotlib.rc_context(fname=STYLE_FILE, rc=own | dict.fromkeys(inks, _INK) | dict.fromkeys(clear, "none"))


def _svg(figure, says):
    """Return a figure as SVG for the page, with `says` as its text alternative."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": says}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    _, _, svg = svg.partition("<svg ")
    box = re.search(r'viewBox="[^"]*"', svg)[0]
    svg = svg.partition(">")[2]
    referenced = set(re.findall(r"#(\w+)", svg))
    svg = re.sub(r' id="(\w+)"', lambda at: at[0] if at[1] in referenced else "", svg)
    for drawn, colour in _COLOURS.items():
        svg = svg.replace(drawn, colour)
    return Markup('<svg role="img" aria-label="{}" {}>').format(says, Markup(box)) + Markup(svg)
