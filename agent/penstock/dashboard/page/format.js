// Times, durations and sets of nodes as people read them.

const two = (n) => String(n).padStart(2, "0");

export function clock(at, seconds = true) {
  if (at === null || at === undefined) return "";
  const d = new Date(at * 1000);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;
  const today = new Date().toDateString() === d.toDateString();
  return today ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

export function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  const m = Math.round(s / 60);
  if (m < 120) return `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

export function count(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}

export function nodesText(rows, nodes, most = 4) {
  const parts = rows.map(([first, n]) => {
    const [a, b] = [nodes[first], nodes[first + n - 1]];
    if (!a || !b) return "";
    return n === 1 ? a.name : n === 2 ? `${a.name}, ${b.name}` : `${a.name} – ${b.name}`;
  });
  const left = parts.length - most;
  return parts.slice(0, most).join(", ") + (left > 0 ? `, and ${left} more` : "");
}

const STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];

// By how much local clocks were changed since: a day that has 25 hours does not move midnight to 23:00.
const changed = (since, t) => (new Date(t * 1000).getTimezoneOffset() - since.getTimezoneOffset()) * 60;

// Round instants between two, at most `most` of them, counted from local midnight.
export function ticks(from, to, most) {
  const step = STEPS.find((s) => (to - from) / s <= most) ?? 604800;
  const midnight = new Date(from * 1000);
  midnight.setHours(0, 0, 0, 0);
  const base = midnight.getTime() / 1000;
  const found = [];
  for (let t = base + Math.ceil((from - base) / step) * step; t <= to; t += step) found.push(step < 10800 ? t : t + changed(midnight, t));
  return { step, at: found };
}
