"""Wait for a Jupyter server that was started."""

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
        What it prints, to show if it does not come up.
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
