// What was decided and why, newest first.

import * as cards from "./cards.js";
import { byId, el, say } from "./dom.js";
import { clock, inLocalTime } from "./format.js";

const AT_FIRST = 20;
const state = { all: [], shown: AT_FIRST };

export function setUp() {
  byId("filter").addEventListener("input", () => ((state.shown = AT_FIRST), draw()));
  byId("more").addEventListener("click", () => ((state.shown += 100), draw()));
}

export function update(decisions) {
  state.all = decisions.map((d) => ({ ...d, reasons: d.reasons.map((text) => inLocalTime(text, d.at)) }));
  draw();
}

export function only(words) {
  byId("filter").value = words;
  state.shown = AT_FIRST;
  draw();
  byId("decisions-title").focus();
}

const told = (d) => `${d.subject} ${d.verb} ${d.reasons.join(" ")}`.toLowerCase();

// "job 1" is not to find "job 12".
function matcher(words) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return () => true;
  if (!/^(job|workflow) \d+$/.test(wanted)) return (d) => told(d).includes(wanted);
  return (d) => new RegExp(`${wanted}(?!\\d)`).test(told(d));
}

function draw() {
  const found = state.all.filter(matcher(byId("filter").value));
  const shown = found.slice(0, state.shown);
  say("decisions-count", count(found.length));
  byId("more").hidden = shown.length === found.length;
  byId("decided").replaceChildren(...shown.map(row));
}

function count(n) {
  if (!state.all.length) return "Nothing has been decided yet.";
  return n === state.all.length ? `The latest ${n}.` : `${n} of the latest ${state.all.length}.`;
}

function row(d) {
  const reasons = d.reasons.length === 1 ? d.reasons : [el("ul", {}, d.reasons.map((r) => el("li", {}, r)))];
  const cells = [
    ["Time", "number", el("time", { datetime: new Date(d.at * 1000).toISOString() }, clock(d.at))],
    ["About", null, d.subject],
    ["Decision", null, el("span", { class: `verb ${d.verb}` }, d.verb)],
    ["Reasons", "reasons", ...reasons],
  ];
  return cards.row(cells, 1);
}
