"""The root of the repository, and the names of its chapters and labs."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LABS = sorted(path.stem for path in (ROOT / "solutions").glob("lab-*.md"))
COURSES = [tuple(LABS[::2]), tuple(LABS[1::2])]  # the labs of each course that test_labs grades
PARTS = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))["parts"]
PAGES = ["book/index", *(page["file"] for part in PARTS for page in part["chapters"])]
CHAPTERS = [Path(page["file"]).stem for part in PARTS if part.get("numbered") for page in part["chapters"]]
