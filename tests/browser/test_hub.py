"""A JupyterHub for a class of 40: `deploy/jupyterhub/set_up.py` sets it up, and a lab goes from release to feedback.

All are users of the system, who are removed afterwards. The instructor and two students work in Chromium, the others
with the commands of nbgrader, as somebody does in a terminal of the hub.
"""

import asyncio
import contextlib
import csv
import functools
import json
import os
import re
import runpy
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import types
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from nbgrader.api import Gradebook
from tornado.web import HTTPError
from traitlets.config import PyFileConfigLoader

from browser import wait_until_loaded
from classroom import (
    BROKEN,
    CHANGED,
    EXTENDED,
    LATE,
    LATE_RULE,
    NOTHING,
    assert_only_the_changed_check_moved,
    change_a_check,
    handed_in,
    mark,
    scores,
)
from course import Lab, without_markers
from coursegrader.labs import grade_id, grader, read_lab, secret_lines
from jupyterlab_page import Student
from mlcourse.student.notebooks import has_passed, is_test
from paths import LABS, ROOT
from servers import free_ports

pytestmark = pytest.mark.nightly

LAB = LABS[0]
SOURCE = read_lab(ROOT / "solutions" / f"{LAB}.md")
ANSWERS = {grade_id(cell): without_markers(cell).rstrip("\n") for cell in SOURCE.cells if grader(cell).get("solution")}
GRADED = {grade_id(cell): grader(cell) for cell in SOURCE.cells if grader(cell).get("grade")}
WRITTEN = [name for name, cell in GRADED.items() if cell["solution"]]
AUTOMATIC = sum(cell["points"] for name, cell in GRADED.items() if name not in WRITTEN)
# Of the class of 40, beside those of `classroom`. The last one never fetches the lab.
TWICE, EMPTY, RENAMED, NO_NOTEBOOK, HOSTILE, NO_TIME, ABSENT = 10, 12, 13, 16, 17, 21, 38
REFUSED = {BROKEN, EMPTY}
COLLECTED = set(range(1, 41)) - {NOTHING, NO_NOTEBOOK, ABSENT}

# Answers every request at a port, with a certificate if there are two more words, and prints what it was asked
TAKE_PORT = """
import http.server, ssl, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"a page of somebody else")

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
if sys.argv[2:]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*sys.argv[2:])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


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
        context = chromium.new_context(viewport={"width": 1440, "height": 900}, ignore_https_errors=True)
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

    def write(self, text, path=None):
        """Write a file, at first the notebook of the lab, as its owner does."""
        self.run("tee", path or self.notebook, input=text)

    def fill_in(self, names):
        """Write the right answers to some exercises into the notebook, as its owner does."""
        notebook = nbformat.read(self.notebook, as_version=4)
        for cell in notebook.cells:
            if grade_id(cell) in names:
                cell.source = ANSWERS[grade_id(cell)]
        self.write(nbformat.writes(notebook))

    def remove(self):
        while running := processes_of(self.name):
            for process in running:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
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
    """The instructor, the two students who work in Chromium, and somebody who is no student."""
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
def fuse(machine):
    """Undo afterwards what the set-up says to this machine about file systems that programs serve."""
    ours = runpy.run_path(str(ROOT / "deploy" / "jupyterhub" / "set_up.py"))
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    modes = {
        path: path.stat().st_mode & 0o7777 for path in (ours["FUSE"], *map(Path, ours["FUSE_HELPERS"])) if path.exists()
    }
    overrides = run(["dpkg-statoverride", "--list"]).stdout.split()
    new = [path for path in ours["FUSE_RULES"] if not path.exists()]
    yield
    for path in new:
        path.unlink(missing_ok=True)
    for path in {*ours["FUSE_HELPERS"]} - {*overrides}:
        run(["dpkg-statoverride", "--remove", path])
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.fixture(scope="module")
def hub(people, prefix, fuse, chromium):
    """The address of the hub, after the instructor cloned the course and the one command was typed."""
    ivy, ada, bob, _ = people
    course = ivy.home / "course"
    # The files of this checkout, also those that are not committed yet
    copy = 'git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar x -C "$1"'
    course.mkdir()
    subprocess.run(["sh", "-c", copy, "sh", course], cwd=ROOT, check=True)
    with (course / "nbgrader_config.py").open("a") as file:
        file.write(LATE_RULE)
    subprocess.run(["chown", "-R", f"{ivy.name}:", course], check=True)
    git = ["git", "-C", course, "-c", "user.name=ivy", "-c", "user.email=ivy@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=The course"]):
        assert ivy.run(*git, *words).returncode == 0
    port = free_ports(3, range(700, 980, 10))  # only root may take them
    address = f"https://hub.localhost:{port}"  # Chromium finds every name that ends so on this machine
    options = [f"--group={prefix.name}", f"--port={port}", f"--prefix={prefix}", f"--exchange={prefix / 'exchange'}"]
    options.append(f"--address={address}")
    command = ["/usr/bin/python3", course / "deploy" / "jupyterhub" / "set_up.py", ivy.name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for student in (ada, bob):
        subprocess.run(["usermod", "--append", "--groups", prefix.name, student.name], check=True)
    names = "subjectAltName=DNS:hub.localhost,DNS:*.hub.localhost"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=hub", "-addext", names]
    run = [*request, "-out", prefix / "hub.pem", "-keyout", prefix / "hub.key"]
    subprocess.run(run, check=True, capture_output=True)
    (prefix / "hub.key").chmod(0o600)
    (prefix / "local_config.py").write_text(
        f"c.JupyterHub.bind_url = 'https://127.0.0.1:{port}'\n"
        f"c.JupyterHub.ssl_cert = '{prefix / 'hub.pem'}'\n"
        f"c.JupyterHub.ssl_key = '{prefix / 'hub.key'}'\n"
    )
    start = done.stdout.splitlines()[-1].split()
    with (prefix / "hub.log").open("w") as log:
        server = subprocess.Popen(start, cwd=prefix / "state", stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(address, server, prefix / "hub.log")
        yield address
    finally:
        server.terminate()
        server.wait()
        stop_proxy(prefix)


def wait_for(address, server, log):
    host = urlsplit(address)
    request = urllib.request.Request(f"https://127.0.0.1:{host.port}/hub/login", headers={"Host": host.netloc})
    for _ in range(600):
        try:
            urllib.request.urlopen(request, context=ssl._create_unverified_context()).close()
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


@pytest.fixture
def two_more(people, prefix):
    """Two more students, of whom nobody is at work yet."""
    with contextlib.ExitStack() as removed:
        made = []
        for name in ("mia", "tom"):
            made += [Person(people[0].name.replace("ivy", name))]
            removed.callback(made[-1].remove)
            subprocess.run(["usermod", "--append", "--groups", prefix.name, made[-1].name], check=True)
        yield made


def port_of(person):
    """Return the port at which the server of a user will listen, as soon as its process is there."""
    for _ in range(1000):
        for process in processes_of(person.name):
            with contextlib.suppress(OSError):  # it has just ended
                found = re.search(rb"JUPYTERHUB_SERVICE_URL=\S+?:(\d+)/", Path(f"/proc/{process}/environ").read_bytes())
                if found:
                    return int(found[1])
        time.sleep(0.02)
    raise TimeoutError(person.name)


@pytest.fixture(scope="module")
def class_of_40(people, prefix, hub):
    """The students by number: two who work in Chromium, and all others, whose homes are closed as by the hub."""
    _, ada, bob, _ = people
    suffix = ada.name.removeprefix("ada")
    with contextlib.ExitStack() as removed:
        students = {1: ada, 2: bob}
        for number in range(3, 41):
            students[number] = Person(f"s{number:02d}{suffix}")
            removed.callback(students[number].remove)
        yield students


@pytest.fixture(scope="module")
def others(class_of_40, prefix):
    """A function that runs a command of nbgrader as each of some students, from one start of Python."""

    def run(numbers, *words):
        environment = {
            "PATH": f"{prefix}/env/bin:/usr/bin:/bin",
            "JUPYTER_CONFIG_PATH": f"{prefix}/jupyter/student:{prefix}/jupyter",
        }
        done = subprocess.run(
            [prefix / "env" / "bin" / "python", ROOT / "tests" / "as_each.py", *words],
            input=" ".join(class_of_40[number].name for number in numbers),
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd="/",
        )
        for name, (code, said) in json.loads(done.stdout).items():
            assert code == 0, f"{name}: {said}"

    return run


@pytest.fixture(scope="module")
def formgrader(people, class_of_40, hub, chromium):
    """The instructor's formgrader, with the class on the roster and the lab released."""
    ivy = people[0]
    rows = [f"{one.name},Family{number},Given{number}" for number, one in class_of_40.items()]
    ivy.write("\n".join(["id,last name,first name", *rows]), ivy.home / "class.csv")
    ivy.log_in(chromium, hub)
    ivy.page.locator(".jp-Launcher").wait_for()
    ivy.type(f"mlcourse roster {ivy.home}/class.csv")
    ivy.type(f"mlcourse release {LAB}")
    page = ivy.page.context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{ivy.hub}/hub/user-redirect/formgrader")
    page.wait_for_url(f"**/user/{ivy.name}/formgrader/manage_assignments")
    press(page, "release", f"Successfully released '{LAB}'")
    return page


def press(page, button, says):
    """Press a button in the row of the lab, close the dialog that follows, and return its log."""
    page.locator("tr", has_text=LAB).locator(f"td.{button} a").click()
    page.get_by_text(says).wait_for()
    log = page.locator(".modal-body").inner_text()
    page.get_by_role("button", name="Close").click()
    return log


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
    cells = lab.run_all_in_a_fresh_kernel()
    page.close()
    for one in students:
        one.assignments().get_by_role("button", name="Submit").click()
        one.page.locator("#submitted_assignments_list").get_by_text(LAB).first.wait_for()
    return cells


@pytest.fixture(scope="module")
def all_submitted(people, submitted, class_of_40, others):
    """All others fetched the lab and handed in their work; then it was due, and three handed in later."""
    ivy, lab = people[0], Lab(people[0].home / "course", LAB)
    hand_in = set(class_of_40) - {1, 2, NOTHING, ABSENT}
    others(sorted(hand_in | {NOTHING}), "fetch_assignment", LAB)
    for number in hand_in:
        class_of_40[number].write(handed_in(lab, number))
    class_of_40[EMPTY].write("")
    class_of_40[HOSTILE].write(nbformat.writes(lab.submitted["script"]))
    class_of_40[RENAMED].run("mv", class_of_40[RENAMED].notebook, class_of_40[RENAMED].notebook.with_name("mine.ipynb"))
    class_of_40[NO_NOTEBOOK].run("rm", class_of_40[NO_NOTEBOOK].notebook)
    others(sorted(hand_in - {LATE, EXTENDED}), "submit", LAB)
    due = datetime.now(UTC) + timedelta(seconds=1)
    rows = f"{LAB},,{due:%Y-%m-%d %H:%M:%S},UTC\n{LAB},{class_of_40[EXTENDED].name},{due.year + 1}-01-01 00:00,\n"
    ivy.write(f"lab,student,due,time zone\n{rows}", ivy.home / "course" / "deadlines.csv")
    time.sleep(2)
    class_of_40[TWICE].write(nbformat.writes(lab.submitted["perfect"]))
    others([LATE, EXTENDED, TWICE], "submit", LAB)


@pytest.fixture(scope="module")
def collected(all_submitted, class_of_40, prefix, formgrader):
    """What the formgrader said when it collected; two students had done to the exchange what they can."""
    inbound = prefix / "exchange" / "mlcourse" / "inbound"
    (folder,) = inbound.glob(f"{class_of_40[NO_TIME].name}+*")
    class_of_40[NO_TIME].run("rm", folder / "timestamp.txt")
    forged = inbound / f"{class_of_40[1].name}+{LAB}+2030-01-01 00:00:00.0 UTC+forged"
    class_of_40[HOSTILE].run("mkdir", forged)
    assert forged.exists() and not (folder / "timestamp.txt").exists()
    formgrader.reload()
    return press(formgrader, "collect", "Successfully collected submissions")


@pytest.fixture(scope="module")
def graded(people, collected, formgrader):
    """What `mlcourse grade` printed; the first student's written answers get one point less than the most."""
    ivy, ada, *_ = people
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
def regraded(people, graded, class_of_40):
    """What `mlcourse regrade` printed for a changed check, and the marks before and after.

    Half of the written answers were marked before, the others are marked afterwards.
    """
    ivy, lab = people[0], Lab(people[0].home / "course", LAB)
    wait = sorted(class_of_40[number].name for number in COLLECTED - REFUSED - {1})
    mark(lab, wait[::2])
    before = scores(lab)
    change_a_check(lab.root)
    ivy.type(f"mlcourse release {LAB}")
    said = ivy.type(f"mlcourse regrade {LAB}")
    after = scores(lab)
    mark(lab, wait[1::2])
    return said, before, after


@pytest.fixture(scope="module")
def feedback(people, students, regraded, class_of_40, others, formgrader):
    """The pages of feedback, as the two students read them; all others fetched theirs."""
    ivy, pages = people[0], []
    ivy.type(f"mlcourse feedback {LAB}")
    formgrader.goto(f"{ivy.hub}/user/{ivy.name}/formgrader/manage_assignments")
    press(formgrader, "release-feedback", "Successfully released feedback")
    for one in students:
        one.assignments().get_by_role("button", name="Fetch Feedback").click()
        one.page.get_by_text("view feedback").first.wait_for()
        [path] = one.notebook.parent.glob(f"feedback/*/{LAB}.html")
        pages.append(one.open(f"files/{path.relative_to(one.home / 'labs')}"))
    others(sorted(set(class_of_40) - {1, 2}), "fetch_feedback", LAB)
    return pages


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("nobody-of-that-name", "there is no user nobody-of-that-name"),
        ("root", "the instructor must not be root"),
        ("daemon", "does not belong to daemon"),
        ("daemon --port=1022", "whoever takes port 1022"),
    ],
)
def test_the_set_up_refuses_what_cannot_work_and_says_why(machine, tmp_path, words, says):
    set_up = ["/usr/bin/python3", ROOT / "deploy" / "jupyterhub" / "set_up.py", f"--prefix={tmp_path / 'hub'}"]
    done = subprocess.run([*set_up, *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ") and says in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "hub").exists()


def authenticator_of(folder, address):
    shutil.copy(ROOT / "deploy" / "jupyterhub" / "jupyterhub_config.py", folder)
    settings = {"instructor": "ivy", "course": "course", "group": "students", "port": 800, "address": address}
    (folder / "hub.json").write_text(json.dumps(settings))
    config = PyFileConfigLoader("jupyterhub_config.py", str(folder)).load_config()
    return config.JupyterHub.authenticator_class(config=config)


@pytest.mark.parametrize(
    ("account", "typed", "name"), [("ivy", "ivy", "ivy"), ("ivy", "IVY", "ivy"), ("Ivy", "Ivy", None)]
)
def test_nobody_becomes_another_whose_name_differs_in_capital_letters(tmp_path, monkeypatch, account, typed, name):
    """`useradd` makes such names. Some directories of users, such as LDAP, find an account whatever the letters."""
    authenticator = authenticator_of(tmp_path, address=None)
    monkeypatch.setattr("pwd.getpwnam", lambda typed: types.SimpleNamespace(pw_name=account, pw_gid=0))
    monkeypatch.setattr("pamela.authenticate", lambda *words, **more: None)  # the password is right
    monkeypatch.setattr("pamela.check_account", lambda *words, **more: None)
    found = asyncio.run(authenticator.get_authenticated_user(None, {"username": typed, "password": "right"}))
    assert (found and found["name"]) == name


@pytest.mark.parametrize(
    ("host", "headers", "may"),
    [
        ("hub.example.org", {"Sec-Fetch-Site": "same-origin"}, True),
        ("hub.example.org", {}, True),  # an old browser
        ("hub.example.org", {"Sec-Fetch-Site": "same-site"}, False),
        ("hub.example.org", {"Sec-Fetch-Site": "cross-site"}, False),
        ("ada.hub.example.org", {"Sec-Fetch-Site": "same-origin"}, False),
    ],
)
def test_no_page_of_a_server_logs_its_reader_in(tmp_path, monkeypatch, host, headers, may):
    authenticator = authenticator_of(tmp_path, "https://hub.example.org")
    request = types.SimpleNamespace(host_name=host, headers=headers, remote_ip="192.0.2.1")
    monkeypatch.setattr("pwd.getpwnam", {}.__getitem__)  # there is no such account

    async def log_in():
        handler, data = types.SimpleNamespace(request=request), {"username": "ada", "password": "own"}
        return await authenticator.authenticate(handler, data)

    with contextlib.nullcontext() if may else pytest.raises(HTTPError, match="Log in at https://hub.example.org"):
        assert asyncio.run(log_in()) is None


def test_only_the_instructor_and_students_get_in(people, hub, chromium):
    eve = people[3]
    eve.log_in(chromium, hub)
    eve.page.get_by_text("not allowed").or_(eve.page.get_by_text("Invalid")).first.wait_for()
    assert "/hub/login" in eve.page.url


def test_nobody_logs_in_where_the_server_of_another_would_get_the_cookie(people, hub, chromium):
    ivy, ada, *_ = people
    ivy.log_in(chromium, hub.replace("//", f"//{ada.name}."))
    ivy.page.get_by_text(f"Log in at {hub}").wait_for()
    assert not [one for one in ivy.page.context.cookies() if "login" in one["name"]]


def test_who_takes_the_port_of_a_server_that_starts_gets_no_page_to_its_user(two_more, hub, prefix, chromium, tmp_path):
    victim, attacker = two_more
    attacker.log_in(chromium, hub)
    attacker.page.locator(".jp-Launcher").wait_for()
    own_certificate = sorted((prefix / "certificates").glob(f"{attacker.name}/user-*"))
    slowly = victim.home / ".jupyter" / "jupyter_server_config.py"  # the attacker shall be first on a busy machine, too
    slowly.parent.mkdir()
    slowly.write_text("import time\n\ntime.sleep(10)\n")
    shutil.chown(slowly.parent, victim.name)
    victim.log_in(chromium, hub)
    command = ["runuser", "-u", attacker.name, "--", "/usr/bin/python3", "-c", TAKE_PORT]
    asked = tmp_path / "asked"
    with asked.open("w") as file:
        command += [str(port_of(victim)), *own_certificate]
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd="/")
    try:
        victim.page.wait_for_url(f"**://{victim.name}.*/user/{victim.name}/**")
        at_the_server = victim.page.url
        answer = victim.page.reload()
        for _ in range(60):  # the server finds its port taken, and ends
            if not processes_of(victim.name):
                break
            time.sleep(1)
    finally:
        attacker.run("kill", *processes_of(attacker.name))
        process.wait()
    assert f"/user/{victim.name}/api" in asked.read_text()  # the hub took it for the server
    assert f"/user/{victim.name}/\n" not in asked.read_text()
    assert not answer.ok and "somebody else" not in victim.page.content()
    launch = victim.page.get_by_role("button", name="Launch Server")
    for _ in range(120):  # until the hub notices that the server has ended
        if launch.count():
            break
        victim.page.wait_for_timeout(1000)
        assert "somebody else" not in victim.page.goto(at_the_server).text()
    slowly.unlink()
    launch.click()
    victim.page.locator(".jp-Launcher").wait_for()


def test_no_student_mounts_a_file_system_of_their_own_program(hub, people):
    """With one, a student changes what was handed in after the deadline, and the kernel's time of change stays."""
    for path, bits in {"/dev/fuse": 0o066, "/usr/bin/fusermount3": 0o4000}.items():
        assert not os.path.exists(path) or os.stat(path).st_mode & bits == 0
    assert people[1].run("sh", "-c", ": <> /dev/fuse").returncode != 0


@pytest.mark.parametrize("person", [0, 1])
def test_validate_opens_no_port_to_which_other_users_could_listen(hub, people, prefix, person):
    person, role = people[person], ("instructor", "student")[person]
    notebook = nbformat.v4.new_notebook()
    test = "from ipykernel.kernelapp import IPKernelApp\nassert IPKernelApp.instance().transport == 'ipc'"
    about = {"grade_id": "test", "grade": True, "points": 1, "locked": True, "solution": False, "schema_version": 3}
    notebook.cells = [nbformat.v4.new_code_cell(test, metadata={"nbgrader": about | {"cell_type": "code"}})]
    person.write(nbformat.writes(notebook), path := person.home / "port.ipynb")
    paths = f"JUPYTER_CONFIG_PATH={prefix}/jupyter/{role}:{prefix}/jupyter"
    done = person.run("env", paths, f"HOME={person.home}", f"{prefix}/env/bin/nbgrader", "validate", path)
    assert "Success!" in done.stdout + done.stderr, done


def test_a_page_of_a_student_cannot_act_as_the_instructor_who_opens_it(formgrader, submitted, people):
    ivy, ada, *_ = people
    page = ivy.page.context.new_page()
    page.goto(ada.page.url.partition("/lab")[0] + "/api")  # everybody may open this address of the server
    assert "version" in page.content()
    stolen = page.evaluate(
        """async address => {
            const opened = window.open(address);
            for (let times = 0; times < 100; times++) {
                await new Promise(done => setTimeout(done, 100));
                try { opened.document.cookie } catch (error) { return error.name }
            }
            return opened.document.cookie;
        }""",
        f"{ivy.hub}/user/{ivy.name}/lab",
    )
    page.close()
    assert stolen == "SecurityError"


def test_a_page_of_a_student_cannot_have_the_hub_take_the_instructor_for_the_student(formgrader, submitted, people):
    ivy, ada, *_ = people
    context = ivy.page.context
    own = [cookie for cookie in ada.page.context.cookies(f"{ada.hub}/hub/") if "hub-login" in cookie["name"]]
    page = context.new_page()
    page.goto(f"{ada.hub}/user/{ada.name}/api")  # of the student's server, which can set what it likes for the domain
    for cookie in own:
        for name in (cookie["name"], cookie["name"].removeprefix("__Host-")):
            page.evaluate(
                "text => document.cookie = text", f"{name}={cookie['value']}; Domain=hub.localhost; Path=/; Secure"
            )
    assert own and [
        one for one in context.cookies(page.url) if one["domain"] == ".hub.localhost" and "login" in one["name"]
    ]
    page.goto(f"{ivy.hub}/hub/user-redirect/formgrader")
    page.wait_for_url(f"**/user/{ivy.name}/formgrader/manage_assignments")
    page.close()
    context.clear_cookies(name="jupyterhub-hub-login", domain=".hub.localhost")


def test_the_lab_of_a_student_runs_on_the_hub_and_all_its_checks_pass(submitted):
    assert all(has_passed(cell) for cell in submitted if is_test(cell))


def test_nobody_gets_a_debugger_to_whose_port_every_user_could_connect(submitted, people):
    page = people[1].open(f"lab/tree/{LAB}/{LAB}.ipynb")
    Student(page, people[1].notebook).idle()
    assert page.locator(".jp-NotebookPanel-toolbar").count() and not page.locator(".jp-DebuggerBugButton").count()
    page.close()


def test_the_instructor_collects_the_class_and_reads_what_is_odd(collected, class_of_40):
    name = {number: one.name for number, one in class_of_40.items()}
    assert f"Collected {len(COLLECTED)} of {len(COLLECTED) + 1} submissions" in collected
    assert f"in the name of {name[1]}, but of {name[HOSTILE]}" in collected
    assert f"{name[NO_TIME]}: Its timestamp.txt says no time" in collected
    assert f"{name[RENAMED]}: The notebook was named mine.ipynb" in collected
    assert f"{name[NO_NOTEBOOK]}: Not collected: there is no notebook" in collected


def test_the_instructor_grades_in_the_sandbox(graded, regraded, class_of_40):
    assert f"Graded {len(COLLECTED)} submissions" in graded
    assert f"{len(REFUSED)} of them refused" in graded
    assert "without the sandbox" not in graded
    _, before, _ = regraded
    points = before.automatic.groupby("student").sum()
    points = {number: points.get(one.name) for number, one in class_of_40.items()}
    assert points[1] == points[LATE] == points[TWICE] == points[RENAMED] == AUTOMATIC
    assert 0 < points[2] == points[6] < AUTOMATIC
    assert points[EMPTY] == points[BROKEN] == 0
    assert {number for number in points if points[number] is None} == set(class_of_40) - COLLECTED


def test_a_changed_check_moves_its_points_and_no_mark(regraded):
    said, before, after = regraded
    assert f"now: {CHANGED}" in said
    assert_only_the_changed_check_moved(WRITTEN, before, after)


def test_the_students_read_the_points_that_the_instructor_gave(feedback, people):
    ivy, *students, _ = people
    final = scores(Lab(ivy.home / "course", LAB)).score.groupby("student").sum()
    maximum = AUTOMATIC + sum(GRADED[name]["points"] for name in WRITTEN)
    assert 0 < final[students[1].name] < final[students[0].name] < maximum
    for one, page in zip(students, feedback, strict=True):
        text = page.locator("body").inner_text()
        assert f"{final[one.name]:g} of {maximum:g} points" in text and "What to look at first" in text


def test_everybody_reads_the_own_feedback_and_nobody_elses(feedback, class_of_40):
    for number, one in class_of_40.items():
        pages = [path.read_text("utf-8") for path in one.home.glob("labs/*/feedback/*/*.html")]
        assert len(pages) == (number in COLLECTED), number
        for page in pages:
            assert set(re.findall(r"Given\d+ Family\d+", page)) == {f"Given{number} Family{number}"}
            assert set(re.findall(r"Read by a person, (\S+?)\.", page)) <= {one.name}
            assert ("could not be graded" in page) == (number in REFUSED)
            assert ("1 late day" in page) == (number in {LATE, TWICE, NO_TIME})


def test_the_export_names_the_whole_class(feedback, people, class_of_40):
    ivy = people[0]
    said = ivy.type("mlcourse export; mlcourse report --all")
    assert "reports/all-labs.html" in said
    with (ivy.home / "course" / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["Student"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {one.name for one in class_of_40.values()}
    nothing = {number for number, one in class_of_40.items() if "handed in nothing" in rows[one.name].values()}
    assert nothing == {NOTHING, ABSENT}


def test_a_student_reads_neither_the_others_work_nor_the_solutions_nor_the_gradebook(feedback, people, prefix):
    ivy, ada, bob, _ = people
    places = [ivy.home / "course" / name for name in (".", "solutions", "source", "submitted", "gradebook.db")]
    places += [bob.home, bob.notebook, prefix / "state"]
    places += [prefix / "exchange" / "mlcourse" / name for name in ("inbound", "feedback")]
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
