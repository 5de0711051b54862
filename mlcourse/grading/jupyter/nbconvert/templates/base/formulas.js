MathJax = {
  tex: {
    inlineMath: [["$", "$"], ["\\(", "\\)"]],
    tags: "ams",
    // Nothing that sets a link, a class or a style, or loads more
    packages: ["base", "ams", "boldsymbol", "braket", "cancel", "cases", "mathtools", "mhchem", "newcommand", "noerrors", "noundefined", "textmacros", "upgreek"],
  },
  options: { enableMenu: false },
};
