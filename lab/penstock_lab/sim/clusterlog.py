"""The jobs of logs and models as jobs of the simulated Slurm, and what became of them as measures and as a log."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from penstock.api import JobSpec, JobState
from penstock.errors import UserError
from penstock_lab.sim.cluster import Outcome, SimulatedJob
from penstock_lab.sim.score import Score, score
from penstock_lab.sim.swfout import Fate
from penstock_lab.sim.trace import Trace

__all__ = ["Measures", "check_failures", "fates_of", "jobs_of", "measure"]

_SCRIPT = "#!/bin/sh\n"
_MOST_FAILURES = 5.0
_STATUS = {JobState.COMPLETED: 1}


@dataclass(frozen=True, slots=True)
class Measures:
    """What became of the jobs: how many there are in each state, how often they were requeued, and the figures.

    The figures are those of `Score` over the jobs that ran, in whole seconds, from the run in which each ended; None if
    there is none. Processors are nodes there: jobs get whole ones.
    """

    states: Mapping[str, int]
    requeues: int
    figures: Score | None


def jobs_of(
    trace: Trace, cpus_per_node: int, requeue: bool, preceding: Mapping[int, int] | None = None
) -> Iterator[SimulatedJob]:
    """The trace's jobs for nodes of so many CPUs: each needs as many whole ones as hold its processors.

    The estimates are the time limits. `preceding` says which job (by id) waits for the end of which other one; what
    names a job that is not submitted before is ignored. `requeue` lets jobs run again when a node fails under them.
    """
    numbers: dict[int, int] = {}  # the simulated Slurm counts jobs from 1 in order of submission
    columns = zip(trace.ids, trace.submit, trace.run, trace.procs, trace.estimate, strict=True)
    for number, (name, submit, run, procs, estimate) in enumerate(columns, 1):
        before = numbers.get(preceding.get(name, 0)) if preceding else None
        numbers[name] = number
        spec = JobSpec(
            name=str(name),
            script=_SCRIPT,
            nodes=-(-procs // cpus_per_node),
            time_limit=float(estimate),
            requeue=requeue,
            dependency=f"afterany:{before}" if before else None,
        )
        yield SimulatedJob(float(submit), spec, float(run))


def check_failures(trace: Trace, cpus_per_node: int, mtbf: float) -> None:
    """UserError when a job would be run again for ever on nodes that fail every `mtbf` seconds in the mean.

    It gets through with probability exp(-f) if f failures hit its nodes in the mean of a run: with f of 5 after 150
    runs.
    """
    for number, run, procs in zip(trace.ids, trace.run, trace.procs, strict=True):
        nodes = -(-procs // cpus_per_node)
        hits = nodes * run / mtbf
        if hits > _MOST_FAILURES:
            least = ceil(nodes * run / _MOST_FAILURES / 3600)
            raise UserError(
                f"job {number} ({nodes} nodes, {run} s) would be hit by {hits:.0f} failures in the mean of a run and "
                f"hardly ever end: use --failures {least}h or more, or --no-requeue"
            )


def measure(trace: Trace, outcomes: Sequence[Outcome], nodes: int) -> Measures:
    """The measures of a simulation of the trace's jobs on so many nodes."""
    ran = Trace()
    starts = array("q")
    for number, submit, outcome in zip(trace.ids, trace.submit, outcomes, strict=True):
        if outcome.start is not None and outcome.end is not None:
            begin = round(outcome.start)
            run = max(round(outcome.end) - begin, 1)
            ran.append(number, submit, run, len(outcome.nodes), run)
            starts.append(begin)
    states = Counter(outcome.state.value for outcome in outcomes)
    figures = score(ran, starts, nodes) if ran else None
    return Measures(dict(sorted(states.items())), sum(outcome.restarts for outcome in outcomes), figures)


def fates_of(trace: Trace, outcomes: Sequence[Outcome]) -> list[Fate]:
    """What became of each of the trace's jobs, for a log. Processors are those that it asked for."""
    fates = []
    for submit, procs, outcome in zip(trace.submit, trace.procs, outcomes, strict=True):
        if outcome.start is None or outcome.end is None:
            fates.append(Fate(-1, -1, procs, 5))
            continue
        begin, end = round(outcome.start), round(outcome.end)
        # A log has 0 for failed and 5 for cancelled, which includes what was killed at its limit.
        status = _STATUS.get(outcome.state, 5 if outcome.state is JobState.TIMEOUT else 0)
        fates.append(Fate(begin - submit, end - begin, procs, status))
    return fates
