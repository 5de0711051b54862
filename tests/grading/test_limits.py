"""The limits of a submission hold for all of its processes together, whoever grades."""

import dataclasses
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest

from coursegrader import GradingError, grade, limits, seccomp, worker
from coursegrader.labs import grade_id, release
from coursegrader.protocol import CUT_OFF, Cell, Limits
from mlcourse.cli import main
from paths import ROOT

LAB = "lab-01-trial"
HEAD = "---\njupytext:\n  text_representation:\n    format_name: myst\n---\n"
SOLUTION = """```{code-cell} ipython3
:nbgrader: {grade_id: double, solution: true}
### BEGIN SOLUTION
def double(x):
    return 2 * x
### END SOLUTION
```
"""
TEST = """```{code-cell} ipython3
:nbgrader: {grade_id: double-1, points: 1}
assert double(2) == 4
```
"""
TEXT = "x" * 1000
SLOW = f"""import time
print({TEXT!r}, end="")
def double(x):
    time.sleep(2)
    return 2 * x"""
PROGRAM = """
import mmap, os, sys, time
def hold(flag, size): return mmap.mmap(-1, size, flags=flag | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
{prepare}
for _ in range({children}):
    if os.fork() == 0:
        {hold}
        print("x", end="", flush=True)
        time.sleep(1000)
time.sleep(1000)
"""


@pytest.fixture
def watched():
    """Return a function that starts a program, and returns the supervisor's verdict and the processes left."""
    started = []

    def look(children, prepare="", hold="pass", looks=1):
        program = PROGRAM.format(children=children, prepare=prepare, hold=hold)
        supervisor = limits.Supervisor(os.getpid(), Limits(memory=0.4, processes=8))
        run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
        started.append(run)
        assert run.stdout.read(children) == b"x" * children
        reason = next(filter(None, (supervisor.look() for _ in range(looks))), None)
        deadline = time.monotonic() + 5
        while reason and limits.below(run.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        return reason, len(limits.below(run.pid))

    yield look
    for run in started:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        run.stdout.close()


@pytest.mark.parametrize("name", [b"\xff", b"\rVmRSS: -999999", b"\r\r", b"\nVmRSS: 0"], ids=range(4))
def test_a_name_that_a_process_gives_itself_hides_nothing(watched, name):
    prepare = f"import ctypes\nctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)"
    reason, left = watched(4, prepare=prepare, hold="held = hold(mmap.MAP_PRIVATE, 120 * 2**20)")
    assert reason.endswith("GB of memory") and left == 0


def test_children_that_hold_too_much_together_are_ended(watched):
    hold = "held = hold(mmap.MAP_PRIVATE, 120 * 2**20)"
    reason, left = watched(4, hold=hold)
    assert reason.endswith("GB of memory") and left == 0


def test_memory_that_processes_hand_on_to_children_all_the_time_counts(watched):
    # Those whose parents have ended become children of the program, as in the sandbox of its first process
    prepare = "import ctypes, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nctypes.CDLL(None).prctl(36, 1)"
    on = "        while os.fork() == 0: pass\n        os._exit(0)"
    hold = f"held = hold(mmap.MAP_PRIVATE, 300 * 2**20)\n        os.write(1, b'x')\n{on}"
    reason, left = watched(3, prepare, hold, looks=40)  # one that finds too few alive says nothing yet
    assert reason and reason.endswith((limits.UNCOUNTED, "GB of memory")) and left == 0


def test_processes_stop_for_the_count_and_go_on_after_it():
    supervisor = limits.Supervisor(os.getpid(), Limits())
    with subprocess.Popen(["sleep", "60"]) as run:
        state = Path("/proc", str(run.pid), "status")
        with supervisor.stopped() as stopped:
            assert stopped == {run.pid} and "\nState:\tT" in state.read_text()
        assert "\nState:\tT" not in state.read_text()
        run.kill()


def test_memory_that_can_be_shared_counts(watched):
    reason, left = watched(4, hold="held = hold(mmap.MAP_SHARED, 120 * 2**20)")
    assert reason.endswith("GB of memory") and left == 0


def test_memory_counts_although_the_first_thread_has_ended(watched):
    thread = "threading.Thread(target=lambda: (hold(mmap.MAP_PRIVATE, 120 * 2**20), write(), time.sleep(1000))).start()"
    prepare = "import ctypes, threading\ndef write(): os.write(1, b'x')"
    reason, left = watched(4, prepare, f"{thread}; time.sleep(0.2); ctypes.CDLL(None).syscall(60, 0)")
    assert reason.endswith("GB of memory") and left == 0


def test_tables_of_pages_count(watched):
    # One page in each gigabyte needs a page table of 4 kB and another table above it
    far = "held = [mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) for _ in range(15000)]"
    reason, left = watched(5, hold=f"{far}; [one[0] for one in held]")
    assert reason.endswith("GB of memory") and left == 0


def test_mappings_count(watched):
    # The kernel's memory for mappings counts for no process, and grows with each generation that inherits them
    prepare = "held = hold(mmap.MAP_PRIVATE, 50_000 * 4096)\nimport ctypes\nprotect = ctypes.CDLL(None).mprotect"
    begin = "ctypes.addressof(ctypes.c_char.from_buffer(held))"
    often = f"begin = {begin}\nfor n in range(0, 50_000, 2): protect(ctypes.c_void_p(begin + n * 4096), 4096, 1)"
    assert watched(4, prepare=prepare) == (None, 4)
    reason, left = watched(4, prepare=f"{prepare}\n{often}")
    assert reason.endswith("GB of memory") and left == 0


def test_processes_whose_memory_cannot_be_counted_in_time_are_ended(watched, monkeypatch):
    def wait_for_its_mappings(pid):  # as the kernel does while the process changes them
        while limits.is_running(str(pid)) and limits.descends(pid, os.getpid()):
            time.sleep(0.02)
        return 0

    monkeypatch.setattr(limits, "mappings", wait_for_its_mappings)
    begin = time.monotonic()
    assert watched(3) == (limits.UNCOUNTED, 0)
    assert time.monotonic() - begin < 30


def test_who_was_ended_since_the_memory_could_not_be_counted_is_graded_once_more(bubblewrap, monkeypatch):
    begin = time.monotonic()

    def look(supervisor):
        started = [pid for pid in limits.below(supervisor.pid) if pid not in supervisor.own]
        is_of_tests = supervisor.limits.memory < Limits().memory
        if not started or is_of_tests or time.monotonic() < begin + 10:
            return None
        limits.send(started, supervisor.pid, signal.SIGKILL)
        return limits.UNCOUNTED

    monkeypatch.setattr(limits.Supervisor, "look", look)
    server = worker.Server(True, None, Limits())
    try:
        with open(os.devnull) as nobody:
            monkeypatch.setattr(sys, "stdin", nobody)
            server.start()
            assert server.run([Cell("import time\ntime.sleep(50)"), Cell("assert True", "a-1")], ()).late
    finally:
        server.close()


def test_memory_that_children_share_counts_once(watched):
    held = "held = hold(mmap.MAP_SHARED, 200 * 2**20)"
    assert watched(4, prepare=held, hold="sum(held[::4096])") == (None, 4)


@pytest.mark.parametrize("has_handles", [True, False])
def test_a_process_that_took_over_the_number_of_another_is_left_alone(monkeypatch, has_handles):
    if not has_handles:
        monkeypatch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError("no handles here")))
    with subprocess.Popen(["sleep", "60"]) as mine, subprocess.Popen(["sleep", "60"]) as other:
        limits.send([other.pid], mine.pid, signal.SIGKILL)
        assert limits.descends(mine.pid, os.getpid()) and not limits.descends(other.pid, mine.pid)
        limits.send([mine.pid], os.getpid(), signal.SIGKILL)
        assert mine.wait(10) == -signal.SIGKILL and other.poll() is None
        limits.send([mine.pid], os.getpid(), signal.SIGKILL)  # a number without a process
        other.kill()


def test_a_submission_has_no_huge_pages_of_which_a_piece_would_keep_all(bubblewrap):
    grader = worker.Worker()
    grader.start()
    before = set(limits.below(grader.process.pid))
    with ThreadPoolExecutor() as threads:
        result = threads.submit(grader.grade, [Cell("import time; time.sleep(3)")])
        time.sleep(1.5)
        started = [pid for pid in limits.below(grader.process.pid) if pid not in before]
        sandboxed = [Path("/proc", str(pid), "status").read_text() for pid in started if not limits.children(pid)]
    assert result.result()["outputs"] == [[]]
    grader.close()
    assert len(sandboxed) == 2 and all("THP_enabled:\t0" in status for status in sandboxed)


def test_more_processes_than_there_may_be_are_ended(watched):
    reason, left = watched(10)
    assert reason == "more than 8 processes" and left == 0


def test_what_was_there_before_is_left_alone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as before:
        supervisor = limits.Supervisor(os.getpid(), Limits(processes=0))
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
            assert supervisor.look() == "more than 0 processes"
            assert later.wait(5) == -signal.SIGKILL
        assert before.poll() is None


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A course with one lab and one student, whose code prints much and delays a check by two seconds."""
    tmp_path = tmp_path_factory.mktemp("released")
    source = f"{HEAD}\n{SOLUTION}\n{TEST}"
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / f"{LAB}.md").write_text(source)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    release(tmp_path)
    notebook = nbformat.read(tmp_path / "labs" / LAB / f"{LAB}.ipynb", as_version=4)
    for cell in notebook.cells:
        if grade_id(cell) == "double":
            cell.source = SLOW
    folder = tmp_path / "submitted" / "ada" / LAB
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{LAB}.ipynb")
    return tmp_path


@pytest.fixture
def course(released, tmp_path, monkeypatch):
    """A copy of that course."""
    shutil.copytree(released, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_limits(course, text):
    with (course / "nbgrader_config.py").open("a") as config:
        config.write(f"\nc.GradeInSandbox.limits = {text}\n")


def outcome(course, *options):
    """Grade the class, and return whether the check passed and the output of the first cell."""
    with pytest.raises(SystemExit) as end:
        main(["grade", LAB, *options])
    assert end.value.code == 0
    notebook = nbformat.read(course / "autograded" / "ada" / LAB / f"{LAB}.ipynb", as_version=4)
    cells = {grade_id(cell): cell for cell in notebook.cells}
    return cells["double-1"].outputs[0].output_type != "error", cells["double"].outputs[0].text


@pytest.mark.nightly
def test_an_instructor_sets_limits_in_the_configuration_and_on_the_command_line(course, bubblewrap, capsys):
    assert outcome(course) == (True, TEXT)
    set_limits(course, {"call": 1, "memory": 2})
    assert outcome(course) == (False, TEXT)
    assert "Limits: 2 GB of memory and 128 processes for each submission" in capsys.readouterr().out
    assert outcome(course, "--limit", "call=9", "--limit", "processes=100", "--limit", "output=900") == (True, CUT_OFF)
    assert "Limits: 2 GB of memory and 100 processes" in capsys.readouterr().out


@pytest.mark.nightly
def test_plain_nbgrader_holds_the_same_limits(course, bubblewrap):
    set_limits(course, {"call": 1})
    command = [sys.executable, "-m", "nbgrader", "autograde", LAB]
    run = subprocess.run(command, cwd=course, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and f"ada: a limit of time decided about a cell: type mlcourse grade {LAB}" in run.stderr
    notebook = nbformat.read(course / "autograded" / "ada" / LAB / f"{LAB}.ipynb", as_version=4)
    [error] = [one for cell in notebook.cells for one in cell.get("outputs", []) if one.output_type == "error"]
    assert "took too long" in error.evalue


@pytest.mark.parametrize("text", [{"memroy": 4}, {"memory": "much"}, {"cell": -1}, {"grace": 0}, [4]], ids=str)
def test_limits_that_are_not_well_formed_are_refused_in_one_sentence(course, text):
    set_limits(course, text)
    with pytest.raises(SystemExit) as end:
        main(["grade", LAB])
    said = end.value.code
    assert said.startswith("Error: the limits of a submission are not well formed") and "\n" not in said
    assert not (course / "autograded").exists()


def test_a_limit_of_no_such_name_on_the_command_line_is_refused(course):
    with pytest.raises(SystemExit) as end:
        main(["grade", LAB, "--limit", "memroy=4"])
    assert "a value of 'memroy'" in end.value.code and "'memory'" in end.value.code


@pytest.mark.parametrize("text", ["inf", "nan", "0", "1e12"])
@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(Limits)])
def test_a_limit_that_cannot_be_held_is_refused_with_its_bounds(course, name, text):
    with pytest.raises(SystemExit) as end:
        main(["grade", LAB, "--limit", f"{name}={text}"])
    assert f"{name} is {float(text)}; take a number from " in end.value.code and "\n" not in end.value.code


@pytest.mark.parametrize(
    ("ended", "met", "expected"),
    [(0, 0, False), (1, 0, False), (0, 1, False), (1, 1, True)],
    ids=["nothing", "the machine had no memory left", "the kernel made room", "too much was held"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_process_ended_for_its_own_memory_if_its_group_met_its_own_limit(tmp_path, version, ended, met, expected):
    def write(ended, met):
        if version == 1:
            (tmp_path / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {ended}\n")
            (tmp_path / "memory.failcnt").write_text(f"{met}\n")
        else:
            text = f"low 0\nhigh 0\nmax 9\noom {met}\noom_kill {ended}\noom_group_kill 0\n"
            (tmp_path / "memory.events").write_text(text)
        return group.kills()

    group = limits.Group(Limits())
    group.remove()
    group.folders = [tmp_path]
    assert limits.ended_for_its_own(write(2, 3), write(2 + ended, 3 + met)) == expected


def test_a_control_group_never_has_the_name_of_an_older_one_that_is_slow_to_go():
    # Python uses the memory of each of these groups again for the next
    made = [limits.Group(Limits()).folders for _ in range(4)]
    folders = [folder for group in made for folder in group]
    assert len({*folders}) == len(folders) and len({*map(len, made)}) == 1
    for folder in folders:
        folder.rmdir()


@pytest.mark.parametrize("memory", [0.4, 3.3, 4])
def test_the_kernel_can_hold_any_limit_of_memory_as_it_is(memory):
    size = Limits(memory=memory).memory_bytes
    assert size % resource.getpagesize() == 0 and abs(size - memory * 2**30) < 2**20


def test_a_check_that_the_limit_of_time_ended_is_run_again(bubblewrap):
    grader = worker.Worker(test=1, grace=0.5)
    test = "import time\nbegin = time.monotonic()\nwhile time.monotonic() - begin < 5: pass\nassert f() == 1"
    result = grader.grade([Cell("def f(): return 1"), Cell(test, "f-1")])
    grader.close()
    assert result["late"] and "took too long" in result["outputs"][1][0]["evalue"]


def test_doctor_says_what_holds_the_limits(capsys):
    with pytest.raises(SystemExit):
        main(["doctor"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if "4 GB of memory" in line]
    assert re.search(r"128 processes for each submission, (held by the kernel \(.+\)|added up 4 times a second)", line)


def test_without_libseccomp_nothing_is_graded_and_the_message_says_what_to_install(monkeypatch):
    def library():
        raise OSError("libseccomp.so.2: cannot open shared object file")

    monkeypatch.setattr(seccomp, "library", library)
    monkeypatch.setattr(worker.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert "there is no libseccomp" in worker.missing() and "sudo apt-get install" in worker.missing()


def test_where_the_kernel_refuses_the_sandbox_nothing_is_graded_and_the_message_says_where_to_look(bubblewrap):
    # As in a container, or on an Ubuntu whose ordinary users may make no namespaces; for this command only
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    ordinary = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c", forbid, "sh"]
    program = "from coursegrader import worker; print(worker.missing()); worker.Worker().grade([])"
    done = subprocess.run(
        [*ordinary, sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = done.stdout.strip()
    assert said.startswith("the kernel refuses a sandbox for students' code (bwrap: ") and "On which systems" in said
    assert done.returncode == 1 and done.stderr.endswith(f"GradingError: {said}\n")


def test_the_sandbox_shows_of_a_python_of_the_system_no_more_than_it_needs(monkeypatch):
    monkeypatch.setattr(worker.sys, "prefix", "/usr")
    monkeypatch.setattr(worker.sys, "base_prefix", "/usr")
    words = worker.in_bubblewrap(["true"], {})
    shown = {path for option, path in zip(words, words[1:], strict=False) if option == "--ro-bind"}
    assert "/usr/lib" in shown
    assert not shown & {"/", "/usr", "/usr/bin", "/usr/local", "/usr/share", "/usr/local/share", str(ROOT)}


@pytest.mark.parametrize("sandboxed", [True, False])
def test_other_systems_than_linux_are_told_in_one_sentence_that_grading_needs_it(monkeypatch, sandboxed):
    monkeypatch.setattr(sys, "platform", "darwin")
    for name in ("sched_getaffinity", "sched_setaffinity", "pidfd_open"):
        monkeypatch.delattr(os, name)
    with pytest.raises(GradingError, match="needs Linux"):
        worker.Worker(sandboxed).grade([])
    with pytest.raises(GradingError, match="needs Linux"), grade.pool(None, sandboxed, Limits(), None):
        pass
    assert "needs Linux" in worker.missing()
