"""With what tests inspect a page in a browser."""

# Load all lazy pictures. Returns those that failed.
SHOW_ALL = """async () => {
  for (const image of document.images) image.loading = "eager";
  const failed = (image) => image.decode().then(() => null, () => image.src);
  const tried = await Promise.all([...document.images].filter((image) => image.checkVisibility()).map(failed));
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


def wait_until_loaded(page):
    """Wait until a page of the formgrader is loaded. Its security policy forbids `wait_for_function`."""
    for _ in range(300):
        if page.evaluate("Boolean(window.formgrader?.grades?.loaded && MathJax.loaded)"):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(page.url)
