"""How a bag's tasks become jobs on a candidate, and why they never could. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.errors import UserError
from penstock.values.gres import Gres, asked_gres
from penstock_planning.broker.partitions import Candidate, gpus_in
from penstock_planning.broker.tasks import Bag
from penstock_planning.select.consumables import Consumable, Requirement
from penstock_planning.select.cost import run_time
from penstock_planning.select.matchmaking import matching, unmet

__all__ = ["JobShape", "hindrance", "shape"]

_GENEROUS: Final = 3.0
"""Limits that nobody names are so many times the predicted run time, which is known to be off by a factor of two."""
_LEAST: Final = 300.0


@dataclass(frozen=True, slots=True)
class JobShape:
    """One job of a bag on a candidate: `per` tasks side by side on one node, or one task on several `nodes`, for at
    most `limit` s. It takes `units` of the candidate's nodes (whole ones), or of its CPUs. `pad`: cores without a task
    are kept busy. `cores`, memory and GPUs are a task's on each of its nodes.

    `run` is the predicted run time in seconds, of all tasks alike, with the `fetch` seconds that their input takes
    while nobody else fetches any.
    """

    per: int
    cores: int
    memory: float | None
    gpus: Mapping[str, int]
    limit: float
    run: float
    whole: bool
    pad: bool = False
    nodes: int = 1
    fetch: float = 0.0

    @property
    def units(self) -> int:
        """Nodes, or CPUs, of a full job."""
        return self.nodes if self.whole else self.nodes * self.per * self.cores


def shape(bag: Bag, candidate: Candidate, longest: float | None = None) -> JobShape:
    """The jobs of a bag there; of use only where `hindrance` finds nothing. A whole node takes as many tasks as it has
    room for, unless the bag says not to fill it; a task on several nodes has them for itself. `longest` is
    what its owner's jobs may take (s), by which a limit that nobody names is cut as by the partition's."""
    cores, held = bag.task.parallel.cores // bag.nodes, [req for req in bag.task.requirements if req.held]
    memory = sum(req.amount for req in held if req.consumable.type == "memory") or None
    gpus: dict[str, int] = {}
    for req in held:
        if req.consumable.type == "gpu":
            model = _model(req, candidate)
            gpus[model] = gpus.get(model, 0) + math.ceil(req.amount)
    per = 1
    filled = candidate.whole and bag.nodes == 1
    if filled and bag.fill != "none":
        rig = candidate.rig
        room = [rig.cpus // cores]
        if memory and rig.memory:
            room.append(int(rig.memory // memory))
        room += [rig.gpus.get(model, 0) // count for model, count in gpus.items()]
        per = max(min(room), 1)
    fetch = 0.0 if candidate.link is None else candidate.link.time(per * bag.input)
    run = run_time(bag.task, candidate.resource) + fetch
    limit = bag.limit
    if limit is None:
        limit = math.ceil(max(_GENEROUS * run, _LEAST) / 60) * 60.0 if math.isfinite(run) else _LEAST
        for most in (candidate.partition.max_time, longest):
            if most is not None and run <= most:
                limit = min(limit, most)
    padded = filled and bag.fill == "pad"
    return JobShape(per, cores, memory, gpus, limit, run, candidate.whole, padded, bag.nodes, fetch)


def _model(req: Requirement, candidate: Candidate) -> str:
    """Which model of GPU a requirement gets there; "" for any."""
    offered = [cap.consumable for cap in matching(req, candidate.resource)]
    models = (model for model in candidate.rig.gpus if model and Consumable.of("gpu", {"model": model}) in offered)
    return next(models, "")


def hindrance(bag: Bag, candidate: Candidate, account: str = "", qos: str = "") -> str | None:
    """Why jobs of the bag can never run there; None if they can, as far as is known. `account` and `qos` are the user's
    usual ones."""
    partition, options = candidate.partition, bag.options
    account, qos = options.get("account", account), options.get("qos", qos)
    wanted = options.get("partition")
    if wanted is not None and partition.name not in wanted.split(","):
        return f"the task asks for partition {wanted}"
    if not partition.up:
        return "the partition is down"
    lacking = _lacking(options.get("constraint", ""), candidate)
    if lacking:
        return f"its nodes lack the feature {lacking}"
    for model, count in gpus_in(_asked(options.get("gres", ""))).items():
        have = candidate.rig.gpus.get(model, 0) if model else sum(candidate.rig.gpus.values())
        if have < count:
            return f"its nodes have {have} GPUs{f' {model}' if model else ''}, the task asks for {count}"
    why = unmet(bag.task, candidate.resource)
    if why:
        return "; ".join(why)
    for what, name, admitted in (("account", account, partition.accounts), ("QOS", qos, partition.qos)):
        if name and not _admits(name, admitted):
            return f"{what} {name} may not use it"
    made = shape(bag, candidate)
    if made.cores > candidate.rig.cpus:
        where = "" if bag.nodes == 1 else " on each node"
        return f"a task needs {made.cores} cores{where}, its nodes have {candidate.rig.cpus}"
    if partition.min_nodes > bag.nodes:
        few = "one" if bag.nodes == 1 else f"{bag.nodes}"
        return f"a job there has at least {partition.min_nodes} nodes, a task runs on {few}"
    if partition.max_nodes == 0:
        return "jobs get no nodes there (MaxNodes=0)"
    if partition.max_nodes is not None and partition.max_nodes < bag.nodes:
        return f"a task needs {bag.nodes} nodes, a job there gets at most {partition.max_nodes} (MaxNodes)"
    if len(candidate.nodes) < bag.nodes:
        return f"a task needs {bag.nodes} nodes, there are {len(candidate.nodes)}"
    if partition.max_time is not None and made.limit > partition.max_time:
        text = "the predicted run time" if bag.limit is None else "the time limit"
        return f"{text} of {made.limit:.0f} s exceeds its longest of {partition.max_time:.0f} s"
    if not candidate.usable:
        return "none of its nodes can be used: down, drained or reserved"
    if len(candidate.usable) < bag.nodes:
        return f"a task needs {bag.nodes} nodes, {len(candidate.usable)} can be used: others are down or reserved"
    return None


def _asked(gres: str) -> list[Gres]:
    try:
        return asked_gres(gres)
    except ValueError as e:
        raise UserError(f"gres: must be such as gpu:2 or gpu:a100:2, not {str(e)[:60]!r}") from None


def _lacking(constraint: str, candidate: Candidate) -> str | None:
    """The first feature that is asked for and not there. What is more than a list of features is left to Slurm."""
    if re.fullmatch(r"[A-Za-z0-9_.=-]+([&,][A-Za-z0-9_.=-]+)*", constraint, re.ASCII) is None:
        return None
    return next((name for name in re.split("[&,]", constraint) if name not in candidate.features), None)


def _admits(name: str, admitted: frozenset[str]) -> bool:
    if any(one.startswith("-") for one in admitted):
        return f"-{name}" not in admitted
    return not admitted or name in admitted
