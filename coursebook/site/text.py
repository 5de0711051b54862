"""Mend the text of each page: numbers keep their per cent sign, and screen readers hear the right names."""

import re

# With what precedes the blank, unless that is code
PER_CENT = r"<(?:pre|code|script)\b.*?</(?:pre|code|script)>|(\d(?:</span>)?) %"
# In the bibliography, no longer in the standard
DEPRECATED_ROLE = r' role="doc-biblioentry"| role="list"(?= class="citation-list")'


def _mend(app, page, template, context, doctree):
    if "body" in context:
        text = re.sub(DEPRECATED_ROLE, "", context["body"])
        text = text.replace('<summary aria-label="Toggle hidden content">', "<summary>")  # its text says more
        context["body"] = re.sub(PER_CENT, lambda one: f"{one[1]}\u00a0%" if one[1] else one[0], text, flags=re.S)


def connect(app):
    """Let Sphinx mend the text of each page."""
    app.connect("html-page-context", _mend)
