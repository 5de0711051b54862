"""`mlcourse publish` writes a repository that students can work with, and refuses whatever they must not see."""

import gzip
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml
from nbgrader.validator import Validator
from packaging.requirements import Requirement

from course import without_markers
from coursegrader import GradingError
from coursegrader.labs import MARKERS, REGIONS, _cell_id, grade_id, grader, nbgrader_config, read_lab, secret_lines
from coursegrader.publish import publish, secrets_of, without_password
from coursegrader.secret import secret_of
from mlcourse import CourseError
from mlcourse.cli import main
from mlcourse.settings import setting
from mlcourse.student.submit import WHERE
from paths import LABS, ROOT

FIRST, SECOND = LABS[:2]
COPIED = ["data", "mlcourse", ".ci/setup", ".gitattributes", "CITATION.cff", "LICENSE", "requirements-student.lock"]
COPIED += ["pyproject.toml", "_config.yml", "nbgrader_config.py"]
COPIED += [f"labs/{lab}" for lab in (FIRST, SECOND)]
COPIED += [name for lab in (FIRST, SECOND) for name in (f"solutions/{lab}.md", f"tests/answers/{lab}.yml")]
ANSWER = "def mean_squared_error(y, y_hat):\n    return ((y - y_hat) ** 2).mean()"


def git(folder, *arguments):
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def subjects(folder):
    return git(folder, "log", "--format=%s").splitlines()


MESSAGE = ["-m", "Update data", "-m", "Written by `mlcourse publish`."]


def commit_as_publication(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", *MESSAGE)


@pytest.fixture(autouse=True)
def committer(monkeypatch):
    """Whoever runs the tests has a name for git."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada Lovelace")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")


@pytest.fixture
def course(tmp_path):
    """A repository of the course with two labs."""
    root = tmp_path / "course"
    for name in COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name, **({"ignore": hidden} if copy is shutil.copytree else {}))
    git(tmp_path, "init", "--quiet", root)
    git(root, "add", "--all")
    return root


def hidden(folder, names):
    return [name for name in names if name in ("__pycache__", ".ipynb_checkpoints")]


@pytest.fixture
def published(course, tmp_path):
    """A first publication with the first lab."""
    publish(str(tmp_path / "students"), course, [FIRST])
    return tmp_path / "students"


def change(course, text="New this term: a word on units."):
    """Change the first lab of the course."""
    path = course / "labs" / FIRST / f"{FIRST}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source += f"\n\n{text}"
    notebook.cells[1].id = _cell_id(notebook.cells[1], {})
    nbformat.write(notebook, path)


# What is published


def test_a_new_folder_becomes_a_repository_with_what_students_need_and_nothing_else(course, tmp_path):
    assert publish(str(tmp_path / "new" / "students"), course) == f"Publish {FIRST}, {SECOND}"
    folder = tmp_path / "new" / "students"
    names = git(folder, "ls-files").splitlines()
    assert {name.split("/")[0] for name in names} == {
        *(".ci", ".gitattributes", ".gitignore", "CITATION.cff", "LICENSE", "Makefile", "README.md", "data"),
        *("environment.yml", "labs", "mlcourse", "pyproject.toml", "requirements-student.lock"),
    }
    assert [name for name in names if name.startswith("labs/")] == [f"labs/{lab}/{lab}.ipynb" for lab in LABS[:2]]
    assert set(git(course, "ls-files", "data", "mlcourse").splitlines()) < set(names)
    assert git(folder, "status", "--porcelain", "--ignored") == ""
    assert git(folder, "log", "--format=%an %D") == "Ada Lovelace HEAD -> main"


@pytest.mark.nightly
def test_the_course_itself_can_be_published_with_all_its_labs(tmp_path):
    publish(str(tmp_path / "students"))
    assert sorted(path.name for path in (tmp_path / "students" / "labs").iterdir()) == LABS


def test_a_second_publication_adds_one_commit_and_one_without_changes_adds_none(course, published):
    assert publish(str(published), course) == f"Publish {SECOND}"
    assert publish(str(published), course) is None
    change(course)
    (course / "mlcourse" / "quiz.py").unlink()
    git(course, "add", "--update")
    assert publish(str(published), course) == f"Update {FIRST}, mlcourse"
    assert subjects(published) == [f"Update {FIRST}, mlcourse", f"Publish {SECOND}", f"Publish {FIRST}"]
    assert not (published / "mlcourse" / "quiz.py").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("branch", ["main", "master"])
def test_a_remote_gets_the_same_by_a_push(course, published, tmp_path, branch):
    remote, clone = tmp_path / "remote.git", tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "--bare", f"--initial-branch={branch}", remote)
    assert publish(str(remote), course, [FIRST]) == f"Publish {FIRST}"
    change(course)
    assert publish(remote.as_uri(), course, [FIRST]) == f"Update {FIRST}"
    assert publish(str(remote), course, [FIRST]) is None
    git(tmp_path, "clone", "--quiet", "--branch=main", remote, clone)
    assert subjects(clone) == [f"Update {FIRST}", f"Publish {FIRST}"]
    publish(str(published), course, [FIRST])
    assert git(clone, "rev-parse", "HEAD^{tree}") == git(published, "rev-parse", "HEAD^{tree}")


def test_named_labs_join_those_that_were_published_before(course, published):
    assert os.listdir(published / "labs") == [FIRST]
    change(course)
    publish(str(published), course, [SECOND])
    assert sorted(os.listdir(published / "labs")) == [FIRST, SECOND]
    assert "a word on units" in (published / "labs" / FIRST / f"{FIRST}.ipynb").read_text("utf-8")


def test_a_lab_that_there_is_not_is_named(course, tmp_path):
    with pytest.raises(GradingError, match=f"no lab lab-99 that git tracks: the labs are {FIRST}, {SECOND}"):
        publish(str(tmp_path / "students"), course, ["lab-99"])
    assert not (tmp_path / "students").exists()


def test_a_course_whose_labs_git_does_not_track_is_told_how_to_release_them(course, tmp_path):
    git(course, "rm", "--quiet", "--cached", "-r", "labs")
    refuses(tmp_path / "students", course, "no lab that git tracks: type `mlcourse release`")


def test_a_file_that_was_deleted_is_not_published_although_git_tracks_it_still(course, tmp_path):
    (course / "data" / "play_tennis.csv").unlink()
    publish(str(tmp_path / "students"), course)
    assert not (tmp_path / "students" / "data" / "play_tennis.csv").exists()


def test_a_file_that_git_does_not_track_is_not_published(course, tmp_path):
    (course / "data" / "grades.csv").write_text("Ada,100\n")
    publish(str(tmp_path / "students"), course)
    assert not (tmp_path / "students" / "data" / "grades.csv").exists()


def test_the_lists_of_packages_are_those_of_students(published):
    course = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    project = tomllib.loads((published / "pyproject.toml").read_text("utf-8"))["project"]
    same = ("name", "version", "requires-python", "dependencies", "scripts")
    assert {key: project[key] for key in same} == {key: course[key] for key in same}
    assert not {"entry-points", "optional-dependencies"} & set(project)
    conda = yaml.safe_load((published / "environment.yml").read_text("utf-8"))["dependencies"]
    names = {one.name for one in map(Requirement, course["dependencies"])}
    assert {re.match(r"[\w-]+", one)[0] for one in conda if isinstance(one, str)} == {*names, "python", "pip"}


def test_the_readme_says_where_to_clone_and_how_to_hand_in(published):
    text = (published / "README.md").read_text("utf-8")
    assert "git clone https://" in text and "`mlcourse submit 1`" in text and WHERE in text


# What is refused


def refuses(target, course, match):
    with pytest.raises(GradingError, match=match) as refused:
        publish(str(target), course)
    assert "\n" not in str(refused.value)


def test_there_are_secrets_of_each_kind_and_none_of_them_is_in_the_labs():
    secrets = secrets_of(ROOT)
    places = {place for lab in LABS for place in (f"the solution of {lab}", f"tests/answers/{lab}.yml")}
    assert places < set(secrets.values()) and len(secrets) > 500 * len(LABS)
    assert {"the hidden tests", "the mark scheme"} < {place.split(" of ")[0] for place in secrets.values()}


@pytest.mark.parametrize("region", REGIONS)
def test_a_secret_line_in_a_file_of_the_course_is_refused_and_nothing_is_written(course, tmp_path, region):
    secrets = secrets_of(course)
    source = read_lab(course / "solutions" / f"{FIRST}.md")
    line = min(line for line in secret_lines(source, region) if line in secrets)
    with (course / "data" / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(f"\n    {line}\n")
    refuses(tmp_path / "students", course, f"data/README.md holds a line of the {region.lower()} of {FIRST}: ")
    assert not (tmp_path / "students").exists()


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_is_refused(course, tmp_path, marker):
    with (course / "data" / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(f"\n### {marker}\n")
    refuses(tmp_path / "students", course, f"data/README.md holds the marker {marker}")


def test_a_file_of_answers_is_refused(course, tmp_path):
    shutil.copy(course / "tests" / "answers" / f"{FIRST}.yml", course / "data" / "notes.yml")
    git(course, "add", "--all")
    refuses(tmp_path / "students", course, f"data/notes.yml holds a line of tests/answers/{FIRST}.yml: ")
    assert not (tmp_path / "students").exists()


def test_a_solution_in_the_output_or_in_a_cell_of_a_notebook_is_refused(course, tmp_path):
    change(course, 'if y.shape != y_hat.shape:\n    raise ValueError("shapes differ")')
    refuses(tmp_path / "students", course, f"labs/{FIRST}/{FIRST}.ipynb holds a line of ")


LINE = re.compile(r'.*"(?!.*\\)')


def hidden_line_with_a_quotation_mark(course):
    found = {line for line, place in secrets_of(course).items() if place == f"the hidden tests of {FIRST}"}
    return min(filter(LINE.match, found), key=len)


@pytest.mark.parametrize("kind", ["stream", "traceback", "table"])
def test_a_hidden_test_in_an_output_is_refused_also_if_it_is_escaped_or_in_colours(course, tmp_path, kind):
    line = hidden_line_with_a_quotation_mark(course)
    outputs = {
        "stream": nbformat.v4.new_output("stream", text=line),
        "traceback": nbformat.v4.new_output("error", traceback=["\x1b[31m".join(line)]),
        "table": nbformat.v4.new_output("display_data", {"text/html": f"<td>{html.escape(line)}</td>"}),
    }
    path = course / "labs" / FIRST / f"{FIRST}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    next(cell for cell in notebook.cells if cell.cell_type == "code").outputs = [outputs[kind]]
    nbformat.write(notebook, path)
    refuses(tmp_path / "students", course, f"{FIRST}.ipynb holds a line of the hidden tests of {FIRST}")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("page.HTM", html.escape),
        ("figure.svg", lambda line: "".join(f"<tspan>{html.escape(sign)}</tspan>" for sign in line)),
        ("notes.md", html.escape),
        ("notes.json", lambda line: json.dumps([line])),
        ("notes.yml", json.dumps),
        ("notes.csv", lambda line: '"{}"'.format(line.replace('"', '""'))),
        ("lab.IPYNB", lambda line: nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(line)]))),
        ("notes.tex", lambda line: line.replace("_", r"\_")),
    ],
)
def test_a_line_is_found_in_whatever_way_a_file_writes_its_signs(course, tmp_path, name, written):
    (course / "data" / name).write_text(written(hidden_line_with_a_quotation_mark(course)))
    git(course, "add", "--all")
    refuses(tmp_path / "students", course, f"data/{name} holds a line of the hidden tests of {FIRST}")


@pytest.mark.parametrize("name", ["notes.txt", "notes.md.gz", "notes.zip"])
def test_a_file_that_cannot_be_searched_is_refused(course, tmp_path, name):
    text = (course / "solutions" / f"{FIRST}.md").read_text("utf-8")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.md", text)
    contents = {"notes.txt": text.encode("utf-16"), "notes.md.gz": gzip.compress(text.encode())}
    (course / "data" / name).write_bytes(contents.get(name, packed.getvalue()))
    git(course, "add", "--all")
    refuses(tmp_path / "students", course, f"data/{name} cannot be searched for solutions: it is no text in UTF-8")
    assert not (tmp_path / "students").exists()


def test_a_picture_among_the_data_is_published(course, tmp_path):
    (course / "data" / "map.PNG").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    git(course, "add", "--all")
    publish(str(tmp_path / "students"), course)
    assert (tmp_path / "students" / "data" / "map.PNG").exists()


def test_a_link_is_refused_since_it_would_publish_what_git_ignores(course, tmp_path):
    (course / "gradebook.db").write_text("Ada Lovelace 12/40")
    (course / "data" / "marks.csv").symlink_to("../gradebook.db")
    git(course, "add", "data")
    refuses(tmp_path / "students", course, r"data/marks.csv is a link to .*gradebook\.db: put a file there")
    assert not (tmp_path / "students").exists()


def test_a_copy_of_the_secret_of_the_course_is_refused(course, tmp_path):
    secret_of(nbgrader_config(course))
    shutil.copy(course / "secret.json", course / "data" / "course-secret.json")
    git(course, "add", "data")
    refuses(tmp_path / "students", course, "data/course-secret.json holds a line of the secret of the course")


@pytest.mark.parametrize(
    "address",
    [
        "https://oauth2:to/k@n@example.org/students",
        "HTTPS://oauth2:token@example.org/students",
        "git+https://oauth2:token@example.org/students",
        "ssh://git:oauth2@example.org/students",
        "oauth2:token@example.org:students",
        "https://example.org/students.git?private_token=oauth2",
        "https://example.org/students#oauth2",
    ],
)
def test_an_address_of_the_students_repository_with_a_password_is_refused(course, tmp_path, address):
    path = course / "pyproject.toml"
    path.write_text(re.sub("^students = .*$", f'students = "{address}"', path.read_text("utf-8"), flags=re.M))
    with pytest.raises(CourseError, match="take everything before the @ out") as refused:
        publish(str(tmp_path / "students"), course)
    assert "oauth2" not in str(refused.value) and not (tmp_path / "students").exists()


@pytest.mark.parametrize("place", ["commit", "tag", "blob"])
def test_a_secret_in_a_message_or_a_tag_of_the_target_is_refused(course, published, place):
    line = min(line for line, place in secrets_of(course).items() if place == f"the solution of {FIRST}")
    if place == "commit":
        message = f"Update labs\n\n{line}\n\nWritten by `mlcourse publish`."
        git(published, "commit", "--quiet", "--allow-empty", "--message", message)
    elif place == "tag":
        git(published, "tag", "--annotate", "v1", "--message", f"First\n\n{line}")
    else:
        (published / "draft.md").write_text(line)
        git(published, "tag", "draft", git(published, "hash-object", "-w", "draft.md"))
        (published / "draft.md").unlink()
    refuses(published, course, f"of the target holds a line of .*{FIRST}.*; begin with an empty repository")


def test_a_commit_that_git_shows_replaced_is_searched_as_it_was(course, published):
    (published / "LICENSE").write_text(min(secrets_of(course)))
    commit_as_publication(published)
    git(published, "checkout", "--quiet", "HEAD~1", "--", "LICENSE")
    commit_as_publication(published)
    git(published, "replace", "HEAD~1", "HEAD~2")
    refuses(published, course, r"LICENSE in commit \w+ of the target holds a line of")


def test_in_a_hook_of_git_the_target_is_written_and_the_course_stays_as_it_is(course, tmp_path, monkeypatch):
    git(course, "commit", "--quiet", "--message", "All")
    monkeypatch.setenv("GIT_DIR", str(course / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(course / ".git" / "index"))
    publish(str(tmp_path / "students"), course)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert subjects(course) == ["All"] and subjects(tmp_path / "students") == [f"Publish {FIRST}, {SECOND}"]


def test_no_program_that_the_target_names_is_run(course, published, tmp_path):
    for name in ("post-commit", "pre-commit", "reference-transaction"):
        program = published / ".git" / "hooks" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
        program.chmod(0o755)
    assert publish(str(published), course) == f"Publish {SECOND}"
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_no_program_is_run_on_the_other_side_on_this_machine(course, published, tmp_path, address):
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(published), str(bare))
    program = bare / "hooks" / "program"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o755)
    for name in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction"):
        (bare / "hooks" / name).symlink_to(program)
    assert publish(address.format(bare), course) == f"Publish {SECOND}"
    assert subjects(bare)[0] == f"Publish {SECOND}" and not (tmp_path / "was-run").exists()


SETTINGS_WITH_PROGRAMS = [
    "core.alternaterefscommand",
    "core.fsmonitor",
    "extensions.partialclone",
    "filter.x.clean",
    "gc.recentobjectshook",
    "gpg.program",
    "include.path",
    "includeif.onbranch:main.path",
    "remote.origin.uploadpack",
    "anything.else",
]


@pytest.mark.parametrize("bare", [False, True], ids=["folder", "bare"])
@pytest.mark.parametrize("setting", SETTINGS_WITH_PROGRAMS)
def test_a_target_whose_settings_may_name_a_program_or_another_file_is_refused(
    course, published, tmp_path, setting, bare
):
    if bare:
        git(tmp_path, "clone", "--quiet", "--bare", str(published), "bare.git")
    target = tmp_path / "bare.git" if bare else published
    git(target, "config", setting, f"touch {tmp_path}/was-run")
    with pytest.raises(GradingError, match=re.escape(f"may name a program or another file ({setting})")):
        publish(str(target), course)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("bare", [False, True], ids=["folder", "bare"])
@pytest.mark.parametrize("name", ["LICENSE", "mlcourse", "labs"])
def test_a_link_in_a_target_is_refused_and_leads_nowhere(course, published, tmp_path, name, bare):
    outside = tmp_path / "outside"
    outside.mkdir()
    path = published / name
    git(published, "rm", "-r", "--quiet", name)
    path.symlink_to(outside / "LICENSE" if name == "LICENSE" else outside)
    commit_as_publication(published)
    if bare:
        git(tmp_path, "clone", "--quiet", "--bare", str(published), "bare.git")
    refuses(tmp_path / "bare.git" if bare else published, course, "has a link among its files")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["LICENSE", "mlcourse", "labs"])
def test_a_link_that_git_ignores_is_refused_and_leads_nowhere(course, published, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    git(published, "rm", "-r", "--quiet", name)
    commit_as_publication(published)
    (published / ".git/info/exclude").write_text(name)
    (published / name).symlink_to(outside / "LICENSE" if name == "LICENSE" else outside)
    refuses(published, course, f"has a link to {outside}.* in the place of {name}")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("bare", [False, True], ids=["folder", "bare"])
@pytest.mark.parametrize("name", ["COMMIT_EDITMSG", "logs/HEAD", "objects/info/alternates"])
def test_a_link_where_git_writes_is_refused(course, published, tmp_path, name, bare):
    if bare:
        git(tmp_path, "clone", "--quiet", "--bare", str(published), "bare.git")
    target = tmp_path / "bare.git" if bare else published
    link = target / name if bare else target / ".git" / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "outside")
    with pytest.raises(GradingError, match=f"has a link at {link}, where git writes"):
        publish(str(target), course)
    assert not (tmp_path / "outside").exists()


def test_a_repository_that_git_keeps_in_another_folder_is_refused(course, published, tmp_path):
    (published / ".git").rename(tmp_path / "elsewhere")
    (published / ".git").write_text(f"gitdir: {tmp_path}/elsewhere")
    refuses(published, course, "that git keeps in another folder")
    (published / ".git").unlink()
    shutil.copytree(tmp_path / "elsewhere", published / ".git")
    (published / ".git/commondir").write_text(str(tmp_path / "elsewhere"))
    refuses(published, course, "that git keeps in another folder")


@pytest.mark.parametrize("name", ["bare.git", "bare#1", "bare?1", "b are"])
def test_a_repository_on_this_machine_is_looked_at_also_if_it_is_named_by_an_address(course, published, tmp_path, name):
    git(tmp_path, "clone", "--quiet", "--bare", str(published), name)
    git(tmp_path / name, "config", "filter.x.smudge", f"touch {tmp_path}/was-run")
    refuses(f"file://{tmp_path}/{name}", course, "may name a program or another file .filter.x.smudge.")


@pytest.mark.parametrize(("name", "make"), [("LICENSE", os.mkfifo), ("LICENSE", os.mkdir), ("mlcourse", Path.touch)])
def test_something_else_in_the_place_of_a_file_or_folder_is_refused(course, published, name, make):
    git(published, "rm", "-r", "--quiet", name)
    commit_as_publication(published)
    (published / ".git/info/exclude").write_text(name)
    make(published / name)
    refuses(published, course, f"something in the place of {name}.* that is no (file|folder)")


def test_a_target_with_settings_of_a_worktree_is_refused(course, published):
    git(published, "config", "extensions.worktreeConfig", "true")
    git(published, "config", "--worktree", "filter.x.clean", "touch was-run")
    with pytest.raises(GradingError, match="another file .extensions.worktreeconfig."):
        publish(str(published), course)


def test_a_target_with_a_submodule_is_refused(course, published):
    git(published, "update-index", "--add", "--cacheinfo", f"160000,{git(published, 'rev-parse', 'HEAD')},labs/other")
    with pytest.raises(GradingError, match="holds another repository within it"):
        publish(str(published), course)


@pytest.mark.parametrize("name", [".", ".git", ".git/config", "labs"])
def test_a_folder_to_which_others_may_write_is_refused(course, published, name):
    place = published / name
    before = place.stat().st_mode
    place.chmod(before | 0o002)
    refuses(published, course, f"others may write to {re.escape(str(place.resolve()))}")
    place.chmod(before)
    assert publish(str(published), course) == f"Publish {SECOND}"


def test_a_folder_is_published_again_where_new_files_are_everybodys_to_write(course, tmp_path):
    before = os.umask(0)
    try:
        assert publish(str(tmp_path / "students"), course, [FIRST]) == f"Publish {FIRST}"
        assert publish(str(tmp_path / "students"), course) == f"Publish {SECOND}"
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_a_folder_that_others_may_exchange_is_refused(course, tmp_path):
    around = tmp_path / "shared"
    around.mkdir()
    around.chmod(0o777)
    with pytest.raises(GradingError, match="others may write to .*shared"):
        publish(str(around / "students"), course)
    assert not list(around.iterdir())
    around.chmod(0o1777)  # as /tmp: only its owner may exchange a folder in it
    assert publish(str(around / "students"), course, [FIRST]) == f"Publish {FIRST}"


def test_a_link_that_git_keeps_as_a_file_is_refused(course, published):
    git(published, "config", "core.symlinks", "false")
    made = git(published, "rev-parse", "HEAD:LICENSE")
    git(published, "update-index", "--cacheinfo", f"120000,{made},LICENSE")
    refuses(published, course, "has a link among its files")


def test_beside_the_labs_nothing_stays_below_their_folder(course, published):
    for name in (".gitattributes", "random.py", f"{FIRST}/random.py"):
        (published / "labs" / name).write_text("*.ipynb working-tree-encoding=UTF-16LE\n")
        git(published, "add", "--force", f"labs/{name}")
    # Not `git commit`, which may read the notebooks again, and cannot in that encoding
    made = git(published, "commit-tree", git(published, "write-tree"), "-p", "HEAD", *MESSAGE)
    git(published, "update-ref", "HEAD", made)
    for notebook in (published / "labs").glob("*/*.ipynb"):
        os.utime(notebook, (0, 0))  # git has to read it again
    publish(str(published), course)
    assert git(published, "ls-files", "labs").split() == [f"labs/{lab}/{lab}.ipynb" for lab in (FIRST, SECOND)]
    assert json.loads((published / "labs" / FIRST / f"{FIRST}.ipynb").read_text("utf-8"))["cells"]


def test_settings_that_name_no_program_may_stay(course, tmp_path):
    target = tmp_path / "shared.git"
    git(tmp_path, "init", "--quiet", "--bare", "--shared", target)
    for name in ("branch.main.vscode-merge-base", "remote.origin.gh-resolved", "submodule.active", "color.ui"):
        git(target, "config", name, "always" if name == "color.ui" else "base")
    assert publish(str(target), course, [FIRST]) == f"Publish {FIRST}"


@pytest.mark.parametrize("password", ["secret", "sec@ret", "sec/ret"])
def test_a_password_is_never_shown(password):
    assert without_password(f"fatal: https://ada:{password}@host.org/x.git: no") == "fatal: https://host.org/x.git: no"


@pytest.mark.parametrize("broken", ["tool = 3", '[tool]\nmlcourse = "x"'])
def test_settings_of_another_kind_are_one_clear_error(tmp_path, broken):
    (tmp_path / "pyproject.toml").write_text(broken)
    with pytest.raises(CourseError, match=r"\[tool.mlcourse\] must be a table"):
        setting("students", tmp_path)


def test_a_mark_scheme_in_the_history_of_the_target_is_refused_with_its_commit(course, published):
    scheme = min(line for line, place in secrets_of(course).items() if place == f"the mark scheme of {FIRST}")
    notes = published / "data" / "notes.md"
    notes.write_text(scheme)
    commit_as_publication(published)
    commit = git(published, "rev-parse", "--short", "HEAD")
    notes.unlink()
    commit_as_publication(published)
    before = git(published, "rev-parse", "HEAD")
    refuses(published, course, f"data/notes.md in commit {commit} of the target holds a line of the mark scheme")
    assert git(published, "rev-parse", "HEAD") == before and git(published, "status", "--porcelain") == ""


def test_a_secret_on_another_branch_of_a_remote_is_refused_and_nothing_is_pushed(course, published, tmp_path):
    remote = tmp_path / "remote.git"
    git(tmp_path, "clone", "--quiet", "--bare", published, remote)
    git(published, "switch", "--quiet", "--create", "draft")
    (published / "data" / "notes.yml").write_bytes((course / "tests" / "answers" / f"{FIRST}.yml").read_bytes())
    commit_as_publication(published)
    git(published, "push", "--quiet", remote, "draft")
    refuses(remote, course, r"data/notes.yml in commit \w+ of the target holds a line of tests/answers/")
    assert subjects(remote) == [f"Publish {FIRST}"]


@pytest.mark.parametrize("folder", ["solutions", "Solutions", "tests", "coursegrader"])
def test_a_target_that_has_or_had_folders_of_the_course_is_refused(course, published, folder):
    (published / folder).mkdir()
    (published / folder / "README.md").write_text("Nothing to see.\n")
    commit_as_publication(published)
    refuses(published, course, f"no repository for students, since it holds {folder}/README.md .commit")
    shutil.rmtree(published / folder)
    commit_as_publication(published)
    refuses(published, course, f"no repository for students, since it holds {folder}/README.md .commit")


def test_a_history_that_is_not_one_of_publications_is_refused(course, published):
    (published / "data" / "notes.md").write_text("A note.\n")
    git(published, "add", "--all")
    git(published, "commit", "--quiet", "--message", "Add a note")
    refuses(published, course, "a commit that is no publication .*Add a note")
    assert (published / "data" / "notes.md").exists()


def test_a_folder_with_other_files_a_file_and_changes_that_are_not_committed_are_refused(course, published, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("Chapter 1")
    refuses(tmp_path / "other", course, "holds files, but it is no earlier publication")
    refuses(tmp_path / "other" / "thesis.txt", course, "is a file")
    (published / "README.md").write_text("Mine.")
    refuses(published, course, "changes that are not committed")
    assert (published / "README.md").read_text() == "Mine."


def test_the_repository_of_the_course_is_no_target(course):
    git(course, "commit", "--quiet", "--message", "All")
    refuses(course, course, "no repository for students")


def test_a_remote_that_cannot_be_reached_is_named_without_its_password(course, tmp_path):
    refuses(f"file://ada:secret@localhost{tmp_path}/nowhere.git", course, "git clone did not work: (?!.*secret)")


def test_who_has_no_name_for_git_is_told_what_to_type(course, tmp_path, monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "")
    refuses(tmp_path / "students", course, r"git does not know who publishes: type `git config --global user\.name")


def test_the_command_says_what_was_published_and_when_there_is_nothing_to_do(course, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(course)
    for said in (f"Published to ../students: Publish {FIRST}.\n", "../students is up to date.\n"):
        with pytest.raises(SystemExit, match="0"):
            main(["publish", "../students", "--labs", FIRST])
        assert capsys.readouterr().out == said
    with pytest.raises(SystemExit, match="Error: labs/ has no lab lab-99"):
        main(["publish", "../students", "--labs", "lab-99"])


# What was published works


def mlcourse(folder, *arguments, python=(sys.executable,)):
    """Run a command of the published helper."""
    path = os.pathsep.join([str(folder), sysconfig.get_path("purelib")])
    return subprocess.run(
        [*python, "-m", "mlcourse.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_in_the_published_repository_the_help_lists_the_commands_of_students_alone(published):
    # -S hides the course that is installed by a path in site-packages
    said = mlcourse(published, "--help", python=(sys.executable, "-S")).stdout
    commands = set(re.findall(r"^    (\w+)", said, re.M))
    assert {"lab", "update", "submit", "doctor"} <= commands
    assert not commands & {"publish", "release", "grade", "collect", "book"}


def test_submit_runs_a_published_lab_and_says_where_it_goes(published):
    result = mlcourse(published, "submit", FIRST)
    assert "Exercise 1 · " in result.stdout and result.stdout.endswith(f"{WHERE}\n"), result.stderr


def test_the_doctor_finds_nothing_wrong_with_the_published_repository(published):
    result = mlcourse(published, "doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"in {published}" in result.stdout and "1 labs" in result.stdout


def test_a_clone_gets_the_next_publication_by_an_update_and_keeps_an_answer(course, published, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", published, clone)
    path = clone / "labs" / FIRST / f"{FIRST}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    next(cell for cell in notebook.cells if grade_id(cell) == "mean-squared-error").source = ANSWER
    nbformat.write(notebook, path)
    change(course)
    publish(str(published), course)
    result = mlcourse(clone, "update")
    assert result.returncode == 0, result.stderr
    assert f"{FIRST}: updated, 1 answer kept." in result.stdout and f"{SECOND}: new." in result.stdout
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]
    assert ANSWER in sources and "a word on units" in "".join(sources)


def test_a_published_lab_runs_and_can_be_validated(published, monkeypatch):
    monkeypatch.chdir(published)
    monkeypatch.setenv("PYTHONPATH", str(published))
    path = Path("labs", FIRST, f"{FIRST}.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-p", "no:cacheprovider", path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    source = read_lab(ROOT / "solutions" / f"{FIRST}.md")
    answers = {grade_id(cell): without_markers(cell) for cell in source.cells if grader(cell).get("solution")}
    notebook = nbformat.read(path, as_version=4)
    assert "failed" in Validator().validate(str(path))
    for cell in notebook.cells:
        cell.source = answers.get(grade_id(cell), cell.source)
    nbformat.write(notebook, path)
    assert Validator().validate(str(path)) == {}


def test_the_environment_of_a_student_has_the_same_settings_for_jupyter(course, published):
    read = [tomllib.loads((folder / "pyproject.toml").read_text("utf-8")) for folder in (ROOT, published)]
    own, students = [one["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"] for one in read]
    assert own == students and all((published / path).is_file() for path in students)
