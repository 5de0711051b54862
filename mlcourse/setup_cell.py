"""The first cell of every published notebook: it names the source and installs what is missing."""

import json
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode
from packaging.requirements import Requirement

from mlcourse import CourseError
from mlcourse.settings import setting

ROOT = Path(__file__).resolve().parents[1]
# Packages that chapters and labs import, directly or through `mlcourse`; pyproject.toml has the version ranges
IMPORTED = (
    "numpy",
    "pandas",
    "geopandas",
    "matplotlib",
    "scikit-learn",
    "myst-nb",
    "markdown-it-py",
    "mdit-py-plugins",
)

# The metadata of a cell whose code JupyterLab and Colab fold away; its output is shown
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}

# `mlcourse publish` writes this branch of the students' repository
STUDENTS_BRANCH = "main"

SOURCE = """\
# {title}
# {path} of version {version}
# Where the course is missing, as on Colab, this cell fetches it and what it needs. Elsewhere it does nothing.
import importlib.util

if importlib.util.find_spec("mlcourse") is None:
    import subprocess
    import sys
    from pathlib import Path

    course = Path.home() / "{folder}"
    if not course.exists():
        address = "{url}"
        subprocess.run(["git", "clone", "--quiet", "--depth=1", address, course], check=True)
    packages = {packages}
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    sys.path.insert(0, str(course))"""

# What may stand in a field of SOURCE: part of a line, and in code no call. IPython ends lines at more than \r and \n
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_FIELDS = defaultdict(lambda: rf"[^{_CONTROL}()]*", title=rf"[^{_CONTROL}]*", path=r"\S*", version=rf"[^{_CONTROL}]*")
_FULL = re.compile(
    "".join(_FIELDS[part] if at % 2 else re.escape(part) for at, part in enumerate(re.split(r"\{(\w+)\}", SOURCE)))
)


def setup_cell(path: str, root: Path = ROOT) -> NotebookNode:
    """Return the set-up cell of a notebook.

    Parameters
    ----------
    path : str
        The notebook's source in the repository, such as ``book/trees-and-forests.md``.
    root : pathlib.Path
        The repository of the course, with its title in ``_config.yml`` and its version in ``pyproject.toml``.

    Returns
    -------
    nbformat.NotebookNode
        A code cell that JupyterLab and Colab collapse.
    """
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    students = students_repository(root)
    listed = [*project["dependencies"], *project["optional-dependencies"]["book"]]
    ranges = {one.name: str(one) for one in map(Requirement, listed)}
    source = SOURCE.format(
        title=config["title"],
        version=project["version"],
        path=path,
        url=students,
        folder=students.rsplit("/", 1)[1].removesuffix(".git"),
        packages=json.dumps([ranges[name] for name in IMPORTED]),
    )
    return nbformat.v4.new_code_cell(source, id="set-up", metadata={**FOLDED, "tags": ["set-up"]})


def is_setup_cell(source: str) -> bool:
    """Return whether a code cell is a set-up cell as `setup_cell` writes it.

    Its title, path and version may be any, and so may what the part that fetches the course names. Where the course is,
    that part runs nothing.
    """
    return _FULL.fullmatch(source) is not None


def students_repository(root: Path = ROOT) -> str:
    """Return the address of the students' repository, `students` in the settings of the course.

    Raises
    ------
    CourseError
        If the settings cannot be read or do not have it, or if it holds the name or password of a user.
    """
    address = setting("students", root).rstrip("/")
    if re.search("[?#]", address) or ("@" in address and not re.fullmatch(r"(ssh://)?git@[^@]+", address)):
        raise CourseError(
            f"{root / 'pyproject.toml'}: students must be an address that everybody may read, since every notebook "
            "shows it: take everything before the @ out, and the @ itself, or all from a ? or # on"
        )
    return address
