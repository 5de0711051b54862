"""The attacks of `hostile.yml` also fail where an ordinary user grades, who has fewer rights.

Such a user cannot make a control group: the grader itself adds up the memory of a submission.
"""

import os
import subprocess
import sys
import uuid

import pytest
import test_hostile as hostile

from coursegrader.worker import Worker
from paths import ROOT


@pytest.fixture(scope="module")
def user():
    """The user ID of a system user created for these tests."""
    if os.getuid() != 0:
        pytest.skip("test_hostile.py runs as an ordinary user already; only root can make another")
    name = f"grader-{uuid.uuid4().hex[:8]}"
    subprocess.run(["useradd", "--system", "--user-group", "--no-create-home", name], check=True)
    try:
        yield int(subprocess.run(["id", "-u", name], check=True, capture_output=True, text=True).stdout)
    finally:
        subprocess.run(["userdel", name], check=True)


@pytest.fixture(scope="module")
def worker(bubblewrap, user):
    worker = Worker(**hostile.LIMITS)
    worker.command = (sys.executable, str(ROOT / "tests" / "as_user.py"), str(user), *Worker.command)
    worker.start()
    yield worker
    worker.close()


def test_the_grader_runs_as_that_user_and_makes_no_control_group(worker, user):
    before = hostile.groups()
    assert hostile.grade(worker, hostile.RIGHT)[0] == list(hostile.TESTS)
    pid = worker.process.pid
    assert os.stat(f"/proc/{pid}").st_uid == user
    assert not [path for path in hostile.groups() - before if path.endswith(f"-{pid}")]
    assert hostile.grade(worker, hostile.WRONG)[0] == ["before", "after"]


@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_an_attack_gets_nothing_and_leaves_nothing(worker, name):
    hostile.attack(worker, name)


def test_who_held_too_much_is_not_graded_once_more(worker):
    assert not hostile.grade(worker, hostile.ATTACKS["memory-of-no-process"]["code"])[1]["late"]


def test_nothing_is_left_when_the_worker_closes(worker):
    hostile.grade(worker, hostile.ATTACKS["detached-child"]["code"])
    below = hostile.processes(worker.process.pid)
    worker.close()
    assert not hostile.left(below)
