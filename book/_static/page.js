/* The link "Report a problem" names the section that the reader is at: the last heading above the middle of the screen. */
const nameSection = (event) => {
  const link = event.target.closest?.("a.btn-report-button");
  if (!link) return;
  const headings = [...document.querySelectorAll("article :is(h1, h2, h3, h4)")];
  const heading = headings.findLast((one) => one.getBoundingClientRect().top < innerHeight / 2) ?? headings[0];
  const sign = heading.querySelector(".headerlink");
  const title = heading.textContent.replace(sign?.textContent ?? "", "").trim();
  const address = new URL(link.href);
  const body = address.searchParams.get("body").replace(/^Section:.*$/m, () => `Section: ${title} (${sign?.hash ?? ""})`);
  address.searchParams.set("body", body);
  link.href = address;
};
for (const kind of ["pointerdown", "focusin", "click"]) document.addEventListener(kind, nameSection);

/* The button with a text is called what it shows, "Search Ctrl+K", without its icon, so that it can be asked for by
   voice. */
document.querySelector(".search-button-field")?.removeAttribute("aria-label");
document.querySelector(".search-button-field i")?.setAttribute("aria-hidden", "true");

/* Paper is white: a page is printed in the light theme, whatever the screen shows. */
let shown;
addEventListener("beforeprint", () => {
  shown = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => { document.documentElement.dataset.theme = shown; });

/* The layout of a whole chapter keeps a phone busy: the sections that are not on the screen get theirs one after the
   other, when there is nothing else to do. Whoever does something, or comes to a place further down, needs all of them,
   since places would move. */
const sections = [...document.querySelectorAll("article section section")];
const layOut = (count) => {
  if (!sections.length) return;
  sections.splice(0, count).forEach((section) => section.classList.add("laid-out"));
  if (!sections.length) dispatchEvent(new Event("resize"));  // the theme looks for boxes that can be scrolled
};
const whenIdle = window.requestIdleCallback ?? setTimeout;
const layOutNext = () => {
  layOut(1);
  if (sections.length) whenIdle(layOutNext);
};
const layOutAll = () => layOut(sections.length);
const isNew = performance.getEntriesByType("navigation")[0]?.type === "navigate" && !location.hash;
if (isNew) requestAnimationFrame(() => whenIdle(layOutNext));  // the page is shown first
else layOutAll();
for (const kind of ["pointerdown", "keydown", "scroll", "beforeprint"]) addEventListener(kind, layOutAll);

/* A formula is set when it comes within two screens of the reader: a chapter has hundreds, and a phone would be busy
   with them for many seconds. MathJax itself, as much code as all else, waits until a formula is a screen away, the
   reader does something, or everything else is done. Before a page is printed all other formulas follow. The fonts
   stand in mathjax.css. */
let startMathJax;
if (window.MathJax) {
  const all = document.querySelectorAll(".math");
  const waiting = [];
  let busy = false;
  // What is wider than its line can be scrolled, also by keyboard. All are measured before any is changed.
  const reach = (formulas) => {
    const boxes = [...formulas].flatMap((one) => [one, ...one.querySelectorAll("mjx-container")]);
    const areWide = boxes.map((box) => box.scrollWidth > box.clientWidth + 1);
    boxes.forEach((box, i) => {
      box.classList.add("set");
      box.classList.toggle("wide", areWide[i]);
      if (areWide[i]) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    });
  };
  // The bar of buttons changes its size with the screen and with the size of text
  const ruler = new ResizeObserver(() => reach(document.querySelectorAll(".math.set")));
  ruler.observe(document.querySelector(".bd-header-article"));
  const setNext = async () => {
    busy = waiting.length > 0;
    if (!busy) return;
    const formula = waiting.shift();
    await MathJax.typesetPromise([formula]);
    reach([formula]);
    setTimeout(setNext);
  };
  const near = new IntersectionObserver((entries) => {
    const formulas = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    formulas.forEach((formula) => near.unobserve(formula));
    waiting.push(...formulas);
    if (!busy) setNext();
  }, { rootMargin: "200%" });
  const started = new Promise((resolve) => {
    MathJax.startup = {
      pageReady: () => {
        MathJax.startup.document.outputJax.font.addFontURLs = () => {};
        all.forEach((formula) => near.observe(formula));
        resolve();
      },
    };
  });
  const first = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) startMathJax();
  }, { rootMargin: "100%" });
  startMathJax = () => {
    first.disconnect();
    const script = document.createElement("script");
    script.src = document.querySelector("link[rel=prefetch][href*=mathjax]").href;
    document.head.append(script);
    startMathJax = () => started;
    return started;
  };
  all.forEach((formula) => first.observe(formula));
  for (const kind of ["pointerdown", "keydown", "scroll"]) addEventListener(kind, () => startMathJax(), { once: true });
  addEventListener("load", () => setTimeout(() => startMathJax(), 3000));
  addEventListener("beforeprint", () => {
    MathJax.typeset?.();
    reach(all);
  });
}

/* The list of a page's sections, which shows where the reader is, stands beside the text on wide screens only. */
if (!matchMedia("(min-width: 1200px)").matches) document.body.removeAttribute("data-bs-spy");

/* What is unfolded may need to be scrolled: the theme then makes it reachable by keyboard, as after a change of size. */
document.addEventListener("toggle", () => dispatchEvent(new Event("resize")), true);
