// Elements from text: nothing of the trace ever becomes markup.

const SVG = "http://www.w3.org/2000/svg";
/** An element. `given`: attributes; `text`, `class` and `on…` functions have their own meaning. */
function el(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, given, children);
  return element;
}
function svg(tag, given = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  fill(element, given, children);
  return element;
}
function fill(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "class") element.setAttribute("class", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
}
const $ = (id) => document.getElementById(id);
/** A link to a frame. */
function frameLink(i, text) {
  if (i < 0 || i >= model.count) return el("span", { class: "quiet", text: text || "not shown" });
  return el("a", { class: "frame", href: `#frame-${model.frame(i)}`, text: text || `#${model.frame(i)}` });
}
