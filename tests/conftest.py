import matplotlib

matplotlib.use("Agg")


def pytest_terminal_summary(terminalreporter):
    """Print the lines that tests recorded with ``record_property("summary", line)``."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, line in report.user_properties:
                    if name == "summary":
                        terminalreporter.write_line(line)
