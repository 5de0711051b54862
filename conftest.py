"""Adds the options ``--changed`` and ``--quick`` to pytest, and chooses how nbval starts kernels.

All other set-up of the tests is in `tests/conftest.py`.
"""

import os

import unchanged


def pytest_addoption(parser):
    """Add the options."""
    parser.addoption("--changed", action="store_true", help="leave out tests that passed before with the same inputs")
    parser.addoption("--quick", action="store_true", help="run what is quick, or about an uncommitted chapter or lab")


def pytest_configure(config):
    """Let `tests/unchanged.py` leave out tests, if that is asked, and start kernels without ports where that works."""
    if os.name == "posix" and (config.getoption("nbval") or config.getoption("nbval_lax")):
        from jupyter_client.provisioning import KernelProvisionerFactory

        KernelProvisionerFactory.instance().default_provisioner_name = "socket-files"
    if config.getoption("--changed") or config.getoption("--quick"):
        config.pluginmanager.register(unchanged)
