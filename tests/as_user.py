"""Run a command as another user, with access to the interpreter and this checkout.

    python tests/as_user.py UID COMMAND...

Only root can run it. It mounts empty folders over those that other users cannot enter, for this command only.
"""

import os
import sys
from pathlib import Path

from coursegrader import sandbox

ROOT = Path(__file__).parents[1]


def main():
    user, *command = sys.argv[1:]
    sandbox.check(sandbox.libc.unshare(sandbox.CLONE_NEWNS))
    sandbox.mount("none", "/", None, sandbox.MS_REC | sandbox.MS_PRIVATE, "")
    needed = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, ROOT)}
    for folder in sorted({closed for path in needed if (closed := closed_above(path))}):
        below = {path: os.open(path, os.O_PATH) for path in needed if path.startswith(f"{folder}/")}
        sandbox.mount("tmpfs", folder, "tmpfs", 0, "mode=755")
        for path, descriptor in below.items():
            os.makedirs(path)
            sandbox.mount(f"/proc/self/fd/{descriptor}", path, None, sandbox.MS_BIND | sandbox.MS_REC, "")
            os.close(descriptor)
    os.setgroups([])
    os.setresgid(int(user), int(user), int(user))
    os.setresuid(int(user), int(user), int(user))
    os.execvp(command[0], command)


def closed_above(path):
    """Return the highest folder above a path that other users cannot enter, or None."""
    return next((str(one) for one in reversed(Path(path).parents) if not one.stat().st_mode & 1), None)


if __name__ == "__main__":
    main()
