"""The formgrader in a browser, as an instructor uses it: grade by its button, mark a written answer, see the total."""

import os
import subprocess
import sys

import pytest

from course import Lab, make_course
from servers import served

LAB = "lab-01-toy-regression"
STUDENT = "perfect"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, bubblewrap):
    lab = Lab(make_course(tmp_path_factory.mktemp("course"), [LAB]), LAB)
    lab.submitted = {name: lab.submitted[name] for name in (STUDENT, "script")}
    lab.hand_in()
    return lab


@pytest.fixture(scope="module")
def address(lab):
    """The address of a Jupyter server in the folder of the course."""
    log = lab.root / "server.log"
    options = ["--no-browser", "--ServerApp.token=", "--ServerApp.password=", "--ServerApp.port=0", "--allow-root"]
    runtime = {"JUPYTER_RUNTIME_DIR": str(lab.root / "runtime")}
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options], cwd=lab.root, stderr=file, env={**os.environ, **runtime}
        )
    try:
        yield served(lab.root / "runtime", server, log)
    finally:
        server.terminate()
        server.wait()


def test_an_instructor_grades_by_the_button_and_marks_by_hand(lab, address, chromium):
    page = chromium.new_page()
    page.goto(f"{address}/formgrader/manage_assignments")
    row = page.locator("tr", has_text=LAB)
    row.wait_for()
    assert row.locator("td.num-submissions").inner_text().strip() == "2"

    page.goto(f"{address}/formgrader/manage_submissions/{LAB}")
    page.locator("tr", has_text=STUDENT).locator("td.autograde a").click()
    page.get_by_text(f"Successfully autograded '{LAB}' for student '{STUDENT}'").wait_for(timeout=90_000)
    automatic = sum(points for name, points in lab.points.items() if name not in lab.written)
    assert lab.totals()[STUDENT] == automatic

    page.goto(f"{address}/formgrader/gradebook/{LAB}/{LAB}")
    page.get_by_role("link", name="Submission #1").click()
    page.wait_for_function("window.formgrader && formgrader.grades && formgrader.grades.loaded")
    for name in lab.written:
        box = page.locator(f"input.score#{name}")
        box.fill(str(lab.points[name] - 1))
        with page.expect_response(lambda response: response.request.method == "PUT" and "/api/grade/" in response.url):
            box.press("Tab")
    page.close()
    assert lab.totals()[STUDENT] == sum(lab.points.values()) - len(lab.written)


def test_the_feedback_page_reads_well_in_a_browser_and_runs_nothing_of_the_student(lab, address, chromium):
    lab.nbgrader("autograde", LAB, "--force")
    lab.nbgrader("generate_feedback", LAB, "--force")
    for student in lab.submitted:
        page = chromium.new_page()
        raised = []
        page.on("dialog", lambda dialog, raised=raised: raised.append(dialog.message))
        page.goto(lab.feedback(student).as_uri())
        text = page.inner_text("body")
        page.close()
        assert not raised
        assert f"{lab.name}" in text and "Score" in text
        for message in lab.messages(student).values():
            assert message[:60] in " ".join(text.split())
