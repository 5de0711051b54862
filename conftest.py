"""Adds the option ``--changed`` to pytest. All other set-up of the tests stands in `tests/conftest.py`."""

import unchanged


def pytest_addoption(parser):
    """Add the option."""
    parser.addoption("--changed", action="store_true", help="leave out tests that passed before with the same inputs")


def pytest_configure(config):
    """Let `tests/unchanged.py` leave out tests, if that is asked."""
    if config.getoption("--changed"):
        config.pluginmanager.register(unchanged)
