"""Record, inside a kernel, the CPU time of its cells and the files of the course that they read.

`coursebook.execution` imports this module in the kernel of each notebook, before the first cell. A module counts as
read once a cell or another module imports it; a data file counts once Python opens it. Files that a library opens in
compiled code are not recorded, so `mlcourse.datasets` opens every file itself.
"""

import json
import os
import sys

_opened = set()
_used_before = 0.0


def start():
    """Start recording."""
    global _used_before  # noqa: PLW0603 (one process, one record)
    sys.addaudithook(_note)
    _used_before = _cpu_seconds()


def report(root):
    """Return the record since `start`.

    Parameters
    ----------
    root : str
        The repository of the course.

    Returns
    -------
    str
        A JSON object: ``cpu`` is the CPU time of the process and its children in seconds, ``files`` the paths relative
        to `root` of the modules and other files that were read below it, without generated files.
    """
    cpu = _cpu_seconds() - _used_before
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    root = os.path.realpath(root)
    files = {os.path.realpath(path) for path in imported | _opened if path and not path.endswith(".pyc")}
    below = {os.path.relpath(path, root).replace(os.sep, "/") for path in files if path.startswith(root + os.sep)}
    return json.dumps({"cpu": cpu, "files": sorted(path for path in below if not _is_generated(path))})


def _note(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        path, _, flags = arguments
        if not (flags or 0) & os.O_WRONLY:
            _opened.add(os.path.abspath(os.fsdecode(path)))


def _is_generated(path):
    return path.startswith("_build/") or any(part.startswith(".") for part in path.split("/"))


def _cpu_seconds():
    return sum(os.times()[:4])
