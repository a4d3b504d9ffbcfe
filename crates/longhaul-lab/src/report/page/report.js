"use strict";
// The functions of a report that need a script. Everything else works without it.

const make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// Figures: the drawing as an SVG file with the page's styles, or as a PNG of twice its size.
const drawing = (svg) => {
  const copy = svg.cloneNode(true);
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = document.querySelector("style").textContent;
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(style);
  const text = new XMLSerializer().serializeToString(copy);
  return { blob: new Blob([text], { type: "image/svg+xml" }), width, height };
};

const save = (blob, name) => {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};

const savePng = (svg, name) => {
  const { blob, width, height } = drawing(svg);
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob((png) => save(png, name));
  };
  image.src = URL.createObjectURL(blob);
};

for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg.wide") || figure.querySelector("svg");
  if (!svg) continue;
  const name = figure.id.replace(/^figure-/, "");
  figure.append(make("div", { className: "tools" },
    make("button", { textContent: "Save as SVG",
      onclick: () => save(drawing(svg).blob, name + ".svg") }),
    make("button", { textContent: "Save as PNG", onclick: () => savePng(svg, name + ".png") })));
}

// Runs: search in all texts, sort by a property of the cell.
const cells = document.querySelector("#runs .cells");
if (cells) {
  const all = [...cells.children];
  const search = make("input", { type: "search", placeholder: "Search the runs" });
  search.setAttribute("aria-label", "Search the runs");
  const orders = {
    "Order of the table": () => 0,
    "Tool": (a, b) => a.dataset.tool.localeCompare(b.dataset.tool),
    "Path": (a, b) => a.dataset.rtt - b.dataset.rtt,
    "Fastest first": (a, b) => b.dataset.rate - a.dataset.rate,
    "Slowest first": (a, b) => a.dataset.rate - b.dataset.rate,
    "Failed and invalid first": (a, b) => b.dataset.bad - a.dataset.bad,
  };
  const order = make("select", {}, ...Object.keys(orders).map((name) =>
    make("option", { textContent: name })));
  order.setAttribute("aria-label", "Order of the runs");
  search.oninput = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const cell of all) {
      const text = cell.textContent.toLowerCase();
      cell.hidden = !words.every((word) => text.includes(word));
    }
  };
  order.onchange = () => cells.append(...[...all].sort(orders[order.value]));
  cells.before(make("div", { className: "tools" }, search, order));
}

// A remark above each table that continues beyond the screen.
const mark = () => {
  for (const cue of document.querySelectorAll(".cue")) {
    const table = cue.nextElementSibling;
    cue.classList.toggle("shown", table.scrollWidth > table.clientWidth + 1);
  }
};
for (const table of document.querySelectorAll(".scroll")) {
  table.before(make("p", { className: "cue", textContent: "The table continues to the right \u2192" }));
}
addEventListener("resize", mark);
addEventListener("toggle", mark, true);
mark();
