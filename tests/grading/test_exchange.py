"""nbgrader's exchange: only what students may hand in is collected, and nobody stops the feedback of the class."""

import getpass
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import notebook_hash

from classroom import put_gradebook
from coursegrader.collect import refusals
from coursegrader.exchange import OtherOwner, opened
from coursegrader.labs import nbgrader_config, read_lab
from coursegrader.submissions import read_timestamp
from paths import ROOT

LAB = "lab-01-toy-regression"
SOURCE = nbformat.writes(read_lab(ROOT / "solutions" / f"{LAB}.md"))
RELEASED = (ROOT / "labs" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
ME = getpass.getuser()
SECRET = "0" * 128
pytestmark = pytest.mark.skipif(os.name == "nt", reason="nbgrader has no exchange on Windows")


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
    """Put a submission into the exchange, as `nbgrader submit` does."""
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
    submit(inbound)
    assert "Collected 1 of 1 submissions" in collect(root)
    assert "print('hello')" in (collected(root) / f"{LAB}.ipynb").read_text()
    assert (collected(root) / "timestamp.txt").read_text() == "2026-03-02 10:00:00 UTC"
    assert (collected(root) / "submission_secret.txt").read_text() == SECRET


def test_the_latest_submission_counts_and_an_earlier_one_is_kept(root, inbound):
    submit(inbound, text="first", date="2026-03-02 10:00:00")
    collect(root)
    submit(inbound, text="third", date="2026-03-04 10:00:00")
    submit(inbound, text="second", date="2026-03-03 10:00:00")
    collect(root)
    assert "third" in (collected(root) / f"{LAB}.ipynb").read_text()
    [kept] = (root / "replaced" / LAB / ME).glob("*/submitted/*.ipynb")
    assert "first" in kept.read_text()


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
    with pytest.raises(OtherOwner, match="no folder"), opened(folder, ME):
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
    (submit(inbound) / "timestamp.txt").unlink()
    assert "Without a time in timestamp.txt" in collect(root)
    stated = read_timestamp(collected(root))
    assert timedelta(0) <= datetime.now(UTC) - stated < timedelta(minutes=1)


@pytest.mark.parametrize(("ago", "is_named"), [(timedelta(minutes=1), False), (timedelta(hours=1), True)])
def test_a_time_that_a_student_set_back_is_named_and_left_to_the_instructor(root, inbound, ago, is_named):
    stated = datetime.now(UTC) - ago
    submit(inbound, date=f"{stated:%Y-%m-%d %H:%M:%S}")
    assert ("but its files were changed at" in collect(root)) == is_named
    assert read_timestamp(collected(root)) == stated.replace(microsecond=0)


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
