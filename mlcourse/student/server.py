"""The course's part of the Jupyter server that `mlcourse lab` starts.

The buttons *Validate* and *Hand in* above a lab (see ``jupyter/labextensions``) ask it to check the saved notebook, as
`mlcourse submit` does. It also shows the book, if the book is on this machine: a browser follows no link from
JupyterLab to a file.
"""

import asyncio
import importlib
import json
import os
import re
from pathlib import Path, PurePosixPath

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

from mlcourse import CourseError
from mlcourse.book import SEE, VARIABLE, address, local_copy
from mlcourse.student import StudentError, course_folder
from mlcourse.student.notebooks import LAB_NAME, read
from mlcourse.student.submit import (
    count,
    find_lab,
    first_open,
    judge,
    read_content,
    run,
    summary,
    where_to_hand_in,
    write_file,
)

ONE_AT_A_TIME = asyncio.Lock()  # a check sets environment variables as it starts a kernel


def _jupyter_server_extension_points():
    return [{"module": "mlcourse.student.server"}]


def _load_jupyter_server_extension(app):
    prefix = url_path_join(app.web_app.settings["base_url"], "mlcourse")
    handlers = [(url_path_join(prefix, "check"), Check), (url_path_join(prefix, "place"), Place)]
    try:
        copy = local_copy(course_folder(app.root_dir))
    except StudentError:
        copy = None
    if copy:
        handlers.append((url_path_join(prefix, "site", "(.*)"), Site, {"path": str(copy)}))
        app.web_app.settings["mlcourse_site"] = "mlcourse/site"
    app.web_app.add_handlers(".*$", handlers)


async def _start_jupyter_server_extension(app):
    """Tell the kernels where the book is, once the port is known."""
    asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "nbgrader.preprocessors")  # takes 2 s
    if "mlcourse_site" in app.web_app.settings:
        os.environ[VARIABLE] = url_path_join(app.connection_url, app.web_app.settings["mlcourse_site"])


class Check(APIHandler):
    """Run a saved lab and say how far it is; write the file to hand in if that is asked."""

    auth_resource = "mlcourse"

    @web.authenticated
    @authorized
    async def post(self):
        """Check the lab whose ``path`` the request has; with ``write``, hand it in."""
        asked = self.get_json_body()
        if not isinstance(asked, dict):
            raise web.HTTPError(400, "name the lab: expected an object with a path")
        try:
            async with ONE_AT_A_TIME:
                root = self.serverapp.root_dir
                answer = await asyncio.to_thread(check, root, str(asked.get("path")), asked.get("write") is True)
        except CourseError as error:
            self.set_status(400)
            answer = {"error": str(error)}
        self.finish(json.dumps(answer))


class Place(APIHandler):
    """Say at which cell a lab opens."""

    auth_resource = "mlcourse"

    @web.authenticated
    @authorized
    def get(self):
        """Return the identifier of a cell of the lab with the ``path``, None for the top."""
        try:
            _, _, path = _find(self.serverapp.root_dir, self.get_query_argument("path"))
            cell = first_open(read(path)["cells"])
        except CourseError:
            cell = None
        self.finish(json.dumps({"cell": cell}))


class Site(JupyterHandler, web.StaticFileHandler):
    """The copy of the site on this machine."""

    auth_resource = "mlcourse"

    @web.authenticated
    @authorized
    def get(self, path):
        """Return a file of the site."""
        return web.StaticFileHandler.get(self, path)


def check(folder, path, write=False):
    """Run a lab as it was saved, and return what `mlcourse submit` says about it.

    Parameters
    ----------
    folder : str
        The root of the server: the folder of the labs, or one above it.
    path : str
        The notebook of the lab, relative to that.
    write : bool
        Whether to write the file to hand in.

    Returns
    -------
    dict
        For the browser: ``title``, ``exercises``, ``summary``, and with `write` ``file``, a list of sentences.

    Raises
    ------
    CourseError
        If `path` is not the notebook of a lab, or the lab cannot be read, run or written.
    """
    root, name, path = _find(folder, path)
    where = where_to_hand_in(root)
    content, notebook = read_content(path)
    cells, stopped = run(notebook)
    exercises = judge(cells)
    answer = {
        "exercises": [
            {
                "title": one.title,
                "state": one.state,
                "done": one.done,
                "cell": one.cell,
                "points": f"{one.reach} of {count(one.points)}",
                "problems": [_with_link(problem, root) for problem in one.problems],
            }
            for one in exercises
        ],
        "summary": [*filter(None, [stopped]), *summary(exercises).splitlines()],
    }
    if write:
        written, kept = write_file(root, name, content)
        answer["file"] = [f"The file to hand in: {written}", where]
        answer["file"] += [f"The file that you wrote before is kept: {kept}"] if kept else []
    return answer


def _find(folder, path):
    """Return the folder of the course, the name of a lab, and its notebook."""
    path = PurePosixPath(path)
    if not re.fullmatch(LAB_NAME, path.stem) or path.parent.name != path.stem:
        raise StudentError(f"{path.name} is not the notebook of a lab: open the lab from the start page")
    root = course_folder(folder)
    name, notebook = find_lab(root, path.stem)
    if Path(folder, path).resolve() != notebook.resolve():
        raise StudentError(
            f"{path} is a copy: what is checked and handed in is labs/{name}/{name}.ipynb, "
            "so open the lab from the start page"
        )
    return root, name, notebook


def _with_link(sentence, root):
    """Return what a problem says, and the address of the place in the book that helps, if it names one."""
    place = SEE.search(sentence)
    link = address(place[1], root) if place else None
    return {"text": sentence[: place.start()].rstrip() if link else sentence, "link": link}
