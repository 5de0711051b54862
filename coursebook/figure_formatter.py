"""Draw each figure of a notebook once more, in the colours of the dark theme.

`coursebook.execution` calls `start` in the kernel of each notebook. The dark picture becomes metadata of the one that
Jupyter draws. So the outputs are those of any other Jupyter, and nbval compares them. `coursebook.site.pictures` shows
both.
"""

from IPython import get_ipython
from IPython.core.pylabtools import print_figure

LAYOUTS = 2  # matplotlib lays a figure out anew each time that it is drawn: after the second time little changes


def start():
    """Let `draw_dark` draw the figures that this kernel shows too."""
    formatter = get_ipython().display_formatter.mimebundle_formatter
    formatter.for_type_by_name("matplotlib.figure", "Figure", draw_dark)


def draw_dark(fig, **_):
    """Return no picture, which Jupyter draws itself, and the dark one as the metadata ``dark`` of that picture."""
    from coursebook.dark_colours import dark_colours

    for _ in range(LAYOUTS):
        fig.draw_without_rendering()
    with dark_colours(fig):
        dark = print_figure(fig, base64=True, bbox_inches="tight")
    return {}, {"image/png": {"dark": dark}} if dark else {}  # a figure without axes has no picture
