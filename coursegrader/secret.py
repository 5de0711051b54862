"""The secret of a course, on which the data of hidden tests depend, and the draws that are made with it.

A draw is a number for each lab. All submissions that are graded before a class gets its feedback meet the same data. As
soon as feedback was written, the next draw begins: whoever hands in again meets other data than those that the feedback
speaks of. A submission that has not changed stays with its draw, so that grading it again changes no marks.
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
from coursegrader.files import write_whole

FILE = "secret.json"
WORDS = 4


class Secret:
    """The secret in a file, which is made when it is first needed.

    Parameters
    ----------
    path : pathlib.Path
        The file. Whoever reads it can foresee the data of every hidden test.

    Raises
    ------
    GradingError
        If the file cannot be made, or is there and cannot be read.
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
        """Return the number of the draw that a new submission meets: 1 until feedback was written."""
        return self.draws.get(lab, 1)

    def words(self, lab: str, draw: int) -> tuple[int, ...]:
        """Return four whole numbers, each of 32 bits, that nobody can foresee without the secret.

        They are a keyed hash (BLAKE2b, RFC 7693) of the lab's name and the draw.
        """
        digest = hashlib.blake2b(f"{lab} {draw}".encode(), key=self.secret[:64], digest_size=4 * WORDS).digest()
        return tuple(int.from_bytes(digest[at : at + 4]) for at in range(0, len(digest), 4))

    def shown(self, lab: str, draw: int) -> None:
        """Let the next draw of a lab begin, since feedback on this one was written."""
        if draw >= self.draw(lab):
            self.draws[lab] = draw + 1
            write_whole(self.path, json.dumps({"secret": self.secret.hex(), "draws": self.draws}))

    def _make(self):
        """Write a new secret, for the eyes of its owner, unless another process has just done so."""
        try:
            descriptor, part = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump({"secret": secrets.token_hex(32), "draws": {}}, file)
                with contextlib.suppress(FileExistsError):
                    os.link(part, self.path)
            finally:
                os.unlink(part)
        except OSError as error:
            raise GradingError(f"the secret of the course cannot be written to {self.path}: {error.strerror}") from None


def secret_of(config: Config) -> Secret:
    """Return the secret of the course that a configuration of nbgrader belongs to.

    Its file is ``c.GradeInSandbox.secret_file``, in the folder of the course if that is no absolute path.
    """
    root = Path(config.CourseDirectory.get("root", "."))
    return Secret(root / config.GradeInSandbox.get("secret_file", FILE))
