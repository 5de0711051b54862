"""Addresses of nbgrader's formgrader that a course refuses: they would run scripts, or another configuration.

nbgrader writes parts of an address into the scripts of its pages as they are, and it loads a configuration, which is
Python, from any folder that an address names. Each page of the web can send an instructor's browser to such an
address, and the browser adds the cookie with which the Jupyter server knows the instructor.
"""

import os
import sys

HANDLERS = "nbgrader.server_extensions.formgrader.handlers"
# The characters ", <, > and \, and those that control something; no name of a lab, a notebook or a student has them
SIGNS = r'["<>\\\x00-\x1f]|%(?:22|3c|3e|5c|[01][0-9a-f])'


def refuse_hostile_addresses() -> None:
    """Let the formgrader of this process refuse them. Elsewhere than in a Jupyter server, this does nothing.

    ``nbgrader_config.py`` calls this. The formgrader loads it before it registers its pages.
    """
    handlers = sys.modules.get(HANDLERS)
    if handlers is None or hasattr(handlers, "_refused"):
        return
    from tornado import web

    class Refused(handlers.BaseHandler):
        """A page that does not exist."""

        def prepare(self):
            raise web.HTTPError(404)

    class OwnConfiguration(handlers.FormgraderHandler):
        """The start of the formgrader, for the course in the folder of this server alone."""

        def get(self):
            path = self.get_argument("path", "")
            if path and os.path.realpath(path) != os.path.realpath(self.coursedir.root):
                raise web.HTTPError(404, "for the formgrader of another course, start a Jupyter server in its folder")
            return super().get()

    handlers._refused = [(rf"/formgrader/.*(?i:{SIGNS}).*", Refused), (r"/formgrader/?", OwnConfiguration)]
    handlers.default_handlers[:0] = handlers._refused
