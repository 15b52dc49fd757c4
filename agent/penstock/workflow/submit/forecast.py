"""Which jobs a workflow should become on the queue as it is: cuts compared in the same drawn futures. Pure.

    plain chain   a job a stage, each behind those before it (afterok), all submitted at once: what people do by hand
    cuts          of a chain: every way to run neighbouring stages of equal width in one job, if they ask for the same
                  and none is to be tried again by itself. That costs no core-hours, and waits once instead of several
                  times; but a longer limit finds a hole in the queue later
    safe          the plain chain, unless another cut was shorter in the paired futures: by more than 1 % in the mean,
                  the upper end of the 95 % interval of the mean difference lies below 0, it was more than 1 % longer
                  in at most one of twenty futures, it needs at most 1.01 of the core-hours, and it gains more than
                  Slurm's plan by nodes makes its longer jobs start later (`future.holes`)

How the queue goes on is drawn (`future.draws`) and replayed (`future.replay`). Long work, so it comes in parts (see
`Pace.walk`); how many cuts and futures are tried depends on how long the queue is.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.api import Reason, plural
from penstock.errors import UserError
from penstock.future.cluster import YEAR, Cluster, Unknown
from penstock.future.drawn import OwnJob
from penstock.future.draws import Draw, Drawing
from penstock.future.holes import Longer, delays
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.present import Present
from penstock.future.replay import HORIZON, replay
from penstock.kernel.library import KERNEL
from penstock.values.durations import duration_text
from penstock.workflow.asks import why_apart
from penstock.workflow.files.checks import check_against, elsewhere
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.strategies.cuts import Cut, grouped, place_units, singles
from penstock.workflow.strategy import BetterCut, Rules

T = TypeVar("T")

__all__ = [
    "PATIENT",
    "CutComparison",
    "CutForecast",
    "better_cut",
    "compare",
    "cuts_of",
    "run_times",
    "told_change",
    "told_time",
]

_MOST_CUTS: Final = 16
_MOST: Final = 200
_ENOUGH: Final = 15
_LEAST: Final = 12
"""Futures: at most so many are drawn, rather fewer cuts are tried than with fewer than enough, and of fewer than the
least nothing is concluded."""
WORK: Final = 700_000
"""Work of replays (see `replay`) that a comparison may take: about 1.5 seconds of a processor."""
PATIENT: Final = 3 * WORK
"""The same where somebody waits for the answer, or the chain will take long: a long queue has most to gain by, and its
futures cost most."""
_SOON: Final = PATIENT // 4 if KERNEL else PATIENT
"""The same from when enough futures are drawn. In it the compiled kernel replays many more than its reference does in
the whole time."""
_LONG: Final = 6 * 3600.0
_MOST_CORE_HOURS: Final = 1.01
_MOST_WORSE: Final = 0.05  # of the futures
_NOTHING: Final = 0.01  # less is not worth a word
_EXACT: Final = 3  # decimals of a second
_RESAMPLED: Final = 1000
_INTERVAL: Final = ("mean", "low", "high")


def cuts_of(workflow: Workflow, max_time: float | None) -> list[Cut]:
    """The plain chain, then the cuts to compare it with, those of the fewest jobs first. `max_time` (s) is the limit of
    the partition."""
    order = workflow.order
    found: list[Cut] = [singles(order)]
    chain = all(stage.after == before for stage, before in zip(order, [(), *((s.name,) for s in order)], strict=False))
    if not chain or len(order) < 2:
        return found
    rows = tuple((stage,) for stage in order)
    ways = [groups for jobs in range(1, len(order)) for groups in _groups(order, 0, jobs, max_time, _MOST_CUTS)]
    return [*found, *(grouped(rows, groups) for groups in ways[: _MOST_CUTS - 1])]


def _groups(
    order: Sequence[Stage], first: int, jobs: int, max_time: float | None, most: int
) -> list[list[tuple[int, int]]]:
    """The stages from `first` on in so many jobs, each of stages of equal width; at most so many ways."""
    if first == len(order):
        return [[]] if jobs == 0 else []
    found: list[list[tuple[int, int]]] = []
    limit = 0.0
    for end in range(first + 1, len(order) + 1 if jobs else first + 1):
        stage = order[end - 1]
        limit += stage.time_limit
        too_long = max_time is not None and limit > max_time and end > first + 1
        if end > first + 1 and (too_long or _apart(order[first:end])):
            break
        if len(found) >= most:
            break
        found += [[(first, end), *rest] for rest in _groups(order, end, jobs - 1, max_time, most - len(found))]
    return found


def _apart(stages: Sequence[Stage]) -> bool:
    """Whether these stages would be worse off in one job: it would hold nodes that idle, or run again what has
    succeeded when one of them is tried again."""
    alike = all(stage.nodes == stages[0].nodes and not stage.retries and not stage.meanwhile for stage in stages)
    return not alike or why_apart([(stage.name, stage.asks) for stage in stages]) is not None


@dataclass(frozen=True)
class CutForecast:
    """A cut in the drawn futures: by each the makespan (s), from now to the last end, and the node-seconds. `later` is
    how much later (s) its longer jobs start in Slurm's plan by nodes, all together."""

    cut: Cut
    makespans: NDArray[np.float64]
    node_seconds: NDArray[np.float64]
    later: float = 0.0

    @cached_property
    def range(self) -> tuple[float, float, float]:
        """The median makespan, and between which two 80 of 100 lie (s)."""
        low, median, high = np.percentile(self.makespans, (10, 50, 90))
        return float(median), float(low), float(high)

    def less(self, plain: CutForecast) -> tuple[float, float, float]:
        """The mean of its makespan less that of the plain chain in the same future, and its 95 % interval (s)."""
        differences = self.makespans - plain.makespans
        drawn = np.random.default_rng(1).integers(len(differences), size=(_RESAMPLED, len(differences)))
        low, high = np.percentile(differences[drawn].mean(axis=1), (2.5, 97.5))
        return float(differences.mean()), float(low), float(high)

    def worse(self, plain: CutForecast) -> float:
        """In which share of the futures it took longer than the plain chain, by more than is worth a word."""
        return float((self.makespans > (1.0 + _NOTHING) * plain.makespans).mean())


@dataclass(frozen=True)
class CutComparison:
    """Cuts of a workflow in the same futures, the plain chain first. A node has so many `cores`."""

    workflow: str
    partition: str
    forecasts: tuple[CutForecast, ...]
    present: Present
    past: QueuePast
    cores: float = 1.0

    @property
    def futures(self) -> int:
        """How many were drawn."""
        return len(self.forecasts[0].makespans)

    @property
    def plain(self) -> CutForecast:
        """The plain chain."""
        return self.forecasts[0]

    @cached_property
    def safe(self) -> CutForecast:
        """See above."""
        if self.futures < _LEAST:
            return self.plain
        most = _MOST_CORE_HOURS * float(self.plain.node_seconds.mean())
        sure = [
            (float(f.makespans.mean()), i)
            for i, f in enumerate(self.forecasts)
            if i and self._gains(f) and float(f.node_seconds.mean()) <= most
        ]
        return self.forecasts[min(sure)[1]] if sure else self.plain

    def _gains(self, forecast: CutForecast) -> bool:
        mean, _low, high = forecast.less(self.plain)
        sure = high < 0 and forecast.worse(self.plain) <= _MOST_WORSE
        return sure and self._worth(mean) and forecast.later < -mean

    def _worth(self, mean: float) -> bool:
        """Whether so much less (s, below 0) is worth a word."""
        return mean < -_NOTHING * float(self.plain.makespans.mean())

    @property
    def starts(self) -> bool:
        """Whether the plain chain comes to its end in any of the futures, if there are any."""
        return not self.futures or bool((self.plain.makespans < HORIZON).any())

    @property
    def because(self) -> str:
        """Why that one, in a few words."""
        chosen, futures = self.safe, plural(self.futures, "drawn future")
        if not self.futures:
            return f"the queue is too long to be played through ({plural(len(self.present.waiting), 'job')} in it)"
        if not self.starts:
            return f"not all of its stages start within {duration_text(HORIZON)} in any of {futures}"
        if chosen is not self.plain:
            merged = "; ".join(" and ".join(stages) for _, stages in chosen.cut if len(stages) > 1)
            waits = len(self.plain.cut) - len(chosen.cut)
            shorter = int((chosen.makespans < self.plain.makespans).sum())
            mean, low, high = chosen.less(self.plain)
            return (
                f"one job for {merged} saves {plural(waits, 'wait')}: {told_time(-mean)} in the mean "
                f"(95 % interval {told_time(-high)} to {told_time(-low)}), shorter in {shorter} of {futures}"
            )
        if len(self.forecasts) == 1:
            return "no neighbouring stages are of equal width, so that none can share a job at equal core-hours"
        if self.futures < _LEAST:
            return f"the queue is so long that only {futures} could be looked at, too few to conclude anything"
        best = min(self.forecasts[1:], key=lambda f: float(f.makespans.mean()))
        mean, low, high = best.less(self.plain)
        if not self._worth(mean):
            return f"no cut into fewer jobs was more than {_NOTHING:.0%} shorter in the mean of {futures}"
        if high < 0 and best.later >= -mean:
            return (
                f"the best cut into fewer jobs was {told_time(-mean)} shorter in the mean of {futures}, but in Slurm's "
                f"plan of now its longer limit starts {_told_later(best.later)}"
            )
        if high < 0:
            return (
                f"the best cut into fewer jobs was {told_time(-mean)} shorter in the mean of {futures}, but longer in "
                f"{round(best.worse(self.plain) * self.futures)} of them"
            )
        return (
            f"the best cut into fewer jobs was {told_time(-mean)} shorter in the mean of {futures}, but a loss "
            f"cannot be excluded (95 % interval: {told_change(low)} to {told_change(high)})"
        )

    @property
    def line(self) -> str:
        """What there is to say, in one line."""
        if not self.futures:
            return f"on this queue now: no forecast, because {self.because}"
        if not self.starts:
            return f"on this queue now: your chain does not end, because {self.because}"
        chain = _told_range(self.plain)
        if self.safe is self.plain:
            return f"on this queue now: your chain {chain}, no gain seen: Penstock the same, because {self.because}"
        return f"on this queue now: your chain {chain}, Penstock {_told_range(self.safe)}, because {self.because}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the forecast is made from, and what it does not know."""
        past, present = self.past, self.present
        if len(past.used) >= ENOUGH:
            own = f", {len(past.own)} of them your own" if past.own and past.used[: len(past.own)] == past.own else ""
            notes = [f"how long others run was learned from {plural(len(past.used), 'ended job')}{own}"]
        else:
            notes = [
                f"how long others run is not known ({plural(len(past.used), 'ended job')} seen): any share of a time "
                "limit is taken to be as likely"
            ]
        if past.hours:
            notes.append(f"who comes later was drawn from {plural(len(past.hours), 'watched hour')} of this queue")
        else:
            notes.append("who comes later is not known, and left out: an agent learns it by watching the queue")
        if present.left_out:
            notes.append(f"left out, as nobody knows when they can start: {plural(present.left_out, 'waiting job')}")
        if present.shared:
            notes.append("jobs share nodes here, which are counted as whole ones: waits may be shorter")
        return tuple(notes)

    def told(self) -> dict[str, Any]:
        """For programs and commands; see `penstock.workflow.commands.answers.Try`."""
        return {
            "workflow": self.workflow,
            "partition": self.partition,
            "at": self.present.now,
            "line": self.line,
            "because": self.because,
            "gain": self.safe is not self.plain,
            "futures": self.futures,
            "chosen": next(i for i, forecast in enumerate(self.forecasts) if forecast is self.safe),
            "cuts": [self._told(forecast) for forecast in self.forecasts] if self.futures else [],
            "notes": list(self.notes),
        }

    def _told(self, forecast: CutForecast) -> dict[str, Any]:
        median, low, high = forecast.range
        less = None if forecast is self.plain else dict(zip(_INTERVAL, forecast.less(self.plain), strict=True))
        return {
            "jobs": [list(stages) for _, stages in forecast.cut],
            "makespan": {"median": median, "low": low, "high": high},
            "less": less,
            "core_hours": self.cores * float(forecast.node_seconds.mean()) / 3600.0,
        }


def compare(
    workflow: Workflow, cluster: Cluster, past: QueuePast, rules: Rules, *, work: int = WORK
) -> Generator[int, None, CutComparison]:
    """The cuts of a workflow on this queue. Raises UserError for one that its partition never runs, or that is in
    several."""
    partition = check_against(workflow, cluster.snapshot.partitions)
    if (other := elsewhere(workflow)) is not None:
        raise UserError(f"{workflow.source}: {other}: a forecast is of one partition for all stages")
    # A wait without end teaches nothing.
    cluster = Cluster.of(cluster.snapshot, Unknown(endless=YEAR))
    present = Present.of(cluster, partition.name)
    seed = zlib.crc32(f"{workflow.name} {len(workflow.stages)} {cluster.now:.0f}".encode())
    trial = _Trial(workflow, Drawing(present, past, seed), rules, max(work, PATIENT))
    cuts = cuts_of(workflow, partition.max_time)
    results: list[list[tuple[float, float]]] = []
    first = yield from trial.run(0, cuts[:1])
    # Now it is known what a replay costs, and about how long the chain will take.
    if first is not None and first[0][0] <= _LONG:
        trial.work = work
    cuts = cuts[: max(trial.work // trial.done // _ENOUGH, 2)]
    others = None if first is None else (yield from trial.run(0, cuts[1:]))
    row = None if first is None or others is None else first + others
    while row is not None:
        results.append(row)
        enough = len(results) >= _MOST or (len(results) >= _ENOUGH and trial.done >= _SOON)
        row = None if enough else (yield from trial.run(len(results), cuts))
    columns = [np.array([row[i] for row in results]).reshape(-1, 2) for i in range(len(cuts))]
    longer = [_longer(workflow, cut) for cut in cuts]
    # As often as not several cuts have a job in common.
    known = list(dict.fromkeys(wish for wishes in longer for wish in wishes))
    later = dict(zip(known, delays(cluster, partition.name, known), strict=True))
    forecasts = [
        CutForecast(cut, column[:, 0], column[:, 1], sum(max(later[wish], 0.0) for wish in wishes))
        for cut, column, wishes in zip(cuts, columns, longer, strict=True)
    ]
    cores = [node.cpus for name in partition.nodes if (node := cluster.snapshot.nodes.get(name))]
    return CutComparison(
        workflow.name, partition.name, tuple(forecasts), present, past, sum(cores) / len(cores) if cores else 1.0
    )


def better_cut(
    workflow: Workflow, cluster: Cluster, past: QueuePast, rules: Rules, *, work: int = WORK
) -> Generator[int, None, BetterCut | None]:
    """A cut that is shorter than the plain chain on this queue beyond doubt, and why; None where none is. As
    `compare`."""
    partition = check_against(workflow, cluster.snapshot.partitions)
    if elsewhere(workflow) is not None or len(cuts_of(workflow, partition.max_time)) == 1:
        return None
    found = yield from compare(workflow, cluster, past, rules, work=work)
    if found.safe is found.plain:
        return None
    reasons = (Reason("forecast-cut", found.because), *(Reason("forecast-basis", note) for note in found.notes))
    return BetterCut(found.safe.cut, -found.safe.less(found.plain)[0], reasons)


def _longer(workflow: Workflow, cut: Cut) -> list[Longer]:
    """The jobs of a cut that have several stages, and how long the first of these asks for by itself."""
    by_name = {stage.name: stage for stage in workflow.stages}
    groups = [[by_name[name] for name in stages] for _, stages in cut if len(stages) > 1]
    return [Longer(group[0].nodes, group[0].time_limit, sum(s.time_limit for s in group)) for group in groups]


class _Trial:
    """Runs cuts of a workflow in drawn futures, for at most so much `work`. `done` is what this has taken.

    A stage that may be made to age while it depends on others (`seed`) stands where it was submitted.
    """

    def __init__(self, workflow: Workflow, drawing: Drawing, rules: Rules, work: int) -> None:
        self._workflow, self._drawing, self.work = workflow, drawing, work
        self._by_submission = rules.by_submission
        self._units: dict[Cut, tuple[Stage, ...]] = {}
        self.done = 0

    def run(self, number: int, cuts: Sequence[Cut]) -> Generator[int, None, list[tuple[float, float]] | None]:
        """The makespan (s) and the node-seconds of each of these cuts in that future; None if that is too much work."""
        draw = self._drawing.draw(number)
        stages = self._workflow.stages
        took = dict(zip([stage.name for stage in stages], run_times(stages, self._drawing, draw), strict=True))
        found = []
        for cut in cuts:
            if cut not in self._units:
                self._units[cut] = place_units(self._workflow, cut)
            units, covers = self._units[cut], dict(cut)
            place = {unit.name: i for i, unit in enumerate(units)}
            jobs = [
                OwnJob(
                    unit.nodes,
                    unit.time_limit,
                    sum(took[stage] for stage in covers[unit.name]),
                    tuple(place[parent] for parent in unit.after),
                )
                for unit in units
            ]
            parts = replay(self._drawing.present, draw, jobs, by_submission=self._by_submission)
            spans = yield from self._counted(parts)
            if spans is None:
                return None
            end = max(span.end for span in spans)
            # Instants since 1970 are exact to some 1e-7 s: what ends at the same one may not seem shorter by that.
            makespan = min(round(end - self._drawing.present.now, _EXACT), HORIZON)
            found.append((makespan, sum(job.nodes * job.run for job in jobs)))
        return found

    def _counted(self, parts: Generator[int, None, T]) -> Generator[int, None, T | None]:
        while self.done < self.work:
            try:
                done = next(parts)
            except StopIteration as end:
                found: T = end.value
                return found
            self.done += done
            yield done
        return None


def run_times(stages: Sequence[Stage], drawing: Drawing, draw: Draw) -> list[float]:
    """How long (s) each stage runs in this future: as its file says, one of the times that it took before, or where
    nobody has said a share of its limit. To be asked for once of a draw."""
    chances = draw.own_chances(len(stages))
    shares = drawing.own_shares.by(chances)
    return [
        stage.took[int(chance * len(stage.took))]
        if stage.took
        else float(share) * stage.time_limit
        if stage.guessed
        else stage.run_time
        for stage, chance, share in zip(stages, chances, shares, strict=True)
    ]


def told_time(seconds: float) -> str:
    """A duration for people: to the minute from ten minutes on, to ten minutes from ten hours on."""
    step = 600 if seconds >= 36_000 else 60 if seconds >= 600 else 1
    return duration_text(step * round(seconds / step))


def _told_range(forecast: CutForecast) -> str:
    _, low, high = map(told_time, forecast.range)
    return low if low == high else f"{low} to {high}"


def _told_later(seconds: float) -> str:
    """How much later, for people."""
    return "never" if seconds == math.inf else f"{told_time(seconds)} later"


def told_change(seconds: float) -> str:
    """A difference of two durations for people."""
    return f"{told_time(abs(seconds))} {'shorter' if seconds < 0 else 'longer'}"
