"""Cells of the tables that spreadsheets, Moodle and Canvas read."""

import re

FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # first characters of formulas in spreadsheets, also in full width


def cell(value: str | float | None) -> str | float:
    """Return a value for the file: texts are escaped so that no spreadsheet takes them for formulas."""
    if isinstance(value, str):
        # Many spreadsheets end a cell at a semicolon, and read what follows a quotation mark as its text
        value = re.sub(r"""([;\t|\r\n][\s"']*)(?=[=+@＝＋－＠-])""", r"\1'", value)
        return f"'{value}" if value.lstrip("'").startswith(FORMULA) else value
    return "" if value is None else number(value)


def uncelled(text: str) -> str:
    """Return a text as it was before `cell`."""
    text = re.sub(r"""([;\t|\r\n][\s"']*)'(?=[=+@＝＋－＠-])""", r"\1", text)
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(FORMULA) else text


def for_moodle(text: str) -> str:
    """Return a text for a CSV that Moodle reads: for PHP, a backslash would escape the quotation mark after it."""
    return re.sub(r'\\(?="|\Z)', r"\\ ", text)


def number(value: float) -> int | float:
    """Return a number with at most two decimals, and a whole one without any."""
    rounded = round(float(value), 2)
    return int(rounded) if rounded.is_integer() else rounded
