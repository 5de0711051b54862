"""Look at a student's installation, and say of each problem what to type to mend it.

This file is written for old versions of Python, too, so that it can tell the person who has one.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "python3"
PLUGIN = Path(__file__).parent / "jupyter" / "labextensions" / "mlcourse"


class Problem(Exception):
    """Something is wrong: what it is, and what to type."""

    def __init__(self, what, *mend):
        super().__init__(what)
        self.mend = mend


def run_doctor(root=ROOT):
    """Print one line for each part of the installation, and below it what to type if it has a problem.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.

    Returns
    -------
    int
        0 if all is well, otherwise 1.
    """
    problems = 0
    checks = [check_python, check_packages, check_course, check_data, check_kernel, check_buttons, check_writing]
    for check in [*checks, *checks_of_other_packages()]:
        try:
            print("ok       " + check(root))
        except Problem as problem:
            problems += 1
            print(
                f"PROBLEM  {problem}\n" + "".join(f"         type: {one}\n" for one in problem.mend),
                end="",
            )
    print("All is well." if not problems else "Then run the same command again.")
    return 1 if problems else 0


def check_python(root):
    """Return the version of Python if it is new enough."""
    wanted = re.search(r'requires-python = ">=(\d+)\.(\d+)"', read(root / "pyproject.toml", root))
    minimum = tuple(int(part) for part in wanted.groups())
    if sys.version_info < minimum:
        raise Problem(
            "Python {} is too old: the course needs {}.{} or newer".format(sys.version.split()[0], *minimum),
            *set_up("# with a newer Python from https://www.python.org or your system"),
        )
    return f"Python {sys.version.split()[0]}"


def check_packages(root):
    """Return how many packages are there, if each is within the range that the course admits."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        raise Problem("the package packaging is missing", *install()) from None
    import tomllib

    wanted = [Requirement(one) for one in tomllib.loads(read(root / "pyproject.toml", root))["project"]["dependencies"]]
    locked = {}
    for line in read(root / "requirements-student.lock", root).replace("\\\n", " ").splitlines():
        match = re.match(r"([\w.-]+==[\w.]+)\s*(;[^-]*)?", line)
        if match:
            one = Requirement(match[0])
            if one.marker is None or one.marker.evaluate():
                locked[one.name] = str(one.specifier)[2:]
    names = {one.name for one in wanted} | (set() if in_conda() else set(locked))
    there = {name: installed(name) for name in names}
    missing = sorted(name for name, version in there.items() if version is None)
    if missing:
        raise Problem("{} missing: {}".format(*count_names(missing)), *install())
    wrong = [one for one in wanted if not one.specifier.contains(there[one.name], prereleases=True)]
    if wrong:
        names = ", ".join(f"{one.name} {there[one.name]} instead of {one.specifier}" for one in wrong)
        raise Problem("a version that does not fit: " + names, *install())
    other = sum(version != locked.get(name) for name, version in there.items())
    note = f", {other} in another version than the tested one, which may well work" if other else ""
    return f"{len(there)} packages{note}"


def check_course(root):
    """Return where the course is installed, if it is the one in this folder and its commands are there."""
    if installed("mlcourse") is None:
        raise Problem("the course itself is not installed", python("-m pip install --no-deps --editable ."))
    here = next((one for one in (Path.cwd(), *Path.cwd().parents) if (one / "mlcourse" / "checks.py").exists()), root)
    if here.resolve() != root.resolve():
        raise Problem(
            f"you are in {here}, but the installed course is the one in {root}",
            f"cd {here}",
            *install("-m pip install --no-deps --editable ."),
        )
    return "the course {} in {}".format(installed("mlcourse"), root)


def check_data(root):
    """Return how many data files there are, if each is as it was published."""
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([0-9a-f]{64}) \|$", read(root / "data" / "README.md", root), re.M)
    missing = [name for name, _ in rows if not (root / "data" / name).is_file()]
    changed = [name for name, sha in rows if name not in missing and digest(root / "data" / name) != sha]
    if not rows or missing or changed:
        what = " and ".join(
            "{} {}".format(word, ", ".join(names))
            for word, names in (("missing", missing), ("changed", changed))
            if names
        )
        raise Problem("data files: {}".format(what or "the list of them is empty"), *restore("data"))
    return f"{len(rows)} data files"


def check_kernel(root):
    """Return the Python that runs the cells of a notebook, if it knows the course."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        raise Problem("Jupyter is missing", *install()) from None
    reinstall = python("-m pip install --force-reinstall --no-deps ipykernel")
    try:
        kernel = KernelSpecManager().get_kernel_spec(KERNEL)
    except NoSuchKernel:
        raise Problem("there is no kernel that runs notebooks", reinstall) from None
    try:
        runs = sys.executable if re.match(r"python[\d.]*$", kernel.argv[0]) else kernel.argv[0]  # as Jupyter reads it
        command = [runs, "-c", "import importlib.util as u; print(*map(u.find_spec, ('ipykernel', 'mlcourse')))"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=False, cwd="/"
        )
        knows = done.returncode == 0 and b"None" not in done.stdout
    except (OSError, subprocess.TimeoutExpired):
        knows = False
    if not knows:
        mend = reinstall
        if Path(sys.prefix).resolve() not in Path(kernel.resource_dir).resolve().parents:
            mend = python(f"-m jupyter kernelspec remove -y {KERNEL}")
        raise Problem(f"the notebooks' kernel runs {runs}, which does not know the course", mend)
    return "a kernel that knows the course"


def check_buttons(root):
    """Return that JupyterLab shows the buttons above a lab, if they are there and switched on."""
    try:
        from jupyter_core.paths import jupyter_config_path
    except ImportError:
        raise Problem("Jupyter is missing", *install()) from None
    for package in ("jupyterlab", "nbgrader"):
        if installed(package) is None:
            raise Problem(f"{package} is missing", *install())
    if not (PLUGIN / "package.json").is_file():
        raise Problem("JupyterLab lacks the buttons above a lab", *restore("mlcourse"))
    disabled = {}
    for folder in reversed(jupyter_config_path()):
        disabled.update(
            as_mapping(first_json([folder], "labconfig/page_config.json", {}).get("disabledExtensions", {}))
        )
    if any(disabled.get(name) for name in (PLUGIN.name, PLUGIN.name + ":lab")):
        raise Problem(
            "the buttons above a lab are switched off", python(f"-m jupyter labextension enable {PLUGIN.name}")
        )
    return "JupyterLab {} with the buttons above a lab".format(installed("jupyterlab"))


def check_writing(root):
    """Return how many labs there are, if all can be saved."""
    labs = [path for path in sorted((root / "labs").glob("lab-*/")) if path.is_dir()]
    if not labs:
        raise Problem("there are no labs in {}".format(root / "labs"), *restore("labs"))
    for folder in [root / "labs", *labs]:
        try:
            tempfile.TemporaryFile(dir=str(folder)).close()
            closed = [path for path in folder.glob("*.ipynb") if not os.access(str(path), os.W_OK)]
        except OSError:
            closed = [folder]
        if closed:
            mend = (
                'icacls "{}" /grant "%USERNAME%":F /T'
                if os.name == "nt"
                else 'sudo chown -R "$USER" "{0}" && chmod -R u+rwX "{0}"'
            )
            raise Problem(f"you may not write to {closed[0]}", mend.format(root / "labs"))
    return f"{len(labs)} labs, all of which you may write to"


def checks_of_other_packages():
    """Return a check for each package with commands that says something of its own."""
    from mlcourse.cli import command_modules

    found = [module.installation for module in command_modules() if hasattr(module, "installation")]
    return [lambda root, say=say: say() for say in found]


def installed(name):
    """Return the version of a package, None if it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def read(path, root):
    """Return the text of a file of the course."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise Problem(f"{path} is missing", *restore(path.relative_to(root).as_posix())) from None


def digest(path):
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def first_json(folders, name, default=None):
    """Return the mapping in the first file of that name, the default if there is none that can be read."""
    for folder in folders:
        try:
            return as_mapping(json.loads(Path(folder, name).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return default


def as_mapping(value):
    """Return what is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def count_names(names, shown=6):
    """Return the number of things in words, and the first names."""
    more = ", ..." if len(names) > shown else ""
    return "{} package{}".format(len(names), "" if len(names) == 1 else "s"), ", ".join(names[:shown]) + more


def in_conda():
    """Whether this Python belongs to a conda environment."""
    return (Path(sys.prefix) / "conda-meta").is_dir()


def in_environment():
    """Whether this Python belongs to an environment of its own."""
    return in_conda() or sys.prefix != sys.base_prefix


def python(arguments):
    """Return a command line for the Python that runs this."""
    path = Path(sys.executable)
    short = path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path
    return f'"{short}" {arguments}' if " " in str(short) else f"{short} {arguments}"


def install(arguments="-m pip install --require-hashes -r requirements-student.lock"):
    """Return what brings in the locked packages, in the folder of the course."""
    if in_conda() and "requirements-student.lock" in arguments:
        return ["conda env update --file environment.yml"]
    return [python(arguments)] if in_environment() else set_up()


def set_up(*note):
    """Return what sets everything up from the start."""
    if os.name == "nt":
        return [
            *note,
            "py -3 -m venv .venv",
            r".venv\Scripts\python -m pip install --require-hashes -r requirements-student.lock",
            r".venv\Scripts\python -m pip install --no-deps --editable .",
        ]
    return [*note, "make lab"]


def restore(name):
    """Return what brings a file or folder back as it was published."""
    if (ROOT / ".git").exists():
        return [f"git checkout HEAD -- {name}"]
    return [f"# copy {name} from the archive of the course that you downloaded"]
