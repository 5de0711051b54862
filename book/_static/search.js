/* On the search page: what the glossary says of a term comes first. GLOSSARY holds page, anchor, name and definition of
   each term (coursebook/site/search.py). */
const searchPages = Search._performSearch;

Search._performSearch = (query, ...rest) => {
  const stemmer = new Stemmer();
  const stems = (text) =>
    splitQuery(text.toLowerCase()).filter((word) => !stopwords.includes(word)).map((word) => stemmer.stemWord(word));
  const asked = stems(query);
  const defined = GLOSSARY
    .map(([page, anchor, name, text]) => ({ page, anchor, name, text, words: stems(name) }))
    .filter(({ words }) => asked.length && asked.every((word) => words.includes(word)))
    // The page shows results from the last to the first: the shortest name that begins with the query comes last.
    .sort((a, b) => b.words.indexOf(asked[0]) - a.words.indexOf(asked[0]) || b.words.length - a.words.length)
    .map(({ page, anchor, name, text }) => [page, `Glossary > ${name}`, `#${anchor}`, text, 1000, page]);
  const others = searchPages(query, ...rest).filter(([, , anchor]) => !anchor.startsWith("#term-"));
  return [...others, ...defined];
};

// A page that was opened from a disk may not read other files: no excerpts there, only titles.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// An excerpt is from the text of a page, not from the menus around it.
Search.htmlToText = (source) => {
  const article = new DOMParser().parseFromString(source, "text/html").querySelector("article");
  article.querySelectorAll(".headerlink, script, style").forEach((one) => one.remove());
  return article.textContent;
};
