"""The gradebook in PostgreSQL: the same points as in SQLite, and several people may work in it at once."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

from course import Lab, make_course
from coursegrader.grade import gradebook_of
from coursegrader.labs import nbgrader_config
from mlcourse.cli import main

pytestmark = pytest.mark.nightly

LAB = "lab-01-toy-regression"


@pytest.fixture(scope="module")
def database():
    """The address of a database of a PostgreSQL server of its own, which only this test reaches."""
    programs = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
    lacks = "sudo apt-get install postgresql" if programs is None else None
    if lacks := lacks or (None if find_spec("psycopg") else "pip install 'psycopg[binary]'"):
        message = f"no PostgreSQL: type: {lacks}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    # The server refuses to run as root
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    rights = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    folder = tempfile.mkdtemp(prefix="postgresql-")
    os.chown(folder, user.pw_uid, user.pw_gid)

    def run(program, *options):
        command = [programs / program, *options]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, **rights)

    run("initdb", "--pgdata=data", "--auth=trust", "--username=teacher", "--no-sync")
    run("pg_ctl", "--pgdata=data", "--log=log", f"--options=-k {folder} -h ''", "--wait", "start")
    try:
        run("createdb", f"--host={folder}", "--username=teacher", "mlcourse")
        yield f"postgresql+psycopg://teacher@/mlcourse?host={folder}"
    finally:
        run("pg_ctl", "--pgdata=data", "--mode=immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def lab(tmp_path_factory, bubblewrap):
    """A class of two whose gradebook is in SQLite."""
    lab = Lab(make_course(tmp_path_factory.mktemp("sqlite"), [LAB]), LAB)
    lab.submitted = {name: lab.submitted[name] for name in ("perfect", "half")}
    lab.hand_in()
    return lab


@pytest.fixture(scope="module")
def elsewhere(lab, database, tmp_path_factory):
    """The folder of the same class with its gradebook in PostgreSQL."""
    root = tmp_path_factory.mktemp("postgresql") / "course"
    shutil.copytree(lab.root, root)
    (root / "gradebook.db").unlink()
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"\nc.CourseDirectory.db_url = {database!r}\n")
    assert run(root, "release", LAB) == 0
    return root


def run(root, *words):
    """Run a command in a course folder, and return its exit code, or its message."""
    with contextlib.chdir(root), pytest.raises(SystemExit) as exit:
        main(list(words))
    return exit.value.code


def points(root):
    with gradebook_of(nbgrader_config(root)) as gradebook:
        found = gradebook.find_assignment(LAB).submissions
        return {one.student_id: {grade.name: grade.auto_score for grade in one.notebooks[0].grades} for one in found}


def test_the_points_are_those_of_sqlite_and_no_step_needs_a_file(lab, elsewhere, capsys):
    assert run(lab.root, "grade", LAB) == run(elsewhere, "grade", LAB) == 0
    assert points(elsewhere) == points(lab.root)
    assert set(points(elsewhere)) == {"perfect", "half"}
    for words in (["report", LAB], ["feedback", LAB], ["export", "--unfinished"], ["regrade", LAB]):
        assert run(elsewhere, *words) == 0, words
    assert "2 had not changed" in capsys.readouterr().out
    assert (elsewhere / "feedback" / "half" / LAB / f"{LAB}.html").exists()
    assert not (elsewhere / "gradebook.db").exists()


def test_a_class_is_graded_while_somebody_else_changes_the_gradebook(lab, elsewhere):
    run(elsewhere, "grade", LAB)
    path = elsewhere / "submitted" / "late" / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(lab.submitted["half"], path)
    with gradebook_of(nbgrader_config(elsewhere)) as other:
        grade = other.find_grade(lab.written[0], LAB, LAB, "perfect")
        grade.manual_score = 1
        other.db.flush()  # in SQLite, this would lock the whole gradebook
        assert run(elsewhere, "grade", LAB) == 0
        other.db.commit()
    assert points(elsewhere)["late"] == points(elsewhere)["half"]


def test_a_database_that_is_not_there_is_one_clear_error(elsewhere, database, tmp_path):
    shutil.copy(elsewhere / "nbgrader_config.py", tmp_path)
    (tmp_path / "solutions").mkdir()
    shutil.copy(elsewhere / "solutions" / f"{LAB}.md", tmp_path / "solutions")
    with (tmp_path / "nbgrader_config.py").open("a") as config:
        config.write(f"\nc.CourseDirectory.db_url = {database.replace('/mlcourse', '/nowhere')!r}\n")
    said = run(tmp_path, "report", LAB)
    assert said.startswith("Error: the gradebook does not open") and 'database "nowhere" does not exist' in said
    assert "Traceback" not in said
