"""The course's figures: one style, and the plots that several chapters and labs use."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgb

STYLE_FILE = Path(__file__).with_name("course.mplstyle")
_STYLE = matplotlib.rc_params_from_file(STYLE_FILE, use_default_template=False)

PALETTE = tuple(_STYLE["axes.prop_cycle"].by_key()["color"])
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MARKER_SIZE = 26

DARK = "0.2"


def use_style():
    """Draw every later figure in the style of the course, from `course.mplstyle`."""
    plt.style.use(STYLE_FILE)


def plot_predictions(model, X, y=None, *, interval=None, ax=None, label=None, n_points=400, **line_options):
    """Draw what a regression model predicts along one feature, and the training points if `y` is given.

    To compare models, call it several times with the same `ax`, pass `y` only once, then call ``ax.legend()``.

    Parameters
    ----------
    model : object with a method predict
        ``predict`` takes an array of shape (n_points, 1), or a DataFrame if `X` is one, and returns n_points values.
    X : array or DataFrame of shape (n, 1)
        Feature of the training points, in any unit.
    y : array of shape (n,), optional
        Response of the training points. Without it, only the curve is drawn.
    interval : tuple of two floats, optional
        Where the curve starts and ends. The default is the range of `X`.
    ax : matplotlib.axes.Axes, optional
        Where to draw. The default is a new figure.
    label : str, optional
        Name of the curve in the legend.
    n_points : int, default 400
        Number of points at which the model predicts.
    **line_options
        Passed on to `matplotlib.axes.Axes.plot`, for example ``color`` or ``linestyle``.

    Returns
    -------
    matplotlib.axes.Axes
        With the labels "x" and "y", unless the axes had labels before.

    Raises
    ------
    ValueError
        If `X` does not have exactly one column.
    """
    _check_columns(X, 1, "plot_predictions draws along one feature")
    if ax is None:
        _, ax = plt.subplots()
    values = np.asarray(X)
    if y is not None:
        ax.scatter(values[:, 0], np.ravel(y), s=22, marker="o", color=DARK, zorder=3, label="training points")
    start, end = (values.min(), values.max()) if interval is None else interval
    grid = np.linspace(start, end, n_points)[:, np.newaxis]
    ax.plot(grid[:, 0], np.ravel(model.predict(_in_the_form_of(X, grid))), label=label, **line_options)
    _label_axes(ax, "x", "y")
    return ax


def plot_decision_regions(
    model, X, y, *, ax=None, feature_names=None, n_grid=300, marker_size=MARKER_SIZE, legend=True
):
    """Draw the regions in which a classifier predicts each class, and the training points, with a legend.

    Parameters
    ----------
    model : object with a method predict
        ``predict`` takes an array of shape (n_grid * n_grid, 2), or a DataFrame if `X` is one, and returns labels.
    X : array or DataFrame of shape (n, 2)
        The two features of the training points, in any unit.
    y : array of shape (n,)
        Class labels: numbers or strings.
    ax : matplotlib.axes.Axes, optional
        Where to draw. The default is a new figure.
    feature_names : sequence of two str, optional
        Labels of the axes. The default is the column names of `X`, and "feature 1" and "feature 2" for an array.
        Axes that have labels keep them.
    n_grid : int, default 300
        Number of grid points along each axis. A smaller number is coarser, and quicker for a slow model.
    marker_size : float, default 26
        Area of the points' markers in square points; smaller for many points, 0 for none.
    legend : bool, default True
        Whether to name the classes beside the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The classes in sorted order have the colours of `PALETTE` and the markers of `MARKERS`.

    Raises
    ------
    ValueError
        If `X` does not have exactly two columns, or if there are more classes than colours.
    """
    _check_columns(X, 2, "plot_decision_regions draws two features")
    if feature_names is None:
        feature_names = X.columns if isinstance(X, pd.DataFrame) else ("feature 1", "feature 2")
    points, labels = np.asarray(X), np.ravel(y)

    across, up, grid = _grid_over(X, n_grid)
    predicted = np.ravel(model.predict(grid))
    classes = np.union1d(labels, predicted)
    if len(classes) > len(PALETTE):
        raise ValueError(
            f"plot_decision_regions has colours for at most {len(PALETTE)} classes, but there are {len(classes)}. "
            "Is y numeric, and the model a regression?"
        )

    if ax is None:
        _, ax = plt.subplots()
    ax.grid(False)
    regions = np.searchsorted(classes, predicted).reshape(n_grid, n_grid)
    tints = ListedColormap([_tint(colour) for colour in PALETTE[: len(classes)]])
    ax.pcolormesh(across, up, regions, cmap=tints, vmin=-0.5, vmax=len(classes) - 0.5, rasterized=True)
    for name, colour, marker in zip(classes, PALETTE, MARKERS):
        _scatter_class(ax, points[labels == name], name, colour, marker, marker_size)
    if legend:
        names = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=1)  # beside the regions
        for handle in names.legend_handles:
            handle.set_sizes([MARKER_SIZE])  # legible even if the points are small
    _label_axes(ax, *feature_names)
    return ax


def plot_posteriors(model, X, y, *, feature_names=None, n_grid=120):
    """Draw the posterior probability of each class in four steps, then the regions of the predicted classes.

    Parameters
    ----------
    model : object with the methods predict and predict_proba and the attribute classes_
        A fitted classifier. Both methods take an array of shape (n_grid * n_grid, 2), or a DataFrame if `X` is one.
    X, y, feature_names, n_grid
        As for `plot_decision_regions`.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (n_classes + 1,)
        In rows of two. The panel of a class carries its name. It is white where the posterior is below 0.25, takes on
        the colour of the class in three steps, and has a black line at 0.5; a bar in grey explains the steps. The
        points of the class are drawn in full colour, the others pale.

    Raises
    ------
    ValueError
        As for `plot_decision_regions`.
    """
    _check_columns(X, 2, "plot_posteriors draws two features")
    across, up, grid = _grid_over(X, n_grid)
    posteriors = model.predict_proba(grid).T.reshape(-1, n_grid, n_grid)
    n_rows = -(-(len(posteriors) + 1) // 2)
    fig, axes = plt.subplots(
        nrows=n_rows, ncols=2, sharex=True, sharey=True, squeeze=False, figsize=(6, 1.6 + 2.3 * n_rows)
    )
    *panels, last = axes.flat[: len(posteriors) + 1]
    for unused in axes.flat[len(posteriors) + 1 :]:
        unused.remove()
    steps = [0, 0.25, 0.5, 0.75, 1]
    for name, posterior, ax, of_class in zip(model.classes_, posteriors, panels, PALETTE):
        ax.set_title(f"posterior of class {name}")
        ax.grid(False)
        ax.contourf(across, up, np.clip(posterior, 0, 1), steps, colors=_shades(of_class))
        ax.contour(across, up, posterior, [0.5], colors="black", linewidths=1)
        for other, colour, marker in zip(model.classes_, PALETTE, MARKERS):
            members = np.asarray(X)[np.ravel(y) == other]
            _scatter_class(ax, members, other, colour if other == name else _lighter(colour), marker, 20)
    plot_decision_regions(
        model, X, y, ax=last, feature_names=feature_names, n_grid=n_grid, marker_size=20, legend=False
    )
    last.set_title("predicted class")
    greys = ScalarMappable(BoundaryNorm(steps, len(steps) - 1), ListedColormap(_shades("black")))
    bar = fig.colorbar(
        greys,
        ax=[*panels, last],
        location="bottom",
        aspect=25,
        shrink=0.8,
        label="posterior, in the colour of the class",
    )
    bar.ax.axvline(0.5, color="black", linewidth=1)
    fig.legend(*last.get_legend_handles_labels(), loc="outside lower center", ncols=len(posteriors), title="class")
    for ax in panels:
        _label_axes(ax, last.get_xlabel(), last.get_ylabel())
        ax.label_outer()
    last.label_outer()
    return axes.flat[: len(posteriors) + 1]


def plot_california(housing, values, *, ax=None, label=None, **point_options):
    """Draw a map of block groups over the outline of California, coloured by a value.

    Parameters
    ----------
    housing : DataFrame with the columns Longitude and Latitude
        Block groups, as `datasets.load_california_housing` returns them, or some of its rows.
    values : array of shape (n,)
        What the colour shows, for example the median house value or the residual, in any unit.
    ax : matplotlib.axes.Axes, optional
        Where to draw. The default is a new figure.
    label : str, optional
        Name and unit of the values, beside the colour bar. Without it no colour bar is drawn.
    **point_options
        Passed on to `matplotlib.axes.Axes.scatter`, for example ``cmap``, ``vmin`` and ``vmax`` or ``s``.

    Returns
    -------
    matplotlib.axes.Axes
        In degrees, with one degree of longitude as wide as it is at California's latitude.
    """
    from .datasets import load_us_states

    if ax is None:
        _, ax = plt.subplots(figsize=(6, 5))
    ax.grid(False)
    _label_axes(ax, "longitude (°)", "latitude (°)")
    names = ax.get_xlabel(), ax.get_ylabel()
    states = load_us_states()
    outline = states[states["NAME"] == "California"]
    outline.plot(ax=ax, facecolor="0.94", edgecolor="0.4", linewidth=0.8, aspect=None)
    points = ax.scatter(
        housing["Longitude"],
        housing["Latitude"],
        c=np.ravel(values),
        **{"s": 3, "linewidth": 0, "rasterized": True, **point_options},
    )
    west, south, east, north = outline.total_bounds
    ax.set(xlim=(west - 0.3, east + 0.3), ylim=(south - 0.3, north + 0.3))
    ax.set_aspect(1 / np.cos(np.deg2rad((south + north) / 2)))
    ax.set(xlabel=names[0], ylabel=names[1])  # geopandas sets other labels
    if label is not None:
        ax.figure.colorbar(points, ax=ax, label=label)
    return ax


def _check_columns(X, n_columns, purpose):
    if np.ndim(X) != 2 or np.shape(X)[1] != n_columns:
        raise ValueError(f"{purpose}, so X must have the shape (n, {n_columns}), but its shape is {np.shape(X)}.")


def _in_the_form_of(X, grid):
    # A model that was trained with column names expects them when it predicts
    return pd.DataFrame(grid, columns=X.columns) if isinstance(X, pd.DataFrame) else grid


def _grid_over(X, n_grid):
    across, up = (_padded_grid(column, n_grid) for column in np.asarray(X).T)
    return across, up, _in_the_form_of(X, np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2))


def _padded_grid(column, n_grid):
    margin = 0.05 * np.ptp(column)
    return np.linspace(column.min() - margin, column.max() + margin, n_grid)


def _scatter_class(ax, members, name, colour, marker, size):
    ax.scatter(*members.T, s=size, color=colour, marker=marker, edgecolor="white", linewidth=0.5, label=str(name))


def _lighter(colour):
    return 0.3 * np.array(to_rgb(colour)) + 0.7


def _tint(colour, share=0.3):
    # Not opaque: a part of the colour and a part of the ground, whether that is light or dark
    return (*to_rgb(colour), share)


def _shades(colour):
    return [_tint(colour, share) for share in (0, 0.15, 0.35, 0.6)]


def _label_axes(ax, x_label, y_label):
    ax.set_xlabel(ax.get_xlabel() or x_label)
    ax.set_ylabel(ax.get_ylabel() or y_label)
