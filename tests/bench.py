"""The benchmark of `make bench`: the speed of grading, relative to plain nbgrader in the same run.

    python tests/bench.py [--plain 2] [--class-size 12] [--mixed] [--dask] [LAB ...]

The class hands in the instructor's answers. With ``--mixed``, every other student replaces one of them with a wrong
answer of ``tests/answers/``, and some of these take long: endless loops are among them. Each notebook has an extra
line, so that all differ. The time for one more submission is the
difference between two classes, divided by the difference of their sizes, so the start of the sandbox does not count.
The last line says what that is for a large class: the page on a JupyterHub quotes it.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import yaml
from distributed import LocalCluster

from course import Lab, make_course
from coursegrader.grade import grade_class
from coursegrader.labs import grade_id
from coursegrader.result_cache import cells_of
from coursegrader.worker import Worker
from paths import LABS, ROOT

SMALL = 2
LARGE = 1000
PLAIN = """
from nbgrader.preprocessors import *
c.Autograde.exporter_class = "nbconvert.exporters.NotebookExporter"
c.Autograde.pre_convert_hook = None
c.Autograde.sanitize_preprocessors = [
    ClearOutput, DeduplicateIds, OverwriteKernelspec, OverwriteCells, CheckCellMetadata
]
c.Autograde.autograde_preprocessors = [Execute, LimitOutput, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]
"""
HEAD = """
Seconds for one more submission:
lab                            plain  one worker  times  two workers  gain  own cells  given run   again  changed"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labs", nargs="*", default=LABS)
    parser.add_argument("--plain", type=int, default=2, help="how many submissions plain nbgrader grades")
    parser.add_argument("--class-size", type=int, default=12, help="how many submissions the grader grades")
    parser.add_argument("--mixed", action="store_true", help="every other student hands in a wrong answer")
    parser.add_argument("--dask", action="store_true", help="also grade the class on a Dask cluster of two workers")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(HEAD)
    seconds = []
    for name in options.labs:
        with tempfile.TemporaryDirectory() as folder:
            seconds.append(bench(Lab(make_course(Path(folder), [name]), name), options))
    plain, ours = (LARGE * sum(column) / 3600 for column in zip(*seconds, strict=True))
    print(f"{LARGE:,} students in {len(seconds)} labs: {ours:.1f} core-hours; with plain nbgrader {plain:.1f}.")
    print(f"Memory: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MB in this process.")


def bench(lab, options):
    """Print the row of a lab; return the seconds for a submission, with plain nbgrader and with one worker."""
    size = options.class_size
    hand_in(lab, options.plain, options.mixed)
    plain = timed(lambda: plain_nbgrader(lab)) / options.plain
    small, one = (whole_class(lab, number, options.mixed, workers=1) for number in (SMALL, size))
    each = (one - small) / (size - SMALL)
    small, two = (whole_class(lab, number, options.mixed, workers=2) for number in (SMALL, size))
    each_of_two = (two - small) / (size - SMALL)
    again = timed(lambda: grade_class(lab.name, lab.root, workers=2))
    change(lab)
    changed = timed(lambda: grade_class(lab.name, lab.root, workers=2))
    cells = cells_of(lab.source, lab.source)
    deferred = sum(cell.defers is not None for cell in cells)
    given = sum(cell.cell_type == "code" and "nbgrader" not in cell.metadata for cell in lab.source.cells)
    print(
        f"{lab.name:28} {plain:7.2f} {each:11.2f} {plain / each:6.1f} {each_of_two:12.2f} {each / each_of_two:5.1f} "
        f"{own_cells(cells):10.2f} {given - deferred:7} of {given:2} {again / two:10.1%} {changed / two:8.1%}",
        flush=True,
    )
    if options.dask:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            seconds = whole_class(lab, size, options.mixed, scheduler=cluster.scheduler_address)
        print(f"  {size} on a Dask cluster of two workers, with its start: {seconds / size:.2f} s for each")
    return plain, each


def whole_class(lab, size, mixed, **where):
    """Return the seconds to grade a class for the first time."""
    forget(lab)
    hand_in(lab, size, mixed)
    return timed(lambda: grade_class(lab.name, lab.root, **where))


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def hand_in(lab, size, mixed):
    shutil.rmtree(lab.root / "submitted", ignore_errors=True)
    given = yaml.safe_load((ROOT / "tests" / "answers" / f"{lab.name}.yml").read_text(encoding="utf-8"))
    wrong = [{exercise: answer["code"]} for exercise in given for answer in given[exercise]["wrong"]] if mixed else [{}]
    right = {grade_id(cell): cell.source for cell in lab.submitted["perfect"].cells if grade_id(cell)}
    for number in range(size):
        notebook = lab.filled_in(right | (wrong[number // 2 % len(wrong)] if number % 2 else {}))
        notebook.cells.append(nbformat.v4.new_code_cell(f"my_number = {number}"))
        path = lab.root / "submitted" / f"student-{number:03}" / lab.name / f"{lab.name}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def change(lab):
    path = lab.root / "submitted" / "student-000" / lab.name / f"{lab.name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("changed = True"))
    nbformat.write(notebook, path)


def forget(lab):
    for folder in ("autograded", "_build"):
        shutil.rmtree(lab.root / folder, ignore_errors=True)


def plain_nbgrader(lab):
    config = lab.root / "nbgrader_config.py"
    ours = config.read_text(encoding="utf-8")
    config.write_text(ours + PLAIN, encoding="utf-8")
    try:
        command = [sys.executable, "-m", "nbgrader", "autograde", lab.name]
        subprocess.run(command, cwd=lab.root, check=True, capture_output=True)
    finally:
        config.write_text(ours, encoding="utf-8")


def own_cells(cells):
    """Return the seconds that the student's cells take without any test, in a worker that runs already."""
    worker = Worker()
    cells = [cell for cell in cells if cell.grade_id is None]
    worker.grade(cells)
    seconds = min(timed(lambda: worker.grade(cells)) for _ in range(3))
    worker.close()
    return seconds


if __name__ == "__main__":
    main()
