"""Audit a lab: try its test cells on right, wrong and mutated answers, and write a page with the results.

The answers are in ``tests/answers/LAB.yml``, see `coursegrader.answers`; the mutants are made from the
instructor's solution, see `coursegrader.mutants`. A problem is a sentence that says what is not proved; the rules
at the end of this module find the problems.
"""

import ast
import copy
import difflib
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearSolutions

from coursegrader.answers import read_answers
from coursegrader.labs import ROOT, grade_id, grader, read_lab
from coursegrader.mutants import mutants
from coursegrader.promises import promises
from coursegrader.trial import naming, solution_cells, test_cells, try_answers

UNSOLVED = ("is not written yet", "is not defined")
HINT = "CheckFailed: "
KINDS = ("instructor", "unsolved", "right", "wrong", "mutant")


@dataclass
class Answer:
    """An answer to an exercise, and the messages of the test cells.

    `kind` is one of `KINDS`. For a wrong answer, `expected` holds the test cells that it should lose, with words of
    the message there; `lost` holds those that it lost, with the message.
    """

    kind: str
    name: str
    code: str
    expected: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def record(self, messages: Mapping[str, str | None]) -> None:
        """Record the message of each test cell, None if it passed."""
        self.lost = {test: message for test, message in messages.items() if message is not None}


@dataclass
class TestCell:
    """A test cell: `wrong` are the wrong answers that lose it, `caught` the mutants that do.

    `hints` counts how many of both got each of its messages.
    """

    name: str
    points: int
    code: str
    wrong: list[Answer]
    caught: list[Answer]
    hints: Counter

    __test__ = False


@dataclass
class Exercise:
    """An exercise: the solution, all answers, its test cells as `tests` and their results as `cells`.

    `equivalent` holds the mutants that the file of answers declares equivalent, with the reason for each. `promised`
    are the sentences of its text that promise something; `promises` holds, by the first words of each, the names of the
    wrong answers that break it, or why no answer can.
    """

    name: str
    solution: str
    answers: list[Answer]
    equivalent: dict[str, str]
    tests: list[NotebookNode]
    promised: list[str]
    promises: dict[str, list[str] | str]

    @property
    def cells(self) -> list[TestCell]:
        return [_outcome(test, self.answers) for test in self.tests]

    def of_kind(self, kind: str) -> list[Answer]:
        return [answer for answer in self.answers if answer.kind == kind]

    @property
    def held(self) -> list[tuple[str, list[Answer] | str | None]]:
        """Each promise with the wrong answers that break it, why no answer can, or None if the file says neither."""
        wrong = {answer.name: answer for answer in self.of_kind("wrong")}
        found = []
        for sentence in self.promised:
            how = next((how for words, how in self.promises.items() if sentence.startswith(words)), None)
            found.append((sentence, [wrong[name] for name in how] if isinstance(how, list) else how))
        return found

    @property
    def survivors(self) -> list[Answer]:
        """The mutants that no test cell noticed."""
        return [mutant for mutant in self.of_kind("mutant") if not mutant.lost]


@dataclass
class Audit:
    """The results of all answers to a lab; `strays` are its test cells that belong to no exercise."""

    lab: str
    exercises: list[Exercise]
    strays: list[str]
    seconds: float

    def of_kind(self, kind: str) -> list[Answer]:
        return [answer for exercise in self.exercises for answer in exercise.of_kind(kind)]

    @property
    def survivors(self) -> int:
        """The number of mutants that no test cell noticed."""
        return sum(len(exercise.survivors) for exercise in self.exercises)

    @property
    def caught(self) -> int:
        """The number of mutants that a test cell noticed."""
        return len(self.of_kind("mutant")) - self.survivors

    @property
    def equivalents(self) -> int:
        """The number of mutants that survived and are declared equivalent."""
        return sum(mutant.name in one.equivalent for one in self.exercises for mutant in one.survivors)

    @property
    def noticeable(self) -> int:
        """The number of mutants that a test cell should notice."""
        return len(self.of_kind("mutant")) - self.equivalents

    @property
    def problems(self) -> list[str]:
        """What is not proved, one sentence per line."""
        return [" ".join(problem.split()) for rule in RULES for problem in rule(self)]

    @property
    def summary(self) -> str:
        right, wrong, mutated = (len(self.of_kind(kind)) for kind in ("right", "wrong", "mutant"))
        return (
            f"{self.lab}: {wrong} wrong answers, {right} right answers; {self.caught} of {mutated} mutants caught "
            f"({_share(self.caught, mutated)}), of those that are no equivalents {self.caught} of {self.noticeable} "
            f"({_share(self.caught, self.noticeable)}); {self.seconds:.0f} s"
        )


def audit(
    lab: str,
    root: Path = ROOT,
    secret: tuple[int, ...] = (),
    kinds: Collection[str] = KINDS,
    brief: bool = False,
) -> Audit:
    """Try right, wrong and mutated answers on the test cells of a lab.

    Parameters
    ----------
    lab : str
        The name of the lab, for instance ``"lab-01-toy-regression"``.
    root : pathlib.Path
        The folder of the course, which holds ``solutions/LAB.md`` and ``tests/answers/LAB.yml``.
    secret : tuple of int
        A secret of a course, which gives the hidden tests other data.
    kinds : collection of str
        The `KINDS` of answers to try. The others are in the audit without messages, but mutants are not made.
    brief : bool
        Whether to stop trying a mutant at the first test cell that notices it, and to skip given cells that no test
        needs.

    Returns
    -------
    Audit

    Raises
    ------
    GradingError
        If the lab or its answers are not well formed, or the instructor's version cannot be run.
    """
    begin = time.perf_counter()
    notebook = read_lab(root / "solutions" / f"{lab}.md")
    released, _ = ClearSolutions().preprocess(copy.deepcopy(notebook), {})
    cells, stubs = solution_cells(notebook), solution_cells(released)
    tests = {name: test_cells(notebook, name) for name in cells}
    given = read_answers(root / "tests" / "answers" / f"{lab}.yml", tests)
    mutated = "mutant" in kinds
    answers = {name: _answers(cell, stubs[name].source, given[name], mutated) for name, cell in cells.items()}
    tried = {name: [one for one in some if one.kind in kinds] for name, some in answers.items()}
    # The mutants are the last of the answers
    quick = {name: [one.code for one in some if brief and one.kind == "mutant"] for name, some in tried.items()}
    whole = {name: [one.code for one in some[: len(some) - len(quick[name])]] for name, some in tried.items()}
    messages = try_answers(notebook, whole, secret, quick, everything=not brief)
    for name, some in tried.items():
        for answer, said in zip(some, messages[name], strict=True):
            answer.record(said)
    exercises = [
        Exercise(
            name,
            re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", cell.source, flags=re.MULTILINE),
            answers[name],
            given[name]["equivalent"],
            list(tests[name].values()),
            promises(notebook, name),
            given[name]["promises"],
        )
        for name, cell in cells.items()
    ]
    owned = {test for some in tests.values() for test in some}
    graded = [grade_id(cell) for cell in notebook.cells if cell.cell_type == "code" and grader(cell).get("grade")]
    return Audit(lab, exercises, [test for test in graded if test not in owned], time.perf_counter() - begin)


def _answers(cell, stub, given, mutated):
    """Return all answers to a solution cell."""
    with naming(cell):
        changed = list(mutants(cell.source)) if mutated else []
    return [
        Answer("instructor", "the instructor's answer", cell.source),
        Answer("unsolved", "the exercise as it is released", stub),
        *(Answer("right", answer["name"], answer["code"]) for answer in given["right"]),
        *(Answer("wrong", answer["name"], answer["code"], answer["loses"]) for answer in given["wrong"]),
        *(Answer("mutant", change, code) for change, code in changed),
    ]


def _outcome(cell, answers):
    name = grade_id(cell)
    wrong, caught = (
        [answer for answer in answers if answer.kind == kind and name in answer.lost] for kind in ("wrong", "mutant")
    )
    hints = Counter(sentence(answer.lost[name]) for answer in wrong + caught)
    return TestCell(name, grader(cell)["points"], cell.source, wrong, caught, hints)


def sentence(message: str) -> str:
    """Return the part of a test cell's message that students read."""
    return message.removeprefix(HINT)


def run_audit(lab: str, root: Path = ROOT) -> int:
    """Audit a lab, write ``reports/audit-LAB.html``, and print one line for each problem and a summary.

    Returns
    -------
    int
        The exit code: 1 if there are problems, else 0.

    Raises
    ------
    GradingError
        As `audit`.
    """
    print(f"Trying right, wrong and mutated answers to {lab} ...", file=sys.stderr, flush=True)
    result = audit(lab, root)
    page = write_page(result, root / "reports" / f"audit-{lab}.html")
    for problem in result.problems:
        print(problem)
    print(f"{result.summary}; {_count(len(result.problems), 'problem')}: see {page}")
    return 1 if result.problems else 0


def write_page(audit: Audit, path: Path) -> Path:
    """Write the results of an audit as one self-contained HTML page, and return its path."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"sentence": sentence, "count": _count}
    environment.tests["hint"] = lambda message: message.startswith(HINT)
    path.parent.mkdir(parents=True, exist_ok=True)
    page = environment.get_template("audit.html.jinja").render(audit=audit, changed_lines=changed_lines)
    path.write_text(page, encoding="utf-8")
    return path


def changed_lines(solution: str, mutated: str) -> list[str]:
    """Return the lines of a solution that a mutant removes (``-``) and those that it adds (``+``)."""
    before, after = (ast.unparse(ast.parse(code)).splitlines() for code in (solution, mutated))
    _, _, *lines = difflib.unified_diff(before, after, n=0, lineterm="")
    return [line for line in lines if not line.startswith("@@")]


def is_hint(message: str, *words: str) -> bool:
    """Whether a message comes from `mlcourse.checks` and contains one of the words."""
    return message.startswith(HINT) and any(some in message for some in words)


def missing_tests(audit: Audit) -> Iterator[str]:
    """Every exercise has test cells, and every test cell an exercise."""
    for exercise in audit.exercises:
        if not exercise.cells:
            yield f"{exercise.name}: no test cell belongs to it: name one {exercise.name}-1"
    for name in audit.strays:
        yield f"{name}: this test cell is tried on no answer: begin its name with that of a solution cell and a hyphen"


def lost_by_the_instructor(audit: Audit) -> Iterator[str]:
    """The instructor's solution keeps every point."""
    for exercise in audit.exercises:
        yield from _losses(exercise, "instructor")


def lost_by_right_answers(audit: Audit) -> Iterator[str]:
    """Right answers keep every point."""
    for exercise in audit.exercises:
        yield from _losses(exercise, "right")


def kept_by_the_unsolved(audit: Audit) -> Iterator[str]:
    """An exercise without an answer loses every point, and each test cell says why."""
    for exercise in audit.exercises:
        for answer in exercise.of_kind("unsolved"):
            for cell in exercise.cells:
                message = answer.lost.get(cell.name)
                if message is None:
                    yield f"{exercise.name}, {answer.name}: should lose {cell.name}, and keeps it"
                elif not is_hint(message, *UNSOLVED):
                    yield f"{cell.name} should say that {exercise.name} is not written yet; it says: {message}"


def other_losses_of_wrong_answers(audit: Audit) -> Iterator[str]:
    """Wrong answers lose exactly the test cells that they should."""
    for exercise in audit.exercises:
        for answer in exercise.of_kind("wrong"):
            if not answer.lost or set(answer.lost) != set(answer.expected):
                yield (
                    f"{exercise.name}, wrong answer '{answer.name}': should lose {_list(answer.expected)}, "
                    f"loses {_list(answer.lost)}"
                )


def other_hints_to_wrong_answers(audit: Audit) -> Iterator[str]:
    """The message to a wrong answer names its mistake."""
    for exercise in audit.exercises:
        for answer in exercise.of_kind("wrong"):
            for cell, words in answer.expected.items():
                message = answer.lost.get(cell, "nothing")
                if not is_hint(message, words):
                    yield (
                        f"{exercise.name}, wrong answer '{answer.name}': {cell} should say '{words}'; "
                        f"it says: {message}"
                    )


def cells_without_wrong_answers(audit: Audit) -> Iterator[str]:
    """Every test cell has three wrong answers that lose it."""
    for exercise in audit.exercises:
        for cell in exercise.cells:
            if len(cell.wrong) < 3:
                number = _count(len(cell.wrong), "wrong answer")
                yield f"{cell.name}: {number} can show that it works: at least 3 should"


def exercises_without_right_answers(audit: Audit) -> Iterator[str]:
    """Every exercise has two right answers beside the instructor's."""
    for exercise in audit.exercises:
        if (number := len(exercise.of_kind("right"))) < 2:
            yield f"{exercise.name}: {_count(number, 'right answer')} beside the instructor's: write at least 2"


def repeated_names(audit: Audit) -> Iterator[str]:
    """No two answers of one kind to an exercise have the same name."""
    for exercise in audit.exercises:
        for kind in ("right", "wrong"):
            for name, number in Counter(answer.name for answer in exercise.of_kind(kind)).items():
                if number > 1:
                    yield f"{exercise.name}: {number} {kind} answers have the name '{name}': name them apart"


def unexplained_mutants(audit: Audit) -> Iterator[str]:
    """Every mutant is caught or explained in the file of answers, which explains no others."""
    for exercise in audit.exercises:
        survivors = [mutant.name for mutant in exercise.survivors]
        for change in survivors:
            if change not in exercise.equivalent:
                yield (
                    f"{exercise.name}, no test cell notices this mutant: {change}: test for it, or give the reason "
                    "under `equivalent`"
                )
        for change in exercise.equivalent:
            if change not in survivors:
                yield f"{exercise.name}, declared equivalent, but no such mutant survives: {change}"


def promises_that_nothing_holds(audit: Audit) -> Iterator[str]:
    """Every promise is broken by a wrong answer that loses a point, or the file of answers says why none can."""
    for exercise in audit.exercises:
        for sentence, how in exercise.held:
            if not how:
                yield (
                    f"{exercise.name}, nothing holds this promise: '{sentence}': name under `promises` the wrong "
                    "answers that break it, or say why no answer can"
                )
            elif isinstance(how, list) and not any(answer.expected for answer in how):
                yield f"{exercise.name}, the answers that break this promise keep every point: '{sentence}'"
        for words in exercise.promises:
            if sum(sentence.startswith(words) for sentence in exercise.promised) != 1:
                yield f"{exercise.name}, not exactly one promise begins with '{words}': write more words, or delete it"


RULES = (
    missing_tests,
    lost_by_the_instructor,
    kept_by_the_unsolved,
    lost_by_right_answers,
    other_losses_of_wrong_answers,
    other_hints_to_wrong_answers,
    cells_without_wrong_answers,
    exercises_without_right_answers,
    repeated_names,
    unexplained_mutants,
    promises_that_nothing_holds,
)


def _losses(exercise, kind):
    for answer in exercise.of_kind(kind):
        for cell, message in answer.lost.items():
            yield f"{exercise.name}, {kind} answer '{answer.name}': loses {cell}: {message}"


def _list(names):
    return ", ".join(sorted(names)) or "nothing"


def _count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def _share(part, whole):
    return f"{part / whole:.1%}" if whole else "none"
