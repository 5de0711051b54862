"""A person marks one written answer of a whole class on one page; the marks go into nbgrader's gradebook."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import nbformat
import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from traitlets.config import Config

from classroom import Classroom
from coursegrader import GradingError
from coursegrader.mark import answers, application, code_of, question, serve, store

LAB, TOKEN = "lab-01", "a-token"
SCHEME = "### BEGIN MARK SCHEME\n2 points for $\\sigma^2$\n### END MARK SCHEME"
WRITTEN = {
    "ada": "It is **the** variance $\\sigma^2$.",
    "ben": "<script>alert(1)</script><img src=x onerror=alert(1)> ben's",
    "cleo": "Your answer",
}


def cell(source, grade_id=None, solution=False, points=None):
    made = nbformat.v4.new_markdown_cell(source)
    if grade_id:
        keys = {"grade_id": grade_id, "solution": solution, "grade": bool(points), "locked": not solution}
        made.metadata["nbgrader"] = {**keys, "schema_version": 3, "cell_type": "markdown", "task": False}
        made.metadata["nbgrader"] |= {"points": points} if points else {}
    return made


class Marking(Classroom):
    """A class of three with the written answer ``essay`` of 4 points."""

    def __init__(self, root, written=("essay",)):
        super().__init__(root)
        self.add_lab(LAB, {"mean-1": 1}, dict.fromkeys(written, 4))
        cells = [cell("# The lab\n\n## Before\n\nNot this."), cell("## In words\n\nWhy?"), cell(SCHEME, "why")]
        self.put("source", ".", [*cells, *(cell("Your answer", name, True, 4) for name in written)])
        self.config = Config()
        self.config.CourseDirectory.root = str(root)
        for student, text in WRITTEN.items():
            self.hand_in(LAB, student, {"mean-1": 1} | ({"essay": 0} if student == "cleo" else {}))
            self.answer(student, text)

    def put(self, step, who, cells):
        path = self.root / step / who / LAB / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)

    def answer(self, student, text):
        self.put("autograded", student, [cell(text, "essay", True, 4)])

    def question(self, grade_id=None):
        return question(LAB, self.root, grade_id, self.config)

    def answers(self):
        return answers(LAB, self.root, "essay", self.config)

    def of(self, student):
        """Return the answer of a student, as the page shows it."""
        key = self.gradebook.find_submission_notebook(LAB, LAB, student).id
        return next(one for one in self.answers() if one.key == key)

    def store(self, student, **given):
        one = self.of(student)
        given = {"version": one.version, **given}
        return store(LAB, self.root, self.question(), one.key, given, self.config)

    def marked(self, student):
        """Return points, comment, and whether the answer waits."""
        self.gradebook.db.expire_all()
        grade = self.gradebook.find_grade("essay", LAB, LAB, student)
        comment = self.gradebook.find_comment("essay", LAB, LAB, student)
        return grade.score, comment.comment, grade.needs_manual_grade


@pytest.fixture
def room(tmp_path):
    return Marking(tmp_path)


def test_the_question_stands_with_its_mark_scheme_and_without_what_is_around_it(room):
    asked = room.question()
    assert (asked.grade_id, asked.title, asked.points) == ("essay", "In words", 4)
    assert asked.text.strip() == "<p>Why?</p>" and "<math" in asked.scheme and "MARK SCHEME" not in asked.scheme


def test_of_several_written_answers_one_has_to_be_named(tmp_path):
    room = Marking(tmp_path, ["essay", "report"])
    for grade_id in (None, "esay"):
        with pytest.raises(GradingError, match=r"one of essay \(2 to be marked\), report \(3 to be marked\)"):
            room.question(grade_id)
    assert room.question("report").grade_id == "report"


def test_answers_that_wait_come_first_in_an_order_that_tells_no_name(room):
    shown = room.answers()
    assert [one.waiting for one in shown] == [True, True, False]
    assert [one.key for one in shown[:2]] == sorted(one.key for one in shown[:2])
    assert room.of("cleo").points == 0 and room.of("ada").points is None


def test_points_and_comment_are_those_of_nbgrader(room):
    assert room.store("ada", points=2.5) == {"waiting": False}
    assert room.marked("ada") == (2.5, None, False)
    assert room.store("ada", comment=" Which one? \n") == {"waiting": False}
    assert room.marked("ada") == (2.5, "Which one?", False)
    assert (room.of("ada").points, room.of("ada").comment) == (2.5, "Which one?")
    assert room.store("ada", comment="") == {"waiting": False} and room.marked("ada")[1] is None


def test_a_comment_alone_marks_nothing_and_points_can_be_taken_back(room):
    assert room.store("ada", comment="Later") == {"waiting": True}
    room.store("ada", points=0)
    assert room.marked("ada") == (0, "Later", False)
    assert room.store("ada", points=None) == {"waiting": True}
    assert room.marked("ada") == (0, "Later", True)


@pytest.mark.parametrize("points", [-1, 4.5, "3", True, [], float("nan"), float("inf")])
def test_points_that_cannot_be_gained_are_refused(room, points):
    with pytest.raises(GradingError, match="a number from 0 to 4"):
        room.store("ada", points=points, comment="x")
    assert room.marked("ada") == (0, None, True)


@pytest.mark.parametrize("comment", [3, ["x"], "x" * 20_001, "half of \ud83d"])
def test_a_comment_that_is_no_text_is_refused(room, comment):
    with pytest.raises(GradingError, match="a text of at most 20,000 characters"):
        room.store("ada", points=3, comment=comment)
    assert room.marked("ada") == (0, None, True)


def test_an_answer_that_changed_since_the_page_was_loaded_is_not_marked(room):
    version = room.of("ada").version
    room.answer("ada", "Something else.")
    with pytest.raises(GradingError, match="changed since the page was loaded"):
        room.store("ada", version=version, points=3)
    assert room.marked("ada") == (0, None, True)
    room.store("ada", points=1)


def test_a_notebook_that_cannot_be_read_does_not_stop_the_others(room):
    (room.root / "autograded" / "ben" / LAB / f"{LAB}.ipynb").write_text("{")
    assert len(room.answers()) == 2


# The server


@pytest.fixture
def ask(room):
    """Ask the server: ``ask(method, path, body, **headers)`` returns the status and the text of its answer."""
    loop, sockets = asyncio.new_event_loop(), bind_sockets(0, "127.0.0.1")

    async def begin():
        HTTPServer(application(LAB, room.root, room.question(), room.config, TOKEN)).add_sockets(sockets)

    def run():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ask(method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(http.client.HTTPConnection(*sockets[0].getsockname())) as connection:
            connection.request(method, path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    yield ask
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_the_page_has_every_answer_and_no_name_and_runs_nothing_of_a_student(ask):
    status, page = ask("GET", f"/?token={TOKEN}")
    assert status == 200 and page.count("<article") == 3 and "<strong>the</strong>" in page
    assert not re.search(r"\b(ada|cleo)\b", page)
    assert len(re.findall("<script", page)) == 1 and not re.search(r"<[^>]*onerror", page)


def test_who_does_not_have_the_address_reads_and_stores_nothing(room, ask):
    one, other = room.of("ada"), {"Host": "elsewhere.example:80"}
    given = {"version": one.version, "points": 3}
    put = f"/mark/{one.key}"
    refused = [
        ask("GET", "/"),
        ask("GET", "/?token=another"),
        ask("GET", f"/?token={TOKEN}", **other),
        ask("PUT", put, given),
        ask("PUT", f"{put}?token={TOKEN}", given),
        ask("PUT", put, given, X_Token="another"),
        ask("PUT", put, given, X_Token=TOKEN, **other),
    ]
    assert {status for status, _ in refused} == {403} and not any("variance" in text for _, text in refused)
    assert ask("POST", put, given, X_Token=TOKEN)[0] == 405
    assert room.marked("ada") == (0, None, True)
    assert ask("PUT", put, given, X_Token=TOKEN) == (200, '{"waiting": false}')
    assert room.marked("ada") == (3, None, False)


def test_the_code_of_a_student_and_what_it_gave_can_be_seen_and_runs_nothing(room, ask):
    output = nbformat.v4.new_output("execute_result", {"text/html": "<b>0.84</b><img src=x onerror=alert(1)>"})
    ran = nbformat.v4.new_code_cell("table <= 1", outputs=[output])
    like_the_first = nbformat.v4.new_code_cell("# labs\n# labs/a.ipynb of version 1\nhidden = 0.84")
    test = nbformat.v4.new_code_cell("assert True")
    test.metadata["nbgrader"] = {"grade_id": "mean-1", "grade": True, "solution": False, "points": 1}
    room.put("autograded", "ada", [like_the_first, ran, test, cell("The mean.", "essay", True, 4)])
    path = f"/code/{room.of('ada').key}"
    assert ask("GET", path)[0] == 403 and ask("GET", path, X_Token="another")[0] == 403
    status, said = ask("GET", path, X_Token=TOKEN)
    shown = json.loads(said)["html"]
    assert "The checks gave 1 of 1 points." in shown
    assert "hidden" in shown
    assert status == 200 and "<b>0.84</b>" in shown and "&lt;=" in shown and "table" in shown
    assert not re.search("onerror|assert|ada|The mean", shown)
    status, said = ask("GET", f"/code/{'0' * 32}", X_Token=TOKEN)
    assert status == 404 and "not in the gradebook any more" in json.loads(said)["error"]
    (room.root / "autograded" / "ada" / LAB / f"{LAB}.ipynb").write_text("{")
    status, said = ask("GET", path, X_Token=TOKEN)
    assert status == 404 and "missing or damaged" in json.loads(said)["error"]


@pytest.mark.parametrize("text", ["x y z " * 2_000_000, "\x1b[31ma" * 300_000], ids=["long", "coloured"])
def test_large_outputs_of_a_student_are_cut_before_they_are_shown(room, text):
    printed = nbformat.v4.new_output("stream", text=text)
    page = nbformat.v4.new_output("display_data", {"text/html": "<b>" * 2_000_000})
    room.put("autograded", "ada", [nbformat.v4.new_code_cell("1", outputs=[printed, page])])
    key = room.gradebook.find_submission_notebook(LAB, LAB, "ada").id
    began = time.process_time()
    assert len(code_of(LAB, room.root, key, room.config)) < 1_000_000
    assert time.process_time() - began < 10


def test_what_cannot_be_stored_is_answered_with_the_reason(room, ask):
    one = room.of("ada")
    for given, status in [
        ({"version": "old", "points": 1}, 409),
        ({"version": one.version, "points": 9}, 409),
        ([], 400),
    ]:
        assert ask("PUT", f"/mark/{one.key}", given or ["x"], X_Token=TOKEN)[0] == status
    status, text = ask("PUT", f"/mark/{'0' * 32}", {"points": 1}, X_Token=TOKEN)
    assert status == 409 and "not in the gradebook any more" in json.loads(text)["error"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such sockets for tornado")
def test_with_a_socket_nobody_but_its_owner_answers_the_page_or_reads_it(room):
    """A port could be taken by any user of the machine as soon as the command has ended."""
    seen = []

    def started(where, page):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(where))
        seen.extend([where, stat.S_IMODE(where.stat().st_mode), page.partition("=")[0]])
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as thread:  # the main thread of these tests may have Playwright's event loop
        thread.submit(serve, LAB, room.root, "essay", room.config, socket=True, started=started).result()
    assert seen == [room.root / "mark.sock", 0o600, "/?token"] and not seen[0].exists()


def test_a_socket_that_cannot_be_made_is_named(room):
    (room.root / "mark.sock").mkdir()
    with (
        ThreadPoolExecutor(1) as thread,
        pytest.raises(GradingError, match=r"mark\.sock cannot be a socket .*: leave --socket out"),
    ):
        thread.submit(serve, LAB, room.root, "essay", room.config, socket=True).result()
