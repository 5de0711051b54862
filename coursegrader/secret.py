"""The secret of a course, on which the data of hidden tests depend, and the draws that are made with it.

A draw is a number for each lab. All submissions that are graded before the feedback get the same data. Writing feedback
starts the next draw: later submissions get other data than those that the feedback mentions. A submission that has not
changed keeps its draw, so grading it again changes no marks.
"""

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from pathlib import Path

from traitlets.config import Config

from coursegrader import GradingError
from coursegrader.files import to_disk, write_whole

FILE = "secret.json"
WORDS = 4


class Secret:
    """The secret in a file, which is created when it is first needed.

    Parameters
    ----------
    path : pathlib.Path
        The file. Anyone who reads it can predict the data of every hidden test.

    Raises
    ------
    GradingError
        If the file cannot be created, or exists and cannot be read.
    """

    def __init__(self, path: Path):
        self.path = path
        if not path.exists():
            self._make()
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            self.secret, self.draws = bytes.fromhex(held["secret"]), dict(held["draws"])
            sound = len(self.secret) >= 16 and all(type(draw) is int and draw > 0 for draw in self.draws.values())
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise GradingError(
                f"the secret of the course cannot be read from {path}: bring it back from a copy, or delete the file; "
                "a new one then gives the hidden tests other data"
            )

    def draw(self, lab: str) -> int:
        """Return the draw of a new submission: 1 until feedback is written."""
        return self.draws.get(lab, 1)

    def words(self, lab: str, draw: int) -> tuple[int, ...]:
        """Return four 32-bit integers that nobody can predict without the secret.

        They are a keyed hash (BLAKE2b, RFC 7693) of the lab's name and the draw.
        """
        digest = hashlib.blake2b(f"{lab} {draw}".encode(), key=self.secret[:64], digest_size=4 * WORDS).digest()
        return tuple(int.from_bytes(digest[at : at + 4]) for at in range(0, len(digest), 4))

    def shown(self, lab: str, draw: int) -> None:
        """Start the next draw of a lab after feedback on this one."""
        if draw >= self.draw(lab):
            self.draws[lab] = draw + 1
            write_whole(self.path, json.dumps({"secret": self.secret.hex(), "draws": self.draws}))

    def _make(self):
        """Write a new secret that only its owner can read, unless another process has just done so."""
        try:
            descriptor, part = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump({"secret": secrets.token_hex(32), "draws": {}}, file)
                to_disk(Path(part))
                with contextlib.suppress(FileExistsError):
                    os.link(part, self.path)
            finally:
                os.unlink(part)
        except OSError as error:
            raise GradingError(f"the secret of the course cannot be written to {self.path}: {error.strerror}") from None


def secret_of(config: Config) -> Secret:
    """Return the secret of the course that a configuration of nbgrader belongs to, a new one if there is none."""
    return Secret(secret_file(config))


def secret_file(config: Config) -> Path:
    """Return the file of the secret: ``c.GradeInSandbox.secret_file``, relative to the folder of the course."""
    root = Path(config.CourseDirectory.get("root", "."))
    return root / config.GradeInSandbox.get("secret_file", FILE)
