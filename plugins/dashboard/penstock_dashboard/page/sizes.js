// Malleable jobs: how many nodes each has had over time.

import { head } from "./cards.js";
import { byId, el, say, svg } from "./dom.js";
import { clock, count, ends } from "./format.js";

const HEIGHT = 72;
const LONGEST = 6 * 3600;
const kept = new Map(); // by job: its article, so that what a reader has opened stays open

export function draw(all, now) {
  const where = byId("malleable");
  const jobs = all.filter((j) => j.ended === null || j.ended > now - LONGEST);
  if (!jobs.length) {
    kept.clear();
    say("malleable-period", "");
    where.replaceChildren(el("p", { class: "empty" }, "No malleable jobs. An MPI program with `import dmr` becomes one."));
    return;
  }
  const first = Math.min(...jobs.map((j) => j.started));
  const from = Math.max(first, now - LONGEST);
  const to = Math.max(now, from + 60);
  say("malleable-period", `Nodes of each job, ${ends(from, to).join(" to ")}`);
  for (const job of [...kept.keys()]) if (!jobs.some((j) => j.job === job)) kept.delete(job);
  const articles = jobs.map((j) => article(j, from, to));
  if (articles.some((a, i) => where.children[i] !== a) || where.children.length !== articles.length) {
    where.replaceChildren(...articles);
  }
}

function article(j, from, to) {
  let node = kept.get(j.job);
  if (!node) {
    const id = `malleable-${j.job}`;
    node = el(
      "article",
      { class: "breath", "aria-labelledby": id },
      el("div", { class: "said" }, el("h3", { id }, `Job ${j.job}`), el("p", { class: "size" }), el("p", { class: "quiet what" })),
      el("figure", { class: "steps" }),
      el(
        "details",
        {},
        el("summary", {}, "Resizes", el("span", { class: "hidden" }, ` of job ${j.job}`)),
        el(
          "table",
          {},
          el("caption", { class: "hidden" }, `Resizes of job ${j.job}`),
          head(["Time", "From", "To", "Outcome"]),
          el("tbody", {}),
        ),
      ),
    );
    kept.set(j.job, node);
  }
  const put = (selector, text) => {
    const found = node.querySelector(selector);
    if (found.textContent !== text) found.textContent = text;
  };
  put(".size", count(j.size, "node"));
  put(".what", what(j));
  node.classList.toggle("over", j.ended !== null);
  node.querySelector("figure").replaceChildren(picture(j, from, to));
  const rows = j.resizes.toReversed().map((r) =>
    el("tr", {}, el("td", {}, clock(r.at)), el("td", { class: "number" }, r.old), el("td", { class: "number" }, r.new), el("td", {}, r.outcome)),
  );
  node.querySelector("tbody").replaceChildren(...rows);
  node.querySelector("details").hidden = !rows.length;
  return node;
}

function what(j) {
  const parts = [`${j.minimum} to ${j.maximum} allowed`];
  if (j.ended !== null) parts.unshift(`ended ${clock(j.ended)}`);
  else if (j.phase !== "idle") parts.unshift(j.target ? `${j.phase}, to ${count(j.target, "node")}` : j.phase);
  parts.push(`${(j.node_seconds / 3600).toPrecision(2)} node-hours`);
  return parts.join(" · ");
}

function picture(j, from, to) {
  const most = Math.max(j.maximum <= 4 * Math.max(...j.points.map((p) => p[1])) ? j.maximum : 0, ...j.points.map((p) => p[1]));
  const x = (t) => (1000 * (Math.min(Math.max(t, from), to) - from)) / (to - from);
  const y = (n) => HEIGHT - (n / most) * (HEIGHT - 6);
  const end = j.ended ?? to;
  let path = `M${x(j.points[0][0])} ${HEIGHT}`;
  let edge = "";
  j.points.forEach(([t, n], i) => {
    const until = j.points[i + 1]?.[0] ?? end;
    path += `L${x(t)} ${y(n)}L${x(until)} ${y(n)}`;
    edge += `${i ? "L" : "M"}${x(t)} ${y(n)}L${x(until)} ${y(n)}`;
  });
  path += `L${x(end)} ${HEIGHT}Z`;
  const said = j.points.map(([t, n]) => `${count(n, "node")} from ${clock(t)}`).join(", ");
  const shown = svg(
    "svg",
    { viewBox: `0 0 1000 ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Job ${j.job}: ${said}.` },
    svg("line", { class: "limit", x1: 0, x2: 1000, y1: y(Math.min(j.minimum, most)), y2: y(Math.min(j.minimum, most)) }),
    svg("line", { class: "limit", x1: 0, x2: 1000, y1: y(Math.min(j.maximum, most)), y2: y(Math.min(j.maximum, most)) }),
    svg("path", { class: "area", d: path }),
    svg("path", { class: "edge", d: edge }),
  );
  return el("div", { class: "plot" }, el("span", { class: "scale", "aria-hidden": "true" }, el("span", {}, most), el("span", {}, 0)), shown);
}
