"""Mark one written answer of a whole class on one page, which a server on this machine shows to its reader alone.

Points and comments go into nbgrader's gradebook at once, as from the formgrader. Students have no names there either,
unless what their code printed holds one.
"""

import asyncio
import hmac
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jinja2
import nbformat
from markupsafe import Markup
from nbgrader.api import MissingEntry
from nbgrader.utils import is_grade, is_solution
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler
from traitlets.config import Config

from coursegrader import GradingError, sanitizer
from coursegrader.feedback import Shown
from coursegrader.formulas import mathml
from coursegrader.grade import gradebook_of
from coursegrader.preprocessors import ShowWithinLimits
from coursegrader.result_cache import answers_of
from coursegrader.scores import read_scores, sections
from coursegrader.standing import LONGEST_COMMENT
from coursegrader.submissions import instructor_notebook, present
from mlcourse.setup_cell import is_setup_cell

TEMPLATE = Path(__file__).with_name("mark.html.jinja")
SCHEME = re.compile(r"### BEGIN MARK SCHEME\n(.*?)### END MARK SCHEME", re.DOTALL)
TYPED = "What stands below “As handed in” was not computed here: anybody can type it."
ADDRESS = "127.0.0.1"
SOCKET = "mark.sock"


@dataclass
class Question:
    """A written answer of a lab: its title, its text and its mark scheme as HTML, and its points."""

    grade_id: str
    title: str
    text: Markup
    scheme: Markup
    points: float


@dataclass
class Answer:
    """A student's answer as HTML, without the student's name, with what the gradebook says about it.

    `key` is the gradebook's number of the notebook. `version` is a hash of the answer. `points` are None as long as no
    person gave any.
    """

    key: str
    version: str
    text: Markup
    points: float | None
    comment: str
    waiting: bool


def question(lab: str, root: Path, grade_id: str | None, config: Config) -> Question:
    """Return a written answer of a lab; `grade_id` may be left out if there is just one.

    Raises
    ------
    GradingError
        If there is no such answer; the message lists those that there are.
    """
    source = instructor_notebook(root, lab)
    written = {
        cell.metadata.nbgrader.grade_id: at
        for at, cell in enumerate(source.cells)
        if cell.cell_type == "markdown" and is_grade(cell) and is_solution(cell)
    }
    if not written:
        raise GradingError(f"{lab} has no written answer")
    if grade_id not in written and (grade_id or len(written) > 1):
        with gradebook_of(config) as gradebook:
            marks = read_scores(lab, gradebook)
        marks = marks[marks.student.isin(present(marks.student, lab, root))]
        waits = marks[marks.waiting].groupby("grade_id").size()
        listed = ", ".join(f"{name} ({waits.get(name, 0)} to be marked)" for name in written)
        instead = f"there is no written answer {grade_id}" if grade_id else f"{lab} has several written answers"
        raise GradingError(f"{instead}: type mlcourse mark {lab} and one of {listed}")
    grade_id = grade_id or next(iter(written))
    begin = written[grade_id]
    while begin > 0 and not (source.cells[begin].cell_type == "markdown" and source.cells[begin].source[:3] == "## "):
        begin -= 1
    texts = [one.source for one in source.cells[begin : written[grade_id]] if one.cell_type == "markdown"]
    text = "\n\n".join(texts)
    return Question(
        grade_id,
        sections(lab, root)[1].get(grade_id, grade_id),
        _shown(re.sub(r"^## .*\n", "", SCHEME.sub("", text))),
        _shown("\n\n".join(SCHEME.findall(text))),
        source.cells[written[grade_id]].metadata.nbgrader.points,
    )


def answers(lab: str, root: Path, grade_id: str, config: Config) -> list[Answer]:
    """Return the answers of a class: first those that wait, then the others, each in an order that tells no name."""
    found = []
    with gradebook_of(config) as gradebook:
        every = gradebook.notebook_submissions(lab, lab)
        there = present([one.student.id for one in every], lab, root)
        for submission in (one for one in every if one.student.id in there):
            cell, version = _answer(lab, root, submission.student.id, grade_id)
            if cell is None:
                continue
            grade = gradebook.find_grade(grade_id, lab, lab, submission.student.id)
            said = gradebook.find_comment(grade_id, lab, lab, submission.student.id)
            points = grade.auto_score if grade.manual_score is None else grade.manual_score
            text = _shown(cell.source, cell.get("attachments"))
            found.append(
                Answer(submission.id, version, text, points, said.manual_comment or "", grade.needs_manual_grade)
            )
    return sorted(found, key=lambda one: (not one.waiting, one.key))


def store(lab: str, root: Path, question: Question, key: str, given: dict, config: Config) -> dict:
    """Write points, a comment or both to the gradebook.

    Parameters
    ----------
    lab : str
    root : pathlib.Path
    question : Question
    key : str
        As in `Answer`.
    given : dict
        ``version``, as in `Answer`, and what is to be stored: ``points``, a number or None to take them back, and
        ``comment``, a text.
    config : traitlets.config.Config

    Returns
    -------
    dict
        ``waiting``, whether the answer still waits for points.

    Raises
    ------
    GradingError
        If the answer has changed since the page was loaded, if the points are not among those to gain, or if the
        gradebook cannot be written. Nothing is stored then.
    """
    points, comment = given.get("points"), given.get("comment")
    number = isinstance(points, int | float) and not isinstance(points, bool)
    if points is not None and not (number and 0 <= points <= question.points):
        raise GradingError(f"the points must be a number from 0 to {question.points:g}")
    is_text = isinstance(comment, str) and not re.search(r"[\ud800-\udfff]", comment)
    if comment is not None and not (is_text and len(comment) <= LONGEST_COMMENT):
        raise GradingError(f"the comment must be a text of at most {LONGEST_COMMENT:,} characters")
    with gradebook_of(config) as gradebook:
        student = _submission(gradebook, key).student.id
        if _answer(lab, root, student, question.grade_id)[1] != given.get("version"):
            raise GradingError("this answer has changed since the page was loaded: load the page again")
        grade = gradebook.find_grade(question.grade_id, lab, lab, student)
        if "points" in given:
            grade.manual_score = points
            grade.needs_manual_grade = points is None and grade.auto_score is None
        if comment is not None:
            gradebook.find_comment(question.grade_id, lab, lab, student).manual_comment = comment.strip() or None
        gradebook.db.commit()
        return {"waiting": bool(grade.needs_manual_grade)}


def code_of(lab: str, root: Path, key: str, config: Config) -> Markup:
    """Return the code of a student, and what it gave, as HTML: some mark schemes ask whether the results are there.

    Parameters
    ----------
    lab : str
    root : pathlib.Path
    key : str
        As in `Answer`.
    config : traitlets.config.Config

    Raises
    ------
    GradingError
        If the submission is not in the gradebook any more, or its notebook cannot be read.
    """
    with gradebook_of(config) as gradebook:
        submission = _submission(gradebook, key)
        notebook = _notebook(lab, root, submission.student.id)
        points = f"{submission.code_score:g} of {submission.max_code_score:g}"
    if notebook is None:
        raise GradingError("this notebook is missing or damaged: see what `mlcourse report` says")
    notebook, _ = ShowWithinLimits().preprocess(notebook, {})
    shown = Shown(lambda place: None)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and (is_solution(cell) or not is_grade(cell))]
    parts = [shown.part(cell) for cell in cells if not is_setup_cell(cell.source)]
    template = Markup("<div>{}</div>{}")
    code = Markup("").join(template.format(part.source, Markup("").join(part.outputs)) for part in parts)
    return Markup("<p>The checks gave {} points. {}</p>{}").format(points, TYPED, code)


def _submission(gradebook, key):
    try:
        return gradebook.find_submission_notebook_by_id(key)
    except MissingEntry:
        raise GradingError("this submission is not in the gradebook any more: load the page again") from None


def _notebook(lab, root, student):
    """Return a graded notebook, or None if it is missing or damaged, which `mlcourse report` says."""
    try:
        return nbformat.read(root / "autograded" / student / lab / f"{lab}.ipynb", as_version=4)
    except Exception:
        return None


def _answer(lab, root, student, grade_id):
    """Return the cell of an answer and the hash of what is in it; None and an empty text if it cannot be read."""
    notebook = _notebook(lab, root, student)
    if notebook is None:
        return None, ""
    cells = {one.metadata.nbgrader.grade_id: one for one in notebook.cells if is_grade(one) and is_solution(one)}
    return cells.get(grade_id), answers_of(notebook, {}).get(grade_id, "")


def _shown(text, attachments=None):
    return Markup(sanitizer.rendered(text, attachments, formula=mathml))


class _Handler(RequestHandler):
    def initialize(self, lab, root, question, config, token):
        self.lab, self.root, self.question, self.config, self.secret = lab, root, question, config, token

    def prepare(self):
        """Answer only who has the address with its token, at this machine's own name: no other site's page."""
        given = self.request.headers.get("X-Token") or (self.request.method == "GET" and self.get_argument("token", ""))
        host = self.request.host.rpartition(":")[0]
        if host not in (ADDRESS, "localhost") or not hmac.compare_digest((given or "").encode(), self.secret.encode()):
            raise HTTPError(403)

    def set_default_headers(self):
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")

    def write_error(self, status_code, **how):
        self.finish("Open the address that `mlcourse mark` printed." if status_code == 403 else "This went wrong.")


class _Page(_Handler):
    def get(self):
        nonce = secrets.token_urlsafe(16)
        policy = ["default-src 'none'", f"script-src 'nonce-{nonce}'", f"style-src 'nonce-{nonce}'", "img-src data:"]
        policy += ["connect-src 'self'", *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors"))]
        self.set_header("Content-Security-Policy", "; ".join(policy))
        try:
            found = answers(self.lab, self.root, self.question.grade_id, self.config)
        except GradingError as error:
            self.set_status(503)
            self.finish(f"{error}.")
            return
        environment = jinja2.Environment(
            autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
        )
        page = environment.from_string(TEMPLATE.read_text("utf-8"))
        self.finish(page.render(nonce=nonce, lab=self.lab, question=self.question, answers=found, token=self.secret))


class _Code(_Handler):
    async def get(self, key):
        try:
            # Marks are stored meanwhile
            self.finish({"html": await asyncio.to_thread(code_of, self.lab, self.root, key, self.config)})
        except GradingError as error:
            self.set_status(404)
            self.finish({"error": f"{error}."})


class _Mark(_Handler):
    def put(self, key):
        try:
            given = json.loads(self.request.body)
            if not isinstance(given, dict):
                raise ValueError
        except ValueError:
            raise HTTPError(400) from None
        try:
            self.finish(store(self.lab, self.root, self.question, key, given, self.config))
        except GradingError as error:
            self.set_status(409)
            self.finish({"error": f"{error}."})


def application(lab: str, root: Path, question: Question, config: Config, token: str) -> Application:
    """Return the server's application.

    The page is at ``/?token=TOKEN``, and a student's code at ``/code/KEY``; ``/mark/KEY`` stores a mark.
    """
    shared = {"lab": lab, "root": root, "question": question, "config": config, "token": token}
    pages = [(r"/", _Page, shared), (r"/code/([0-9a-f]+)", _Code, shared), (r"/mark/([0-9a-f]+)", _Mark, shared)]
    return Application(pages, log_function=lambda handler: None)


def serve(
    lab: str,
    root: Path,
    grade_id: str | None,
    config: Config,
    socket: bool = False,
    started: Callable[[int | Path, str], None] = print,
) -> None:
    """Show the page until Ctrl-C.

    Parameters
    ----------
    lab : str
    root : pathlib.Path
        The folder of the course.
    grade_id : str, optional
        The written answer; it may be left out if the lab has one.
    config : traitlets.config.Config
        nbgrader's configuration.
    socket : bool, default False
        Listen at a socket in the folder of the course, which is its owner's alone, instead of a free port. As soon as
        the command has ended, any user of the machine may take the port, and answer the page that is still open.
    started : callable
        Called with the port or the path of the socket, and what follows the host and the port in the page's address.

    Raises
    ------
    GradingError
        If there is no such answer, or if the socket cannot be made.
    """
    asked, token = question(lab, root, grade_id, config), secrets.token_urlsafe(24)

    async def run():
        if socket:
            sockets, where = [_bind_socket(root / SOCKET)], root / SOCKET
        else:
            sockets = bind_sockets(0, ADDRESS)
            where = sockets[0].getsockname()[1]
        HTTPServer(application(lab, root, asked, config, token)).add_sockets(sockets)
        started(where, f"/?token={token}")
        await asyncio.Event().wait()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return
    finally:
        if socket and (root / SOCKET).is_socket():
            (root / SOCKET).unlink()


def _bind_socket(path):
    try:
        from tornado.netutil import bind_unix_socket  # which Windows has not

        return bind_unix_socket(str(path), mode=0o600)
    except (ImportError, OSError, ValueError) as error:
        raise GradingError(f"{path} cannot be a socket ({error}): leave --socket out") from None
