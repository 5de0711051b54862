"""How a Jupyter server of the course reads notebooks of others, and what it does not write."""

import asyncio
import copy
import json
from concurrent.futures import ThreadPoolExecutor

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbformat.sign import MemorySignatureStore, NotebookNotary
from tornado.web import HTTPError

from mlcourse.student.contents import CleanContents


def answer_of(coroutine):
    """Return the result of a coroutine. Playwright may have an event loop in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.fixture
def manager(tmp_path):
    """A contents manager as the course's Jupyter server makes it, with signatures of its own."""
    manager = type("Contents", (CleanContents, AsyncLargeFileManager), {})(root_dir=str(tmp_path))
    manager.notary.store = MemorySignatureStore()
    return manager


def test_a_notebook_that_this_user_ran_is_read_as_it_was_saved(manager, tmp_path):
    outputs = [nbformat.v4.new_output("display_data", data={"application/javascript": "1", "text/html": "<script>"})]
    cells = [nbformat.v4.new_code_cell("1", outputs=outputs, metadata={"trusted": True})]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"toc": {"base_numbering": 1}})
    answer_of(manager.save({"type": "notebook", "content": copy.deepcopy(notebook)}, "own.ipynb"))
    assert answer_of(manager.get("own.ipynb"))["content"] == notebook

    changed = json.loads((tmp_path / "own.ipynb").read_text()) | {"data": {}, "content": "x"}
    changed["cells"][0]["source"] = "2"
    (tmp_path / "own.ipynb").write_text(json.dumps(changed))
    read = answer_of(manager.get("own.ipynb"))["content"]
    assert read.keys() == {"nbformat", "nbformat_minor", "metadata", "cells"}
    assert read.metadata == {} and read.cells[0].metadata.trusted is False
    assert read.cells[0].outputs[0].data == {"text/html": "<script>"}


def test_a_cell_of_others_keeps_plain_metadata_alone(manager, tmp_path):
    grader = {"grade_id": "one-1", "points": 2, "locked": True}
    given = {"nbgrader": grader, "editable": False, "cellView": "form", "jupyter": {"a": True}}
    more = {
        "slideshow": {"deep": {}},
        "collapsed": [1],
        "scrolled": {},
        "toc": "<b>",
        "tags": ["set-up", *[{}] * 20_000],
    }
    cell = nbformat.v4.new_code_cell("1") | {"metadata": given | more, "more": 1}
    (tmp_path / "others.ipynb").write_text(json.dumps(nbformat.v4.new_notebook() | {"cells": [cell]}))
    read = answer_of(manager.get("others.ipynb"))["content"].cells[0]
    kept = given | {"tags": ["set-up"], "slideshow": {}, "scrolled": {}, "trusted": False}
    assert read.metadata == kept and "more" not in read


def test_what_was_handed_in_is_not_opened(manager, tmp_path):
    path = "course/submitted/one/lab/lab.ipynb"
    folder = (tmp_path / path).parent
    folder.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / path)
    (folder / "page.html").write_text("<script>")
    before = (tmp_path / path).read_bytes()
    files = [path, "course/submitted/one/lab/page.html"]
    assert [answer_of(manager.get(one))["path"] for one in files] == files  # this is no course yet
    (tmp_path / "course" / "nbgrader_config.py").touch()
    for one in files:
        with pytest.raises(HTTPError, match="was handed in: read it with"):
            answer_of(manager.get(one))
        assert answer_of(manager.get(one, content=False))["content"] is None
    with pytest.raises(HTTPError, match="was handed in"):
        answer_of(manager.trust_notebook(path))
    with pytest.raises(HTTPError, match="only commands of the course write"):
        answer_of(manager.save({"type": "notebook", "content": nbformat.v4.new_notebook()}, path))
    assert (tmp_path / path).read_bytes() == before
    assert [one["name"] for one in answer_of(manager.get("course/submitted/one/lab"))["content"]]
    assert [answer_of(manager.get_kernel_path(one)) for one in (path, "course/lab.ipynb")] == ["", "course"]


def test_of_feedback_the_page_alone_is_opened(manager, tmp_path):
    folder = tmp_path / "course" / "feedback" / "one" / "lab"
    folder.mkdir(parents=True)
    (tmp_path / "course" / "nbgrader_config.py").touch()
    for name in ("lab.html", "other.html", "LAB.IPYNB", "notes.md"):
        (folder / name).write_text("{}")
    assert answer_of(manager.get("course/feedback/one/lab/lab.html"))["content"]
    for name in ("other.html", "LAB.IPYNB", "notes.md"):
        with pytest.raises(HTTPError, match="was handed in"):
            answer_of(manager.get(f"course/feedback/one/lab/{name}"))


def test_the_signature_of_a_notebook_is_that_of_no_other(manager):
    notary = manager.notary
    # nbformat joins keys and texts without a sign between them
    whole = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", metadata={"a": "bc"}, id="one")])
    other = copy.deepcopy(whole)
    other.cells[0].metadata = {"ab": "c"}
    assert NotebookNotary.compute_signature(notary, whole) == NotebookNotary.compute_signature(notary, other)
    notary.sign(whole)
    assert notary.check_signature(whole) and not notary.check_signature(other)
    # Nor does a signature that nbformat gave before count
    notary.store.store_signature(NotebookNotary.compute_signature(notary, other), notary.algorithm)
    assert not notary.check_signature(other)
