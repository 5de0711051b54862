"""Search: what the glossary says of a term comes first.

Sphinx knows the terms, but hides them from its search. The search page gets them all, with their definitions, and
``book/_static/search.js`` puts those that a reader asks for before the other results. Search engines show the first
sentences of a page.
"""

import html
import json
import re
import textwrap

from docutils import nodes
from sphinx import addnodes

DESCRIPTION_CHARACTERS = 155


def terms_of(env) -> list[tuple[str, str, str, str]]:
    """Return page, anchor, name and definition of every term of the glossary.

    Parameters
    ----------
    env : sphinx.environment.BuildEnvironment
        The environment, after all pages have been read.

    Returns
    -------
    list of tuples of four str
        Names and definitions are plain text.
    """
    pages = sorted({page for _, _, kind, page, *_ in env.get_domain("std").get_objects() if kind == "term"})
    return [
        (page, term["ids"][0], term.astext(), _plain(entry[-1]))
        for page in pages
        for glossary in env.get_doctree(page).findall(addnodes.glossary)
        for entry in glossary.findall(nodes.definition_list_item)
        for term in entry.findall(nodes.term)
    ]


def _plain(definition):
    """Return a definition as plain text, with formulas that can be read aloud."""
    text = definition.deepcopy()
    for formula in list(text.findall(nodes.math)):
        latex = re.sub(r"\\math\w+{(\w+)}", r"\1", formula.astext())
        formula.replace_self(nodes.Text(re.sub(r"\\(?=\w)", "", latex).replace("{", "(").replace("}", ")")))
    return " ".join(text.astext().split())


def _add_terms(app, page, template, context, doctree):
    if page == "search":
        terms = [[html.escape(part) for part in term] for term in terms_of(app.env)]
        # In the page and not in a file, so that it is found where the site is opened from a disk
        app.add_js_file(None, body=f"const GLOSSARY = {json.dumps(terms)};".replace("</", r"<\/"))
        app.add_js_file("search.js", loading_method="defer")


def _describe(app, page, template, context, doctree):
    paragraphs = doctree.findall(nodes.paragraph) if doctree else ()
    if first := next((one for one in paragraphs if isinstance(one.parent, nodes.section)), None):
        text = textwrap.shorten(_plain(first), DESCRIPTION_CHARACTERS, placeholder=" …")
        context["metatags"] += f'\n<meta name="description" content="{html.escape(text)}">'


def connect(app):
    """Let Sphinx give the terms to its search page, and a description to each of the others."""
    app.connect("html-page-context", _add_terms)
    app.connect("html-page-context", _describe)
