import functools
import gc
import http.server
import os
import re
import shutil
import sys
import threading

import matplotlib
import pytest
from xdist.scheduler import LoadFileScheduling

from coursegrader.worker import missing
from paths import CHAPTERS, COURSES, ROOT
from unchanged import hashes, inputs_of, unit_of, waits_for_the_night

matplotlib.use("Agg")
# Garbage collection is slow among the objects of all tests, and most of them live until the end
gc.set_threshold(100_000, 50, 100)


# Files with few slow tests. They run first, so that the other cores do not wait for them at the end.
LONG = (
    "test_hub",
    "test_printing",
    "test_labs",
    "test_jupyterlab",
    "test_formgrader",
    "test_grade",
    "test_hostile",
    "test_book",
)


class LoadFileAndPart(LoadFileScheduling):
    """Keep the tests of a file on one worker, but distribute a file's tests of different labs and chapters."""

    def _split_scope(self, nodeid):
        scope, part = super()._split_scope(nodeid), re.search(rf"\[.*?(lab-\d\d|{'|'.join(CHAPTERS)})", nodeid)
        if part and scope.endswith("test_labs.py"):
            return scope + next(labs[0] for labs in COURSES if any(lab.startswith(part[1]) for lab in labs))
        return scope + (part[1] if part else "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave tests to `make cold`, and put the long files first."""
    later = {item for item in items if waits_for_the_night(item)}
    config.hook.pytest_deselected(items=list(later))
    items[:] = [item for item in items if item not in later]
    items.sort(key=lambda item: not item.path.stem.startswith(LONG))


def pytest_xdist_make_scheduler(config, log):
    return LoadFileAndPart(config, log)


def pytest_xdist_auto_num_workers():
    """Use one worker more than there are cores, since tests often wait for a server, a browser or a timeout."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else os.cpu_count()


def pytest_terminal_summary(terminalreporter):
    """Print the lines that tests recorded with ``record_property("summary", line)``."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, line in report.user_properties:
                    if name == "summary":
                        terminalreporter.write_line(line)


OPENED = set()


def note_opened(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        OPENED.add(os.path.abspath(arguments[0]))


sys.addaudithook(note_opened)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    OPENED.clear()


@pytest.fixture(autouse=True)
def inputs(request):
    """Fail a test that reads a file of the repository which is not among its inputs in `unchanged`.

    `test_rooms` checks what tests import.
    """
    yield
    opened = {os.path.relpath(path, ROOT).replace(os.sep, "/") for path in OPENED if not path.endswith(".py")}
    unit = unit_of(request.node.nodeid)
    others = (opened & hashes().keys()) - {unit[0], *inputs_of(unit)}
    assert not others, f"add what the test reads to READS in tests/unchanged.py: {sorted(others)}"


@pytest.fixture(scope="session")
def bubblewrap():
    """Skip the test if the programs for the sandbox are missing; fail it in CI."""
    if message := missing():
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


@pytest.fixture(scope="session")
def chromium_path():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not path:
        message = "no Chromium: on Debian and Ubuntu, type: sudo apt-get install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def chromium(chromium_path):
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    # Axe creates many short-lived objects: with the default heap, it spends a tenth of its time on collecting them
    options.append("--js-flags=--min-semi-space-size=32 --max-semi-space-size=64")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address():
    """The address of a server for the built site."""
    site = str(ROOT / "_build" / "html")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
