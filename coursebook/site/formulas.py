"""Formulas, which KaTeX sets when the site is built, so that a page needs no script for them.

Sphinx knows the formulas of the text. The formulas of questions stand in the HTML that their cells give.
"""

import html
import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinxcontrib.katex import KaTeXServer, render_latex

# Of a question, as `mlcourse.quiz` writes it
CLOSING = r"[.,;:!?)\]]+"
# A short word that touches a formula, such as a unit, or just the bracket or the full stop of a longer one
OPENING, TOUCHING = r"(?<!\S)\S{1,12}$|[(\[]$", rf"\S{{1,12}}(?=\s|$)|{CLOSING}"
IN_HTML = rf'([(\[]?)<span class="math inline">\\\((.*?)\\\)</span>({CLOSING})?'
# A longer formula must be able to break on a phone
SHORT = 30
SECONDS_TO_START = 60


class KeepTogether(SphinxTransform):
    """Keep a short formula on one line with what touches it: a unit, a bracket before it, the full stop after it."""

    default_priority = 700

    def apply(self):
        """Put each such formula of the page into a box with what belongs to it."""
        for formula in list(self.document.findall(nodes.math)):
            line, place = formula.parent, formula.parent.index(formula)
            before = line[place - 1] if place else None
            after = line[place + 1] if place + 1 < len(line) else None
            start = re.search(OPENING, before) if isinstance(before, nodes.Text) else None
            end = re.match(TOUCHING, after) if isinstance(after, nodes.Text) else None
            if (start or end) and len(formula.astext()) <= SHORT:
                parts = [formula.deepcopy()]
                if start:
                    line[place - 1] = nodes.Text(before[: start.start()])
                    parts.insert(0, nodes.Text(start[0]))
                if end:
                    line[place + 1] = nodes.Text(after[end.end() :])
                    parts.append(nodes.Text(end[0]))
                formula.replace_self(nodes.inline("", "", *parts, classes=["together"]))
            elif isinstance(after, nodes.Text) and (closing := re.match(CLOSING, after)):
                # It may break, but not before what closes it
                whole = rf"{formula.astext()}\text{{{closing[0]}}}"
                line[place + 1] = nodes.Text(after[closing.end() :])
                formula.replace_self(nodes.math(whole, whole, **formula.attributes))


def _set_in_html(app, doctree, page):
    for output in doctree.findall(nodes.raw):
        if 'class="math inline"' in output.astext():
            output.replace_self(nodes.raw("", re.sub(IN_HTML, _set_one, output.astext()), format="html"))


def _set_one(found):
    before, formula, after = found[1], html.unescape(found[2]), found[3] or ""
    text = f'{before}<span class="math inline">{render_latex(formula)}</span>{after}'
    return f'<span class="together">{text}</span>' if after and len(formula) <= SHORT else text


def _start(app):
    """Start KaTeX: its own way fails if the file of the socket is there before anybody listens."""
    if os.name == "nt":
        KaTeXServer.get()
        return
    folder, started = Path(tempfile.mkdtemp()), time.monotonic()
    command = KaTeXServer.build_command(socket=folder / "socket")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
    connection = socket.socket(socket.AF_UNIX)
    while True:
        try:
            connection.connect(str(folder / "socket"))
            break
        except (FileNotFoundError, ConnectionRefusedError):
            if process.poll() is not None or time.monotonic() > started + SECONDS_TO_START:
                process.kill()
                raise ExtensionError(f"Node, which sets the formulas, does not start: {' '.join(command)}") from None
            time.sleep(0.01)
    KaTeXServer.katex_server = KaTeXServer(folder, process, connection)


def _stop(app, error):
    """Stop KaTeX, which else runs on, since `coursebook.build` ends without the functions for the exit."""
    KaTeXServer.katex_server.terminate()
    KaTeXServer.katex_server = None


def connect(app):
    """Let Sphinx set the formulas of questions, after `coursebook.quiz_recall` has copied them."""
    app.connect("builder-inited", _start, priority=600)
    app.connect("build-finished", _stop)
    app.add_transform(KeepTogether)
    app.connect("doctree-resolved", _set_in_html, priority=600)
