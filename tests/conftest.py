import matplotlib
import pytest

matplotlib.use("Agg")


def pytest_itemcollected(item):
    """Under ``--dist=loadgroup``, keep the tests of a file together, and of a lab where they take the labs in turn."""
    lab = getattr(item, "callspec", None) and item.callspec.params.get("lab")
    item.add_marker(pytest.mark.xdist_group(f"{item.path.name}-{lab}" if lab else str(item.path)))


def pytest_terminal_summary(terminalreporter):
    """Print the lines that tests recorded with ``record_property("summary", line)``."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, line in report.user_properties:
                    if name == "summary":
                        terminalreporter.write_line(line)
