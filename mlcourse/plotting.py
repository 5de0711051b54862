"""The course's figures: one style, and the two plots that the chapters and labs draw again and again."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap, to_rgb

STYLE_FILE = Path(__file__).with_name("course.mplstyle")
_STYLE = matplotlib.rc_params_from_file(STYLE_FILE, use_default_template=False)

PALETTE = tuple(_STYLE["axes.prop_cycle"].by_key()["color"])
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

DARK = "0.2"


def use_style():
    """Draw every later figure in the style of the course, from `course.mplstyle`."""
    plt.style.use(STYLE_FILE)


def plot_predictions(model, X, y=None, *, interval=None, ax=None, label=None, n_points=400, **line_options):
    """Draw what a regression model predicts along one feature, and the training points if `y` is given.

    Call it several times with the same `ax` to compare models, and `y` only once; then ``ax.legend()``.

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


def plot_decision_regions(model, X, y, *, ax=None, feature_names=None, n_grid=300):
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

    across, up = (_padded_grid(column, n_grid) for column in points.T)
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    predicted = np.ravel(model.predict(_in_the_form_of(X, grid)))
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
    light = ListedColormap([_lighter(colour) for colour in PALETTE[: len(classes)]])
    ax.pcolormesh(across, up, regions, cmap=light, vmin=-0.5, vmax=len(classes) - 0.5, rasterized=True)
    for name, colour, marker in zip(classes, PALETTE, MARKERS):
        members = points[labels == name]
        ax.scatter(*members.T, s=26, color=colour, marker=marker, edgecolor="white", linewidth=0.5, label=str(name))
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=1)  # beside the axes, so that it hides no region
    _label_axes(ax, *feature_names)
    return ax


def _check_columns(X, n_columns, purpose):
    if np.ndim(X) != 2 or np.shape(X)[1] != n_columns:
        raise ValueError(f"{purpose}, so X must have the shape (n, {n_columns}), but its shape is {np.shape(X)}.")


def _in_the_form_of(X, grid):
    # A model that was trained with column names wants to see them again
    return pd.DataFrame(grid, columns=X.columns) if isinstance(X, pd.DataFrame) else grid


def _padded_grid(column, n_grid):
    margin = 0.05 * np.ptp(column)
    return np.linspace(column.min() - margin, column.max() + margin, n_grid)


def _lighter(colour):
    return 0.3 * np.array(to_rgb(colour)) + 0.7


def _label_axes(ax, x_label, y_label):
    ax.set_xlabel(ax.get_xlabel() or x_label)
    ax.set_ylabel(ax.get_ylabel() or y_label)
