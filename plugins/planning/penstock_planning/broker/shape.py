"""How a bag's tasks become jobs on a candidate, and why they never could, whatever else their owner runs. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.api import Limit, OwnerLimits
from penstock.core.ownlimits import binding, said
from penstock.errors import UserError
from penstock.values.gres import Gres, asked_gres
from penstock_planning.broker.partitions import Candidate, gpus_in
from penstock_planning.broker.tasks import Bag
from penstock_planning.select.consumables import Consumable, Requirement
from penstock_planning.select.cost import run_time
from penstock_planning.select.matchmaking import matching

__all__ = ["JobShape", "at_most", "beyond", "hindrance", "shape"]

_GENEROUS: Final = 3.0
"""Limits that nobody names are so many times the predicted run time, which is known to be off by a factor of two."""
_LEAST: Final = 300.0
_AT_ONCE: Final = frozenset({"MaxTRESPerJob", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"})
"""What of its owner's limits a single job has to fit into."""


@dataclass(frozen=True, slots=True)
class JobShape:
    """One job of a bag on a candidate: `per` tasks side by side on one node, or one task on several `nodes`, for at
    most `limit` s. It takes `units` of the candidate's nodes (whole ones), or of its CPUs. `pad`: cores without a task
    are kept busy. `cores`, memory and GPUs are a task's on each of its nodes.

    `run` is the predicted run time in seconds, of all tasks alike, with the `fetch` seconds that their input takes
    while nobody else fetches any. `directives` are the lines of its script that ask for what is beside its node, limit
    and partition.
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
    directives: str = ""

    @property
    def units(self) -> int:
        """Nodes, or CPUs, of a full job."""
        return self.nodes if self.whole else self.nodes * self.per * self.cores


def shape(bag: Bag, candidate: Candidate) -> JobShape:
    """The jobs of a bag there; of use only where `hindrance` finds nothing. A whole node takes as many tasks as it has
    room for, unless the bag says not to fill it; a task on several nodes has them for itself."""
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
        most = candidate.partition.max_time
        if most is not None and run <= most:
            limit = min(limit, most)
    padded = filled and bag.fill == "pad"
    made = JobShape(per, cores, memory, gpus, limit, run, candidate.whole, padded, bag.nodes, fetch)
    return replace(made, directives=_directives(bag.options, candidate, made))


def at_most(bag: Bag, made: JobShape, known: OwnerLimits) -> JobShape:
    """The same with a time limit that nobody names cut to the longest that its owner's jobs may have, if that is known
    and they are done by then."""
    longest = min((limit.value for _, limit in binding(known) if limit.name == "MaxWall"), default=math.inf)
    return made if bag.limit is not None or made.run > longest else replace(made, limit=min(made.limit, longest))


def _model(req: Requirement, candidate: Candidate) -> str:
    """Which model of GPU a requirement gets there; "" for any."""
    offered = [cap.consumable for cap in matching(req, candidate.resource)]
    models = (model for model in candidate.rig.gpus if model and Consumable.of("gpu", {"model": model}) in offered)
    return next(models, "")


def _directives(options: Mapping[str, str], candidate: Candidate, made: JobShape) -> str:
    wanted = ["--ntasks=1"] if made.nodes == 1 else [f"--ntasks={made.nodes}", "--ntasks-per-node=1"]
    if not made.whole:
        wanted.append(f"--cpus-per-task={made.cores * made.per}")
    if made.memory is not None and candidate.rig.memory is not None:
        wanted.append(f"--mem={math.ceil(made.memory * made.per / 2**20)}M")
    if made.gpus:
        items = (f"gpu:{m}:{n * made.per}" if m else f"gpu:{n * made.per}" for m, n in made.gpus.items())
        wanted.append(f"--gres={','.join(items)}")
    elif "gres" in options:
        wanted.append(f"--gres={options['gres']}")
    features = [f for f in (candidate.constraint, options.get("constraint", "")) if f]
    if features:
        wanted.append(f"--constraint={'&'.join(features)}")
    return "".join(f"#SBATCH {option}\n" for option in wanted)


def hindrance(
    bag: Bag, candidate: Candidate, made: JobShape, lacking: Sequence[str], owned: tuple[str, str] = ("", "")
) -> str | None:
    """Why jobs of the bag can never run there; None if they can, as far as is known. `lacking` is what the candidate
    does not offer, and jobs are `owned` by an account under a QOS."""
    partition, options = candidate.partition, bag.options
    wanted = options.get("partition")
    if wanted is not None and partition.name not in wanted.split(","):
        return f"the task asks for partition {wanted}"
    if not partition.up:
        return "the partition is down"
    feature = _lacking(options.get("constraint", ""), candidate)
    if feature:
        return f"its nodes lack the feature {feature}"
    for model, count in gpus_in(_asked(options.get("gres", ""))).items():
        have = candidate.rig.gpus.get(model, 0) if model else sum(candidate.rig.gpus.values())
        if have < count:
            return f"its nodes have {have} GPUs{f' {model}' if model else ''}, the task asks for {count}"
    if lacking:
        return "; ".join(lacking)
    admissions = zip(("account", "QOS"), owned, (partition.accounts, partition.qos), strict=True)
    for what, name, admitted in admissions:
        if name and not _admits(name, admitted):
            return f"{what} {name} may not use it"
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


def beyond(known: OwnerLimits, shape: JobShape, cpus: int, enforced: Collection[str]) -> str | None:
    """Why Slurm would never run such a job for its owner; None: nothing is known against it. `cpus` are a node's.

    `enforced` is the site's AccountingStorageEnforce: without limits in it Slurm holds nobody to them.
    """
    if not {"limits", "safe"} & set(enforced):
        return None
    taken = {
        "node": shape.nodes,
        "cpu": shape.nodes * (cpus if shape.whole else shape.per * shape.cores),
        "gres/gpu": shape.nodes * shape.per * sum(shape.gpus.values()),
    }
    for holder, limit in binding(known):
        needed = _needed(limit, shape, taken)
        if needed is not None:
            return f"{said(holder, limit)}, {needed}"
    return None


def _needed(limit: Limit, shape: JobShape, taken: dict[str, int]) -> str | None:
    """What a job needs more than the limit lets it have."""
    if limit.name == "MaxWall":
        return f"a job asks for {shape.limit / 60:g} min" if shape.limit > limit.value else None
    if limit.name not in _AT_ONCE or taken.get(limit.tres, 0) <= limit.value:
        return None
    return f"a job needs {limit.tres}={taken[limit.tres]}"
