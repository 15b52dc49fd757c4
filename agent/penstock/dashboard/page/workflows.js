// Workflows: a table of stages each, with a time line in every row.

import { byId, el, svg } from "./dom.js";
import { clock, count, lasting } from "./format.js";

const WORDS = {
  waiting: "not submitted yet",
  intended: "being submitted",
  submitted: "in the queue",
  kept: "kept back",
  queued: "in the queue",
  running: "running",
  done: "done",
};

export function draw(workflows, now) {
  const where = byId("workflows");
  if (!workflows.length) {
    where.replaceChildren(el("p", { class: "empty" }, "No workflows. `penstock submit` starts one."));
    return;
  }
  where.replaceChildren(...workflows.map((w) => article(w, now)));
}

function article(w, now) {
  const [from, to] = period(w, now);
  const id = `workflow-${w.number}`;
  const share = (t) => `${(100 * (Math.min(Math.max(t, from), to) - from)) / (to - from)}%`;
  const width = (a, b) => `${(100 * Math.max(0, Math.min(b, to) - Math.max(a, from))) / (to - from)}%`;
  return el(
    "article",
    { "aria-labelledby": id, class: w.final ? "over" : null },
    el(
      "h3",
      { id },
      el("span", {}, w.name),
      el("span", { class: `tag ${w.phase}` }, w.phase),
      el("span", { class: "quiet" }, `w${w.number} · ${w.strategy} · ${count(w.stages.length, "stage")}`),
    ),
    w.why ? el("p", { class: "why" }, w.why) : null,
    el(
      "table",
      { class: "stages", "aria-labelledby": id },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...["Stage", "State", "Job", "Nodes"].map((name) => el("th", { scope: "col" }, name)),
          el(
            "th",
            { scope: "col", class: "line" },
            el("span", { class: "hidden" }, "Timeline"),
            el("span", { class: "ends", "aria-hidden": "true" }, el("span", {}, clock(from, false)), el("span", {}, clock(to, false))),
          ),
          ...["Predicted wait", "Waited", "Starts", "Ends"].map((name) => el("th", { scope: "col" }, name)),
        ),
      ),
      el("tbody", {}, w.stages.map((s) => row(s, now, share, width))),
    ),
  );
}

function period(w, now) {
  const times = w.stages
    .flatMap((s) => [s.queued, s.start, s.end, s.expected_start, s.expected_end])
    .filter((t) => t !== null);
  if (!w.final) times.push(now);
  const [from, to] = [Math.min(...times, Infinity), Math.max(...times, -Infinity)];
  return Number.isFinite(from) && to - from > 1 ? [from, to] : [now - 60, now + 60];
}

function row(s, now, share, width) {
  const starts = s.start ?? s.expected_start;
  const ends = s.end ?? s.expected_end;
  const soft = (at, known) => (at === null ? "" : known ? clock(at) : el("i", {}, `≈ ${clock(at)}`));
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, s.name),
    el("td", {}, el("span", { class: `phase ${s.phase}` }, WORDS[s.phase] ?? s.phase), s.why ? el("span", { class: "why" }, s.why) : null),
    el("td", { class: "number" }, s.job ?? ""),
    el("td", { class: "number" }, s.nodes),
    el("td", { class: "line" }, line(s, now, share, width)),
    el("td", { class: "number" }, lasting(s.estimate)),
    el("td", { class: "number" }, lasting(s.waited)),
    el("td", { class: "number" }, soft(starts, s.start !== null)),
    el("td", { class: "number" }, soft(ends, s.end !== null)),
  );
}

function line(s, now, share, width) {
  const box = { y: 3, height: 14, rx: 3 };
  const parts = [svg("rect", { class: "track", y: 9.5, height: 1, width: "100%" })];
  const bar = (kind, a, b, fill) => {
    if (a !== null && b !== null && b > a) parts.push(svg("rect", { ...box, class: kind, fill, x: share(a), width: width(a, b) }));
  };
  const over = s.end ?? (s.start !== null ? now : null);
  bar("queued", s.queued, s.start ?? (s.phase === "cancelled" || s.phase === "failed" ? null : now), "url(#stripes)");
  if (s.start === null) bar("queued expected", s.queued === null ? null : now, s.expected_start, "url(#stripes)");
  bar(`run ${s.phase}`, s.start, over);
  bar("expected", s.start === null ? s.expected_start : s.end === null ? now : null, s.expected_end);
  parts.push(svg("line", { class: "now", x1: share(now), x2: share(now), y1: 0, y2: 20 }));
  return svg("svg", { class: "timeline", width: "100%", height: 20, "aria-hidden": "true", focusable: "false" }, parts);
}
