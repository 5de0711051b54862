MathJax = {
  tex: {
    inlineMath: [["$", "$"], ["\\(", "\\)"]],
    tags: "ams",
    maxMacros: 200,
    // Nothing that sets a link, a class or a style, loads more, or lets a short text grow
    packages: ["base", "ams", "boldsymbol", "braket", "cancel", "cases", "mathtools", "mhchem", "noerrors", "noundefined", "textmacros", "upgreek"],
  },
  options: {
    enableMenu: false,
    // What more there is stays as it was written, since it would keep the browser busy for minutes
    renderActions: {
      few: [
        15,
        (page) => {
          let left = 20000;
          const few = [...page.math].filter(({ math }) => math.length <= 2000 && (left -= math.length + 40) > 0);
          page.math.clear();
          page.math.push(...few);
        },
        "",
      ],
    },
  },
};
