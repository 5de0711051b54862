// What formulas may hold, of all that MathJax knows: nothing that sets a link, a class, a name, a style or a length,
// that defines or loads more, or that takes a time which doubles with each level.
const MACROS = new Set(
  `alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi omicron pi
  varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi
  Psi Omega aleph beth hbar hslash imath jmath ell wp Re Im partial infty nabla emptyset varnothing forall exists
  nexists neg lnot top bot angle triangle square Box blacksquare prime backprime diamond Diamond bigstar star checkmark
  cdot cdots ldots dots dotsb dotsc dotsi dotsm dotso vdots ddots times div pm mp ast circ bullet cap cup setminus
  smallsetminus land lor wedge vee oplus ominus otimes oslash odot uplus sqcap sqcup dagger ddagger
  le leq leqslant lt ge geq geqslant gt ne neq equiv approx approxeq sim simeq cong propto ll gg in ni notin owns
  subset subseteq subsetneq supset supseteq supsetneq nsubseteq prec preceq succ succeq perp parallel mid nmid
  nparallel vdash models asymp doteq triangleq not therefore because colon vert Vert lvert rvert lVert rVert langle
  rangle lfloor rfloor lceil rceil lbrace rbrace lbrack rbrack backslash
  to gets mapsto longmapsto leftarrow rightarrow leftrightarrow Leftarrow Rightarrow Leftrightarrow longleftarrow
  longrightarrow longleftrightarrow Longleftarrow Longrightarrow Longleftrightarrow implies impliedby iff uparrow
  downarrow updownarrow Uparrow Downarrow hookrightarrow hookleftarrow rightharpoonup leftharpoonup nearrow searrow
  swarrow nwarrow rightleftharpoons leadsto
  sum prod coprod int iint iiint oint bigcap bigcup bigvee bigwedge bigoplus bigotimes bigodot biguplus bigsqcup
  arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim liminf limsup ln log max min Pr
  sec sin sinh sup tan tanh bmod pmod mod operatorname limits nolimits
  frac dfrac tfrac cfrac binom dbinom tbinom sqrt substack overset underset stackrel
  hat widehat check breve acute grave tilde widetilde bar vec dot ddot overline underline overbrace underbrace
  overrightarrow overleftarrow boxed
  left right middle big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm Biggm
  quad qquad thinspace enspace space nonumber notag hline displaystyle textstyle scriptstyle scriptscriptstyle
  mathrm mathbf mathit mathsf mathtt mathbb mathcal mathscr mathfrak mathnormal boldsymbol bf rm it cal
  text textrm textbf textit textsf texttt textnormal mbox`.split(/\s+/),
);
const ENVIRONMENTS = new Set(
  `align align* aligned array bmatrix Bmatrix cases eqnarray eqnarray* equation equation* gather gather* gathered matrix
  multline multline* pmatrix smallmatrix split vmatrix Vmatrix`.split(/\s+/),
);
const SIGNS = "\\{}|,;:!>$%&#_ \t\n";
const LONGEST = 2000;
const DEEPEST = 20;
const SEARCH = 2e7;

// As MathJax reads it, a backslash and the letters or the one sign that follow, from the beginning on. A comment could
// hide braces from MathJax that are counted here.
function isPlain(formula) {
  if (/\\\\\s*\*?\s*\[[^\]]*\d{3}/.test(formula)) return false; // a line of thousands of pixels
  let depth = 0;
  for (const [part, environment, name] of formula.matchAll(
    /\\(?:begin|end)\s*\{([^{}]*)\}|\\([A-Za-z]+)|\\[^]?|[{}%]/g,
  )) {
    if (part === "%") return false;
    if (environment !== undefined ? !ENVIRONMENTS.has(environment) : name && !MACROS.has(name)) return false;
    if (part.length < 3 && part[0] === "\\" && !name && !(part[1] && SIGNS.includes(part[1]))) return false;
    if (part === "{" || name === "left" || part.startsWith("\\begin")) depth += 1;
    if (part === "}" || name === "right" || part.startsWith("\\end")) depth -= 1;
    if (depth > DEEPEST) return false;
  }
  return true;
}

// MathJax may read the rest of a text at each sign that can begin a formula: keep it from what would take long
function limitSearch() {
  let left = SEARCH;
  for (const one of document.querySelectorAll("body, body :not(pre, code, script, style)")) {
    const text = [...one.childNodes].map((node) => (node.nodeType === Node.TEXT_NODE ? node.data : "")).join("");
    const steps = text.length * (text.match(/\$|\\(?:[([]|begin)/g)?.length ?? 0);
    if (steps > left) one.classList.add("mathjax_ignore");
    else left -= steps;
  }
}

MathJax = {
  tex: {
    inlineMath: [["$", "$"], ["\\(", "\\)"]],
    tags: "ams",
    maxMacros: 200,
    processRefs: false,
    packages: ["base", "ams", "boldsymbol", "noerrors", "textmacros"],
  },
  options: {
    enableMenu: false,
    safeOptions: { allow: { URLs: "none", classes: "none", cssIDs: "none", styles: "none" } },
    // Every formula, wherever on the page it stands, comes by here. What is not plain stays as it was written, and so
    // does what more there is, since it would keep the browser busy for minutes.
    renderActions: {
      search: [5, limitSearch, ""],
      plain: [
        15,
        (page) => {
          let left = 20000;
          const plain = [...page.math].filter(
            ({ math }) => math.length <= LONGEST && isPlain(math) && (left -= math.length + 40) > 0,
          );
          page.math.clear();
          page.math.push(...plain);
        },
        "",
      ],
    },
  },
  startup: {
    // Not without the part that is called safe, which follows
    ready() {
      addEventListener("DOMContentLoaded", () => MathJax._.ui?.safe && MathJax.startup.defaultReady());
    },
  },
};
