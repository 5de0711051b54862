"""`mlcourse doctor` finds problems of an installation, and says what to type."""

import ast
import json
import shutil
import sys
import time
import types

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from mlcourse.cli import main
from mlcourse.student import doctor
from paths import ROOT


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A copy of the files that the doctor checks, in the current folder, and settings to fill in."""
    folder = tmp_path / "course"
    shutil.copytree(ROOT / "data", folder / "data")
    (folder / "labs" / "lab-01-trial").mkdir(parents=True)
    for name in ("pyproject.toml", "requirements-student.lock"):
        shutil.copy(ROOT / name, folder)
    monkeypatch.chdir(folder)
    for name, path in {"JUPYTER_CONFIG_PATH": "config", "JUPYTER_PATH": "data"}.items():
        monkeypatch.setenv(name, str(tmp_path / path))
    return folder


def found(check, course):
    """Return the problem that a check finds, with the command to type."""
    with pytest.raises(doctor.Problem) as problem:
        check(course)
    assert problem.value.mend and all(problem.value.mend)
    return f"{problem.value}: {'; '.join(problem.value.mend)}"


def test_this_installation_is_well_and_that_is_known_in_under_five_seconds(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    begin = time.perf_counter()
    with pytest.raises(SystemExit) as exit:
        main(["doctor"])
    seconds = time.perf_counter() - begin
    said = capsys.readouterr().out
    assert exit.value.code == 0 and "All is well." in said, said
    assert seconds < 5


def test_every_problem_is_listed_with_what_to_type_and_the_exit_code_says_so(course, capsys):
    (course / "data" / "play_tennis.csv").unlink()
    shutil.rmtree(course / "labs" / "lab-01-trial")
    assert doctor.run_doctor(course) == 1
    lines = capsys.readouterr().out.splitlines()
    problems = [number for number, line in enumerate(lines) if line.startswith("PROBLEM")]
    assert len(problems) == 2 and all(lines[number + 1].strip().startswith("type: ") for number in problems)


def test_an_old_python_can_read_the_doctor_and_is_told(course, monkeypatch):
    for path in ("mlcourse/cli.py", "mlcourse/student/__init__.py", "mlcourse/student/doctor.py"):
        ast.parse((ROOT / path).read_text("utf-8"), feature_version=(3, 8))
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    assert "3.11 or newer" in found(doctor.check_python, course)


@pytest.mark.parametrize("name", ["nbgrader", "alembic"], ids=["named by the course", "needed by another package"])
def test_a_missing_package_is_named(course, monkeypatch, name):
    monkeypatch.setattr(doctor, "installed", lambda one, real=doctor.installed: None if one == name else real(one))
    problem = found(doctor.check_packages, course)
    assert f"1 package missing: {name}" in problem and "-r requirements-student.lock" in problem


def test_a_version_that_the_course_does_not_admit_is_named_and_another_one_that_it_admits_is_not(course, monkeypatch):
    versions = {"numpy": "1.26.4"}
    monkeypatch.setattr(doctor, "installed", lambda one, real=doctor.installed: versions.get(one) or real(one))
    assert "numpy 1.26.4 instead of >=2.0" in found(doctor.check_packages, course)
    versions["numpy"] = "2.999"
    assert "another version than the tested one" in doctor.check_packages(course)


def test_a_course_that_is_not_installed_or_is_another_copy_is_told(course, monkeypatch):
    (course / "mlcourse").mkdir()
    (course / "mlcourse" / "checks.py").touch()
    assert f"you are in {course}" in found(doctor.check_course, ROOT)
    monkeypatch.setattr(doctor, "installed", lambda name: None)
    assert "pip install --no-deps --editable ." in found(doctor.check_course, course)


def test_a_changed_and_a_missing_data_file_are_named(course):
    (course / "data" / "play_tennis.csv").unlink()
    with (course / "data" / "braking_distance.csv").open("a") as file:
        file.write("\n")
    problem = found(doctor.check_data, course)
    assert "missing play_tennis.csv and changed braking_distance.csv" in problem


def test_a_kernel_that_does_not_know_the_course_is_found_with_what_removes_it(course, tmp_path):
    folder = tmp_path / "data" / "kernels" / doctor.KERNEL
    folder.mkdir(parents=True)
    python = tmp_path / "python-of-another-course"
    python.write_text("#!/bin/sh\necho None None\n")
    python.chmod(0o755)
    (folder / "kernel.json").write_text(json.dumps({"argv": [str(python)], "display_name": "x", "language": "python"}))
    assert KernelSpecManager().get_kernel_spec(doctor.KERNEL).argv == [str(python)]
    assert "jupyter kernelspec remove -y python3" in found(doctor.check_kernel, course)
    (folder / "kernel.json").write_text(json.dumps({"argv": ["/no/python"], "display_name": "x", "language": "python"}))
    assert "/no/python" in found(doctor.check_kernel, course)


def test_buttons_that_are_switched_off_are_found(course, tmp_path):
    path = tmp_path / "config" / "labconfig" / "page_config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"disabledExtensions": {"mlcourse": True}}))
    assert "jupyter labextension enable mlcourse" in found(doctor.check_buttons, course)
    path.unlink()
    assert "the buttons above a lab" in doctor.check_buttons(course)


def test_buttons_that_are_missing_are_found(course, monkeypatch):
    monkeypatch.setattr(doctor, "PLUGIN", course)
    assert "lacks the buttons above a lab" in found(doctor.check_buttons, course)
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "installed", lambda name: None if name == "nbgrader" else "1")
    assert "nbgrader is missing" in found(doctor.check_buttons, course)


def test_a_lab_that_cannot_be_saved_is_found(course, monkeypatch):
    notebook = course / "labs" / "lab-01-trial" / "lab-01-trial.ipynb"
    notebook.touch()
    monkeypatch.setattr(doctor, "os", types.SimpleNamespace(access=lambda *_: False, W_OK=2, name="posix"))
    problem = found(doctor.check_writing, course)
    assert str(notebook) in problem and "sudo chown" in problem
