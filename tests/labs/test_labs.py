"""Every lab passes the whole workflow: release, collection, grading by nbgrader, feedback and grades."""

import builtins
import csv
import functools
import re
import symtable

import nbformat
import pytest

from course import Course, LiveParts, calls, errors, leaks, make_course, text_of
from coursegrader.labs import REGIONS, LabError, grade_id, read_lab, release, squeezed
from coursegrader.preprocessors import ShowHintsOnly
from coursegrader.trial import solution_cells
from paths import COURSES, LABS, ROOT
from unchanged import nightly_but

UNSOLVED = ("is not written yet", "is not defined")
STUDENTS = ["released", "half", "noisy", "wrong"]


@pytest.fixture(scope="module")
def course_of(tmp_path_factory):
    make = functools.cache(lambda labs: Course(tmp_path_factory.mktemp("course"), labs))
    return lambda lab: make(next(labs for labs in COURSES if lab in labs))


@pytest.fixture(scope="module", params=LABS)
def lab(request, course_of):
    return course_of(request.param).labs[request.param]


@pytest.fixture(scope="module", params=nightly_but(COURSES[1][::2], LABS))
def graded(request, course_of, bubblewrap):
    """A lab of a course that was graded; `make test` grades one of the two."""
    return course_of(request.param).graded[request.param]


# What students get


def test_the_notebooks_in_labs_are_what_the_sources_generate(tmp_path):
    course = make_course(tmp_path, LABS)
    stored, generated = (
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.ipynb") if is_ours(path)}
        for folder in (ROOT / "labs", course / "labs")
    )
    different = sorted(name for name in stored | generated if stored.get(name) != generated.get(name))
    unknown = sorted(stored.keys() - generated.keys())
    assert not unknown, f"labs/ holds notebooks without a source in solutions/: delete {', '.join(unknown)}"
    assert not different, f"labs/ does not fit solutions/: run `make labs` (it would write {', '.join(different)})"


def is_ours(path):
    return not path.parent.name.startswith((".ipynb_checkpoints", "before-update-"))


def test_the_points_that_the_text_states_are_those_of_the_cells(lab):
    sections = [["", 0]]
    for cell in lab.released.cells:
        if cell.cell_type == "markdown":
            before, *opened = re.split(r"^(?=## )", cell.source, flags=re.MULTILINE)
            sections[-1][0] += before
            sections += [[text, 0] for text in opened]
        sections[-1][1] += lab.points.get(grade_id(cell), 0)
    (opening, _), *exercises = sections
    with lab.gradebook() as gradebook:
        assert first_points(opening) == gradebook.find_assignment(lab.name).max_score == sum(lab.points.values())
    for text, points in exercises:
        if points:
            assert first_points(text) == points, text


def first_points(text):
    found = re.search(r"\b(\d+) points?\b", text)
    return found and int(found[1])


def test_the_student_notebook_runs_to_its_end_and_raises_only_where_an_answer_is_missing(graded):
    notebook = graded.autograded("released")
    raised, as_handed_in = errors(notebook), {cell.id for cell in notebook.cells if "mlcourse" in cell.metadata}
    tagged = [cell for cell in graded.released.cells if "raises-exception" in cell.metadata.get("tags", [])]
    names = [grade_id(cell) or cell.id for cell in tagged]
    assert sorted(raised) == sorted(set(names) - as_handed_in) and as_handed_in
    for name in graded.tests:
        assert any(words in raised[name] for words in UNSOLVED) and "\n" not in raised[name], f"{name}: {raised[name]}"


# Messages of the grader


def test_the_untouched_notebook_earns_nothing(graded):
    assert graded.automatic["released"] == dict.fromkeys(graded.points, 0)
    assert not any(graded.waiting["released"].values())


def test_the_first_half_of_the_exercises_earns_exactly_their_points(graded):
    expected = {
        name: points if name.rpartition("-")[0] in graded.first_half else 0 for name, points in graded.points.items()
    }
    assert graded.automatic["half"] == expected


def test_the_instructors_answers_earn_every_automatic_point_although_they_print_and_warn(graded):
    expected = {name: None if name in graded.written else points for name, points in graded.points.items()}
    assert graded.automatic["noisy"] == expected, graded.messages("noisy")
    assert errors(graded.autograded("noisy")) == {}


def test_the_solution_runs_within_a_minute(graded, record_property):
    notebook = graded.autograded("noisy")
    seconds = notebook.metadata.mlcourse.seconds
    record_property("summary", f"{graded.name}: the solution runs in {seconds:.1f} s")
    assert seconds < 60


@pytest.mark.parametrize("student", ["noisy", "wrong"])
def test_a_written_answer_waits_for_a_person(graded, student):
    assert [name for name, waits in graded.waiting[student].items() if waits] == graded.written


def test_the_score_of_a_person_completes_the_total(graded):
    assert graded.totals()["noisy"] == sum(graded.points.values())
    assert not any(graded.read_scores("needs_manual_grade")["noisy"].values())


def test_a_function_that_returns_none_loses_the_cells_that_call_it_and_no_others(graded):
    lost = {name for name, source in graded.tests.items() if calls(source, graded.broken)}
    assert lost
    expected = graded.automatic["noisy"] | dict.fromkeys(lost, 0)
    assert graded.automatic["wrong"] == expected
    assert graded.messages("wrong").keys() == lost


@pytest.mark.parametrize("name", LABS)
def test_a_test_cell_takes_nothing_from_the_notebook_but_answers(name):
    """A test cell runs in a separate process, which only answers reach."""
    notebook = read_lab(ROOT / "solutions" / f"{name}.md")
    answers = {variable for cell in solution_cells(notebook).values() for variable in defined(cell.source)}
    foreign = {
        grade_id(cell): sorted(taken(cell.source) - answers)
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade")
    }
    assert not any(foreign.values()), foreign


def defined(source):
    """Return the variables, functions and classes that a cell defines, without its imports."""
    variables = symtable.symtable(source, "cell", "exec").get_symbols()
    return {variable.get_name() for variable in variables if variable.is_assigned() and not variable.is_imported()}


def taken(source):
    """Return the names that a cell uses without defining or importing them."""
    cell = symtable.symtable(source, "cell", "exec")
    own = {variable.get_name() for variable in cell.get_symbols() if variable.is_assigned() or variable.is_imported()}
    return globals_of(cell) - own - set(dir(builtins))


def globals_of(table):
    symbols = [symbol for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()]
    return {symbol.get_name() for symbol in symbols}.union(*map(globals_of, table.get_children()))


# What comes back


@pytest.mark.parametrize("student", STUDENTS)
def test_the_feedback_page_says_in_one_sentence_why_a_test_cell_failed(graded, student):
    page = squeezed(text_of(graded.feedback(student)))
    failed = [name for name in graded.tests if graded.automatic[student][name] == 0]
    assert sorted(graded.messages(student)) == sorted(failed)
    for message in graded.messages(student).values():
        assert re.fullmatch(r".*\. See \S+ in the book\.", message), message
        assert page.count(squeezed(message)) >= 1, f"not on the page of {student}: {message}"
    assert "CheckFailed" not in page


def test_of_a_failed_test_cell_the_page_shows_no_traceback_and_no_print():
    """Even if the answer ends the cell in a way that the checks do not catch, such as `exit()`."""
    failed = nbformat.v4.new_code_cell("assert hidden", metadata={"nbgrader": {"grade": True}})
    failed.outputs = [
        nbformat.v4.new_output("stream", text="the hidden test is ..."),
        nbformat.v4.new_output("error", ename="SystemExit", evalue="", traceback=["----> 1 assert hidden"]),
    ]
    ShowHintsOnly().preprocess_cell(failed, {}, 0)
    assert [output.traceback for output in failed.outputs] == [["SystemExit"]]


def test_nothing_that_a_student_hands_in_runs_in_the_browser_of_a_reader(graded):
    pages = {name: graded.feedback(name).read_text(encoding="utf-8") for name in ("released", "wrong")}
    assert LiveParts(pages["wrong"]).found == LiveParts(pages["released"]).found
    assert pages["wrong"].count("alert(1)") > len(graded.written), "the answers should still be readable"


def test_a_feedback_page_shows_tables_and_not_their_tags(graded):
    for student in STUDENTS:
        page = graded.feedback(student).read_text(encoding="utf-8")
        assert not re.search(r"&lt;/?(table|thead|th|td|tr)\b", page)


def test_the_exported_table_has_the_scores_of_the_gradebook(graded):
    with graded.exported.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == graded.name]
    assert sorted(row["student_id"] for row in rows) == sorted(STUDENTS)
    assert {row["student_id"]: float(row["score"]) for row in rows} == graded.totals()
    assert {float(row["max_score"]) for row in rows} == {sum(graded.points.values())}


# What must not leak


@pytest.mark.parametrize("region", REGIONS)
def test_there_are_lines_that_could_leak(lab, region):
    if any(f"BEGIN {region}" in cell.source for cell in lab.source.cells):
        assert lab.secrets(region)


def test_nothing_secret_reaches_the_student_notebook(lab):
    secrets = {line for region in REGIONS for line in lab.secrets(region)}
    folders = [root / "labs" / lab.name for root in (ROOT, lab.root)]
    assert leaks(secrets, [path for folder in folders for path in folder.rglob("*") if path.is_file()]) == []


@pytest.mark.parametrize("student", STUDENTS)
def test_nothing_secret_reaches_a_feedback_page(graded, student):
    own = squeezed("\n".join(cell.source for cell in graded.submitted[student].cells))
    secrets = {line for region in REGIONS for line in graded.secrets(region) if squeezed(line) not in own}
    assert leaks(secrets, [graded.feedback(student)]) == []


# Messages to authors who made a mistake


def cell(options, code="assert w == 1"):
    return f"```{{code-cell}} ipython3\n:nbgrader: {options}\n{code}\n```\n"


HEADER = "---\njupytext:\n  text_representation:\n    format_name: myst\n---\n"
SOLUTION = "### BEGIN SOLUTION\nw = 1\n### END SOLUTION"
HIDDEN = "### BEGIN HIDDEN TESTS\nassert w == 1\n### END HIDDEN TESTS"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (cell("{grade_id: w, solve: true}"), "unknown nbgrader key solve"),
        (cell("true"), "nbgrader must be"),
        (cell("{solution: true}", SOLUTION), "needs a grade_id"),
        (cell("{grade_id: w-1, points: -1}"), "whole number above 0"),
        (cell("{grade_id: w-1, points: true}"), "whole number above 0"),
        (cell("{grade_id: w-1, points: 1}") * 2, "two cells have the grade_id w-1"),
        (cell("{grade_id: w}", HIDDEN), "hidden tests must stand in a test cell"),
        (cell("{grade_id: w-1, points: 1}", HIDDEN.replace("END", "end")), "needs an '### END HIDDEN TESTS'"),
        (cell("{grade_id: w-1, points: 1}", HIDDEN.replace("###", "#")), "alone on its line"),
        ("### BEGIN MARK SCHEME\n1 point ### END MARK SCHEME\n", "alone on its line"),
        (cell("{grade_id: w-1, points: 1}", "w == 1"), "must not end in an expression"),
        (cell("{grade_id: w-1, points: 1}", "# nothing"), "tests nothing"),
        (cell("{grade_id: w-1, points: 1}", "assert w =="), "must hold plain Python"),
        (cell("{grade_id: w, solution: true}", "w = 1"), "needs a '### BEGIN SOLUTION' line"),
        ("### BEGIN MARK SCHEME\n1 point\n### END MARK SCHEME\n", "mark scheme must stand in a locked cell"),
        ("*{{ points b }}*\n\n" + cell("{grade_id: w-1, points: 1}"), "the points of b, but no graded cell"),
    ],
)
def test_a_source_that_is_not_well_formed_is_refused_with_one_sentence(tmp_path, source, message):
    path = tmp_path / "lab-09-trial.md"
    path.write_text(f"{HEADER}\n{source}", encoding="utf-8")
    with pytest.raises(LabError) as refusal:
        read_lab(path)
    assert message in str(refusal.value) and "lab-09-trial" in str(refusal.value)


def test_a_missing_source_is_named(tmp_path):
    with pytest.raises(LabError, match="lab-09-trial.md: there is no such lab"):
        read_lab(tmp_path / "lab-09-trial.md")
    with pytest.raises(LabError, match="no file lab-"):
        release(tmp_path)


# Last, since it would affect a class that is not graded yet


@pytest.mark.parametrize("name", nightly_but([COURSES[1][0]], [labs[0] for labs in COURSES]))
def test_releasing_again_gives_the_same_bytes_and_keeps_the_grades(course_of, name, bubblewrap):
    labs = [*course_of(name).graded.values()]
    root, totals = labs[0].root, [lab.totals() for lab in labs]
    paths = sorted((root / "labs").rglob("*.ipynb"))
    before = [path.read_bytes() for path in paths]
    release(root)
    assert len(paths) == len(labs) and [path.read_bytes() for path in paths] == before
    assert [lab.totals() for lab in labs] == totals
