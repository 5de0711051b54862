"""Close nbgrader's pages in a Jupyter server to addresses and texts that would run scripts or another configuration.

Each page of the web can send a browser to an address of the Jupyter server, and the browser adds the cookie with which
the server knows its user. nbgrader answers some addresses with a part of them, as HTML. Its formgrader writes parts of
an address into the scripts of its pages as they are, and into the addresses from which these load their tables; it
writes texts of such tables into a page as HTML; it shows a file beside a student's notebook as a page of its own; and
it loads a configuration, which is Python, from any folder that an address names. In JupyterLab, it runs each command
that a page sends, once the formgrader's frame was closed: so that frame is off, and the formgrader a page of its own.

This is an extension of the Jupyter server, switched on in the environment (``nbgrader_pages.json``). Extensions load in
the order of their names, so it comes before those of nbgrader. The same file switches off that of Jupytext, which
writes a saved notebook into each file that the notebook names. ``viewers.json`` switches off JupyterLab's figures of
Vega: such a figure in a notebook that is only opened can read any file of the server and send it elsewhere. Notebook 7
shows it all the same, so its pages are off, too, and JupyterLab opens what nbgrader links to there. It also switches
off the loader of such files as hold the layout of JupyterLab: it writes a file to each address that one names.
"""

import base64
import hashlib
import importlib
import os
import re
import secrets
import sys
from pathlib import Path
from urllib.parse import unquote

PLACE = "nbgrader.server_extensions."
# What labs, notebooks, students and files of the formgrader are named with: other letters than those of ASCII stand
# in an address as bytes from %80
PLAIN = "[a-z0-9_.@+/-]|%(?:20|2b|40|[89a-f][0-9a-f])"
DOTS = r"/\.+(?:/|$)"
# A file that was handed in beside the notebook; no page of the course needs one
FILES = r"/submissions/(?!components/)[^/]+/(?!(?:next|prev)(?:_incorrect)?/?$)."
# For JupyterLab, where a reader opens notebooks of others; the kernels answer by web sockets
OWN = "'self' data: blob:"
NOTHING_ELSEWHERE = f"frame-src 'self' blob:; connect-src {OWN} ws: wss:; img-src {OWN}; media-src {OWN}"
# JupyterLab makes some of its code as it runs
SCRIPTS = "script-src 'self' 'unsafe-eval'"
# What browsers say in `Sec-Fetch-Dest`
MEDIA = ("audio", "embed", "image", "object", "track", "video")
FILES_OF_PAGES = ["custom", "favicon.ico", "files", "formgrader/static", "kernelspecs", "lab/api/themes"]
FILES_OF_PAGES += ["lab/extensions", "mlcourse/site", "static"]
# A page of another site that opens JupyterLab gets no hold of its window, to which it could send messages
ALONE = {"Cross-Origin-Opener-Policy": "same-origin"}
# What another site may link to; JupyterHub and nbgitpuller send browsers to the last two. A notebook that opens starts
# Python in its folder, where there may be modules of others: a link may open one for students alone
ENTRANCES = ["", "formgrader(?:/(?:manage_assignments/?)?)?", "login", "oauth_callback", "git-pull", "(?P<lab>lab/?)"]
ENTRANCES_OF_STUDENTS = [*ENTRANCES[:-1], "(?P<lab>lab(?:/tree(?:/.*)?|/?)|(?:tree|notebooks|edit)/.*)"]
PARENT = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")
WORKSPACE = re.compile(rb"[a-zA-Z0-9_-]*")
# nbgrader's own; its other buttons get their scripts from its files
BUTTONS = ["createAssignmentModal();", "createStudentModal();", "toggleAllNames()"]


def _jupyter_server_extension_points():
    return [{"module": "mlcourse.student.nbgrader_pages"}]


def _link_jupyter_server_extension(app):
    # Before the server makes its contents manager
    from mlcourse.student.contents import CleanContents

    app.contents_manager_class = type("Contents", (CleanContents, app.contents_manager_class), {})


def _load_jupyter_server_extension(app):
    from jupyter_server.utils import url_path_join
    from tornado.web import RedirectHandler

    for name, is_on in app.jpserver_extensions.items():
        if is_on and name.startswith(PLACE):
            importlib.import_module(f"{name}.handlers")
    protect()
    app.web_app.settings["headers"] = {**app.web_app.settings.get("headers", {}), **ALONE}
    _refuse_requests(app)
    if app.jpserver_extensions.get(f"{PLACE}formgrader"):
        _run_own_scripts_alone()
    if not app.jpserver_extensions.get("notebook"):
        base = app.web_app.settings["base_url"]
        pages = [
            (
                url_path_join(base, "(?:notebooks|tree|edit)", "(.*)"),
                RedirectHandler,
                {"url": url_path_join(base, "lab/tree/{0}"), "permanent": False},
            )
        ]
        app.web_app.add_handlers(".*$", pages)


def _run_own_scripts_alone():
    """Let JupyterLab's page run no script but those of its files, where an instructor reads notebooks of others."""
    from jupyterlab.commands import get_app_dir
    from jupyterlab_server.handlers import LabHandler

    page = Path(get_app_dir(), "static", "index.html").read_text(encoding="utf-8")
    own = " ".join(map(csp_hash, re.findall("<script>(.*?)</script>", page, re.DOTALL)))
    general = LabHandler.content_security_policy.fget
    LabHandler.content_security_policy = property(lambda self: f"{general(self)}; {SCRIPTS} {own}")


def _refuse_requests(app):
    """Refuse what a notebook that is only opened, or a link of another site, must not ask of this server."""
    from jupyter_server.base.handlers import JupyterHandler
    from jupyter_server.utils import url_path_join
    from tornado.routing import Matcher, PathMatches, Rule
    from tornado.web import HTTPError

    base = app.web_app.settings["base_url"]
    files = re.compile(re.escape(base) + f"(?:{'|'.join(FILES_OF_PAGES)})(?:/.*)?")
    has_formgrader = app.jpserver_extensions.get(f"{PLACE}formgrader")
    entrances = re.compile(f"{re.escape(base)}(?:{'|'.join(ENTRANCES if has_formgrader else ENTRANCES_OF_STUDENTS)})")

    class AskedAsMedia(Matcher):
        """A browser asks for pictures, sounds and films of a notebook without a click; only files are some."""

        def match(self, request):
            # Over an insecure connection to another machine, browsers say only which types they accept
            kind = request.headers.get("Sec-Fetch-Dest", request.headers.get("Accept", "").partition("/")[0])
            is_media = kind in MEDIA
            return {} if is_media and not files.fullmatch(request.path) else None

    class Forbidden(JupyterHandler):
        """What a notebook or another site could misuse."""

        auth_resource = "mlcourse"

        def prepare(self):
            self.set_status(403)
            self.set_header("Content-Type", "text/plain")
            self.finish("This Jupyter server does not open this address from here. Start at its first page.")

    class FromElsewhere(Matcher):
        """A link, a redirect or a script of another site, with which the browser sends the cookie.

        It may open JupyterLab. What a browser fetches in advance or in the background may be of any page. Browsers say
        where a request comes from only over a secure connection, or to their own machine.
        """

        def match(self, request):
            site, mode = request.headers.get("Sec-Fetch-Site"), request.headers.get("Sec-Fetch-Mode", "navigate")
            # A page can let a browser fetch an address in advance, or in the background; it then names no site
            if "Sec-Purpose" in request.headers or (site == "none" and mode != "navigate"):
                return {}
            is_other = site in ("cross-site", "same-site")
            entrance = entrances.fullmatch(request.path)
            # JupyterHub counts its redirects
            is_plain = request.query_arguments.keys() <= {"token", "redirects"}
            is_allowed = entrance and (not entrance["lab"] or is_plain)
            return {} if is_other and not is_allowed else None

    class LeavesTheFolder(Matcher):
        """JupyterLab asks for whatever address the dots in the path of a file lead to.

        It takes each "/tree/" out of the path, which may bring two dots together.
        """

        def match(self, request):
            path = unquote(request.path)
            joined = path.partition("/tree/")[2].replace("/tree/", "")
            return {} if PARENT.search(path) or PARENT.search(joined) else None

    class FetchesNoFile(PathMatches):
        """JupyterLab shortens the dots in a link only after it has checked it, and takes a file for an answer."""

        def match(self, request):
            # Browsers name the mode only over a secure connection; JupyterLab sends the token with each request
            is_fetch = request.headers.get("Sec-Fetch-Mode") in ("cors", "same-origin")
            return super().match(request) if is_fetch or "X-XSRFToken" in request.headers else None

    class ClonesNoWorkspace(Matcher):
        """JupyterLab loads a workspace from the address, without looking at the dots in it: also from a notebook."""

        def match(self, request):
            return None if all(map(WORKSPACE.fullmatch, request.query_arguments.get("clone", []))) else {}

    class LicensesByPattern(Matcher):
        """JupyterLab's server searches names by the regular expression in an address, which may never end."""

        def match(self, request):
            return {} if "bundles" in request.query_arguments else None

    class HandedIn(PathMatches):
        """A file of a student, which the server would read without its contents manager."""

        def match(self, request):
            found = super().match(request)
            if not found:
                return None
            path = found["path_args"][0].decode("utf-8", "replace")
            try:
                return {} if app.contents_manager.was_handed_in(path) else None
            except HTTPError:  # no path that this server can read
                return {}

    fetched = FetchesNoFile(re.escape(base) + "(?:files|nbconvert|view)/.*")
    # Before the pages of JupyterLab, which are there already
    matchers = [
        AskedAsMedia(),
        FromElsewhere(),
        LeavesTheFolder(),
        ClonesNoWorkspace(),
        LicensesByPattern(),
        fetched,
        HandedIn(re.escape(base) + "(?:files|view)/(.*)"),
        # These exports run the scripts of a notebook in a browser on the server
        PathMatches(url_path_join(re.escape(base), "nbconvert", "(?i:web|qt).*")),
    ]
    app.web_app.default_router.rules[:0] = [Rule(matcher, Forbidden) for matcher in matchers]


def protect() -> None:
    """Close the pages of those extensions of nbgrader that are loaded but have not registered their pages yet."""
    for name in ("assignment_list", "course_list", "validate_assignment"):
        if (module := sys.modules.get(f"{PLACE}{name}.handlers")) and not hasattr(module, "_protected"):
            module._protected = True
            _answer_in_plain_text(module.default_handlers)
    module = sys.modules.get(f"{PLACE}formgrader.handlers")
    if module and not hasattr(module, "_protected"):
        module._protected = True
        _answer_in_plain_text(importlib.import_module(f"{PLACE}formgrader.apihandlers").default_handlers)
        _protect_formgrader(module)


def _answer_in_plain_text(pages):
    """Let pages say that their answers are no HTML. Some scripts of nbgrader expect text, not JSON."""
    for handler in {page[1] for page in pages}:

        def set_default_headers(self, general=handler.set_default_headers):
            general(self)
            self.set_header("Content-Type", "text/plain; charset=UTF-8")

        handler.set_default_headers = set_default_headers


def _protect_formgrader(handlers):
    """Refuse hostile addresses, scripts that are added to a page, and what JupyterLab would fetch from other sites."""
    from jupyter_server.base.handlers import AuthenticatedHandler
    from tornado import web

    class Refused(handlers.BaseHandler):
        """A page that does not exist."""

        def prepare(self):
            self.set_status(404)
            self.set_header("Content-Type", "text/plain")
            self.finish("The formgrader has no page with this address.")

    class Start(handlers.BaseHandler):
        """The start of the formgrader, for the course in the folder of this server alone."""

        @web.authenticated
        def get(self):
            path = self.get_argument("path", "")
            if path and os.path.abspath(path) != os.path.abspath(self.coursedir.root):
                raise web.HTTPError(404, "for the formgrader of another course, start a Jupyter server in its folder")
            self.redirect(f"{self.base_url}/formgrader/manage_assignments")

    render = handlers.BaseHandler.render

    def render_with_policy(self, name, **values):
        """Render a template of nbgrader so that the scripts in it run, and none that is added to the page later."""
        nonce = secrets.token_urlsafe()
        self.add_header("Content-Security-Policy", policy(nonce))
        return render(self, name, **values).replace("<script", f'<script nonce="{nonce}"')

    general = AuthenticatedHandler.content_security_policy.fget
    AuthenticatedHandler.content_security_policy = property(lambda self: f"{general(self)}; {NOTHING_ELSEWHERE}")
    handlers.BaseHandler.render = render_with_policy
    handlers.default_handlers[:0] = [
        (rf"/formgrader/(?!(?i:{PLAIN})*$).*", Refused),
        (rf"/formgrader(?=.*{DOTS}).*", Refused),
        (rf"/formgrader{FILES}.*", Refused),
        (r"/formgrader/?", Start),
    ]


def policy(nonce: str) -> str:
    """Return the content security policy of a page whose own scripts have the nonce, besides that of Jupyter."""
    parts = [
        "default-src 'self'",
        f"script-src 'nonce-{nonce}' 'unsafe-hashes' {' '.join(map(csp_hash, BUTTONS))}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
    ]
    return "; ".join(parts)


def csp_hash(script: str) -> str:
    """Return the hash that allows a script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
