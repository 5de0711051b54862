"""Select the tests to run: a plug-in of pytest for `make test` and `make check`.

``--changed`` skips tests that passed before with the same inputs; ``--quick`` skips slow tests.

The inputs of a test are the files of the repository that its folder may read (`READS`). The inputs of a notebook are
its own file and those of the helper. A test of one lab does not have other labs among its inputs. `conftest.py` fails
a test that reads any other file.

Tests marked ``nightly`` run in `make cold`, which sets the environment variable NIGHTLY. Without it they run only if
they are about a chapter, a lab or a deployment with uncommitted changes.
"""

import fnmatch
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess

import pytest

from paths import COURSES, LABS, ROOT

PASSED = ROOT / "_build" / "passed-tests.json"
HELPER = ("*.toml", "*.lock", "mlcourse/", "data/")
SITE = ("book/", "labs/", "solutions/", "coursebook/", "*.yml", "*.bib", "*.md", "*.cff", "LICENSE", "postBuild")
GRADER = ("coursegrader/", "solutions/", "labs/", "*.yml", "nbgrader_config.py", "tests/answers/", "tests/hostile.yml")
SHARED = ("tests/[!t]*.py", "tests/tiny.py")  # the modules in `tests/`, but not the tests there
# The files that the tests of a folder read, in addition to the helper, the modules of `tests/` and of the folder
READS = {
    "tests/helper": ("labs/", "nbgrader_config.py", "*.yml", "*/__init__.py", "*/commands.py"),
    "tests/book": (*SITE, "tests/book/rules.yml"),
    "tests/labs": (*GRADER, ".gitignore"),
    "tests/grading": (*GRADER, "deploy/", "book/on-a-jupyterhub.md", ".ci/setup", ".gitattributes", "*.cff", "LICENSE"),
    "tests/browser": (*SITE, *GRADER, "Makefile", "deploy/", ".ci/setup", ".gitattributes"),
    "tests": ("",),
}
# Quick test files in folders where most are slow
QUICK = ("test_chapters.py", "test_course_map.py", "test_lab_sources.py", "test_regrade.py", "test_export.py")
FOLDERS = [folder.removeprefix("tests/") for folder in READS if "/" in folder]
LEFT_OUT = pytest.StashKey()
NIGHTLY = bool(os.environ.get("NIGHTLY"))
DEPLOYED = ("test_hub.py", "test_kubernetes.py", "test_postgresql.py")


@functools.cache
def hashes():
    """Map each file that git tracks, or would add, to the hash of its content."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return {name: hash_of(name) for name in sorted(names) if (ROOT / name).is_file()}


def hash_of(name):
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


def unit_of(nodeid):
    """Return the file of a test and, for a test of one lab, the labs in the same course.

    The tests of a unit share slow fixtures, so they run together or not at all.
    """
    path, _, name = nodeid.partition("::")
    found = re.search(r"lab-\d\d", name) if path.startswith("tests/labs/") else None
    if not found:
        return path, ()
    labs = [lab for lab in LABS if lab.startswith(found[0])]
    course = next((some for some in COURSES if path.endswith("test_labs.py") and {*labs} & {*some}), labs)
    return path, tuple(course)


@functools.cache
def inputs_of(unit):
    """Return the names of the files that the tests of a unit may read."""
    path, labs = unit
    folder = os.path.dirname(path)
    modules = () if path.endswith(".ipynb") else (*SHARED, f"{folder}/*.py", *READS[folder])
    names = [name for name in hashes() if any(matches(name, pattern) for pattern in (*HELPER, *modules))]
    return [name for name in names if not labs or any(lab in name for lab in labs) or not re.search(r"lab-\d\d", name)]


def matches(name, pattern):
    """Whether a file lies in a folder, or matches a pattern in which a star does not match a slash."""
    if pattern.endswith("/") or not pattern:
        return name.startswith(pattern)
    return name.count("/") == pattern.count("/") and fnmatch.fnmatch(name, pattern)


@functools.cache
def key_of(unit):
    """Return a hash of the inputs of a unit, the platform and the installed programs."""
    programs = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome", "bwrap", "npm")]
    machine = [platform.platform(), platform.python_version(), getattr(os, "geteuid", int)(), *programs]
    content = {name: hashes()[name] for name in inputs_of(unit)}
    return hashlib.sha256(json.dumps([machine, hash_of(unit[0]), content]).encode()).hexdigest()


def passed_before():
    return json.loads(PASSED.read_text("utf-8")) if PASSED.is_file() else {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keep the quick tests, or the units with a test that has not passed with the present inputs."""
    if config.getoption("quick"):
        items[:] = [item for item in items if is_quick(item.nodeid)]
    if config.getoption("changed"):
        passed, units = passed_before(), {}
        for item in items:
            units.setdefault(unit_of(item.nodeid), []).append(item.nodeid)
        done = {unit for unit, names in units.items() if all(passed.get(name) == key_of(unit) for name in names)}
        config.stash[LEFT_OUT] = sum(len(units[unit]) for unit in done)
        items[:] = [item for item in items if unit_of(item.nodeid) not in done]


def is_quick(nodeid):
    """Return whether a test is quick, or is about a chapter or lab with uncommitted changes."""
    path, _, name = nodeid.partition("::")
    if path.endswith(QUICK) or path.startswith(("tests/test_", "tests/helper/")):
        return True
    of_one = re.search(r"lab-\d\d", name if path.startswith("tests/") else path)
    if of_one:
        return any(of_one[0] in changed for changed in uncommitted())
    return (
        path.endswith(".ipynb")
        and f"book/{path.removeprefix('_build/notebooks/').removesuffix('.ipynb')}.md" in uncommitted()
    )


def nightly_but(few, names):
    """Return the names as parameters: `make test` takes a few of them, and `make cold` all."""
    return [name if name in few and not NIGHTLY else pytest.param(name, marks=pytest.mark.nightly) for name in names]


def waits_for_the_night(item):
    """Return whether a test is left to `make cold`."""
    if NIGHTLY or not item.get_closest_marker("nightly"):
        return False
    path, _, name = item.nodeid.partition("::")
    if path.endswith(DEPLOYED):
        return not any(changed.startswith("deploy/") for changed in uncommitted())
    parts = [re.search(r"lab-\d\d|$", changed)[0] or changed.removesuffix(".md") for changed in uncommitted()]
    return not any(part.removeprefix("book/") in name for part in parts if part.startswith(("lab-", "book/")))


@functools.cache
def uncommitted():
    """Return the names of the files that differ from the last commit."""
    command = ["git", "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return {entry[3:] for entry in said.split("\0") if entry}


def pytest_runtest_logreport(report):
    """Record the outcome of each test of the session."""
    if report.when == "setup":
        OUTCOMES[report.nodeid] = True
    OUTCOMES[report.nodeid] &= not report.failed


OUTCOMES = {}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Save which tests passed; a session without tests succeeds if the options left them out."""
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["left out"] = session.config.stash.get(LEFT_OUT, 0)
        return
    passed = passed_before() | {name: key_of(unit_of(name)) if fine else None for name, fine in OUTCOMES.items()}
    PASSED.parent.mkdir(exist_ok=True)
    PASSED.write_text(json.dumps(passed), encoding="utf-8")
    chosen = session.config.getoption("quick") or session.config.stash.get(LEFT_OUT, 0)
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and chosen:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Copy the number of skipped tests from a worker of pytest-xdist; it is the same for all workers."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


def pytest_terminal_summary(terminalreporter, config):
    if number := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{number} tests were left out: they passed before with the same inputs")
