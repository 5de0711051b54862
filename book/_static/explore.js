/* Sliders for the figures of mlcourse/explore.py, which says what stands in the page. */
"use strict";

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
