"""The helper for students, the site builder and the grader import only themselves and the helper."""

import ast
import subprocess
import sys
import types

import pytest

from coursebook import build
from coursegrader import result_cache
from mlcourse import cli
from paths import ROOT

MAY_IMPORT = {
    "mlcourse": {"mlcourse"},
    "coursebook": {"coursebook", "mlcourse"},
    "coursegrader": {"coursegrader", "mlcourse"},
}


def imported(path):
    """Return the first parts of the names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_the_helper_and_itself_and_no_other_package_of_the_course(package):
    modules = sorted((ROOT / package).rglob("*.py"))
    others = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules
        for name in imported(path)
        if name in MAY_IMPORT.keys() - MAY_IMPORT[package]
    }
    assert modules and not others


# The packages that the tests of a folder may import; the browser tests may import all
TESTS_IMPORT = {
    "helper": {"mlcourse"},
    "book": {"mlcourse", "coursebook"},
    "labs": {"mlcourse", "coursegrader"},
    "grading": {"mlcourse", "coursegrader"},
}


@pytest.mark.parametrize("folder", TESTS_IMPORT)
def test_a_change_of_another_room_cannot_change_what_the_tests_of_a_room_say(folder):
    modules = sorted((ROOT / "tests" / folder).glob("*.py"))
    used = {name for path in modules for name in imported(path) if name in MAY_IMPORT}
    assert modules and used <= TESTS_IMPORT[folder]


def test_the_helper_names_no_other_package():
    texts = {path: path.read_text("utf-8") for path in (ROOT / "mlcourse").rglob("*.py")}
    assert not [path for path, text in texts.items() if "coursegrader" in text or "coursebook" in text]


def commands(capsys):
    """Return the commands that the help of ``mlcourse`` lists."""
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    return {
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ") and line.strip()
    }


def test_the_helper_alone_has_the_commands_of_students(capsys, monkeypatch):
    everything = commands(capsys)
    assert {"lab", "update", "doctor", "grade", "collect", "book"} <= everything
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    assert {"lab", "update", "doctor"} <= commands(capsys)
    assert not {"grade", "collect", "book", "release"} & commands(capsys)


def test_a_package_whose_dependencies_are_missing_brings_no_command(capsys, monkeypatch):
    def missing():
        raise ModuleNotFoundError("no module")

    point = types.SimpleNamespace(name="grade", load=missing)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    assert "lab" in commands(capsys) and "grade" not in commands(capsys)


@pytest.mark.parametrize(("package", "module"), [("coursebook", "jupyter_book"), ("coursegrader", "jupytext")])
def test_commands_are_left_out_where_their_group_is_not_installed(package, module):
    code = f"""
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else real(name, *rest)
try:
    import {package}.commands
except ModuleNotFoundError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "group" in said and "not installed" in said


@pytest.mark.parametrize(
    ("file", "grading", "pages", "site"),
    [
        ("coursebook/printing.py", False, False, False),
        ("coursebook/site/lists.py", False, True, True),
        ("coursegrader/sandbox.py", True, False, False),
        ("coursegrader/report.py", False, False, False),
        ("mlcourse/student/update.py", False, False, False),
        ("mlcourse/checks.py", True, False, True),
        ("mlcourse/datasets/environment.py", True, False, True),
        ("requirements.lock", True, True, True),
    ],
)
def test_a_comment_changes_only_what_depends_on_the_file(tmp_path, monkeypatch, file, grading, pages, site):
    for pattern in (*result_cache.DEPENDS_ON, *build.SITE_INPUTS, "coursebook/**/*.py", "mlcourse/**/*.py", file):
        for path in ROOT.glob(pattern):
            if path.is_file() and path.suffix in {".py", ".lock", ".txt"}:
                copy = tmp_path / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(result_cache, "ROOT", tmp_path)

    def fingerprints():
        result_cache.environment_fingerprint.cache_clear()
        found = result_cache.environment_fingerprint(), build.fingerprint(tmp_path, build.CODE)
        return (*found, build.fingerprint(tmp_path, build.SITE_INPUTS))

    try:
        before = fingerprints()
        with (tmp_path / file).open("a") as changed:
            changed.write("# a comment\n")
        assert [old != new for old, new in zip(before, fingerprints(), strict=True)] == [grading, pages, site]
    finally:
        result_cache.environment_fingerprint.cache_clear()
