/* The one script of the course: links to report, printing, formulas, the sliders of figures, and questions. */
"use strict";

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

/* The arrow that unfolds the pages of a chapter says whose pages. */
for (const arrow of document.querySelectorAll(".bd-sidebar-primary details > summary")) {
  arrow.setAttribute("aria-label", `Pages of ${arrow.closest("li").querySelector("a").textContent.trim()}`);
}

/* Paper is white: a page is printed in the light theme, whatever the screen shows. */
let shown;
addEventListener("beforeprint", () => {
  shown = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => { document.documentElement.dataset.theme = shown; });

/* What is wider than its line can be scrolled, also by keyboard. All are measured before any is changed. */
const formulas = [...document.querySelectorAll("article :is(.katex-display, span.math)")];
const isWide = (one) => {
  if (one.matches(".katex-display")) return one.scrollWidth > one.clientWidth + 1;
  const line = one.closest("p, li, dd, td, th, label, legend, figcaption, h1, h2, h3") ?? one.parentElement;
  return [...one.querySelectorAll(".base")].some((part) => part.offsetWidth > line.clientWidth);
};
const reach = () => {
  const areWide = formulas.map(isWide);
  formulas.forEach((one, i) => {
    one.classList.toggle("wide", areWide[i]);
    if (areWide[i]) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  });
};
// The bar of buttons changes its size with the screen and with the size of text
new ResizeObserver(reach).observe(document.body);
document.fonts.ready.then(reach);

/* What is unfolded may need to be scrolled: the theme then makes it reachable by keyboard, as after a change of size. */
document.addEventListener("toggle", () => dispatchEvent(new Event("resize")), true);

/* --- The sliders of figures: mlcourse/explore.py says what stands in the page. --- */
for (const figure of document.querySelectorAll("div.explore")) {
  const picture = figure.querySelector("img");
  const sentence = figure.querySelector("p");
  const { sliders, states } = JSON.parse(figure.querySelector("script").textContent);
  const uri = picture.getAttribute("src");
  const start = uri.indexOf(",") + 1;
  const lines = decodeURIComponent(uri.slice(start)).split("\n");

  const show = (event) => {
    let number = 0;
    sliders.forEach((slider) => {
      const text = slider.values[slider.input.value];
      slider.input.setAttribute("aria-valuetext", text);
      slider.value.textContent = text;
      number = number * slider.values.length + Number(slider.input.value);
    });
    const [said, changes] = states[number];
    const changed = [...lines];
    for (const [from, to, text] of changes) changed.splice(from, to - from, ...(text ? text.split("\n") : []));
    if (event) picture.src = uri.slice(0, start) + encodeURIComponent(changed.join("\n"));
    sentence.textContent = said;
  };

  const controls = document.createElement("div");
  controls.className = "explore-sliders";
  for (const slider of sliders) {
    const row = document.createElement("label");
    slider.input = document.createElement("input");
    Object.assign(slider.input, { type: "range", min: 0, max: slider.values.length - 1, value: slider.start });
    slider.input.addEventListener("input", show);
    slider.value = document.createElement("output");
    slider.value.setAttribute("aria-hidden", "true"); // the slider itself says its value
    row.append(Object.assign(document.createElement("span"), { textContent: slider.label }), slider.input, slider.value);
    controls.append(row);
  }
  picture.after(controls);
  show();  // the picture is there already
  sentence.setAttribute("aria-live", "polite");
}

/* --- The questions of the book: check an answer, say why, and remember it on this device only (localStorage). --- */
(() => {
  const quizzes = [...document.querySelectorAll("fieldset.quiz")];
  const prefix = "mlcourse ";

  // A browser may refuse to keep anything: the questions work all the same.
  const memory = (action) => {
    try {
      return action(window.localStorage);
    } catch {
      return null;
    }
  };

  const toNumber = (text) => {
    const plain = text.trim().replace(",", ".").replace("−", "-");
    return plain === "" ? NaN : Number(plain);
  };

  const forgets = quizzes.map((quiz) => {
    const inputs = [...quiz.querySelectorAll(".quiz-answers input")];
    const isChoice = inputs[0].type === "radio";
    if (!isChoice) {
    }
    const buttons = quiz.querySelector(".quiz-buttons");
    const verdict = quiz.querySelector(".quiz-verdict");
    const explanations = [...quiz.querySelectorAll("li[data-key]")];
    const memo = document.createElement("p");
    memo.className = "quiz-memo";
    memo.hidden = true;
    memo.append("Your answer is remembered on this device only. ");
    verdict.after(memo);

    const given = () => (isChoice ? (inputs.find((one) => one.checked) ?? { value: "" }).value : inputs[0].value.trim());

    const clear = () => {
      verdict.replaceChildren();
      memo.hidden = true;
      delete quiz.dataset.result;
    };

    const say = (result, ...content) => {
      clear();
      quiz.dataset.result = result;
      const message = document.createElement("p");
      message.className = result;
      message.append(...content);
      verdict.append(message);
    };

    const find = (answer) => {
      if (isChoice) return explanations.find((one) => one.dataset.key === answer);
      const tolerance = Number(inputs[0].dataset.tolerance) * (1 + 1e-6);
      return explanations.find((one) => Math.abs(toNumber(answer) - Number(one.dataset.value)) <= tolerance);
    };

    const check = () => {
      const answer = given();
      if (isChoice ? !answer : Number.isNaN(toNumber(answer))) {
        say("missing", isChoice ? "Choose an answer first." : "Type a number first, such as 0.25.");
        inputs[0].focus();
        return;
      }
      const explanation = find(answer);
      if (explanation) {
        const why = explanation.querySelector(".quiz-why");
        say(why.classList.contains("right") ? "right" : "wrong", ...why.cloneNode(true).childNodes);
      } else {
        say("wrong", "✗ Not right, and none of the usual mistakes. How to get the number stands under “Answer”.");
      }
      memo.hidden = memory((store) => store.setItem(prefix + quiz.id, answer) ?? true) === null;
    };

    const forget = () => {
      memory((store) => store.removeItem(prefix + quiz.id));
      for (const one of inputs) isChoice ? (one.checked = false) : (one.value = "");
      clear();
    };

    const button = (label, action) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = label;
      made.addEventListener("click", () => {
        action();
        inputs[0].focus();
      });
      memo.append(made, " ");
    };
    button("Forget it", forget);
    button("Forget all answers", () => {
      forgets.forEach((one) => one());
      memory((store) =>
        Object.keys(store)
          .filter((key) => key.startsWith(prefix + "quiz-") || key.startsWith(prefix + "recall-"))
          .forEach((key) => store.removeItem(key)),
      );
    });

    quiz.querySelector(".quiz-check").addEventListener("click", check);
    for (const one of inputs) {
      one.addEventListener(isChoice ? "change" : "input", clear);
      one.addEventListener("keydown", (event) => {
        if (event.key === "Enter") check();
      });
    }
    buttons.hidden = false;

    const remembered = memory((store) => store.getItem(prefix + quiz.id));
    const same = inputs.find((one) => !isChoice || one.value === remembered);
    if (remembered !== null && same) {
      isChoice ? (same.checked = true) : (same.value = remembered);
      check();
    }
    verdict.setAttribute("aria-live", "polite"); // only now: what was remembered is not read aloud at every visit
    return forget;
  });
})();
