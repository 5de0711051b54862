"""Fill the course map from its sources: a Sphinx extension, named in ``_config.yml``.

The chapters' opening cards, the headings of their exercises and the labs define the objectives, the sections that teach
them and the exercises that check them. In a page, ``{{ chapters }}`` becomes a table and ``{{ objectives }}`` becomes
lists with links. The tests read the same sources through `read_chapters` and `read_labs`.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from mlcourse.student import StudentError
from mlcourse.student.notebooks import grader, read

ROOT = Path(__file__).resolve().parents[1]
OBJECTIVE = r"[A-Z]{2,3}-\d"


@dataclass
class Objective:
    """What a reader can do after a chapter, with the labels of the sections that teach it and its exercises."""

    name: str
    text: str
    sections: list[str]
    exercises: list[str] = field(default_factory=list)


@dataclass
class Chapter:
    """A chapter: its title and the label, the minutes that it takes to read, and its objectives in order."""

    title: str
    label: str
    minutes: int
    objectives: list[Objective]
    labs: list[str]


@dataclass
class LabExercise:
    """An exercise of a lab: its title, the objectives that it names, and the points of each graded cell."""

    title: str
    objectives: list[str]
    cells: dict[str, int]


@dataclass
class Lab:
    """A lab: its title without the number, the minutes that it takes to solve, and its graded exercises in order."""

    number: int
    title: str
    minutes: int
    exercises: list[LabExercise]


def read_chapters(root: Path = ROOT) -> list[Chapter]:
    """Return the chapters in the order of the contents.

    Raises
    ------
    ValueError
        If a chapter's opening card lacks its reading time or has no objectives.
    """
    parts = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    files = [page["file"] for part in parts if part.get("numbered") for page in part["chapters"]]
    return [_read_chapter(root / f"{name}.md") for name in files]


def read_labs(root: Path = ROOT) -> list[Lab]:
    """Return the labs in the order of their numbers.

    The source is the students' notebooks, which have the points of each graded cell.

    Raises
    ------
    ValueError
        If a notebook cannot be read, lacks its title or its minutes, or a graded cell is in no section.
    """
    return [_read_lab(path) for path in sorted(root.glob("labs/*/lab-*.ipynb"))]


def _read_chapter(path):
    text = path.read_text(encoding="utf-8")
    label = re.search(r"^\(([\w-]+)\)=\n# (.+)", text, re.M)
    card = re.search(r"^:class: objectives\n(.*?)^:::$", text, re.M | re.S)
    minutes = card and re.search(r"\*\*Reading time:\*\* about (\d+) minutes", card[1])
    bullets = re.findall(rf"^- \*\*({OBJECTIVE})\*\* (.*?)(?=^- |^$)", card[1], re.M | re.S) if card else []
    if not (label and minutes and bullets):
        raise ValueError(f"{path.name}: a chapter opens with a labelled title and a card of objectives and minutes")
    objectives = []
    for name, bullet in bullets:
        statement, _, taught = " ".join(bullet.split()).partition(" Taught in ")
        objectives.append(Objective(name, statement, re.findall(r"\]\(#([\w-]+)\)", taught)))
    for exercise, head in re.findall(r"\{exercise-start\}[^\n]*\n:label: (\S+)\n:::\n+\*(.*?)\*", text, re.S):
        for objective in objectives:
            if objective.name in re.findall(OBJECTIVE, head):
                objective.exercises.append(exercise)
    return Chapter(label[2], label[1], int(minutes[1]), objectives, re.findall(r"^\((lab-\d\d)\)=$", text, re.M))


def _read_lab(path):
    try:
        cells = read(path)["cells"]
    except StudentError as error:
        raise ValueError(str(error)) from None
    text = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    title = re.search(r"^# Lab (\d+) · (.+)$", text, re.M)
    minutes = re.search(r"^\| \*\*Time\*\* \| about (\d+) minutes", text, re.M)
    if not (title and minutes):
        raise ValueError(f"{path.name}: a lab opens with '# Lab N · title' and a table with 'about N minutes'")
    exercises = []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            for heading, head in re.findall(r"^## (.+)\n+((?:.+\n?)*)", cell["source"], re.M):
                exercises.append(LabExercise(heading, re.findall(OBJECTIVE, head), {}))
        given = grader(cell)
        if given.get("grade"):
            if not exercises:
                raise ValueError(f"{path.name}: {given['grade_id']} is graded, but stands below no '## Exercise'")
            exercises[-1].cells[given["grade_id"]] = given["points"]
    return Lab(int(title[1]), title[2], int(minutes[1]), [one for one in exercises if one.cells])


def table_of_chapters(chapters: list[Chapter], labs: list[Lab]) -> str:
    """Return the path through the course as Markdown: chapters, labs, and the hours of each."""
    by_label = {f"lab-{lab.number:02}": lab for lab in labs}
    rows = ["| chapter | to read | labs | to solve |", "|---|---|---|---|"]
    reading = solving = 0
    for chapter in chapters:
        own = [by_label[label] for label in chapter.labs]
        links = ", ".join(f"[{lab.number} · {lab.title}](#lab-{lab.number:02})" for lab in own)
        minutes = sum(lab.minutes for lab in own)
        reading, solving = reading + chapter.minutes, solving + minutes
        rows.append(f"| [](#{chapter.label}) | {_hours(chapter.minutes)} | {links} | {_hours(minutes)} |")
    rows.append(f"| **all** | **{_hours(reading)}** | | **{_hours(solving)}** |")
    return "\n".join(rows)


def _hours(minutes):
    """Return a time in hours, rounded to half an hour."""
    halves = (minutes + 15) // 30
    return f"{halves // 2 or ''}{'½' if halves % 2 else ''} h"


def list_of_objectives(chapters: list[Chapter], labs: list[Lab]) -> str:
    """Return every objective as Markdown: where it is taught, and which exercises and graded cells check it."""
    lines = []
    for chapter in chapters:
        # A reference would be an empty line in the page's table of contents
        lines += [f"### {chapter.title}", ""]
        for objective in chapter.objectives:
            taught = ", ".join(f"[](#{section})" for section in objective.sections)
            practised = ", ".join(f"{{numref}}`{exercise}`" for exercise in objective.exercises)
            checked = f" *Practised in* {practised}." if practised else ""
            lines += [f"**{objective.name}** {objective.text}", f": *Taught in* {taught}.{checked}", ""]
            for lab, exercise in ((one, exercise) for one in labs for exercise in one.exercises):
                if objective.name in exercise.objectives:
                    title = f"{exercise.title[0].lower()}{exercise.title[1:]} ({_points(sum(exercise.cells.values()))})"
                    cells = ", ".join(f"`{name}` ({points})" for name, points in exercise.cells.items())
                    lines += [f": [Lab {lab.number}](#lab-{lab.number:02}), {title}: {cells}.", ""]
    return "\n".join(lines)


def _points(number):
    return f"{number} point{'s' if number > 1 else ''}"


def fill(text: str, root: Path = ROOT, labs: Callable[[Path], list[Lab]] = read_labs) -> str:
    """Return the text of a page with ``{{ chapters }}`` and ``{{ objectives }}`` filled in."""
    for name, written in (("chapters", table_of_chapters), ("objectives", list_of_objectives)):
        place = f"{{{{ {name} }}}}"
        if place in text:
            text = text.replace(place, written(read_chapters(root), labs(root)))
    return text


def setup(app):
    """Fill in the placeholders of pages in every build, since they depend on all other pages."""
    pages = ("book/index", "book/course-map")
    root, labs = Path(app.srcdir), functools.cache(read_labs)

    def read(_, name, source):
        if name in pages:
            source[0] = fill(source[0], root, labs)

    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda _, env, *__: [page for page in pages if page in env.found_docs])
    return {"parallel_read_safe": True}
