// Times, durations and sets of nodes as people read them.

const two = (n) => String(n).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

let here = null; // what time it is where the agent runs

// To be told before anything is drawn: by it times are of today, or have their date.
export function itIs(now) {
  here = now;
}

const isToday = (d) => new Date(here === null ? Date.now() : here * 1000).toDateString() === d.toDateString();

const date = (d) => `${d.getDate()} ${MONTHS[d.getMonth()]}`;

const time = (d, seconds) => `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;

// A time of day; with its date, and without seconds, if that is not today.
export function clock(at, seconds = true) {
  if (at === null || at === undefined) return "";
  const d = new Date(at * 1000);
  return isToday(d) ? time(d, seconds) : `${date(d)} ${time(d, false)}`;
}

const UTC = /(?:(\d{4}-\d\d-\d\d) )?\b(\d\d:\d\d(?::\d\d)?)Z/g;

// The agent's sentences name instants in UTC; here they are like all other times. One without a date is the nearest to
// when the sentence was written.
export function inLocalTime(text, at) {
  return text.replace(UTC, (whole, day, time) => {
    let t = Date.parse(`${day ?? new Date(at * 1000).toISOString().slice(0, 10)}T${time}Z`) / 1000;
    if (Number.isNaN(t)) return whole;
    if (!day) t -= 86400 * Math.round((t - at) / 86400);
    return clock(t, time.length > 5);
  });
}

// Both ends of an axis, as exact as it takes to tell one from the other.
export function ends(from, to) {
  const [a, b] = [new Date(from * 1000), new Date(to * 1000)];
  const short = [time(a, false), time(b, false)];
  const told = to - from < 600 || short[0] === short[1] ? [time(a, true), time(b, true)] : short;
  return a.toDateString() === b.toDateString() && isToday(a) ? told : [`${date(a)} ${told[0]}`, `${date(b)} ${told[1]}`];
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

// When it likely starts, with the band that is right nine times in ten.
export function likely(of, seconds = true) {
  return `${clock(of.likely, seconds)} (9 in 10: ${clock(of.low, seconds)} to ${clock(of.high, seconds)})`;
}

// A price of nodes, in service units: the site's billing.
export function price(ofNodeHour, nodes, seconds) {
  const told = (n) => String(Number(n.toPrecision(4)));
  const whole = seconds === null ? "" : `, ${told((ofNodeHour * nodes * seconds) / 3600)} SU in all`;
  return `${told(ofNodeHour)} SU a node-hour${whole}`;
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
