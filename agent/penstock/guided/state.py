"""The state of one guided workflow: frozen, and to and from JSON-able values. Times are epoch s, None: not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from penstock.workflow.state import Phase, RunPhase

__all__ = ["GuidedRun", "GuidedStage", "Kept", "Order", "guided_from_dict", "guided_to_dict", "updated"]

_VERSION: Final = 2


class Kept(StrEnum):
    """How a stage's job was kept back for the agent when it was submitted.

    BEGIN: by a begin time that does not come (`reading.FAR`), which is brought forward to let it go. HOLD: by a hold of
    its owner's, as release 0.1.0 did; when an Operator lifts that, an administrator's hold of the same moment goes with
    it.
    """

    NOT = ""
    BEGIN = "begin"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Order:
    """How a stage's job was submitted, to submit it again: sbatch's `words`, in the folder `workdir`.

    Without what Penstock added to it. `script` is what sbatch read from its standard input, None when it read a file.
    """

    words: tuple[str, ...] = ()
    workdir: str = ""
    script: str | None = None


@dataclass(frozen=True, slots=True)
class GuidedStage:
    """One stage and its job.

    `after` names the stages before it. `expect` is its run time in seconds as its owner said, `limit` the job's time
    limit. `kept`: how it is kept back until the agent releases it; any other hold is left alone. `begin` is the owner's
    own earliest start, before which it is not released, `base` the owner's own dependency, which stays whatever else is
    changed. `phase` SUBMITTED: in the queue and kept back, or held by somebody. `estimate` is the predicted wait (s),
    `estimate_index` and `estimate_said` what else was said of it, `due` when the job should be released for that.
    `trouble` is the state in which a task of an array ended that did not complete, `hindered` what
    kept the job waiting besides its turn (`waits.causes`). `former` are the jobs of earlier tries. `asked` counts how
    often accounting has been asked what became of the job without an answer that settles it, last at `asked_at`.
    """

    name: str
    job: int
    after: tuple[str, ...] = ()
    expect: float | None = None
    kept: Kept = Kept.NOT
    begin: float | None = None
    base: str = ""
    order: Order = Order()
    phase: Phase = Phase.SUBMITTED
    estimate_index: int | None = None
    estimate: float | None = None
    estimate_said: Mapping[str, float] = field(default_factory=dict)
    due: float | None = None
    registered: float = 0.0
    submitted: float | None = None
    released: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    partition: str = ""
    qos: str = ""
    account: str = ""
    nodes: int = 0
    limit: float | None = None
    requeued_at: float | None = None
    trouble: str | None = None
    hindered: str | None = None
    slurm_state: str | None = None
    exit_code: int | None = None
    failure: str | None = None
    observed: bool = False
    former: tuple[int, ...] = ()
    asked: int = 0
    asked_at: float | None = None


_STAGE_FIELDS: Final = tuple(f.name for f in fields(GuidedStage))


def updated(stage: GuidedStage, **changes: Any) -> GuidedStage:  # noqa: ANN401
    """The stage with these fields; itself where they say nothing new, which is so in most passes."""
    news = any(getattr(stage, name) != value for name, value in changes.items())
    return replace(stage, **changes) if news else stage


@dataclass(frozen=True, slots=True)
class GuidedRun:
    """A workflow of the user `uid`; stages in the order they were registered, so parents come first.

    FAILING: a stage did not complete, and what comes after it waits for its owner to retry or to cancel. CANCELLING:
    its owner is cancelling it, nothing of it is released any more.
    """

    id: int
    uid: int
    user: str
    name: str
    strategy: str
    created: float
    stages: tuple[GuidedStage, ...] = ()
    phase: RunPhase = RunPhase.ACTIVE
    why: str | None = None
    ended_at: float | None = None

    def get(self, name: str) -> GuidedStage | None:
        """The stage of that name."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def parents(self, stage: GuidedStage) -> tuple[GuidedStage, ...]:
        """The stages that this one comes after."""
        after = frozenset(stage.after)
        return tuple(s for s in self.stages if s.name in after)

    def below(self, names: Iterable[str]) -> frozenset[str]:
        """The names of all stages that come after one of these, directly or not."""
        start = frozenset(names)
        children: dict[str, list[str]] = {}
        for stage in self.stages:
            for parent in stage.after:
                children.setdefault(parent, []).append(stage.name)
        found, left = set(start), list(start)
        while left:
            fresh = [child for child in children.get(left.pop(), ()) if child not in found]
            found.update(fresh)
            left += fresh
        return frozenset(found - start)

    def ready_at(self, stage: GuidedStage) -> float | None:
        """When the last stage before this one ended; for one without: when it was registered. None: not known yet."""
        ends = [parent.end for parent in self.parents(stage)]
        known = [end for end in ends if end is not None]
        return None if len(known) < len(ends) else max(known, default=stage.registered)

    def with_stage(self, stage: GuidedStage) -> GuidedRun:
        """The same with the stage of that name replaced, or added at the end."""
        old = self.get(stage.name)
        if old is stage:
            return self
        if old is None:
            return replace(self, stages=(*self.stages, stage))
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    @property
    def edges(self) -> int:
        """How often a stage comes after another."""
        return sum(len(stage.after) for stage in self.stages)

    def jobs(self) -> tuple[int, ...]:
        """Ids of the jobs that have not ended, ascending."""
        return tuple(sorted(s.job for s in self.stages if not s.phase.final))


_RUN_FIELDS: Final = tuple(f.name for f in fields(GuidedRun))


def guided_to_dict(run: GuidedRun) -> dict[str, Any]:
    """The run as JSON-able values, versioned."""
    values = {name: getattr(run, name) for name in _RUN_FIELDS}
    return {"version": _VERSION, **values, "phase": run.phase.value, "stages": [_stage_to_dict(s) for s in run.stages]}


def _stage_to_dict(stage: GuidedStage) -> dict[str, Any]:
    """By name, not with `asdict`, which copies every value and takes ten times as long: there may be thousands."""
    values = {name: getattr(stage, name) for name in _STAGE_FIELDS}
    order = {"words": stage.order.words, "workdir": stage.order.workdir, "script": stage.order.script}
    told = {"phase": stage.phase.value, "kept": stage.kept.value}
    return {**values, **told, "estimate_said": dict(stage.estimate_said), "order": order}


def guided_from_dict(data: Mapping[str, Any]) -> GuidedRun:
    """What `guided_to_dict` gave, of this release or of 0.1.0. Raises ValueError for another version."""
    if data.get("version") not in (1, _VERSION):
        raise ValueError(f"stored workflow has version {data.get('version')!r}, this release reads 1 to {_VERSION}")
    values = {k: v for k, v in data.items() if k != "version"}
    stages = tuple(_stage_from_dict(stage) for stage in data["stages"])
    return GuidedRun(**{**values, "stages": stages, "phase": RunPhase(data["phase"])})


def _stage_from_dict(data: Mapping[str, Any]) -> GuidedStage:
    order = Order(**{**data["order"], "words": tuple(data["order"]["words"])})
    tuples = {"after": tuple(data["after"]), "former": tuple(data["former"])}
    values = {k: v for k, v in data.items() if k != "hold"}
    kept = Kept(data["kept"]) if "kept" in data else Kept.HOLD if data["hold"] else Kept.NOT  # "hold": version 1
    return GuidedStage(**{**values, **tuples, "order": order, "phase": Phase(data["phase"]), "kept": kept})
