// The buttons above a lab, the place at which it opens, and a start page that follows what is saved. A plugin of
// JupyterLab in the form in which JupyterLab loads it, a container of module federation, so that nothing has to be built.
(() => {
  let shared;
  const load = async (name) => (await Object.values(shared[name])[0].get())();

  const STYLE = `
    .mlcourse-results { padding: 12px 20px; overflow: auto; line-height: 1.5;
      color: var(--jp-ui-font-color1); font-size: var(--jp-content-font-size1); }
    .mlcourse-results h2 { font-size: 1.3em; margin: 0 0 8px; }
    .mlcourse-results ol { list-style: none; margin: 12px 0; padding: 0; }
    .mlcourse-results li { border-top: 1px solid var(--jp-border-color2); padding: 8px 0; }
    .mlcourse-results li p, .mlcourse-results li ul { margin: 4px 0 0; }
    .mlcourse-results li ul { padding-left: 20px; list-style: disc; }
    .mlcourse-results li li { border: 0; padding: 2px 0; overflow-wrap: anywhere; }
    .mlcourse-results a, .mlcourse-results .mlcourse-title { color: var(--jp-content-link-color); }
    .mlcourse-results .mlcourse-title { background: none; border: 0; padding: 0; font: inherit; font-weight: 600;
      text-align: left; cursor: pointer; }
    .mlcourse-results .mlcourse-title:hover, .mlcourse-results a { text-decoration: underline; }
    .mlcourse-results code { font-family: var(--jp-code-font-family); font-size: 0.95em; }
    .mlcourse-results .mlcourse-total { font-weight: 600; }`;

  // Return an element with children; text is never taken for HTML
  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children.filter(Boolean));
    return made;
  };

  // Return a sentence in which code stands between backticks
  const withCode = (sentence) =>
    sentence.split("`").map((part, number) => (number % 2 ? element("code", {}, part) : part));

  const exercise = (one, goToExercise) =>
    element("li", {},
      element("button", { className: "mlcourse-title", title: "Go to the exercise", onclick: () => goToExercise(one.cell) },
        one.title),
      element("p", {}, `${one.done ? "✓" : "○"} ${one.state} · ${one.points}`),
      one.problems.length && element("ul", {}, ...one.problems.map((problem) =>
        element("li", {}, ...withCode(problem.text), problem.link && " ",
          problem.link && element("a", { href: problem.link, target: "_blank", rel: "noopener" }, "Read it in the book")))));

  const results = (answer, goToExercise, handIn) => {
    const [total, ...more] = answer.summary;
    return [
      element("p", { className: "mlcourse-total" }, total),
      ...(answer.file ?? []).map((sentence) => element("p", { className: "mlcourse-file" }, sentence)),
      !answer.file && element("button", { className: "jp-mod-styled jp-mod-accept", onclick: handIn },
        "Write the file to hand in"),
      element("ol", {}, ...answer.exercises.map((one) => exercise(one, goToExercise))),
      ...more.map((sentence) => element("p", {}, sentence)),
    ].filter(Boolean);
  };

  // Save a document, and return whether that worked; if not, JupyterLab says why
  const saved = async (context) => {
    let failed = false;
    const note = (_, state) => { failed = failed || state === "failed"; };
    context.saveState.connect(note);
    await context.save().catch(() => { failed = true; });
    context.saveState.disconnect(note);
    return !failed;
  };

  // Ask the course's part of the server, and return its answer
  const ask = async (app, address, options = {}) => {
    const { ServerConnection } = await load("@jupyterlab/services");
    const settings = app.serviceManager.serverSettings;
    const response = await ServerConnection.makeRequest(`${settings.baseUrl}mlcourse/${address}`, options, settings);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error ?? answer.message);
    return answer;
  };

  // Run a saved lab, and return what is to be said about it
  const check = (app, path, write) => ask(app, "check", { method: "POST", body: JSON.stringify({ path, write }) });

  // Wait until a part of the page is in sight
  const inSight = (node) => new Promise((resolve) => {
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((one) => one.isIntersecting)) return;
      observer.disconnect();
      resolve();
    }).observe(node);
  });

  // Make a cell of a notebook the active one, at the top of its tab
  const goTo = (notebook, identifier) => {
    const index = notebook.widgets.findIndex((cell) => cell.model.id === identifier);
    if (index < 0) return;
    notebook.activeCellIndex = index;
    notebook.scrollToItem(index, "start");
  };

  // Return whether the cells below one are not to run, because it raised an error that is none of a check
  const stops = ({ model }) =>
    !model.getMetadata("tags")?.includes("raises-exception")
    && Array.from({ length: model.outputs.length }, (_, at) => model.outputs.get(at)).some(({ type }) => type === "error");

  // Run the code cells between two headings, around the active cell, and in a new kernel first those above all exercises
  const runSection = async (panel) => {
    const { NotebookActions } = await load("@jupyterlab/notebook");
    const cells = panel.content.widgets;
    const isCode = ({ model }) => model.type === "code";
    await panel.sessionContext.ready;
    const reply = await panel.sessionContext.session.kernel.requestExecute({ code: "", silent: true }).done;
    const exercise = cells.findIndex(({ model }) => /^## Exercise/m.test(model.sharedModel.getSource()));
    const above = reply.content.execution_count > 1 ? [] : cells.slice(0, Math.max(exercise, 0)).filter(isCode);
    const begins = ({ model }) => model.type === "markdown" && /^##? /m.test(model.sharedModel.getSource());
    let first = panel.content.activeCellIndex;
    while (first > 0 && !begins(cells[first])) first -= 1;
    let last = first + 1;
    while (last < cells.length && !begins(cells[last])) last += 1;
    const code = [...new Set([...above, ...cells.slice(first, last).filter(isCode)])];
    for (const { model } of code) model.clearExecution(); // a check that is not reached must not show an earlier result
    for (const cell of code) { // one after the other: the kernel drops after an error only what it has received by then
      await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
      if (stops(cell)) return;
    }
  };

  const activate = (app) => {
    document.head.append(element("style", {}, STYLE));
    let tab = null;
    let running = false;

    // Return the place for the results, beside the lab
    const place = async (panel) => {
      if (!tab || tab.isDisposed) {
        const [{ Widget }, { MainAreaWidget }] = [await load("@lumino/widgets"), await load("@jupyterlab/apputils")];
        tab = new MainAreaWidget({ content: new Widget() });
        tab.id = "mlcourse-results";
        tab.content.addClass("mlcourse-results");
        tab.content.node.setAttribute("aria-live", "polite");
        tab.title.closable = true;
        const mode = panel.node.clientWidth < 700 ? "tab-after" : "split-right";
        const area = app.shell.mode ? "main" : "right"; // Jupyter Notebook shows one document, and no tabs
        app.shell.add(tab, area, { mode, ref: panel.id, activate: false });
      }
      return tab.content.node;
    };

    const run = async (panel, write) => {
      if (!panel?.context || running) return;
      running = true;
      try {
        if (!(await saved(panel.context))) return;
        const name = panel.title.label.replace(/\.ipynb$/, "");
        const node = await place(panel);
        tab.title.label = write ? "Hand in" : "Validate";
        if (!tab.isVisible) app.shell.activateById(tab.id);
        const show = (...children) => node.replaceChildren(element("h2", {}, name), ...children);
        show(element("p", {}, "Running the lab from the top, as it was saved. This takes some seconds."));
        const goToExercise = (cell) => {
          app.shell.activateById(panel.id);
          goTo(panel.content, cell);
        };
        try {
          show(...results(await check(app, panel.context.path, write), goToExercise, () => run(panel, true)));
        } catch (error) {
          show(element("p", {}, `The lab was not checked: ${error.message}`));
        }
      } finally {
        running = false;
      }
    };

    const command = (name, label, caption, act) =>
      app.commands.addCommand(name, { label, caption, execute: () => act(app.shell.currentWidget) });
    command("mlcourse:check", "Check exercise", "Run the answer and the checks of this exercise", runSection);
    command("mlcourse:validate", "Validate", "Run the whole lab, and say what is still open", (panel) => run(panel, false));
    command("mlcourse:hand-in", "Hand in", "Run the whole lab, and write the file to hand in", (panel) => run(panel, true));

    // A lab that was begun opens at the first exercise that is open; a tab behind another cannot scroll yet
    const goToOpenExercise = async (panel, context) => {
      await panel.revealed;
      await inSight(panel.node);
      const { cell } = await ask(app, `place?path=${encodeURIComponent(context.path)}`);
      if (cell && !panel.isDisposed) goTo(panel.content, cell);
    };
    app.docRegistry.addWidgetExtension("Notebook", {
      createNew: (panel, context) => { goToOpenExercise(panel, context).catch(console.warn); },
    });

    // The server writes the start page anew when a lab was saved
    app.serviceManager.contents.fileChanged.connect((_, change) => {
      if (change.type !== "save" || !change.newValue.path.endsWith(".ipynb")) return;
      for (const { context } of app.shell.widgets("main")) {
        if (context?.path.split("/").pop() === "start.md" && !context.model.dirty) context.revert();
      }
    });
  };

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.mlcourse = {
    init: (scope) => { shared = scope; },
    get: async () => () => ({ __esModule: true, default: { id: "mlcourse:lab", autoStart: true, activate } }),
  };
})();
