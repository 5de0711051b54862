"""Where everybody's nbgrader finds the exchange, and how it talks to its kernels.

`set_up.py` copies this file below the folder of ``hub.json``.
"""

import json
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

c = get_config()  # noqa: F821 (nbgrader defines it)

HUB = json.loads((Path(__file__).resolve().parents[1] / "hub.json").read_text("utf-8"))

c.Exchange.root = HUB["exchange"]
# Nobody sees what another user of the machine puts beside it
c.CourseDirectory.course_id = HUB["course_id"]
# *Validate* starts kernels with these settings, not with those of the server: every user may listen at a port
PRIVATE = Path(jupyter_runtime_dir())
PRIVATE.mkdir(mode=0o700, parents=True, exist_ok=True)
c.KernelManager.transport = "ipc"
c.KernelManager.ip = str(PRIVATE / "validation")
