"""The benchmarks of `make bench`: how fast a class is graded, as ratios against plain nbgrader in the same run.

    python tests/bench.py [--sizes 1 10 100 300] [--plain 10] [LAB ...]

Half of a class hand in the instructor's answers, the others one of the wrong answers of ``tests/answers/`` among them,
everybody with a line of their own, so that no two notebooks are the same.
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
from coursegrader.worker import FEW, Worker
from paths import ROOT

LABS = ["lab-01-toy-regression", "lab-04-digits-classification"]
PLAIN = """
from nbgrader.preprocessors import *
c.Autograde.exporter_class = "nbconvert.exporters.NotebookExporter"
c.Autograde.pre_convert_hook = None
c.Autograde.autograde_preprocessors = [Execute, LimitOutput, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labs", nargs="*", default=LABS)
    parser.add_argument("--sizes", nargs="*", type=int, default=[1, 10, 100, 300])
    parser.add_argument("--plain", type=int, default=5, help="how many submissions plain nbgrader grades")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in options.labs:
        with tempfile.TemporaryDirectory() as folder:
            bench(Lab(make_course(Path(folder), [name]), name), options)


def bench(lab, options):
    print(f"\n{lab.name}")
    hand_in(lab, options.plain)
    plain = timed(lambda: plain_nbgrader(lab)) / options.plain
    print(f"  plain nbgrader autograde: {plain:.2f} s for each of {options.plain}")
    print("   class  workers  s each  a minute  times plain   again  one changed")
    for size in options.sizes:
        for workers in (1, 2):
            forget(lab)
            hand_in(lab, size)
            row(lab, size, workers, plain, workers=workers)
    forget(lab)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        row(lab, options.sizes[-1], "Dask, 2", plain, scheduler=cluster.scheduler_address)
    own, whole = overhead(lab)
    print(f"  without the start of a worker: {whole:.2f} s for one, of which {own:.2f} s are the student's cells")
    print(f"  memory: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MB in this process")


def row(lab, size, name, plain, **where):
    """Grade a class for the first time, again, and after one of them has changed; print the seconds as ratios."""
    first, second = (timed(lambda: grade_class(lab.name, lab.root, **where)) for _ in range(2))
    change(lab)
    third = timed(lambda: grade_class(lab.name, lab.root, **where))
    each = first / size
    print(
        f"  {size:>6} {name:>8} {each:>7.2f} {60 / each:>9.0f} {plain / each:>12.1f} {second / first:>6.1%} "
        f"{third / first:>11.1%}",
        flush=True,
    )


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def hand_in(lab, size):
    shutil.rmtree(lab.root / "submitted", ignore_errors=True)
    given = yaml.safe_load((ROOT / "tests" / "answers" / f"{lab.name}.yml").read_text(encoding="utf-8"))
    wrong = [{exercise: answer["code"]} for exercise in given for answer in given[exercise]["wrong"]]
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


def overhead(lab):
    """Return the seconds of the student's cells alone, and of the whole notebook, at a worker that runs already."""
    cells = cells_of(lab.submitted["perfect"])
    tests = {cell.metadata.nbgrader.grade_id: cell for cell in lab.source.cells if "nbgrader" in cell.metadata}
    for cell in cells:
        if cell.grade_id:
            cell.source = tests[cell.grade_id].source
    worker = Worker(reference=cells)
    for _ in range(FEW):
        worker.grade(cells)
    whole = min(timed(lambda: worker.grade(cells)) for _ in range(3))
    own = min(timed(lambda: worker.grade([cell for cell in cells if cell.grade_id is None])) for _ in range(3))
    worker.close()
    return own, whole


if __name__ == "__main__":
    main()
