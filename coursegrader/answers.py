"""Read the answers that prove the tests of a lab: ``tests/answers/LAB.yml``.

For every solution cell, the file holds under its grade_id

- ``wrong``: answers that students give, each with the test cells that it ``loses`` and words of the message there,
- ``right``: answers that keep every point, although they differ from the instructor's,
- ``equivalent``: the mechanical mutants of the instructor's answer that no test cell can notice, each with the reason,
- ``promises``: by the first words of each sentence that promises something (`coursegrader.promises`), the names of the
  wrong answers that break it, or why no answer can.
"""

from pathlib import Path

import yaml

from coursegrader import GradingError

PARTS = {"wrong": list, "right": list, "equivalent": dict, "promises": dict}
KINDS = {list: "a list", dict: "a mapping", str: "a text"}


def read_answers(path: Path, exercises: dict[str, list[str]]) -> dict:
    """Read a file of answers and refuse what is not well formed.

    Parameters
    ----------
    path : pathlib.Path
        The file, see the module's docstring.
    exercises : dict
        The cells of the lab: ``{grade_id of a solution cell: [grade_id of a test cell, ...]}``.

    Returns
    -------
    dict
        The content of the file.

    Raises
    ------
    GradingError
        If there is no such file, if it is not YAML, lacks a part, or names a cell that the lab does not have.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GradingError(f"{path}: there is no such file: write the lab's right and wrong answers there") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise GradingError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from None
    try:
        _check_names(_of_kind(given, dict, "the file"), exercises, "solution cell", "the lab")
        if missing := [name for name in exercises if name not in given]:
            raise GradingError(f"the solution cell {missing[0]} has no answers: write some under its name")
        for exercise, tests in exercises.items():
            _check_exercise(given[exercise], exercise, tests)
    except GradingError as error:
        raise GradingError(f"{path}: {error}") from None
    return given


def _check_exercise(given, exercise, tests):
    _check_keys(given, PARTS, exercise)
    for kind, keys in (("wrong", {"name": str, "code": str, "loses": dict}), ("right", {"name": str, "code": str})):
        for number, answer in enumerate(given[kind], start=1):
            where = f"{exercise}, {kind} answer {number}"
            _check_keys(answer, keys, where)
            _check_texts(answer.get("loses", {}), f"{where}, loses")
            _check_names(answer.get("loses", {}), tests, "test cell", f"{where}, loses: the exercise")
    _check_texts(given["equivalent"], f"{exercise}, equivalent")
    names = [answer["name"] for answer in given["wrong"]]
    for words, held in given["promises"].items():
        if isinstance(held, list):
            _check_names(held, names, "wrong answer", f"{exercise}, promises, {words}: the exercise")
        else:
            _check_texts({words: held}, f"{exercise}, promises")


def _check_keys(given, keys, where):
    if set(_of_kind(given, dict, where)) != set(keys):
        raise GradingError(f"{where} must have the keys {_list(keys)}, not {_list(given)}")
    for key, kind in keys.items():
        _of_kind(given[key], kind, f"{where}, {key}")


def _check_texts(given, where):
    for key, value in given.items():
        _of_kind(key, str, f"{where}: the name {key!r}")
        _of_kind(value, str, f"{where}, {key}")


def _check_names(given, known, what, owner):
    if unknown := [name for name in given if name not in known]:
        raise GradingError(f"{owner} has no {what} {unknown[0]!r}: write one of {_list(known)}")


def _of_kind(value, kind, where):
    if not isinstance(value, kind):
        raise GradingError(f"{where} must be {KINDS[kind]}, not {value!r:.60}")
    return value


def _list(names):
    return ", ".join(map(str, names)) or "none"
