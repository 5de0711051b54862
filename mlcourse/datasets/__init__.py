"""The course's data, read from the `data/` folder of its repository: no function here needs the network.

The real data from the environmental sciences are in `mlcourse.datasets.environment`, all other loaders here.
`data/README.md` gives the source, the licence and the hash of every file.
"""

import functools

import numpy as np
import pandas as pd

from mlcourse.datasets.environment import (
    load_belgian_soil_nir,
    load_co2_mauna_loa,
    load_fiddler_crabs,
    load_finley_tornado,
    load_hurricane_intensification,
    load_madison_lake_ice,
    load_marylebone_air,
    load_moose_counts,
    load_penguins,
    load_portal_rodents,
    load_toolik_weather,
    load_tree_allometry,
    load_washington_forest_plots,
)
from mlcourse.datasets.files import DATA_FOLDER, data_file

__all__ = [
    "DATA_FOLDER",
    "gaussian_classes",
    "load_belgian_soil_nir",
    "load_braking_distance",
    "load_california_housing",
    "load_co2_mauna_loa",
    "load_fiddler_crabs",
    "load_finley_tornado",
    "load_hurricane_intensification",
    "load_madison_lake_ice",
    "load_marylebone_air",
    "load_moose_counts",
    "load_penguins",
    "load_play_tennis",
    "load_portal_rodents",
    "load_statlog_satellite",
    "load_toolik_weather",
    "load_toy_classification",
    "load_toy_regression",
    "load_tree_allometry",
    "load_us_states",
    "load_washington_forest_plots",
    "make_gaussians",
    "make_toy_regression",
    "toy_function",
]


def toy_function(x):
    """Noise-free function behind the toy regression data, x/2 + sin(2πx/5)/2.

    Parameters
    ----------
    x : float or array of any shape
        Where to evaluate the function; no unit.

    Returns
    -------
    float or array of the shape of `x`
        The function's values; no unit.
    """
    return x / 2 + np.sin(2 * np.pi * x / 5) / 2


def make_toy_regression(n_samples, rng, interval=(-5, 5)):
    """Draw a toy regression sample: `toy_function` plus Gaussian noise of standard deviation 0.1.

    All `n_samples` values of x are drawn first, uniformly on `interval`, then the `n_samples` values of the noise.

    Parameters
    ----------
    n_samples : int
        Number of points.
    rng : numpy.random.Generator or numpy.random.RandomState
        Source of the random numbers, for example ``np.random.default_rng(1)``.
    interval : tuple of two floats, default (-5, 5)
        Lower and upper end of the values of x.

    Returns
    -------
    X : array of shape (n_samples, 1)
        Predictor; no unit.
    y : array of shape (n_samples,)
        Response; no unit.
    """
    low, high = interval
    X = (high - low) * rng.random((n_samples, 1)) + low
    noise = 0.1 * rng.standard_normal(n_samples)
    return X, toy_function(X[:, 0]) + noise


def load_toy_regression(split="train"):
    """Load the course's toy regression data, which were drawn once by `make_toy_regression`.

    Parameters
    ----------
    split : {"train", "test"}, default "train"
        "train" gives the 20 training points, "test" 1,000 further points that no model has seen.

    Returns
    -------
    X : array of shape (20, 1) or (1000, 1)
        Predictor, between -5 and 5; no unit.
    y : array of shape (20,) or (1000,)
        Response; no unit.

    Raises
    ------
    ValueError
        If `split` is neither "train" nor "test".
    FileNotFoundError
        If the data folder is missing.
    """
    _check_split(split)
    points = _read_floats(f"toy_regression_{split}.csv")
    return points["x"][:, np.newaxis], points["y"]


def load_toy_classification(split="train"):
    """Load the course's toy classification data: three round groups of points in the plane, some of them mixed.

    Drawn by scikit-learn's ``make_blobs(n_samples=100, centers=3, random_state=0)`` and halved at random.

    Parameters
    ----------
    split : {"train", "test"}, default "train"
        Which half.

    Returns
    -------
    X : array of shape (50, 2)
        Features; no unit.
    y : array of shape (50,)
        Classes 0, 1 and 2.

    Raises
    ------
    ValueError
        If `split` is neither "train" nor "test".
    """
    from sklearn.datasets import make_blobs  # takes a second, and only this function needs it
    from sklearn.model_selection import train_test_split

    _check_split(split)
    X, y = make_blobs(n_samples=100, centers=3, n_features=2, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
    return (X_train, y_train) if split == "train" else (X_test, y_test)


def make_gaussians(n_samples, rng, shape):
    """Draw points in the plane from two Gaussian classes that are equally likely.

    The course trains on the first 1,200 of 3,200 points and tests on the other 2,000.

    Parameters
    ----------
    n_samples : int
        Number of points.
    rng : numpy.random.Generator
        Source of the random numbers, for example ``np.random.default_rng(0)``.
    shape : {"one-covariance", "round-and-elongated"}
        "one-covariance": both classes have the covariance [[1, 0.5], [0.5, 1]], around (0, 0) and (2.35, 0), so that
        the best boundary is a straight line.
        "round-and-elongated": class 0 is round, with standard deviation 1 around (0, 0). Class 1 has the standard
        deviations 2.75 along its axis and 1.1 across, and its centre is 2.3 from the point (1.5, 0) in the direction
        of that axis. The direction is new in every draw: its angle in degrees is the first number that is drawn,
        ``rng.normal(0, 57)``. The best boundary is a quadratic curve.

    Returns
    -------
    X : array of shape (n_samples, 2)
        Features; no unit.
    y : array of shape (n_samples,)
        Classes 0 and 1.

    Raises
    ------
    ValueError
        If `shape` is neither of the two.
    """
    _check_shape(shape)
    means, spreads = _means_and_spreads(shape, rng.normal(0, 57) if shape == "round-and-elongated" else 0)
    y = rng.integers(0, 2, n_samples)
    noise = rng.standard_normal((n_samples, 2))
    X = np.where(y[:, np.newaxis] == 0, means[0] + noise @ spreads[0].T, means[1] + noise @ spreads[1].T)
    return X, y


def gaussian_classes(shape, angle=0.0):
    """Return the true means and covariances of the classes in `make_gaussians`.

    Parameters
    ----------
    shape : {"one-covariance", "round-and-elongated"}
        As for `make_gaussians`.
    angle : float, default 0
        Direction of the elongated class in degrees. In a draw, it is the first number of the generator,
        ``rng.normal(0, 57)``. The other shape has no direction.

    Returns
    -------
    means : array of shape (2, 2)
        Mean of class 0 and of class 1.
    covariances : array of shape (2, 2, 2)
        Covariance matrix of class 0 and of class 1.

    Raises
    ------
    ValueError
        If `shape` is neither of the two.
    """
    _check_shape(shape)
    means, spreads = _means_and_spreads(shape, angle)
    return means, spreads @ spreads.transpose(0, 2, 1)


def _check_shape(shape):
    if shape not in ("one-covariance", "round-and-elongated"):
        raise ValueError(f"shape must be 'one-covariance' or 'round-and-elongated', not {shape!r}.")


def _means_and_spreads(shape, angle):
    """Return means and spreads: means[c] + spreads[c] @ z turns standard normal noise z into class c."""
    if shape == "one-covariance":
        return np.array([[0.0, 0.0], [2.35, 0.0]]), np.stack([np.linalg.cholesky([[1, 0.5], [0.5, 1]])] * 2)
    along = np.array([np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))])
    across = np.array([-along[1], along[0]])
    means = np.array([[0.0, 0.0], [1.5, 0.0] + 2.3 * along])
    return means, np.stack([np.eye(2), np.column_stack([2.75 * along, 1.1 * across])])


def load_california_housing():
    """Load the California housing data: one row per block group of the 1990 US census.

    The frame is the one that ``sklearn.datasets.fetch_california_housing(as_frame=True).frame`` returns, but needs
    no network. Locations are rounded to 0.01°, and some points lie off the coast.

    Returns
    -------
    pandas.DataFrame of shape (20640, 9), all columns of type float
        MedInc (median income of the households, in 10,000 US dollars), HouseAge (median age of the houses, in years,
        at most 52), AveRooms and AveBedrms (rooms and bedrooms per household), Population (people in the block
        group), AveOccup (people per household), Latitude and Longitude (degrees), and the response MedHouseVal
        (median house value, in 100,000 US dollars, cut off at 5.00001).

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    R. K. Pace and R. Barry (1997), Sparse spatial autoregressions, Statistics & Probability Letters 33, 291-297.
    """
    census = _read_floats("california_housing_1990.csv")
    households = census["households"]
    return pd.DataFrame(
        {
            "MedInc": census["median_income"],
            "HouseAge": census["housing_median_age"],
            "AveRooms": census["total_rooms"] / households,
            "AveBedrms": census["total_bedrooms"] / households,
            "Population": census["population"],
            "AveOccup": census["population"] / households,
            "Latitude": census["latitude"],
            "Longitude": census["longitude"],
            "MedHouseVal": census["median_house_value"] / 100_000,
        }
    )


def load_us_states():
    """Load the outlines of the US states and territories of 2016, simplified to 0.005°.

    Draw the outline of California, but never filter the housing data by it: 228 of the 20,640 points lie outside,
    most of them just off the coast.

    Returns
    -------
    geopandas.GeoDataFrame of shape (56, 3)
        NAME ("California"), STUSPS (postal abbreviation, "CA") and geometry (longitude and latitude in degrees,
        WGS 84).

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.
    """
    import geopandas  # takes a second, and only this function needs it

    with data_file("us_states_2016.geojson").open("rb") as file:  # the tracker does not see files that GDAL opens
        return geopandas.read_file(file)[["NAME", "STUSPS", "geometry"]]


def load_statlog_satellite():
    """Load the Statlog Landsat data: 3 x 3 pixel windows with the land cover of the central pixel.

    .. warning::
       Do not cross-validate on randomly drawn folds. The windows are cut from one small scene and overlap their
       neighbours, so random folds put the same pixels into training and validation (leakage). Every window with
       split "test" overlaps with windows of split "train", too: a score on them measures how well a model fills gaps
       within this scene. It is too optimistic for places without labels nearby. For those, use blocks of consecutive
       training rows as folds: within each split, the rows follow the scene from north to south. Use the test set
       once, at the end.

    Returns
    -------
    pandas.DataFrame of shape (6435, 38)
        36 integer columns ``<position>_<band>``, brightness from 0 to 255 (no unit): the position is a compass
        direction (nw, n, ne, w, c, e, sw, s, se; c is the central pixel), the band is green, red, nir1 or nir2
        (near infrared). Then land_cover (one of six names, for example "red soil") and split ("train" in the first
        4,435 rows, "test" in the last 2,000).

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    A. Srinivasan (1993), Statlog (Landsat Satellite), UCI Machine Learning Repository,
    https://doi.org/10.24432/C55887, CC BY 4.0.
    """
    return pd.read_csv(data_file("statlog_satellite.csv"))


def load_braking_distance():
    """Load the braking distances of 10 cars at 8 speeds.

    The values are noisy measurements: those at 0 km/h scatter around zero, and some of them are negative.

    Returns
    -------
    pandas.DataFrame of shape (10, 8)
        Braking distance in metres. The index, named "car", numbers the cars from 0 to 9; the columns, named "speed",
        are the speeds as integers in km/h.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.
    """
    distances = pd.read_csv(data_file("braking_distance.csv"), index_col="car")
    distances.columns = distances.columns.astype(int).rename("speed")
    return distances


def load_play_tennis():
    """Load the play-tennis example: 14 days, their weather, and whether somebody played tennis.

    Returns
    -------
    pandas.DataFrame of shape (14, 5)
        sky ("sunny", "overcast" or "rainy"), temperature (integer, degrees Fahrenheit), humidity (integer,
        per cent), wind ("yes" or "no": was it windy?), and the response tennis ("yes" or "no").

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    J. R. Quinlan (1986), Induction of decision trees, Machine Learning 1, 81-106; with continuous temperature and
    humidity as in J. R. Quinlan (1993), C4.5: Programs for Machine Learning (two humidities differ between the copies
    in circulation, see `data/README.md`).
    """
    return pd.read_csv(data_file("play_tennis.csv"))


def _check_split(split):
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', not {split!r}.")


def _read_floats(name):
    return {name: column.copy() for name, column in _columns(data_file(name)).items()}


@functools.cache
def _columns(path):
    # NumPy reads floats exactly; older versions of pandas.read_csv get the last bit of some wrong
    with path.open(encoding="utf-8") as file:
        names = file.readline().strip().split(",")
        columns = np.loadtxt(file, delimiter=",", unpack=True)
    return dict(zip(names, columns, strict=True))
