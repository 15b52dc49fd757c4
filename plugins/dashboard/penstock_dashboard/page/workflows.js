// Workflows: a table of stages each, with a time line in every row. All are drawn to one scale, those that go on on one
// axis; what has ended is folded.

import { head, row } from "./cards.js";
import { byId, el, svg } from "./dom.js";
import { clock, count, ends, lasting } from "./format.js";

const WORDS = {
  waiting: "not submitted yet",
  intended: "being submitted",
  submitted: "in the queue",
  kept: "kept back",
  queued: "in the queue",
  running: "running",
  done: "done",
};
const kept = new Map(); // by number: its node, so that what a reader has opened stays open, and the focus where it is
let latest = { all: [], now: 0 };

export function draw(all, now) {
  latest = { all, now };
  const where = byId("workflows");
  if (!all.length) {
    kept.clear();
    where.replaceChildren(el("p", { class: "empty" }, "No workflows. `penstock submit` starts one."));
    return;
  }
  const shown = [...all.filter((w) => !w.final), ...all.filter((w) => w.final)];
  for (const number of [...kept.keys()]) {
    const w = shown.find((one) => one.number === number);
    if (!w || w.final !== kept.get(number).final) kept.delete(number);
  }
  for (const w of shown) if (!kept.has(w.number)) kept.set(w.number, { final: w.final, node: made(w), said: "" });
  const axes = axesOf(shown, now);
  for (const w of shown) fill(kept.get(w.number), w, axes.get(w.number), now);
  const nodes = shown.map((w) => kept.get(w.number).node);
  if (nodes.some((node, i) => where.children[i] !== node) || where.children.length !== nodes.length) where.replaceChildren(...nodes);
}

const isOpen = (w) => !w.final || kept.get(w.number).node.open;

function period(w, now) {
  const times = w.stages
    .flatMap((s) => [s.queued, s.start, s.end, s.expected_start, s.expected_end, s.likely?.low ?? null])
    .filter((t) => t !== null);
  if (!w.final) times.push(now);
  const [from, to] = [Math.min(...times, Infinity), Math.max(...times, -Infinity)];
  return Number.isFinite(from) ? [from, Math.max(to, from + 60)] : [now - 60, now];
}

// By number: from when to when each is drawn. What is open has one axis if it fits into one, else one length.
function axesOf(all, now) {
  const periods = new Map(all.map((w) => [w.number, period(w, now)]));
  const going = all.filter((w) => !w.final).map((w) => periods.get(w.number));
  const open = all.filter(isOpen).map((w) => periods.get(w.number));
  const from = Math.min(...going.map(([a]) => a));
  const to = Math.max(...going.map(([, b]) => b));
  const length = Math.max(going.length ? to - from : 0, ...open.map(([a, b]) => b - a), 60);
  return new Map(
    all.map((w) => {
      const [a, b] = periods.get(w.number);
      const together = going.length && a >= from && b <= from + length;
      return [w.number, together ? [from, from + length] : [a, a + length]];
    }),
  );
}

function made(w) {
  const id = `workflow-${w.number}`;
  const title = el("h3", { id });
  if (!w.final) return el("article", { "aria-labelledby": id }, title, el("div", { class: "inside" }));
  const node = el("details", { class: "over" }, el("summary", {}, title), el("div", { class: "inside" }));
  node.addEventListener("toggle", () => draw(latest.all, latest.now));
  return node;
}

// How long all of it took, and when it ended.
function over(w) {
  const known = w.stages.flatMap((s) => [s.queued, s.start, s.end]).filter((t) => t !== null);
  if (!known.length) return "";
  const last = Math.max(...known);
  return ` · took ${lasting(last - Math.min(...known))}, ended ${clock(last, false)}`;
}

function fill(mine, w, axis, now) {
  const { node } = mine;
  const said = JSON.stringify([w, isOpen(w), axis, w.final ? null : now]);
  if (said === mine.said) return;
  mine.said = said;
  node.querySelector("h3").replaceChildren(
    el("span", {}, w.name),
    el("span", { class: `tag ${w.phase}` }, w.phase),
    el("span", { class: "quiet" }, `w${w.number} · ${w.strategy} · ${count(w.stages.length, "stage")}${w.final ? over(w) : ""}`),
  );
  const inside = node.querySelector(".inside");
  if (isOpen(w)) inside.replaceChildren(...[w.why ? el("p", { class: w.phase === "completed" ? "quiet" : "why" }, w.why) : null, table(w, axis, now)].filter(Boolean));
  else inside.replaceChildren();
}

function table(w, [from, to], now) {
  const line = {
    now: w.final || now < from || now > to ? null : now,
    share: (t) => `${(100 * (Math.min(Math.max(t, from), to) - from)) / (to - from)}%`,
    width: (a, b) => `${(100 * Math.max(0, Math.min(b, to) - Math.max(a, from))) / (to - from)}%`,
  };
  const names = ["Stage", "State", "Job", "Nodes", axisHead([from, to], line), "Waited", "Starts", "Ends"];
  return el(
    "table",
    { class: "stages cards", role: "table", "aria-labelledby": `workflow-${w.number}` },
    head(names),
    el("tbody", { role: "rowgroup" }, w.stages.map((s) => stage(s, line, [from, to]))),
  );
}

function axisHead([from, to], line) {
  const [first, last] = ends(from, to);
  const at = line.now === null ? null : (line.now - from) / (to - from);
  // Beside an end there is no room for it, and the line says the same.
  const mark = at === null || at < 0.2 || at > 0.8 ? null : svg("svg", { class: "now-mark", height: 14, width: "100%" }, svg("text", { x: line.share(line.now), y: 11, "text-anchor": "middle" }, "now"));
  return [el("span", { class: "hidden" }, "Timeline"), el("span", { class: "ends", "aria-hidden": "true" }, el("span", {}, first), mark, el("span", {}, last))];
}

function stage(s, axis, [from, to]) {
  // What was cancelled in the queue has never started, whatever Slurm says.
  const never = s.phase === "cancelled" && s.start !== null && s.start === s.end;
  const starts = never ? null : (s.start ?? s.expected_start);
  const ending = s.end ?? s.expected_end;
  const soft = (at, known, word) => (at === null ? "" : known ? clock(at) : el("i", {}, `${word} ${clock(at)}`));
  const band = s.likely && s.start === null ? el("span", { class: "likely-text" }, el("span", {}, `likely ${clock(s.likely.likely, false)}`), el("span", {}, `9 in 10: ${clock(s.likely.low, false)} to ${clock(s.likely.high, false)}`)) : null;
  const [first, last] = ends(from, to);
  return row([
    ["Stage", null, s.name],
    ["State", null, el("span", { class: `phase ${s.phase}` }, WORDS[s.phase] ?? s.phase), s.why ? el("span", { class: "why" }, s.why) : null],
    ["Job", "number", s.job ?? ""],
    ["Nodes", "number", s.nodes],
    ["", "line", picture(s, axis), el("span", { class: "ends", "aria-hidden": "true" }, el("span", {}, first), el("span", {}, last))],
    ["Waited", "number", never ? "" : lasting(s.waited)],
    ["Starts", null, soft(starts, s.start !== null, "by"), band],
    ["Ends", "number", soft(ending, s.end !== null, "≈")],
  ]);
}

function picture(s, { now, share, width }) {
  const box = { y: 3, height: 14, rx: 3 };
  const parts = [svg("rect", { class: "track", y: 9.5, height: 1, width: "100%" })];
  const bar = (kind, a, b, fill) => {
    if (a !== null && b !== null && b > a) parts.push(svg("rect", { ...box, class: kind, fill, x: share(a), width: width(a, b) }));
  };
  const ended = s.end ?? (s.start !== null ? now : null);
  const givenUp = s.phase === "cancelled" || s.phase === "failed";
  bar("queued", s.queued, s.start ?? (givenUp ? s.end : now), "url(#stripes)");
  if (s.start === null) bar("queued expected", s.queued === null ? null : now, s.expected_start, "url(#stripes)");
  bar(`run ${s.phase}`, s.start, ended, s.phase === "failed" ? "url(#failed)" : undefined);
  bar("expected", s.start === null ? (s.likely?.likely ?? null) : s.end === null ? now : null, s.expected_end);
  if (s.likely && s.start === null) {
    const [low, high] = [share(s.likely.low), share(s.likely.high)];
    parts.push(svg("line", { class: "band-line", x1: low, x2: high, y1: 10, y2: 10 }));
    for (const x of [low, high]) parts.push(svg("line", { class: "band-line", x1: x, x2: x, y1: 6, y2: 14 }));
    parts.push(svg("circle", { class: "band-dot", cx: share(s.likely.likely), cy: 10, r: 3.5 }));
  }
  if (now !== null) parts.push(svg("line", { class: "now", x1: share(now), x2: share(now), y1: 0, y2: 20 }));
  return svg("svg", { class: "timeline", width: "100%", height: 20, "aria-hidden": "true", focusable: "false" }, parts);
}
