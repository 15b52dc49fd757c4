// Tables that become cards where there is no room for their columns: each cell is told what it is, and each part of the
// table what it is to a screen reader, which the style of a card would take away.

import { el } from "./dom.js";

const ROLES = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };

// A head of column names; "" for one without.
export function head(names) {
  return el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, names.map((name) => el("th", { scope: "col", role: "columnheader" }, name))));
}

// A row of cells, each [name of its column, class, ...what it says]; `about` is the place of what the row is about.
export function row(cells, about = 0) {
  const made = cells.map(([name, look, ...said], i) => {
    const empty = said.every((one) => one === "" || one === null) ? "empty-cell" : null;
    const more = { class: [look, empty].filter(Boolean).join(" ") || null, "data-name": name };
    return i === about ? el("th", { scope: "row", role: "rowheader", ...more }, ...said) : el("td", { role: "cell", ...more }, ...said);
  });
  return el("tr", { role: "row" }, made);
}

// The same for a table that is in the page's own text.
export function told(table) {
  for (const node of [table, ...table.querySelectorAll("thead, tbody, tr")]) node.setAttribute("role", ROLES[node.tagName]);
  for (const node of table.querySelectorAll("thead th")) node.setAttribute("role", "columnheader");
}
