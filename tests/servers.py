"""Find free ports, and wait until a Jupyter server is ready."""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request


def served(runtime, server, log):
    """Return the address of a server once it answers.

    Parameters
    ----------
    runtime : pathlib.Path
        Its JUPYTER_RUNTIME_DIR.
    server : subprocess.Popen
    log : pathlib.Path
        Its log, to show if the server does not start.
    """
    for _ in range(600):
        for path in runtime.glob("jpserver-*.json"):
            # The server makes this file before it writes to it, and listens a moment later.
            with contextlib.suppress(json.JSONDecodeError, OSError):
                url = json.loads(path.read_text())["url"].rstrip("/")
                urllib.request.urlopen(url).close()
                return url
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


def free_ports(count, among=None):
    """Return the first of so many successive ports that nobody uses, `among` some of them if need be.

    Test processes look in different places: a port may be used only minutes after it was chosen.
    """
    for port in among or range(18_000 + os.getpid() % 100 * 100, 30_000, 10):
        with contextlib.ExitStack() as closed:
            try:
                for number in range(port, port + count):
                    closed.enter_context(socket.socket()).bind(("127.0.0.1", number))
                return port
            except OSError:
                continue
    raise OSError("no free ports")


def wait_until_ended(server):
    """Wait until a server ends that was asked to, for so long as one does that still answers its first page."""
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:  # threads of Jupyter can then wait for ever
        server.kill()
        server.wait()
