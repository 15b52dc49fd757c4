"""One workflow over several sites (Singh 2008, sections 4.9 and 7.3): what each offers, on one clock and in one unit.

The global set of slots is that of all sites, and the planners work on it as they do on one. HEFT puts a task where it
ends first, which is a heuristic: on its own a site can come out better than among others. So every site alone is
planned as well, and more sites never make a plan worse than the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.errors import Infeasible, UserError
from penstock_planning.plan.besteffort import Later, when_parents_end
from penstock_planning.plan.dag import Dag, DagTask, Edge
from penstock_planning.plan.front import Evaluation, ParetoPoint, check_limits
from penstock_planning.plan.heft import Schedule, ScheduledTask, Scheduler
from penstock_planning.plan.moga import MogaSettings
from penstock_planning.plan.orders import free_plans
from penstock_planning.plan.session import VERSION, number_in, set_in
from penstock_planning.plan.slots import Slot
from penstock_planning.plan.table import SlotTable
from penstock_planning.plan.transfers import NetworkLink, between
from penstock_planning.plan.workflows import Front, FrontPlan, ScheduleChoice, search

__all__ = [
    "DataTransfer",
    "Hello",
    "OfferedSite",
    "TaskRow",
    "best_effort_among",
    "best_effort_if_any",
    "moves",
    "offset",
    "on_one_clock",
    "over",
    "plan_among",
]


@dataclass(frozen=True, slots=True)
class Hello:
    """What a site has said of itself (`provision.session`), times as it counts them. `most` and `longest` are what one
    job may have."""

    live: bool
    now: float
    partition: str | None
    names: tuple[str, ...]
    within: int
    most: int
    longest: float
    ends: tuple[float, ...]
    slots: tuple[Slot, ...]

    @classmethod
    def parse(cls, said: object) -> Hello:
        """From the first line of a session. UserError says what is wrong with it."""
        if not isinstance(said, dict) or "session" not in said:
            raise UserError("is no session of penstock slots")
        if said["session"] != VERSION:
            raise UserError(f"speaks version {said['session']!r:.20} of sessions, this release speaks {VERSION}")
        names, ends, slots = (said.get(key) for key in ("names", "ends", "slots"))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError("names: must be a list of names")
        if not isinstance(ends, list) or not isinstance(slots, list):
            raise UserError("ends, slots: must be lists")
        partition, longest = said.get("partition"), said.get("max_duration")
        return cls(
            said.get("live") is True,
            number_in(said, "now"),
            partition if isinstance(partition, str) else None,
            tuple(names),
            set_in(said, "within"),
            int(number_in(said, "max_procs", least=0)),
            math.inf if longest is None else number_in(said, "max_duration", least=0),
            tuple(sorted(number_in({"ends": end}, "ends") for end in ends)),
            tuple(_slot(slot, f"slots[{i}]") for i, slot in enumerate(slots)),
        )


def _slot(said: object, where: str) -> Slot:
    if not isinstance(said, dict):
        raise UserError(f"{where}: must be an object")
    try:
        return Slot(
            number_in(said, "start"),
            int(number_in(said, "procs", least=1)),
            number_in(said, "duration", least=0),
            number_in(said, "c", least=0),
            number_in(said, "f", least=0),
            said.get("divisible") is True,
            said.get("extensible") is True,
            number_in(said, "penalty", least=0),
            set_in(said, "nodes"),
        )
    except UserError as error:
        raise UserError(f"{where}.{error}") from None


def offset(asked: float, answered: float, there: float) -> float:
    """How much more than ours a site's clock shows, in whole seconds: it showed `there` between `asked` and `answered`.

    A clock that may show the right time is taken to do so; where it cannot, half the time between is the best guess.
    """
    if asked - 1 <= there <= answered + 1:
        return 0.0
    return float(round(there - (asked + answered) / 2))


@dataclass(frozen=True, slots=True)
class OfferedSite:
    """A site with what it offers. Its clock shows `ahead` seconds more than ours; it works `speed` times as fast as
    what time limits are given for; one of its units of cost counts `price` of ours."""

    name: str
    hello: Hello
    ahead: float = 0.0
    speed: float = 1.0
    price: float = 1.0

    def slots(self, now: float) -> list[Slot]:
        """Its slots on our clock and in our unit, from `now` on."""
        out = []
        for slot in self.hello.slots:
            start = max(slot.start - self.ahead, now)
            left = slot.start - self.ahead + slot.duration - start
            if left > 0 or slot.extensible:
                c, f = slot.c * self.price, slot.f * self.price
                out.append(replace(slot, start=start, duration=max(left, 0), c=c, f=f))
        return out

    def duration(self, procs: int, seconds: float) -> float:
        """How long a slot must be there for what has this time limit here; infinite if it cannot be had at all."""
        length = seconds / self.speed
        if self.hello.live and self.speed != 1:
            length = math.ceil(length)  # Slurm counts whole seconds
        return math.inf if procs > self.hello.most or length > self.hello.longest else length


def on_one_clock(sites: Sequence[OfferedSite], ours: float) -> tuple[float, list[OfferedSite]]:
    """What is now, and the sites with their clocks' difference to it. `ours` (whole seconds) is now if any of them is
    a cluster; queue files have no clock: their now is now, and among themselves that of the first one counts."""
    now = ours if any(site.hello.live for site in sites) else sites[0].hello.now
    return now, [s if s.hello.live else replace(s, ahead=s.hello.now - now) for s in sites]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task: its name, processors, time limit, those it comes after, and the bytes it needs of each of these."""

    name: str
    procs: int
    seconds: float
    after: Sequence[str] = ()
    inputs: Sequence[float] = ()


def over(
    rows: Sequence[TaskRow],
    sites: Sequence[OfferedSite],
    links: Mapping[tuple[str, str], NetworkLink],
    corrections: Mapping[tuple[str, str], float],
) -> Dag:
    """The workflow over these sites. Infeasible names a task that can run on none of them; UserError a link that is
    missing."""
    names = [site.name for site in sites]
    number = {row.name: i for i, row in enumerate(rows)}
    tasks, edges = [], []
    for row in rows:
        durations = tuple(site.duration(row.procs, row.seconds) for site in sites)
        if min(durations) == math.inf:
            most = max((site.hello.most for site in sites), default=0)
            why = f"{row.procs} nodes (at most {most})" if row.procs > most else f"{row.seconds:g} s"
            raise Infeasible(f"task {row.name}: none of {', '.join(names)} ever gives a job {why}")
        tasks.append(DagTask(row.name, row.procs, durations))
        for parent, size in zip(row.after, row.inputs or [0.0] * len(row.after), strict=True):
            try:
                times = between(names, links, corrections, size)
            except KeyError as error:
                raise UserError(f"links: there is none between {' and '.join(error.args[0])}") from None
            edges.append(Edge(number[parent], number[row.name], times if size and len(sites) > 1 else ()))
    return Dag(tuple(tasks), tuple(edges))


@dataclass(frozen=True, slots=True)
class DataTransfer:
    """What task number `parent` made goes to where `child` runs, from `start` to `end` if nothing is in the way."""

    parent: int
    child: int
    source: int
    target: int
    start: float
    end: float


def moves(dag: Dag, schedule: Schedule) -> list[DataTransfer]:
    """All data that a schedule takes from one site to another, by start."""
    at = {p.task: p for p in schedule.placed}
    out = []
    for edge in dag.edges:
        parent, child = at[edge.parent], at[edge.child]
        if time := edge.time(parent.site, child.site):
            out.append(DataTransfer(edge.parent, edge.child, parent.site, child.site, parent.end, parent.end + time))
    return sorted(out, key=lambda m: (m.start, m.parent, m.child))


def best_effort_among(dag: Dag, sites: Sequence[OfferedSite], now: float) -> Schedule:
    """Every task is sent, when those before it have ended, to the site with the fewest jobs that run or wait, and is
    submitted there when its data have come (section 4.9). Nobody else is thought to come. Infeasible if one never fits.
    """
    tables = [SlotTable(site.slots(now)) for site in sites]
    ends = [[end - site.ahead for end in site.hello.ends] for site in sites]
    placed: dict[int, ScheduledTask] = {}
    chosen: dict[int, int] = {}

    def submit(when: float, i: int) -> float | Later:
        task = dag.tasks[i]
        if i not in chosen:
            able = [
                r
                for r, (table, duration) in enumerate(zip(tables, task.durations, strict=True))
                if duration < math.inf and table.find(task.procs, duration, when) is not None
            ]
            if not able:
                raise Infeasible(f"task {task.name}: {task.procs} processors are never free for it at any site")
            site = chosen[i] = min(able, key=lambda r: (sum(end > when for end in ends[r]), r))
            there = max((placed[e.parent].end + e.time(placed[e.parent].site, site) for e in dag.into(i)), default=when)
            if there > when:
                return Later(there)
        site, duration = chosen[i], task.durations[chosen[i]]
        fit = tables[site].find(task.procs, duration, when)
        if fit is None:
            raise Infeasible(f"task {task.name}: {task.procs} processors are never free for it at {sites[site].name}")
        end = fit.start + duration
        placed[i] = ScheduledTask(i, site, fit.start, end, tables[site].take(fit, task.procs, duration))
        ends[site].append(end)
        return end

    last = when_parents_end(dag, now, submit)
    cost = sum(
        used * slots[n].c
        for table, slots in zip(tables, [site.slots(now) for site in sites], strict=True)
        for n, used in table.used.items()
    )
    return Schedule(last - now, cost, tuple(placed.values()))


def best_effort_if_any(dag: Dag, sites: Sequence[OfferedSite], now: float) -> Schedule | None:
    """The same; None if it finds no place for a task, as a plan still may."""
    try:
        return best_effort_among(dag, sites, now)
    except Infeasible:
        return None


def plan_among(
    dag: Dag,
    sites: Sequence[OfferedSite],
    now: float,
    method: str,
    alpha: float = 0.5,
    deadline: float = math.inf,
    budget: float = math.inf,
    seed: int = 1,
    settings: MogaSettings | None = None,
    show: Callable[[float], str] = "{:g}".format,
) -> ScheduleChoice:
    """Plan it on the free slots of all sites and of each alone, in part (`best`) or as a whole (`paper`), or as best
    effort. Infeasible if it does not fit or a limit cannot be kept, saying what would be enough."""
    if method == "best-effort":
        alone = best_effort_among(dag, sites, now)
        check_limits([ParetoPoint(alone.cost, alone.makespan, ())], deadline, budget, show)
        return ScheduleChoice((FrontPlan(alone.cost, alone.makespan, "free slots"),), alone, alone)
    front, queue_alone = Front(), best_effort_if_any(dag, sites, now)
    if method == "best" and queue_alone is not None:
        front.add("free slots", queue_alone)
    for site in (None, *(range(len(sites)) if len(sites) > 1 else ())):
        part = dag if site is None else _only(dag, site)
        if part is None:
            continue
        offered = sites if site is None else sites[site : site + 1]
        offers = [(r, slot) for r, each in enumerate(offered) for slot in each.slots(now)]
        at, slots = [r for r, _ in offers], [slot for _, slot in offers]
        if method == "best":
            found: Iterable[Schedule] = free_plans(part, slots, at, now, seed)
        else:
            evaluate = Evaluation(Scheduler(part, slots, at, now))
            found = (evaluate.schedule(point.genome) for point in search(evaluate, slots, seed, settings))
        for schedule in found:
            if site is not None:
                schedule = replace(schedule, placed=tuple(replace(p, site=site) for p in schedule.placed))
            front.add("free slots" if method == "best" else "whole slots", schedule)
    return front.choose(alpha, queue_alone, check_limits(front.points, deadline, budget, show))


def _only(dag: Dag, site: int) -> Dag | None:
    """The workflow on one site alone; None if a task cannot run there."""
    tasks = tuple(replace(task, durations=(task.durations[site],)) for task in dag.tasks)
    if any(task.durations[0] == math.inf for task in tasks):
        return None
    return Dag(tasks, tuple(Edge(e.parent, e.child) for e in dag.edges))
