"""Figures with sliders: the build draws a picture for each value, so the page needs no server.

The page contains one complete picture, as an SVG image, and only the differing lines of the others.
`book/_static/course.js` adds the sliders and replaces the lines. Without it, the page shows the first picture.
"""

import difflib
import html
import io
import itertools
import json
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt

DATA_URI = "data:image/svg+xml,"
_AS_THEY_ARE = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%#")


class Explorable:
    """The output of a cell with sliders: HTML in a page, a line of text elsewhere."""

    def __init__(self, markup: str, summary: str):
        self._markup, self._summary = markup, summary

    def _repr_html_(self):
        return self._markup

    def __repr__(self):
        return self._summary


def figure(draw: Callable, sliders: Mapping[str, Sequence], *, start: Sequence, say: Callable, alt: str) -> Explorable:
    """Draw a figure for every combination of the sliders' values.

    Parameters
    ----------
    draw : function
        ``draw(*values)``, with one value of each slider in their order, makes one figure with matplotlib. The axes
        stay where they are in the first picture. Limits that do not depend on the values keep the page light.
    sliders : dict of str to sequence
        Label of each slider, with its unit if there is one, and its values from left to right: numbers or strings.
    start : sequence
        The value of each slider in the picture that is shown first, on paper, and in Jupyter.
    say : function
        ``say(*values)`` returns the sentence below the picture, which a screen reader reads after a move. It describes
        the picture, with numbers.
    alt : str
        What the first picture shows and how it changes, for those who cannot see it.

    Returns
    -------
    Explorable
        Must be the last expression of the cell.

    Raises
    ------
    ValueError
        If `start` is not among the values, or `draw` makes no figure.

    Notes
    -----
    All pictures of a figure together should take less than 60 kB when compressed; a test of the site prints their
    size. To keep an image small, use ``imshow(..., interpolation="none")`` and few pixels.
    """
    values = [list(of_slider) for of_slider in sliders.values()]
    states = list(itertools.product(*values))
    if tuple(start) not in states:
        raise ValueError(f"explore.figure starts at {tuple(start)}, which is not a combination of the sliders' values.")
    places = _places_of_axes(_drawn(draw, start))
    with plt.rc_context({"figure.constrained_layout.use": False}):  # keep the axes of the first picture
        pictures = [_svg_lines(_drawn(draw, state), places) for state in states]
    first = states.index(tuple(start))
    data = {
        "sliders": [
            {"label": label, "values": [_written(value) for value in of_slider], "start": of_slider.index(one)}
            for label, of_slider, one in zip(sliders, values, start)
        ],
        "states": [[say(*state), difference(pictures[first], lines)] for state, lines in zip(states, pictures)],
    }
    picture = DATA_URI + urllib.parse.quote("\n".join(pictures[first]), safe=_AS_THEY_ARE)
    script = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", r"<\/")
    markup = (
        f'<div class="explore">\n<img src="{html.escape(picture)}" alt="{html.escape(alt)}">\n'
        f"<p>{html.escape(say(*start))}</p>\n"
        f'<script type="application/json">{script}</script>\n</div>'
    )
    ranges = (f"{slider['label']} from {slider['values'][0]} to {slider['values'][-1]}" for slider in data["sliders"])
    return Explorable(markup, f"Figure with sliders: {', '.join(ranges)}")


def difference(before: list[str], after: list[str]) -> list[list]:
    """Return the changes that turn the lines `before` into the lines `after`.

    Returns
    -------
    list of [int, int, str]
        From the last change to the first: the start and stop of the lines to replace, and the replacement, which is
        empty if the lines are deleted. No line of a picture is empty.
    """
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    changes = [
        [start, end, "\n".join(after[new_start:new_end])]
        for kind, start, end, new_start, new_end in matcher.get_opcodes()
        if kind != "equal"
    ]
    return changes[::-1]


def _drawn(draw, state):
    before = plt.get_fignums()
    draw(*state)
    if plt.get_fignums() == before:
        raise ValueError(
            f"explore.figure needs a figure, but draw{tuple(state)} made none: begin it with plt.subplots()."
        )
    return plt.gcf()


def _places_of_axes(fig):
    fig.draw_without_rendering()
    plt.close(fig)
    return [ax.get_position(original=True) for ax in fig.axes]


def _svg_lines(fig, places):
    """Return the SVG of a figure, the same at every run, with coordinates to about a tenth of a point."""
    fig.set_layout_engine("none")
    for ax, place in zip(fig.axes, places, strict=True):
        ax.set_position(place)
    stream = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "mlcourse"}):
        fig.savefig(stream, format="svg", metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]))
    plt.close(fig)
    svg = re.sub(r"^.*?(?=<svg)|<!--.*?-->", "", stream.getvalue(), flags=re.S)
    svg = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.4g}", svg)
    return [line.strip() for line in svg.splitlines() if line.strip()]


def _written(value):
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"
