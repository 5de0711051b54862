"""Read notebooks in a Jupyter server, those of others without what could act in JupyterLab.

JupyterLab knows by a signature which notebooks this user has saved and run. It cleans what it shows of all others, but
not everywhere: it takes outputs of types that the signature does not cover, figures that ask other addresses, saved
widgets, and settings for extensions, and it runs commands that a button in a text names. Of a notebook without a
signature, this server reads only what is named here. Much of that may still keep a browser busy for long, such as a
formula. So what was handed in is not opened at all: the pages of the course are made for that.
"""

import hashlib
import hmac
import json
import re
from pathlib import Path

from jupyter_core.utils import ensure_async
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary, signature_removed
from tornado.web import HTTPError

HANDED_IN = ("submitted", "autograded", "replaced", "feedback")
READ = (
    "read it with `mlcourse mark` or in the formgrader; to run its cells as yourself, copy it to another folder first"
)
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
SHOWN = ("text/plain", "text/html", "text/markdown", "text/latex", "image/png", "image/jpeg")
OUTPUTS = {
    "stream": ("name", "text"),
    "display_data": ("data",),
    "execute_result": ("data", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
NOTEBOOK = {"nbformat", "nbformat_minor", "metadata", "cells"}
CELL = ("id", "cell_type", "metadata", "source", "attachments", "execution_count", "outputs")
CELL_METADATA = (
    "nbgrader",
    "tags",
    "deletable",
    "editable",
    "cellView",
    "collapsed",
    "jupyter",
    "scrolled",
    "slideshow",
)
MOST_TAGS = 100
SCALARS = (str, int, float, bool, type(None))
KERNEL = ("name", "display_name", "language")
COMMANDS = re.compile("data-commandlinker", re.IGNORECASE)
LANGUAGE = ("name", "version")  # the kernel says the rest


class Notary(NotebookNotary):
    """Signs a notebook as a whole. In nbformat's signature, texts join those beside them, so that two may share one."""

    def compute_signature(self, nb):
        """Return the signature of a notebook, which says where each of its texts ends."""
        with signature_removed(nb):
            text = json.dumps(nb, sort_keys=True)
        # A key of its own: nbformat's signatures count for nothing here
        return hmac.new(hashlib.sha256(b"whole" + self.secret).digest(), text.encode(), self.digestmod).hexdigest()


class CleanContents:
    """Comes before the base class of a contents manager: cleans a notebook without a signature as it is read.

    It gives out nothing that students have handed in, or that was graded: no JupyterLab opens it.
    """

    def _notary_default(self):
        return Notary(parent=self)

    async def get(self, path, content=True, *arguments, **options):
        """Return the model of a file or folder."""
        if content and self.was_handed_in(path) and not await ensure_async(self.dir_exists(path)):
            raise HTTPError(403, f"{path} was handed in: {READ}")
        return await ensure_async(super().get(path, content, *arguments, **options))

    async def save(self, model, path=""):
        """Save a file; refuse to change what was handed in, also with the empty notebook of a tab that did not open."""
        if self.was_handed_in(path):
            raise HTTPError(403, f"{path}: only commands of the course write where students' work is")
        return await ensure_async(super().save(model, path))

    async def get_kernel_path(self, path, model=None):
        """Return the folder of a notebook's kernel: not one with files of others, where Python may find modules."""
        return "" if self.was_handed_in(path) else await ensure_async(super().get_kernel_path(path, model))

    def mark_trusted_cells(self, nb, path=""):
        """Clean a notebook if need be, and mark its cells; the server calls this with each notebook that it reads."""
        if not self.notary.check_signature(nb):
            clean(nb)
        super().mark_trusted_cells(nb, path)

    def was_handed_in(self, path):
        """Whether a path lies in a folder of an nbgrader course that holds students' work.

        Of what lies beside a page of feedback, nbgrader may have copied some from the work.
        """
        path = Path(self._get_os_path(path))
        is_page = path.name == f"{path.parent.name}.html"
        return any(
            one.name.lower() in HANDED_IN
            and (one.parent / "nbgrader_config.py").is_file()
            and not (is_page and one.name == "feedback" and one == path.parents[2])
            for one in path.parents
        )


def clean(notebook: dict) -> None:
    """Remove from a notebook what could act in JupyterLab. It may be malformed."""
    metadata = _only(notebook.get("metadata"), ("kernelspec", "language_info", "mlcourse"))  # the last is the grader's
    if "kernelspec" in metadata:
        metadata["kernelspec"] = _only(metadata["kernelspec"], KERNEL)
    if "language_info" in metadata:
        metadata["language_info"] = _only(metadata["language_info"], LANGUAGE)
    notebook["metadata"] = metadata
    for key in notebook.keys() - NOTEBOOK:
        del notebook[key]
    for cell in notebook["cells"]:
        for key in cell.keys() - set(CELL):
            del cell[key]
        cell["metadata"] = _plain(_only(cell.get("metadata"), CELL_METADATA))
        if "attachments" in cell:
            pictures = cell["attachments"] = _only(cell["attachments"])
            for name in pictures:
                pictures[name] = _only(pictures[name], PICTURES)
        if cell.get("cell_type") == "markdown":
            cell["source"] = _without_commands(cell.get("source"))
        if "outputs" in cell:
            cell["outputs"] = [shown for output in cell["outputs"] if (shown := _shown(output))]


def _shown(output):
    """Return what is shown of an output, None if it is of another type."""
    kind = output.get("output_type")
    if kind not in OUTPUTS:
        return None
    shown = _only(output, ("output_type", *OUTPUTS[kind]))
    if "data" in OUTPUTS[kind]:
        data = _only(output.get("data"), SHOWN)
        shown |= {
            "data": NotebookNode({kind: _without_commands(data[kind]) for kind in data}),
            "metadata": NotebookNode(),
        }
    return shown


def _without_commands(text):
    """Return a text whose buttons run no command of JupyterLab."""
    return COMMANDS.sub("data-no-command", text) if isinstance(text, str) else ""


def _plain(metadata):
    """Return the metadata of a cell with plain values: those of a key, of one dictionary below it, and tags."""
    plain = NotebookNode()
    for key, value in metadata.items():
        if key == "tags":
            some = value[:MOST_TAGS] if isinstance(value, list) else []
            plain[key] = [tag for tag in some if isinstance(tag, str)]
        elif isinstance(value, dict):
            plain[key] = NotebookNode({name: one for name, one in value.items() if isinstance(one, SCALARS)})
        elif isinstance(value, SCALARS):
            plain[key] = value
    return plain


def _only(thing, keys=None):
    """Return a dictionary with only some keys; an empty one in the place of anything else."""
    if not isinstance(thing, dict):
        return NotebookNode()
    return NotebookNode({key: thing[key] for key in thing if keys is None or key in keys})
