"""The sentences of the course: what a source says in words, without its code, formulas and addresses."""

import ast
import io
import re
import textwrap
import tokenize

CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.M | re.S)
# What opens a cell: its options as YAML between lines of dashes, or one a line
OPTIONS = re.compile(r"\A---\n.*?^---\n|\A(?::[\w-]+:[^\n]*\n)*", re.M | re.S)
WITHIN_PARAGRAPH = r"(?:[^{0}\n]|\n(?!\s*\n))*"
NO_PROSE = re.compile(
    r"\A---\n.*?^---$"  # the front matter of a page
    r"|<!--.*?-->|<style>.*?</style>|\{[%#].*?[%#]\}|<[^>\n]*>"
    r"|^```(?:\w+|\{math\}|\{bibliography\})\n.*?^```$|\$\$.*?\$\$"
    rf"|(?:\{{[\w:]+\}})?`{WITHIN_PARAGRAPH.format('`')}`|\${WITHIN_PARAGRAPH.format('$')}\$"
    r"|\]\([^)]*\)|^\([\w-]+\)=$|^:[\w-]+:.*?$|^(?::::*|```+)(?:\{[\w-]+\})?",  # targets, labels, options, directives
    re.M | re.S,
)
# In a docstring: names of things, and the lines that give parameters their types
NO_PROSE_IN_TEXTS = re.compile(r"``[^`]*``|`[^`]*`|^ *\w[\w, *]* : .*?$", re.M)
# In a line: placeholders, addresses, paths and names with a dot
NO_WORDS = re.compile(r"\{[^}]*\}|https?://\S+|[\w.*-]*[/\\#][\w./\\#*-]+|\w+(?:\.\w+)+")
WORD = re.compile(r"(?<![\w@#=])[^\W\d_]+(?:['’][^\W\d_]+)*(?![\w(=@\[])")


def words_of(path):
    """Yield each word of a source and the number of its line.

    Of Markdown that is the text, with captions, alt texts and what the cells say; of Python the comments, the
    docstrings and the messages. Left out are code, formulas, addresses, abbreviations and names such as `KFold`.
    """
    text = path.read_text("utf-8").replace("&shy;", "")
    prose = of_python(text) if path.suffix == ".py" else of_markdown(text)
    for number, line in enumerate(prose.splitlines(), start=1):
        for word in WORD.findall(NO_WORDS.sub(" ", line)):
            if word[1:].islower():
                yield word.replace("’", "'").removesuffix("'s"), number


def of_markdown(text):
    text = CELL.sub(lambda cell: f"\n{of_cell(cell[1])}", text)
    text = re.sub(r"\{term\}`([^`<]*)(?:<[^`]*>)?`", r"\1", text)
    return NO_PROSE.sub(empty_lines, text)


def of_cell(text):
    """Return the caption and the alt text of a cell, and what its code says."""
    end = OPTIONS.match(text).end()
    options = re.sub(r"^ *(?:name|tags):.*?$|^:.*?$|^ *\w+: ?|^---$", "", text[:end], flags=re.M)
    return options + of_python(text[end:])


def of_python(text):
    """Return the comments of Python code, and its texts of four words and more, each on its line."""
    code = textwrap.dedent(text)
    said = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    ]
    said += texts(ast.parse(code))
    lines = [""] * (code.count("\n") + 1)
    for first, value in said:
        if " " in value and len(re.findall(r"[^\W\d_]{2,}", value)) >= 4:
            for number, line in enumerate(NO_PROSE_IN_TEXTS.sub(empty_lines, value).splitlines(), start=first - 1):
                lines[min(number, len(lines) - 1)] += f" {line}"
    return "\n".join(lines)


def texts(node):
    """Yield each text of a piece of code with the number of its line; values in an f-string count as a number."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
    elif not (isinstance(node, ast.Attribute) and node.attr == "split"):  # a list of names
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def empty_lines(match):
    return " " + "\n" * match[0].count("\n")
