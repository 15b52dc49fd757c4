"""How runs of workflows are written down: to and from JSON-able values, those of earlier releases, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from operator import attrgetter
from typing import Any, Final

from penstock.workflow.intervals import intervals_of
from penstock.workflow.model import Workflow, workflow_from_dict, workflow_to_dict
from penstock.workflow.phases import Kept, RunPhase, StagePhase, Submitter
from penstock.workflow.state import Order, Own, StageRun, StageSlot, WorkflowRun, units_of
from penstock.workflow.strategies.cuts import place_units, singles, together
from penstock.workflow.ties import Tie

__all__ = ["in_order", "in_slots", "run_from_dict", "run_to_dict"]

_VERSION: Final = 4
# Where its owner submits the jobs, version 1 was another kind of document, with stages by name.
_GUIDED: Final = 1
# In slots there was no version, and these words.
_STANDINGS: Final = {
    "waiting": StagePhase.WAITING,
    "running": StagePhase.RUNNING,
    "done": StagePhase.DONE,
    "failed": StagePhase.FAILED,
}

_STAGE: Final = tuple(f.name for f in fields(StageRun))
_OWN: Final = tuple(f.name for f in fields(Own))
_values: Final = attrgetter(*_STAGE)
_TUPLES: Final = ("after", "depends_on", "covers", "minutes", "pins", "nodes", "exclude")


def run_to_dict(run: WorkflowRun) -> dict[str, Any]:
    """The run as JSON-able values, versioned."""
    return {
        "version": _VERSION,
        "id": run.id,
        "name": run.name,
        "submitter": run.submitter.value,
        "uid": run.uid,
        "user": run.user,
        "workflow": None if run.flow is None else workflow_to_dict(run.flow),
        "strategy": run.strategy,
        "by": run.by,
        "max_time": run.max_time,
        "levels_ahead": run.levels_ahead,
        "gain": run.gain,
        "submitted_at": run.submitted_at,
        "partition": run.partition,
        "qos": run.qos,
        "stages": [_stage_to_dict(s) for s in run.stages],
        "phase": run.phase.value,
        "why": run.why,
        "ended_at": run.ended_at,
        "discarded": list(run.discarded),
        "given_up": {str(job): list(known) for job, known in run.given_up.items()},
        "token": run.token,
        "stage_first": run.stage_first,
        "environment": run.environment,
        "leaving": [list(one) for one in run.leaving],
        "told": dict(run.told),
        "pauses": [list(one) for one in run.pauses],
        "open_until": run.open_until,
    }


def run_from_dict(data: Mapping[str, Any]) -> WorkflowRun:
    """What `run_to_dict` gave, by this release or an earlier one. Raises ValueError for another version."""
    version = data.get("version")
    if version == _GUIDED and "workflow" not in data:
        return _from_guided(data)
    if version is None and "flow" in data:
        return _from_slots(data)
    if version == 1:
        data = _from_version_1(data)
    if data.get("version") not in (2, 3, _VERSION):
        raise ValueError(f"stored run has version {version!r}, this release reads 1 to {_VERSION}")
    flow = None if data["workflow"] is None else workflow_from_dict(data["workflow"])
    if flow is not None and data["version"] == 2:
        data = _from_version_2(data, flow)
    stages = tuple(map(_stage_from_dict, data["stages"]))
    return WorkflowRun(
        id=data["id"],
        name=data["name"] if data["version"] == _VERSION else workflow_from_dict(data["workflow"]).name,
        submitter=Submitter(data.get("submitter", Submitter.AGENT)),
        uid=data.get("uid", 0),
        user=data.get("user", ""),
        flow=flow,
        strategy=data["strategy"],
        by=data["by"],
        max_time=data["max_time"],
        levels_ahead=data["levels_ahead"],
        gain=data.get("gain"),
        submitted_at=data["submitted_at"],
        partition=data["partition"],
        qos=data["qos"],
        stages=stages,
        units=units_of(stages) if flow is None else place_units(flow, tuple((s.name, s.covers) for s in stages)),
        phase=RunPhase(data["phase"]),
        why=data["why"],
        ended_at=data["ended_at"],
        discarded=tuple(data["discarded"]),
        given_up={int(job): (born, called) for job, (born, called) in data.get("given_up", {}).items()},
        token=data.get("token", ""),
        stage_first=data.get("stage_first", False),
        environment=data.get("environment", ""),
        leaving=_leaving(data),
        told=data.get("told", {}),
        pauses=intervals_of(data.get("pauses", ())),
        open_until=data.get("open_until"),
    )


def in_order(entries: Mapping[str, tuple[StageRun, Sequence[str]]]) -> tuple[StageRun, ...]:
    """Entries by name, with the names of those that each comes after, so that each stands behind these; otherwise as
    they are. One that would come after itself stays where it is found."""
    placed: dict[str, None] = {}
    for name, (_stage, after) in entries.items():
        if placed.keys() >= frozenset(after):  # so most stand already
            placed.setdefault(name)
            continue
        way = [(name, iter(after))]
        seen = {name}
        while way:  # no recursion: there may be a thousand one behind the other
            at, parents = way[-1]
            parent = next((p for p in parents if p in entries and p not in placed and p not in seen), None)
            if parent is None:
                placed.setdefault(at)
                way.pop()
            else:
                seen.add(parent)
                way.append((parent, iter(entries[parent][1])))
    place = {name: i for i, name in enumerate(placed)}
    found = []
    for name in placed:
        stage, after = entries[name]
        places = tuple(sorted(map(place.__getitem__, place.keys() & after)))
        found.append(stage if stage.after == places else replace(stage, after=places))
    return tuple(found)


def _stage_to_dict(stage: StageRun) -> dict[str, Any]:
    """By name, not with `asdict`, which copies every value and takes ten times as long: all runs may change at once."""
    values = dict(zip(_STAGE, _values(stage), strict=True))
    own = None if stage.own is None else _own_to_dict(stage.own)
    told = {"phase": stage.phase.value, "tie": stage.tie.value, "estimate_said": dict(stage.estimate_said)}
    slot = None if stage.slot is None else asdict(stage.slot)
    return {**values, **told, "own": own, "slot": slot}


def _own_to_dict(own: Own) -> dict[str, Any]:
    order = {"words": own.order.words, "workdir": own.order.workdir, "script": own.order.script}
    return {**{name: getattr(own, name) for name in _OWN}, "kept": own.kept.value, "order": order}


def _stage_from_dict(data: Mapping[str, Any]) -> StageRun:
    tuples = {key: tuple(data[key]) for key in _TUPLES}
    own = None if data.get("own") is None else _own_from_dict(data["own"])
    slot = None if data.get("slot") is None else StageSlot(**data["slot"])
    words = {"phase": StagePhase(data["phase"]), "tie": Tie(data["tie"])}
    holds = intervals_of(data.get("holds", ()))
    plain = {name: data[name] for name in _STAGE if name in data}  # `status --json` adds what it has worked out
    return StageRun(**{**plain, **tuples, **words, "own": own, "slot": slot, "holds": holds})


def _leaving(data: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple((str(slot), int(hold)) for slot, hold in data.get("leaving", ()))


def _own_from_dict(data: Mapping[str, Any]) -> Own:
    order = Order(**{**data["order"], "words": tuple(data["order"]["words"])})
    return Own(**{**data, "kept": Kept(data["kept"]), "order": order, "former": tuple(data["former"])})


def in_slots(name: str, flow: Workflow, slots: Mapping[str, StageSlot], now: float) -> WorkflowRun:
    """A workflow whose stages have these slots: all are put into theirs at once, each behind those before it."""
    entries = {s.name: (StageRun(s.name, covers=(s.name,), slot=slots[s.name]), s.after) for s in flow.order}
    stages = in_order(entries)
    return WorkflowRun(
        id=0,
        name=name,
        submitter=Submitter.SLOT,
        flow=flow,
        strategy="eager",
        levels_ahead=len(stages),
        submitted_at=now,
        partition=flow.partition or "",
        qos=flow.qos or "",
        stages=stages,
        units=place_units(flow, tuple((stage.name, stage.covers) for stage in stages)),
    )


# -- earlier releases --------------------------------------------------------------------------------------------------


def _from_guided(data: Mapping[str, Any]) -> WorkflowRun:
    """Release 0.1.0 kept workflows whose owners submit the jobs apart, with stages by name, some before their parents.
    It kept a job back by a hold."""
    entries = {stage["name"]: (_from_guided_stage(stage), tuple(stage["after"])) for stage in data["stages"]}
    stages = in_order(entries)
    return WorkflowRun(
        id=data["id"],
        name=data["name"],
        submitter=Submitter.OWNER,
        uid=data["uid"],
        user=data["user"],
        strategy=data["strategy"],
        submitted_at=data["created"],
        partition="",
        qos="",
        stages=stages,
        units=units_of(stages),
        phase=RunPhase(data["phase"]),
        why=data["why"],
        ended_at=data["ended_at"],
    )


def _from_guided_stage(data: Mapping[str, Any]) -> StageRun:
    order = {"order": Order(**{**data["order"], "words": tuple(data["order"]["words"])})}
    named = {name: data[name] for name in _OWN if name in data}
    kept = Kept.HOLD if data["hold"] else Kept.NOT
    own = Own(**{**named, **order, "kept": kept, "former": tuple(data["former"])})
    phase = StagePhase(data["phase"])
    if phase is StagePhase.SUBMITTED:  # in the queue and held: for the agent, or by somebody else
        phase = StagePhase.WAITING if kept and data["released"] is None else StagePhase.QUEUED
    common = {name: data[name] for name in _STAGE if name in data and name not in ("after", "nodes", "own")}
    return StageRun(**{**common, "phase": phase, "own": own})


def _from_slots(data: Mapping[str, Any]) -> WorkflowRun:
    """Release 0.1.0 kept workflows in slots apart, with stages by name. A stage without a job may have one that was
    submitted right before the process was killed: it is looked for."""
    flow, told = workflow_from_dict(data["flow"]), data["told"]
    slots = {
        name: StageSlot(s["slot"], s["hold"], s["moves"], s["whole"], s.get("killed"))
        for name, s in data["stages"].items()
    }
    run = in_slots(data["name"], flow, slots, 0.0)
    for i, stage in enumerate(run.stages):
        old = data["stages"][stage.name]
        phase, behind = _STANDINGS[old["standing"]], tuple(old.get("behind", ()))
        if phase is StagePhase.WAITING:
            phase = StagePhase.INTENDED if old["job"] is None else StagePhase.QUEUED
        failure = (told.get(stage.name) or "its job has failed") if phase is StagePhase.FAILED else None
        stage = replace(stage, depends_on=behind, tie=Tie.AFTEROK if behind else Tie.NONE)
        run = run.put(i, replace(stage, phase=phase, attempt=1, job=old["job"], failure=failure))
    failing = any(stage.phase is StagePhase.FAILED for stage in run.stages)
    goes = RunPhase.FAILING if failing else RunPhase.ACTIVE
    return replace(run, phase=goes, leaving=_leaving(data), told=dict(told))


def _from_version_2(data: Mapping[str, Any], workflow: Workflow) -> Mapping[str, Any]:
    """Version 2 knew three strategies, which are cut by their names, and no tie but a dependency."""
    bigjob = data["strategy"] == "bigjob"
    cut = together("bigjob", workflow.order) if bigjob else singles(workflow.order)
    covers = dict(cut)
    stages = [
        {
            **stage,
            "covers": covers[stage["name"]],
            "tie": (Tie.AFTEROK if stage["depends_on"] else Tie.NONE).value,
            **{key: [] for key in ("minutes", "pins", "nodes", "exclude")},
        }
        for stage in data["stages"]
    ]
    return {**data, "version": 3, "by": None, "max_time": None, "levels_ahead": 2, "stages": stages}


def _from_version_1(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Version 1 knew chains only: every job came after the one before it and depended on one job or none."""
    stages = [
        {
            **stage,
            "after": [i - 1] if i > 0 else [],
            "depends_on": [] if stage["depends_on"] is None else [stage["depends_on"]],
        }
        for i, stage in enumerate(data["stages"])
    ]
    return {**data, "version": 2, "stages": stages}
