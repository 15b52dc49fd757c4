// The picture of nodes over time: one row for each node, one shape for each job, slot or reservation.

import { row } from "./cards.js";
import { byId, offer, say, svg } from "./dom.js";
import { clock, count, lasting, likely, nodesText, price, ticks } from "./format.js";

const WINDOWS = [600, 1800, 3600, 10800, 21600, 43200, 86400, 259200, 604800];
const FITTING = [600, 900, 1500, 2400, 3600, 5400, 7200, 10800, 18000, 28800, 43200, 64800, 86400, 172800, 345600, 604800];
const AHEAD = 0.68; // the share of the picture that is to come
const ROWS = 96; // nodes in one picture
const AXIS = 24;
const OLD = 60; // seconds after which a plan is said to be old
const KINDS = {
  past: "ended",
  running: "running",
  planned: "expected to start",
  slot: "free",
  reserved: "reserved",
};

const state = { data: null, now: 0, first: 0, chosen: null, onWhy: () => {} };

export function setUp(onWhy) {
  state.onWhy = onWhy;
  offer(byId("window"), [["fit", "automatic"], ...WINDOWS.map((s) => [String(s), lasting(s)])]);
  for (const id of ["window", "show-planned", "show-slots"]) byId(id).addEventListener("change", draw);
  byId("partition").addEventListener("change", () => ((state.first = 0), draw()));
  byId("rows-before").addEventListener("click", () => page(-ROWS));
  byId("rows-after").addEventListener("click", () => page(ROWS));
  byId("why").addEventListener("click", () => state.chosen && state.onWhy(state.chosen));
  const chart = byId("chart");
  chart.addEventListener("keydown", onKey);
  chart.addEventListener("focus", () => chart.matches(":focus-visible") && !active() && choose(options()[0]));
  chart.addEventListener("click", (event) => choose(event.target.closest("[role=option]")));
  new ResizeObserver(draw).observe(chart);
}

export function update(data, now) {
  [state.data, state.now] = [data, now];
  const partitions = data.partitions.map((p) => [p.name, p.name]);
  byId("partition-label").hidden = partitions.length < 2;
  offer(byId("partition"), [["", "all nodes"], ...partitions]);
  draw();
  table();
}

function page(by) {
  state.first = Math.max(0, state.first + by);
  draw();
}

// The rows that are shown: their numbers in the data, in order.
function rowsShown() {
  const { data } = state;
  const partition = data.partitions.find((p) => p.name === byId("partition").value);
  const all = partition
    ? partition.rows.flatMap(([first, n]) => Array.from({ length: n }, (_, i) => first + i))
    : data.nodes.map((_, i) => i);
  if (state.first >= all.length) state.first = 0;
  const shown = all.slice(state.first, state.first + ROWS);
  byId("rows").hidden = all.length <= ROWS;
  say("rows-text", `nodes ${state.first + 1} to ${state.first + shown.length} of ${all.length}`);
  byId("rows-before").disabled = state.first === 0;
  byId("rows-after").disabled = state.first + ROWS >= all.length;
  return shown;
}

// Everything with a place in the picture; slots lie below all else, which may be newer than the plan.
function items() {
  const { data } = state;
  const slots = byId("show-slots").checked
    ? (data.slots[byId("partition").value || Object.keys(data.slots)[0]] ?? [])
    : [];
  const bars = data.bars.filter((bar) => bar.kind !== "planned" || byId("show-planned").checked);
  return [...slots.map((slot) => ({ kind: "slot", name: "", user: "", label: "", ...slot })), ...bars.sort(byStart)];
}

const byStart = (a, b) => a.start - b.start || (a.rows[0]?.[0] ?? 0) - (b.rows[0]?.[0] ?? 0);

function windowShown(all) {
  const wanted = byId("window").value;
  let length = Number(wanted);
  if (wanted === "fit") {
    const ends = all.filter((i) => (i.kind === "running" || i.kind === "planned") && i.end !== null).map((i) => i.end);
    ends.sort((a, b) => a - b);
    const far = ends.length ? ends[Math.floor((ends.length - 1) * 0.9)] - state.now : 2400;
    length = FITTING.find((w) => w * AHEAD >= far) ?? FITTING.at(-1);
  }
  return [state.now - length * (1 - AHEAD), state.now + length * AHEAD];
}

export function describe(item) {
  const { data, now } = state;
  const parts = [item.name && (item.job === null ? `Reservation ${item.name}` : `Job ${item.name}`)];
  if (item.kind === "slot") parts.push("Free slot");
  if (item.workflow !== undefined && item.malleable && item.label !== "malleable") parts.push("malleable");
  if (item.label) parts.push(item.label);
  if (item.user) parts.push(item.user);
  parts.push(`${count(item.count, "node")}: ${nodesText(item.rows, data.nodes)}`);
  const until = item.end === null ? "without end" : `until ${clock(item.end)}`;
  if (item.kind === "past") parts.push(`held from ${clock(item.start)} to ${clock(item.end)}`);
  else if (item.kind === "running") {
    const expected = item.expected_end ? `expected to end at ${clock(item.expected_end)}, ` : "";
    parts.push(`${item.malleable ? "on these nodes" : "running"} since ${clock(item.start)} (${lasting(now - item.start)}), ${expected}at most ${until}`);
  } else if (item.kind === "planned") {
    const wait = item.start - now;
    parts.push(wait < 1 ? "can start now" : `starts by ${clock(item.start)} by everybody's time limits, in ${lasting(wait)}`);
    if (wait >= 1 && item.likely !== undefined) parts.push(`likely at ${likely(item)}`);
  } else parts.push(`${item.start > now ? `from ${clock(item.start)}` : "from now on"}, ${until}`);
  if (item.kind === "slot" && item.price) parts.push(price(item.price, item.count, item.end === null ? null : item.end - Math.max(item.start, now)));
  return parts.filter(Boolean).join(" · ");
}

function look(item) {
  if (item.kind === "planned" || item.kind === "slot" || item.kind === "reserved") return item.kind;
  const whose = item.malleable ? "breathing" : item.workflow !== null ? "flow" : "running";
  return item.kind === "past" ? `${whose} past` : whose;
}

const key = (item) => `${item.kind}-${item.name || "slot"}-${Math.round(item.start)}-${item.rows[0]?.[0]}`;

function draw() {
  const { data, now } = state;
  if (data === null) return;
  const chart = byId("chart");
  const rows = rowsShown();
  const place = new Map(rows.map((row, i) => [row, i]));
  const height = rows.length <= 16 ? 22 : rows.length <= 32 ? 16 : rows.length <= 64 ? 11 : 8;
  const longest = Math.max(3, ...rows.map((row) => data.nodes[row].name.length));
  const left = Math.min(140, longest * 7 + 14);
  const width = Math.max(320, chart.clientWidth);
  const bottom = AXIS + rows.length * height;
  const all = items();
  const [from, to] = windowShown(all);
  const x = (t) => left + ((Math.min(Math.max(t, from), to) - from) / (to - from)) * (width - left - 1);

  const body = [];
  const every = Math.ceil(13 / height);
  rows.forEach((row, i) => {
    if (i % 2) body.push(svg("rect", { class: "band", x: left, y: AXIS + i * height, width: width - left, height }));
    if (i % every === 0) {
      const y = AXIS + i * height + Math.min(height, 13) / 2 + 4;
      const dim = data.nodes[row].state === "down" ? "node off" : "node";
      body.push(svg("text", { class: dim, x: left - 8, y, "text-anchor": "end" }, data.nodes[row].name.slice(-18)));
    }
  });
  const marks = ticks(from, to, Math.max(3, (width - left) / 110));
  for (const t of marks.at) {
    body.push(svg("line", { class: "grid", x1: x(t), x2: x(t), y1: AXIS - 4, y2: bottom }));
    const far = Math.abs(x(t) - x(now)) > 44;
    if (far) body.push(svg("text", { class: "tick", x: x(t), y: 13, "text-anchor": "middle" }, tickText(t, marks.step)));
  }

  // Stretches of neighbouring rows that a set of nodes has in this picture.
  const stretches = (spans) => {
    const found = [];
    for (const [first, n] of spans) {
      for (let row = first; row < first + n; row += 1) {
        const at = place.get(row);
        if (at === undefined) continue;
        const last = found.at(-1);
        if (last && last[0] + last[1] === at) last[1] += 1;
        else found.push([at, 1]);
      }
    }
    return found;
  };

  for (const [at, n] of stretches(data.down)) {
    body.push(svg("rect", {
      class: "off", fill: "url(#down)", x: x(now), y: AXIS + at * height, width: x(to) - x(now), height: n * height,
    }));
  }
  const shown = [];
  for (const item of all) {
    const end = item.end === null ? to : item.kind === "running" ? Math.max(item.end, now) : item.end;
    const spans = stretches(item.rows);
    if (end < from || item.start > to || !spans.length) continue;
    shown.push(shape(item, spans, { x, now, end, height }));
  }
  body.push(...shown);
  body.push(svg("line", { class: "now", x1: x(now), x2: x(now), y1: 18, y2: bottom }));
  body.push(svg("text", { class: "now-text", x: x(now), y: 13, "text-anchor": "middle" }, "now"));
  chart.replaceChildren(
    svg("svg", { width, height: bottom + 1, viewBox: `0 0 ${width} ${bottom + 1}`, role: "presentation" }, body),
  );
  mark(chart.querySelector(`#${CSS.escape(state.key ?? "none")}`));
}

function tickText(t, step) {
  const d = new Date(t * 1000);
  if (step >= 86400 || (d.getHours() === 0 && d.getMinutes() === 0 && step >= 3600)) {
    return d.toLocaleDateString(undefined, { weekday: "short", day: "numeric" });
  }
  return clock(t, step < 60).slice(-(step < 60 ? 8 : 5));
}

const FILLS = { planned: "url(#stripes)", reserved: "url(#reserved)" };

function shape(item, spans, { x, now, end, height }) {
  const text = describe(item);
  const group = svg("g", { id: key(item), class: `bar ${look(item)}`, role: "option", "aria-label": text, "aria-selected": "false" });
  group.item = item;
  group.append(svg("title", {}, text));
  const x0 = x(item.start);
  const wide = Math.max(2, x(end) - x0);
  for (const [at, n] of spans) {
    const box = { y: AXIS + at * height + 1, height: n * height - 2, rx: 3 };
    if (item.kind === "running") {
      // What it may still take, to its limit, is lighter than what it has had.
      group.append(svg("rect", { ...box, class: "rest", x: x0, width: wide }));
      group.append(svg("rect", { ...box, class: "body", x: x0, width: Math.max(2, x(now) - x0) }));
      if (item.malleable) group.append(svg("rect", { ...box, class: "texture", fill: "url(#dots)", x: x0, width: wide }));
    } else {
      group.append(svg("rect", { ...box, class: "body", fill: FILLS[item.kind], x: x0 + 0.5, width: Math.max(2, wide - 1) }));
    }
    if ((item.kind === "running" || item.kind === "past") && item.workflow !== null && wide > 6) {
      group.append(svg("rect", { ...box, class: "edge", rx: 1, x: x0, width: 3 }));
    }
  }
  // Of a workflow its name says most; of what else there is, the number.
  const label = item.kind === "slot" ? "" : item.workflow !== null && item.label ? item.label : [item.name, item.label].filter(Boolean).join(" ");
  const room = Math.floor((wide - 12) / 6.6);
  const [at, n] = spans[0];
  if (height >= 16 && label && room >= Math.min(label.length, 5)) {
    const fits = label.length <= room ? label : `${label.slice(0, Math.max(1, room - 1))}…`;
    const y = AXIS + at * height + (n > 1 ? Math.min(n * height, 44) : height) / 2 + 4;
    group.append(svg("text", { class: "label", x: x0 + 6, y, "aria-hidden": "true" }, fits));
  }
  if (item.kind === "planned" && item.likely !== undefined && item.start - now >= 1) group.append(...band(item, x, AXIS + (at + 1) * height - (height > 12 ? 5 : height / 2), height));
  return group;
}

// When it likely starts, left of where its bar begins, below the names of those who are there until then.
function band(item, x, y, height) {
  const [low, likely, high] = [x(item.low), x(item.likely), x(item.high)];
  const half = Math.min(4, height / 2 - 1);
  const path = `M${low} ${y - half}V${y + half}M${low} ${y}H${high}M${high} ${y - half}V${y + half}`;
  return [
    svg("path", { class: "band-back", d: path }),
    svg("path", { class: "band-line", d: path }),
    svg("circle", { class: "band-dot", cx: likely, cy: y, r: half - 0.5 }),
  ];
}

// In the order of the arrow keys: what there is, and after that what is free.
function options() {
  const all = [...byId("chart").querySelectorAll("[role=option]")];
  const free = (option) => option.item.kind === "slot";
  return [...all.filter((option) => !free(option)), ...all.filter(free)];
}
const active = () => byId("chart").querySelector("[aria-selected=true]");

function mark(option) {
  const chart = byId("chart");
  active()?.setAttribute("aria-selected", "false");
  if (option) {
    option.setAttribute("aria-selected", "true");
    chart.setAttribute("aria-activedescendant", option.id);
    state.chosen = option.item;
    say("chosen", describe(option.item));
  } else {
    chart.removeAttribute("aria-activedescendant");
    state.chosen = null;
    say("chosen", "Select a bar to see what it is.");
  }
  byId("why").hidden = !option || option.item.kind === "slot" || option.item.job === null;
}

function choose(option) {
  state.key = option?.id ?? null;
  mark(option);
}

function onKey(event) {
  const all = options();
  const i = all.indexOf(active());
  const next = { ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0, End: all.length - 1 }[event.key];
  if (event.key === "Escape") choose(null);
  else if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  else choose(all[Math.min(Math.max(next, 0), all.length - 1)]);
  event.preventDefault();
}

// What a bar is, by words and not by its colour alone.
function kind(item) {
  if (item.kind !== "running") return KINDS[item.kind];
  return item.malleable ? "running, malleable" : item.workflow !== null ? "running, of a workflow" : "running";
}

function table() {
  const { data } = state;
  byId("bars").replaceChildren(
    ...items()
      .filter((item) => item.kind !== "past")
      .sort(byStart)
      .slice(0, 500)
      .map((item) =>
        row([
          ["Name", null, [item.name, item.label].filter(Boolean).join(" ") || "slot"],
          ["What", null, kind(item)],
          ["User", null, item.user],
          ["Nodes", "number", item.count],
          ["Node names", null, nodesText(item.rows, data.nodes)],
          ["From", "number", clock(item.start)],
          ["Likely from", "number", item.likely === undefined ? "" : clock(item.likely)],
          ["To", "number", item.end === null ? "no end" : clock(item.end)],
          ["Price", null, item.price ? price(item.price, item.count, item.end === null ? null : item.end - item.start) : ""],
        ]),
      ),
  );
  const notes = data.since === null ? [] : [`Jobs that ended before ${clock(data.since)} are not shown`];
  if (data.at - data.planned_at > OLD) notes.push(`Expected starts were calculated at ${clock(data.planned_at)}`);
  say("notes", [...notes, ...data.notes].join(" · "));
}
