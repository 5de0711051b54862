"""Draw each figure of a notebook twice: as its cell says, and in the colours of the dark theme.

`coursebook.execution` calls `start` in the kernel of each notebook. The second picture becomes metadata of the first.
So the outputs are those of any other Jupyter, and nbval compares them. `coursebook.site.pictures` shows both.
"""

from IPython import get_ipython
from IPython.core.pylabtools import print_figure


def start():
    """Let `draw_twice` draw the figures that this kernel shows."""
    formatter = get_ipython().display_formatter.mimebundle_formatter
    formatter.for_type_by_name("matplotlib.figure", "Figure", draw_twice)


def draw_twice(fig, **_):
    """Return the picture of a figure, as the notebook would show it, and the dark one as its metadata ``dark``."""
    from coursebook.dark_colours import dark_colours

    options = {"base64": True, "bbox_inches": "tight"}
    light = print_figure(fig, **options)
    if light is None:  # a figure without axes
        return {}, {}
    with dark_colours(fig):
        return {"image/png": light}, {"image/png": {"dark": print_figure(fig, **options)}}
