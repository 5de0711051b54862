"""Where the repository is, and what it holds."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LABS = sorted(path.stem for path in (ROOT / "solutions").glob("lab-*.md"))
# The pages of the book that are notebooks
CHAPTERS = [path.stem for path in sorted((ROOT / "book").glob("*.md")) if "\nkernelspec:" in path.read_text("utf-8")]
