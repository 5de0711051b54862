"""The instructors' commands of ``mlcourse`` (see `mlcourse.cli`), typed in the folder of the course."""

import argparse
import dataclasses
import getpass
import json
import os
import platform
import shlex
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from coursegrader import GradingError
from coursegrader.protocol import Limits

if find_spec("jupytext") is None:
    raise ModuleNotFoundError("the dependencies of the group grade are not installed")

EXAMPLES = """
For instructors, a lab's way through a term:
  mlcourse release lab-01-toy-regression             make the students' notebook
  mlcourse publish ADDRESS                           bring the students' repository up to date
  mlcourse roster participants.csv                   say who is in the class
  mlcourse collect lab-01-toy-regression class.zip   put what they hand in where it is graded
  mlcourse grade lab-01-toy-regression               grade it
  mlcourse report lab-01-toy-regression              see how the class did
  mlcourse mark lab-01-toy-regression                mark the written answers
  mlcourse feedback lab-01-toy-regression            write a page for each student
  mlcourse export                                    write the grades as a table
  mlcourse report --all                              see all labs of the term
"""


def add_commands(command):
    """Add the instructors' commands.

    Parameters
    ----------
    command : callable
        Adds a command: ``command(name, run, says, example)`` returns its parser.
    """

    def in_course(run):
        def checked(options):
            options.root = Path.cwd()
            if not (options.root / "nbgrader_config.py").exists():
                raise GradingError(
                    f"{options.root} is not the folder of the course: there is no nbgrader_config.py in it"
                )
            return run(options)

        return checked

    def for_lab(name, run, says, example):
        one = command(name, in_course(run), says, example)
        one.add_argument("lab", metavar="LAB", help="the name of the lab, for instance lab-01-toy-regression")
        return one

    says = "make the students' notebook of a lab"
    one = command("release", in_course(release), says, "mlcourse release lab-01-toy-regression")
    one.add_argument("lab", metavar="LAB", nargs="?", help="the name of the lab (default: all labs)")
    one.add_argument("--sources", action="store_true", help="write nbgrader's source/ only, and leave labs/ alone")

    says = "write the students' repository, or bring it up to date"
    example = "mlcourse publish git@example.org:course/labs.git --labs lab-01-toy-regression"
    one = command("publish", in_course(publish), says, example)
    one.add_argument("target", metavar="TARGET", help="a folder, or the address of a git repository to push to")
    which = "the labs to add to those that were published before (default: all labs)"
    one.add_argument("--labs", metavar="LAB", nargs="+", default=[], help=which)

    says = "put the people of the class on the roster, or update it"
    one = command("roster", in_course(roster), says, "mlcourse roster ~/Downloads/participants.csv")
    says = "a CSV of Moodle's participants or Canvas's gradebook, or one with the columns id, last name, first name"
    one.add_argument("file", metavar="FILE", type=Path, help=says)

    one = for_lab(
        "collect",
        collect,
        "put what students handed in where it is graded",
        "mlcourse collect lab-01-toy-regression ~/Downloads/class.zip",
    )
    one.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a folder, or an archive of Moodle or Canvas")
    says = "Moodle's grading worksheet of the lab, downloaded with the archive, which says when each was handed in"
    one.add_argument("--worksheet", type=Path, metavar="FILE", help=says)

    example = "mlcourse grade lab-01-toy-regression --workers 1"
    for name, run, says in [
        ("grade", grade, "grade what students handed in"),
        ("regrade", regrade, "grade again after a test was changed, and say whose marks move and why"),
    ]:
        one = for_lab(name, run, says, example.replace("grade", name, 1))
        most = "how many at a time: at most, and by default, one per core"
        one.add_argument("--workers", type=whole_number, metavar="N", help=most)
        one.add_argument("--again", action="store_true", help="run also what was run before")
        which = "the draw of the hidden data for all submissions (default: the draw of the last grading)"
        one.add_argument("--draw", type=whole_number, metavar="N", help=which)
        one.add_argument(
            "--limit", type=limit, action="append", metavar="NAME=NUMBER", help=f"a limit for each submission: {LIMITS}"
        )
        one.add_argument("--scheduler", metavar="ADDRESS", help="use the Dask cluster with this scheduler")
        one.add_argument("--no-sandbox", action="store_true", help="let students' code do all that you may do: unsafe")

    says = "write a page about how the class did in a lab, or in all labs of the term"
    one = command("report", in_course(report), says, "mlcourse report lab-01-toy-regression")
    one.add_argument("lab", metavar="LAB", nargs="?", help="the name of the lab")
    one.add_argument("--all", action="store_true", help="write a page about all labs for which anything was handed in")

    says, example = "mark a written answer of the whole class on one page", "mlcourse mark lab-01-toy-regression"
    one = for_lab("mark", mark, says, example)
    one.add_argument("answer", metavar="ANSWER", nargs="?", help="the written answer, if the lab has several")
    says = "on a machine with other users: show the page through ssh alone, as the command then says"
    one.add_argument("--socket", action="store_true", help=says)

    says, example = "write a page for each student", "mlcourse feedback lab-01-toy-regression --archive feedback.zip"
    one = for_lab("feedback", feedback, says, example)
    one.add_argument("--archive", type=Path, metavar="FILE", help="also write the zip of feedback files for the LMS")
    says = "the LMS that the zip is for (%(default)s)"
    one.add_argument("--style", choices=["moodle", "canvas"], default="moodle", help=says)

    one = command("export", in_course(export), "write the grades as a table", "mlcourse export --style moodle")
    one.add_argument("labs", metavar="LAB", nargs="*", help="the labs; all of them if none is named")
    styles = ["spreadsheet", "moodle", "canvas"]
    one.add_argument(
        "--style", choices=styles, default=styles[0], help="the system that reads the table (default: %(default)s)"
    )
    names = ["Username", "Email address", "ID number"]
    one.add_argument("--identifier", choices=names, default=names[0], help="how Moodle knows students (%(default)s)")
    one.add_argument("--to", type=Path, default=Path("grades.csv"), help="the file (default: %(default)s)")
    says = "Moodle's grading worksheet of the one lab; the table is this worksheet with the grades filled in"
    one.add_argument("--worksheet", type=Path, metavar="FILE", help=says)
    one.add_argument("--unfinished", action="store_true", help="also while written answers wait to be marked")

    for_lab(
        "audit",
        audit,
        "run the tests of a lab on right, wrong and mutated answers, and write a page",
        "mlcourse audit lab-01-toy-regression",
    )


LIMITS = "; ".join(f"{one.name}, {one.metadata['what']} ({one.default:,})" for one in dataclasses.fields(Limits))


def limit(text):
    """Parse a limit of the form NAME=NUMBER."""
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=NUMBER, such as memory=8") from None


def whole_number(text):
    """Parse a whole number above 0."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def release(options):
    """Write the student notebooks of one lab or all, or only nbgrader's sources."""
    from coursegrader import labs
    from coursegrader.files import one_at_a_time

    lab = options.lab and known(options)
    # Grading reads the lab and its cells in the gradebook
    with one_at_a_time(options.root):
        names = labs.write_sources(options.root) if options.sources else labs.release(options.root, lab)
    print(f"Written to {'source' if options.sources else 'labs'}/: {', '.join(names)}.")


def publish(options):
    """Write or update the students' repository, and print what was committed."""
    from coursegrader.publish import publish, without_password

    target = without_password(options.target)
    subject = publish(options.target, options.root, options.labs)
    print(f"Published to {target}: {subject}." if subject else f"{target} is up to date.")


def roster(options):
    """Put the people of a CSV on the roster, print who is not in it, and return 1 if somebody was left out."""
    from coursegrader.files import one_at_a_time
    from coursegrader.grade import gradebook_of
    from coursegrader.labs import nbgrader_config
    from coursegrader.roster import FILE, update_roster

    with one_at_a_time(options.root), gradebook_of(nbgrader_config(options.root)) as gradebook:
        people, absent, left_out = update_roster(options.file, gradebook, options.root)
    print(f"On the roster: {len(people)} of {options.file}, in the gradebook and {FILE}.")
    if absent:
        print(
            f"Not in {options.file}, but still on the roster: {', '.join(absent)}. Delete the rows of those who have "
            f"left in {FILE}."
        )
    for sentence in left_out:
        print(f"Left out: {sentence}.", file=sys.stderr)
    return 1 if left_out else 0


def people_of(options):
    """Return the people on the roster; the gradebook is not opened if there is none."""
    from coursegrader.grade import gradebook_of
    from coursegrader.labs import nbgrader_config
    from coursegrader.roster import FILE, read_roster

    if not (options.root / FILE).exists():
        return []
    with gradebook_of(nbgrader_config(options.root)) as gradebook:
        return read_roster(gradebook, options.root)


def collect(options):
    """Collect the submissions of a class, and print notes on them."""
    from coursegrader.collect import collect, keep_refusals
    from coursegrader.files import one_at_a_time
    from coursegrader.roster import keep_numbers
    from coursegrader.submissions import shown
    from coursegrader.worksheet import write_times

    lab = known(options)
    with one_at_a_time(options.root):  # another collecting would write the roster without these numbers
        people = people_of(options)
        keep = partial(keep_numbers, people, lab, root=options.root)
        collected = collect(lab, options.files, options.root, people, keep)
        keep_refusals(collected, lab, options.root)
        for one in collected:
            for note in one.notes:
                print(f"{shown(one.student)}: {note}")
        missed = sum(one.path is None for one in collected)
        print(f"Collected {len(collected) - missed} submissions in submitted/.")
        last = {one.student for one in collected if one.is_last}
        timeless = write_times(options.worksheet, lab, options.root, people, last) if options.worksheet else []
    for student in timeless:
        print(
            f"{shown(student)}: no row of {options.worksheet} with this number and email says when it was handed in: "
            "look for the row, then bring the roster up to date or write timestamp.txt by hand."
        )
    if missed:
        print(f"{missed} could not be collected: see the lines above.", file=sys.stderr)
    if timeless:
        print(f"{len(timeless)} have no time, so they cannot be late: see the lines above.", file=sys.stderr)
    return 1 if missed or timeless else 0


def grade(options):
    """Grade a class, print notes, and return 1 if a submission could not be graded."""
    from coursegrader import limits
    from coursegrader.grade import grade_class
    from coursegrader.labs import nbgrader_config
    from coursegrader.preprocessors import limits_of
    from coursegrader.submissions import shown

    chosen = dict(options.limit or [])
    allowed = limits_of(nbgrader_config(options.root), chosen)
    if options.no_sandbox:
        print("Warning: without the sandbox, students' code can do all that you may do here.", file=sys.stderr)
    else:
        print(f"Limits: {limits.sentence(allowed)}.")
    if options.scheduler and not options.scheduler.startswith("tls://"):
        said = "whoever can reach that scheduler can do all that you may do: only certificates keep others out"
        print(f"Warning: {said}.", file=sys.stderr)
    done = grade_class(
        known(options),
        options.root,
        workers=options.workers,
        sandbox=not options.no_sandbox,
        again=options.again,
        draw=options.draw,
        limits=chosen,
        scheduler=options.scheduler,
        progress=show_progress,
    )
    for student, sentence in [*done.notes, *done.missed.items()]:
        print(f"{shown(student)}: {sentence}")
    refused = f", {done.refused} of them refused with the reason in their feedback" if done.refused else ""
    same = f"; {done.unchanged} had not changed" if done.unchanged else ""
    overdue = f"; {done.overdue} of the class handed in late" if done.overdue else ""
    silent = f"; {done.silent} on the roster handed in nothing" if done.silent else ""
    print(f"Graded {done.graded} submissions in {done.seconds:.1f} s{refused}{same}{overdue}{silent}.")
    if done.late:
        print(f"In {done.late} of them a limit of time decided about a cell: the same command runs those again.")
    if done.late_for_good:
        print(
            f"In {done.late_for_good} of them a limit of time decided about a cell for the third time: that counts "
            "until the answer, the lab or a limit changes."
        )
    if done.missed:
        print(f"{len(done.missed)} could not be graded: see the lines above.", file=sys.stderr)
    return 1 if done.missed else 0


def regrade(options):
    """Release a changed lab, grade the class again, and print whose points changed."""
    from coursegrader import labs
    from coursegrader.files import one_at_a_time, write_whole
    from coursegrader.grade import gradebook_of
    from coursegrader.regrade import moves, print_moves, snapshot
    from coursegrader.submissions import shown

    config = labs.nbgrader_config(options.root)
    with one_at_a_time(options.root):
        kept = options.root / "_build" / f"before-regrade-{known(options)}.json"
        # Keep the snapshot of a killed regrade, which reported no changes
        if is_first := not kept.exists():
            with gradebook_of(config) as gradebook:
                write_whole(kept, json.dumps(snapshot(options.lab, gradebook, options.root)))
        before = json.loads(kept.read_text("utf-8"))
        try:
            labs.release(options.root, options.lab)
        except GradingError:
            if is_first:
                kept.unlink()
            raise
        try:
            return grade(options)
        finally:
            # Also report the changes of an interrupted grading: the next one starts from them
            with gradebook_of(config) as gradebook:
                after = snapshot(options.lab, gradebook, options.root)
            print_moves(moves(before, after))
            gone = [one for one in after if not (options.root / "submitted" / one / options.lab).is_dir()]
            for student in gone:
                print(f"{shown(student)}: not graded again, since nothing of theirs is in submitted/.")
            kept.unlink()


def report(options):
    """Write the report on a class, and return 1 if some of its data could not be read."""
    from coursegrader.grade import gradebook_of
    from coursegrader.labs import nbgrader_config
    from coursegrader.report import write_report, write_term_report
    from coursegrader.roster import read_roster

    if bool(options.lab) == options.all:
        raise GradingError("name one lab, or type mlcourse report --all for all labs of the term")
    told, config, lab = [], nbgrader_config(options.root), options.lab and known(options)
    with gradebook_of(config) as gradebook:
        people = read_roster(gradebook, options.root)
        if options.all:
            path = write_term_report(options.root, gradebook, config, people)
        else:
            path = write_report(lab, options.root, gradebook, told.append, config, people)
        say_unknown(options, gradebook)
    for sentence in told:
        print(sentence, file=sys.stderr)
    print(f"Written: {path}")
    if lab:
        name_the_ungraded(options)
    return 1 if told else 0


def say_unknown(options, gradebook):
    """Print if ``deadlines.csv`` has dates of people whom nobody knows."""
    from coursegrader import deadlines

    for sentence in deadlines.say_unknown(deadlines.read_deadlines(options.root), gradebook, options.root):
        print(f"{deadlines.FILE}: {sentence}", file=sys.stderr)


def name_the_ungraded(options):
    """Print how many submissions have not been graded since they were handed in."""
    from coursegrader.result_cache import not_graded
    from coursegrader.submissions import shown

    if students := sorted(not_graded(options.lab, options.root)):
        print(
            f"Not graded since they were handed in: {len(students)}, the first is {shown(students[0])}; type "
            f"`mlcourse grade {options.lab}`.",
            file=sys.stderr,
        )


def mark(options):
    """Serve the page on which a written answer of the class is marked, until Ctrl-C."""
    from coursegrader.labs import nbgrader_config
    from coursegrader.mark import ADDRESS, serve

    def started(where, page):
        port = where
        if options.socket:
            port, me = 9000, f"{getpass.getuser()}@{platform.node()}"
            print(f"On your own machine, type: ssh -L {port}:{shlex.quote(str(where))} {me}")
        print(f"Open http://{ADDRESS}:{port}{page}")
        print("Press Ctrl-C here when you are done: what you typed is stored. Close the page, too.", flush=True)

    serve(known(options), options.root, options.answer, nbgrader_config(options.root), options.socket, started)


def feedback(options):
    """Write a page for each student, and return 1 if a page could not be written."""
    from coursegrader import canvas, worksheet
    from coursegrader.collect import refusals
    from coursegrader.deadlines import apply_deadlines
    from coursegrader.feedback import refusal_page, write_pages
    from coursegrader.files import NO_ROOM, one_at_a_time, write_whole, written_down
    from coursegrader.grade import IN_USE, LOCKED, gradebook_of
    from coursegrader.labs import nbgrader_config
    from coursegrader.scores import automatic_points
    from coursegrader.submissions import present, shown

    root, lab = options.root, known(options)
    config = nbgrader_config(root)
    people = people_of(options)
    # Submissions graded after the feedback get a new draw
    with one_at_a_time(root):
        with gradebook_of(config) as gradebook:
            apply_deadlines(gradebook, root, config)
            say_unknown(options, gradebook)
            graded = sorted(present(automatic_points(lab, gradebook), lab, root))
            maximum = gradebook.find_assignment(lab).max_score
        refused = {student: why for student, why in refusals(lab, root).items() if student not in graded}
        if not graded and not refused:
            raise GradingError(f"nothing handed in for {lab} is in the gradebook: run `mlcourse grade {lab}` first")
        result = write_pages(lab, root, graded)
        names = {one.student: one.name for one in people}
        for student, why in refused.items():
            text = refusal_page(lab, root, names.get(student, student), maximum, why)
            write_whole(root / "feedback" / student / lab / f"{lab}.html", text)
    # nbgrader writes no page if it fails on a student, and keeps an old page if there is no notebook
    pages = {student: root / "feedback" / student / lab / f"{lab}.html" for student in [*graded, *refused]}
    notebooks = {student: f"autograded/{student}/{lab}/{lab}.ipynb" for student in graded}
    missed = [one for one in graded if not (pages[one].exists() and (root / notebooks[one]).exists())]
    if not result["success"]:
        if full := [error for error in map(os.strerror, NO_ROOM) if error in result["log"]]:
            raise GradingError(
                f"the feedback cannot be written ({full[0]}): make room on the disk and run this command again"
            )
        if LOCKED in result["log"]:
            raise GradingError(f"the feedback is not written: {IN_USE}")
        if not missed or missed == graded:
            more = written_down(result["log"], f"feedback {lab}", root)
            raise GradingError(f"nbgrader could not write the feedback; {more}")
    for student in missed:
        print(f"{shown(student)}: no feedback from {shown(notebooks[student])}; type `mlcourse grade {lab}`.")
    print(f"Written: feedback/STUDENT/{lab}/{lab}.html")
    if options.archive:
        written = {student: page for student, page in pages.items() if student not in missed}
        lms = options.style.capitalize()
        if options.style == "canvas":
            absent = canvas.write_archive(options.archive, lab, written, root, people)
        else:
            absent = worksheet.write_archive(options.archive, lab, written, people)
        for student in absent:
            print(f"{shown(student)}: not in the archive, since nothing of theirs was collected from {lms}.")
        print(f"Written: {options.archive}")
    name_the_ungraded(options)
    if missed:
        more = written_down(result["log"], f"feedback {lab}", root)
        print(f"{len(missed)} could not be written: see the lines above; {more}.", file=sys.stderr)
    return 1 if missed else 0


def export(options):
    """Write the table of points."""
    from coursegrader.export import export
    from coursegrader.grade import gradebook_of
    from coursegrader.labs import nbgrader_config
    from coursegrader.roster import read_roster
    from coursegrader.submissions import shown
    from coursegrader.worksheet import fill_worksheet

    config = nbgrader_config(options.root)
    with gradebook_of(config) as gradebook:
        people = read_roster(gradebook, options.root)
        known = {"unfinished": options.unfinished, "config": config, "tell": print}
        if options.worksheet:
            if options.style != "moodle" or len(options.labs) != 1:
                raise GradingError("a worksheet is of one lab in Moodle: type mlcourse export LAB --style moodle ...")
            to, (lab,) = options.root / options.to, options.labs
            left = fill_worksheet(options.worksheet, to, lab, options.root, gradebook, people, **known)
            if left:
                names = ", ".join(map(shown, left))
                print(f"Not in {options.worksheet}, or locked there: {names}. Enter their grades by hand.")
        else:
            export(
                options.root,
                gradebook,
                options.to,
                options.style,
                labs=options.labs or None,
                identifier=options.identifier,
                people=people,
                **known,
            )
        say_unknown(options, gradebook)
    print(f"Written: {options.to}")


def audit(options):
    """Try right and wrong answers and mutants on a lab's tests, and return 1 if something is not proved."""
    from coursegrader.audit import run_audit

    return run_audit(known(options), options.root)


def installation():
    """Return a sentence on the grading for ``mlcourse doctor``."""
    from coursegrader import limits, worker

    lack = worker.missing()
    return (
        f"no grading here, which only instructors need: {lack}" if lack else f"grading with {limits.sentence(Limits())}"
    )


def known(options):
    """Return the lab of the command, or raise an error that lists the labs."""
    names = sorted(path.stem for path in (options.root / "solutions").glob("lab-*.md"))
    if options.lab not in names:
        raise GradingError(f"there is no lab {options.lab}: the labs are {', '.join(names) or 'none'}")
    return options.lab


def show_progress(done, of):
    """Draw a progress bar, on a terminal only."""
    if sys.stderr.isatty():
        bar = "=" * (40 * done // of)
        print(f"\r[{bar:<40}] {done} of {of}", end="\n" if done == of else "", file=sys.stderr, flush=True)
