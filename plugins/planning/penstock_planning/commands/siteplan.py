"""A plan over several sites, for people, programs and pictures; times are by the clock here."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from penstock.console.output import table
from penstock.errors import UserError
from penstock.future.bits import members
from penstock.values.durations import duration_text
from penstock.values.instants import parse_instant
from penstock_planning.commands.answers import LeftOut, PlacedThere, Site, SitesPlan, Transfer
from penstock_planning.commands.flows import Flows
from penstock_planning.commands.front import show_front, values
from penstock_planning.commands.gantt import Bar
from penstock_planning.commands.planning import instant_text
from penstock_planning.plan.dag import Dag
from penstock_planning.plan.queuefile import parse_number
from penstock_planning.plan.sites import OfferedSite, best_effort_if_any, moves, on_one_clock, over, plan_among
from penstock_planning.plan.workflows import DEFAULT_METHOD, ScheduleChoice, buy_within, the_method
from penstock_planning.sites.file import SiteEntry, SitesFile
from penstock_planning.sites.remote import LineOfSite, RemoteMarket

__all__ = ["SitePlan", "Wish", "readable"]


@dataclass(frozen=True)
class Wish:
    """How to plan, as the options of `penstock plan` say it; `account` pays if it is to be reserved."""

    method: str
    alpha: float
    deadline: str | None
    budget: float | None
    seed: int
    account: str | None = None


class SitePlan:
    """A plan over the sites that answered. Raises what planning raises, and SiteGone."""

    def __init__(
        self,
        greeted: Sequence[tuple[LineOfSite, OfferedSite]],
        gone: Mapping[str, str],
        flows: Flows,
        file: SitesFile,
        corrections: Mapping[tuple[str, str], float],
        wish: Wish,
    ) -> None:
        self._flows, self._gone, self._method = flows, gone, the_method(wish.method)
        self._rows = rows = flows.rows()
        self._corrections = corrections
        self.entries: list[SiteEntry] = [line.site for line, _ in greeted]
        self.now, self.sites = on_one_clock([offered for _, offered in greeted], math.ceil(time.time()))
        self.live = any(site.hello.live for site in self.sites)
        self.unit = "hours" if self.live else "units of time"
        self.dag: Dag = over(rows, self.sites, file.links, corrections)
        last = self._deadline(wish.deadline)
        limits = wish.alpha, last - self.now, math.inf if wish.budget is None else wish.budget
        if self._method == "greedy":
            alone = best_effort_if_any(self.dag, self.sites, self.now)
            markets = [RemoteMarket(line, site) for (line, _), site in zip(greeted, self.sites, strict=True)]
            for market in markets:
                market.forget()
            self.found: ScheduleChoice = buy_within(self.dag, markets, alone, self.now, *limits, self.length)
        else:
            self.found = plan_among(self.dag, self.sites, self.now, self._method, *limits, wish.seed, show=self.length)

    def _deadline(self, text: str | None) -> float:
        if text is None:
            return math.inf
        last = parse_instant(text, self.now, "--deadline") if self.live else float(parse_number(text, "--deadline"))
        if last <= self.now:
            raise UserError(f"--deadline must be later than now ({self.instant(self.now)}), not {self.instant(last)}")
        return last

    def instant(self, value: float) -> str:
        """For people, by the clock here."""
        return instant_text(value, self.now) if self.live else f"{value:g}"

    def length(self, value: float) -> str:
        """A duration for people."""
        return duration_text(value) if self.live and value < math.inf else f"{value:g}"

    def only_site(self) -> SiteEntry:
        """The one at which all of it runs. UserError if there are several, or it is none that runs anything."""
        used = sorted({p.site for p in self.found.schedule.placed})
        if len(used) > 1:
            names = [self.entries[r].name for r in used]
            raise UserError(
                f"--reserve: the plan uses {' and '.join(names)}, and only a plan at one site can be reserved; "
                f"--site {names[0]} plans it there"
            )
        entry = self.entries[used[0]]
        if entry.queue is not None:
            raise UserError(f"--reserve: {entry.name} is a queue file")
        return entry

    def options(self, entry: SiteEntry, wish: Wish) -> list[str]:
        """How the site is to plan: the same wish by its own clock and in its own unit."""
        site = next(site for site in self.sites if site.name == entry.name)
        out = ["--alpha", f"{wish.alpha!r}", "--seed", str(wish.seed), "-A", wish.account or "default"]
        if self._method != DEFAULT_METHOD:  # which a site of another release calls otherwise
            out += ["--method", self._method]
        if wish.deadline is not None:
            out += ["--deadline", f"@{self._deadline(wish.deadline) + site.ahead:.0f}"]
        if wish.budget is not None and site.price:
            out += ["--budget", f"{wish.budget / site.price!r}"]
        if entry.partition is not None:
            out += ["-p", entry.partition]
        return out

    def show_reserved(self, entry: SiteEntry, reserved: Mapping[str, Any]) -> None:
        """What the site has made of it; what it said is told already."""
        run = reserved.get("run")
        if isinstance(run, dict) and run.get("by") == "chain":
            return
        ahead = next(site.ahead for site in self.sites if site.name == entry.name)
        rows = [(s["name"], *(self.instant(s[key] - ahead) for key in ("start", "end"))) for s in reserved["stages"]]
        table(f"Reserved at {entry.name}, which has planned it anew", ("stage", "start", "end"), rows)

    def answer(self, **more: Any) -> SitesPlan:  # noqa: ANN401
        """The plan for programs: times by the clock here, `start_there` by that of the stage's site."""
        found, task = self.found, self.dag.tasks
        return SitesPlan(
            **values(self._method, found, _plain),
            now=_plain(self.now),
            sites=[
                Site.told(s, s.hello, procs=s.hello.most, slots=len(s.hello.slots), clock_ahead=_plain(s.ahead))
                for s in self.sites
            ],
            left_out=[LeftOut(name=name, why=why) for name, why in self._gone.items()],
            stages=[
                PlacedThere(
                    name=task[p.task].name,
                    site=self.sites[p.site].name,
                    start=_plain(p.start),
                    end=_plain(p.end),
                    start_there=_plain(p.start + self.sites[p.site].ahead),
                    procs=task[p.task].procs,
                    on=list(members(self.sites[p.site].hello.names, p.nodes)),
                    **self._flows.items[p.task].as_json(),
                )
                for p in found.schedule.placed
            ],
            transfers=[
                Transfer(
                    of=task[m.parent].name,
                    for_=task[m.child].name,
                    from_=self.sites[m.source].name,
                    to=self.sites[m.target].name,
                    bytes=_plain(self._bytes(m.parent, m.child)),
                    start=_plain(m.start),
                    end=_plain(m.end),
                    correction=self._corrections.get((self.sites[m.source].name, self.sites[m.target].name), 1.0),
                )
                for m in moves(self.dag, found.schedule)
            ],
            **more,
        )

    def show(self) -> None:
        """The plan for people."""
        found, task = self.found, self.dag.tasks
        show_front(found, "{:g}".format, self.length)
        stages = [
            (task[p.task].name, self.sites[p.site].name, task[p.task].procs, *map(self.instant, (p.start, p.end)))
            for p in sorted(found.schedule.placed, key=lambda p: (p.start, p.task))
        ]
        table("The chosen one", ("stage", "site", "processors", "start", "end"), stages)
        moved = [
            (
                task[m.parent].name,
                task[m.child].name,
                f"{self.sites[m.source].name} to {self.sites[m.target].name}",
                readable(self._bytes(m.parent, m.child)),
                *map(self.instant, (m.start, m.end)),
            )
            for m in moves(self.dag, found.schedule)
        ]
        if moved:
            table("What is moved", ("of", "for", "from", "size", "start", "end"), moved)
        for line in self._flows.shortened(self.length):
            click.echo(line)
        for site in self.sites:
            if site.hello.live and site.ahead:
                click.echo(f"The clock of {site.name} differs by {site.ahead:+g} s; all times are by the clock here.")
        if found.queue_alone is not None:
            alone = found.queue_alone
            click.echo(
                "Best effort, each stage to the site with the fewest jobs, if nobody else came: "
                f"cost {alone.cost:g}, makespan {self.length(alone.makespan)}"
            )

    def _bytes(self, parent: int, child: int) -> float:
        row = self._rows[child]
        return row.inputs[list(row.after).index(self._rows[parent].name)] if row.inputs else 0.0

    def drawing(self) -> tuple[list[Bar], list[str], float, float]:
        """All sites' nodes, one site under the other: what is not free there, and what is planned."""
        drawn: list[Bar] = []
        names: list[str] = []
        end = max([p.end for p in self.found.schedule.placed], default=self.now)
        end = max([end, *(s.start for site in self.sites for s in site.slots(self.now))])
        for r, site in enumerate(self.sites):
            members = [i for i in range(len(site.hello.names)) if site.hello.within >> i & 1]
            row = {node: len(names) + at for at, node in enumerate(members)}
            slots = site.slots(self.now)
            for node in members:
                free = sorted((s.start, math.inf if s.extensible else s.end) for s in slots if s.nodes >> node & 1)
                since = self.now
                for start, until in (*free, (end, end)):
                    if start > since:
                        drawn.append(Bar("", "taken", 1 << row[node], since, start))
                    since = max(since, until)
            for p in self.found.schedule.placed:
                if p.site == r:
                    mask = sum(1 << row[i] for i in members if p.nodes >> i & 1)
                    drawn.append(Bar(self.dag.tasks[p.task].name, "own", mask, p.start, p.end))
            names += [f"{site.name}/{site.hello.names[i]}" for i in members]
        return drawn, names, self.now, end


def _plain(value: float) -> Any:  # noqa: ANN401 (a number or null)
    """For JSON: whole numbers whole, what is infinite null."""
    return None if not math.isfinite(value) else int(value) if float(value).is_integer() else value


def readable(value: float) -> str:
    """Bytes with a unit."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:g} B"
