import os
import re
import shutil

import matplotlib
import pytest
from xdist.scheduler import LoadFileScheduling

matplotlib.use("Agg")


class LoadFileAndLab(LoadFileScheduling):
    """Keep the tests of a file on one worker, but spread the labs where a file takes them in turn."""

    def _split_scope(self, nodeid):
        lab = re.search(r"\[.*?(lab-\d\d)", nodeid)
        return super()._split_scope(nodeid) + (lab[1] if lab else "")


def pytest_xdist_make_scheduler(config, log):
    return LoadFileAndLab(config, log)


def pytest_terminal_summary(terminalreporter):
    """Print the lines that tests recorded with ``record_property("summary", line)``."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, line in report.user_properties:
                    if name == "summary":
                        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def bubblewrap():
    """What the box for students' code is made of."""
    if not shutil.which("bwrap"):
        message = "no bubblewrap: on Debian and Ubuntu, type: sudo apt-get install bubblewrap"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
