"""The people of a roster, and whose of an LMS's files are theirs."""

import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

NOTHING = "handed in nothing"
BY_NAME = "Found by the name alone: look whose it is if students may change their names."
# Moodle replaces `_` in names by a space before it adds its number
NUMBERED = re.compile(r"(?P<name>[^_]+)_(?P<number>\d{1,20})")


@dataclass
class Person:
    """A person of the roster; texts that are not known are empty.

    `student` is the identifier in the gradebook, `lms_user_id` Canvas's number of the person. `numbers` holds Moodle's
    number of the participant by lab, since Moodle has another number in each assignment.
    """

    student: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""
    lms_user_id: str = ""
    username: str = ""
    id_number: str = ""
    group: str = ""
    numbers: dict[str, str] = field(default_factory=dict)

    @property
    def name(self):
        """The full name, or the identifier if the name is not known."""
        return f"{self.first_name} {self.last_name}".strip() or self.student


@dataclass(frozen=True)
class Match:
    """Whose a student's files are: the person, if one is found, Moodle's number, and a sentence on why, or why not."""

    person: Person | None = None
    number: str | None = None
    note: str | None = None


def match(kinds: dict[str, str | None], identifiers: dict[str, str], people: list[Person], lab: str, root: Path):
    """Find the person of the roster to whom the files of each name belong.

    Students choose their names, so a name alone never takes the place of another. A number of Moodle's that the roster
    has for the lab decides, if the name is that of its person. Without one, a name decides only if one number and one
    person have it, the number has no other name, and nothing was collected for that person or under that name; a note
    says so.

    Parameters
    ----------
    kinds : dict of str to str or None
        By name in the archive: "moodle" or "canvas" if the LMS made the name, else None.
    identifiers : dict of str to str
        By name, the student's identifier if no person is found.
    people : list of Person
    lab : str
    root : pathlib.Path
        The course folder, with ``submitted/``.

    Returns
    -------
    dict of str to Match
    """
    found = {}
    numbered = {name: NUMBERED.fullmatch(name) for name, kind in kinds.items() if kind == "moodle"}
    known = {one.numbers[lab]: one for one in people if lab in one.numbers}
    strangers = [one for one in numbered.values() if one and one["number"] not in known]
    bearers = Counter(folded(one["name"]) for one in strangers)
    before = {path.parent.name for path in (root / "submitted").glob(f"*/{lab}")}
    shared = Counter(one["number"] for one in strangers)
    of_canvas = {one.lms_user_id: one for one in people if one.lms_user_id}
    named = defaultdict(list)
    for one in people:
        for name in names_of(one):
            named[name].append(one)
    students = {one.student: one for one in people}
    for name, kind in kinds.items():
        if kind == "canvas":
            person = of_canvas.get(name.rpartition("_")[2])
            found[name] = Match(
                person, note=None if person else "Not on the roster: nobody there has this ID of Canvas."
            )
        elif kind == "moodle" and not numbered[name]:  # the student's name has the mark of Moodle
            found[name] = Match(note="Left apart: it is named as in Moodle, but without Moodle's number.")
        elif not (parts := numbered.get(name)):
            person = students.get(identifiers.get(name))
            found[name] = Match(person, note=None if person else "Not on the roster.")
        elif parts["number"] in known:
            found[name] = _by_number(parts, known[parts["number"]], bearers)
        elif shared[parts["number"]] > 1:
            found[name] = Match(
                note=f"Left apart: files of several names have Moodle's number {parts['number']}; write it into the "
                f"column {lab} of roster.csv, for the person whose it is, and collect again."
            )
        else:
            others = before - {identifiers.get(name)}
            found[name] = _by_name(parts, named[folded(parts["name"])], bearers, others, lab, root)
    for name, one in found.items():
        if one.person and (note := _collected_before(identifiers.get(name), one.person, lab, root)):
            found[name] = Match(note=note)
    claims = Counter(one.person.student for one in found.values() if one.person)
    for name, one in found.items():
        if one.person and claims[one.person.student] > 1 and identifiers.get(name) != one.person.student:
            found[name] = Match(note=f"Left apart: other files, too, seem to be of {one.person.student}; look at both.")
    return found


def folded(name: str) -> str:
    """Return the letters and digits of a name, without case and accents; the signs of vowels in Hindi are letters."""
    return "".join(
        sign
        for sign in unicodedata.normalize("NFKD", name).casefold()
        if sign.isalnum() or (unicodedata.category(sign)[0] == "M" and not unicodedata.combining(sign))
    )


def names_of(person: Person) -> set[str]:
    """Return a person's name as `folded`, in both orders; nothing if it is not known."""
    return {folded(person.first_name + person.last_name), folded(person.last_name + person.first_name)} - {""}


def _by_number(parts, person, bearers):
    number, names = parts["number"], names_of(person)
    if names and folded(parts["name"]) not in names:
        return Match(
            note=f"Left apart: Moodle's number {number} is that of {person.student} in roster.csv, who has another "
            "name there; see whose it is. Correct the number, or bring the roster up to date if the name has changed."
        )
    if any(bearers[name] for name in names):
        return Match(person, number, f"Others, too, handed in under the name of {person.student}: look at all of them.")
    return Match(person, number)


def _by_name(parts, alike, bearers, others, lab, root):
    decide = f"write Moodle's number of the right one into the column {lab} of roster.csv and collect again"
    if not alike:
        return Match(note="Not on the roster: nobody there has this name.")
    if len(alike) > 1:
        names = " and ".join(one.student for one in alike[:2])
        return Match(note=f"Left apart: {names} of the roster have this name; {decide}.")
    (person,) = alike
    if number := person.numbers.get(lab):
        return Match(
            note=f"Left apart: {person.student} of the roster has this name, but Moodle's number {number}; look at "
            f"this file and at that of {person.student}. If this one is right, {decide}."
        )
    earlier = (NUMBERED.fullmatch(one) for one in others)
    if sum(bearers[name] for name in names_of(person)) > 1 or any(
        folded(one["name"]) in names_of(person) for one in earlier if one
    ):
        return Match(note=f"Left apart: others, too, handed in under the name of {person.student}; {decide}.")
    if (root / "submitted" / person.student / lab).exists():
        return Match(
            note=f"Left apart: something else was collected for {person.student}, who has this name; {decide}."
        )
    return Match(person, parts["number"], BY_NAME)


def _collected_before(identifier, person, lab, root):
    before = f"submitted/{identifier}/{lab}"
    if identifier and identifier != person.student and (root / before).exists():
        return (
            f"Left apart: it is of {person.student} of the roster, but was collected as {identifier} before; to change "
            f"that, delete {before} and collect again."
        )
    return None
