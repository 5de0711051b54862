"""Set up a JupyterHub for one class on this machine: Debian 12 or newer, or Ubuntu 24.04 or newer.

    sudo python3 deploy/jupyterhub/set_up.py INSTRUCTOR

Run it in the instructor's clone of the course, and again after every change of the course or of its versions: what is
there already stays. It needs Python 3.11 and its standard library.
"""

import argparse
import grp
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COURSE = HERE.parents[1]
PYTHON = "/usr/bin/python3"  # one that every user may run, unlike one below somebody's home
PROGRAMS = {"git": "git", "make": "make", "node": "nodejs", "npm": "npm", "bwrap": "bubblewrap"}
# Variables that say how this machine reaches packages
NETWORK = re.compile("PIP_|NPM_CONFIG_|SSL_|NODE_EXTRA_|.*_PROXY$", re.IGNORECASE)
ALONE = (
    "Without --address, all servers have one name: a page that a student serves can act as whoever opens it, also as "
    "the instructor. Let nobody else log in before you gave the address, see the page On a JupyterHub."
)
PORTS = range(1, 1022)  # each with the next two; every user may take port 1024 and those after it
UNIT = Path("/etc/systemd/system/mlcourse-hub.service")
# Whoever serves a file system decides when a read from it ends. A read into a file that was handed in changes the file
# then, long after the time of change that the kernel notes.
FUSE = Path("/dev/fuse")
FUSE_RULES = {
    Path("/etc/udev/rules.d/90-mlcourse-hub.rules"): 'KERNEL=="fuse", MODE="0600", OPTIONS+="static_node=fuse"\n',
    Path("/etc/tmpfiles.d/zz-mlcourse-hub.conf"): "z /dev/fuse 0600 - -\n",  # after systemd's own, which opens it
}
FUSE_HELPERS = ("/usr/bin/fusermount", "/usr/bin/fusermount3")  # open it for everybody, with root's rights


class SetUpError(Exception):
    """The set-up cannot go on; the message says why and what to do."""


def main():
    """Run all steps, or end with one sentence that says what is wrong."""
    options = parse()
    os.umask(0o022)  # everybody may read what is installed
    try:
        set_up(options)
    except SetUpError as error:
        sys.exit(f"Error: {error}")
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        sys.exit(f"Error: this command failed, see its messages above, then run the set-up again: {command}")


def parse():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Set up a JupyterHub for one class on this machine.")
    parser.add_argument("instructor", metavar="INSTRUCTOR", help="the user who owns the course and this clone of it")
    parser.add_argument("--group", default="students", help="the group of the users who are students (%(default)s)")
    says = "the first of three ports of this machine, which only root may take (%(default)s)"
    parser.add_argument("--port", type=int, default=800, help=says)
    says = "where programs and settings go (%(default)s)"
    address = (
        "where people will reach the hub, such as https://hub.example.org; their servers get names below it, and the "
        "next set-up knows it"
    )
    parser.add_argument("--address", metavar="URL", help=address)
    parser.add_argument("--prefix", type=Path, default=Path("/opt/mlcourse"), help=says)
    says = "nbgrader's exchange (%(default)s)"
    parser.add_argument("--exchange", type=Path, default=Path("/srv/nbgrader/exchange"), help=says)
    return parser.parse_args()


def set_up(options):
    """Install what is missing, and write the settings.

    Raises
    ------
    SetUpError
        If something about this machine or the clone does not fit; the message says what to do.
    """
    instructor = check(options)
    options.address = options.address or earlier_address(options.prefix)
    say("Installing what is missing of Debian's packages ...")
    install_packages()
    ensure_group(options.group)
    COURSE.chmod(0o700)
    say("Setting up the course's environment, as the instructor ...")
    run("make", "--silent", ".venv/ready", user=instructor)
    say("Publishing what students get ...")
    publish(instructor, options.prefix / "course")
    say("Setting up the students' environment ...")
    environment, lock = options.prefix / "env", HERE / "requirements.lock"
    run("sh", ".ci/setup", environment, lock, cwd=options.prefix / "course", env={"PYTHON3": PYTHON})
    say("Installing the proxy ...")
    install_proxy(options.prefix / "proxy")
    say("Writing the settings and the exchange ...")
    write_settings(options, instructor)
    make_exchange(options.exchange, instructor)
    close_fuse()
    start(options)


def check(options):
    """Return the instructor's entry in the list of users, and refuse what cannot work."""
    if os.geteuid() != 0:
        raise SetUpError("only root can do this: type sudo before the command")
    if sys.version_info < (3, 11) or not Path(PYTHON).exists():
        raise SetUpError(f"{PYTHON} 3.11 or newer is needed: use Debian 12 or newer, or Ubuntu 24.04 or newer")
    try:
        instructor = pwd.getpwnam(options.instructor)
    except KeyError:
        name = options.instructor
        raise SetUpError(f"there is no user {name}: type adduser {name}, and clone the course as that user") from None
    if options.address and not re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]+)?", options.address):
        raise SetUpError(f"{options.address} is no address such as https://hub.example.org, without a path")
    if options.port not in PORTS:
        raise SetUpError(f"whoever takes port {options.port} before the hub gets its passwords: choose one below 1022")
    if instructor.pw_uid == 0:
        raise SetUpError("the instructor must not be root: make a user for yourself, and clone the course as that user")
    if COURSE.stat().st_uid != instructor.pw_uid:
        raise SetUpError(f"{COURSE} does not belong to {options.instructor}: clone the course as that user")
    return instructor


def earlier_address(prefix):
    """Return the address that an earlier set-up got, or None."""
    settings = prefix / "hub.json"
    return json.loads(settings.read_text("utf-8")).get("address") if settings.exists() else None


def install_packages():
    """Install the Debian packages of which something is missing."""
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if not list(Path("/usr/lib").glob("*/libseccomp.so.2")):
        missing.append("libseccomp2")
    if subprocess.run([PYTHON, "-c", "import ensurepip"], capture_output=True, check=False).returncode:
        missing.append("python3-venv")
    if missing:
        run("apt-get", "update", "-qq")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        command = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)
        run(*command, env=quiet, stdout=subprocess.DEVNULL)


def ensure_group(name):
    """Make the group of the students, unless it is there."""
    try:
        grp.getgrnam(name)
    except KeyError:
        run("groupadd", name)


def publish(instructor, target):
    """Put the students' repository to `target`, for everybody to read, without the labs: they are handed out later."""
    publication = COURSE / "_build" / "hub-students"
    name = instructor.pw_name
    author = {f"GIT_{who}_{what}": name for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    shutil.rmtree(publication, ignore_errors=True)
    run(".venv/bin/mlcourse", "publish", publication, user=instructor, env=author)
    new = target.with_name("course-new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(publication, new, symlinks=True, ignore=shutil.ignore_patterns(".git", "labs"))
    for path in [new, *new.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)


def install_proxy(folder):
    """Install configurable-http-proxy with the versions of ``package-lock.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    run("npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=folder)


def write_settings(options, instructor):
    """Write the settings of the hub, of nbgrader, and of the JupyterLab of each role."""
    prefix = options.prefix
    (prefix / "state").mkdir(mode=0o700, exist_ok=True)
    (prefix / "certificates").mkdir(exist_ok=True)
    settings = {
        "instructor": instructor.pw_name,
        "course": str(COURSE),
        "course_id": course_id(instructor),
        "group": options.group,
        "port": options.port,
        "address": options.address,
        "exchange": str(options.exchange),
    }
    (prefix / "hub.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    shutil.copy(HERE / "jupyterhub_config.py", prefix)
    for role in ("instructor", "student"):
        shutil.copytree(HERE / role, prefix / "jupyter" / role, dirs_exist_ok=True)
    shutil.copy(HERE / "nbgrader_config.py", prefix / "jupyter")


def course_id(instructor):
    """Return what nbgrader calls the course."""
    code = "from coursegrader.labs import nbgrader_config; print(nbgrader_config().CourseDirectory.course_id)"
    return run(".venv/bin/python", "-c", code, user=instructor, capture_output=True, text=True).stdout.strip()


def make_exchange(root, instructor):
    """Make nbgrader's exchange, with the folder in which students put their work but find nobody else's."""
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o1777)  # nbgrader asks for a folder that everybody may write to; nobody may move what is another's
    course = root / course_id(instructor)
    for folder, mode in [(course, 0o755), (course / "inbound", 0o3733)]:
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700)
            os.chown(folder, instructor.pw_uid, instructor.pw_gid)
        # Anybody may have put something there before
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != instructor.pw_uid:
            raise SetUpError(f"{folder} is no folder of {instructor.pw_name}: look at what it is, and move it away")
        folder.chmod(mode)


def close_fuse():
    """Let only root mount a file system that a program serves, now and after the machine starts again."""
    for path, rule in FUSE_RULES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rule, encoding="utf-8")
    if FUSE.exists():
        FUSE.chmod(0o600)
    for helper in FUSE_HELPERS:  # also one that a package brings later
        if subprocess.run(["dpkg-statoverride", "--list", helper], capture_output=True, check=False).returncode:
            update = ["--update"] if Path(helper).exists() else []
            run("dpkg-statoverride", *update, "--add", "root", "root", "0755", helper)


def start(options):
    """Let systemd start the hub, now and whenever the machine starts; without systemd, say how to start it."""
    prefix, address = options.prefix, options.address or f"http://127.0.0.1:{options.port}"
    if Path("/run/systemd/system").is_dir():
        unit = (HERE / UNIT.name).read_text("utf-8").replace("PREFIX", str(prefix))
        UNIT.write_text(unit, encoding="utf-8")
        run("systemctl", "daemon-reload")
        run("systemctl", "enable", "--quiet", UNIT.stem)
        run("systemctl", "restart", UNIT.stem)
        say(f"JupyterHub runs at {address}")
    else:
        say(f"Ready. This command starts JupyterHub at {address}:")
        say(f"{prefix}/env/bin/jupyterhub --config {prefix}/jupyterhub_config.py")
    if not options.address:
        say(ALONE)


def run(*command, user=None, cwd=COURSE, env=None, **options):
    """Run a command as root, or as a user in that user's groups, with the programs of the system alone."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    environment |= {name: value for name, value in os.environ.items() if NETWORK.match(name)}
    who = {}
    if user:
        environment |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "PYTHON3": PYTHON}
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid)}
    else:
        environment["HOME"] = "/root"
    return subprocess.run(list(map(str, command)), cwd=cwd, env=environment | (env or {}), check=True, **who, **options)


def say(sentence):
    """Print a sentence at once, also into a file."""
    print(sentence, flush=True)


if __name__ == "__main__":
    main()
