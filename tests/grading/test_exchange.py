"""nbgrader's exchange: only what students may hand in is collected, and nobody stops the feedback of the class."""

import contextlib
import getpass
import json
import os
import signal
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import notebook_hash

from classroom import put_gradebook
from coursegrader import collect as collect_module
from coursegrader.collect import MAX_BYTES, MAX_STUDENT_BYTES, no_identifiers, refusals
from coursegrader.exchange import MAX_ENTRIES, MAX_FOLDERS, LeftOut, mounts, names, opened
from coursegrader.labs import nbgrader_config, read_lab
from coursegrader.submissions import read_timestamp
from paths import ROOT

LAB = "lab-01-toy-regression"
SOURCE = nbformat.writes(read_lab(ROOT / "solutions" / f"{LAB}.md"))
RELEASED = (ROOT / "labs" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
ME = getpass.getuser()
SECRET = "0" * 128
fcntl = pytest.importorskip("fcntl", reason="nbgrader has no exchange on Windows")


@pytest.fixture
def root(tmp_path):
    """A course folder with one lab, beside an exchange."""
    root = tmp_path / "course"
    (root / "source" / LAB).mkdir(parents=True)
    (root / "source" / LAB / f"{LAB}.ipynb").write_text(SOURCE, encoding="utf-8")
    (root / "nbgrader_config.py").write_text((ROOT / "nbgrader_config.py").read_text("utf-8"), encoding="utf-8")
    put_gradebook(root)
    (tmp_path / "exchange" / "mlcourse" / "inbound").mkdir(parents=True)
    (tmp_path / "exchange").chmod(0o777)
    return root


@pytest.fixture
def inbound(root):
    return root.parent / "exchange" / "mlcourse" / "inbound"


def submit(inbound, student=ME, text="print('hello')", date="2026-03-02 10:00:00", lab=LAB, secret=SECRET):
    """Put a submission into the exchange, as `nbgrader submit` does, in which a date is stated."""
    folder = inbound / f"{student}+{lab}+{date}.000000 UTC+{len(list(inbound.iterdir()))}"
    folder.mkdir()
    notebook = json.loads(RELEASED)
    notebook["cells"].append({"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "source": text})
    (folder / f"{lab}.ipynb").write_text(json.dumps(notebook))
    (folder / "timestamp.txt").write_text(f"{date} UTC")
    if secret is not None:
        (folder / "submission_secret.txt").write_text(secret)
    return folder


def collect(root):
    """Collect as `nbgrader collect` and the button of the formgrader do; return the log."""
    config = nbgrader_config(root)
    config.Exchange.root = str(root.parent / "exchange")
    result = NbGraderAPI(config=config).collect(LAB)
    assert result["success"], result["log"]
    return result["log"]


def release_feedback(root, pages):
    """Release the feedback, with the files beside the page of each student; return the log."""
    for student, files in pages.items():
        folder = root / "feedback" / student / LAB
        folder.mkdir(parents=True)
        for name, text in {f"{LAB}.html": f"The page of {student}", **files}.items():
            (folder / name).write_text(text)
    config = nbgrader_config(root)
    config.Exchange.root = str(root.parent / "exchange")
    result = NbGraderAPI(config=config).release_feedback(LAB)
    assert result["success"], result
    return result["log"]


def fetched(root, secret, name=LAB):
    """Return the page that a student's nbgrader finds for a notebook that was handed in; None if there is none."""
    page = root.parent / "exchange" / "mlcourse" / "feedback" / f"{notebook_hash(secret=secret, notebook_id=name)}.html"
    assert not page.exists() or page.stat().st_mode & 0o777 == 0o644
    return page.read_text() if page.exists() else None


def collected(root, student=ME):
    return root / "submitted" / student / LAB


def test_a_submission_arrives_with_its_time_and_the_secret_of_its_feedback(root, inbound):
    before = datetime.now(UTC)
    submit(inbound, date=f"{before:%Y-%m-%d %H:%M:%S}")
    said = collect(root)
    assert "Collected 1 of 1 submissions" in said and "which counts" not in said
    assert "print('hello')" in (collected(root) / f"{LAB}.ipynb").read_text()
    # The kernel's clock has steps of some milliseconds
    assert before - timedelta(seconds=0.1) <= read_timestamp(collected(root)) <= datetime.now(UTC)
    assert (collected(root) / "submission_secret.txt").read_text() == SECRET


@pytest.mark.parametrize("stated", ["2026-03-02 10:00:00", "2100-03-02 10:00:00"])
def test_the_time_that_counts_is_not_what_the_student_states(root, inbound, stated):
    before = time.time()
    folder = submit(inbound, date=stated)
    for path in [folder, *folder.iterdir()]:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    said = collect(root)
    assert before - 0.1 <= read_timestamp(collected(root)).timestamp() <= time.time()
    if stated < "2100":
        assert "timestamp.txt says 02 March 2026, 10:00, but it was changed on" in said


def test_an_answer_that_is_changed_after_it_was_handed_in_is_of_the_time_of_the_change(root, inbound):
    folder = submit(inbound, text="first")
    collect(root)
    first = read_timestamp(collected(root))
    time.sleep(0.1)
    notebook = folder / f"{LAB}.ipynb"
    notebook.write_text(notebook.read_text().replace("first", "second"))
    assert "It replaces the one of" in collect(root)
    assert read_timestamp(collected(root)) > first


@pytest.mark.parametrize(("mode", "warns"), [(0o666, True), (0o600, False)])
def test_where_users_may_serve_file_systems_the_instructor_is_warned_about_the_times(
    root, inbound, tmp_path, monkeypatch, mode, warns
):
    device = tmp_path / "fuse"
    device.touch()
    device.chmod(mode)
    monkeypatch.setattr("coursegrader.exchange.FUSE", device)
    monkeypatch.setattr(
        "coursegrader.exchange.MOUNTS", tmp_path / "none"
    )  # the file system is a matter of another test
    assert ("change a submission without a new time" in collect(root)) == warns


def test_the_submission_that_was_handed_in_last_counts_and_an_earlier_one_is_kept(root, inbound):
    submit(inbound, text="first")
    collect(root)
    for text, date in [("second", "2026-03-04 10:00:00"), ("third", "2026-03-03 10:00:00")]:
        time.sleep(0.1)
        submit(inbound, text=text, date=date)
    collect(root)
    assert "third" in (collected(root) / f"{LAB}.ipynb").read_text()
    [kept] = (root / "replaced" / LAB / ME).glob("*/submitted/*.ipynb")
    assert "first" in kept.read_text()


@pytest.mark.parametrize(("kind", "warns"), [("ext4", False), ("xfs", True), ("tmpfs", True)])
def test_a_file_system_without_reliable_times_is_named(root, inbound, monkeypatch, tmp_path, kind, warns):
    submit(inbound)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 1 8:1 / / rw - ext4 a rw\n40 30 8:2 / {inbound.parent} rw shared:2 - {kind} a rw\n")
    monkeypatch.setattr("coursegrader.exchange.MOUNTS", mounts)
    assert (f"The exchange lies on {kind}" in collect(root)) == warns
    assert collected(root).exists()


def test_an_account_is_not_collected_as_a_student_of_another_name():
    assert no_identifiers({"ada", "ben.b", "cleo@uni.org", "d_d"}) == {}
    assert no_identifiers({"ada-", "ben", "c--d"}).keys() == {"ada-", "c--d"}
    assert "would be student ada, who may be another" in no_identifiers({"ada-"})["ada-"]


def test_an_account_whose_name_resembles_another_keeps_nobody_out():
    assert no_identifiers({"jose", "joſe", "strauss", "strauß"}) == {}
    assert no_identifiers({"ada", "ada-"}).keys() == {"ada-"}


@pytest.mark.parametrize("name", ["a\rb", "a\r\rb", "a\vb", "a\fb", "a\x85b", "a-b", "a - b"])
def test_a_mounted_folder_may_have_any_name(root, inbound, monkeypatch, tmp_path, name):
    folder = submit(inbound)
    table = tmp_path / "mountinfo"
    point = str(folder / name).replace(" ", "\\040")
    table.write_bytes(f"30 1 8:1 / / rw - ext4 a rw\n40 30 0:5 / {point} rw shared:2 - fuse a rw\n".encode())
    monkeypatch.setattr("coursegrader.exchange.MOUNTS", table)
    assert [point for point, kind in mounts() if kind == "fuse"] == [folder / name]
    assert "a file system is mounted in it" in collect(root)


def test_a_notebook_that_is_exchanged_while_it_is_collected_is_of_the_time_of_the_exchange(root, inbound, monkeypatch):
    folder, handed_in = submit(inbound), time.time()
    notebook, late = folder / f"{LAB}.ipynb", inbound.parent / "late.ipynb"
    late.write_text(notebook.read_text().replace("hello", "late"))
    open_ordinary = collect_module.open_ordinary
    time.sleep(1)

    def opened_late(path, *owner):
        if late.exists() and path.name == notebook.name:
            late.rename(notebook)
        return open_ordinary(path, *owner)

    monkeypatch.setattr(collect_module, "open_ordinary", opened_late)
    collect(root)
    assert "late" in (collected(root) / f"{LAB}.ipynb").read_text()
    assert read_timestamp(collected(root)).timestamp() > handed_in + 0.9


def test_files_that_use_up_what_may_be_unpacked_take_no_time_of_handing_in_away(root, inbound):
    folder, handed_in = submit(inbound), time.time()
    with zipfile.ZipFile(folder / "extra.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(1 + MAX_STUDENT_BYTES // (MAX_BYTES - 1)):
            archive.writestr(f"{number}.ipynb", bytes(MAX_BYTES - 1))
    os.utime(folder / f"{LAB}.ipynb", (1.7e9, 1.7e9))
    assert "it unpacks to more than a student's work can be" in collect(root)
    assert read_timestamp(collected(root)).timestamp() > handed_in - 1


def test_a_folder_of_too_many_files_is_left_out_and_stops_nobody(root, inbound):
    folder = submit(inbound)
    for number in range(MAX_ENTRIES):
        (folder / f"{number}.txt").touch()
    said = collect(root)
    assert f"of {ME}: it has more than {MAX_ENTRIES} files" in said
    assert not collected(root).exists()
    assert refusals(LAB, root) == {ME: f"there are more than {MAX_ENTRIES} files beside the notebook."}
    release_feedback(root, {ME: {}})
    assert fetched(root, SECRET) == f"The page of {ME}"


def test_a_folder_that_cannot_be_read_is_not_said_to_have_too_many_files(root, inbound, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    submit(inbound)
    monkeypatch.setattr("coursegrader.exchange.changed", refuse)
    assert "it is no folder that can be read" in collect(root)
    assert refusals(LAB, root) == {}


def test_an_account_that_may_be_another_and_whose_folder_has_too_many_files_stops_nobody(root, inbound, monkeypatch):
    submit(inbound)
    folder = submit(inbound, student="ada-")
    for number in range(MAX_ENTRIES):
        (folder / f"{number}.txt").touch()
    monkeypatch.setattr("coursegrader.exchange.opened", lambda path, student: contextlib.nullcontext(path))
    said = collect(root)
    assert "Left out ada-: 'ada-' would be student ada, who may be another" in said
    assert collected(root).exists()


def test_a_folder_that_once_had_very_many_files_is_left_out(root, inbound, monkeypatch):
    """On ext4 such a folder stays large, and to list it takes minutes."""
    folder = submit(inbound)
    monkeypatch.setattr("coursegrader.exchange.MAX_FOLDER_BYTES", 512 * folder.stat().st_blocks - 1)
    assert "it has, or had, more than" in collect(root)
    assert not collected(root).exists()


def test_of_very_many_folders_of_a_user_the_latest_are_looked_into(root, inbound):
    submit(inbound, text="old", secret="1" * 128)
    time.sleep(0.1)
    for number in range(MAX_FOLDERS - 1):
        (inbound / f"{ME}+{LAB}+2026-03-02 10:00:00+{number:03}").mkdir()
    submit(inbound, text="new")
    said = collect(root)
    assert f"{ME} has {MAX_FOLDERS + 1} folders in the exchange" in said
    assert "new" in (collected(root) / f"{LAB}.ipynb").read_text()
    assert set(names(inbound, LAB)[ME]) == {SECRET}


def test_a_folder_whose_files_cannot_be_seen_is_left_out_and_stops_nobody(root, inbound, monkeypatch):
    submit(inbound)

    def refuse(path, **options):  # as with a folder of mode 0444, for anybody but root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("coursegrader.exchange.os.lstat", refuse)
    assert "it is no folder that can be read (Permission denied)" in collect(root)


def test_a_folder_in_which_a_file_system_is_mounted_is_named_and_not_touched(root, inbound, tmp_path, monkeypatch):
    """Whoever serves a file system of their own may never answer."""
    mounted = submit(inbound, student="another")
    submit(inbound)
    mounts = tmp_path / "mountinfo"
    point = str(mounted / "deep").replace(" ", "\\040")
    odd = os.fsencode(inbound) + b"/\xff"
    mounts.write_bytes(
        b"30 1 8:1 / / rw - ext4 /dev/sda rw\n"
        + b"".join(b"40 30 0:9 / %b rw - fuse.a a rw\n" % one for one in (point.encode(), odd))
    )
    monkeypatch.setattr("coursegrader.exchange.MOUNTS", mounts)
    real_open, real_lstat, touched = os.open, Path.lstat, []

    def opening(path, *rest, **options):
        touched.append(Path(str(path)))
        return real_open(path, *rest, **options)

    def looking(path):
        touched.append(path)
        return real_lstat(path)

    monkeypatch.setattr("coursegrader.exchange.os.open", opening)
    monkeypatch.setattr(Path, "lstat", looking)
    said = collect(root)
    assert f"Left out {mounted.name}: a file system is mounted in it" in said
    assert collected(root).exists() and mounted not in touched


def test_a_folder_that_nobody_else_may_look_at_is_named_and_stops_nobody(root, inbound, monkeypatch):
    """Whoever mounts a file system of their own over their folder shuts out root, too."""
    mounted = submit(inbound, student="another")
    submit(inbound)
    real_open, real_lstat = os.open, Path.lstat

    def opening(path, *rest, **options):
        if Path(path) == mounted:
            raise PermissionError(13, "Permission denied")
        return real_open(path, *rest, **options)

    def looking(path):
        if path == mounted:
            raise PermissionError(13, "Permission denied")
        return real_lstat(path)

    monkeypatch.setattr("coursegrader.exchange.os.open", opening)
    monkeypatch.setattr(Path, "lstat", looking)
    said = collect(root)
    assert f"Left out {mounted.name}" in said and "Permission denied" in said
    assert collected(root).exists()


def test_of_the_folders_in_the_name_of_another_a_few_are_named(root, inbound):
    for number in range(20):
        (inbound / f"nobody+{LAB}+2026-03-02 10:00:00+{number}").mkdir()
    said = collect(root)
    assert said.count("in the name of nobody") == 5 and "And 15 more of that kind" in said


def test_owners_who_are_no_users_of_the_machine_hand_nothing_in(root, inbound, monkeypatch):
    for number in range(8):
        submit(inbound, student=f"user {number}")
    monkeypatch.setattr("coursegrader.exchange.name_of", lambda user: None)
    said = collect(root)
    assert said.count("no users of this machine") == 1 and "Left out 8 folders" in said
    assert not (root / "submitted").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_in_a_folder_is_not_taken(root, inbound):
    folder = submit(inbound)
    os.chown(folder / f"{LAB}.ipynb", 65534, -1)
    assert "it belongs to another user" in collect(root)
    assert not (collected(root) / f"{LAB}.ipynb").exists()


def test_if_the_last_folder_is_empty_the_one_before_it_is_collected(root, inbound):
    submit(inbound, text="first")
    time.sleep(0.1)
    (inbound / f"{ME}+{LAB}+2026-03-02 10:00:00+later").mkdir()
    assert "What was handed in last cannot be collected" in collect(root)
    assert "first" in (collected(root) / f"{LAB}.ipynb").read_text()


@pytest.mark.parametrize("first", [True, False])
def test_what_was_held_shut_and_has_a_time_of_before_is_named_when_it_is_collected(root, inbound, monkeypatch, first):
    monkeypatch.setattr("coursegrader.exchange.MEANWHILE", 0)
    if first:
        submit(inbound, text="first")
        time.sleep(0.1)
    folder = submit(inbound, text="second", date="2026-03-03 10:00:00")
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks the holder to give way
    with (folder / f"{LAB}.ipynb").open("r+") as held:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        said = collect(root)
        assert ("What was handed in last cannot be collected" if first else "Collected 0 of 1") in said
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert "By its time it was there when you collected before" in collect(root)
    assert "second" in (collected(root) / f"{LAB}.ipynb").read_text()
    assert "By its time" not in collect(root)


@pytest.mark.parametrize(("names", "left_out"), [(["ada", "ada-"], ["ada-"]), (["-ada", "ada-"], ["-ada", "ada-"])])
def test_of_two_names_that_would_be_one_student_the_plain_one_is_collected(root, inbound, monkeypatch, names, left_out):
    for student in names:
        submit(inbound, student=student)
    monkeypatch.setattr("coursegrader.exchange.opened", lambda path, student: contextlib.nullcontext(path))
    said = collect(root)
    assert said.count("would be student ada, who may be another") == len(left_out)
    assert all(f"Left out {student}+{LAB}" in said for student in left_out)
    assert (root / "submitted" / "ada").exists() == ("ada" in names)


def test_no_link_of_a_student_is_followed(root, inbound, tmp_path):
    private = tmp_path / "private"
    private.write_text(RELEASED.replace("Lab 1", "The instructor's"))
    folder = submit(inbound)
    (folder / f"{LAB}.ipynb").unlink()
    (folder / f"{LAB}.ipynb").symlink_to(private)
    (folder / "more.ipynb").symlink_to(private)
    assert "symbolic link" in collect(root)
    assert not collected(root).exists()


def test_a_folder_that_is_a_link_is_left_out(root, inbound):
    folder = submit(inbound)
    folder.rename(inbound.parent / "elsewhere")
    folder.symlink_to(inbound.parent / "elsewhere")
    assert "it is no folder" in collect(root)
    assert not collected(root).exists()


def test_a_link_that_takes_the_place_of_a_folder_is_not_followed(inbound, tmp_path):
    folder = submit(inbound)
    (tmp_path / "private").mkdir()
    with opened(folder, ME) as path:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "private")
        assert sorted(one.name for one in path.iterdir()) == [
            f"{LAB}.ipynb",
            "submission_secret.txt",
            "timestamp.txt",
        ]
    with pytest.raises(LeftOut, match="no folder"), opened(folder, ME):
        pass


def test_nobody_hands_in_under_the_name_of_another(root, inbound):
    submit(inbound, student="root" if ME != "root" else "nobody", text="forged")
    submit(inbound)
    said = collect(root)
    assert f"but of {ME}" in said
    assert [path.name for path in (root / "submitted").iterdir()] == [ME]


@pytest.mark.parametrize("name", ["nothing", "++", f"{ME}+{LAB}", f"{ME}+{LAB}+no date+x", "a+another-lab+b+c"])
def test_an_odd_name_stops_nobody(root, inbound, name):
    (inbound / name).mkdir()
    submit(inbound)
    collect(root)
    assert collected(root).exists()


@pytest.mark.parametrize("secret", [None, "", "x" * 128, "../" * 40])
def test_a_submission_without_the_secret_of_nbgrader_gets_one(root, inbound, secret):
    submit(inbound, secret=secret)
    assert "Handed in without nbgrader" in collect(root)
    written = (collected(root) / "submission_secret.txt").read_text()
    assert len(written) == 128 and written != secret
    assert "Handed in without nbgrader" not in collect(root)


def test_only_the_files_that_are_needed_are_taken(root, inbound):
    folder = submit(inbound)
    (folder / "large.bin").write_bytes(b"0" * 1000)
    (folder / "inside").mkdir()
    (folder / "inside" / f"{LAB}.ipynb").write_text(RELEASED)
    collect(root)
    names = sorted(path.name for path in collected(root).iterdir())
    assert names == [f"{LAB}.ipynb", "submission_secret.txt", "timestamp.txt"]


def test_without_a_time_that_of_the_last_change_counts(root, inbound):
    before = time.time()
    (submit(inbound) / "timestamp.txt").unlink()
    assert "Its timestamp.txt says no time" in collect(root)
    assert before - 0.1 <= read_timestamp(collected(root)).timestamp() <= time.time()


def test_what_cannot_be_collected_is_remembered_until_there_is_something_better(root, inbound):
    (submit(inbound) / f"{LAB}.ipynb").unlink()
    collect(root)
    assert "no notebook" in refusals(LAB, root)[ME]
    submit(inbound, date="2026-03-03 10:00:00")
    collect(root)
    assert refusals(LAB, root) == {}


def test_the_feedback_is_released_under_the_name_that_the_notebook_had(root, inbound):
    folder = submit(inbound)
    (folder / f"{LAB}.ipynb").rename(folder / "my lab.ipynb")
    said = release_feedback(root, {ME: {"submission_secret.txt": SECRET, "timestamp.txt": "2026-03-02 10:00:00 UTC"}})
    assert "Released the feedback of 1 students" in said
    assert fetched(root, SECRET, "my lab") == fetched(root, SECRET) == f"The page of {ME}"


def test_a_notebook_whose_name_is_no_text_stops_the_feedback_of_nobody(root, inbound):
    folder = submit(inbound)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.ipynb")).write_text("{}")
    files = {"submission_secret.txt": SECRET, "timestamp.txt": "2026-03-02 10:00:00 UTC"}
    assert "Released the feedback of 1 students" in release_feedback(root, {ME: files})
    assert fetched(root, SECRET) == f"The page of {ME}"


@pytest.mark.parametrize("missing", ["timestamp.txt", "submission_secret.txt"])
def test_a_missing_file_of_one_student_stops_the_feedback_of_nobody(root, inbound, missing):
    files = {"submission_secret.txt": "1" * 128, "timestamp.txt": "2026-03-02 10:00:00 UTC"}
    some = {name: text for name, text in files.items() if name != missing}
    said = release_feedback(root, {"a": some, "b": files})
    assert fetched(root, "1" * 128) == "The page of b"
    assert ("a: not released" in said) == (missing == "submission_secret.txt")


def test_a_student_of_whom_nothing_could_be_collected_gets_the_reason(root, inbound):
    submit(inbound, date="2026-03-01 10:00:00", secret="1" * 128)
    submit(inbound, secret=SECRET)
    release_feedback(root, {ME: {}})
    assert fetched(root, SECRET) == f"The page of {ME}"
    assert fetched(root, "1" * 128) is None


def test_without_a_notebook_the_instructor_reads_that_the_feedback_cannot_be_fetched(root, inbound):
    (submit(inbound) / f"{LAB}.ipynb").unlink()
    assert "handed in no notebook" in release_feedback(root, {ME: {}})


def test_without_an_exchange_the_message_says_what_to_do(root):
    config = nbgrader_config(root)
    config.Exchange.root = str(root.parent / "exchange")
    Path(root.parent / "exchange" / "mlcourse" / "inbound").rmdir()
    result = NbGraderAPI(config=config).collect(LAB)
    assert not result["success"]
    assert "release a lab first" in result["log"]
