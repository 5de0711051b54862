"""With what tests inspect a page in a browser."""

import functools
import gzip

from axe_playwright_python.sync_playwright import Axe

# Load all lazy pictures that the theme shows. Returns those that failed.
SHOW_ALL = """async () => {
  const shown = [...document.images].filter((image) => image.checkVisibility());
  for (const image of shown) image.loading = "eager";
  const failed = (image) => image.decode().then(() => null, () => image.src);
  const tried = await Promise.all(shown.map(failed));
  return tried.filter((one) => one);
}"""
# Pictures with a wrong aspect ratio
DISTORTED = """() => [...document.querySelectorAll("article img")].filter((image) => image.checkVisibility())
  .filter((image) => Math.abs(image.height * image.naturalWidth / image.width / image.naturalHeight - 1) > 0.02)
  .map((image) => image.src)"""
# Boxes that hide a part of their content, except formulas for assistive technology
CUT = """() => [...document.querySelectorAll("main *")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 1 && !one.closest(".katex"))
  .filter((one) => ["hidden", "clip"].includes(getComputedStyle(one).overflowX) && one.checkVisibility())
  .map((one) => one.outerHTML.slice(0, 200))"""
# The width of the page once its scripts have reacted to a change
NEXT_WIDTH = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
  .then(() => document.documentElement.scrollWidth)"""
# Colours change gradually with the theme, and the theme makes what scrolls focusable 0.3 s after a change of width
SETTLED = """document.getAnimations().every((one) => one.playState !== "running") &&
  [...document.querySelectorAll(".pst-scrollable-table-container")].every(
    (one) => one.tabIndex === 0 || one.scrollWidth <= one.clientWidth)"""
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}


def barriers_of(page, colours=True):
    """Return the accessibility barriers that axe finds on a page, those of its colours only if asked."""
    found = Axe().run(page, options=WCAG | {"rules": {"color-contrast": {"enabled": colours}}})
    return [found.generate_report()] * bool(found.violations_count)


@functools.cache
def bytes_sent(path):
    """Return the bytes that a server sends for a file of the site: it compresses text, but not pictures and fonts."""
    is_text = path.suffix in (".html", ".js", ".css", ".json", ".svg")
    return len(gzip.compress(path.read_bytes())) if is_text else path.stat().st_size


def wait_until_loaded(page):
    """Wait until a page of the formgrader is loaded. Its security policy forbids `wait_for_function`."""
    for _ in range(300):
        if page.evaluate("Boolean(window.formgrader?.grades?.loaded && MathJax.loaded)"):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(page.url)
