"""Lists of every figure, every exercise and every box of "Where people go wrong".

A page says ``{every} figure``, ``{every} exercise`` or ``{every} pitfall`` where the table shall stand; with the option
``:chapter:`` it lists those of its own chapter. The table is made from what Sphinx has read of all pages, so a figure
is listed however it was made.
"""

import posixpath

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx_exercise.nodes import exercise_enumerable_node, exercise_subtitle

COLUMNS = {"figure": ("Figure", "What it shows"), "exercise": ("Exercise", "Title"), "pitfall": ("What goes wrong",)}


class Every(nodes.General, nodes.Element):
    """The place of a table, until all pages have been read."""


class EveryDirective(SphinxDirective):
    """``{every}`` with the kind of what shall be listed."""

    required_arguments = 1
    option_spec = {"chapter": directives.flag}  # noqa: RUF012 - as docutils declares it

    def run(self):
        """Return a place that is filled in when all pages are read."""
        if self.arguments[0] not in COLUMNS:
            raise self.error(f"every {self.arguments[0]}: there are lists of {', '.join(COLUMNS)} only")
        self.env.metadata[self.env.docname]["every"] = True
        return [Every(kind=self.arguments[0], chapter="chapter" in self.options)]


class NamePitfalls(SphinxTransform):
    """Give each box of "Where people go wrong" an address, made from its title."""

    default_priority = 500

    def apply(self):
        """Give an address to each box of the page that has none."""
        for box in self.document.findall(_is_pitfall):
            if not box["ids"]:
                box["ids"] = [f"pitfall-{nodes.make_id(box[0].astext())}"]


class FillInLists(SphinxPostTransform):
    """Put the tables where they belong, before references are resolved, since captions hold some."""

    default_priority = 5

    def run(self):
        """Fill in the lists of the page."""
        for place in list(self.document.findall(Every)):
            kind, pages = place["kind"], list(self.env.collect_relations())
            if place["chapter"]:
                folder = posixpath.dirname(self.env.docname)
                pages = [page for page in pages if posixpath.dirname(page) == folder]
            table = _table(COLUMNS[kind], [row for page in pages for row in self.rows(kind, page)])
            place.replace_self(table)

    def rows(self, kind, page):
        """Return the rows of a list that come from one page, below a row with its title."""
        found = [_row(cells) for cells in self.find(kind, page)]
        title = self.link(page, "", nodes.strong("", self.env.titles[page].astext()))
        return [nodes.row("", nodes.entry("", title, morecols=len(COLUMNS[kind]) - 1)), *found] if found else []

    def find(self, kind, page):
        """Yield the cells of each row."""
        doctree = self.env.get_doctree(page)
        if kind == "pitfall":
            for box in doctree.findall(_is_pitfall):
                yield [self.link(page, box["ids"][0], *_parts(box[0]))]
            return
        if kind == "exercise":
            for exercise in doctree.findall(exercise_enumerable_node):
                number = ".".join(map(str, self.env.toc_fignumbers[page]["exercise"][exercise["ids"][0]]))
                title = next(exercise.findall(exercise_subtitle))
                words = nodes.paragraph("", "", *_parts(title))
                yield self.link(page, exercise["ids"][0], nodes.Text(f"Exercise {number}")), words
            return
        numbers = self.env.toc_fignumbers.get(page, {}).get("figure", {})
        for figure in doctree.findall(nodes.figure):
            name = next((one for one in figure["ids"] if one in numbers), None)
            caption = next(figure.findall(nodes.caption), None)
            if name and caption is not None:
                number = self.config.numfig_format["figure"] % ".".join(map(str, numbers[name]))
                words = nodes.paragraph("", "", *_parts(caption))
                yield self.link(page, name, nodes.Text(number)), words

    def link(self, page, anchor, *parts):
        """Return a paragraph that links to a place of another page."""
        address = self.app.builder.get_relative_uri(self.env.docname, page) + (anchor and f"#{anchor}")
        words = nodes.inline("", "", *parts)
        return nodes.paragraph("", "", nodes.reference("", "", words, internal=True, refuri=address))


def _is_pitfall(node):
    return isinstance(node, nodes.Admonition) and "pitfall" in node.get("classes", ())


def _parts(text):
    """Return copies of the parts of a text, without what would make a second target or a link within a link."""
    copy = text.deepcopy()
    for one in list(copy.findall(addnodes.index)):
        one.parent.remove(one)
    return copy.children


def _table(columns, rows):
    group = nodes.tgroup(cols=len(columns))
    group += [nodes.colspec(colwidth=1) for _ in columns]
    group += nodes.thead("", _row([nodes.paragraph("", column) for column in columns]))
    group += nodes.tbody("", *rows)
    return nodes.table("", group, classes=["every"])


def _row(cells):
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def connect(app):
    """Let Sphinx fill in the lists, anew in every build, since they depend on all pages."""
    app.add_node(Every)
    app.add_directive("every", EveryDirective)
    app.add_transform(NamePitfalls)
    app.add_post_transform(FillInLists)
    app.connect("env-get-outdated", lambda _, env, *__: [page for page, own in env.metadata.items() if "every" in own])
