"""Publish what students get: a repository with the labs, their data and the helper, and with nothing secret.

``mlcourse publish TARGET`` writes a folder or pushes to a git remote. A publication is one commit. The files that the
course and the students' repository share are copied; the others are written from the templates in ``students/``.
Before anything is written, every file to be published, and every file and message of every earlier publication, is
searched for lines of solutions, hidden tests, mark schemes and the answers in ``tests/answers``, and for the secret of
the course.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import url2pathname

import jinja2
import yaml

from coursegrader import GradingError
from coursegrader.labs import (
    LEAST,
    MARKERS,
    REGIONS,
    given_text,
    leak_finder,
    leaks,
    nbgrader_config,
    read_labs,
    secret_lines,
    squeezed,
    text_of,
)
from coursegrader.secret import Secret, secret_file
from mlcourse.setup_cell import STUDENTS_BRANCH, students_repository
from mlcourse.student.submit import where_to_hand_in
from mlcourse.student.update import git_environment

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = Path(__file__).with_name("students")
COPIED = ("data", "mlcourse", ".ci/setup", ".gitattributes", "CITATION.cff", "LICENSE", "requirements-student.lock")
# Files and folders of the course that have no place in the students' repository, nor in its history
PRIVATE = ("solutions", "source", "tests", "coursebook", "coursegrader", "submitted", "autograded", "feedback")
PRIVATE += ("gradebook.db", "secret.json")
# Kinds of files with pictures and arrays, which are published although they cannot be searched
NO_TEXT = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".npy", ".npz", ".nc", ".tif", ".tiff", ".parquet")
LAB = re.compile(r"labs/([^/]+)/\1\.ipynb")
# Lines that every program may have
COMMON = re.compile(r"except \w+( as \w+)?:|raise NotImplementedError\(\)|(from [\w.]+ )?import [\w., ]+")
# Every change of every file in every commit
HISTORY = ("log", "--all", "--root", "-m", "--no-renames")
MARK = "Written by `mlcourse publish`."
WIDTH = 72


def publish(target: str, root: Path = ROOT, labs: Sequence[str] = ()) -> str | None:
    """Write the students' repository, or bring it up to date.

    Parameters
    ----------
    target : str
        A folder, new or empty or with earlier publications, or the address of a git remote.
    root : pathlib.Path
        The repository of the course. What git does not track there is not published.
    labs : sequence of str
        The labs to publish, in addition to those that were published before; by default all.

    Returns
    -------
    str or None
        The subject of the new commit, None if nothing has changed since the last publication.

    Raises
    ------
    GradingError
        If a file holds something secret, or the target is no students' repository: then nothing has been written. Or if
        git cannot commit or push.
    """
    with _written_by_nobody_else(), _repository(target) as (folder, push):
        _check_target(folder, target)
        before = _published_labs(folder)
        chosen = _chosen_labs(root, labs, before)
        files = _files(root, chosen)
        _check_links(folder, files, target)
        _check_secrets(files, folder, secrets_of(root))
        _begin(folder)
        _write(folder, files)
        if not _git(folder, "status", "--porcelain", "--untracked-files=no"):
            return None
        changed = _git(folder, "diff", "--cached", "--name-only").splitlines()
        subject = _subject([lab for lab in chosen if lab not in before], changed)
        _git(folder, "commit", "--quiet", "--message", subject, "--message", MARK)
        if push:
            _git(folder, *push)
    return subject


@contextlib.contextmanager
def _written_by_nobody_else():
    """Let the files that are made be those of this user alone to write."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def secrets_of(root: Path) -> dict[str, str]:
    """Return every line of the course that students must not see, and what it belongs to.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    dict of str
        For each line of at least `LEAST` visible characters in a solution, a hidden test, a mark scheme or a file of
        ``tests/answers``, where it stands. Lines that a lab gives to students are left out. The secret of the course is
        among them, if there is one yet.
    """
    sources = read_labs(root)
    found = dict.fromkeys(_secret_of_course(root), "the secret of the course")
    for path in sorted((root / "tests" / "answers").glob("*.yml")):
        lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
        found |= dict.fromkeys((line for line in lines if len(squeezed(line)) >= LEAST), f"tests/answers/{path.name}")
    for lab, source in sources.items():
        for region in REGIONS:
            found |= dict.fromkeys(secret_lines(source, region), f"the {region.lower()} of {lab}")
    given = set(leaks(found, "\n".join(map(given_text, sources.values()))))
    return {line: place for line, place in found.items() if line not in given and not COMMON.fullmatch(line)}


def _secret_of_course(root):
    path = secret_file(nbgrader_config(root))
    return [Secret(path).secret.hex()] if path.exists() else []


@contextlib.contextmanager
def _repository(target: str) -> Iterator[tuple[Path, list[str]]]:
    """Give the folder of the students' repository and, if it is a temporary clone of a remote, how git pushes it."""
    # A repository on this machine is looked at before git works in it, however it is named
    path = url2pathname(target.removeprefix("file://")) if target.startswith("file://") else target
    folder = Path(path).expanduser()
    is_address = re.match(r"[\w+.-]+://|[^/\\]{2,}:", target) and not folder.exists()
    if not is_address and not _is_bare(folder):
        yield folder, []
        return
    if not is_address:
        _check_settings(folder, target)
        _check_git_folder(folder.resolve(), without_password(target))
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary, "students")
        # On this machine, git runs the other side as the user who publishes
        get, put = ([] if is_address else [f"--{name}={OTHER_SIDE} {name}"] for name in ("upload-pack", "receive-pack"))
        _git(Path(temporary), "clone", "--quiet", *get, target if is_address else str(folder.resolve()), str(clone))
        if _git(clone, "branch", "--remotes", "--list", f"origin/{STUDENTS_BRANCH}"):
            _git(clone, "checkout", "--quiet", STUDENTS_BRANCH)  # the other side's HEAD may name another branch
        yield clone, ["push", "--quiet", *put, "origin", "HEAD"]


def _is_bare(folder):
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir()


def _check_target(folder, target):
    """Refuse a target that is no empty folder or repository and no earlier publication."""
    name = without_password(target)
    if folder.exists() and not folder.is_dir():
        raise GradingError(f"{name} is a file: name a folder or the address of a git repository")
    if place := next(_written_by_others(folder.resolve()), None):
        raise GradingError(
            f"others may write to {place}, and could change what git runs while you publish: take the right from them "
            "with `chmod -R go-w`, or name another folder or the address of a git repository"
        )
    if not (folder / ".git").exists():
        if folder.exists() and any(folder.iterdir()):
            raise GradingError(f"{name} holds files, but it is no earlier publication: name a new or empty folder")
        return
    _check_settings(folder, name)
    _check_git_folder(folder / ".git", name)
    modes = {entry.split()[0] for entry in _git(folder, "ls-files", "--stage").splitlines()}
    if "160000" in modes:
        raise GradingError(f"{name} holds another repository within it: name a new or empty folder")
    if "120000" in modes:
        raise GradingError(f"{name} has a link among its files: name a new or empty folder")
    for path in _git(folder, *HISTORY, "--format=", "--name-only", "-z").split("\0"):
        if path.strip("\n").split("/")[0].casefold() in PRIVATE:
            commit = _git(folder, *HISTORY, "--max-count=1", "--format=%h", "--", path.strip("\n"))
            raise GradingError(
                f"{name} is no repository for students, since it holds {path} (commit {commit}): name an empty one"
            )
    others = _git(folder, "log", "--all", "--invert-grep", "--fixed-strings", f"--grep={MARK}", "--format=%h %s")
    if others:
        raise GradingError(
            f"{name} has a commit that is no publication ({others.splitlines()[0]}): name an empty repository, or take "
            "that commit out of its history"
        )
    if _git(folder, "status", "--porcelain"):
        raise GradingError(
            f"{name} has changes that are not committed: see `git status` there, and undo them, for instance with "
            "`git reset --hard`"
        )


def _written_by_others(folder):
    """Yield the places in a folder, and the folders around it, to which other users may write."""
    if not hasattr(os, "geteuid"):  # Windows
        return
    for place in filter(Path.exists, folder.parents):
        if _is_shared(place.stat()) and not place.stat().st_mode & stat.S_ISVTX:
            yield place
    for place in [folder, *folder.rglob("*")] if folder.exists() else []:
        state = place.lstat()
        if not stat.S_ISLNK(state.st_mode) and (_is_shared(state) or state.st_uid not in (0, os.geteuid())):
            yield place


def _is_shared(state):
    return state.st_mode & stat.S_IWOTH or (state.st_mode & stat.S_IWGRP and not _is_own_group(state.st_gid))


def _is_own_group(number):
    """Return whether nobody else is in a group: many systems give each user one with the user's name."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _check_settings(folder, name):
    """Refuse a repository with a setting of git that may name a program or another file of settings."""
    settings = _git(folder, "config", "--local", "--includes", "--list", "--name-only").splitlines()
    if unknown := next((one for one in settings if not SETTINGS.fullmatch(one)), None):
        raise GradingError(
            f"{name} has a setting of git that may name a program or another file ({unknown}): take it out with "
            "`git config --unset`"
        )


def _check_git_folder(folder, name):
    """Refuse a repository that is kept elsewhere, and links in it: git writes through them, though to no hook."""
    if not folder.is_dir() or (folder / "commondir").exists():
        raise GradingError(f"{name} is a repository that git keeps in another folder: name a repository of its own")
    links = (
        path for path in [folder, *folder.rglob("*")] if path.is_symlink() and folder / "hooks" not in path.parents
    )
    if link := next(links, None):
        raise GradingError(f"{name} has a link at {link}, where git writes: take the link out, or name an empty folder")


def _check_links(folder, files, target):
    """Refuse links among the files to write or delete: others may have written to the folder."""
    inside, target = folder.resolve(), without_password(target)
    for name in [*files, *(_tracked(folder, ["."]) if (folder / ".git").exists() else [])]:
        if (folder / name).resolve() != inside / name:
            raise GradingError(
                f"{target} has a link to {(folder / name).resolve()} in the place of {name}: "
                "take the link out, or name an empty folder"
            )
    for name in files:
        for place in [folder / name, *(folder / name).parents]:
            if place == folder:
                break
            if place.exists() and not (place.is_file() if place == folder / name else place.is_dir()):
                kind = "file" if place == folder / name else "folder"
                raise GradingError(f"{target} has something in the place of {name} that is no {kind}: take {place} out")


def _published_labs(folder):
    return [path.name for path in sorted((folder / "labs").glob("lab-*")) if path.is_dir()]


def _chosen_labs(root, labs, before):
    """Return the labs to publish: those that are named or were published before, by default all."""
    tracked = _tracked(root, ["labs"])
    known = sorted({name.split("/")[1] for name in tracked if LAB.fullmatch(name)})
    if not known:
        raise GradingError(
            f"{root / 'labs'} has no lab that git tracks: type `mlcourse release`, and then `git add labs`"
        )
    if unknown := [lab for lab in labs if lab not in known]:
        raise GradingError(f"labs/ has no lab {unknown[0]} that git tracks: the labs are {', '.join(known) or 'none'}")
    return [lab for lab in known if not labs or lab in labs or lab in before]


def _files(root, labs):
    """Return the content of all files to publish, by name."""
    names = _tracked(root, [*COPIED, *(f"labs/{lab}/{lab}.ipynb" for lab in labs)])
    for name in names:
        if (root / name).resolve() != root.resolve() / name:
            raise GradingError(
                f"nothing was published, since {name} is a link to {(root / name).resolve()}: put a file there, or "
                "take the link out"
            )
    files = {name: (root / name).read_bytes() for name in names}
    students = students_repository(root)
    course = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    values = {
        "title": yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["title"],
        "course": course,
        "project": course["project"],
        "build": course["build-system"],
        "where": where_to_hand_in(root),
        "students": students,
        "folder": students.rsplit("/", 1)[1].removesuffix(".git"),
    }
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["quoted"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["without_extras"] = lambda requirement: re.sub(r"\[.*?\]", "", requirement)
    for path in sorted(TEMPLATES.glob("*.jinja")):
        template = environment.from_string(path.read_text(encoding="utf-8"))
        files[path.stem] = template.render(values).encode()
    return files


def _tracked(root, names):
    """Return the names of the files that git tracks in a repository and that are there, under some names."""
    found = _git(root, "ls-files", "-z", "--", *names).split("\0")
    return [name for name in found if (root / name).is_file()]


def _check_secrets(files, folder, secrets):
    """Refuse something secret in a file to be published, or in any file of the history of the target."""
    find = leak_finder(secrets)

    def check(name, content, where):
        _check_file(name, content, find, secrets, where)

    for name, content in files.items():
        check(name, content, "")
    if not (folder / ".git").exists():
        return
    checked = {hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() for content in files.values()}
    for line in _git(folder, "rev-list", "--all", "--objects").splitlines():
        sha, _, name = line.partition(" ")
        if sha not in checked and _git(folder, "cat-file", "-t", sha) == "blob":
            checked.add(sha)
            commits = _git(folder, *HISTORY, "--format=%h", f"--find-object={sha}").splitlines()
            where = f" in commit {commits[-1]} of the target" if commits else f" in object {sha[:7]} of the target"
            check(name or "a tag", _git_bytes(folder, "cat-file", "blob", sha), where)
    for command in (("log", "--all", "--format=%B"), ("for-each-ref", "--format=%(contents)")):
        message = _git(folder, *command).encode("utf-8", "replace")
        check("a message", message, " of a commit or tag of the target")


def _check_file(name, content, find, secrets, where):
    mend = "begin with an empty repository" if where else "take it out"
    if not name.lower().endswith(NO_TEXT) and not _is_text(content):
        raise GradingError(
            f"nothing was published, since {name}{where} cannot be searched for solutions: it is no text in UTF-8, and "
            f"no file of {', '.join(NO_TEXT)}; {mend}"
        )
    if found := find(text_of(name, content)):
        is_marker = found[0] in MARKERS
        what = f"the marker {found[0]}" if is_marker else f"a line of {secrets[found[0]]}: {found[0]}"
        raise GradingError(f"nothing was published, since {name}{where} holds {what}; {mend}")


def _is_text(content):
    with contextlib.suppress(UnicodeDecodeError):
        return "\0" not in content.decode("utf-8")
    return False


def _begin(folder):
    """Make a new repository, unless there is one, and check that git can commit to it."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "--quiet")
    if not _git(folder, "rev-list", "--all", "--max-count=1"):
        _git(folder, "symbolic-ref", "HEAD", f"refs/heads/{STUDENTS_BRANCH}")
    try:
        _git(folder, "var", "GIT_COMMITTER_IDENT")
        _git(folder, "var", "GIT_AUTHOR_IDENT")
    except GradingError:
        raise GradingError(
            "git does not know who publishes: type `git config --global user.name NAME` and "
            "`git config --global user.email ADDRESS`"
        ) from None


def _write(folder, files):
    """Make the files of the repository those of the publication; labs that the course no longer has stay."""
    for name in _tracked(folder, ["."]):
        if name not in files and not LAB.fullmatch(name):
            (folder / name).unlink()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    _git(folder, "add", "--update")
    _git(folder, "add", "--force", "--", *files)


def _subject(new, changed):
    """Return the subject of a commit: the new labs, or else what has changed."""
    verb, names = "Publish", new
    if not new:
        verb, names = "Update", sorted({re.sub(r"^(?:labs/([^/]+)|([^/]+))/.*", r"\1\2", name) for name in changed})
    if len(subject := f"{verb} {', '.join(names)}") <= WIDTH:
        return subject
    return f"{verb} {names[0]} and {len(names) - 1} more"


def without_password(text: str) -> str:
    """Return a text without the user and the password of the addresses in it."""
    return re.sub(r"(?<=://)\S*@", "", text)


# A target may be a bare repository into which others write, or a folder from others: git runs no program that it names
NO_PROGRAMS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.alternateRefsCommand=")
NO_PROGRAMS += ("-c", "gc.auto=0", "-c", "receive.autogc=false", "-c", "maintenance.auto=false")
GIT_OPTIONS = ("-c", "core.quotepath=off", *NO_PROGRAMS)
OTHER_SIDE = f"git {' '.join(NO_PROGRAMS)}"
# The settings that a target may have, as git prints their names: those of a new repository or clone, and who commits
SETTINGS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|sharedrepository|untrackedcache|longpaths)|receive\.denynonfastforwards|color\.ui|submodule\.active"
    r"|extensions\.objectformat|init\.defaultbranch|pull\.rebase|push\.default|user\.(name|email)"
    r"|branch\..*\.(remote|merge|rebase|vscode-merge-base)|remote\..*\.(url|pushurl|fetch|tagopt|gh-resolved)"
)


def _git(folder, *arguments):
    return _git_bytes(folder, *arguments).decode("utf-8", "surrogateescape").strip()


def _git_bytes(folder, *arguments):
    """Run git in a folder and return what it printed."""
    try:
        done = subprocess.run(
            ["git", "--no-replace-objects", *GIT_OPTIONS, *arguments],
            cwd=folder,
            capture_output=True,
            check=False,
            env=git_environment(),
        )
    except FileNotFoundError:
        raise GradingError("there is no git on this machine: install it, and run the same command again") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        reason = next((line for line in said if line.startswith(("fatal:", "error:"))), said[0])
        raise GradingError(f"git {arguments[0]} did not work: {without_password(reason)}")
    return done.stdout
