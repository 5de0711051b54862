"""What a kernel notes about the cells that it runs: their CPU time, and the files of the course that they read.

`coursebook.execution` imports this module in the kernel of each notebook, before the first cell. A module counts as
read once it is imported, by a cell or by another module; a data file once Python opens it. What a library opens behind
Python's back is not seen, so `mlcourse.datasets` opens every file itself.
"""

import json
import os
import sys

_opened = set()
_used_before = 0.0


def start():
    """Begin to note."""
    global _used_before  # noqa: PLW0603 (one process, one record)
    sys.addaudithook(_note)
    _used_before = _cpu_seconds()


def report(root):
    """Return what was noted since `start`.

    Parameters
    ----------
    root : str
        The repository of the course.

    Returns
    -------
    str
        A JSON object: ``cpu``, the seconds that the process and its children worked, and ``files``, the paths relative
        to `root` of the modules and the other files below it that were read, leaving out what programs generate.
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
