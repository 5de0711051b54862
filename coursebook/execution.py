"""Execute the chapters in parallel before Sphinx reads them, and only those whose results may have changed.

MyST-NB reads the results from a cache that identifies a notebook by its code. Each record also lists the files that the
cells read, with their hashes: if one of them changes, the chapter is executed again.
"""

import ast
import asyncio
import contextlib
import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.config import NbParserConfig
from myst_nb.core.read import MystMetadataParsingError, create_nb_reader
from myst_parser.config.main import MdParserConfig
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat import read as read_notebook
from nbformat import write as write_notebook
from sphinx_external_toc.parsing import MalformedError, parse_toc_yaml
from traitlets.config import Config

from coursebook import contents

CACHE, NOTEBOOKS, RUNS = ".jupyter_cache", "notebooks", "runs.json"
CACHED_NOTEBOOKS = 400
LOCK = "requirements.lock"
TRACKER = "__import__('coursebook.dependency_tracker', fromlist=['dependency_tracker'])"
FORMATTER = "__import__('coursebook.figure_formatter', fromlist=['figure_formatter'])"


@dataclass
class Run:
    """A notebook and the result of its execution.

    ``seconds`` is the wall-clock time, ``cpu`` the CPU time of the cells in seconds. ``files`` are the files of the
    course that they read, relative to its folder. ``error`` is empty, or the cell that failed and its traceback.
    """

    name: str
    notebook: NotebookNode
    folder: Path
    seconds: float = 0.0
    cpu: float = 0.0
    files: list[str] = field(default_factory=list)
    error: str = ""


def cores() -> int:
    """Return how many notebooks can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit(runs: Iterable[Run]) -> float:
    """Return the shortest possible time to execute the notebooks, in seconds: their cells' CPU time over the cores."""
    return sum(run.cpu for run in runs) / cores()


def settings(root: Path) -> dict:
    """Return the configuration of the book, ``_config.yml``."""
    return yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))


def chapters(root: Path) -> list[Run]:
    """Return the pages of the book that have cells, not executed, in the order of the contents.

    The pages for maintainers come last. Pages that cannot be read are left out: Sphinx reports them.
    """
    extensions = settings(root).get("parse", {}).get("myst_enable_extensions", [])
    markdown, found = MdParserConfig(enable_extensions=extensions), []
    with contextlib.suppress(MalformedError):
        for name in [*parse_toc_yaml(root / "_toc.yml"), *contents.read_maintainers_pages(root)]:
            path = root / f"{name}.md"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            with contextlib.suppress(MystMetadataParsingError):
                if reader := create_nb_reader(str(path), markdown, NbParserConfig(), text):
                    found.append(Run(name, reader.read(text), path.parent))
    return found


def execute_what_changed(
    root: Path,
    output: Path,
    log: TextIO,
    pages: list[Run] | None = None,
    chosen: Container[str] | None = None,
    done: Callable[[Run], None] | None = None,
    **options,
) -> list[Run]:
    """Bring the cached results of all chapters up to date.

    The executed notebooks go to the folder ``notebooks`` of `output`, unless they are there already, and times and
    files go to its ``runs.json``.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.
    output : pathlib.Path
        Its build folder.
    log : file
        Receives the standard error of the kernels.
    pages : list of Run, optional
        The chapters, not executed. The default is those of the site.
    chosen : container of str, optional
        The names of those that may be executed. The default is all.
    done : function, optional
        Called with each run as soon as it ends without an error.
    **options
        Passed to `execute`.

    Returns
    -------
    list of Run
        The chapters that were executed. Those without an error are in the cache, even if others failed.
    """
    cache = get_cache(output / CACHE)
    cache.change_cache_limit(CACHED_NOTEBOOKS)
    pages, before = chapters(root) if pages is None else pages, read_runs(output)
    stale = [page for page in pages if chosen is None or page.name in chosen]
    stale = [page for page in stale if not _is_valid(_record(cache, page), root)]
    stale.sort(key=lambda page: (-before.get(page.name, {}).get("seconds", float("inf")), -len(str(page.notebook))))
    started = time.time()

    def keep(run):
        inputs = {"python": platform.python_version()} | _hashes(root, [*run.files, LOCK], until=started)
        data = {"execution_seconds": run.seconds, "cpu": run.cpu, "inputs": inputs}
        cache.cache_notebook_bundle(CacheBundleIn(run.notebook, run.name, data=data), False, overwrite=True)
        if done:
            done(run)

    execute(stale, root, log, keep, **options)
    _publish(cache, pages, before, output, {run.name for run in stale})
    return stale


def read_runs(output: Path) -> dict[str, dict]:
    """Return the last run of each chapter: the ``seconds``, ``cpu`` seconds and ``files`` of a `Run`, by its name."""
    path = output / RUNS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def notebook_of(page: str, output: Path) -> Path:
    """Return the place of the executed notebook of a page."""
    return output / NOTEBOOKS / f"{page.removeprefix('book/')}.ipynb"


def execute(
    runs: list[Run],
    root: Path,
    log: TextIO,
    keep: Callable[[Run], None] | None = None,
    environment: dict[str, str] | None = None,
    **options,
) -> None:
    """Execute notebooks on all cores, each in a process of its own, in the order given.

    Parameters
    ----------
    runs : list of Run
        Modified in place: the notebooks get outputs, and the other attributes are set.
    root : pathlib.Path
        The repository of the course; the notebooks import ``mlcourse`` from there.
    log : file
        Receives the standard error of the kernels.
    keep : function, optional
        Called with each run as soon as it ends without an error.
    environment : dict, optional
        Variables for the kernels, in addition to those of this process.
    **options
        Options of `nbclient.NotebookClient`. The default time limit of a cell is that of ``_config.yml``.
    """
    paths = filter(None, [str(root), os.environ.get("PYTHONPATH")])
    # One thread per kernel: there is already a kernel per core
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)} | (environment or {})
    options = {"timeout": settings(root)["execute"]["timeout"], "record_timing": False} | options

    async def all_of_them():
        free = asyncio.Semaphore(cores())

        async def one(run):
            async with free:
                await _execute(run, root, options, {"env": variables, "stderr": log})
                if keep and not run.error:
                    keep(run)

        await asyncio.gather(*map(one, runs))

    if runs:
        _in_a_thread(all_of_them())


def execute_everything(root: Path, log: TextIO) -> list[Run]:
    """Execute all chapters, and the instructor's labs in ``source/``, without any cache, and return the runs.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.
    log : file
        Receives the standard error of the kernels.
    """
    runs = chapters(root)
    for path in sorted(root.glob("source/*/*.ipynb")):
        runs.append(Run(f"source/{path.stem}", read_notebook(path, as_version=4), path.parent))
    runs.sort(key=lambda run: -len(str(run.notebook)))
    with tempfile.TemporaryDirectory() as folder:
        execute(runs, root, log, environment=dict.fromkeys(["IPYTHONDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME"], folder))
    return runs


def table(runs: list[Run]) -> str:
    """Return the times of runs as lines of text, the slowest first."""
    width = max(len(run.name) for run in runs)
    lines = [f"{'notebook':{width}}  seconds  CPU time"]
    lines += [
        f"{run.name:{width}}  {run.seconds:7.1f}  {run.cpu:8.1f}{'  failed' if run.error else ''}"
        for run in sorted(runs, key=lambda run: -run.seconds)
    ]
    return "\n".join(lines)


def _in_a_thread(coroutine):
    """Run a coroutine in another thread, since this one may have an event loop; Ctrl-C cancels it, then raises."""
    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(coroutine)

    def run():
        try:
            loop.run_until_complete(task)
        finally:
            for left in asyncio.all_tasks(loop):
                left.cancel()
            loop.run_until_complete(asyncio.sleep(0))

    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run)
            try:
                future.result()
            except BaseException:
                loop.call_soon_threadsafe(task.cancel)
                raise
    finally:
        loop.close()


async def _execute(run, root, options, kernel):
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as private:
        # A TCP port that was free when it was chosen may be taken before the kernel binds it
        config = {"KernelManager": {"transport": "ipc", "ip": f"{private}/kernel"}} if os.name == "posix" else {}
        client = NotebookClient(
            run.notebook, resources={"metadata": {"path": str(run.folder)}}, config=Config(config), **options
        )
        try:
            async with client.async_setup_kernel(**kernel):
                await _ask(client, f"{TRACKER}.start()")
                await _ask(client, f"{FORMATTER}.start()")
                await client.async_execute(cleanup_kc=False)
                report = json.loads(ast.literal_eval(await _ask(client, f"{TRACKER}.report({str(root)!r})")))
                run.cpu, run.files = report["cpu"], report["files"]
        except Exception as error:
            run.error = str(error) or type(error).__name__
    run.seconds = time.perf_counter() - started


async def _ask(client, expression):
    """Evaluate an expression in the kernel, without changing the notebook, and return the value's representation."""
    message = client.kc.execute("", silent=True, user_expressions={"value": expression})
    value = (await client.async_wait_for_reply(message))["content"]["user_expressions"]["value"]
    if value["status"] != "ok":
        raise RuntimeError(f"{value['ename']}: {value['evalue']}")
    return value["data"]["text/plain"]


def _record(cache, page):
    """Return the record in the cache for the code of a page, or None."""
    try:
        return cache.match_cache_notebook(page.notebook)
    except KeyError:
        return None


def _is_valid(record, root):
    if not record or "inputs" not in record.data:
        return False
    inputs = dict(record.data["inputs"])
    return inputs.pop("python") == platform.python_version() and inputs == _hashes(root, inputs)


def _hashes(root, files, until=float("inf")):
    """Return the hash of each file, None if it is missing, or a text that is no hash if it changed after `until`."""
    return {name: _hash(root / name, until) for name in files}


def _hash(path, until):
    if not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.stat().st_mtime < until else "changed meanwhile"


def _publish(cache, pages, before, output, executed):
    """Write the results into the build folder, but only new ones, since Sphinx compares modification times."""
    runs = {}
    for page in pages:
        if record := _record(cache, page):
            path = notebook_of(page.name, output)
            runs[page.name] = {
                "seconds": record.data["execution_seconds"],
                "cpu": record.data["cpu"],
                "code": record.hashkey,
                "files": [name for name in record.data["inputs"] if name != "python"],
            }
            same = page.name not in executed and before.get(page.name, {}).get("code") == record.hashkey
            if not (same and path.exists()):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_notebook(cache.get_cache_bundle(record.pk).nb, path)
    for path in {*(output / NOTEBOOKS).rglob("*.ipynb")} - {notebook_of(name, output) for name in runs}:
        path.unlink()
    if runs != before:
        (output / RUNS).write_text(json.dumps(runs, indent=1), encoding="utf-8")
