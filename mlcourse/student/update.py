"""Bring new versions of the labs into a student's copy, and lose nothing that the student wrote.

In a released notebook every cell says whether it is as it was given (see `mlcourse.student.notebooks`), so two versions
are enough: the student's and the new one. Given cells are those of the new version. Solved cells, changed examples and
added cells are the student's. Where an exercise and its answer both changed, the notebook shows both.
"""

import contextlib
import difflib
import os
import re
import struct
import subprocess
import time
import uuid
import zipfile
import zlib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from mlcourse.student import StudentError
from mlcourse.student.notebooks import (
    LAB_NAME,
    MAX_BYTES,
    as_given,
    checksum,
    grade_id,
    grader,
    identifier,
    is_solution,
    parse,
    read,
    to_text,
    write,
)

NOTE = """**`mlcourse update`:** exercise `{name}` has changed, and you had answered it already. The next cell holds \
your answer, as you left it. This is what is given now:

{fence}{language}
{given}
{fence}

Copy what your answer lacks, run its checks, and delete this cell."""

# What git sets for its hooks; `git rev-parse --local-env-vars` lists more, with which people configure git
GIT_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX"}
GIT_REPOSITORY |= {"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"}

# What `zipfile` raises for archives that are damaged, encrypted or packed in a way that it does not know
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OSError)


@dataclass
class Merged:
    """A lab of the student with a new version of it.

    Attributes
    ----------
    path : pathlib.Path
        The student's notebook.
    text : str
        What the notebook becomes.
    new : bool
        Whether the student had no such lab.
    solved, conflicts, removed : list of str
        Exercises that the student solved; those among them whose given part changed, too; those that the new version
        no longer has.
    """

    path: Path
    text: str
    new: bool = False
    solved: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def told(self):
        """Return what became of the lab, in sentences for the student."""
        if self.new:
            return f"{self.path.stem}: new."
        told = [f"{self.path.stem}: updated, {_count(self.solved, 'answer')} kept."]
        if self.conflicts:
            told.append(f"Changed by you and by the course, both are shown: {', '.join(self.conflicts)}.")
        if self.removed:
            told.append(f"No longer part of the lab, your cell is kept: {', '.join(self.removed)}.")
        return " ".join(told)


def _count(things, name):
    return f"{len(things) or 'no'} {name}{'' if len(things) == 1 else 's'}"


def update(root, source=None):
    """Update the labs of a copy of the course.

    Parameters
    ----------
    root : pathlib.Path
        The student's copy.
    source : pathlib.Path, optional
        A folder or a zip archive with the new labs. By default the branch that the copy follows, by git; then the whole
        course is updated.

    Returns
    -------
    list of Merged
        The labs that changed.
    backup : str or None
        Name of the folder beside each notebook that holds what it was before, None if no notebook was replaced.

    Raises
    ------
    StudentError
        If it cannot be done. Then nothing has been changed.
    """
    if source is None:
        return _update_by_git(root)
    merged = merge_labs(root, find_labs(source))
    backup = back_up([lab.path for lab in merged if not lab.new])
    for lab in merged:
        _write(lab)
    return merged, backup


def find_labs(source):
    """Return the notebooks of all labs in a folder or zip archive, as bytes by the name of the lab."""
    source = Path(source).expanduser()
    if source.is_dir():
        notebooks = [path for path in source.rglob("lab-*.ipynb") if path.is_file()]
        files = {
            path.relative_to(source.parent).as_posix(): partial(_within, source, path.stat().st_size, path.read_bytes)
            for path in notebooks
        }
        return _choose(files, source)
    try:
        with zipfile.ZipFile(source) as archive:
            files = {
                one.filename: partial(_within, source, one.file_size, archive.read, one) for one in archive.infolist()
            }
            return _choose(files, source)
    except FileNotFoundError:
        raise StudentError(f"there is no file or folder {source}: name the one with the new labs") from None
    except BROKEN_ZIP as error:
        raise StudentError(f"{source} is not a zip archive that can be read ({error}): download it again") from None


def _within(source, size, read, *arguments):
    """Read a notebook of this size, unless no lab is so large."""
    if size > MAX_BYTES:
        raise StudentError(
            f"a notebook in {source} is larger than {MAX_BYTES // 2**20} MB, which no lab is: nothing has been "
            "changed; download the labs again"
        )
    return read(*arguments)


def _choose(files, source):
    """Read the notebooks that lie in a folder of their own name, those in `labs/` if there are any."""
    found = {name: re.fullmatch(rf"(?:.*/)?(?:(labs)/)?({LAB_NAME})/\2\.ipynb", name) for name in files}
    found = {name: match for name, match in found.items() if match}
    released = {name: match for name, match in found.items() if f"/labs/{match[2]}/" in f"/{name}"} or found
    if not released:
        raise StudentError(f"{source} holds no labs: expected notebooks such as labs/lab-01-.../lab-01-....ipynb")
    return {match[2]: files[name]() for name, match in sorted(released.items(), key=lambda one: -one[0].count("/"))}


def merge_labs(root, released):
    """Merge every released lab with the student's, and return those that change; nothing is written.

    Raises
    ------
    StudentError
        If a notebook cannot be read.
    """
    merged = []
    for name, content in sorted(released.items()):
        path = root / "labs" / name / f"{name}.ipynb"
        try:
            new = parse(content, f"the new {name}")
        except StudentError as error:
            raise StudentError(f"{error}: nothing has been changed; get it again") from None
        if not path.exists():
            merged.append(Merged(path, to_text(new), new=True))
            continue
        try:
            mine = read(path)
        except StudentError as error:
            raise StudentError(
                f"{error}: nothing has been changed; rename the file, for instance to {name}.broken, and type the same "
                "again for a fresh lab in its place"
            ) from None
        lab = merge(mine, new, path)
        if _essence(parse(lab.text, path)) != _essence(mine):
            merged.append(lab)
    return merged


def _essence(notebook):
    """Return what must differ before a notebook is written again; editors change the rest at will."""
    return [(cell["cell_type"], cell["source"], grader(cell)) for cell in notebook["cells"]]


def merge(mine, new, path):
    """Merge the student's version of a lab with a new one.

    Parameters
    ----------
    mine, new : dict
        The notebooks, from `mlcourse.student.notebooks.parse`. They are left as they are.
    path : pathlib.Path
        Where the student's notebook lies.

    Returns
    -------
    Merged
    """
    lab = Merged(path, "")
    keys = [_key(cell) for cell in new["cells"]]
    given, own = _sort_out(mine["cells"], set(keys), lab)
    blocks = [_merge_cell(given.get(key), cell, lab) for key, cell in zip(keys, new["cells"], strict=True)]
    old_notes = {_note_name(name) for name in lab.conflicts}
    places = _places(list(given), keys)
    cells = []
    for number in range(len(blocks) + 1):
        cells += [cell for gap, cell in own if places[gap] == number and identifier(cell) not in old_notes]
        cells += blocks[number] if number < len(blocks) else []
    metadata = {**new["metadata"], **mine["metadata"]}
    lab.text = to_text({**new, "metadata": metadata, "cells": _with_identifiers(cells)})
    return lab


def _key(cell):
    """What a given cell is known by, in every version of a lab."""
    return ("exercise", grade_id(cell)) if grade_id(cell) else ("text", identifier(cell))


def _sort_out(cells, known, lab):
    """Tell the given cells, by their key, from the student's own, each with the number of given ones before it."""
    chosen = {}
    for number, cell in enumerate(cells):
        key = _key(cell)
        if key not in chosen or (is_solution(cell) and not as_given(cell)):
            chosen[key] = number  # of several answers to an exercise the last one counts, as it does when it is graded
    given, own = {}, []
    for number, cell in enumerate(cells):
        key = _key(cell)
        written = not as_given(cell)
        if number == chosen[key] and (key in known or not written or (grade_id(cell) and not is_solution(cell))):
            given[key] = cell
        elif written and (is_solution(cell) or not grade_id(cell)):
            own.append((len(given), _without_role(cell)))
            if number == chosen[key] and is_solution(cell):
                lab.removed.append(grade_id(cell))
    return given, own


def _places(before, after):
    """Map each gap in the old notebook to a position in the new one."""
    places = [0]
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        inside = (j1 + i - i1 for i in range(i1 + 1, i2))
        places += inside if kind == "equal" else (min(place, j2) for place in inside)
        places += [j2] if i2 > i1 else []
    return places


def _merge_cell(mine, new, lab):
    """Return the cells that take the place of a new one: mostly itself, or what the student made of it."""
    if mine is None:
        return [new]
    same_type = mine["cell_type"] == new["cell_type"]
    run = {key: mine[key] for key in ("outputs", "execution_count") if same_type and key in mine}
    if mine["source"] == new["source"]:
        return [{**new, **run}]
    if not grade_id(new):
        return [{**mine, "id": identifier(mine)}]
    if not is_solution(mine) or as_given(mine):
        return [new]
    if not is_solution(new):
        lab.removed.append(grade_id(new))
        return [new, _without_role(mine)]
    lab.solved.append(grade_id(new))
    answer = {**new, **run, "source": mine["source"]}
    if checksum(mine, new["source"]) == mine["metadata"]["nbgrader"].get("checksum"):
        return [answer]
    lab.conflicts.append(grade_id(new))
    return [_note(new), answer]


def _note(new):
    """Return a cell that shows what is given now."""
    ticks = max((len(run) for run in re.findall("`+", new["source"])), default=0)
    text = NOTE.format(
        name=grade_id(new),
        fence="`" * max(3, ticks + 1),
        language="python" if new["cell_type"] == "code" else "",
        given=new["source"],
    )
    return {"cell_type": "markdown", "id": _note_name(grade_id(new)), "metadata": {}, "source": text}


def _note_name(name):
    return f"update-{name}"[:64]


def _without_role(cell):
    """Return a cell that nbgrader takes for one of the student's own, which can be edited and deleted."""
    roles = ("nbgrader", "deletable", "editable")
    return {**cell, "metadata": {key: value for key, value in cell["metadata"].items() if key not in roles}}


def _with_identifiers(cells):
    """Give every cell an identifier of its own, as notebooks of format 4.5 have it."""
    named, taken = [], set()
    for cell in cells:
        name = cell.get("id")
        while not name or name in taken:
            name = uuid.uuid4().hex
        taken.add(name)
        named.append({**cell, "id": name})
    return named


def back_up(replaced):
    """Copy what will be replaced into a folder beside it, and return the name of that folder, None if there is none."""
    if not replaced:
        return None
    name = time.strftime("before-update-%Y-%m-%d-%H%M%S")
    while any((path.parent / name).exists() for path in replaced):
        name += "b"
    for path in replaced:
        try:
            (path.parent / name).mkdir(exist_ok=True)  # for another file of the same lab
            write(path.parent / name / path.name, path.read_bytes())
        except OSError as error:
            raise StudentError(
                f"no backup of {path} can be made ({error.strerror}): nothing has been changed"
            ) from None
    return name


def _write(lab):
    lab.path.parent.mkdir(parents=True, exist_ok=True)
    write(lab.path, lab.text.encode())


def _update_by_git(root):
    """Take the branch that the copy follows: the labs merged, everything else as git does it."""
    if not (root / ".git").exists():
        raise StudentError(
            f"{root} is not a git clone: name the folder or the zip archive with the new labs, for instance "
            "`mlcourse update ~/Downloads/course.zip`"
        )
    if _git(root, "ls-files", "--unmerged"):
        raise StudentError("a git merge is not finished: type `git merge --abort`, then run the same command again")
    try:
        theirs = _git(root, "rev-parse", "--abbrev-ref", "@{upstream}")
    except StudentError:
        raise StudentError(
            "your branch follows no branch of the course: type `git branch --set-upstream-to=origin/main`, and then "
            "the same again"
        ) from None
    _git(root, "fetch", "--quiet")
    base = _git(root, "merge-base", "HEAD", theirs)
    if base == _git(root, "rev-parse", theirs):
        return [], None
    merged = merge_labs(root, _labs_of(root, theirs))
    _refuse_other_changes(root, base, theirs)
    replaced = [lab.path for lab in merged if not lab.new]
    # Labs in which nothing changed that a student sees, such as tags: the student's file stays as it is
    kept = {path: path.read_bytes() for path in _changed_by_both(root, base, theirs) if path not in replaced}
    backup = back_up([*replaced, *kept])
    before = {path: path.read_bytes() for path in replaced} | kept
    deleted = set(_git(root, "diff", "--name-only", "--diff-filter=D", base, theirs, "--", "labs").splitlines())
    try:
        _lay_aside(root, before)
        # Both sides of a lab are merged above, so that git may take either
        _merge(root, theirs, [path for path in kept if path.relative_to(root).as_posix() in deleted])
        for lab in merged:
            _write(lab)
        for path, content in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)  # the course may have deleted the lab
            write(path, content)
    except BaseException:
        with contextlib.suppress(StudentError):
            _git(root, "merge", "--abort")
        for path, content in before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, content)
        raise
    for path in kept:
        (path.parent / backup / path.name).unlink()
        with contextlib.suppress(OSError):  # there may be the copy of a lab that was replaced
            (path.parent / backup).rmdir()
    return merged, backup if replaced else None


def _merge(root, theirs, deleted):
    """Merge by git; labs that the course deleted and the student changed stay."""
    try:
        _git(root, "merge", "--quiet", "--no-edit", "--strategy-option=theirs", theirs)
    except StudentError:
        if not deleted or not _git(root, "ls-files", "--unmerged"):
            raise
        _git(root, "add", "--", *deleted)
        _git(root, "commit", "--quiet", "--no-edit")


def _changed_by_both(root, base, theirs):
    """Return the files in ``labs/`` that the course and the student changed since `base`, committed or not."""
    new, mine = (
        set(_git(root, "diff", "--name-only", *revisions, "--", "labs").splitlines())
        for revisions in ((base, theirs), (base,))
    )
    return [path for path in (root / name for name in sorted(new & mine)) if path.is_file()]


def _labs_of(root, branch):
    names = _git(root, "ls-tree", "-r", "--name-only", "-z", branch, "--", "labs").split("\0")
    return _choose({name: lambda name=name: _git(root, "show", f"{branch}:{name}") for name in names if name}, branch)


def _refuse_other_changes(root, base, theirs):
    """Refuse to merge what is no lab: that is for the person who changed it."""
    new = set(_git(root, "diff", "--name-only", base, theirs).splitlines())
    mine = {*_git(root, "diff", "--name-only", base).splitlines(), *_git(root, "ls-files", "--others").splitlines()}
    for name in sorted(mine):
        if (root / name).exists() and (files := new & {folder.as_posix() for folder in PurePosixPath(name).parents}):
            raise StudentError(
                f"the course has a file {files.pop()} where you have a folder with work of yours: nothing has been "
                "changed; rename the folder, and type the same again"
            )
    mine &= set(_git(root, "diff", "--name-only", theirs).splitlines())
    if both := sorted(name for name in new & mine if not re.fullmatch(rf"labs/({LAB_NAME})/\1\.ipynb", name)):
        raise StudentError(
            f"you and the course both changed {', '.join(both)}: nothing has been changed; if you can do without your "
            f"changes, type `git checkout {theirs} -- {both[0]}`, otherwise merge with git"
        )


def _lay_aside(root, paths):
    """Let git find its own version of the labs that it is about to replace."""
    tracked = set(_git(root, "ls-tree", "-r", "--name-only", "HEAD", "--", "labs").splitlines())
    for path in paths:
        name = path.relative_to(root).as_posix()
        if name in tracked:
            _git(root, "checkout", "HEAD", "--", name)
        else:
            path.unlink()


def git_environment():
    """Return the environment for git in a folder: without the repository that a hook of git works on."""
    return {name: value for name, value in os.environ.items() if name not in GIT_REPOSITORY}


def _git(root, *arguments):
    """Run git and return what it printed."""
    try:
        done = subprocess.run(
            ["git", "-c", "core.quotepath=off", *arguments],
            cwd=root,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",  # names of files on Linux may be in any encoding
            check=False,
            stdin=subprocess.DEVNULL,
            env={**git_environment(), "GIT_TERMINAL_PROMPT": "0"},
        )
    except FileNotFoundError:
        raise StudentError(
            "there is no git on this machine: name a folder or a zip archive with the new labs"
        ) from None
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[0]
        raise StudentError(f"git {arguments[0]} did not work: {reason}")
    return done.stdout.strip()
