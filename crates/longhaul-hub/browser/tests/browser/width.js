// Returns the parts of a page that a narrow window hides without a sign that it scrolls.
const faults = [];
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width + 1) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
for (const element of document.querySelectorAll("body *")) {
  if (!element.checkVisibility() || element.closest(".hidden, .skip") || element.closest("svg") !== null && element.tagName !== "svg") continue;
  const box = element.getBoundingClientRect();
  if (box.width === 0 || box.right <= width + 1) continue;
  let at = element.parentElement;
  while (at && !scrolls(at)) at = at.parentElement;
  // The shadows at the sides of a container are the sign.
  const sign = at && getComputedStyle(at).backgroundImage.includes("gradient");
  if (!sign) faults.push(`${element.tagName}.${element.className?.baseVal ?? element.className} ends at ${Math.round(box.right)}`);
}
for (const element of document.querySelectorAll("main *")) {
  const style = getComputedStyle(element);
  if (["hidden", "clip"].includes(style.overflowX) && element.scrollWidth > element.clientWidth + 1 && !element.closest(".hidden, svg")) {
    faults.push(`${element.tagName}.${element.className} hides ${element.scrollWidth - element.clientWidth} px`);
  }
}
return [...new Set(faults)];
