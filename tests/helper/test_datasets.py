"""The loaders return the data that their docstrings promise."""

import re
import subprocess
import sys

import geopandas
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import fetch_california_housing
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier

from mlcourse import datasets
from mlcourse.datasets import files
from paths import ROOT


def modules_loaded_by(statement):
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


# Toy regression


def test_the_toy_function_has_the_values_computed_by_hand():
    np.testing.assert_allclose(datasets.toy_function(np.array([[0.0], [1.25], [-5.0]])), [[0], [1.125], [-2.5]])


def test_the_training_set_is_the_legacy_stream_of_seed_0():
    legacy = np.random.RandomState(0)
    x = 10 * legacy.rand(20, 1) - 5
    y = x / 2 + np.sin(2 * np.pi * x / 5) / 2 + 0.1 * legacy.randn(20, 1)
    X_train, y_train = datasets.load_toy_regression()
    np.testing.assert_array_equal(X_train, x)
    np.testing.assert_array_equal(y_train, y[:, 0])


@pytest.mark.parametrize(
    ("split", "n_samples", "rng"), [("train", 20, np.random.RandomState(0)), ("test", 1000, np.random.default_rng(1))]
)
def test_the_stored_toy_data_can_be_drawn_again_bit_for_bit(split, n_samples, rng):
    stored, drawn = datasets.load_toy_regression(split), datasets.make_toy_regression(n_samples, rng)
    for stored_array, drawn_array in zip(stored, drawn):
        assert stored_array.dtype == float
        np.testing.assert_array_equal(stored_array, drawn_array, strict=True)


def test_the_lines_in_the_data_readme_write_the_stored_toy_files(tmp_path, monkeypatch):
    readme = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1], {})
    for split in "train", "test":
        name = f"toy_regression_{split}.csv"
        assert (tmp_path / name).read_bytes() == (ROOT / "data" / name).read_bytes()


def test_a_line_fitted_to_the_training_set_has_the_slope_intercept_and_error_of_the_course():
    X, y = datasets.load_toy_regression("train")
    line = LinearRegression().fit(X, y)
    mean_squared_error = np.mean((line.predict(X) - y) ** 2)
    assert [round(v, 2) for v in (line.coef_[0], line.intercept_, mean_squared_error)] == [0.45, 0.02, 0.16]


def test_a_toy_sample_stays_in_the_interval_asked_for_and_scatters_by_a_tenth():
    X, y = datasets.make_toy_regression(5000, np.random.default_rng(7), interval=(2, 3))
    assert 2 <= X.min() < 2.01 and 2.99 < X.max() <= 3
    assert np.std(y - datasets.toy_function(X[:, 0])) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("load", [datasets.load_toy_regression, datasets.load_toy_classification])
def test_an_unknown_split_is_refused_with_the_allowed_ones(load):
    with pytest.raises(ValueError, match="'train' or 'test', not 'validation'"):
        load("validation")


def test_toy_classification_is_a_hundred_points_in_three_groups_halved():
    halves = [datasets.load_toy_classification(split) for split in ("train", "test")]
    X, y = (np.concatenate(parts) for parts in zip(*halves))
    assert [part.shape for half in halves for part in half] == [(50, 2), (50,)] * 2
    assert len(np.unique(X, axis=0)) == 100 and sorted(np.bincount(y)) == [33, 33, 34]


def test_the_gaussians_of_one_covariance_have_the_moments_that_are_documented():
    X, y = datasets.make_gaussians(40_000, np.random.default_rng(1), "one-covariance")
    assert y.mean() == pytest.approx(0.5, abs=0.01)
    for label, centre in ((0, [0, 0]), (1, [2.35, 0])):
        np.testing.assert_allclose(X[y == label].mean(axis=0), centre, atol=0.03)
        np.testing.assert_allclose(np.cov(X[y == label].T), [[1, 0.5], [0.5, 1]], atol=0.03)


def test_the_elongated_gaussian_points_where_the_first_number_of_its_draw_says():
    X, y = datasets.make_gaussians(40_000, np.random.default_rng(2), "round-and-elongated")
    angle = np.deg2rad(np.random.default_rng(2).normal(0, 57))
    axis, across = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    elongated = X[y == 1] - ([1.5, 0] + 2.3 * axis)
    np.testing.assert_allclose(elongated.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose([np.std(elongated @ axis), np.std(elongated @ across)], [2.75, 1.1], rtol=0.02)
    np.testing.assert_allclose(np.cov(X[y == 0].T), np.eye(2), atol=0.03)


def test_the_true_gaussians_are_those_that_are_drawn():
    for shape in ("one-covariance", "round-and-elongated"):
        X, y = datasets.make_gaussians(40_000, np.random.default_rng(3), shape)
        means, covariances = datasets.gaussian_classes(shape, np.random.default_rng(3).normal(0, 57))
        for label in (0, 1):
            np.testing.assert_allclose(X[y == label].mean(axis=0), means[label], atol=0.05)
            np.testing.assert_allclose(np.cov(X[y == label].T), covariances[label], atol=0.12)


def test_lda_and_nearest_neighbours_reach_the_accuracies_of_the_course_on_both_gaussian_data_sets():
    expected = {"one-covariance": (["0.91 ± 0.01"] * 2), "round-and-elongated": ["0.85 ± 0.03", "0.85 ± 0.01"]}
    for shape, figures in expected.items():
        scores = []
        for seed in range(20):
            X, y = datasets.make_gaussians(3200, np.random.default_rng(seed), shape)
            models = LinearDiscriminantAnalysis(), KNeighborsClassifier(n_neighbors=125)
            scores.append([model.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) for model in models])
        means, spreads = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1)
        assert [f"{mean:.2f} ± {spread:.2f}" for mean, spread in zip(means, spreads)] == figures, shape


def test_an_unknown_shape_is_refused_with_the_allowed_ones():
    with pytest.raises(ValueError, match="'one-covariance' or 'round-and-elongated', not 'square'"):
        datasets.make_gaussians(10, np.random.default_rng(0), "square")
    with pytest.raises(ValueError, match="'one-covariance' or 'round-and-elongated', not 'square'"):
        datasets.gaussian_classes("square")


# California


def test_california_housing_is_the_frame_that_scikit_learn_returns(tmp_path):
    raw = np.loadtxt(ROOT / "data" / "california_housing_1990.csv", delimiter=",", skiprows=1)
    # longitude, latitude, age, ..., income, value -> value, income, age, ..., latitude, longitude
    in_the_order_of_scikit_learn = raw[:, [8, 7, 2, 3, 4, 5, 6, 1, 0]]
    joblib.dump(in_the_order_of_scikit_learn, tmp_path / "cal_housing_py3.pkz", compress=6)
    expected = fetch_california_housing(data_home=tmp_path, download_if_missing=False, as_frame=True).frame
    pd.testing.assert_frame_equal(datasets.load_california_housing(), expected, check_exact=True)


def test_the_first_block_group_of_california_has_the_figures_of_the_course():
    housing = datasets.load_california_housing()
    assert housing.shape == (20640, 9)
    first = [8.3252, 41, 6.984127, 1.023810, 322, 2.555556, 37.88, -122.23, 4.526]
    np.testing.assert_array_equal(housing.iloc[0].round(6), first)


def test_the_outline_of_california_leaves_out_as_many_points_as_the_readme_says():
    states = datasets.load_us_states().set_index("STUSPS")
    housing = datasets.load_california_housing()
    points = geopandas.GeoSeries.from_xy(housing["Longitude"], housing["Latitude"], crs=states.crs)
    n_outside = (~points.intersects(states.geometry["CA"])).sum()
    readme = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    assert f"{n_outside} of the 20,640 points lie outside" in readme
    assert f"{n_outside} of the 20,640 points lie outside" in datasets.load_us_states.__doc__


def test_the_states_have_names_abbreviations_and_outlines_in_longitude_and_latitude():
    states = datasets.load_us_states()
    assert list(states.columns) == ["NAME", "STUSPS", "geometry"]
    assert states.crs.is_geographic
    assert states["NAME"].is_unique and states["STUSPS"].is_unique
    west, south, east, north = states.loc[states["NAME"] == "California"].total_bounds
    assert (round(west), round(south), round(east), round(north)) == (-124, 33, -114, 42)


# The other tables


def test_statlog_has_36_bands_from_0_to_255_six_covers_and_the_official_split():
    windows = datasets.load_statlog_satellite()
    bands = windows.columns.drop(["land_cover", "split"])
    assert len(bands) == 36
    assert windows[bands].dtypes.map(pd.api.types.is_integer_dtype).all()
    assert windows[bands].min(axis=None) >= 0 and windows[bands].max(axis=None) <= 255
    assert windows["land_cover"].nunique() == 6
    assert windows["split"].tolist() == ["train"] * 4435 + ["test"] * 2000


def test_the_statlog_docstring_warns_of_leakage():
    assert "Do not cross-validate" in datasets.load_statlog_satellite.__doc__


def test_braking_distances_have_speeds_as_numbers_and_grow_with_them():
    distances = datasets.load_braking_distance()
    assert distances.shape == (10, 8)
    assert (distances.index.name, distances.columns.name) == ("car", "speed")
    assert distances.columns.tolist() == [0, 40, 50, 70, 90, 100, 110, 130]
    assert distances.loc[0, 130] == 101.365
    assert distances.mean().is_monotonic_increasing


def test_play_tennis_has_nine_days_of_tennis_and_five_without():
    days = datasets.load_play_tennis()
    assert days["tennis"].value_counts().to_dict() == {"yes": 9, "no": 5}
    assert set(days["sky"]) == {"sunny", "overcast", "rainy"}
    assert set(days["wind"]) == {"yes", "no"}
    assert days[["temperature", "humidity"]].dtypes.map(pd.api.types.is_integer_dtype).all()


def test_play_tennis_has_the_rainy_windy_day_that_copies_of_the_table_lack():
    days = datasets.load_play_tennis()
    assert ["rainy", 65, 70, "yes", "no"] in days.to_numpy().tolist()


# The package


def test_a_missing_file_is_named_with_what_to_do_about_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DATA_FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"(?s)play_tennis\.csv.*clone.*pip install -e \."):
        datasets.load_play_tennis()
    with pytest.raises(FileNotFoundError, match=r"us_states_2016\.geojson"):
        datasets.load_us_states()
    with pytest.raises(FileNotFoundError, match=r"penguins\.csv"):
        datasets.load_penguins()


def test_importing_the_package_imports_no_library():
    assert not modules_loaded_by("import mlcourse") & {"numpy", "pandas", "matplotlib", "sklearn", "geopandas"}


def test_importing_the_datasets_does_not_wait_for_geopandas():
    assert "geopandas" not in modules_loaded_by("import mlcourse.datasets")
