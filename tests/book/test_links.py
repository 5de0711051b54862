"""The check of addresses outside the course, against a host on this machine."""

import http.server
import socket
import threading
import time

import pytest

import links

SEEN = set()


class Host(http.server.BaseHTTPRequestHandler):
    """Respond with the status in the path; `/no-head` allows only GET, `/busy` succeeds at the second request."""

    def do_HEAD(self):
        first = self.path not in SEEN
        SEEN.add(self.path)
        if self.path == "/slow":
            time.sleep(2)
        status = 405 if self.path == "/no-head" else 503 if self.path == "/busy" and first else 200
        self.send_response(int(self.path[1:]) if self.path[1:].isdigit() else status)
        self.send_header("Content-Length", "0")
        if self.path in ("/301", "/302"):
            self.send_header("Location", "/here")
        self.end_headers()

    def do_GET(self):
        self.path = self.path.replace("/no-head", "/200")
        self.do_HEAD()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def host():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def nobody():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # in use, but not listening
        yield f"http://127.0.0.1:{closed.getsockname()[1]}/page"


def ask(address, retries=0):
    return links.ask_all([address], timeout=0.5, retries=retries)[address]


@pytest.mark.parametrize("page", ["/200", "/302", "/no-head"])
def test_a_page_that_is_there_is_fine(host, page):
    assert ask(host + page) == links.Answer("fine")


def test_a_page_that_has_moved_for_good_is_named_with_its_new_address(host):
    assert ask(f"{host}/301") == links.Answer("moved", f"to {host}/here")


@pytest.mark.parametrize("page", ["/404", "/410", "/500"])
def test_a_page_that_is_gone_is_broken(host, page):
    assert ask(host + page) == links.Answer("broken", page[1:])


def test_a_host_that_lets_no_program_in_is_for_a_person_to_look_at(host):
    assert ask(f"{host}/403") == links.Answer("refused", "403: look at it in a browser")


def test_a_busy_host_is_asked_again(host):
    assert ask(f"{host}/busy", retries=1) == links.Answer("fine")


def test_no_answer_in_time_and_no_host_are_silent(host, nobody):
    assert ask(f"{host}/slow") == links.Answer("silent", "no answer within 0.5 s")
    assert ask(nobody) == links.Answer("silent", "no connection")


def test_the_table_shows_what_needs_a_look_and_where_it_stands(host, capsys):
    places = {f"{host}/200": ["a.md:1"], f"{host}/404": ["a.md:2", "b.md:7"], f"{host}/301": ["b.md:3"]}
    assert links.report(links.ask_all(places, timeout=5, retries=0), places) == 1
    *table, summary = capsys.readouterr().out.splitlines()
    assert [line.split() for line in table] == [
        ["broken", "404", f"{host}/404", "a.md:2", "(and", "1", "more)"],
        ["moved", "to", f"{host}/here", f"{host}/301", "b.md:3"],
    ]
    assert summary == "3 addresses: 1 broken, 1 fine, 1 moved"


def test_what_has_only_moved_is_no_failure(host, capsys):
    places = {f"{host}/301": ["a.md:1"]}
    assert links.report(links.ask_all(places, timeout=5, retries=0), places) == 0


def test_without_a_network_one_sentence_says_so(nobody, capsys):
    places = {nobody: ["a.md:1"]}
    assert links.report(links.ask_all(places, timeout=5, retries=0), places) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "Error: no network: none of 1 addresses answered, so none was checked\n"


def test_addresses_come_from_sources_and_from_pages(tmp_path):
    (tmp_path / "README.md").write_text("See [x](https://a.org/x#y), https://b.org. Not http://127.0.0.1:8000/.\n")
    (tmp_path / "references.bib").write_text("@book{c,\n  doi = {10.1/c(2)<3>},\n}\n")
    (tmp_path / "index.html").write_text('<a href="https://a.org/x">x</a> <a href="page.html">y</a>')
    assert links.addresses_of_sources(tmp_path) == {
        "https://a.org/x": ["README.md:1"],
        "https://b.org": ["README.md:1"],
        "https://doi.org/10.1/c(2)<3>": ["references.bib:2"],
    }
    assert links.addresses_of_site(tmp_path) == {"https://a.org/x": ["index.html"]}
