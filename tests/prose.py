"""Extract the prose of a source, without its code, formulas and addresses."""

import ast
import io
import re
import textwrap
import tokenize

CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.M | re.S)
# The options at the start of a cell: YAML between lines of dashes, or one option per line
OPTIONS = re.compile(r"\A---\n.*?^---\n|\A(?::[\w-]+:[^\n]*\n)*", re.M | re.S)
WITHIN_PARAGRAPH = r"(?:[^{0}\n]|\n(?!\s*\n))*"
NO_PROSE = re.compile(
    r"\A---\n.*?^---$"  # the front matter of a page
    r"|<!--.*?-->|<style\b.*?</style>|<script\b.*?</script>|\{[%#].*?[%#]\}|<[^>\n]*>"
    r"|^```(?:\w+|\{math\}|\{bibliography\})\n.*?^```$|\$\$.*?\$\$"
    rf"|(?:\{{[\w:]+\}})?`{WITHIN_PARAGRAPH.format('`')}`|\${WITHIN_PARAGRAPH.format('$')}\$"
    r"|\]\([^)]*\)|^\([\w-]+\)=$|^:[\w-]+:.*?$|^(?::::*|```+)(?:\{[\w-]+\})?",  # targets, labels, options, directives
    re.M | re.S,
)
# In a docstring: code in backquotes, and the lines with the types of parameters
NO_PROSE_IN_TEXTS = re.compile(r"``[^`]*``|`[^`]*`|^ *\w[\w, *]* : .*?$", re.M)
# In a line: placeholders, addresses, paths and names with a dot
NO_WORDS = re.compile(r"\{[^}]*\}|https?://\S+|[\w.*-]*[/\\#][\w./\\#*-]+|\w+(?:\.\w+)+")
WORD = re.compile(r"(?<![\w@#=])[^\W\d_]+(?:['’][^\W\d_]+)*(?![\w(=@\[])")


def words_of(path):
    """Yield each word of a source with its line number.

    In Markdown, the words are those of the text, captions, alt texts and the prose of cells; in Python, those of
    comments, docstrings and messages. Code, formulas, addresses, abbreviations and names such as `KFold` are left out.
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
    """Return the caption, the alt text and the prose of a cell."""
    end = OPTIONS.match(text).end()
    options = re.sub(r"^ *(?:name|tags):.*?$|^:.*?$|^ *\w+: ?|^---$", "", text[:end], flags=re.M)
    return options + of_python(text[end:])


def of_python(text):
    """Return the comments and the strings of at least four words in Python code, each on its line."""
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
    """Yield each string of a syntax tree with its line number; values in an f-string become a number."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
    elif not (isinstance(node, ast.Attribute) and node.attr == "split"):  # a list of names
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def empty_lines(match):
    return " " + "\n" * match[0].count("\n")
