"""The figures of mlcourse.plotting, as a reader sees them."""

import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgba
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from mlcourse.plotting import (
    MARKERS,
    PALETTE,
    plot_california,
    plot_decision_regions,
    plot_posteriors,
    plot_predictions,
    use_style,
)

X_LINE = np.array([[0.0], [1.0], [3.0]])
Y_LINE = 2 * X_LINE[:, 0] + 1

X_PLANE = np.array([[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0], [20.0, 0.0], [20.0, 1.0]])
Y_PLANE = np.array(["water", "water", "forest", "forest", "bare soil", "bare soil"])


@pytest.fixture(autouse=True)
def plain_matplotlib():
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield
    plt.close("all")


@pytest.fixture
def line():
    return LinearRegression().fit(X_LINE, Y_LINE)


@pytest.fixture
def nearest():
    return KNeighborsClassifier(n_neighbors=1).fit(X_PLANE, Y_PLANE)


def class_points(ax):
    """Map the label of each class in the legend to its collection of training points."""
    return {points.get_label(): points for points in ax.collections if not points.get_label().startswith("_")}


def regions(ax):
    return next(drawn for drawn in ax.collections if drawn.get_array() is not None)


# The style


def test_a_figure_in_the_course_style_is_white_with_one_size_and_resolution():
    use_style()
    figure, ax = plt.subplots()
    assert tuple(figure.get_size_inches()) == (6, 3.8)
    assert figure.dpi == 144 and matplotlib.rcParams["savefig.dpi"] == 144
    assert to_hex(figure.get_facecolor()) == to_hex(ax.get_facecolor()) == "#ffffff"
    assert figure.get_constrained_layout()
    assert not ax.spines["top"].get_visible() and not ax.spines["right"].get_visible()


def test_every_curve_of_the_cycle_differs_in_colour_and_in_line_style():
    use_style()
    _, ax = plt.subplots()
    curves = [ax.plot([0, 1], [k, k])[0] for k in range(len(PALETTE))]
    assert [to_hex(curve.get_color()) for curve in curves] == [colour.lower() for colour in PALETTE]
    dashes = {str(curve._unscaled_dash_pattern) for curve in curves}
    assert len(PALETTE) == len(set(PALETTE)) == len(dashes) == 7


def test_there_is_a_marker_for_every_colour():
    assert len(set(MARKERS)) == len(PALETTE)


# Predictions along one feature


def test_the_curve_shows_what_the_model_predicts_over_the_range_of_the_data(line):
    curve = plot_predictions(line, X_LINE).lines[0]
    x, y = curve.get_data()
    assert (x[0], x[-1], len(x)) == (0, 3, 400)
    np.testing.assert_allclose(y, 2 * x + 1)


def test_the_curve_spans_the_interval_asked_for(line):
    x = plot_predictions(line, X_LINE, interval=(-5, 5), n_points=11).lines[0].get_xdata()
    np.testing.assert_allclose(x, [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5])


def test_the_training_points_are_drawn_and_named_only_if_y_is_given(line):
    ax = plot_predictions(line, X_LINE, Y_LINE)
    assert list(class_points(ax)) == ["training points"]
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[0, 1], [1, 3], [3, 7]])
    assert not plot_predictions(line, X_LINE).collections


def test_two_models_in_one_axes_differ_in_colour_and_line_style_and_keep_their_names(line):
    use_style()
    ax = plot_predictions(line, X_LINE, Y_LINE, label="line")
    assert plot_predictions(line, X_LINE, ax=ax, label="again") is ax
    first, second = ax.lines
    assert [to_hex(first.get_color()), to_hex(second.get_color())] == [colour.lower() for colour in PALETTE[:2]]
    assert (first.get_linestyle(), second.get_linestyle()) == ("-", "--")
    assert [text.get_text() for text in ax.legend().get_texts()] == ["training points", "line", "again"]


def test_line_options_reach_the_curve(line):
    curve = plot_predictions(line, X_LINE, color="black", linewidth=5).lines[0]
    assert (curve.get_color(), curve.get_linewidth()) == ("black", 5)


def test_predictions_label_the_axes_but_keep_labels_that_are_there(line):
    ax = plot_predictions(line, X_LINE)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    _, ax = plt.subplots()
    ax.set_xlabel("speed (km/h)")
    plot_predictions(line, X_LINE, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("speed (km/h)", "y")


def test_a_model_trained_on_a_frame_predicts_along_its_column_without_a_warning():
    X = pd.DataFrame(X_LINE, columns=["speed"])
    model = LinearRegression().fit(X, Y_LINE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_predictions(model, X, pd.Series(Y_LINE))


@pytest.mark.parametrize("X", [np.zeros((5, 2)), np.zeros(5)])
def test_predictions_refuse_anything_but_one_column(line, X):
    with pytest.raises(ValueError, match=r"shape \(n, 1\), but its shape is \(5,"):
        plot_predictions(line, X)


# Decision regions


def test_the_regions_show_the_class_that_the_model_predicts_there(nearest):
    ax = plot_decision_regions(nearest, X_PLANE, Y_PLANE, n_grid=40)
    shown = np.asarray(regions(ax).get_array()).reshape(40, 40)
    # From left to right: water, forest, bare soil, as numbers of the sorted labels
    assert shown[:, 0].tolist() == [2] * 40
    assert shown[:, 20].tolist() == [1] * 40
    assert shown[:, -1].tolist() == [0] * 40


def on_white(colours):
    """Return what colours look like on white, of which they let a part through."""
    *rgb, opacity = np.transpose(colours)
    return (np.array(rgb) * opacity + 1 - opacity).T


def test_a_region_has_a_lighter_shade_of_the_colour_of_its_points(nearest):
    ax = plot_decision_regions(nearest, X_PLANE, Y_PLANE, n_grid=40)
    drawn = regions(ax)
    for number, name in enumerate(["bare soil", "forest", "water"]):
        shade, colour = on_white(drawn.to_rgba(number)), class_points(ax)[name].get_facecolor()[0, :3]
        assert shade.mean() > colour.mean()
        assert shade.argmax() == colour.argmax() and shade.argmin() == colour.argmin()


def test_each_class_has_its_points_with_a_colour_and_a_marker_of_its_own(nearest):
    drawn = class_points(plot_decision_regions(nearest, X_PLANE, Y_PLANE, n_grid=10))
    np.testing.assert_array_equal(drawn["forest"].get_offsets(), [[10, 0], [10, 1]])
    colours = [tuple(points.get_facecolor()[0]) for points in drawn.values()]
    assert colours == [to_rgba(colour) for colour in PALETTE[:3]]
    assert len({points.get_paths()[0].vertices.tobytes() for points in drawn.values()}) == 3


def test_the_legend_names_the_classes(nearest):
    legend = plot_decision_regions(nearest, X_PLANE, Y_PLANE, n_grid=10).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["bare soil", "forest", "water"]


def test_the_legend_can_be_read_also_where_the_points_are_small(nearest):
    legend = plot_decision_regions(nearest, X_PLANE, Y_PLANE, n_grid=10, marker_size=2).get_legend()
    assert [handle.get_sizes()[0] for handle in legend.legend_handles] == [26] * 3


def test_numeric_classes_are_drawn_as_well():
    y = np.array([7, 7, -1, -1, 7, 7])
    ax = plot_decision_regions(LogisticRegression().fit(X_PLANE, y), X_PLANE, y, n_grid=10)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["-1", "7"]


def test_a_frame_gives_the_axis_labels_and_no_warning_about_feature_names():
    X = pd.DataFrame(X_PLANE, columns=["red", "near infrared"])
    y = pd.Series(Y_PLANE, index=range(100, 106))
    model = KNeighborsClassifier(n_neighbors=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = plot_decision_regions(model, X, y, n_grid=10)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("red", "near infrared")


def test_feature_names_label_the_axes_that_were_given(nearest):
    _, ax = plt.subplots()
    names = ["red", "green"]
    assert plot_decision_regions(nearest, X_PLANE, Y_PLANE, ax=ax, feature_names=names, n_grid=10) is ax
    assert [ax.get_xlabel(), ax.get_ylabel()] == names


def test_decision_regions_refuse_anything_but_two_columns(nearest):
    with pytest.raises(ValueError, match=r"shape \(n, 2\), but its shape is \(6, 3\)"):
        plot_decision_regions(nearest, np.zeros((6, 3)), Y_PLANE)


def test_a_regression_passed_as_a_classifier_is_refused(line):
    model = LinearRegression().fit(X_PLANE, np.arange(6))
    with pytest.raises(ValueError, match="at most 7 classes"):
        plot_decision_regions(model, X_PLANE, np.arange(6), n_grid=10)


@pytest.mark.parametrize(("size", "shown"), [(3, 3), (0, 0)])
def test_markers_have_the_size_asked_for_and_the_legend_can_be_left_out(nearest, size, shown):
    ax = plot_decision_regions(nearest, X_PLANE, Y_PLANE, n_grid=10, marker_size=size, legend=False)
    assert [points.get_sizes().tolist() for points in class_points(ax).values()] == [[shown]] * 3
    assert ax.get_legend() is None


# Posteriors


@pytest.fixture
def soft():
    return LogisticRegression().fit(X_PLANE / [10, 1], Y_PLANE)


def test_the_posteriors_have_a_panel_for_each_class_and_one_for_the_predictions(soft):
    axes = plot_posteriors(soft, X_PLANE / [10, 1], Y_PLANE, n_grid=20)
    names = ["bare soil", "forest", "water"]
    assert [ax.get_title() for ax in axes] == [f"posterior of class {name}" for name in names] + ["predicted class"]
    [legend] = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names


def steps_and_line(ax):
    """Return the filled steps of a posterior, and the line on top of them."""
    return sorted((drawn for drawn in ax.collections if hasattr(drawn, "levels")), key=lambda drawn: not drawn.filled)


def test_the_black_line_runs_where_the_model_gives_the_probability_one_half(soft):
    ax = plot_posteriors(soft, X_PLANE / [10, 1], Y_PLANE, n_grid=80)[2]
    _, line = steps_and_line(ax)
    assert [to_hex(colour) for colour in line.get_edgecolor()] == ["#000000"]
    along = np.concatenate([path.vertices for path in line.get_paths()])
    water = soft.predict_proba(along)[:, list(soft.classes_).index("water")]
    assert len(along) > 10
    np.testing.assert_allclose(water, 0.5, atol=0.01)


def test_each_place_has_the_step_of_its_posterior():
    X = X_PLANE / [10, 1]
    model = LogisticRegression(C=20).fit(X, Y_PLANE)
    points = np.random.default_rng(0).uniform([0, 0], [2, 1], size=(200, 2))
    posteriors = model.predict_proba(points).T
    for ax, posterior in zip(plot_posteriors(model, X, Y_PLANE, n_grid=80), posteriors):
        assert set(np.floor(4 * posterior)) == {0, 1, 2, 3}
        steps, _ = steps_and_line(ax)
        between = np.abs(posterior[:, np.newaxis] - [0.25, 0.5, 0.75]).min(axis=1) > 0.02
        within = np.array([step.contains_points(points) for step in steps.get_paths()])
        np.testing.assert_array_equal(within.argmax(axis=0)[between], np.floor(4 * posterior)[between])


def test_the_steps_go_from_white_towards_the_colour_of_the_class(soft):
    for ax, colour in zip(plot_posteriors(soft, X_PLANE / [10, 1], Y_PLANE, n_grid=20), PALETTE[:3]):
        steps, _ = steps_and_line(ax)
        shades = on_white(steps.get_facecolor())
        assert to_hex(shades[0]) == "#ffffff" and (np.diff(shades.sum(axis=1)) < 0).all()
        missing, full = 1 - shades[1:], 1 - np.array(to_rgba(colour)[:3])
        np.testing.assert_allclose(missing, missing.max(axis=1, keepdims=True) * full / full.max())


def test_a_grey_bar_explains_the_steps_of_the_posteriors(soft):
    axes = plot_posteriors(soft, X_PLANE / [10, 1], Y_PLANE, n_grid=20)
    [bar] = [ax for ax in axes[0].figure.axes if ax not in axes]
    assert bar.get_xlabel() == "posterior, in the colour of the class"
    assert bar.get_xticks().tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_a_model_that_is_sure_everywhere_leaves_no_hole_in_the_steps(nearest):
    ax = plot_posteriors(nearest, X_PLANE, Y_PLANE, n_grid=20)[0]
    steps, _ = steps_and_line(ax)
    within = [path.contains_points([[1, 0.5], [19, 0.5]]).tolist() for path in steps.get_paths()]
    assert within == [[True, False], [False, False], [False, False], [False, True]]


def test_posteriors_of_four_classes_leave_no_empty_panel():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 4
    model = LogisticRegression().fit(X, y)
    axes = plot_posteriors(model, X, y, n_grid=10, feature_names=("red", "green"))
    assert len(axes) == 5 and len(axes[0].figure.axes) == 6  # with the colour bar
    assert (axes[0].get_ylabel(), axes[4].get_xlabel()) == ("green", "red")


# The map


def test_the_map_shows_the_block_groups_in_colour_over_the_outline_of_california():
    housing = pd.DataFrame({"Longitude": [-122.2, -118.2], "Latitude": [37.9, 34.1]})
    ax = plot_california(housing, [1.0, 3.0], label="value (100,000 $)", cmap="coolwarm", s=7)
    outline, points = ax.collections[:2]
    np.testing.assert_allclose(points.get_offsets(), housing)
    assert (points.get_array().tolist(), points.cmap.name, points.get_sizes().tolist()) == ([1, 3], "coolwarm", [7])
    within = [part.contains_points(housing.to_numpy()) for part in outline.get_paths()]  # parts: mainland and islands
    assert np.any(within, axis=0).all()
    assert [axes.get_ylabel() for axes in ax.figure.axes] == ["latitude (°)", "value (100,000 $)"]


def test_a_map_without_a_label_has_no_colour_bar():
    housing = pd.DataFrame({"Longitude": [-122.2], "Latitude": [37.9]})
    _, ax = plt.subplots()
    assert plot_california(housing, [1.0], ax=ax) is ax and ax.figure.axes == [ax]
