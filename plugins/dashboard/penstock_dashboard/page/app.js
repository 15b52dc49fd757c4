// Asks for the data again and again, and gives each part of the page what is new for it.

import * as cards from "./cards.js";
import { byId, el, say, whenNew } from "./dom.js";
import { clock, itIs } from "./format.js";
import * as decisions from "./decisions.js";
import * as gantt from "./gantt.js";
import * as queue from "./queue.js";
import * as sizes from "./sizes.js";
import * as workflows from "./workflows.js";

const EVERY = 2000; // ms
const PATIENCE = 20000;

const page = { tag: null, data: null, now: null, received: 0 };

if (location.search) history.replaceState(null, "", location.pathname); // the word that let us in is not needed again

const drawDecisions = whenNew(decisions.update);
const drawNotice = whenNew(notice);
const drawCounts = whenNew(counts);

async function ask() {
  try {
    const headers = page.tag ? { "If-None-Match": page.tag } : {};
    const answer = await fetch("data.json", { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status === 403) return lost("This page's key is out of date. Open the address that `penstock dashboard` has printed.");
    if (answer.status !== 304) {
      if (!answer.ok) throw new Error(answer.statusText);
      page.data = await answer.json();
      page.tag = answer.headers.get("ETag");
    }
    page.now = answer.headers.get("Penstock-Now"); // not in the data, which may be the same for hours
    page.received = performance.now();
    show();
  } catch {
    lost("`penstock dashboard` does not answer. This page keeps trying.");
  }
}

function now() {
  return page.now === null ? Date.now() / 1000 : Number(page.now) + (performance.now() - page.received) / 1000;
}

function show() {
  const { data } = page;
  const at = now();
  itIs(at);
  say("name", data.name);
  document.title = data.name ? `Penstock · ${data.name}` : "Penstock";
  if (data.cluster) {
    gantt.update(data.cluster, at);
    drawCounts(data.cluster.counts, data.whole);
  }
  if (getSelection().isCollapsed) {
    // What somebody is selecting, perhaps to copy it, stays where it is.
    if (data.cluster) queue.update(data.cluster.queue, data.cluster.counts.waiting, data.cluster.likely, at, data.whole);
    workflows.draw(data.workflows, at);
    sizes.draw(data.malleable, at);
    drawDecisions(data.decisions);
  }
  live(data);
  drawNotice(data.agent, data.problems, data.whole, data.agent.answers ? null : (data.cluster?.at ?? null));
}

function live(data) {
  const state = !data.agent.answers ? "lost" : data.problems.length ? "held" : "ok";
  byId("live").dataset.state = state;
  const seen = data.cluster ? `Slurm seen at ${clock(data.cluster.at)}` : "Slurm not seen yet";
  say("live-text", { ok: `Live · ${seen}`, held: `On hold · ${seen}`, lost: "No agent" }[state]);
}

function notice(agent, problems, whole, seen) {
  const lines = [];
  if (!agent.answers) {
    lines.push(el("p", { class: "notice lost" }, agent.message, seen === null ? "" : ` What is shown is as of ${clock(seen)}.`));
  }
  for (const problem of problems) lines.push(el("p", { class: "notice held" }, `On hold: ${problem}`));
  if (!whole) lines.push(el("p", { class: "notice" }, "Only your own jobs are shown: the agent runs as another user."));
  byId("notice").replaceChildren(...lines);
  document.body.classList.toggle("stale", !agent.answers);
}

function lost(why) {
  byId("live").dataset.state = "lost";
  say("live-text", "Not connected");
  drawNotice({ answers: false, message: why }, [], true, page.data?.cluster?.at ?? null);
}

function counts(c) {
  const items = [
    ["nodes busy", `${c.busy} of ${c.nodes}`],
    [c.running === 1 ? "job running" : "jobs running", c.running],
    [c.waiting === 1 ? "job waiting" : "jobs waiting", c.waiting],
    [c.down === 1 ? "node down" : "nodes down", c.down],
  ];
  byId("counts").replaceChildren(...items.map(([name, n]) => el("div", {}, el("dt", {}, name), el("dd", {}, n))));
}

function why(item) {
  const { data } = page;
  const stage = data.workflows.find((w) => w.number === item.workflow);
  decisions.only(stage ? `workflow ${stage.number}` : `job ${item.job}`);
}

for (const table of document.querySelectorAll("table.cards")) cards.told(table);
gantt.setUp(why);
queue.setUp();
decisions.setUp();

// Nobody looks at a hidden page, so it asks for nothing.
let timer = 0;
async function again() {
  clearTimeout(timer);
  if (!document.hidden) await ask();
  clearTimeout(timer);
  timer = setTimeout(again, EVERY);
}
document.addEventListener("visibilitychange", () => !document.hidden && again());
again();
