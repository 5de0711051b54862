"""The colours of the dark theme: the partner of a colour, and a figure in the partners of its colours."""

import contextlib
import functools

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import Collection, QuadMesh
from matplotlib.colors import ListedColormap, to_rgba, to_rgba_array
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

# Of the dark theme: its page, and its text on other surfaces
BACKGROUND, FOREGROUND = to_rgba_array(["#121212", "#f3f4f5"])[:, :3]
# What WCAG asks of text, and of lines and marks
CONTRAST, SEEN = 4.5, 3
# Up to which difference of red, green and blue a colour counts as a grey, and up to which contrast with white as pale
GREY, PALE = 0.08, 2


@functools.cache
def partner(colour):
    """Return the colour that takes the place of another one in the dark theme.

    Parameters
    ----------
    colour : color of matplotlib
        With or without opacity.

    Returns
    -------
    tuple of four floats
        Red, green, blue, and the opacity as it was. From white to black a grey becomes one from the theme's background
        to its text. A pale colour, such as that of an area, becomes a deep one of the same hue. Any other colour stays,
        or becomes lighter until it can be read as text.
    """
    *rgb, opacity = to_rgba(colour)
    rgb = np.array(rgb)
    if np.ptp(rgb) <= GREY or contrast(rgb, np.ones(3)) < PALE:
        lightness = (rgb.min() + rgb.max()) / 2
        rgb = rgb - lightness + FOREGROUND + lightness * (BACKGROUND - FOREGROUND)
    else:
        lighter = rgb + np.linspace(0, 1, 101)[:, np.newaxis] * (1 - rgb)
        rgb = next(one for one in lighter if contrast(one, BACKGROUND) >= CONTRAST)
    return (*np.clip(rgb, 0, 1).tolist(), opacity)


def contrast(one, other):
    """Return the contrast of two colours, each an array of red, green and blue from 0 to 1, as WCAG 2 defines it."""
    darker, lighter = sorted([_luminance(one), _luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(rgb):
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@contextlib.contextmanager
def dark_colours(fig):
    """Give the artists of a figure, which was drawn, the colours of the dark theme, and afterwards their own again.

    Images stay as they are, and so does what is drawn upon them. Points, lines and areas that show numbers as colours,
    and their colour bar, get the part of the colour map that can be seen on a dark ground.
    """
    undo = []
    if engine := fig.get_layout_engine():  # a second layout may move the axes
        undo.append((fig.set_layout_engine, engine))
        fig.set_layout_engine("none")

    def change(artist, *names):
        values = {name: getattr(artist, f"get_{name}")() for name in names}
        for name, value in values.items():
            # A transparent colour stays so, also if the artist has an opacity of its own
            own = [tuple(colour) if colour[3] else "none" for colour in to_rgba_array(value)]
            partners = [colour if colour == "none" else partner(colour) for colour in own]
            if own:
                setter, takes_many = getattr(artist, f"set_{name}"), isinstance(artist, Collection)
                undo.append((setter, own if takes_many else own[0]))
                setter(partners if takes_many else partners[0])

    def change_all(artist):
        if isinstance(artist, ScalarMappable) and artist.get_array() is not None:
            if not _is_image(artist):
                undo.append((artist.set_cmap, artist.get_cmap()))
                artist.set_cmap(_on_dark(artist.get_cmap()))
        elif isinstance(artist, Line2D):
            change(artist, "color", "markerfacecolor", "markeredgecolor")
        elif isinstance(artist, Text):
            change(artist, "color")
            if artist.get_path_effects():  # a rim that sets the letters off from what is below them
                undo.append((artist.set_path_effects, artist.get_path_effects()))
                artist.set_path_effects([withStroke(linewidth=3, foreground=BACKGROUND)])
        elif isinstance(artist, (Patch, Collection)):
            change(artist, "facecolor", "edgecolor")

    try:
        for artist in _artists(fig):
            change_all(artist)
        yield
    finally:
        for setter, value in reversed(undo):
            setter(value)


def _artists(fig):
    """Yield the artists of a figure, also those that a text brings, without those that lie upon an image."""
    upon_images = {artist for ax in fig.axes for artist in _upon_images(ax)}
    for artist in fig.findobj():
        if artist not in upon_images:
            yield artist
            if isinstance(artist, Text):
                yield from filter(None, [artist.get_bbox_patch(), getattr(artist, "arrow_patch", None)])


def _upon_images(ax):
    """Return what takes its colours from an image: contours, points, and texts and lines whose middle lies upon it."""
    images = [one for one in ax.get_children() if _is_image(one)]
    extents = [image.get_window_extent() for image in images]
    drawn = [*ax.texts, *ax.lines] if images else []
    upon = [one for one in drawn if any(extent.contains(*_middle(one)) for extent in extents)]
    grounds = [ax.patch] if any(image.get_alpha() for image in images) else []  # which are seen through the images
    return upon + grounds + [one for one in ax.collections if images and one not in images]


def _middle(artist):
    return artist.get_window_extent().corners().mean(axis=0)


def _is_image(artist):
    return isinstance(artist, (AxesImage, QuadMesh)) and artist.get_cmap().name in matplotlib.colormaps


def _on_dark(cmap):
    """Return the part of a colour map that can be seen on a dark ground, or the partners of a list of colours."""
    if cmap.name not in matplotlib.colormaps:
        return ListedColormap([partner(tuple(colour)) for colour in cmap(np.arange(cmap.N))])
    places = np.linspace(0, 1, 256)
    colours = matplotlib.colormaps[cmap.name](places)
    seen = places[[contrast(colour[:3], BACKGROUND) >= SEEN for colour in colours]]
    return ListedColormap(matplotlib.colormaps[cmap.name](np.linspace(seen[0], seen[-1], cmap.N)))
