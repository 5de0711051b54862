"""Versions agree with pyproject.toml everywhere, and the set-up explains what a fresh machine lacks."""

import os
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from sphinxcontrib.katex import katex_version

import mlcourse
from mlcourse.settings import setting
from mlcourse.setup_cell import students_repository
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
GROUPS = PROJECT["optional-dependencies"]
EVERYTHING = [*PROJECT["dependencies"], *(one for name in ("book", "grade", "test") for one in GROUPS[name])]
DEPENDENCIES = {one.name: one for one in map(Requirement, EVERYTHING)}


def locked(file="requirements.lock"):
    """Yield name, version, marker and number of hashes of each entry in a lock file."""
    for entry in re.split(r"\n(?=\w)", (ROOT / file).read_text("utf-8").replace("\\\n", " ")):
        match = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)\s*(?:;\s*(.*?))?\s*(?=--hash)", entry)
        assert match, f"not an exact version with hashes: {entry[:80]}"
        yield match[1], Version(match[2]), match[3], entry.count("--hash=sha256:")


def test_the_conda_environment_names_the_same_packages_and_ranges():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"]
    pip = next(entry["pip"] for entry in entries if isinstance(entry, dict))
    names = [entry for entry in [*entries, *pip] if isinstance(entry, str) and entry not in ("pip", "--editable .")]
    listed = {one.name: one.specifier for one in map(Requirement, names)}
    assert listed.pop("python") == PROJECT["requires-python"]
    assert listed == {name: one.specifier for name, one in DEPENDENCIES.items()}


def test_every_dependency_is_locked_within_its_range_and_with_hashes():
    versions = {}
    for name, version, _, n_hashes in locked():
        versions.setdefault(name, []).append(version)
        assert n_hashes > 0, name
    for name, requirement in DEPENDENCIES.items():
        assert all(requirement.specifier.contains(version) for version in versions[name]), name


def test_the_style_sheet_of_formulas_is_of_the_version_that_sets_them():
    style = (ROOT / "book" / "_static" / "katex" / "katex.min.css").read_text("utf-8")
    assert re.search(r"katex-version:+after{content:\"([\d.]+)\"", style)[1] == katex_version


def test_what_students_install_is_part_of_the_whole_and_builds_and_checks_nothing():
    everything = {(name, version) for name, version, _, _ in locked()}
    students = {(name, version) for name, version, _, _ in locked("requirements-student.lock")}
    names = {name for name, _ in students}
    assert students <= everything
    assert {one.name for one in map(Requirement, PROJECT["dependencies"])} <= names
    assert not names & {"sphinx", "jupyter-book", "playwright", "pytest", "ruff", "spylls", "axe-playwright-python"}


def test_what_the_students_of_a_hub_get_is_what_students_install_and_the_hub():
    files = ("requirements-student.lock", "deploy/jupyterhub/requirements.lock", "requirements.lock")
    students, hub, everything = ({(name, version) for name, version, *_ in locked(file)} for file in files)
    assert students <= hub <= everything
    assert {one.name for one in map(Requirement, GROUPS["hub"])} <= {name for name, _ in hub}


def test_no_file_names_the_address_of_a_package_index():
    for name in (
        "requirements.lock",
        "requirements-student.lock",
        "deploy/jupyterhub/requirements.lock",
        "pyproject.toml",
        "environment.yml",
        "Makefile",
        ".ci/publish",
        ".ci/run",
        ".ci/setup",
    ):
        text = (ROOT / name).read_text("utf-8")
        for address in (students_repository(), setting("site", ROOT)):
            text = text.replace(address, "")
        assert not re.search(r"https?://|--index|--find-links|--extra-index", text), name
    assert '"resolved"' not in (ROOT / "deploy" / "jupyterhub" / "package-lock.json").read_text("utf-8")


def test_every_dependency_says_why_it_is_there_or_is_one_of_the_owner_s():
    owners = [
        "jupyter-book",
        "jupyterlab",
        "numpy",
        "pandas",
        "geopandas",
        "matplotlib",
        "scikit-learn",
        "nbgrader",
        "nbval",
        "pytest",
    ]
    lines = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    for name in set(DEPENDENCIES) - set(owners):
        listed = [line for line in lines if re.match(rf'\s+"{name}(\[.*\])?[><=]', line)]
        assert listed and all(re.search(r",\s+# [\w`]", line) for line in listed), name


def test_the_version_and_the_address_of_the_course_are_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    assert citation["version"] == PROJECT["version"] == mlcourse.__version__
    assert citation["repository-code"] == config["repository"]["url"]


@pytest.mark.skipif(os.name == "nt", reason="the README gives plain commands for Windows")
class TestSetUp:
    """`.ci/setup`, which make calls on a fresh machine."""

    def set_up(self, tmp_path, python=None):
        (tmp_path / "bin").mkdir()
        if python:
            script = tmp_path / "bin" / "python3"
            script.write_text(f"#!/bin/sh\n{python}\n")
            script.chmod(0o755)
        environment = {"PATH": str(tmp_path / "bin")}
        return subprocess.run(
            ["/bin/sh", ROOT / ".ci" / "setup", tmp_path / "venv", "requirements.lock"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_without_python_it_says_what_to_install(self, tmp_path):
        result = self.set_up(tmp_path)
        assert result.returncode == 1
        assert result.stderr.startswith("Error: no Python 3.11 or newer was found") and result.stderr.count("\n") == 1

    def test_an_old_python_is_none(self, tmp_path):
        result = self.set_up(tmp_path, python="exit 1")
        assert result.returncode == 1 and "no Python 3.11 or newer" in result.stderr

    def test_without_the_venv_module_it_says_how_to_get_it(self, tmp_path):
        result = self.set_up(tmp_path, python='case "$2" in *ensurepip*) exit 1;; esac')
        assert result.returncode == 1
        assert "apt-get install python3-venv" in result.stderr and result.stderr.count("\n") == 1
