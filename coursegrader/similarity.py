"""Find submissions whose own code is nearly the same: a reason to ask, never a verdict.

Answers to the same exercise are compared without given code, comments, docstrings, layout and the names that the
student chose. Short answers are alike in every class, so what counts is not how alike two answers are, but how many
others are as alike: an answer of half of the class says nothing, one that only two students share says much.
"""

import ast
import re
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist
from traitlets import Float, Int
from traitlets.config import Configurable

from coursegrader.names import parsed

LEAST_CLASS = 5  # students: among fewer, nothing is rare
LONGEST_CELL = 2_000  # tokens


@dataclass
class Likeness:
    """How alike two answers to an exercise are, from 0 to 1, and how many other students are as close to either."""

    grade_id: str
    alike: float
    others: int


@dataclass
class Pair:
    """Two students whose code is nearly the same; `exercises` are those that show it, the rarest likeness first."""

    students: tuple[str, str]
    rarity: float
    exercises: list[Likeness]


class SimilarPairs(Configurable):
    """Which pairs of students the report lists."""

    least_alike = Float(0.75, min=0, max=1, help="Similarity below which two answers count as different").tag(
        config=True
    )
    # Classes of 10 to 300 made of answers drawn at random rarely have a pair above the default
    least_rarity = Float(0.36, min=0, max=1, help="Rarity from which a pair is listed").tag(config=True)
    most = Int(20, min=0, help="Number of pairs that are shown, the rarest first").tag(config=True)


def similar_pairs(
    code: dict[str, dict[str, str]], stub: dict[str, str], chosen: SimilarPairs | None = None
) -> list[Pair]:
    """Compare the answers of all pairs of students, and return the pairs that are alike where others are not.

    Two answers to an exercise are alike by the normalised Indel similarity of their tokens: twice the length of their
    longest common subsequence over the sum of their lengths. If n students answered, and k of the n - 1 others,
    the partner among them, are at least as close to a student as the partner is (the larger k of both), the exercise
    adds ln((n - 1) / k) to the rarity of the pair, or nothing if the similarity is below `least_alike`. The sum is
    divided by its largest possible value, so that a rarity of 1 means: in every exercise, no other answer is as close.
    Pairs of at least `least_rarity` are returned.

    Parameters
    ----------
    code : dict of dict of str
        Source of the solution cells, by student and grade_id.
    stub : dict of str
        Source of the released solution cells, by grade_id; this code is no student's own.
    chosen : SimilarPairs, optional
        The thresholds. `most` is that of the report.

    Returns
    -------
    list of Pair
        The rarest pair first. Empty for fewer than `LEAST_CLASS` students.
    """
    chosen, students = chosen or SimilarPairs(), sorted(code)
    rarity, largest, compared = np.zeros((len(students), len(students))), 0.0, {}
    for grade_id in sorted({name for cells in code.values() for name in cells}):
        given = set(_lines(stub.get(grade_id, "")))
        answers = {at: tokens(code[one].get(grade_id, ""), given) for at, one in enumerate(students)}
        answers = {at: answer for at, answer in answers.items() if answer}
        if len(answers) >= LEAST_CLASS:
            alike, closer = _compare(list(answers.values()))
            adds = np.log((len(answers) - 1) / closer) * (alike >= chosen.least_alike)
            rarity[np.ix_(list(answers), list(answers))] += adds
            largest += np.log(len(answers) - 1)
            compared[grade_id] = {at: row for row, at in enumerate(answers)}, alike, closer, adds
    rarity /= largest or 1
    pairs = np.argwhere(np.triu(rarity >= chosen.least_rarity, k=1)).tolist()
    pairs.sort(key=lambda pair: (-rarity[*pair], pair))
    return [Pair((students[i], students[j]), float(rarity[i, j]), _likenesses(i, j, compared)) for i, j in pairs]


def _likenesses(i, j, compared):
    """Return the exercises that add to the rarity of a pair, the largest contribution first."""
    found = []
    for grade_id, (row, alike, closer, adds) in compared.items():
        if i in row and j in row and adds[row[i], row[j]] > 0:
            at = row[i], row[j]
            found.append((adds[at], Likeness(grade_id, float(alike[at]), int(closer[at]) - 1)))
    return [likeness for _, likeness in sorted(found, key=lambda one: -one[0])]


def _compare(answers):
    """Return the similarity of all pairs of answers, and how many answers are at least as close to either of them."""
    alike = cdist(answers, answers, scorer=Indel.normalized_similarity, dtype=np.float64)
    np.fill_diagonal(alike, -1)
    closer = np.array([len(row) - np.searchsorted(np.sort(row), row) for row in alike])
    closer = np.maximum(closer, closer.T)
    np.fill_diagonal(closer, len(answers))
    return alike, closer


def tokens(source: str, given: set[str] = frozenset()) -> list[str]:
    """Return the tokens of a cell, normalised, without the normalised lines that were `given`."""
    own = "\n".join(line for line in _lines(source) if line not in given)
    return re.findall(r"\w+|[^\w\s]", own)[:LONGEST_CELL]


def _lines(source):
    return [line.strip() for line in normalised(source).splitlines()]


def normalised(source: str) -> str:
    """Return code without comments, docstrings, layout and the names of variables and arguments.

    If Python cannot parse the code, or not without much memory, only comments are removed.
    """
    source = re.sub(r"^[^\S\n]*[%!].*$", "", source[: 50 * LONGEST_CELL], flags=re.MULTILINE)
    try:
        if tree := parsed(source):
            return ast.unparse(_Anonymous(_bound_names(tree)).visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return re.sub(r"#.*", "", source)


def _bound_names(tree):
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname)
    return names


class _Anonymous(ast.NodeTransformer):
    """Replace names by the same letter, and drop docstrings, annotations and the like."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        return ast.Name("v" if node.id in self.names else node.id, node.ctx)

    def visit_arg(self, node):
        return ast.arg("v")

    def visit_alias(self, node):
        return ast.alias(node.name, "v" if node.asname else None)

    def visit_Expr(self, node):
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)
