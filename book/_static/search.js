/* The search, which course.js loads when a reader is about to search: what the glossary says of a term, then the sections
   that have the words, page by page. SEARCH_INDEX is made by coursebook/site/search.py; MiniSearch finds and ranks. */
"use strict";

(() => {
  const PAGES = 20;
  const SECTIONS_OF_A_PAGE = 3;
  const TERMS = 3;
  const EXCERPT = 180;  // characters
  const COMMON = new Set(
    "a an and are as at be by can do does for from how i in is it of on or that the this to what when which why with".split(" "),
  );
  const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;

  /* Words are equal whatever their case and accents are, in the singular and in the plural. */
  const base = (word) => {
    const plain = word.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    if (COMMON.has(plain)) return null;
    return plain.length < 4 ? plain : plain.replace(/sses$/, "ss").replace(/ies$/, "y").replace(/([^su])s$/, "$1");
  };

  const { sections, terms } = SEARCH_INDEX;
  const records = [
    ...terms.map(({ name, definition, ...term }) => ({
      ...term, title: name, names: [...term.also, ...term.related].join("\n"), text: definition,
    })),
    ...sections,
  ].map((record, id) => ({ ...record, id }));
  const titles = new Map(sections.filter((one) => !one.anchor).map(({ page, title }) => [page, title]));

  const index = new MiniSearch({
    fields: ["title", "names", "text", "code"],
    tokenize: (text) => text.match(WORD) ?? [],
    processTerm: base,
    searchOptions: {
      boost: { title: 6, names: 3, code: 0.5 },
      combineWith: "AND",
      // What is typed may go on, and may be spelled as in America
      prefix: (word) => word.length > 1,
      fuzzy: (word) => (word.length > 6 ? 1 : false),
    },
  });
  index.addAll(records);

  const make = (name, properties = {}, ...content) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...content);
    return made;
  };

  /* A text with the words that were found marked. */
  const marked = (text, found) => {
    const parts = [];
    let end = 0;
    for (const { 0: word, index: start } of text.matchAll(WORD)) {
      if (!found.has(base(word))) continue;
      parts.push(text.slice(end, start), make("mark", {}, word));
      end = start + word.length;
    }
    return [...parts, text.slice(end)];
  };

  /* The part of a text that has the most of the words, or null if it has none. */
  const excerpt = (text, found) => {
    const places = [...text.matchAll(WORD)].filter(([word]) => found.has(base(word)));
    if (!places.length) return null;
    const wordsAfter = ({ index: from }) =>
      new Set(places.filter(({ index: at }) => at >= from && at < from + EXCERPT * 0.6).map(([word]) => base(word))).size;
    const { index: at } = places.reduce((best, one) => (wordsAfter(one) > wordsAfter(best) ? one : best));
    // From the start of the sentence if that is near
    const before = text.slice(Math.max(0, at - EXCERPT / 3), at);
    const sentence = before.lastIndexOf(". ") + 1;
    const start = before.length === at ? 0 : at - before.length + (sentence || before.indexOf(" ")) + 1;
    const rest = text.slice(start);
    const shown = rest.length <= EXCERPT ? rest : rest.slice(0, rest.lastIndexOf(" ", EXCERPT));
    return [start && !sentence ? "… " : "", ...marked(shown, found), shown.length < rest.length ? " …" : ""];
  };

  /* What readers of a line of code need is that line. */
  const lineOfCode = (code, found) => code.split("\n").find((line) => line.match(WORD)?.some((word) => found.has(base(word))));

  const root = document.documentElement.dataset.content_root;
  const link = ({ page, anchor }, ...content) => make("a", { href: `${root}${page}${anchor && "#"}${anchor}` }, ...content);

  /* A section below the title of its page; what stands before the first section needs no title of its own. */
  const sectionItem = ({ record, found }) => {
    const item = make("li");
    if (record.anchor) item.append(link(record, ...marked(record.title, found)));
    const words = excerpt(record.text, found);
    const line = !words && lineOfCode(record.code ?? "", found);
    if (words) item.append(make("p", {}, ...words));
    else if (line) item.append(make("p", {}, make("code", {}, ...marked(line.trim(), found))));
    return item;
  };

  const termItem = ({ record, found, asked: { name, kind } }) => {
    const before = { also: `${name}, here called `, related: `${name}: see ` }[kind] ?? "";
    const definition = make("p", {}, ...marked(record.text, found));
    return make("li", {}, before, link(record, ...marked(record.title, found)), definition);
  };

  /* The name by which a term was asked for, if it has all of the words, and how well it fits: the less, the better. */
  const askedName = (record, found, count) => {
    const names = [["title", [record.title]], ["also", record.also], ["related", record.related]];
    const fits = names.flatMap(([kind, ones], rank) => ones.map((name) => {
      const words = (name.match(WORD) ?? []).map(base).filter(Boolean);
      const hits = words.filter((word) => found.has(word)).length;
      const others = words.length - hits;
      return { name, kind, hits, fit: 100 * others + 10 * rank + words.findIndex((word) => found.has(word)) };
    }));
    return fits.filter(({ hits }) => hits >= count).sort((a, b) => a.fit - b.fit)[0];
  };

  /* What the glossary says of the words, and the other results by page. */
  const search = (query) => {
    const words = [...new Set((query.match(WORD) ?? []).map(base).filter(Boolean))];
    let hits = index.search(query);
    const hasAll = hits.length > 0;
    if (!hasAll) hits = index.search(query, { combineWith: "OR", fuzzy: 0.2 });
    const results = hits.map(({ id, terms: matched }) => {
      const record = records[id], found = new Set(matched);
      return { record, found, asked: hasAll && record.also && askedName(record, found, words.length) };
    });
    const defined = results.filter(({ asked }) => asked).sort((a, b) => a.asked.fit - b.asked.fit).slice(0, TERMS);
    const pages = new Map();
    for (const one of results.filter((result) => !defined.includes(result))) {
      const { page } = one.record;
      pages.set(page, [...(pages.get(page) ?? []), one]);
    }
    return { words, hasAll, defined, pages };
  };

  const countOf = ({ words, hasAll, defined, pages }, query) => {
    if (!words.length) return "";
    if (!defined.length && !pages.size) return `Nothing was found for “${query}”.`;
    const counts = [[defined.length, "definition"], [pages.size, "page"]].filter(([count]) => count)
      .map(([count, name]) => `${count} ${name}${count === 1 ? "" : "s"}`).join(" and ");
    return hasAll ? `${counts}.` : `No section has all of these words. With some of them: ${counts}.`;
  };

  const show = (query, { status, list }) => {
    const results = search(query);
    const { words, defined, pages } = results;
    status.textContent = countOf(results, query);
    list.replaceChildren();
    const group = (title, items) => list.append(make("section", {}, make("h2", {}, title), make("ul", {}, ...items)));
    if (defined.length) group("What the words mean", defined.map(termItem));
    for (const [page, found] of [...pages].slice(0, PAGES)) {
      const title = link({ page, anchor: "" }, ...marked(titles.get(page), found[0].found));
      const best = found.slice(0, SECTIONS_OF_A_PAGE).sort((a, b) => Boolean(a.record.anchor) - Boolean(b.record.anchor));
      group(title, best.map(sectionItem));
    }
    if (pages.size > PAGES) list.append(make("p", {}, `The first ${PAGES} are shown: another word makes them fewer.`));
    if (words.length && !defined.length && !pages.size) {
      const glossary = link({ page: "book/glossary.html", anchor: "" }, "glossary");
      list.append(make("p", {}, "Try another word, or look into the ", glossary, ", which has other words for many terms."));
    }
  };

  /* The field of the search page, or that of the dialog that every other page has. */
  const dialog = document.getElementById("pst-search-dialog");
  const page = document.querySelector(".bd-search-container");
  const place = page ?? dialog;
  const form = place.querySelector("form.bd-search");
  const field = form.querySelector("input");
  const output = { status: make("p", { role: "status" }), list: make("div") };
  const found = make("div", { id: "found" }, output.status, output.list);
  place.append(found);

  const update = () => {
    show(field.value.trim(), output);
    found.hidden = !field.value.trim();
    if (page) history.replaceState(null, "", field.value ? `?q=${encodeURIComponent(field.value)}` : location.pathname);
  };
  if (page) {
    field.value = new URLSearchParams(location.search).get("q") ?? "";
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
  field.addEventListener("input", update);
  update();

  /* The arrows go from the field to the results and back. */
  place.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const stops = [field, ...output.list.querySelectorAll("a")];
    const next = stops[stops.indexOf(document.activeElement) + step];
    if (!next || !stops.includes(document.activeElement)) return;
    event.preventDefault();
    next.focus();
  });

  /* The page marks the words (Sphinx's sphinx_highlight.js). If it is this page, the dialog is in the way. */
  output.list.addEventListener("click", (event) => {
    const target = event.target.closest("a");
    if (!target) return;
    const marks = [...target.closest("section, p").querySelectorAll("mark")];
    const words = new Set(marks.map((one) => one.textContent).filter((word) => word.length > 2));
    if (target.pathname !== location.pathname) localStorage.setItem("sphinx_highlight_terms", [...words].join(" "));
    else if (!page) dialog.close();
  });
})();
