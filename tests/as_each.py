"""Run a command of nbgrader as each of several users of the system, from one start of Python.

    echo USER... | as_each.py WORD...

Only root can run it, with the students' Python. The command has the rights and the home of its user, and begins in the
folder in which the user's JupyterLab starts on the hub. Printed is, for each user, the exit code and what it said.
"""

import json
import os
import pwd
import sys
import tempfile
import traceback

from nbgrader.apps.nbgraderapp import NbGraderApp


def main():
    result = {}
    for name in sys.stdin.read().split():
        with tempfile.TemporaryFile() as said:
            if not (child := os.fork()):
                become(pwd.getpwnam(name), said.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            result[name] = code, said.read().decode()
    print(json.dumps(result))


def become(user, output):
    """Run the command as a user, and end."""
    code = 1
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        os.environ |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
        os.chmod(user.pw_dir, 0o700)
        os.makedirs(f"{user.pw_dir}/labs", exist_ok=True)
        os.chdir(f"{user.pw_dir}/labs")
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())
        NbGraderApp.launch_instance(sys.argv[1:])
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
