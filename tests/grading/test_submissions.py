"""Any submission becomes a notebook that can be graded, and the student is told what was wrong."""

import copy
import json
import logging
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from collections import Counter

import nbformat
import pytest
from nbgrader.preprocessors import CheckCellMetadata, DeduplicateIds, OverwriteCells
from nbgrader.utils import find_all_files, is_grade, is_solution

from course import Lab, grade_id, make_course, text_of
from coursegrader import GradingError
from coursegrader.labs import read_lab
from coursegrader.sanitizer import CODE_CHARACTERS, TEXT_CHARACTERS
from coursegrader.submissions import (
    MAX_BYTES,
    MAX_CELLS,
    MAX_CHARACTERS,
    MAX_PICTURES,
    before_grading,
    check_timestamp,
    find_notebook,
    instructor_notebook,
    left_out,
    read_submission,
    release_of,
)
from paths import ROOT

LAB = "lab-01-toy-regression"
SOURCE = read_lab(ROOT / "solutions" / f"{LAB}.md")
RELEASED = json.loads((ROOT / "labs" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8"))
LAB_CELLS = {grade_id(cell): cell for cell in SOURCE.cells if grade_id(cell)}
CHECK = "The check cell fit-line-2"
ANSWER = "def fit_line(x, y):\n    return 2.0, 1.0"


@pytest.fixture
def notebook():
    """The released notebook with two answers, as the JSON document of a student's file."""
    notebook = copy.deepcopy(RELEASED)
    find(notebook, "fit-line")["source"] = ANSWER
    find(notebook, "best-degree")["source"] = "Degree 8."
    return notebook


@pytest.fixture
def hand_in(tmp_path):
    """Return a function that hands in a file, checks that it can be graded, and returns the submission."""

    def hand_in(content):
        path = tmp_path / f"{LAB}.ipynb"
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        path.write_bytes(content)
        submission = read_submission(path, SOURCE)
        check(submission)
        assert read_submission(path, SOURCE) == submission, "a second reading gives another notebook"
        return submission

    return hand_in


def check(submission):
    """Check what must hold for every submission."""
    nbformat.validate(submission.notebook)
    assert submission.notebook.nbformat == 4
    nbformat.writes(submission.notebook).encode("utf-8")
    names = [grade_id(cell) for cell in submission.notebook.cells if "nbgrader" in cell.metadata]
    assert sorted(names) == sorted(LAB_CELLS), "not exactly the cells of the lab"
    for name, cell in LAB_CELLS.items():
        if is_grade(cell) and not is_solution(cell):
            exercise = name.rpartition("-")[0]
            assert names.index(exercise) < names.index(name), f"{name} runs before the answer that it checks"
    for cell in submission.notebook.cells:
        original = LAB_CELLS.get(grade_id(cell))
        assert not cell.get("outputs")
        if original:
            assert (cell.cell_type, cell.metadata) == (original.cell_type, original.metadata)
        if original and not is_solution(original) and not submission.refused:
            assert cell.source == original.source


def find(notebook, name):
    return next(cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == name)


def place(notebook, name):
    return notebook["cells"].index(find(notebook, name))


def texts(submission):
    return [cell.source for cell in submission.notebook.cells]


def lab_names(submission):
    return [grade_id(cell) for cell in submission.notebook.cells if grade_id(cell)]


def answer(submission, name="fit-line"):
    return find(submission.notebook, name).source


def own(text, **keys):
    return {"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "source": text, **keys}


# Files that are not notebooks


REFUSED = {
    b"": "empty",
    b" \n": "empty",
    b"\x89PNG\r\n\x1a\n\xff\x00": "not text in UTF-8",
    b"\xff\xfe\x00": "not text in UTF-8",
    b"<html>log in first</html>": "not JSON from line 1 on",
    b'{"cells": [\n{"cell_type": "co': "not JSON from line 2 on",
    b"[" * 500_000: "nested too deeply",
    b"[" + b"[]," * 1_000_000 + b"[]]": "holds too many lists",
    b"[" + b'"",' * 1_000_000 + b'""]': "holds more than 1,000,000 lines",
    b'{"cells": ' + b'[{"a":' * 200_000: "nested too deeply",
    b'{"cells": [' + b"9" * 5000 + b"]}": "not JSON",
    b"[]": "no list of cells",
    b"null": "no list of cells",
    b'"text"': "no list of cells",
    b"{}": "no list of cells",
    b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}': "no list of cells",
    b'{"cells": {"0": {}}}': "no list of cells",
    b'{"worksheets": 3}': "no list of cells",
    b'{"cells": [%s]}' % b",".join([b"{}"] * (MAX_CELLS + 1)): "more than",
    b" " * MAX_BYTES + b"{}": "larger than 20 MB",
}


@pytest.mark.parametrize("content", REFUSED, ids=lambda content: f"{content[:12]!r} and {len(content)} bytes")
def test_a_file_that_is_no_notebook_is_graded_as_the_untouched_lab_and_the_reason_is_said(hand_in, content):
    submission = hand_in(content)
    assert REFUSED[content] in submission.refused
    assert texts(submission) == ["".join(cell["source"]) for cell in RELEASED["cells"]]


@pytest.mark.parametrize("kind", ["a symbolic link", "a folder", "a special file", "No notebook"])
def test_what_is_not_a_regular_file_is_not_opened(tmp_path, notebook, kind):
    path, elsewhere = tmp_path / f"{LAB}.ipynb", tmp_path / "elsewhere.ipynb"
    elsewhere.write_text(json.dumps(notebook))
    make = {"a symbolic link": lambda: path.symlink_to(elsewhere), "a folder": path.mkdir, "No notebook": lambda: None}
    make.get(kind, lambda: os.mkfifo(path))()
    submission = read_submission(path, SOURCE)
    check(submission)
    assert kind in submission.refused
    assert answer(submission) != ANSWER


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_the_instructor_may_not_read_is_an_error_for_the_instructor(tmp_path):
    path = tmp_path / f"{LAB}.ipynb"
    path.touch(mode=0o000)
    with pytest.raises(GradingError, match="permissions"):
        read_submission(path, SOURCE)


def test_what_is_written_into_the_notebook_of_a_refused_file_is_not_in_that_of_the_next(tmp_path):
    released = release_of(SOURCE)
    first, second = (read_submission(tmp_path / "missing.ipynb", SOURCE, released).notebook for _ in range(2))
    first.cells[0].source = "written"
    assert second == released == release_of(SOURCE)


def test_the_notebook_of_a_refused_file_holds_no_solution_no_hidden_test_and_no_mark_scheme(hand_in, tmp_path):
    path = tmp_path / "refused.ipynb"
    nbformat.write(hand_in(b"").notebook, path)
    lab = object.__new__(Lab)
    lab.source = SOURCE
    secrets = lab.secrets("SOLUTION") | lab.secrets("HIDDEN TESTS") | lab.secrets("MARK SCHEME")
    assert secrets
    assert not {line for line in secrets if line in text_of(path)}


# Notebooks that can be read


def test_an_honest_notebook_keeps_all_its_texts_and_hears_nothing(hand_in, notebook):
    notebook["cells"].insert(3, own("import math"))
    submission = hand_in(notebook)
    assert (submission.repairs, submission.refused) == ([], None)
    expected = ["".join(cell["source"]) for cell in notebook["cells"]]
    locked = {name for name, cell in LAB_CELLS.items() if not is_solution(cell)}
    names = [grade_id(cell) for cell in submission.notebook.cells]
    assert [text for text, name in zip(texts(submission), names) if name not in locked] == [
        text for text, name in zip(expected, names) if name not in locked
    ]


@pytest.mark.parametrize("version", [{"nbformat_minor": 99}, {"nbformat_minor": "x"}, {"nbformat": 5}, {"nbformat": 0}])
def test_a_strange_number_of_the_format_costs_nothing(hand_in, notebook, version):
    submission = hand_in({**notebook, **version, "metadata": ["strange"]})
    assert (submission.repairs, answer(submission)) == ([], ANSWER)


def test_a_notebook_in_format_3_is_read(hand_in, notebook):
    notebook["cells"].insert(0, {"cell_type": "markdown", "id": "own", "metadata": {}, "source": "# A heading"})
    old = nbformat.convert(nbformat.reads(json.dumps(notebook), as_version=4), 3)
    submission = hand_in(nbformat.v3.writes_json(old).encode())
    assert (submission.repairs, submission.refused) == ([], None)
    assert (answer(submission), answer(submission, "best-degree")) == (ANSWER, "Degree 8.")
    assert texts(submission)[0] == "# A heading"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_another_encoding_of_unicode_costs_nothing(hand_in, notebook, encoding):
    find(notebook, "best-degree")["source"] = "Für x = 8: keiner."
    submission = hand_in(json.dumps(notebook, ensure_ascii=False).encode(encoding))
    assert (submission.repairs, answer(submission, "best-degree")) == ([], "Für x = 8: keiner.")


def test_a_stray_byte_is_shown_as_one_unknown_character(hand_in, notebook):
    find(notebook, "best-degree")["source"] = "Für x = 8: keiner."
    submission = hand_in(json.dumps(notebook, ensure_ascii=False).encode("latin-1", errors="replace"))
    assert answer(submission, "best-degree") == "F\ufffdr x = 8: keiner."
    assert "UTF-8" in submission.repairs[0]


@pytest.mark.parametrize(
    "strange",
    ["text", None, 3, [], {"metadata": 3}, {"source": 3}, {"source": [1]}, {"cell_type": []}, {"outputs": 3}, {}],
    ids=repr,
)
def test_a_cell_that_lacks_what_a_cell_has_does_not_harm_the_others(hand_in, notebook, strange):
    notebook["cells"].insert(5, strange)
    submission = hand_in(notebook)
    assert submission.refused is None
    assert answer(submission) == ANSWER


def test_a_student_hears_which_cell_could_not_be_read(hand_in, notebook):
    notebook["cells"][0] = 3
    notebook["cells"][1] = own({"a": 1})
    notebook["cells"][3] = own([2])
    assert hand_in(notebook).repairs == [
        "Cell 1: left out, since it could not be read.",
        "Cells 2 and 4: its text could not be read.",
    ]


def test_an_answer_cell_without_a_type_keeps_its_answer(hand_in, notebook):
    del find(notebook, "best-degree")["cell_type"]
    del find(notebook, "fit-line")["cell_type"]
    submission = hand_in(notebook)
    assert (answer(submission), answer(submission, "best-degree")) == (ANSWER, "Degree 8.")


def test_characters_that_no_program_can_read_are_replaced_and_others_stay(hand_in, notebook):
    find(notebook, "fit-line")["source"] = "a = 'NUL \0, half \ud800, bell \a, tab \t, escape \x1b, \x85, \u2028, ü'"
    submission = hand_in(notebook)
    assert answer(submission) == "a = 'NUL \ufffd, half \ufffd, bell \a, tab \t, escape \x1b, \x85, \u2028, ü'"
    assert f"Cell {place(notebook, 'fit-line') + 1}: it held characters" in submission.repairs[0]


def test_outputs_are_dropped_whatever_they_are(hand_in, notebook):
    for outputs in ("text", [[]], [{"output_type": "unheard-of"}], [{"data": {"text/html": "x" * 10**6}}], {"a": None}):
        find(notebook, "fit-line")["outputs"] = outputs
        submission = hand_in(notebook)
        assert (submission.repairs, answer(submission)) == ([], ANSWER)


def test_metadata_are_dropped_however_deeply_they_are_nested(hand_in, notebook):
    deep = "[" * 800 + "]" * 800
    content = json.dumps(notebook).replace('"metadata": {', f'"metadata": {{"deep": {deep}, ')
    submission = hand_in(content.replace(", }", "}").encode())
    assert (submission.repairs, answer(submission)) == ([], ANSWER)


def test_identifiers_of_cells_become_valid_and_unique(hand_in, notebook):
    for cell, name in zip(notebook["cells"], ["twice", "twice", "", 7, "ü", "x" * 65, None, ["list"], "fit-line"]):
        cell["id"] = name
    submission = hand_in(notebook)
    assert submission.repairs == []
    assert max(Counter(cell.id for cell in submission.notebook.cells).values()) == 1


def test_a_picture_in_an_answer_is_kept_for_its_reader(hand_in, notebook):
    find(notebook, "best-degree")["attachments"] = {"plot.png": {"image/png": "iVBORw0KGgo="}}
    submission = hand_in(notebook)
    assert find(submission.notebook, "best-degree").attachments["plot.png"] == {"image/png": "iVBORw0KGgo="}
    assert submission.repairs == []


@pytest.mark.parametrize(
    "attachments", ["text", [1], {"a": 1}, {"a": {"image/png": 1}}, {"a": {"image/png": "\ud800"}}]
)
def test_a_broken_picture_does_not_cost_the_answer(hand_in, notebook, attachments):
    find(notebook, "best-degree")["attachments"] = attachments
    submission = hand_in(notebook)
    assert answer(submission, "best-degree") == "Degree 8."
    assert "its pictures could not be read" in submission.repairs[0]


@pytest.mark.parametrize(
    "attachments",
    [
        {f"{n}.png": {"image/png": ""} for n in range(100_000)},
        {f"{n}.png": {f"a/{m}": "" for m in range(1000)} for n in range(100)},
    ],
    ids=["pictures", "types of a picture"],
)
def test_a_hundred_thousand_pictures_keep_nobody_waiting(hand_in, notebook, attachments):
    without = len(nbformat.writes(hand_in(notebook).notebook))
    for name in ("best-degree", "fit-line"):
        find(notebook, name)["attachments"] = attachments
    submission = hand_in(notebook)
    assert answer(submission, "best-degree") == "Degree 8."
    assert len(nbformat.writes(submission.notebook)) < without + 2_000
    if len(attachments) > MAX_PICTURES:
        assert any("no more than 200 are shown" in one for one in submission.repairs)


@pytest.mark.parametrize(("name", "most"), [("best-degree", TEXT_CHARACTERS), ("fit-line", CODE_CHARACTERS)])
def test_an_answer_that_is_too_long_is_cut_off_and_the_others_are_graded(hand_in, notebook, name, most):
    find(notebook, name)["source"] = ANSWER + "\n#" + "x" * 2 * most
    submission = hand_in(notebook)
    assert answer(submission, name).startswith(ANSWER)
    assert answer(submission, name).endswith("[cut off here, since it is too long]")
    assert len(answer(submission, name)) < most + 100
    number = place(notebook, name) + 1
    sentence = f"longer than {most:,} characters, and cut off there: make it shorter and hand it in again"
    assert submission.repairs == [f"Cell {number}: {sentence}."]
    others = {one for one in ("best-degree", "fit-line") if one != name}
    assert all(answer(submission, one) == find(notebook, one)["source"] for one in others)


def test_an_answer_as_long_as_may_be_is_kept(hand_in, notebook):
    find(notebook, "best-degree")["source"] = "x" * TEXT_CHARACTERS
    submission = hand_in(notebook)
    assert answer(submission, "best-degree") == "x" * TEXT_CHARACTERS
    assert not submission.repairs


def test_what_comes_after_half_a_million_characters_is_cut_off_and_said(hand_in, notebook):
    notebook["cells"] += [own("#" + "x" * (CODE_CHARACTERS - 1)) for _ in range(10)]
    submission = hand_in(notebook)
    assert answer(submission) == ANSWER
    assert sum(map(len, texts(submission))) < 1.1 * MAX_CHARACTERS
    assert any("all cells together are longer than 500,000 characters" in one for one in submission.repairs)


def test_the_words_that_mark_hidden_text_are_harmless_in_a_cell_of_a_student(hand_in, notebook):
    words = "### BEGIN HIDDEN TESTS\n### END MARK SCHEME"
    find(notebook, "fit-line")["source"] = words
    notebook["cells"].append(own(words))
    submission = hand_in(notebook)
    assert words not in (answer(submission), texts(submission)[-1])
    assert answer(submission).replace("  ", " ") == texts(submission)[-1].replace("  ", " ") == words


# The cells of the lab


def test_a_missing_check_cell_is_put_back_at_its_place(hand_in, notebook):
    notebook["cells"].remove(find(notebook, "fit-line-2"))
    submission = hand_in(notebook)
    assert submission.repairs == [f"{CHECK} was missing and has been put back."]
    assert lab_names(submission) == list(LAB_CELLS)


def test_a_missing_answer_cell_comes_back_empty_and_before_what_the_student_wrote_instead(hand_in, notebook):
    at = place(notebook, "fit-line")
    notebook["cells"][at] = own(ANSWER)
    submission = hand_in(notebook)
    assert submission.repairs == ["The answer cell fit-line was missing and has been put back without an answer."]
    assert "NotImplementedError" in answer(submission)
    where = texts(submission)
    assert where.index(answer(submission)) < where.index(ANSWER) < where.index(answer(submission, "fit-line-1"))
    assert lab_names(submission) == list(LAB_CELLS)


def test_missing_cells_of_a_kind_are_named_in_one_sentence(hand_in, notebook):
    for name in ("fit-line-1", "fit-line-2", "fit-line-3", "best-degree-question"):
        notebook["cells"].remove(find(notebook, name))
    assert hand_in(notebook).repairs == [
        "The check cells fit-line-1, fit-line-2 and fit-line-3 were missing and have been put back.",
        "The given cell best-degree-question was missing and has been put back.",
    ]


@pytest.mark.parametrize("cells", [[], [own("print(1)")]])
def test_an_emptied_notebook_gets_all_cells_of_the_lab_back(hand_in, cells):
    submission = hand_in({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert submission.refused is None
    assert "none of the cells of this lab" in submission.repairs[0]


@pytest.mark.parametrize("identifiers", [True, False])
def test_answers_count_although_a_program_removed_all_metadata(hand_in, notebook, identifiers):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if not identifiers:
            del cell["id"]
    submission = hand_in(notebook)
    cells = submission.notebook.cells
    state, checks = {}, [find(submission.notebook, "fit-line-1")]
    for cell in cells[: cells.index(checks[0])]:
        if cell.cell_type == "code" and "def fit_line" in cell.source:
            exec(cell.source, state)
    assert state["fit_line"](0, 0) == (2.0, 1.0)
    assert (submission.repairs == []) == identifiers


@pytest.mark.parametrize("change", [{"source": "pass"}, {"cell_type": "markdown"}, {"cell_type": "raw"}])
def test_a_changed_or_retyped_check_cell_is_put_back_as_given(hand_in, notebook, change):
    find(notebook, "fit-line-2").update(change)
    assert hand_in(notebook).repairs == [f"{CHECK} was not as in the present version of the lab and has been put back."]


@pytest.mark.parametrize("cell_type", ["markdown", "raw"])
def test_an_answer_in_a_cell_of_another_type_is_kept_and_gets_its_type_back(hand_in, notebook, cell_type):
    find(notebook, "fit-line")["cell_type"] = cell_type
    submission = hand_in(notebook)
    assert answer(submission) == ANSWER
    assert submission.repairs == [
        "The answer cell fit-line was of another type; the type has been put back and the text kept."
    ]


def test_a_written_answer_in_a_code_cell_is_a_written_answer_again(hand_in, notebook):
    find(notebook, "best-degree")["cell_type"] = "code"
    submission = hand_in(notebook)
    assert find(submission.notebook, "best-degree").cell_type == "markdown"
    assert answer(submission, "best-degree") == "Degree 8."


@pytest.mark.parametrize(
    "metadata",
    [
        {"points": 1000},
        {"points": "many"},
        {"grade": False},
        {"locked": False, "solution": True},
        {"schema_version": 17},
        {"cell_type": "raw"},
        {"checksum": ""},
        {"task": True},
        {"unheard-of": [1, 2]},
    ],
    ids=repr,
)
def test_changed_metadata_are_restored_without_a_word(hand_in, notebook, metadata):
    for name in ("fit-line", "fit-line-2", "best-degree-question", "best-degree"):
        find(notebook, name)["metadata"]["nbgrader"].update(metadata)
    submission = hand_in(notebook)
    assert (submission.repairs, answer(submission)) == ([], ANSWER)


@pytest.mark.parametrize(
    "grader", [[], ["fit-line"], "fit-line", 3, None, {}, {"grade_id": 3}, {"grade_id": ["fit-line"]}, {"grade_id": {}}]
)
def test_nbgrader_metadata_of_a_wrong_type_do_not_cost_the_answer(hand_in, notebook, grader):
    find(notebook, "fit-line")["metadata"]["nbgrader"] = grader
    notebook["cells"].append(own("x = 1", metadata={"nbgrader": grader}))
    submission = hand_in(notebook)
    assert (submission.repairs, answer(submission)) == ([], ANSWER)
    assert texts(submission)[-1] == "x = 1"


def test_a_graded_cell_of_another_lab_is_an_ordinary_cell(hand_in, notebook):
    grader = {**find(notebook, "fit-line-1")["metadata"]["nbgrader"], "grade_id": "digits-1", "points": 50}
    notebook["cells"].append(own("x = 1", metadata={"nbgrader": grader}))
    submission = hand_in(notebook)
    assert submission.repairs == []
    assert (texts(submission)[-1], dict(submission.notebook.cells[-1].metadata)) == ("x = 1", {})


def test_of_copies_of_an_answer_the_last_changed_one_is_graded_and_no_text_is_lost(hand_in, notebook):
    at = place(notebook, "fit-line")
    cell, stub = notebook["cells"][at], find(RELEASED, "fit-line")
    notebook["cells"][at:at] = [{**cell, "source": "first = 1"}]
    notebook["cells"].append(stub)
    submission = hand_in(notebook)
    assert answer(submission) == ANSWER
    assert texts(submission).index("first = 1") < texts(submission).index(ANSWER)
    assert "".join(stub["source"]) not in texts(submission), "the empty copy would overwrite the answer"
    assert submission.repairs == [
        "The answer cell fit-line was there 3 times: the last one that you changed is graded, "
        "and what you wrote in the others is kept in ordinary cells."
    ]


def test_a_copy_of_an_answer_at_the_end_is_brought_to_its_check_cells(hand_in, notebook):
    notebook["cells"].append({**find(notebook, "fit-line"), "source": "last = 1"})
    submission = hand_in(notebook)
    assert answer(submission) == "last = 1"
    assert texts(submission).index(ANSWER) < texts(submission).index("last = 1")


def test_of_copies_of_a_check_cell_one_is_graded_at_its_place(hand_in, notebook):
    cell = find(notebook, "fit-line-2")
    notebook["cells"].insert(0, cell)
    notebook["cells"].append({**cell, "source": "x = 1"})
    submission = hand_in(notebook)
    assert texts(submission)[-1] == "x = 1"
    assert "The check cell fit-line-2 was there 3 times: one is graded" in submission.repairs[0]
    assert lab_names(submission) == list(LAB_CELLS)


def test_a_moved_check_cell_goes_back_and_the_cells_of_the_student_keep_their_neighbours(hand_in, notebook):
    notebook["cells"].insert(3, own("x = 1"))
    neighbours = [notebook["cells"][2], notebook["cells"][4]]
    cell = find(notebook, "fit-line-2")
    notebook["cells"].remove(cell)
    notebook["cells"].insert(0, cell)
    submission = hand_in(notebook)
    assert submission.repairs == [f"{CHECK} was moved and has been put back."]
    assert lab_names(submission) == list(LAB_CELLS)
    at = texts(submission).index("x = 1")
    assert [texts(submission)[at - 1], texts(submission)[at + 1]] == ["".join(cell["source"]) for cell in neighbours]


def test_an_exercise_that_was_moved_up_comes_after_the_imports_of_the_student(hand_in, notebook):
    names = ["fit-line", "fit-line-1", "fit-line-2", "fit-line-3"]
    moved = [find(notebook, name) for name in names]
    rest = [cell for cell in notebook["cells"] if cell not in moved]
    submission = hand_in({**notebook, "cells": [own("import math"), *moved, *rest]})
    assert lab_names(submission) == list(LAB_CELLS)
    assert texts(submission)[0] == "import math"


def test_an_answer_written_below_its_check_cells_stays_below_what_it_needs(hand_in, notebook):
    cell = find(notebook, "fit-line")
    notebook["cells"].remove(cell)
    at = place(notebook, "fit-line-3") + 1
    notebook["cells"][at:at] = [own("import math"), cell]
    submission = hand_in(notebook)
    assert texts(submission).index("import math") < texts(submission).index(ANSWER)
    assert lab_names(submission) == list(LAB_CELLS)


def test_the_instructor_version_handed_in_is_left_as_it_is(hand_in):
    submission = hand_in(json.loads(nbformat.writes(SOURCE)))
    assert submission.repairs == []
    assert texts(submission) == [cell.source for cell in SOURCE.cells]


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_to_a_notebook_stops_the_grading(hand_in, notebook, seed):
    chance = random.Random(seed)
    values = [None, 3, -1.5, "text", "\ud800\0", [], {}, ["a"], {"a": []}, True, "fit-line", "markdown", 10**30]

    def damage(value):
        if isinstance(value, dict) and value:
            key = chance.choice(list(value))
            if chance.random() < 0.2:
                del value[key]
            elif chance.random() < 0.3 or not isinstance(value[key], dict | list):
                value[key] = copy.deepcopy(chance.choice(values))
            else:
                damage(value[key])
        elif isinstance(value, list) and value:
            at = chance.randrange(len(value))
            if chance.random() < 0.1:
                value.insert(chance.randrange(len(value)), copy.deepcopy(value[at]))
            elif chance.random() < 0.1 or not isinstance(value[at], dict | list):
                value[at] = copy.deepcopy(chance.choice(values))
            else:
                damage(value[at])

    for _ in range(chance.choice([3, 30, 300])):
        damage(notebook["cells"])
    if chance.random() < 0.3:
        chance.shuffle(notebook["cells"])
    hand_in(notebook)


# The folder


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "submitted" / "ada" / LAB
    path.mkdir(parents=True)
    return path


def put(folder, name, content=RELEASED, age=0):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(path, (10**9 - age, 10**9 - age))
    return path


@pytest.mark.parametrize(
    "name",
    [f"{LAB} (1).ipynb", "Lab-01-Toy-Regression.ipynb", f"{LAB}-Copy1.ipynb", "lab_01_toy_regression_ada.IPYNB"],
)
def test_a_notebook_with_a_name_like_the_lab_is_found(folder, name):
    path = put(folder, name, "broken")
    found, repairs = find_notebook(folder, LAB, SOURCE)
    assert found == path
    assert name in repairs[0]
    assert f"{LAB}.ipynb" in repairs[0]


def test_a_notebook_of_any_name_is_found_by_the_cells_of_the_lab(folder):
    path = put(folder, "Untitled.ipynb")
    put(folder, "notes.ipynb", {"cells": []})
    put(folder, "broken.ipynb", "{")
    found, repairs = find_notebook(folder, LAB, SOURCE)
    assert found == path
    assert "notes.ipynb" in repairs[0]


def test_of_two_notebooks_the_exact_name_wins_and_else_the_newest(folder):
    put(folder, f"{LAB} (2).ipynb", age=10)
    newest = put(folder, f"{LAB} (1).ipynb", age=5)
    assert find_notebook(folder, LAB, SOURCE)[0] == newest
    exact = put(folder, f"{LAB}.ipynb", age=20)
    found, repairs = find_notebook(folder, LAB, SOURCE)
    assert found == exact
    assert repairs == [f"Of the notebooks {LAB} (1).ipynb, {LAB} (2).ipynb and {LAB}.ipynb, {LAB}.ipynb is graded."]


@pytest.mark.parametrize("name", [f"{LAB} ({{}}).ipynb", "{}.ipynb"])
def test_of_thousands_of_notebooks_one_is_found_at_once_and_few_are_named(folder, name):
    for number in range(3000):
        (folder / name.format(f"{number:04}")).write_text("{}")
    begin = time.process_time()
    _, repairs = find_notebook(folder, LAB, SOURCE)
    assert time.process_time() - begin < 3
    assert len(" ".join(repairs)) < 500
    assert "2995 more" in repairs[0]


def test_a_notebook_of_another_lab_is_not_taken_for_this_one(folder):
    other = "lab-02-california-housing"
    put(folder, f"{other}.ipynb", (ROOT / "labs" / other / f"{other}.ipynb").read_text(encoding="utf-8"))
    found, repairs = find_notebook(folder, LAB, SOURCE)
    assert found is None
    assert repairs == [f"No notebook of {LAB} was found, only {other}.ipynb."]


def test_an_empty_folder_holds_no_notebook(folder):
    put(folder, ".hidden.ipynb")
    assert find_notebook(folder, LAB, SOURCE) == (None, [])


def test_a_name_that_no_program_can_write_is_still_said(folder):
    path = folder / os.fsdecode(LAB.encode() + b"\xff\n.ipynb")
    path.write_text("{}")
    found, repairs = find_notebook(folder, LAB, SOURCE)
    assert found == path
    " ".join(repairs).encode("utf-8")
    assert "\n" not in repairs[0]


UNREADABLE = {
    "empty": b"",
    "blank": b" \n",
    "NUL bytes": b"2024-01-01\0",
    "nothing but NUL bytes": b"\0" * 24,
    "year 9999": b"9999-12-31 23:59:59 UTC",
    "year 1": b"0001-01-01 00:00:00 UTC",
    "a bad date": b"yesterday at noon",
    "binary": b"\xff\xfe\x00\x01",
    "huge": b"2024 " * 10**6,
    "year 99999": b"99999-01-01 00:00:00 UTC",
    "a zone beyond the day": b"2024-01-01 10:00:00 +999999999",
    "numbers without end": b"9" * 90,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_timestamp_that_is_no_date_is_put_aside_and_said_every_time(folder, content):
    (folder / "timestamp.txt").write_bytes(content)
    sentence = check_timestamp(folder)
    assert "timestamp.txt holds no date" in sentence
    assert not (folder / "timestamp.txt").exists()
    assert (folder / "timestamp.txt.unreadable").read_bytes() == content
    assert check_timestamp(folder) == sentence


def test_no_timestamp_put_aside_overwrites_another(folder):
    for content in ("one", "two", "three"):
        (folder / "timestamp.txt").write_text(content)
        check_timestamp(folder)
    assert sorted(path.read_text() for path in folder.iterdir()) == ["one", "three", "two"]


def test_a_timestamp_that_is_a_link_is_not_followed_and_leaves_no_link(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("2024-01-01 10:00:00 UTC")
    (folder / "timestamp.txt").symlink_to(secret)
    assert check_timestamp(folder)
    (left,) = folder.iterdir()
    assert stat.S_ISREG(left.lstat().st_mode)
    assert left.read_text() == f"a symbolic link to {secret}\n"


@pytest.mark.parametrize("content", ["2024-05-06 07:08:09 UTC", "2024-05-06 07:08:09.000001 +0200"])
def test_a_timestamp_that_nbgrader_can_read_stays(folder, content):
    (folder / "timestamp.txt").write_text(content)
    assert check_timestamp(folder) is None
    assert (folder / "timestamp.txt").read_text() == content


def test_a_folder_without_a_timestamp_needs_nothing(folder):
    assert check_timestamp(folder) is None


def test_a_folder_about_to_be_graded_holds_nothing_that_nbgrader_would_follow(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "answers.csv").symlink_to("/etc/passwd")
    (folder / "data").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    (folder / "[a]").mkdir()
    for name in (".notes.ipynb", "Notes.IPYNB", "[a]/notes.ipynb", "sub/notes.ipynb"):
        (folder / name).symlink_to("/dev/zero")
    for name in ("large.csv", ".large.csv", "[a]/large.csv"):
        os.truncate(put(folder, name, ""), 40 * 2**30)
    put(folder, "small.csv", "1,2")
    put(folder, "timestamp.txt", "never")
    notebooks = [str(put(folder, "Untitled.ipynb"))]
    before_grading(assignment=LAB, student="*", notebooks=notebooks)
    assert notebooks == [str(folder / f"{LAB}.ipynb")]
    modes = [path.lstat().st_mode for path in folder.rglob("*")]
    assert all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes)
    assert (folder / "answers.csv.unreadable").read_text() == "a symbolic link to /etc/passwd\n"
    ignored = ["*.ipynb", "*.unreadable*"]  # nbgrader and its configuration
    copied = {os.path.relpath(path, folder) for path in find_all_files(str(folder), ignored)}
    assert copied == {"small.csv"}
    assert len([path for path in folder.glob("*large.csv*") if path.stat().st_size == 40 * 2**30]) == 3
    before = sorted(map(str, folder.rglob("*")))
    before_grading(assignment=LAB, student="*", notebooks=notebooks)
    assert sorted(map(str, folder.rglob("*"))) == before


def test_a_folder_about_to_be_graded_holds_no_more_files_than_nbgrader_can_find_in_seconds(folder):
    (folder / "sub").mkdir()
    for number in range(1500):
        put(folder, f"{number}.csv", "")
        put(folder / "sub", f"{number}.ipynb", "")
    needed = {put(folder, name, "2026-03-02 10:00:00 UTC").name for name in (f"{LAB}.ipynb", "timestamp.txt")}
    before_grading(assignment=LAB, student="*", notebooks=[str(folder / f"{LAB}.ipynb")])
    left = [path for path in folder.rglob("*") if "more.unreadable" not in path.parts]
    assert len(left) <= 1000 and needed <= {path.name for path in left}
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 3002


def test_what_is_not_opened_is_named_unless_it_is_refused_as_the_notebook(folder):
    (folder / ".link.ipynb").symlink_to("/etc/passwd")
    os.truncate(put(folder, "Data.IPYNB", ""), 40 * 2**30)
    assert left_out(folder) == []
    put(folder, f"{LAB}.ipynb")
    [said] = left_out(folder)
    assert ".link.ipynb (a symbolic link)" in said and "Data.IPYNB (larger than 20 MB)" in said and LAB not in said


# In nbgrader


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"), [LAB])
    with (root / "nbgrader_config.py").open("a") as file:
        file.write(
            "\nfrom coursegrader.submissions import ReadSubmission, before_grading\n"
            "c.Autograde.exporter_class = ReadSubmission\n"
            "c.Autograde.pre_convert_hook = before_grading\n"
        )
    return Lab(root, LAB)


def test_an_unknown_lab_is_named(course):
    with pytest.raises(GradingError, match="lab-99"):
        instructor_notebook(course.root, "lab-99")


def test_the_released_version_is_that_of_nbgrader(course):
    assert [cell.source for cell in release_of(course.source).cells] == [cell.source for cell in course.released.cells]


def test_nbgrader_finds_nothing_to_change_in_a_repaired_notebook(course, hand_in, notebook, caplog):
    cells = notebook["cells"]
    find(notebook, "fit-line-1")["source"] = "pass"
    find(notebook, "fit-line-2")["metadata"]["nbgrader"]["points"] = 99
    find(notebook, "best-degree")["cell_type"] = "raw"
    cells.remove(find(notebook, "fit-line-3"))
    cells.append({**find(notebook, "fit-line"), "source": "x = 1"})
    random.Random(1).shuffle(cells)
    repaired = hand_in(notebook).notebook
    expected = copy.deepcopy(repaired.cells)
    resources = {
        "nbgrader": {"notebook": LAB, "assignment": LAB, "db_url": f"sqlite:///{course.root / 'gradebook.db'}"}
    }
    with caplog.at_level(logging.WARNING):
        for step in (DeduplicateIds(), OverwriteCells(), CheckCellMetadata()):
            step.log = logging.getLogger("nbgrader-steps")
            repaired, _ = step.preprocess(repaired, resources)
    assert caplog.messages == []
    for cell in repaired.cells:
        cell.metadata.get("nbgrader", {}).pop("checksum", None)
    assert repaired.cells == expected


def test_broken_submissions_in_the_middle_of_a_class_are_graded_and_the_others_as_usual(course):
    broken = json.dumps(course.released).replace("fit_line", "\0")[:5000]
    twice = copy.deepcopy(course.submitted["perfect"])
    twice.cells.append(copy.deepcopy(find(twice, "fit-line-1")))
    class_ = {
        "ada": (f"{LAB}.ipynb", nbformat.writes(course.submitted["perfect"])),
        "ben": (f"{LAB}.ipynb", broken),
        "cyd": (f"{LAB} (1).ipynb", nbformat.writes(twice)),
        "dan": ("Untitled.ipynb", "not a notebook at all"),
    }
    for student, (name, content) in class_.items():
        folder = course.root / "submitted" / student / LAB
        folder.mkdir(parents=True)
        (folder / name).write_text(content, encoding="utf-8")
    (course.root / "submitted" / "cyd" / LAB / "timestamp.txt").write_text("no date")
    os.truncate(put(course.root / "submitted" / "cyd" / LAB, "large.csv", ""), 40 * 2**30)
    course.nbgrader("autograde", LAB)
    totals, said = course.totals(), {name: course.autograded(name).metadata["mlcourse"] for name in class_}
    automatic = sum(points for name, points in course.points.items() if name not in course.written)
    assert totals == {"ada": automatic, "ben": 0, "cyd": automatic, "dan": 0}
    assert said["ada"]["repairs"] == [] and said["ada"]["refused"] is None
    assert "not JSON" in said["ben"]["refused"]
    assert [path.name for path in (course.root / "autograded" / "cyd" / LAB).iterdir()] == [f"{LAB}.ipynb"]
    assert [said["cyd"]["refused"], *map(first_word, said["cyd"]["repairs"])] == [None, "The", "timestamp.txt", "The"]
    assert "Untitled.ipynb" in said["dan"]["repairs"][0]


def test_nbgrader_grades_no_folder_whose_name_is_html(course):
    student = 'x"><b>y'
    folder = course.root / "submitted" / student / LAB
    folder.mkdir(parents=True)
    nbformat.write(course.submitted["perfect"], folder / f"{LAB}.ipynb")
    command = [sys.executable, "-m", "nbgrader", "autograde", LAB, "--student", student]
    run = subprocess.run(command, cwd=course.root, capture_output=True, text=True, check=False)
    shutil.rmtree(folder.parent)
    assert run.returncode and "into its pages as HTML: rename the folder" in run.stderr
    assert not (course.root / "autograded" / student).exists()


def first_word(sentence):
    return sentence.split()[0]
