"""Windows of a simulated queue: at each, the same chain is submitted in every way, in forks of the same instant.

A case is a machine with others' jobs, a rule of priority and a seed. Its windows are a fixed time apart, the first when
the machine has filled up. Each has another of the ASA paper's workflows, or a chain of four equal stages; run times are
drawn around the expected ones. What is done is written to a file at once, and a second run takes it up there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from penstock.api import Snapshot
from penstock.errors import UserError
from penstock.future.past import PastRecorder
from penstock.host import logs
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.strategies.cuts import Cut
from penstock.workflow.submit.forecast import cuts_of
from penstock_lab.mock import views
from penstock_lab.mock.engine import Engine
from penstock_lab.paired.forks import in_forks
from penstock_lab.paired.ways import Outcome, contiguous_cuts, plain, seconds_of, seeded, under_agent
from penstock_lab.papers import paper
from penstock_lab.papers.drive import let_arrive
from penstock_lab.papers.site import LOGS, MACHINES, Arrival, Machine, background, cluster, log_background
from penstock_lab.papers.traces import traces
from penstock_lab.sim import swf
from penstock_lab.sim.trace import Trace

__all__ = [
    "AGENT",
    "ALONE",
    "AUTO",
    "EQUAL",
    "MERGED",
    "PLAIN",
    "SEEDED",
    "Case",
    "Window",
    "chain",
    "others",
    "read",
    "read_lines",
    "run",
    "ways",
]

_Of = TypeVar("_Of")
PLAIN: Final = "plain chain"
SEEDED: Final = "plain chain, aged"
MERGED: Final = "merged "
ALONE: Final = "first stage alone"
AGENT: Final = ("perstage", "asa", "handover", "packed", "bigjob")
AUTO: Final = {
    "auto, linear": (False, False),
    "auto, cons_tres": (True, False),
    "auto, linear, ageing allowed": (False, True),
    "auto, cons_tres, ageing allowed": (True, True),
}
"""The default on sites where jobs have whole nodes or share them, and where stages may age while they depend."""
EQUAL: Final = "equal"
"""Four stages of an hour each on the most nodes of the paper's: a long calculation that goes on where it was."""
_DAY: Final = 86400.0
_FIRST: Final = 3 * _DAY
_APART: Final = 27 * 3600.0  # each at another time of the day
_TAIL: Final = 30 * _DAY
_LOOKS: Final = 240.0
_SPREAD: Final = 0.05  # of real run times around the expected ones (log-normal)
_MERGES: Final = 5  # with more stages than so many, only merges of two groups are tried, and
_FREE: Final = 4  # so many that cost no core-hours


@dataclass(frozen=True, slots=True)
class Case:
    """A machine of the ASA paper under a rule of priority, with the others' jobs of a seed."""

    machine: str
    rule: str
    seed: int


@dataclass(frozen=True, slots=True)
class Window:
    """One chain in one queue, in each way by its name."""

    case: Case
    number: int
    workflow: str
    outcomes: Mapping[str, Outcome]

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        found = {"machine": self.case.machine, "rule": self.case.rule, "seed": self.case.seed}
        outcomes = {name: outcome.told() for name, outcome in self.outcomes.items()}
        return {**found, "window": self.number, "workflow": self.workflow, "ways": outcomes}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Window:
        """What `told` has written."""
        outcomes = {name: Outcome.read(each) for name, each in told["ways"].items()}
        case = Case(told["machine"], told["rule"], told["seed"])
        return cls(case, told["window"], told["workflow"], outcomes)


def read(path: Path) -> list[Window]:
    """The windows that a file holds; see `read_lines`."""
    return read_lines(path, Window.read)


def read_lines(path: Path, of: Callable[[Mapping[str, Any]], _Of]) -> list[_Of]:
    """What each line of a file holds; nothing where there is no file. UserError for a line that is not one.

    A last line without its end was being written when the run was killed: it counts as not there.
    """
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text().splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            found.append(of(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not a window of a paired run") from error
    return found


def chain(case: Case, number: int) -> Workflow:
    """The workflow of a window: each of them in each size of the machine in turn."""
    sizes = paper.SCALES.get(case.machine, paper.SCALES["hpc2n"])
    names = (*paper.WORKFLOWS, EQUAL)
    name, cores = names[number % len(names)], sizes[(number // len(names) + case.seed) % len(sizes)]
    rng = np.random.default_rng([case.seed, number])
    made: list[Stage] = []
    for stage in _equal(cores // paper.SLOT) if name == EQUAL else paper.stages(name, cores):
        seconds = round(stage.run_time * math.exp(_SPREAD * float(rng.standard_normal())), 1)
        command = f"bench-stage {min(seconds, stage.time_limit)}"
        made.append(Stage(stage.name, stage.nodes, stage.time_limit, stage.run_time, command, stage.after))
    return Workflow(f"{name}-{cores}", tuple(made))


def _equal(nodes: int) -> Iterator[Stage]:
    for number in range(1, 5):
        after = (f"stage-{number - 1}",) if number > 1 else ()
        yield Stage(f"stage-{number}", nodes, 1.5 * 3600.0, 3600.0, "", after)


def _alone(workflow: Workflow) -> Workflow:
    """Its first stage: what that waits nobody can hide."""
    return Workflow(workflow.name, workflow.order[:1])


def ways(engine: Engine, workflow: Workflow, past: PastRecorder) -> dict[str, Callable[[], Outcome]]:
    """Every way by its name; the default strategy knows the queue's past."""
    found: dict[str, Callable[[], Outcome]] = {
        PLAIN: partial(plain, engine, workflow),
        SEEDED: partial(seeded, engine, workflow),
        ALONE: partial(plain, engine, _alone(workflow)),
    }
    free = [_groups(cut) for cut in cuts_of(workflow, None)[1 : 1 + _FREE]]
    for cut in contiguous_cuts(workflow):
        few = len(workflow.stages) <= _MERGES or len(cut) <= 2
        if (few or _groups(cut) in free) and len(cut) < len(workflow.stages):
            jobs = " ".join(str(len(stages)) for stages in _groups(cut))
            found[MERGED + jobs] = partial(plain, engine, workflow, cut)
    for strategy in AGENT:
        found[strategy] = partial(under_agent, engine, workflow, strategy, {})
    for name, (shared, aged) in AUTO.items():
        settings = {"workflows": {"age_while_dependent": aged}}
        found[name] = partial(under_agent, engine, workflow, "auto", settings, shared=shared, past=past)
    return found


def _groups(cut: Cut) -> list[tuple[str, ...]]:
    return [stages for _, stages in cut]


def run(case: Case, windows: int, done: frozenset[int] = frozenset(), at_once: int | None = None) -> Iterator[Window]:
    """The windows of a case in order, but for those done before."""
    logs.configure("error", "text")
    last = max((n for n in range(windows) if n not in done), default=-1)
    days = (_FIRST + _APART * last + _TAIL) / _DAY
    machine = MACHINES.get(case.machine) or LOGS[case.machine]
    engine = Engine(cluster(machine, case.rule), 0.0, duration=seconds_of)
    let_arrive(engine, others(machine, days, case.seed))
    past = PastRecorder()
    for number in range(last + 1):
        _watch(engine, _FIRST + _APART * number, past)
        if number not in done:
            workflow = chain(case, number)
            told = in_forks({name: partial(_told, way) for name, way in ways(engine, workflow, past).items()}, at_once)
            outcomes = {name: Outcome.read(each) for name, each in told.items()}
            yield Window(case, number, workflow.name, outcomes)


def _watch(engine: Engine, until: float, past: PastRecorder) -> None:
    """On to that instant, with a look at the queue as often as an agent takes one that nothing calls for."""
    while engine.now < until:
        engine.advance(min(engine.now + _LOOKS, until))
        engine.take_effects()
        past.see(Snapshot(engine.now, {job.id: job for job in views.jobs(engine)}, {}, {}))


def others(machine: Machine, days: float, seed: int) -> Iterator[Arrival]:
    """Everybody else's jobs for so many days; of a log another part for each of the first five seeds."""
    if machine.name in MACHINES:
        return background(machine, days, seed)
    trace = _trace(machine.name)
    span = trace.submit[-1] - trace.submit[0]
    return log_background(trace, span * (seed % 6) / 6, days, seed)


@cache
def _trace(name: str) -> Trace:
    found = [path for path in traces() if path.name.lower().startswith(name)]
    if not found:
        raise UserError(f"PENSTOCK_TRACES has no log of {name.upper()}")
    return swf.load(found[0], LOGS[name].slots).trace


def _told(way: Callable[[], Outcome]) -> dict[str, Any]:
    return way().told()
