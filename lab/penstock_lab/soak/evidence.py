"""What an episode leaves behind on the simulated Slurm, in the words of the invariants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.api import Allocation, JobState
from penstock.workflow.scripts import read_job_name
from penstock.workflow.state import WorkflowRun
from penstock_lab.mock.jobs import SimJob
from penstock_lab.soak.invariants import Event, Kind, Seen

__all__ = ["events_of", "holder_of", "seen_of", "stage_of"]

_PREFIX = "penstock"


def stage_of(name: str) -> tuple[int, str] | None:
    """The number of the run and the unit in the name of a job that the agent submitted; None: it is none."""
    said = read_job_name(name)
    return None if said is None else (int(said.run.split("-")[0]), said.stage)


def holder_of(name: str) -> int | None:
    """For which job a resizer or a companion of this name holds nodes; None: it is none."""
    parts = name.split("-")
    return int(parts[1]) if len(parts) == 3 and parts[0] == _PREFIX and parts[1].isdecimal() else None


def seen_of(
    job: SimJob,
    malleable: Mapping[int, str],
    guided: Mapping[int, tuple[str, str]],
    names: Mapping[int, str],
    slots: Collection[str] = (),
) -> Seen:
    """A record of the simulated accounting. `malleable` and `guided` are known by their job, `names` are the names of
    workflows by the number of their run, `slots` those of slots."""
    kind, run, unit, of = Kind.BYSTANDER, "", "", None
    if isinstance(job.spec, Allocation):
        kind, of = Kind.HOLDER, holder_of(job.name)
    elif job.name in slots:
        kind = Kind.SLOT
    elif job.id in malleable:
        kind = Kind.MALLEABLE
    elif job.id in guided:
        kind, (run, unit) = Kind.GUIDED, guided[job.id]
    elif (stage := stage_of(job.name)) is not None:
        kind, run, unit = Kind.STAGE, names.get(stage[0], f"run {stage[0]}"), stage[1]
    nodes = len(job.nodes) if job.nodes else job.num_nodes
    state = job.state.value
    return Seen(job.id, job.user, kind, state, job.start, job.end, run, unit, of, job.spec.nodes, nodes)


def events_of(jobs: Iterable[tuple[SimJob, Seen]], runs: Mapping[str, WorkflowRun], idle: Iterable[int]) -> list[Event]:
    """What the scripts of stages would have written. `idle` jobs found that an earlier attempt had done the work."""
    found = []
    nothing = set(idle)
    for job, seen in jobs:
        # A guarded job has its nodes before it begins its work; one that never did has written nothing.
        began = job.start is not None and job.left_at >= job.start and job.work is not None
        if seen.kind not in (Kind.STAGE, Kind.GUIDED) or not began or seen.job in nothing:
            continue
        run = runs.get(seen.run)
        covers: tuple[str, ...] = (seen.unit,)
        if run is not None:
            covers = next((s.covers or (s.name,) for s in run.stages if s.name == seen.unit), covers)
        last = len(covers) - 1
        for place, stage in enumerate(covers):
            # One job for several stages does one after the other; what each took does not matter here.
            at = job.left_at + (0.0 if place == 0 or job.end is None else (job.end - job.left_at) * place / (last + 1))
            if job.state is JobState.COMPLETED or place == 0:
                found.append(Event(seen.run, stage, seen.job, "begin", at))
            if job.state is JobState.COMPLETED and job.end is not None:
                end = job.left_at + (job.end - job.left_at) * (place + 1) / (last + 1)
                found.append(Event(seen.run, stage, seen.job, "end", job.end if place == last else end))
    return found
