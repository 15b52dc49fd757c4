"""What `penstock pool auto` gains over HyperQueue's automatic allocation, in pairs: one queue, forked at one instant.

    python -m penstock_lab.paired.poolpairs --out FILE [--windows 8] [--seeds 2] [--machine ctc ...]

Each window is a line of the file as soon as it is measured, and a second run goes on behind them. The table and the
goals are printed in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from penstock_lab.intervals import Interval, mean_of, ratio_of_means
from penstock_lab.mock.engine import Engine
from penstock_lab.paired.forks import in_forks
from penstock_lab.paired.poolsim import PoolWorkload, tasks_of
from penstock_lab.paired.poolways import PoolOutcome, PoolSetting, automatic, hyperqueue, one_job
from penstock_lab.paired.series import series_command, undone
from penstock_lab.papers.site import LOGS, MACHINES

__all__ = ["AUTO", "HQ", "PoolWindow", "measured", "report", "workload_of"]

AUTO: Final = "pool auto"
HQ: Final = ("hq, backlog 1", "hq, backlog 4")
_TAIL: Final = 10 * 86400.0
_NODES: Final = {"sdsc": 16, "ctc": 32, "hpc2n": 64, "uppmax": 64}
_LIMIT: Final = 4 * 3600.0
_CORES: Final = 4
_HOURS: Final = 3.0  # of work for all nodes
_MEAN, _SAID, _SPREAD = 300.0, 1200.0, 0.5  # of a task, what its user says, and of the logarithm
_BURST: Final = 5400.0
_AGING: Final = "default"


@dataclass(frozen=True, slots=True)
class PoolWindow:
    """One workload in one queue, in each way by its name."""

    machine: str
    seed: int
    number: int
    workload: str
    outcomes: Mapping[str, PoolOutcome]

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        ways = {name: outcome.told() for name, outcome in self.outcomes.items()}
        found = {"machine": self.machine, "seed": self.seed, "window": self.number}
        return {**found, "workload": self.workload, "ways": ways}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> PoolWindow:
        """What `told` has written."""
        ways = {name: PoolOutcome.read(each) for name, each in told["ways"].items()}
        return cls(told["machine"], told["seed"], told["window"], told["workload"], ways)


def workload_of(nodes: int, seed: int, number: int) -> PoolWorkload:
    """Tasks of five minutes on average, three hours of work for all nodes: at once, in three phases, each when the one
    before has ended, or in four bursts, an hour and a half apart."""
    rng = np.random.default_rng([seed, number])
    count = int(nodes * _CORES * _HOURS * 3600.0 / _MEAN)
    seconds = _MEAN * np.exp(_SPREAD * rng.standard_normal(count) - _SPREAD**2 / 2)

    def parts(number: int) -> list[Any]:
        return [tasks_of(part, _SAID) for part in np.array_split(seconds, number)]

    kinds: tuple[tuple[str, Any], ...] = (
        ("at once", tuple((0.0, part) for part in parts(1))),
        ("phases", tuple((None if n else 0.0, part) for n, part in enumerate(parts(3)))),
        ("bursts", tuple((n * _BURST, part) for n, part in enumerate(parts(4)))),
    )
    return PoolWorkload(*kinds[number % len(kinds)])


def _ways(engine: Engine, workload: PoolWorkload, setting: PoolSetting) -> dict[str, Callable[[], PoolOutcome]]:
    short = replace(setting, limit=setting.limit / 4)
    return {
        HQ[0]: partial(hyperqueue, engine, workload, setting, 1),
        HQ[1]: partial(hyperqueue, engine, workload, setting, 4),
        "hq, backlog 4, 1 h": partial(hyperqueue, engine, workload, short, 4),
        "one job": partial(one_job, engine, workload, setting),
        AUTO: partial(automatic, engine, workload, setting),
    }


def measured(machine: str, seed: int, windows: int, done: frozenset[int], at_once: int) -> Iterator[PoolWindow]:
    """The windows of a machine and a seed in order, but for those done before."""
    known = MACHINES.get(machine) or LOGS[machine]
    for number, engine in undone(known, _AGING, seed, windows, done, _TAIL):
        workload = workload_of(_NODES[machine], seed, number)
        setting = PoolSetting(_NODES[machine], _LIMIT, _CORES)
        told = in_forks({name: partial(_told, way) for name, way in _ways(engine, workload, setting).items()}, at_once)
        outcomes = {name: PoolOutcome.read(each) for name, each in told.items()}
        yield PoolWindow(machine, seed, number, workload.name, outcomes)


def _told(way: Callable[[], PoolOutcome]) -> dict[str, Any]:
    return way().told()


def _row(those: Sequence[PoolWindow], way: str) -> str:
    """Completion and held node-hours of a way, and those of `pool auto` as shares of them."""
    auto = [w.outcomes[AUTO].completion for w in those]
    other = [w.outcomes[way].completion for w in those]
    ratio = ratio_of_means(auto, other)
    single = np.array(auto) / np.array(other)
    held = sum(w.outcomes[way].held for w in those)
    idle = sum(w.outcomes[way].idle for w in those) / held
    cores = sum(w.outcomes[way].idle_cores for w in those) / held
    mean = mean_of([value / 3600.0 for value in other])
    return (
        f"{way:20} {mean.value:7.2f} h   {_said(ratio)}   {np.median(single):5.3f}  {np.percentile(single, 95):5.3f}   "
        f"{idle:6.1%}  {cores:6.1%}  {np.mean([w.outcomes[way].jobs for w in those]):6.0f}"
    )


def _said(interval: Interval) -> str:
    return f"{interval.value:5.3f} ({interval.low:5.3f} to {interval.high:5.3f})"


def _verdict(measured: Interval, at_most: float) -> str:
    if measured.high <= at_most:
        return "reached"
    return "missed" if measured.low > at_most else "not decided"


def report(windows: Sequence[PoolWindow]) -> Iterator[str]:
    """The tables: of all, of each machine, of each kind of workload; then the goals."""
    groups = {"all": list(windows)}
    for machine in dict.fromkeys(w.machine for w in windows):
        groups[machine] = [w for w in windows if w.machine == machine]
    for kind in dict.fromkeys(w.workload for w in windows):
        groups[kind] = [w for w in windows if w.workload == kind]
    for name, those in groups.items():
        yield f"{name}: {len(those)} windows"
        yield "way                  completion   pool auto / it, 95 %      median   p95    idle   cores    jobs"
        yield from (_row(those, way) for way in those[0].outcomes)
    for way in HQ:
        auto = [w.outcomes[AUTO].completion for w in windows]
        ratio = ratio_of_means(auto, [w.outcomes[way].completion for w in windows])
        yield f"goal: at most 0.8 of {way}: {_said(ratio)}: {_verdict(ratio, 0.8)}"
    held, idle = (sum(getattr(w.outcomes[AUTO], what) for w in windows) for what in ("held", "idle"))
    over = sum(w.outcomes[AUTO].over for w in windows) / held
    verdict = "missed" if idle / held > 0.05 else "reached"
    yield f"goal: idle at most 5 % of held node-hours: {idle / held:.1%}: {verdict}"
    yield f"node-hours beyond the cap, while old nodes end their tasks: {over:.1%}"


main = series_command(PoolWindow.read, list(_NODES), 8, measured, report)


if __name__ == "__main__":
    main()
