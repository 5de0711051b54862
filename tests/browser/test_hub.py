"""A JupyterHub for three people: `deploy/jupyterhub/set_up.py` sets it up, and a lab goes from release to feedback.

The instructor and two students are users of the system, who work in Chromium. They are removed afterwards.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from browser import wait_until_loaded
from course import without_markers
from coursegrader.labs import grade_id, grader, read_lab, secret_lines
from jupyterlab_page import Student
from mlcourse.student.notebooks import has_passed, is_test
from paths import LABS, ROOT
from servers import free_ports

LAB = LABS[0]
SOURCE = read_lab(ROOT / "solutions" / f"{LAB}.md")
ANSWERS = {grade_id(cell): without_markers(cell).rstrip("\n") for cell in SOURCE.cells if grader(cell).get("solution")}
GRADED = {grade_id(cell): grader(cell) for cell in SOURCE.cells if grader(cell).get("grade")}
WRITTEN = [name for name, cell in GRADED.items() if cell["solution"]]
AUTOMATIC = sum(cell["points"] for name, cell in GRADED.items() if name not in WRITTEN)


class Person:
    """A user of the system with a password, and a browser in which only this user is logged in."""

    def __init__(self, name):
        self.name, self.password, self.home = name, uuid.uuid4().hex, Path("/home", name)
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
        subprocess.run(["chpasswd"], input=f"{name}:{self.password}", text=True, check=True)
        self.page = None

    def run(self, *command, **options):
        """Run a command as this user, with the rights of nobody else."""
        command = ["runuser", "-u", self.name, "--", *map(str, command)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **options)

    def log_in(self, chromium, hub):
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        self.hub, self.page = hub, context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.goto(f"{hub}/hub/login")
        self.page.get_by_label("Username").fill(self.name)
        self.page.get_by_label("Password").fill(self.password)
        self.page.get_by_role("button", name="Sign in").click()

    def open(self, path):
        """Open an address below this user's own server in another tab."""
        page = self.page.context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{self.hub}/user/{self.name}/{path}")
        return page

    def type(self, line):
        """Type a command into a terminal of JupyterLab, and return what it printed."""
        said, code = self.home / "said", self.home / "code"
        code.unlink(missing_ok=True)
        screen = self.page.locator(".jp-Terminal .xterm-screen")
        if not screen.count():
            self.page.locator(".jp-LauncherCard", has_text="Terminal").click()
            screen.wait_for()
            self.page.wait_for_timeout(1000)
        screen.click()
        self.page.keyboard.type(f"{line} > {said} 2>&1; echo $? > {code}.new; mv {code}.new {code}\n")
        for _ in range(600):
            if code.exists():
                assert code.read_text() == "0\n", said.read_text()
                return said.read_text()
            self.page.wait_for_timeout(200)
        raise TimeoutError(f"{line}: {said.read_text()}")

    def assignments(self):
        """Go to the list of assignments, and read it anew."""
        if not self.page.locator("#nbgrader-assignment-list").count():
            self.page.get_by_role("menuitem", name="Nbgrader", exact=True).click()
            self.page.get_by_role("menuitem", name="Assignment List", exact=True).click()
        else:
            self.page.get_by_role("tab", name="Assignments").click()
            self.page.locator("#refresh_assignments_list").click()
        return self.page.locator("#nbgrader-assignment-list")

    @property
    def notebook(self):
        return self.home / "labs" / LAB / f"{LAB}.ipynb"

    def fill_in(self, names):
        """Write the right answers to some exercises into the notebook, as its owner does."""
        notebook = nbformat.read(self.notebook, as_version=4)
        for cell in notebook.cells:
            if grade_id(cell) in names:
                cell.source = ANSWERS[grade_id(cell)]
        self.run("tee", self.notebook, input=nbformat.writes(notebook))

    def remove(self):
        while running := processes_of(self.name):
            for process in running:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.2)
        subprocess.run(["userdel", "--remove", self.name], check=True, capture_output=True)


def processes_of(name):
    found = subprocess.run(["pgrep", "--uid", name], capture_output=True, text=True, check=False).stdout
    return list(map(int, found.split()))


@pytest.fixture(scope="module")
def machine(bubblewrap):
    """Skip the tests where nobody can make users, or a program is missing; the latter fails in CI."""
    if os.getuid() != 0:
        pytest.skip("only root can make the users of a hub: run the tests with sudo")
    python = subprocess.run(["/usr/bin/python3", "-c", "import ensurepip, tomllib"], capture_output=True, check=False)
    if python.returncode:
        message = "no Python 3.11 for all users: on Debian 12 or newer, type: sudo apt-get install python3-venv"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    if missing := [name for name in ("node", "npm", "runuser", "make", "git") if not shutil.which(name)]:
        message = f"no {', '.join(missing)}: on Debian and Ubuntu, type: sudo apt-get install nodejs npm make git"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


@pytest.fixture(scope="module")
def people(machine):
    """The instructor, two students, and somebody who is no student."""
    mark = uuid.uuid4().hex[:6]
    with contextlib.ExitStack() as removed:
        made = []
        for name in ("ivy", "ada", "bob", "eve"):
            made += [Person(f"{name}-{mark}")]
            removed.callback(made[-1].remove)
        yield made


@pytest.fixture(scope="module")
def prefix(people):
    """The folder of the hub's programs and settings, outside of homes; removed with the group of the students."""
    folder = Path(tempfile.mkdtemp(prefix="mlcourse-hub-", dir="/opt"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        subprocess.run(["groupdel", folder.name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def hub(people, prefix, chromium):
    """The address of the hub, after the instructor cloned the course and the one command was typed."""
    ivy, ada, bob, _ = people
    course = ivy.home / "course"
    # The files of this checkout, also those that are not committed yet
    copy = 'git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar x -C "$1"'
    course.mkdir()
    subprocess.run(["sh", "-c", copy, "sh", course], cwd=ROOT, check=True)
    subprocess.run(["chown", "-R", f"{ivy.name}:", course], check=True)
    git = ["git", "-C", course, "-c", "user.name=ivy", "-c", "user.email=ivy@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=The course"]):
        assert ivy.run(*git, *words).returncode == 0
    port = free_ports(3)
    options = [f"--group={prefix.name}", f"--port={port}", f"--prefix={prefix}", f"--exchange={prefix / 'exchange'}"]
    command = ["/usr/bin/python3", course / "deploy" / "jupyterhub" / "set_up.py", ivy.name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for student in (ada, bob):
        subprocess.run(["usermod", "--append", "--groups", prefix.name, student.name], check=True)
    start = done.stdout.splitlines()[-1].split()
    with (prefix / "hub.log").open("w") as log:
        server = subprocess.Popen(start, cwd=prefix / "state", stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, server, prefix / "hub.log")
        yield address
    finally:
        server.terminate()
        server.wait()
        stop_proxy(prefix)


def wait_for(address, server, log):
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/hub/login").close()
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
    raise TimeoutError(log.read_text())


def stop_proxy(prefix):
    """End the proxy, if the hub left it running."""
    pid = prefix / "state" / "proxy.pid"
    if pid.exists():
        os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)


@pytest.fixture(scope="module")
def formgrader(people, hub, chromium):
    """The instructor's formgrader, with the lab released."""
    ivy = people[0]
    ivy.log_in(chromium, hub)
    ivy.page.locator(".jp-Launcher").wait_for()
    ivy.type(f"mlcourse release {LAB}")
    page = ivy.open("formgrader/manage_assignments")
    press(page, "release", f"Successfully released '{LAB}'")
    return page


def press(page, button, says):
    """Press a button in the row of the lab, and close the dialog that follows."""
    page.locator("tr", has_text=LAB).locator(f"td.{button} a").click()
    page.get_by_text(says).wait_for()
    page.get_by_role("button", name="Close").click()


@pytest.fixture(scope="module")
def students(people, hub, formgrader, chromium):
    """The two students, who have fetched the lab."""
    students = people[1:3]
    for one in students:
        one.log_in(chromium, hub)
        one.page.locator(".jp-Launcher").wait_for()
        one.assignments().get_by_role("button", name="Fetch", exact=True).click()
        one.assignments().get_by_role("button", name="Submit").wait_for()
    return students


@pytest.fixture(scope="module")
def submitted(students):
    """The first student solves all and runs it on the hub, the second solves half; both submit."""
    ada, bob = students
    code = [name for name in ANSWERS if name not in WRITTEN]
    ada.fill_in(ANSWERS)
    bob.fill_in(code[: len(code) // 2])
    page = ada.open(f"lab/tree/{LAB}/{LAB}.ipynb")
    lab = Student(page, ada.notebook)
    lab.idle()
    page.locator(".jp-Notebook .jp-Cell").first.click()
    lab.choose("Kernel", "Restart Kernel and Run All Cells…")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    cells = lab.finished()
    page.close()
    for one in students:
        one.assignments().get_by_role("button", name="Submit").click()
        one.page.locator("#submitted_assignments_list").get_by_text(LAB).first.wait_for()
    return cells


@pytest.fixture(scope="module")
def graded(people, submitted, formgrader):
    """What `mlcourse grade` printed; the first student's written answers get one point less than the most."""
    ivy, ada, *_ = people
    formgrader.reload()
    press(formgrader, "collect", "Successfully collected submissions")
    said = ivy.type(f"mlcourse grade {LAB}")
    with gradebook_of(ivy) as gradebook:
        [notebook] = gradebook.find_submission(LAB, ada.name).notebooks
        number = notebook.id
    page = ivy.open(f"formgrader/submissions/{number}/")
    wait_until_loaded(page)
    for name in WRITTEN:
        box = page.locator(f"input.score#{name}")
        box.fill(str(GRADED[name]["points"] - 1))
        with page.expect_response(lambda response: response.request.method == "PUT" and "/api/grade/" in response.url):
            box.press("Tab")
    page.close()
    return said


def gradebook_of(instructor):
    return Gradebook(f"sqlite:///{instructor.home / 'course' / 'gradebook.db'}")


@pytest.fixture(scope="module")
def feedback(people, students, graded, formgrader):
    """The pages of feedback, as the two students read them."""
    ivy, pages = people[0], []
    ivy.type(f"mlcourse feedback {LAB}")
    formgrader.goto(f"{ivy.hub}/user/{ivy.name}/formgrader/manage_assignments")
    press(formgrader, "release-feedback", "Successfully released feedback")
    for one in students:
        one.assignments().get_by_role("button", name="Fetch Feedback").click()
        one.page.get_by_text("view feedback").first.wait_for()
        [path] = one.notebook.parent.glob(f"feedback/*/{LAB}.html")
        pages.append(one.open(f"files/{path.relative_to(one.home / 'labs')}"))
    return pages


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody-of-that-name", "there is no user nobody-of-that-name"),
        ("root", "the instructor must not be root"),
        ("daemon", "does not belong to daemon"),
    ],
)
def test_the_set_up_refuses_what_cannot_work_and_says_why(machine, tmp_path, name, says):
    command = ["/usr/bin/python3", ROOT / "deploy" / "jupyterhub" / "set_up.py", name, f"--prefix={tmp_path / 'hub'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ") and says in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "hub").exists()


def test_only_the_instructor_and_students_get_in(people, hub, chromium):
    eve = people[3]
    eve.log_in(chromium, hub)
    eve.page.get_by_text("not allowed").or_(eve.page.get_by_text("Invalid")).first.wait_for()
    assert "/hub/login" in eve.page.url


def test_the_lab_of_a_student_runs_on_the_hub_and_all_its_checks_pass(submitted):
    assert all(has_passed(cell) for cell in submitted if is_test(cell))


def test_the_instructor_collects_and_grades_in_the_sandbox(graded, people):
    assert "Graded 2 submissions" in graded
    assert "without the sandbox" not in graded
    ada, bob = points(people)
    assert ada == AUTOMATIC
    assert 0 < bob < AUTOMATIC


def test_the_students_read_the_points_that_the_instructor_gave(feedback, people, graded):
    total = AUTOMATIC + sum(GRADED[name]["points"] - 1 for name in WRITTEN)
    ada, bob = [page.locator("body").inner_text() for page in feedback]
    maximum = AUTOMATIC + sum(GRADED[name]["points"] for name in WRITTEN)
    assert f"{total:g} of {maximum:g} points" in ada and "What to look at first" in ada
    assert f"{points(people)[1]:g} of {maximum:g} points" in bob


def points(people):
    """Return the points of the students' checks in the instructor's gradebook."""
    with gradebook_of(people[0]) as gradebook:
        [ada, bob] = [gradebook.find_submission(LAB, one.name).notebooks[0] for one in people[1:3]]
        return [sum(grade.auto_score or 0 for grade in one.grades) for one in (ada, bob)]


def test_a_student_reads_neither_the_others_work_nor_the_solutions_nor_the_gradebook(feedback, people, prefix):
    ivy, ada, bob, _ = people
    places = [ivy.home / "course" / name for name in (".", "solutions", "source", "submitted", "gradebook.db")]
    places += [bob.home, bob.notebook, prefix / "state", *(prefix / "exchange" / "mlcourse" / "inbound").iterdir()]
    places = [*places[:-2], prefix / "exchange" / "mlcourse" / "inbound", prefix / "exchange" / "mlcourse" / "feedback"]
    for place in places:
        assert place.exists()
        assert "Permission denied" in ada.run("ls" if place.is_dir() else "cat", place).stderr, place


def test_no_file_that_a_student_can_read_holds_a_line_of_a_solution(feedback, people, prefix):
    ivy, ada, bob, _ = people
    line = max(secret_lines(SOURCE, "HIDDEN TESTS"), key=len)
    search = ["grep", "--recursive", "--no-messages", "--files-with-matches", "--fixed-strings", line]
    folders = [prefix / "course", prefix / "exchange", prefix / "jupyter", ivy.home, bob.home, ada.home]
    as_root = subprocess.run([*search, *folders], capture_output=True, text=True, check=False).stdout
    assert f"solutions/{LAB}.md" in as_root
    assert ada.run(*search, *folders).stdout == ""


def test_a_student_gets_no_server_of_another_and_no_formgrader(feedback, people):
    ivy, ada, bob, _ = people
    for other in (ivy, bob):
        page = ada.page.context.new_page()
        assert page.goto(f"{ada.hub}/user/{other.name}/lab").status in (403, 404)
    page = ada.page.context.new_page()
    assert page.goto(f"{ada.hub}/user/{ada.name}/formgrader/manage_assignments").status == 404
