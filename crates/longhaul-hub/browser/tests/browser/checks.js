// Returns the faults of a page for readers with a screen reader, a keyboard or low vision, as texts.
const faults = [];
const shown = (element) => element.checkVisibility() && element.getClientRects().length > 0;
const name = (element) => `${element.tagName.toLowerCase()}.${element.className?.baseVal ?? element.className} "${(element.textContent || "").trim().slice(0, 30)}"`;
const all = (selector) => [...document.querySelectorAll(selector)];

if (!document.documentElement.lang) faults.push("no language");
if (!document.title) faults.push("no title");
for (const part of ["main", "h1", "header.top", "footer"]) {
  if (all(part).length !== 1) faults.push(`${all(part).length} of ${part}`);
}
for (const nav of all("nav")) {
  if (!nav.getAttribute("aria-label")) faults.push(`a nav without a label: ${name(nav)}`);
}
for (const field of all("input:not([type=hidden]), select, textarea")) {
  const labels = [...(field.labels || [])].map((label) => label.textContent.trim()).join("");
  if (!labels && !field.getAttribute("aria-label")) faults.push(`a field without a label: ${field.name}`);
}
for (const element of all("a[href], button, summary")) {
  if (!(element.textContent.trim() || element.getAttribute("aria-label"))) faults.push(`no name: ${element.outerHTML}`);
}
for (const th of all("th")) {
  if (!["row", "col", "rowgroup", "colgroup"].includes(th.scope)) faults.push(`a heading without a scope: ${name(th)}`);
}
for (const table of all("main table")) {
  if (!table.querySelector("th")) faults.push(`a table without headings: ${name(table)}`);
}
for (const svg of all("svg")) {
  const hidden = svg.getAttribute("aria-hidden") === "true" && svg.closest("figure")?.querySelector("table");
  if (!hidden && !svg.getAttribute("aria-label") && !svg.querySelector("title") && !svg.getAttribute("aria-labelledby")) {
    faults.push("a drawing without a name or a table");
  }
}
const ids = all("[id]").map((element) => element.id);
for (const id of ids.filter((id, at) => ids.indexOf(id) !== at)) faults.push(`a repeated id: ${id}`);
let level = 0;
for (const heading of all("h1, h2, h3, h4")) {
  const own = Number(heading.tagName[1]);
  if (own > level + 1) faults.push(`a heading skips a level: ${name(heading)}`);
  level = own;
}

// WCAG 2.2, 1.4.3: the contrast of text.
const channels = (color) => (color.match(/[\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const color = channels(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] > 0.5) return color;
  }
  return [255, 255, 255];
};
const seen = new Set();
for (const element of all("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !shown(element) || element.closest(".hidden, svg, option, .skip")) continue;
  const style = getComputedStyle(element);
  const [a, b] = [light(channels(style.color)), light(ground(element))].sort((one, two) => two - one);
  const ratio = (a + 0.05) / (b + 0.05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
  const fault = `contrast ${ratio.toFixed(2)} of ${element.tagName.toLowerCase()}.${element.className}`;
  if (ratio < (large ? 3 : 4.5) && !seen.has(fault)) {
    seen.add(fault);
    faults.push(`${fault} "${element.textContent.trim().slice(0, 30)}"`);
  }
}
return faults;
