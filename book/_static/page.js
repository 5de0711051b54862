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

/* Paper is white: a page is printed in the light theme, whatever the screen shows. */
let shown;
addEventListener("beforeprint", () => {
  shown = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => { document.documentElement.dataset.theme = shown; });
