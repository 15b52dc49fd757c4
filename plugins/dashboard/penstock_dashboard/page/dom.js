// Elements with their texts. Whatever others have named a thing goes in as text, and there is no other way in.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

export function say(id, text) {
  const node = byId(id);
  if (node.textContent !== text) node.textContent = text; // not again: screen readers would read it again
}

// Options of a <select>, with what was chosen kept.
export function offer(select, options) {
  const now = [...select.options].map((o) => `${o.value} ${o.text}`).join("\n");
  if (now === options.map(([value, text]) => `${value} ${text}`).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

// Calls `draw` with a part of the data when that part has changed.
export function whenNew(draw) {
  let before = null;
  return (part, ...more) => {
    const said = JSON.stringify([part, ...more]);
    if (said !== before) draw(part, ...more);
    before = said;
  };
}
