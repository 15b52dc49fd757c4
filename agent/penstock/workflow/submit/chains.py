"""Jobs that a script of their owner's submits one behind the other, by sbatch's own `--dependency`: a workflow that
nobody has named. Pure.

Slurm has each dependency as it was written, so that no job waits for an agent. What of it a workflow can say (`afterok`
on a job of it) makes one stage come after another; all else stays Slurm's business and is kept as its text. A job joins
the workflow of those that it depends on; where these are several, they become one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.api import Reason
from penstock.errors import UserError
from penstock.slurm.dependencies import beside, jobs_named, needed
from penstock.values.documents import brief
from penstock.workflow.documents import in_order
from penstock.workflow.model import NAME_PATTERN
from penstock.workflow.phases import RunPhase
from penstock.workflow.state import Own, StageRun, WorkflowRun, units_of
from penstock.workflow.strategy import Plan, names
from penstock.workflow.submit.admission import (
    MOST_STAGES,
    Asked,
    Registration,
    afters_of,
    check_size,
    identity_of,
    order_of,
)

__all__ = ["ChainLink", "Joined", "begun_because", "followed_because", "join", "read_links"]

_MOST_LINKS: Final = 1000
_MOST_DEPENDENCY: Final = 100_000  # characters
_LONGEST_NAME: Final = 40
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A `job` that its owner has submitted with this `dependency`; `called` as its stage would be. `near` are jobs that
    it waits for without naming them (of the same name, under `singleton`). `name` and `born` are what Slurm calls it,
    and when it was submitted."""

    called: str
    job: int
    dependency: str = ""
    near: tuple[int, ...] = ()
    own: Own = field(default_factory=Own)
    name: str = ""
    born: float | None = None

    @property
    def related(self) -> tuple[int, ...]:
        """The jobs that it has to do with."""
        return (*jobs_named(self.dependency), *self.near)


@dataclass(frozen=True, slots=True)
class Joined:
    """The `run` that the new `stages` are for (None: one that begins, called `name`), with the stages of those that are
    `gone`, as they are part of it now."""

    name: str
    run: WorkflowRun | None
    gone: tuple[WorkflowRun, ...] = ()
    stages: tuple[Asked, ...] = ()

    def begun(self, number: int, uid: int, user: str, now: float) -> WorkflowRun:
        """A new run for them, still without stages. Each job is behind those before it, as `eager` would have it."""
        at = min([now, *(stage.own.registered for stage in self.stages)])
        return Registration(self.name, "auto", self.stages).begun(number, uid, user, at, Plan((), by="eager"))


def read_links(data: Mapping[str, Any], now: float) -> tuple[ChainLink, ...]:
    """What came in as JSON. Raises UserError: nothing of it is trusted."""
    try:
        entries = tuple(data["links"])
        if not 1 <= len(entries) <= _MOST_LINKS:
            raise UserError(f"links: must be 1 to {_MOST_LINKS} at once, not {len(entries)}")
        return tuple(_link(entry, now) for entry in entries)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise UserError(f"not the jobs of a chain: {brief(e)}") from e


def _link(data: Mapping[str, Any], now: float) -> ChainLink:
    job, at, text = int(data["job"]), float(data["at"]), str(data.get("dependency", ""))
    near = tuple(int(n) for n in data.get("near", ()))
    if not (0 < job < 2**32 and at >= 0) or len(text) > _MOST_DEPENDENCY or len(near) > _MOST_LINKS:
        raise ValueError(f"job {job} at {at}, a dependency of {len(text)} characters, {len(near)} others near it")
    # The clocks of two hosts differ: nothing was submitted after it was heard of.
    own = Own(order=order_of(data.get("order") or {}), registered=min(at, now), chained=True)
    name, born = identity_of(data)
    return ChainLink(_named(str(data["called"])), job, text, near, own, name, born)


def _named(text: str) -> str:
    """A name for a stage, as near to this as such names are."""
    name = _STRANGE.sub("-", text).strip("-")[:_LONGEST_NAME]
    return name if NAME_PATTERN.fullmatch(name) else "job"


def join(runs: Sequence[WorkflowRun], links: Sequence[ChainLink]) -> Joined:
    """The workflow that these jobs, of which some may be known, are of. `runs` are their owner's, oldest first.

    Raises UserError where it would be too large.
    """
    homes = {job: run for run in runs for stage in run.stages for job in _jobs(stage)}
    fresh = [link for link in links if link.job not in homes]
    near = [homes[job] for link in links for job in (link.job, *link.related) if job in homes]
    found = sorted({run.id: run for run in near}.values(), key=lambda run: (run.chain, run.id))
    home = found[0] if found else None
    gone = tuple(r for r in found[1:] if r.chain and r.phase is not RunPhase.CANCELLING) if fresh else ()
    if home is not None and gone:
        home = _merged(home, gone)
    taken = {} if home is None else {stage.name: stage.job for stage in home.stages}
    if len(taken) + len(fresh) > MOST_STAGES:
        raise UserError(f"the chain would have {len(taken) + len(fresh)} jobs, at most {MOST_STAGES} are possible")
    places = {job: name for name, job in taken.items() if job is not None}
    stages = []
    for link in sorted(fresh, key=lambda link: link.job):
        name = _free(link.called, taken)
        taken[name] = link.job
        places[link.job] = name
        parents = tuple(job for job in needed(link.dependency) if job in places and job != link.job)
        own = replace(link.own, base=beside(link.dependency, parents)[:_MOST_DEPENDENCY])
        after = tuple(places[job] for job in parents)
        stages.append(Asked(name, link.job, after, own, called=link.name, born=link.born))
    check_size([*(() if home is None else home.stages), *(stage.entry for stage in stages)])
    name = home.name if home is not None else stages[0].name
    return Joined(name, home, gone, tuple(stages))


def _jobs(stage: StageRun) -> tuple[int, ...]:
    former = () if stage.own is None else stage.own.former
    return (*former, *(() if stage.job is None else (stage.job,)))


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or the first of name-2, name-3 ... that is not taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        ending = f"-{number}"
        found = name[: _LONGEST_NAME - len(ending)] + ending
    return found


def _merged(home: WorkflowRun, others: Sequence[WorkflowRun]) -> WorkflowRun:
    """The run with the stages of the others, some of which have other names for it."""
    entries = {stage.name: (stage, afters_of(home)[stage.name]) for stage in home.stages}
    for other in others:
        new: dict[str, str] = {}
        for stage in other.stages:
            new[stage.name] = _free(stage.name, {*entries, *new.values()})
        afters = afters_of(other)
        for stage in other.stages:
            after = tuple(new[parent] for parent in afters[stage.name])
            entries[new[stage.name]] = (replace(stage, name=new[stage.name]), after)
    stages = in_order(entries)
    begun = min(home.submitted_at, *(other.submitted_at for other in others))
    return replace(home, stages=stages, units=units_of(stages), submitted_at=begun)


# -- what is said of it ------------------------------------------------------------------------------------------------


def begun_because() -> tuple[Reason, ...]:
    """Why there is such a workflow, and what can be expected of it."""
    text = (
        "jobs that depend on one another, submitted by `penstock sbatch` without a workflow's name: they are followed "
        "as one workflow, which is called after its first job"
    )
    limits = (
        "Slurm has their dependencies as they were written, so none waits for an agent. Strategies can do nothing for "
        "them: no job is kept back, and no script has a guard that would let it wait in the queue without its "
        "dependency. With workflow= and after= they could"
    )
    return Reason("chain", text), Reason("chain-only-followed", limits)


def followed_because(run: WorkflowRun, stage: Asked, gone: Sequence[WorkflowRun] = ()) -> tuple[Reason, ...]:
    """Why a job is a stage of the run."""
    reasons = []
    parents = [run.stage(name) for name in stage.after]
    if parents:
        text = f"job {stage.job} comes after {names(parents)}, as its own --dependency says"
        reasons.append(Reason("chain-after", text))
    else:
        reasons.append(Reason("chain-job", f"job {stage.job} is a job of the chain"))
    if stage.own.base:
        text = f"Slurm alone sees to the rest of its --dependency: {stage.own.base}"
        reasons.append(Reason("left-to-slurm", text))
    if gone:
        told = ", ".join(f"{other.id} ({other.name})" for other in gone)
        text = f"it depends on jobs of several chains, which are one from now on: {told}"
        reasons.append(Reason("chains-joined", text))
    return tuple(reasons)
