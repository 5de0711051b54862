"""Find what the text of an exercise promises about an answer: forms of input and output, order, ties, errors, and more.

A sentence promises something if it stands in the docstring of the exercise below *Parameters*, *Returns* or *Raises*,
in a paragraph on special input, in its text with one of `WORDS`, or at the top of the lab, on the arguments of all
functions. The file of answers says for each which wrong answer breaks it, see `coursegrader.answers`.
"""

import ast
import re

from nbformat import NotebookNode

from coursegrader.labs import grade_id, grader

WORDS = re.compile(
    r"\b(?:raise[sd]?|refuse[sd]?|\w+Error|order|sorted|index|ties?|tied|unchanged|as they are|as it is|may be|must"
    r"|never|alone|yourself|without|empty|missing|do not use|whatever|once|both|copy|copies)\b",
    re.I,
)
NO_SENTENCES = re.compile(r"\$\$.*?\$\$|^#.*?$|^\|.*?$|^\*\{\{.*?$|^\+\+\+$", re.M | re.S)
SPECIAL = "**Special input"
END = re.compile(r"(?<=[.!?:])(?<!e\.g\.)(?<!i\.e\.)\**\s+(?=[A-Z`*$])")


def promises(notebook: NotebookNode, exercise: str) -> list[str]:
    """Return the sentences that promise something about the answers to an exercise.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The instructor's version of a lab, from `coursegrader.labs.read_lab`.
    exercise : str
        The grade_id of a solution cell that holds code.
    """
    at = next(number for number, cell in enumerate(notebook.cells) if grade_id(cell) == exercise)
    texts = []
    for cell in reversed(notebook.cells[:at]):
        if cell.cell_type == "code" and grader(cell):
            break
        if cell.cell_type == "markdown":
            texts.insert(0, cell.source)
            if re.search(r"^## ", cell.source, re.M):
                break
    text = "\n\n".join(texts)
    text = text[max(text.rfind("\n## "), 0) :]
    found = [
        sentence
        for paragraph in _paragraphs(NO_SENTENCES.sub("\n\n", text))
        for sentence in END.split(paragraph)
        if WORDS.search(sentence) or (paragraph.startswith(SPECIAL) and not sentence.startswith(SPECIAL))
    ]
    return list(dict.fromkeys([*found, *_of_docstrings(notebook.cells[at].source), *_of_all(notebook)]))


def _of_all(notebook):
    """Return the sentences at the top of a lab on the arguments of all functions."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    top = re.search(r"\*\*What is graded\.\*\*(.*?)\n\n", text, re.S)
    sentences = END.split(" ".join(top[1].split())) if top else []
    return [one for one in sentences if re.search(r"\bas they are\b", one)]


def _of_docstrings(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)):
            _, *sections = re.split(r"^(?:Parameters|Returns|Raises|Attributes)\n-+$", text, flags=re.M)
            for section in sections:
                for name, description in re.findall(r"^(\w.*)\n((?:    .*\n?|\n)+)", section, re.M):
                    sentences = [one for paragraph in _paragraphs(description) for one in END.split(paragraph)]
                    if sentences:
                        yield from (f"{name.split(' : ')[0]}: {sentences[0]}", *sentences[1:])


def _paragraphs(text):
    """Yield the paragraphs and the items of lists, each as one line."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. )", text):
        if words := " ".join(paragraph.split()):
            yield words
