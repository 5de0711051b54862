"""Close the pages of nbgrader's formgrader to addresses and texts that would run scripts or another configuration.

nbgrader writes parts of an address into the scripts of its pages as they are, and into the addresses from which these
load their tables; it writes texts of such tables into a page as HTML; it shows a file beside a student's notebook as a
page of its own; and it loads a configuration, which is Python, from any folder that an address names. Each page of the
web can send an instructor's browser to such an address, and the browser adds the cookie with which the Jupyter server
knows the instructor. Its extension of JupyterLab runs each command that a page in the formgrader's frame sends, of
whatever site the page is.
"""

import os
import secrets
import sys

from coursegrader.sanitizer import csp_hash

HANDLERS = "nbgrader.server_extensions.formgrader.handlers"
# What labs, notebooks, students and files of the formgrader are named with: other letters than those of ASCII stand
# in an address as bytes from %80
PLAIN = "[a-z0-9_.@+/-]|%(?:20|2b|40|[89a-f][0-9a-f])"
DOTS = r"/\.+(?:/|$)"
# A file that was handed in beside the notebook; no page of the course needs one
FILES = r"/submissions/(?!components/)[^/]+/(?!(?:next|prev)(?:_incorrect)?/?$)."
# nbgrader's own; its other buttons get their scripts from its files
BUTTONS = ["createAssignmentModal();", "createStudentModal();", "toggleAllNames()"]


def protect_formgrader() -> None:
    """Refuse such addresses in this process, added scripts in the formgrader, and other sites in JupyterLab's frames.

    ``nbgrader_config.py`` calls this. The formgrader loads it before it registers its pages. Elsewhere than in a
    Jupyter server, this does nothing.
    """
    handlers = sys.modules.get(HANDLERS)
    if handlers is None or hasattr(handlers, "_protected"):
        return
    from jupyter_server.base.handlers import AuthenticatedHandler
    from tornado import web

    class Refused(handlers.BaseHandler):
        """A page that does not exist."""

        def prepare(self):
            self.set_status(404)
            self.set_header("Content-Type", "text/plain")
            self.finish("The formgrader has no page with this address.")

    class OwnConfiguration(handlers.FormgraderHandler):
        """The start of the formgrader, for the course in the folder of this server alone."""

        @web.authenticated
        def get(self):
            path = self.get_argument("path", "")
            if path and os.path.realpath(path) != os.path.realpath(self.coursedir.root):
                raise web.HTTPError(404, "for the formgrader of another course, start a Jupyter server in its folder")
            return super().get()

    render = handlers.BaseHandler.render

    def render_with_policy(self, name, **values):
        """Render a template of nbgrader so that the scripts in it run, and none that is added to the page later."""
        nonce = secrets.token_urlsafe()
        self.add_header("Content-Security-Policy", policy(nonce))
        return render(self, name, **values).replace("<script", f'<script nonce="{nonce}"')

    general = AuthenticatedHandler.content_security_policy.fget
    AuthenticatedHandler.content_security_policy = property(lambda self: f"{general(self)}; frame-src 'self' blob:")
    handlers.BaseHandler.render = render_with_policy
    handlers._protected = [
        (rf"/formgrader/(?!(?i:{PLAIN})*$).*", Refused),
        (rf"/formgrader(?=.*{DOTS}).*", Refused),
        (rf"/formgrader{FILES}.*", Refused),
        (r"/formgrader/?", OwnConfiguration),
    ]
    handlers.default_handlers[:0] = handlers._protected


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
