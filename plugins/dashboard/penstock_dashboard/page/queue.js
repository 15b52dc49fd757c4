// Who waits: when each starts at the latest, and when likely.

import { head, row } from "./cards.js";
import { byId, el, say } from "./dom.js";
import { clock, count, lasting } from "./format.js";

const AT_FIRST = 12;
const REASONS = {
  Resources: "nodes",
  Priority: "its turn",
  None: "nodes",
  "": "nodes",
  Dependency: "jobs before it",
  BeginTime: "its begin time",
  Reservation: "its reservation",
  JobHeldUser: "a release by its owner",
  JobHeldAdmin: "a release by an administrator",
  Licenses: "a licence",
};
const state = { all: [], more: false };

export function setUp() {
  byId("queue-more").addEventListener("click", () => ((state.more = !state.more), draw()));
}

export function update(queue, waiting, likely, now, planned) {
  Object.assign(state, { all: queue, waiting, likely, now, planned });
  draw();
}

function draw() {
  const { all, likely } = state;
  const known = all.some((job) => job.likely !== undefined);
  const shown = state.more ? all : all.slice(0, AT_FIRST);
  byId("queue-more").hidden = all.length <= AT_FIRST;
  say("queue-more", state.more ? "Show fewer" : `Show all ${all.length}`);
  say("queue-said", all.length ? words(known, likely) : "Nobody waits.");
  const names = ["Job", "User", "Nodes", "Time limit", "Waiting", "Waits for", "Starts by", ...(known ? ["Likely", "9 in 10"] : [])];
  const table = byId("queue-table");
  table.hidden = !all.length;
  table.replaceChildren(
    el("caption", { class: "hidden" }, "Jobs in the queue, in the order of their start by everybody's time limits"),
    head(names),
    el("tbody", { role: "rowgroup" }, shown.map((job) => line(job, known))),
  );
}

function words(known, likely) {
  const parts = [];
  if (state.planned) parts.push("Starts by: if everybody uses the whole time limit and nobody is put before it");
  if (known) {
    parts.push("likely: by how long jobs ran before, right 9 times in 10 within the band");
    if (likely?.why) parts.push(`further back it is not known: ${likely.why}`);
  } else if (state.planned && likely?.why) parts.push(`when they likely start is not known: ${likely.why}`);
  const left = state.waiting - state.all.reduce((n, job) => n + Math.max(job.tasks, 1), 0);
  if (left > 0) parts.push(`${left} more are not shown`);
  const told = parts.join("; ");
  return told && `${told[0].toUpperCase()}${told.slice(1)}.`;
}

function line(job, known) {
  const name = [String(job.job), job.label, job.tasks > 1 ? count(job.tasks, "task") : ""].filter(Boolean).join(" · ");
  const start = job.start === null ? "" : job.start - state.now < 1 ? "now" : clock(job.start);
  const band = job.likely === undefined ? "" : `${clock(job.low, false)} – ${clock(job.high, false)}`;
  const likely = job.likely === undefined ? "" : job.likely - state.now < 1 ? "now" : `${clock(job.likely, false)} (in ${lasting(job.likely - state.now)})`;
  return row([
    ["Job", null, name],
    ["User", null, job.user],
    ["Nodes", "number", job.nodes],
    ["Time limit", "number", job.limit === null ? "none" : lasting(job.limit)],
    ["Waiting", "number", lasting(state.now - job.submit)],
    ["Waits for", null, REASONS[job.reason] ?? job.reason],
    ["Starts by", "number", start],
    ...(known ? [["Likely", "number", likely], ["9 in 10", "number", band]] : []),
  ]);
}
