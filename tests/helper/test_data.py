"""The files in data/ agree with data/README.md."""

import hashlib
import re

import geopandas
import pandas as pd
import pytest

from paths import ROOT

DATA = ROOT / "data"
TABLE_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*?\| (?P<rows>[\d,]+) \|.*\| (?P<sha256>\S+) \|$", re.MULTILINE)

LISTED = {row["name"]: row for row in TABLE_ROW.finditer((DATA / "README.md").read_text(encoding="utf-8"))}
STORED = {path.name: path for path in DATA.iterdir() if path.name != "README.md"}


def test_the_readme_lists_exactly_the_stored_files():
    assert sorted(LISTED) == sorted(STORED)


@pytest.mark.parametrize("name", LISTED)
def test_a_file_has_the_hash_that_the_readme_gives(name):
    assert hashlib.sha256(STORED[name].read_bytes()).hexdigest() == LISTED[name]["sha256"]


@pytest.mark.parametrize("name", LISTED)
def test_a_file_has_the_number_of_rows_that_the_readme_gives(name):
    read = geopandas.read_file if name.endswith(".geojson") else pd.read_csv
    assert len(read(STORED[name])) == int(LISTED[name]["rows"].replace(",", ""))


@pytest.mark.parametrize("name", STORED)
def test_a_file_is_small_enough_to_clone_quickly(name):
    assert STORED[name].stat().st_size < 2_000_000
