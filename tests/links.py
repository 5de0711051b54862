"""Check every external address that pages and sources name: `make check-links`.

    python tests/links.py [--timeout 20] [--retries 2]

In `make test`, test_site.py checks the links within the site only, since other hosts come and go.
"""

import argparse
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urldefrag

import requests
import urllib3
from bs4 import BeautifulSoup

from paths import ROOT

SOURCES = (
    "*.md",
    "*.bib",
    "*.cff",
    "_config.yml",
    "book/*.md",
    "data/*.md",
    "mlcourse/**/*.py",
    "course*/**/*.py",
    "solutions/*.md",
)
ADDRESS = re.compile(r"https?://[^\s<>()\[\]{}\"'`|\\]+")
# Not links: addresses of this machine, and identifiers that look like addresses
NO_LINK = re.compile(r"https?://(?:127\.0\.0\.1|localhost|www\.w3\.org/(?:1999|2000)/)")
BROWSER = {"User-Agent": "Mozilla/5.0 (compatible; link check of a course)"}
AGAIN = (429, 500, 502, 503, 504)
FINE, MOVED, REFUSED, BROKEN, SILENT = "fine", "moved", "refused", "broken", "silent"


@dataclass
class Answer:
    """The result for an address: one of the words above, and the reason."""

    result: str
    reason: str = ""


def main() -> None:
    """Print a table of the addresses that need a look; exit with 1 if one of them is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timeout", type=float, default=20, help="seconds to wait for an answer")
    parser.add_argument("--retries", type=int, default=2, help="how often to ask again")
    options = parser.parse_args()
    places = addresses_of_sources(ROOT)
    for address, pages in addresses_of_site(ROOT / "_build" / "html").items():
        places.setdefault(address, []).extend(pages)
    print(f"Asking {len(places)} addresses ...", flush=True)
    sys.exit(report(ask_all(places, options.timeout, options.retries), places))


def addresses_of_sources(root):
    """Return the addresses in sources, each with the places that name it."""
    places = {}
    for path in sorted(path for pattern in SOURCES for path in root.glob(pattern)):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            doi = re.search(r"doi = \{(.*)\}", line)
            found = [f"https://doi.org/{doi[1]}"] if doi else ADDRESS.findall(line)
            for address in {urldefrag(one.rstrip(".,;:*"))[0] for one in found if not NO_LINK.match(one)}:
                places.setdefault(address, []).append(f"{path.relative_to(root).as_posix()}:{number}")
    return places


def addresses_of_site(site):
    """Return the addresses that the built pages link to, each with the pages."""
    places = {}
    for path in sorted(path for path in site.rglob("*.html") if "_static" not in path.parts):
        page = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        found = {urldefrag(link["href"])[0] for link in page.select("a[href^=http]")}
        for address in sorted(one for one in found if not NO_LINK.match(one)):
            places.setdefault(address, []).append(path.relative_to(site).as_posix())
    return places


def ask_all(addresses, timeout, retries):
    """Return the answer of each address."""
    again = urllib3.Retry(retries, backoff_factor=0.5, status_forcelist=AGAIN, raise_on_status=False)
    with requests.Session() as session, ThreadPoolExecutor(8) as pool:
        session.headers.update(BROWSER)
        for scheme in ("https://", "http://"):
            session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=again))
        answers = pool.map(lambda address: ask(session, address, timeout), addresses)
        return dict(zip(addresses, answers))


def ask(session, address, timeout):
    """Request the head of a page, and the page itself if the head is refused."""
    # doi.org itself says whether a DOI exists; many publishers refuse programs
    follow = not address.startswith("https://doi.org/")
    try:
        answer = session.head(address, timeout=timeout, allow_redirects=follow)
        if not answer.ok:
            with session.get(address, timeout=timeout, allow_redirects=follow, stream=True) as answer:
                return judged(answer)
        return judged(answer)
    except requests.exceptions.SSLError:
        return Answer(BROKEN, "its certificate is not valid")
    except (requests.ConnectionError, requests.Timeout) as error:
        return Answer(SILENT, why_silent(getattr(error.args[0], "reason", error.args[0]), timeout))
    except requests.RequestException as error:
        return Answer(BROKEN, type(error).__name__)


def why_silent(cause, timeout):
    if isinstance(cause, urllib3.exceptions.NameResolutionError):
        return "no such host"
    # The connection was refused: urllib3 counts this among the time-outs
    if isinstance(cause, urllib3.exceptions.NewConnectionError):
        return "no connection"
    return f"no answer within {timeout:g} s" if isinstance(cause, urllib3.exceptions.TimeoutError) else "no connection"


def judged(answer):
    if answer.status_code in (401, 403, 429):
        return Answer(REFUSED, f"{answer.status_code}: look at it in a browser")
    if not answer.ok:
        return Answer(BROKEN, str(answer.status_code))
    if any(step.status_code in (301, 308) for step in answer.history):
        return Answer(MOVED, f"to {answer.url}")
    return Answer(FINE)


def report(answers, places):
    """Print a table of the addresses that need a look, with their places, and return the exit code."""
    counts = Counter(answer.result for answer in answers.values())
    if answers and counts[SILENT] == len(answers):
        print(f"Error: no network: none of {len(answers)} addresses answered, so none was checked", file=sys.stderr)
        return 1
    rows = [
        (answer.result, answer.reason, address, f"{places[address][0]} (and {len(places[address]) - 1} more)")
        for address, answer in answers.items()
        if answer.result != FINE
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in sorted(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).replace(" (and 0 more)", "").rstrip())
    print(f"{len(answers)} addresses: {', '.join(f'{n} {result}' for result, n in sorted(counts.items()))}")
    return int(counts[BROKEN] + counts[SILENT] > 0)


if __name__ == "__main__":
    main()
