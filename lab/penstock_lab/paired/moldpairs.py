"""What it gains to let a waiting job's size follow the queue, in pairs: one queue, forked at one instant.

    python -m penstock_lab.paired.moldpairs --out FILE [--windows 20] [--seeds 2] [--machine ctc ...]

At each window the same program is submitted in every way: on each number of nodes that would do for it, as a range
(`sbatch -N4-64`, with the time limit of the fewest), with the shape that the plan says is best at its submission, and
with one that follows the queue until the job starts. Its work is drawn around what its user expects, and its limits are
half as long again; it speeds up by Amdahl's law. Each window is a line of the file as soon as it is measured, and a
second run goes on behind them. The table is printed in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from penstock.api import JobSpec, JobState, Snapshot
from penstock.future.cluster import Cluster
from penstock.resize.waiting.choose import choose, choose_new
from penstock.resize.waiting.model import MoldableJob, MoldShape
from penstock_lab.intervals import mean_of, ratio_of_means
from penstock_lab.mock import views
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.speedup import Work
from penstock_lab.paired.forks import in_forks
from penstock_lab.paired.series import series_command, undone
from penstock_lab.papers.site import LOGS
from penstock_planning.select.speedup import Amdahl

__all__ = ["FOLLOWS", "MoldOutcome", "MoldProgram", "MoldWindow", "WaysToMold", "program_of", "report"]

FOLLOWS: Final = "follows the queue"
ONCE: Final = "chosen at submission"
RANGE: Final = "range"
BEST: Final = "best size, known afterwards"
_TAIL: Final = 12 * 86400.0
_SIZES: Final = {"ctc": (8, 16, 32, 64, 128), "sdsc": (4, 8, 16, 32, 64)}
_SPEEDUP: Final = Amdahl(0.02)
_LONGEST: Final = (2.0, 4.0, 8.0)  # hours on the fewest nodes
_SPREAD: Final = 0.2
_MARGIN: Final = 1.5
_LOOKS: Final = 240.0
_USER: Final = "penstock"


@dataclass(frozen=True, slots=True)
class MoldOutcome:
    """Seconds from its submission to its start and to its end, and the node-seconds that it took."""

    wait: float
    completion: float
    held: float


@dataclass(frozen=True, slots=True)
class MoldProgram:
    """What is submitted: its shapes, and the seconds that it really takes on one node."""

    shapes: tuple[MoldShape, ...]
    seconds: float

    @property
    def work(self) -> Work:
        """For the simulated Slurm."""
        return Work(self.seconds, speedup=_SPEEDUP)


@dataclass(frozen=True, slots=True)
class MoldWindow:
    """One program in one queue, in each way by its name."""

    machine: str
    seed: int
    number: int
    outcomes: Mapping[str, MoldOutcome]

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        ways = {name: asdict(outcome) for name, outcome in self.outcomes.items()}
        return {"machine": self.machine, "seed": self.seed, "window": self.number, "ways": ways}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> MoldWindow:
        """What `told` has written."""
        ways = {name: MoldOutcome(**each) for name, each in told["ways"].items()}
        return cls(told["machine"], told["seed"], told["window"], ways)


def program_of(machine: str, seed: int, number: int) -> MoldProgram:
    """The program of a window: two, four or eight hours on the fewest nodes."""
    draw = np.random.default_rng([seed, number])
    sizes = _SIZES[machine]
    expected = _LONGEST[number % len(_LONGEST)] * 3600.0 * _SPEEDUP.at(sizes[0])
    shapes = (MoldShape(n, 60.0 * math.ceil(_MARGIN * expected / _SPEEDUP.at(n) / 60.0)) for n in sizes)
    real = expected * math.exp(_SPREAD * float(draw.standard_normal()) - _SPREAD**2 / 2)
    return MoldProgram(tuple(shapes), min(real, _MARGIN * expected))


class WaysToMold:
    """A program, and the ways of submitting it now. Each lets the engine go on until it has ended."""

    def __init__(self, engine: Engine, program: MoldProgram) -> None:
        self.engine, self.program = engine, program
        self.controller = Controller(engine)

    def picture(self) -> Snapshot:
        """What an agent sees."""
        jobs, nodes = views.jobs(self.engine), views.nodes(self.engine)
        partitions = {p.name: p for p in views.partitions(self.engine)}
        return Snapshot(self.engine.now, {j.id: j for j in jobs}, {n.name: n for n in nodes}, partitions)

    def block(self, nodes: int, limit: float, seconds: float | None = None) -> None:
        """Somebody else's job comes first."""
        spec = JobSpec("other", "#!/bin/sh\n", nodes, limit)
        self.controller.submit("other", spec, Work(limit if seconds is None else seconds))

    def submit(self, shape: MoldShape, least: int | None = None) -> int:
        """The job's number."""
        spec = JobSpec("mold", "#!/bin/sh\n", shape.nodes, shape.limit, min_nodes=least)
        return self.controller.submit(_USER, spec, self.program.work)

    def end(self, job: int, at_look: Callable[[], None] | None = None) -> MoldOutcome:
        """Let it start and end; while it waits, `at_look` is called now and then."""
        begin, found = self.engine.now, self.engine.records[job]
        while not found.state.ended:
            due = self.engine.next_event() or math.inf
            if found.state is JobState.PENDING and at_look is not None:
                due = min(due, self.engine.now + _LOOKS)
                at_look()
            self.engine.advance(max(due, self.engine.now))
            self.engine.take_effects()
        if found.state is not JobState.COMPLETED or found.start is None or found.end is None:
            raise RuntimeError(f"the job ended as {found.state}")
        return MoldOutcome(found.start - begin, found.end - begin, (found.end - found.start) * len(found.nodes))

    def fixed(self, shape: MoldShape) -> MoldOutcome:
        """With this shape."""
        return self.end(self.submit(shape))

    def range(self) -> MoldOutcome:
        """With a range of sizes."""
        few, many = self.program.shapes[0], self.program.shapes[-1]
        return self.end(self.submit(MoldShape(many.nodes, few.limit), few.nodes))

    def first(self) -> MoldShape:
        """What the plan says is best now."""
        choice = choose_new(Cluster.of(self.picture()), "", self.program.shapes)
        return self.program.shapes[0] if choice is None else choice.shape

    def once(self) -> MoldOutcome:
        """With the shape that the plan says is best now."""
        return self.end(self.submit(self.first()))

    def follows(self) -> MoldOutcome:
        """With one that may change until it starts."""
        job = self.submit(self.first())
        me = MoldableJob(job, 0, self.program.shapes)
        looked = -math.inf

        def look() -> None:
            nonlocal looked
            if self.engine.now < looked + _LOOKS:
                return
            looked = self.engine.now
            if (found := choose(Cluster.of(self.picture()), {job: me}).get(job)) is not None:
                self.controller.update(_USER, job, nodes=found.shape.nodes, time_limit=found.shape.limit)

        return self.end(job, look)


def measured(machine: str, seed: int, windows: int, done: frozenset[int], at_once: int) -> Iterator[MoldWindow]:
    """The windows of a machine and a seed in order, but for those done before."""
    for number, engine in undone(LOGS[machine], "default", seed, windows, done, _TAIL):
        run = WaysToMold(engine, program_of(machine, seed, number))
        ways: dict[str, Callable[[], MoldOutcome]] = {
            f"{s.nodes} nodes": partial(run.fixed, s) for s in run.program.shapes
        }
        ways |= {RANGE: run.range, ONCE: run.once, FOLLOWS: run.follows}
        told = in_forks({name: partial(_told, way) for name, way in ways.items()}, at_once)
        yield MoldWindow(machine, seed, number, {name: MoldOutcome(**each) for name, each in told.items()})


def _told(way: Callable[[], MoldOutcome]) -> dict[str, float]:
    return asdict(way())


def _best(window: MoldWindow) -> MoldOutcome:
    return min((o for name, o in window.outcomes.items() if name.endswith(" nodes")), key=lambda o: o.completion)


def report(windows: Sequence[MoldWindow]) -> Iterator[str]:
    """The tables: of all, and of each machine, where sizes are named by their place, the smallest first."""
    groups = {"all": list(windows)}
    for machine in dict.fromkeys(w.machine for w in windows):
        groups[machine] = [w for w in windows if w.machine == machine]
    for name, those in groups.items():
        yield f"{name}: {len(those)} windows"
        yield "way                           completion   follows / it, 95 %        median   wait     node-hours"
        ways = [list(w.outcomes) for w in those]
        for place, way in enumerate(ways[0]):
            label = f"size {place + 1} of 5" if way.endswith(" nodes") else way
            yield _row(label, those, [w.outcomes[names[place]] for w, names in zip(those, ways, strict=True)])
        yield _row(BEST, those, [_best(w) for w in those])


def _row(label: str, those: Sequence[MoldWindow], outcomes: Sequence[MoldOutcome]) -> str:
    ours = [w.outcomes[FOLLOWS].completion for w in those]
    other = [o.completion for o in outcomes]
    ratio = ratio_of_means(ours, other)
    median = float(np.median(np.array(ours) / np.array(other)))
    completion, wait, held = (
        mean_of([value / 3600.0 for value in values]).value
        for values in (other, [o.wait for o in outcomes], [o.held for o in outcomes])
    )
    return f"{label:28} {completion:8.2f} h   {ratio.told():24}  {median:5.3f}  {wait:6.2f} h   {held:8.1f}"


main = series_command(MoldWindow.read, list(_SIZES), 20, measured, report)


if __name__ == "__main__":
    main()
