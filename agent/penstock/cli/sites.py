"""`penstock plan --sites`: a workflow over several sites, each of which is asked what it offers."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.flows import Flows, load_flows
from penstock.cli.gantt import Bar, as_picture, as_text
from penstock.cli.output import emit_json, table
from penstock.cli.planning import Where, instant_text
from penstock.config import Config, load
from penstock.durations import duration_text
from penstock.errors import NotNow, UserError
from penstock.holding.ledger import Ledger
from penstock.holding.office import ledger_path
from penstock.instants import parse_instant
from penstock.provision.dag import Dag
from penstock.provision.heft import Placed
from penstock.provision.live import Needs
from penstock.provision.queuefile import parse_number
from penstock.provision.sites import Offered, best_effort_if_any, moves, on_one_clock, over, plan_among
from penstock.provision.transfers import correction
from penstock.provision.workflows import METHODS, Choice, buy_within
from penstock.sites.file import SiteEntry, SitesFile, read_sites
from penstock.sites.remote import LineOfSite, RemoteMarket, SiteGone, greet
from penstock.workflow.wfformat import Packing

__all__ = ["Among", "Wish", "measured", "plan_over_sites", "readable", "site_options"]

_HORIZON: Final = 400 * 86400.0  # what nobody knows the end of is drawn no further


@dataclass(frozen=True)
class Among:
    """What `site_options` gives: the file of sites, which of them, and what the other options ask for."""

    path: Path | None
    names: tuple[str, ...]

    @property
    def wanted(self) -> bool:
        """Whether more than this cluster is to be planned on."""
        return self.path is not None or bool(self.names)

    def file(self, config: Config) -> SitesFile:
        """The file, or the configured one. UserError if there is neither."""
        path = self.path or config.provision.sites
        if path is None:
            raise UserError("--site needs a file of sites: --sites FILE, or `provision.sites` in the configuration")
        return read_sites(path)


@dataclass(frozen=True)
class Wish:
    """How to plan, as the options of `penstock plan` say it."""

    method: str
    alpha: float
    deadline: str | None
    budget: float | None
    seed: int


def site_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--sites and --site; the command gets them as `among`."""

    @functools.wraps(command)
    def gathered(sites: Path | None, site: tuple[str, ...], **options: Any) -> Any:  # noqa: ANN401
        return command(among=Among(sites, site), **options)

    out: Callable[..., Any] = gathered
    out = click.option("--site", multiple=True, metavar="NAME", help="Only this site (can be repeated).")(out)
    path = click.Path(path_type=Path)
    return click.option("--sites", metavar="FILE", type=path, help="Plan over the sites that this file names.")(out)


def plan_over_sites(
    workflows: Sequence[Path],
    packing: Packing | None,
    where: Where,
    among: Among,
    wish: Wish,
    gantt: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Ask all sites, plan, and show the plan."""
    if where.queue_file is not None:
        raise UserError("--queue and --sites: a queue file is a site with `queue: FILE` in the file of sites")
    if where.partition is not None:
        raise UserError("-p and --sites: the file of sites says the partition of each")
    if wish.method not in METHODS:
        raise UserError(f"--method must be one of {', '.join(METHODS)}, not {wish.method!r}")
    config = load()
    file = among.file(config)
    chosen = file.chosen(among.names)
    flows = load_flows(workflows, packing, any(site.queue is None for site in chosen))
    with ExitStack() as stack:
        greeted, gone = greet(chosen, _needs(where.needs), file.patience)
        for line, _ in greeted:
            stack.callback(line.close)
        while True:
            if not greeted:
                raise NotNow(f"no site answers: {'; '.join(f'{name}: {why}' for name, why in gone.items())}")
            try:
                picture_of = _Planned(greeted, gone, flows, file, measured(config), wish)
                break
            except SiteGone as error:  # in the midst of buying: once more without it
                gone[error.site] = error.why
                greeted = [(line, offered) for line, offered in greeted if offered.name != error.site]
    for name, why in gone.items():
        click.echo(f"penstock: site {name} is left out: {why}", err=True)
    if as_json:
        emit_json(picture_of.json())
    else:
        picture_of.show()
    if gantt and not as_json:
        click.echo(as_text(*picture_of.drawing(), picture_of.instant), nl=False)
    if picture is not None:
        as_picture(picture, *picture_of.drawing(), picture_of.unit)


def measured(config: Config) -> dict[tuple[str, str], float]:
    """What transfers are corrected by, as far as any were measured."""
    path = ledger_path(config)
    if not path.exists():
        return {}
    ledger = Ledger(path)
    try:
        return {link: correction(found) for link, found in ledger.transfers().items()}
    finally:
        ledger.close()


def _needs(needs: Needs) -> list[str]:
    """As options for each site."""
    out = []
    if needs.cpus:
        out += ["--cores", str(needs.cpus)]
    if needs.memory:
        out += ["--mem", f"{needs.memory:g}"]
    if needs.gres:
        out += ["--gres", needs.gres]
    if needs.features:
        out += ["-C", ",".join(sorted(needs.features))]
    return out


class _Planned:
    """A plan over the sites that answered. Raises what planning raises, and SiteGone."""

    def __init__(
        self,
        greeted: Sequence[tuple[LineOfSite, Offered]],
        gone: Mapping[str, str],
        flows: Flows,
        file: SitesFile,
        corrections: Mapping[tuple[str, str], float],
        wish: Wish,
    ) -> None:
        self._flows, self._gone, self._method = flows, gone, wish.method
        self._rows = rows = flows.rows()
        self._corrections = corrections
        self.entries: list[SiteEntry] = [line.site for line, _ in greeted]
        self.now, self.sites = on_one_clock([offered for _, offered in greeted], math.ceil(time.time()))
        self.live = any(site.hello.live for site in self.sites)
        self.unit = "hours" if self.live else "units of time"
        self.dag: Dag = over(rows, self.sites, file.links, corrections)
        last = self._deadline(wish.deadline)
        limits = wish.alpha, last - self.now, math.inf if wish.budget is None else wish.budget
        if wish.method == "greedy":
            alone = best_effort_if_any(self.dag, self.sites, self.now)
            markets = [RemoteMarket(line, site) for (line, _), site in zip(greeted, self.sites, strict=True)]
            for market in markets:
                market.forget()
            self.found: Choice = buy_within(self.dag, markets, alone, self.now, *limits, self.length)
        else:
            self.found = plan_among(self.dag, self.sites, self.now, wish.method, *limits, wish.seed, show=self.length)

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

    def _nodes(self, placed: Placed) -> list[str]:
        return [name for i, name in enumerate(self.sites[placed.site].hello.names) if placed.nodes >> i & 1]

    def json(self) -> dict[str, Any]:
        """The plan for programs: times by the clock here, `start_there` by that of the stage's site."""
        found, alone, task = self.found, self.found.queue_alone, self.dag.tasks
        return {
            "method": self._method,
            "now": _plain(self.now),
            "front": [{"cost": _plain(cost), "makespan": _plain(span)} for cost, span in found.front],
            "cost": _plain(found.schedule.cost),
            "makespan": _plain(found.schedule.makespan),
            "best_effort": None if alone is None else {"cost": _plain(alone.cost), "makespan": _plain(alone.makespan)},
            "sites": [
                {
                    "name": site.name,
                    "partition": site.hello.partition,
                    "procs": site.hello.most,
                    "slots": len(site.hello.slots),
                    "clock_ahead": _plain(site.ahead),
                }
                for site in self.sites
            ],
            "left_out": [{"name": name, "why": why} for name, why in self._gone.items()],
            "stages": [
                {
                    "name": task[p.task].name,
                    "site": self.sites[p.site].name,
                    "start": _plain(p.start),
                    "end": _plain(p.end),
                    "start_there": _plain(p.start + self.sites[p.site].ahead),
                    "procs": task[p.task].procs,
                    "on": self._nodes(p),
                    **self._flows.items[p.task].as_json(),
                }
                for p in found.schedule.placed
            ],
            "transfers": [
                {
                    "of": task[m.parent].name,
                    "for": task[m.child].name,
                    "from": self.sites[m.source].name,
                    "to": self.sites[m.target].name,
                    "bytes": _plain(self._bytes(m.parent, m.child)),
                    "start": _plain(m.start),
                    "end": _plain(m.end),
                    "correction": self._corrections.get((self.sites[m.source].name, self.sites[m.target].name), 1.0),
                }
                for m in moves(self.dag, found.schedule)
            ],
        }

    def show(self) -> None:
        """The plan for people."""
        found, task = self.found, self.dag.tasks
        chosen = (found.schedule.cost, found.schedule.makespan)
        rows = [(f"{c:g}", self.length(m), "chosen" if (c, m) == chosen else "") for c, m in found.front]
        table("Plans that no other beats", ("cost", "makespan", ""), rows)
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
        end = max([end, *(s.start for site in self.sites for s in site.slots(self.now) if s.start < _HORIZON + end)])
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


def _plain(value: float) -> float | None:
    """For JSON: whole numbers whole, what is infinite null."""
    return None if not math.isfinite(value) else int(value) if float(value).is_integer() else value


def readable(value: float) -> str:
    """Bytes with a unit."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:g} B"
