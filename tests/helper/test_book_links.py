"""The hints of checks lead to the book: on this machine if it is there, else on the site."""

import pytest

from mlcourse.book import VARIABLE, address

PLACE = "introduction/a-line-and-its-loss.html#sec-toy-loss"
SITE = '[tool.mlcourse]\nsite = "https://example.org/course/"\n'


@pytest.fixture(autouse=True)
def without_server(monkeypatch):
    for name in (VARIABLE, "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_the_site_of_the_settings_has_the_book(tmp_path):
    (tmp_path / "pyproject.toml").write_text(SITE)
    assert address(PLACE, tmp_path) == f"https://example.org/course/book/{PLACE}"


@pytest.mark.parametrize("folder", ["book", "book-offline/book", "_build/html"])
def test_a_book_on_this_machine_is_taken_first(tmp_path, folder):
    (tmp_path / "pyproject.toml").write_text(SITE)
    (tmp_path / folder / "book").mkdir(parents=True)
    (tmp_path / folder / "book" / "index.html").touch()
    assert address(PLACE, tmp_path) == f"{(tmp_path / folder).resolve().as_uri()}/book/{PLACE}"


def test_on_a_hub_the_book_is_on_the_site_since_the_browser_is_on_another_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "x")
    (tmp_path / "pyproject.toml").write_text(SITE)
    (tmp_path / "book" / "book").mkdir(parents=True)
    (tmp_path / "book" / "book" / "index.html").touch()
    assert address(PLACE, tmp_path) == f"https://example.org/course/book/{PLACE}"


def test_the_server_says_where_it_shows_the_book(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "http://localhost:8888/mlcourse/site")
    assert address(PLACE, tmp_path) == f"http://localhost:8888/mlcourse/site/book/{PLACE}"


@pytest.mark.parametrize("settings", ["", "[tool.mlcourse]\nsite = 3", "[tool", "[tool.mlcourse]\nsite = ''"])
def test_without_a_book_and_a_site_there_is_no_address(tmp_path, settings):
    (tmp_path / "pyproject.toml").write_text(settings)
    assert address(PLACE, tmp_path) is None
