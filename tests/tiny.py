"""A course of one page, which builds in seconds."""

import pytest
import yaml

from coursebook import BookError
from coursebook import build as book
from paths import ROOT

PAGE = """---
jupytext: {{text_representation: {{extension: .md, format_name: myst}}}}
kernelspec: {{name: python3, display_name: Python 3, language: python}}
---
# A page

{text}

```{{code-cell}} ipython3
{code}
```
"""


class TinyCourse:
    """A course in `root`, with the project's own configuration; `executions()` counts the runs of its cell."""

    def __init__(self, root):
        self.root, self.runs = root, root / "runs"
        config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
        del config["logo"], config["html"]["favicon"]
        config["sphinx"]["config"]["html_static_path"] = []
        config["sphinx"]["config"]["html_css_files"] = []
        for folder in ("book", "mlcourse", "data"):
            (root / folder).mkdir()
        (root / "_config.yml").write_text(yaml.safe_dump(config))
        (root / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
        (root / "references.bib").write_text("")
        (root / "requirements.lock").write_text("numpy==2\n")
        (root / "mlcourse" / "helper.py").write_text("x = 1\n")
        (root / "data" / "table.csv").write_text("x\n1\n")

    def write(self, text="Text.", code="1 + 1"):
        count = f"open({str(self.runs)!r}, 'a').write('x');"
        (self.root / "book" / "index.md").write_text(PAGE.format(text=text, code=f"{count}\n{code}"))

    def executions(self):
        return len(self.runs.read_text()) if self.runs.exists() else 0

    def build(self):
        return book.build(self.root)

    def failure(self):
        with pytest.raises(BookError) as error:
            self.build()
        return str(error.value)
