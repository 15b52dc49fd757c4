"""The workflows of one `penstock plan`: read, their slots made as long as they should be, and joined to one graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.advice.overrun import Length, slot_length
from penstock.api import Node
from penstock.errors import UserError
from penstock.workflow.files.checks import elsewhere
from penstock.workflow.files.formats import load_workflow
from penstock.workflow.files.wfformat import Packing
from penstock.workflow.model import Stage, Workflow
from penstock_planning.commands.planning import Source
from penstock_planning.hold.fitting import unfit, wanted
from penstock_planning.plan.dag import Dag, one_site
from penstock_planning.plan.sites import TaskRow

__all__ = ["FlowStage", "Flows", "load_flows"]

_MINUTE = 60


@dataclass(frozen=True, slots=True)
class FlowStage:
    """A stage of one of the workflows, with a name that no other has. `length` is set if its run times chose it: then
    the stage's limit is that of its slot, and `whole` the limit that was asked for. `after` names items."""

    flow: int
    stage: Stage
    name: str
    after: tuple[str, ...]
    length: Length | None
    whole: float | None

    def as_json(self) -> dict[str, Any]:
        """What there is to say of a slot shorter than its stage's limit."""
        return {} if self.length is None else {"limit": self.whole, "overrun": round(self.length.overrun, 4)}


@dataclass(frozen=True)
class Flows:
    """Workflows that are planned together; `items` are all their stages, one workflow after the other. `written` are
    the workflows as their files have them."""

    flows: tuple[Workflow, ...]
    items: tuple[FlowStage, ...]
    written: tuple[Workflow, ...]

    def durations(self, margin: float) -> dict[str, float]:
        """The slots' lengths as options of a source: the limits (computed ones have any number of decimals: of these
        six stay), and if they are to be reserved, the margin beyond them, in whole minutes."""
        out = {}
        for item in self.items:
            limit = item.stage.time_limit
            exact = math.ceil(round(limit * 1e6, 2)) / 1e6
            out[f"stage {item.name}"] = _MINUTE * math.ceil((limit + margin) / _MINUTE) if margin else exact
        return out

    def dag(self, source: Source) -> Dag:
        """All of them as one graph. Infeasible if a stage can never have a slot."""
        rows = []
        for item in self.items:
            length = source.duration(f"stage {item.name}")
            assert length is not None
            # What a partition allows is asked of the job: its slot may be longer, by the margin.
            source.check(item.stage.nodes, item.stage.time_limit * source.situation.scale)
            rows.append((item.name, item.stage.nodes, float(length), item.after))
        return one_site(rows)

    def chained(self) -> list[tuple[Stage, tuple[int, ...]]]:
        """The stages as jobs that depend on one another: as their files have them, with the places of those before."""
        place = {item.name: i for i, item in enumerate(self.items)}
        stages = [stage for flow in self.written for stage in flow.stages]
        return [
            (stage, tuple(place[name] for name in item.after)) for stage, item in zip(stages, self.items, strict=True)
        ]

    def lacking(self, nodes: Sequence[Node]) -> str:
        """The first stage that cannot run on all of these nodes, and what it asks for; empty where there is none."""
        for item in self.items:
            if without := unfit(item.stage.asks, nodes):
                few = ", ".join(without[:4]) + (f" and {len(without) - 4} more" if len(without) > 4 else "")
                return f"stage {item.name} asks for {wanted(item.stage.asks)}, which is not to be had on {few}"
        return ""

    def rows(self) -> list[TaskRow]:
        """The same for a plan over several sites."""
        return [
            TaskRow(item.name, item.stage.nodes, item.stage.time_limit, item.after, item.stage.inputs)
            for item in self.items
        ]

    def shortened(self, show: Callable[[float], str]) -> list[str]:
        """A sentence on every slot that is shorter than its stage's limit."""
        return [
            f"{item.name}: its slot is for {show(item.stage.time_limit)} of {show(item.whole)}; by what it took "
            f"before, it takes longer with a probability of {item.length.overrun:.0%}"
            for item in self.items
            if item.length is not None and item.whole is not None
        ]


def load_flows(paths: Sequence[Path], packing: Packing | None, minutes: bool) -> Flows:
    """Read them. `minutes`: limits are whole minutes, as Slurm keeps them. UserError if two have one name."""
    flows = [load_workflow(path, packing) for path in paths]
    for i, flow in enumerate(flows):
        if (other := elsewhere(flow)) is not None:
            raise UserError(f"{paths[i]}: {other}: slots are of one partition for all stages")
        same = next((paths[j] for j in range(i) if flows[j].name == flow.name), None)
        if same is not None:
            raise UserError(f"{paths[i]}: name: {flow.name!r} is the name of the workflow in {same}, too")
    written, items = tuple(flows), list[FlowStage]()
    for i, flow in enumerate(flows):
        # What makes the stages' names different: nothing if there is one workflow.
        prefix = f"{flow.name}/" if len(flows) > 1 else ""
        fitted = [_fit(stage, minutes) for stage in flow.stages]
        flows[i] = replace(flow, stages=tuple(stage for stage, _ in fitted))
        for before, (stage, length) in zip(flow.stages, fitted, strict=True):
            whole = None if length is None else before.time_limit
            after = tuple(prefix + name for name in stage.after)
            items.append(FlowStage(i, stage, prefix + stage.name, after, length, whole))
    return Flows(tuple(flows), tuple(items), written)


def _fit(stage: Stage, minutes: bool) -> tuple[Stage, Length | None]:
    """The stage with the limit that its run times suggest; None if that is the one it has."""
    found = slot_length(stage.took, stage.time_limit)
    limit = _MINUTE * math.ceil(found.duration / _MINUTE) if minutes else found.duration
    if limit >= stage.time_limit:
        return stage, None
    return replace(stage, time_limit=limit, run_time=min(stage.run_time, limit), took=()), found
