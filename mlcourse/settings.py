"""The settings of the course: the table ``[tool.mlcourse]`` of its ``pyproject.toml``."""

import tomllib
from pathlib import Path

from mlcourse import CourseError


def setting(name: str, root: Path, default: str | None = None) -> str:
    """Return a setting, a text in one line.

    Parameters
    ----------
    name : str
        The key in the table.
    root : pathlib.Path
        The folder of the course.
    default : str, optional
        The value if the table, or the whole file, does not have the key.

    Raises
    ------
    CourseError
        If the file cannot be read, the setting is missing and has no default, or is not a text.
    """
    path = root / "pyproject.toml"
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} cannot be read ({error}): get it again with the course") from None
    for table in ("tool", "mlcourse"):
        settings = settings.get(table, {})
        if not isinstance(settings, dict):
            raise CourseError(f"{path}: [tool.mlcourse] must be a table, but {table} is {settings!r} there")
    value = settings.get(name, default)
    if not isinstance(value, str):
        found = "which is missing" if value is None else f"not {value!r}"
        raise CourseError(f'{path}: write {name} = "a text" in [tool.mlcourse], {found}')
    return " ".join(value.split())
