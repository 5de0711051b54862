"""Fill in what pages say of others, from its sources: a Sphinx extension, named in ``_config.yml``.

The chapters' opening cards, the headings of their exercises and the labs define the objectives, the sections that teach
them and the exercises that check them. In a page, ``{{ hours of LABEL }}`` becomes the time that a chapter and its labs
take (``all``: all of them), ``{{ pages }}`` a table of the pages of the chapter that the page opens,
``{{ objectives }}`` lists with links, and ``{{ lab }}`` the task of the lab of that name, without its checks. The first
two name the questions of a chapter or page for ``book/_static/course.js``, which shows what the reader has done. The
tests read the same sources through `read_chapters` and `read_labs`.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coursebook import contents
from mlcourse.student import StudentError
from mlcourse.student.notebooks import grader, read

ROOT = Path(__file__).resolve().parents[1]
OBJECTIVE = r"[A-Z]{2,3}-\d"
TITLE = r"^\(([\w-]+)\)=\n# (.+)"
# The line that says how long a page takes
MINUTES = r"^\*About (\d+) minutes\.\* ?(.*)"
QUESTION = r"\bquiz\.(?:choice|number)\(\s*\"([\w-]+)\""
LAB_PAGES = "book/labs/"
HOURS = r"\{\{ hours of ([\w-]+) \}\}"


@dataclass
class Objective:
    """What a reader can do after a chapter, with the labels of the sections that teach it and its exercises."""

    name: str
    text: str
    sections: list[str]
    exercises: list[str] = field(default_factory=list)


@dataclass
class Page:
    """A page of a chapter.

    It has its title and label, the minutes that it takes to read, whether it can be left out, and the names of the
    questions that it asks, without those that it repeats from earlier chapters.
    """

    title: str
    label: str
    minutes: int
    optional: bool
    questions: list[str]


@dataclass
class Chapter:
    """A chapter: its title and label, its pages and its objectives in order, and the labels of its labs."""

    title: str
    label: str
    pages: list[Page]
    objectives: list[Objective]
    labs: list[str]

    @property
    def minutes(self) -> int:
        """The minutes that it takes to read the chapter."""
        return sum(page.minutes for page in self.pages)

    @property
    def questions(self) -> list[str]:
        """The names of the questions that the chapter asks."""
        return [question for page in self.pages for question in page.questions]


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
        If a chapter's opening card has no objectives or names no lab, or a page lacks its reading time.
    """
    return [read_chapter(entry, root) for entry in contents.read_chapters(root)]


def read_labs(root: Path = ROOT) -> list[Lab]:
    """Return the labs in the order of their numbers.

    The source is the students' notebooks, which have the points of each graded cell.

    Raises
    ------
    ValueError
        If a notebook cannot be read, lacks its title or its minutes, or a graded cell is in no section.
    """
    return [_read_lab(path) for path in sorted(root.glob("labs/*/lab-*.ipynb"))]


def read_chapter(entry: contents.Entry, root: Path = ROOT) -> Chapter:
    """Return a chapter of the contents; errors as in `read_chapters`."""
    texts = {page: (root / f"{page}.md").read_text(encoding="utf-8") for page in entry.pages}
    text = texts[entry.page]
    label = re.search(TITLE, text, re.M)
    card = re.search(r"^:class: objectives\n(.*?)^:::$", text, re.M | re.S)
    labs = card and re.findall(r"\]\(#(lab-\d\d)\)", card[1])
    bullets = re.findall(rf"^- \*\*({OBJECTIVE})\*\* (.*?)(?=^- |^$)", card[1], re.M | re.S) if card else []
    if not (label and labs and bullets):
        raise ValueError(f"{entry.page}.md: a chapter opens with a labelled title and a card of objectives and labs")
    objectives = []
    for name, bullet in bullets:
        statement, _, taught = " ".join(bullet.split()).partition(" Taught in ")
        objectives.append(Objective(name, statement, re.findall(r"\]\(#([\w-]+)\)", taught)))
    everything = "\n".join(texts.values())
    for exercise, head in re.findall(r"\{exercise-start\}[^\n]*\n:label: (\S+)\n:::\n+\*(.*?)\*", everything, re.S):
        for objective in objectives:
            if objective.name in re.findall(OBJECTIVE, head):
                objective.exercises.append(exercise)
    pages = [_read_page(page, texts[page]) for page in entry.below]
    return Chapter(label[2], label[1], pages, objectives, labs)


def _read_page(name, text):
    title, minutes = re.search(TITLE, text, re.M), re.search(MINUTES, text, re.M)
    if not (title and minutes):
        raise ValueError(f"{name}.md: a page opens with a labelled title and '*About N minutes.*'")
    return Page(title[2], title[1], int(minutes[1]), minutes[2].startswith("Optional"), re.findall(QUESTION, text))


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


def hours_of(label: str, chapters: list[Chapter], labs: list[Lab]) -> str:
    """Return how long a chapter and its labs take, or all of them if the label is ``all``.

    Raises
    ------
    ValueError
        If no chapter has this label.
    """
    of_label = [chapter for chapter in chapters if label in (chapter.label, "all")]
    if not of_label:
        raise ValueError(f"hours of {label}: no chapter has this label")
    own = [lab for chapter in of_label for lab in labs if f"lab-{lab.number:02}" in chapter.labs]
    reading, solving = sum(chapter.minutes for chapter in of_label), sum(lab.minutes for lab in own)
    if label == "all":
        return f"{_hours(reading)} to read, {_hours(solving)} for {len(own)} labs"
    numbers = f"labs {own[0].number} to {own[-1].number}" if len(own) > 1 else f"lab {own[0].number}"
    return f"{_hours(reading)} to read, {_hours(solving)} for {numbers} {_progress(of_label[0])}"


def _link(one, note=""):
    """Return a link to a page or chapter, a note, and the place where ``course.js`` says what the reader has done."""
    return f"[](#{one.label}){note} {_progress(one)}"


def _progress(one):
    return f'<small class="reading" data-questions="{" ".join(one.questions)}"></small>'


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


def table_of_pages(chapter: Chapter, labs: list[Lab]) -> str:
    """Return the place of the reader's progress, and the pages of a chapter and its labs as a Markdown table."""
    rows = [":::{div} continue", ":::", "", "| page | minutes |", "|---|---:|"]
    rows += [f"| {_link(one, ' (optional)' if one.optional else '')} | {one.minutes} |" for one in chapter.pages]
    labels = {f"lab-{lab.number:02}": lab.minutes for lab in labs}
    rows += [f"| [](#{label}) | {labels[label]} |" for label in chapter.labs]
    return "\n".join(rows)


def task(path: Path) -> str:
    """Return the task of a lab as Markdown: its story, what is graded, and each exercise, without code and checks.

    Parameters
    ----------
    path : pathlib.Path
        The students' notebook, ``labs/NAME/NAME.ipynb``.

    Raises
    ------
    ValueError
        If it cannot be read or does not open like a lab.
    """
    lab = _read_lab(path)
    texts = [cell["source"] for cell in read(path)["cells"] if cell["cell_type"] == "markdown"]
    opening, *sections = [part for text in texts for part in re.split(r"^(?=## )", text, flags=re.M) if part]
    opening = re.sub(r"^# [^\n]*\n+|^\*\*How to work\.\*\*.*?(?=^\*\*|\Z)", "", opening, flags=re.M | re.S)
    titles = [section.split("\n")[0].removeprefix("## ") for section in sections]
    exercises = [one.title for one in lab.exercises]
    before = titles.index(exercises[0])
    kept = [
        text for i, text in enumerate(sections) if (text.startswith("## ") and i < before) or titles[i] in exercises
    ]
    return "\n\n".join(map(_with_links, [opening, *kept]))


def _with_links(text):
    """Return a text in which the identifiers of objectives lead to the course map."""
    return re.sub(rf"(?<![\w-])({OBJECTIVE})(?![\w-])", r"[\1](#sec-course-map)", text)


def fill(text: str, name: str = "", root: Path = ROOT, labs: Callable[[Path], list[Lab]] = read_labs) -> str:
    """Return the text of the page of that name with all that stands in double braces filled in."""
    if wanted := set(re.findall(HOURS, text)):
        chapters = read_chapters(root)
        hours = {label: hours_of(label, chapters, labs(root)) for label in wanted}
        text = re.sub(HOURS, lambda place: hours[place[1]], text)
    if "{{ objectives }}" in text:
        text = text.replace("{{ objectives }}", list_of_objectives(read_chapters(root), labs(root)))
    if "{{ pages }}" in text:
        (entry,) = (one for one in contents.read_chapters(root) if one.page == name)
        text = text.replace("{{ pages }}", table_of_pages(read_chapter(entry, root), labs(root)))
    if "{{ lab }}" in text:
        lab = name.removeprefix(LAB_PAGES)
        text = text.replace("{{ lab }}", task(root / "labs" / lab / f"{lab}.ipynb"))
    return text


def setup(app):
    """Fill in pages whenever Sphinx reads them, and read them again if what they say has changed."""
    root, labs = Path(app.srcdir), functools.cache(read_labs)
    chapters = {entry.page: entry for entry in contents.read_chapters(root)}
    of_all_pages = ("book/index", "book/course-map")

    def read(app, name, source):
        if name.startswith("book/"):
            source[0] = fill(source[0], name, root, labs)
        for page in chapters[name].below if name in chapters else ():
            app.env.note_dependency(str(root / f"{page}.md"))
        if name in chapters or name.startswith(LAB_PAGES):
            for notebook in root.glob("labs/*/lab-*.ipynb"):
                app.env.note_dependency(str(notebook))

    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda _, env, *__: [page for page in of_all_pages if page in env.found_docs])
    return {"parallel_read_safe": True}
