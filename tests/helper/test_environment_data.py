"""The tables from the environmental sciences are what their docstrings say, and keep the traps that these name."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest

from mlcourse import datasets
from mlcourse.datasets import environment, files
from paths import ROOT

LOADERS = {name: load for name, load in inspect.getmembers(environment, inspect.isfunction) if name.startswith("load_")}
# Columns that a docstring names by the first and the last
SPECTRUM = re.compile(r"abs_\d+nm")


@pytest.fixture(scope="module")
def tables():
    return {name: load() for name, load in LOADERS.items()}


def slope(table, x, y):
    return np.polyfit(table[x], table[y], 1)[0]


# All tables


def test_every_loader_can_be_imported_with_the_others():
    assert len(LOADERS) == 13
    assert all(getattr(datasets, name) is load and name in datasets.__all__ for name, load in LOADERS.items())


@pytest.mark.parametrize("name", LOADERS)
def test_a_table_has_the_shape_and_the_columns_that_its_docstring_names(tables, name):
    table, text = tables[name], LOADERS[name].__doc__
    assert f"of shape {table.shape}" in text
    assert not [column for column in table if not SPECTRUM.match(column) and not re.search(rf"\b{column}\b", text)]


@pytest.mark.parametrize("name", LOADERS)
def test_the_readme_names_every_column_of_a_table(tables, name):
    file = re.search(r'read_table\("(.*?)"', inspect.getsource(LOADERS[name]))[1]
    row = re.search(rf"^\| `{file}` .*$", (ROOT / "data" / "README.md").read_text("utf-8"), re.MULTILINE)[0]
    assert not [column for column in tables[name] if not SPECTRUM.match(column) and f"`{column}`" not in row]


def test_a_table_called_complete_has_no_missing_value_and_the_others_have_some(tables):
    complete = {name for name, load in LOADERS.items() if "nothing missing" in load.__doc__}
    assert complete == {name for name, table in tables.items() if not table.isna().any(axis=None)}


def test_degrees_are_positions_on_the_earth_and_directions_of_a_compass(tables):
    limits = {"lat": (-90, 90), "lon": (-180, 180), "wind": (0, 360)}
    seen = set()
    for table in tables.values():
        for column in table.filter(regex="_deg(_[ne])?$"):
            low, high = limits[re.match("lat|lon|wind", column)[0]]
            assert table[column].dropna().between(low, high).all(), column
            seen.add(column)
    assert len(seen) == 7


def test_dates_are_times(tables):
    dates = {(name, column) for name, table in tables.items() for column in table.select_dtypes("datetime")}
    assert dates == {
        ("load_co2_mauna_loa", "month"),
        ("load_fiddler_crabs", "date"),
        ("load_marylebone_air", "datetime_gmt"),
        ("load_toolik_weather", "date"),
        ("load_portal_rodents", "census_date"),
        ("load_hurricane_intensification", "time_utc"),
        ("load_madison_lake_ice", "ice_on"),
        ("load_madison_lake_ice", "ice_off"),
    }


@pytest.mark.parametrize(
    ("name", "column", "step"),
    [("co2_mauna_loa", "month", "MS"), ("marylebone_air", "datetime_gmt", "h"), ("toolik_weather", "date", "D")],
)
def test_a_series_has_a_row_for_every_step_of_time(tables, name, column, step):
    times = tables[f"load_{name}"][column]
    assert (times == pd.date_range(times.iloc[0], times.iloc[-1], freq=step)).all()


def test_a_code_that_other_readers_take_for_missing_is_read_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "catch.csv").write_text("species,n\nNA,3\n,4\nnull,\n")
    monkeypatch.setattr(files, "DATA_FOLDER", tmp_path)
    catch = files.read_table("catch.csv")
    assert catch["species"].isna().tolist() == [False, True, False] and catch["species"].iloc[0] == "NA"
    assert catch["n"].isna().tolist() == [False, False, True]


# One table each


def test_carbon_dioxide_has_no_spread_where_it_was_not_measured_day_by_day(tables):
    months = tables["load_co2_mauna_loa"].set_index("month")
    early, late = months.loc[:"1974-04"], months.loc["1974-05":]
    assert early[["n_days", "sd_of_days_ppm", "uncertainty_ppm"]].isna().all(axis=None)
    interpolated = late.index[late["sd_of_days_ppm"].isna()]
    assert interpolated.strftime("%Y-%m").tolist() == ["1975-12", "1984-04"]
    assert (late.loc[interpolated, "uncertainty_ppm"] == 0).all()


def test_trees_come_in_studies_and_one_fir_has_the_wrong_type(tables):
    plants = tables["load_tree_allometry"]
    assert plants["study"].nunique() == 63
    firs = plants[plants["species"] == "Abies sachalinensis"]
    assert firs["plant_type"].value_counts().to_dict() == {"EG": 103, "EA": 1} and firs.index[0] == 0
    parts = plants[["stem_mass_kg", "leaf_mass_kg"]].max(axis=1)
    assert (parts.isna() | (parts <= plants["aboveground_biomass_kg"])).all()
    assert (plants["height_m"] < 1.3).sum() == 30


def test_the_climate_of_a_crab_is_that_of_its_marsh(tables):
    crabs = tables["load_fiddler_crabs"]
    climate = ["latitude_deg_n", *crabs.filter(like="_temp_")]
    assert crabs["site"].nunique() == 13
    assert (crabs.groupby("site")[climate].nunique() == 1).all(axis=None)
    marshes = crabs.groupby("site")[climate].first()
    air, water = marshes.filter(like="air_"), marshes.filter(like="water_")
    assert (air.loc["ZI"] == air.loc["RC"]).all() and (water.loc["CC"] == water.loc["BC"]).all()


def test_moose_are_no_poisson_sample_and_presence_is_the_count(tables):
    moose = tables["load_moose_counts"]
    count = moose["moose_count"]
    assert 0.49 < (count == 0).mean() < 0.5 and 10 < count.var() / count.mean() < 11
    assert ((count > 0) == (moose["moose_present"] == 1)).all()


def test_penguins_have_no_identifier_of_a_bird(tables):
    penguins = tables["load_penguins"]
    assert penguins["individual_id"].nunique() == 190
    labels = penguins.groupby(["species", "island", "individual_id"])
    again = labels.filter(lambda rows: len(rows) > 1).groupby(["species", "island", "individual_id"])
    assert len(again) == 40 and (again["year"].nunique() == 2).all()
    assert (again["sex"].nunique() == 2).sum() == 8


def test_bills_and_masses_of_penguins_turn_round_within_species(tables):
    penguins = tables["load_penguins"].dropna(subset="body_mass_g")
    assert slope(penguins, "body_mass_g", "bill_depth_mm") < 0
    assert all(slope(rows, "body_mass_g", "bill_depth_mm") > 0 for _, rows in penguins.groupby("species"))


def test_the_annual_mean_of_a_forest_plot_lies_between_its_annual_minimum_and_maximum(tables):
    plots = tables["load_washington_forest_plots"]
    middle = (plots["temp_annual_min_degc"] + plots["temp_annual_max_degc"]) / 2
    assert (plots["temp_annual_mean_degc"] - middle).abs().max() < 0.021
    assert (plots["temp_january_min_degc"] <= plots["temp_annual_min_degc"]).all()
    assert set(plots["forested"]) == {0, 1}


def test_wind_from_0_degrees_is_calm_and_north_is_360(tables):
    hours = tables["load_marylebone_air"]
    calm = hours["wind_from_deg"] == 0
    assert calm.sum() == 7 and (hours.loc[calm, "wind_speed_m_s"] == 0).all()
    assert (hours["wind_from_deg"] == 360).sum() > 300


def test_sulphur_dioxide_lacks_the_last_2215_hours(tables):
    sulphur = tables["load_marylebone_air"]["so2_ppb"]
    assert sulphur.tail(2215).isna().all() and sulphur.notna().iloc[-2216]


def test_the_wind_at_toolik_is_missing_more_often_in_winter(tables):
    days = tables["load_toolik_weather"]
    missing = days["wind_speed_mean_m_s"].isna().groupby(days["date"].dt.month).mean().round(2)
    assert missing[[2, 3, 7]].tolist() == [0.13, 0.13, 0.03]


def test_no_count_of_rodents_is_missing_and_the_woodrat_has_a_name(tables):
    species = tables["load_portal_rodents"].drop(columns=["newmoon_number", "census_date", "ndvi_month"])
    assert species.shape[1] == 21 and species.dtypes.map(pd.api.types.is_integer_dtype).all()
    assert "NA" not in species and species["NEO_ALB"].sum() == 723


def test_soils_are_split_as_in_the_challenge_and_every_spectrum_is_complete(tables):
    soils = tables["load_belgian_soil_nir"]
    assert soils["train"].tolist() == [1] * 618 + [0] * 207
    spectra = soils.filter(regex=SPECTRUM)
    assert list(spectra) == [f"abs_{length}nm" for length in range(1100, 2500, 20)]
    assert spectra.notna().all(axis=None)


def test_the_future_of_a_storm_makes_the_response_and_the_docstring_forbids_it(tables):
    fixes = tables["load_hurricane_intensification"]
    gain = fixes["max_wind_in_24h_kt"] - fixes["max_wind_kt"]
    assert ((gain >= 30) == (fixes["rapid_intensification"] == 1)).all()
    assert "never use it as a predictor" in datasets.load_hurricane_intensification.__doc__
    assert [column for column in fixes if "_in_" in column] == ["max_wind_in_24h_kt"]


def test_the_state_before_a_fix_is_the_state_of_the_same_storm_12_hours_earlier(tables):
    fixes = tables["load_hurricane_intensification"]
    now = ["storm_id", "time_utc", "max_wind_kt", "pressure_hpa", "lat_deg_n", "lon_deg_e"]
    earlier = fixes[now].assign(time_utc=fixes["time_utc"] + pd.Timedelta(hours=12))
    both = fixes.merge(earlier, on=["storm_id", "time_utc"], suffixes=("", "_earlier"))
    assert len(both) > 10_000
    for before, column in {
        "max_wind_12h_ago_kt": "max_wind_kt",
        "pressure_12h_ago_hpa": "pressure_hpa",
        "lat_12h_ago_deg_n": "lat_deg_n",
        "lon_12h_ago_deg_e": "lon_deg_e",
    }.items():
        assert (both[before] == both[f"{column}_earlier"]).all()


def test_ice_lasts_no_longer_than_from_freezing_to_break_up(tables):
    winters = tables["load_madison_lake_ice"]
    span = (winters["ice_off"] - winters["ice_on"]).dt.days
    assert (span.isna() | (winters["ice_duration_days"] <= span + 1)).all()
    open_again = winters[(winters["lake"] == "Lake Mendota") & (winters["winter_start_year"] == 2001)].index[0]
    assert (winters["ice_duration_days"][open_again], span[open_again]) == (21, 72)
    assert not winters.duplicated(["lake", "winter_start_year"]).any()


def test_never_forecasting_a_tornado_is_right_more_often_than_finley():
    counts = datasets.load_finley_tornado().set_index(["forecast_tornado", "observed_tornado"])["n"]
    n = counts.sum()
    assert ((counts[1, 1] + counts[0, 0]) / n).round(3) == 0.966
    assert ((counts[1, 0] + counts[0, 0]) / n).round(3) == 0.982
