"""Repeat the questions of a chapter in a later one: a Sphinx extension, named in ``_config.yml``.

``{recall}`` with the names of quizzes shows them as their own page does, with a link to their part of the chapter. A
page that recalls a quiz is written again when the quiz, or the part that asks it, changes.
"""

import re
from dataclasses import dataclass

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


@dataclass
class Source:
    """A quiz on its own page: the page, the identifier and title of its section, and its HTML."""

    page: str
    section: str
    title: str
    html: str


class recalled(nodes.Element):  # noqa: N801 - docutils names the classes of nodes like this
    """A placeholder for a recalled quiz, until all pages are read."""


class Recall(SphinxDirective):
    """A box with questions of earlier chapters; its argument names their quizzes."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Return an empty box that is filled in when all pages are read."""
        names = self.arguments[0].split()
        _recalls(self.env).setdefault(self.env.docname, []).extend(names)
        box = nodes.admonition("", nodes.title("", "Do you remember?"), classes=["recall"])
        for name in names:
            place = recalled(name=name)
            self.set_source_info(place)
            box += place
        return [box]


def _quizzes(env):
    """Return the quizzes of all pages by name."""
    if not hasattr(env, "mlcourse_quizzes"):
        env.mlcourse_quizzes = {}
    return env.mlcourse_quizzes


def _recalls(env):
    """Return the names of the recalled quizzes by page."""
    if not hasattr(env, "mlcourse_recalls"):
        env.mlcourse_recalls = {}
    return env.mlcourse_recalls


def _collect(app, doctree):
    page, quizzes = app.env.docname, _quizzes(app.env)
    for output in doctree.findall(nodes.raw):
        found = re.match(r'<fieldset class="quiz" id="quiz-([\w-]+)"', output.astext().lstrip())
        if not found:
            continue
        if found[1] in quizzes:
            logger.warning("the quiz %s is in %s already", found[1], quizzes[found[1]].page, location=output)
        sections, node = [], output
        while node := node.parent:
            sections += [node] if isinstance(node, nodes.section) else []
        part = sections[-2:][0]  # the last one is the page
        quizzes[found[1]] = Source(page, part["ids"][0], part.next_node(nodes.title).astext(), output.astext())


def _remember(_, env, *__):
    env.mlcourse_quizzes_before = dict(_quizzes(env))
    return []


def _purge(_, env, page):
    for name in [name for name, source in _quizzes(env).items() if source.page == page]:
        del env.mlcourse_quizzes[name]
    _recalls(env).pop(page, None)


def _merge(_, env, pages, other):
    _quizzes(env).update({name: source for name, source in _quizzes(other).items() if source.page in pages})
    _recalls(env).update({page: names for page, names in _recalls(other).items() if page in pages})


def _pages_to_write_again(_, env):
    now, before = _quizzes(env), vars(env).pop("mlcourse_quizzes_before")
    changed = {name for names in _recalls(env).values() for name in names if now.get(name) != before.get(name)}
    return [page for page, names in _recalls(env).items() if changed & {*names}]


def _fill(app, doctree, page):
    for place in list(doctree.findall(recalled)):
        source = _quizzes(app.env).get(place["name"])
        if source is None:
            logger.warning("no page has a quiz that is called %s", place["name"], location=place)
            place.parent.remove(place)
            continue
        html = source.html.replace(f'"quiz-{place["name"]}"', f'"recall-{place["name"]}"')
        target = f"{app.builder.get_relative_uri(page, source.page)}#{source.section}"
        link = nodes.reference("", source.title, internal=True, refuri=target)
        origin = nodes.paragraph("", "Asked in ", link, nodes.Text("."), classes=["recall-origin"])
        place.replace_self([nodes.raw("", html, format="html"), origin])


def setup(app):
    """Register the directive, and the functions that copy the quizzes."""
    app.add_node(recalled)
    app.add_directive("recall", Recall)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
    app.connect("env-get-outdated", _remember)
    app.connect("doctree-read", _collect)
    app.connect("env-updated", _pages_to_write_again)
    app.connect("doctree-resolved", _fill)
    return {"version": "1", "env_version": 2, "parallel_read_safe": True, "parallel_write_safe": True}
