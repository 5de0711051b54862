/* The one script of every page: links to report, search, printing, formulas, sliders, questions, what was read. */
"use strict";

/* Answers, and what was read, are kept on this device only (localStorage). A browser may refuse to keep anything: the
   result is then null, and all else works. */
const prefix = "mlcourse ";
const memory = (action) => {
  try {
    return localStorage instanceof Storage ? action(localStorage) : null; // otherwise it is that of layout.html
  } catch {
    return null;
  }
};
const kept = (key) => memory((store) => store.getItem(prefix + key));
const keep = (key, value) => memory((store) => store.setItem(prefix + key, value) ?? true);
const forgetAll = (...kinds) => {
  const keys = memory((store) => Object.keys(store)) ?? [];
  for (const key of keys.filter((one) => kinds.some((kind) => one.startsWith(prefix + kind)))) {
    memory((store) => store.removeItem(key));
  }
  return dispatchEvent(new Event("storage")); // the browser tells other tabs alone
};

/* The section that the reader is at: the last heading above the middle of the screen. */
const section = () => {
  const headings = [...document.querySelectorAll("article :is(h1, h2, h3, h4)")];
  const heading = headings.findLast((one) => one.getBoundingClientRect().top < innerHeight / 2) ?? headings[0];
  const sign = heading.querySelector(".headerlink");
  return { title: heading.textContent.replace(sign?.textContent ?? "", "").trim(), hash: sign?.hash ?? "" };
};

/* The link "Report a problem" names the section. */
const nameSection = (event) => {
  const link = event.target.closest?.("a.btn-report-button");
  if (!link) return;
  const { title, hash } = section();
  const address = new URL(link.href);
  const body = address.searchParams.get("body").replace(/^Section:.*$/m, () => `Section: ${title} (${hash})`);
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

/* The search and its index are loaded when a reader is about to search. */
const loadSearch = () => {
  const folder = `${document.documentElement.dataset.content_root}_static/`;
  for (const name of ["minisearch-7.2.0/index.js", "search-index.js", "search.js"]) {
    document.head.append(Object.assign(document.createElement("script"), { src: folder + name, async: false }));
  }
};
if (document.querySelector(".bd-search-container")) loadSearch();
else document.querySelector("#pst-search-dialog")?.addEventListener("focusin", loadSearch, { once: true });

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
  // The site lists the colours and their partners of the dark theme. What has no colour in an SVG is black.
  const colours = JSON.parse(figure.dataset.dark ?? "null");
  const darkPicture = colours && picture.cloneNode();
  const showDark = (svg) => {
    const dark = svg.replace(/#[0-9a-f]{6}\b/g, (one) => colours[one]);
    darkPicture.src = uri.slice(0, start) + encodeURIComponent(dark.replace("<svg", `<svg fill="${colours["#000000"]}"`));
  };

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
    if (colours) showDark(changed.join("\n"));
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
  if (colours) {
    picture.classList.add("light-figure");
    darkPicture.classList.add("dark-figure");
    picture.after(darkPicture);
  }
  show();  // the picture is there already
  sentence.setAttribute("aria-live", "polite");
}

const forgetAnswers = () => {
  if (!confirm("Forget all your answers to the questions of this book?")) return false;
  forgets.forEach((one) => one());
  return forgetAll("quiz-", "recall-");
};

const forgetReading = () =>
  confirm("Forget which pages you have read, and where you were?") && forgetAll("read-", "place");

/* --- The questions of the book: check an answer, say why, and remember it. --- */
const forgets = (() => {
  const quizzes = [...document.querySelectorAll("fieldset.quiz")];

  // What a text may mean: a comma is that of a decimal fraction, or of thousands as in 4,217. A sign for per cent is left out.
  const toNumbers = (text) => {
    const plain = text.replace("−", "-").replace(/\s+|%$/g, "");
    const whole = /^-?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$/.test(plain) ? [plain.replaceAll(",", "")] : [];
    return [plain.replace(",", "."), ...whole].filter((one) => one !== "").map(Number).filter((one) => !Number.isNaN(one));
  };

  return quizzes.map((quiz) => {
    const inputs = [...quiz.querySelectorAll(".quiz-answers input")];
    const isChoice = inputs[0].type === "radio";
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
      return explanations.find((one) => distance(answer, one) <= tolerance);
    };
    const distance = (answer, one) => Math.min(...toNumbers(answer).map((number) => Math.abs(number - Number(one.dataset.value))));
    const isNearlyRight = (answer) => {
      const right = explanations.find((one) => one.querySelector(".quiz-why.right"));
      return distance(answer, right) < 0.05 * Math.abs(Number(right.dataset.value));
    };

    const check = () => {
      const answer = given();
      if (isChoice ? !answer : !toNumbers(answer).length) {
        say("missing", isChoice ? "Choose an answer first." : "Type a number first, such as 0.25.");
        inputs[0].focus();
        return;
      }
      const explanation = find(answer);
      if (explanation) {
        const why = explanation.querySelector(".quiz-why");
        say(why.classList.contains("right") ? "right" : "wrong", ...why.cloneNode(true).childNodes);
      } else if (isNearlyRight(answer)) {
        say("wrong", "✗ Nearly. Give more digits, or compute it once more.");
      } else {
        say("wrong", "✗ Not right, and none of the usual mistakes. How to get the number stands under “Answer”.");
      }
      memo.hidden = keep(quiz.id, answer) === null;
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
    button("Forget all answers", forgetAnswers);

    quiz.querySelector(".quiz-check").addEventListener("click", check);
    for (const one of inputs) {
      one.addEventListener(isChoice ? "change" : "input", clear);
      one.addEventListener("keydown", (event) => {
        if (event.key === "Enter") check();
      });
    }
    buttons.hidden = false;

    const remembered = kept(quiz.id);
    const same = inputs.find((one) => !isChoice || one.value === remembered);
    if (remembered !== null && same) {
      isChoice ? (same.checked = true) : (same.value = remembered);
      check();
    }
    verdict.setAttribute("aria-live", "polite"); // only now: what was remembered is not read aloud at every visit
    return forget;
  });
})();

/* --- What was read: pages of chapters whose end came into view, and the section where the reader was last. --- */
(() => {
  const LOOK_BACK = 60_000; // milliseconds on a page that was read before, until the place of the reader is there
  const root = new URL(document.documentElement.dataset.content_root, location).pathname;
  const nameOf = (link) => link.pathname.slice(root.length); // such as book/linear-models/solvers.html
  const links = [...document.querySelectorAll(".bd-sidebar-primary .toctree-l2 > a")]; // to the pages of all chapters
  const titles = new Map(links.map((link) => [nameOf(link), link.textContent.trim()]));
  // A page that opens a chapter, or the book, stands for the pages in its folder, any other for itself
  const pagesOf = (link) => {
    const start = nameOf(link).replace(/index\.html$/, "");
    return [...titles.keys()].filter((page) => page.startsWith(start));
  };
  const isRead = (page) => kept(`read-${page}`) !== null;
  const questionsOf = (row) => row.dataset.questions.split(" ").filter(Boolean);

  const make = (tag, properties, ...parts) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...parts);
    return made;
  };

  /* What is done, in words; nothing if nothing is. Questions that a chapter repeats from earlier ones do not count. */
  const progress = (pages, questions) => {
    const read = pages.filter(isRead).length;
    const answered = questions.filter((quiz) => kept(`quiz-${quiz}`) !== null).length;
    if (!read && !answered) return "";
    const ofQuestions = `${answered} of ${questions.length} question${questions.length > 1 ? "s" : ""} answered`;
    const ofPages = pages.length > 1 ? `${read} of ${pages.length} pages read` : read && "✓ read";
    return [ofPages, questions.length && ofQuestions].filter(Boolean).join(", ");
  };

  /* A link to the place where the reader was, if it is on one of the pages; from the end of a page, to the next unread one. */
  const lastPlace = (pages) => {
    const place = memory(() => JSON.parse(kept("place")));
    if (!pages.includes(place?.page)) return [];
    const [then, today] = [place.time, Date.now()].map((time) => new Date(time).setHours(0, 0, 0, 0));
    const days = Math.round((then - today) / 86_400_000);
    const day = new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(days, "day"); // such as "yesterday"
    const title = titles.get(place.page);
    const names = [...titles.keys()];
    const following = names.slice(names.indexOf(place.page) + 1).find((page) => !isRead(page));
    if (place.atEnd && following) {
      return ["Continue: ", make("a", { href: root + following }, titles.get(following)), `. You read ${title} ${day}.`];
    }
    const words = place.title === title ? title : `${title}, section “${place.title.replace(/^[\d.]+ /, "")}”`;
    return ["Continue: ", make("a", { href: root + place.page + place.hash }, words), `, read ${day}.`];
  };

  const box = document.querySelector("div.continue"); // on the first page and at the opening of a chapter
  const button = (label, forget) => {
    const onclick = () => {
      if (!forget()) return;
      box.prepend(make("p", {}, "Forgotten."));
      box.focus(); // the button is gone
    };
    return make("button", { type: "button", onclick }, label);
  };

  const show = () => {
    for (const link of document.querySelectorAll(".bd-sidebar-primary :is(.toctree-l2, .has-children) > a")) {
      link.querySelector(".read")?.remove();
      const mark = make("span", { className: "read", role: "img", ariaLabel: "read" }, "✓");
      if (pagesOf(link).every(isRead)) link.append(mark);
    }
    const rows = [...document.querySelectorAll("small.reading")];
    for (const row of rows) row.textContent = progress(pagesOf(row.closest("td, .sd-card").querySelector("a")), questionsOf(row));
    if (!box) return;
    const pages = pagesOf(location);
    const done = progress(pages, rows.flatMap(questionsOf));
    const lines = [lastPlace(pages), done && [done, "."]].filter((line) => line.length);
    box.tabIndex = -1;
    box.replaceChildren(...lines.map((line) => make("p", {}, ...line)));
    if (!lines.length) return;
    const buttons = [button("Forget my reading", forgetReading), " ", button("Forget all answers", forgetAnswers)];
    box.append(make("p", { className: "kept" }, "This is kept on this device only. ", ...buttons));
  };
  show();
  addEventListener("storage", show);
  addEventListener("pageshow", (event) => event.persisted && show()); // back from another page

  const page = nameOf(location);
  if (!titles.has(page)) return;
  const readBefore = isRead(page);
  const end = document.querySelector(".prev-next-area");
  let timer;
  const keepPlace = () => {
    if (document.hidden || (readBefore && performance.now() < LOOK_BACK)) return;
    const atEnd = end.getBoundingClientRect().top < innerHeight;
    keep("place", JSON.stringify({ page, time: Date.now(), atEnd, ...section() }));
  };
  const keepPlaceSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(keepPlace, 300);
  };
  keepPlaceSoon();
  for (const kind of ["scroll", "visibilitychange"]) document.addEventListener(kind, keepPlaceSoon);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    keep(`read-${page}`, "yes");
    show();
  }).observe(end);
})();
