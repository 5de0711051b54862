"""The files in the `data/` folder of the course's repository."""

from pathlib import Path

import pandas as pd

DATA_FOLDER = Path(__file__).parent.parent.parent / "data"


def data_file(name):
    """Return the path of a file in the data folder; if it is not there, the error says what to do."""
    path = DATA_FOLDER / name
    if not path.is_file():
        raise FileNotFoundError(
            f"The course's data file {name} is not in {DATA_FOLDER}. The data are part of the course's repository: "
            "clone it and install the course from there, with `pip install -e .` in the clone."
        )
    return path


def read_table(name, dates=()):
    """Return a CSV file as a frame with the columns `dates` as times; only an empty cell is missing, never a text."""
    return pd.read_csv(
        data_file(name),
        parse_dates=[*dates],
        keep_default_na=False,  # a code such as "NA" is no missing value
        na_values=[""],
        float_precision="round_trip",  # older versions of pandas get the last bit of some floats wrong
    )
