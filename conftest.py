"""Adds the options ``--changed`` and ``--quick`` to pytest. All other set-up of the tests is in `tests/conftest.py`."""

import unchanged


def pytest_addoption(parser):
    """Add the options."""
    parser.addoption("--changed", action="store_true", help="leave out tests that passed before with the same inputs")
    parser.addoption("--quick", action="store_true", help="run what is quick, or about an uncommitted chapter or lab")


def pytest_configure(config):
    """Let `tests/unchanged.py` leave out tests, if that is asked."""
    if config.getoption("--changed") or config.getoption("--quick"):
        config.pluginmanager.register(unchanged)
