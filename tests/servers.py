"""Wait until a Jupyter server is ready."""

import json
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
            url = json.loads(path.read_text())["url"].rstrip("/")
            try:
                urllib.request.urlopen(url).close()
                return url
            except OSError:
                pass
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise TimeoutError(log.read_text())
