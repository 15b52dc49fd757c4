"""Jobs that somebody thinks of submitting, as a portal describes them, and changes of them that may start sooner.

Pure: mappings and a snapshot in, geometries out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.api import Geometry, Partition, Snapshot
from penstock.errors import UserError
from penstock.values.durations import duration_text

__all__ = ["FIELDS", "changes", "geometry_of_wish", "is_sooner", "misfit", "placed"]

FIELDS: Final = ("account", "cpus", "features", "gres", "memory", "nodes", "partition", "qos", "time_limit")
_TEXTS: Final = ("account", "features", "gres", "partition", "qos")
_LONGEST_TEXT: Final = 200
_MOST: Final = 10_000_000
_LONGEST_LIMIT: Final = 1e9
_LIMITS: Final = tuple(60.0 * minutes for minutes in (10, 15, 30, 60, 120, 240, 480, 720, 1440, 2880, 5760))
"""Time limits (s) that a person would choose."""
_TRIED: Final = 4
_WORTH: Final = 300.0
"""Seconds that a change has to save, and half of the wait."""


def geometry_of_wish(fields: object, snapshot: Snapshot | None) -> Geometry:
    """The job of a wish: a mapping of some of `FIELDS`, `time_limit` in seconds and `memory` in MB per node. `cpus` are
    those of the whole job: so many nodes of its partition as have them. Raises UserError, which says what would do."""
    if not isinstance(fields, Mapping):
        raise UserError(f"a job must be a mapping of {', '.join(FIELDS)}")
    unknown = [repr(str(name)[:40]) for name in fields if name not in FIELDS]
    if unknown:
        raise UserError(f"{unknown[0]}: a job has no such field (fields: {', '.join(FIELDS)})")
    texts = {name: _text(name, fields.get(name)) for name in _TEXTS}
    limit = _number("time_limit", fields.get("time_limit", 3600.0), _LONGEST_LIMIT)
    memory = None if fields.get("memory") is None else _number("memory", fields["memory"], 1e12)
    nodes, cpus = (_count(name, fields.get(name)) for name in ("nodes", "cpus"))
    geometry = Geometry(
        texts["partition"],
        texts["qos"],
        nodes,
        limit,
        account=texts["account"],
        gres=texts["gres"],
        memory=memory,
        features=texts["features"],
    )
    return geometry if snapshot is None else placed(geometry, snapshot, cpus)


def placed(geometry: Geometry, snapshot: Snapshot, cpus: int = 1) -> Geometry:
    """In Slurm's default partition where none is named, on so many of its nodes as have that many CPUs."""
    partitions = snapshot.partitions
    name = geometry.partition or next((p.name for p in partitions.values() if p.default), "")
    needed = 1
    if cpus > 1:
        inside = (n for part in name.split(",") if part in partitions for n in partitions[part].nodes)
        per_node = max((snapshot.nodes[n].cpus for n in inside if n in snapshot.nodes), default=0)
        needed = math.ceil(cpus / per_node) if per_node else 1
    return replace(geometry, partition=name, nodes=max(geometry.nodes, needed))


def misfit(geometry: Geometry, snapshot: Snapshot) -> str | None:
    """Why no partition of the job's would ever start it, in words; None: one would, or nothing is known of them."""
    if not snapshot.partitions:
        return None
    found = None
    for name in geometry.partition.split(","):
        partition = snapshot.partitions.get(name)
        if partition is None:
            return f"partition: there is no {name!r} (partitions: {', '.join(sorted(snapshot.partitions))})"
        reason = _too_much(geometry, partition)
        if reason is None:
            return None
        found = found or reason
    return found


def _too_much(geometry: Geometry, partition: Partition) -> str | None:
    if geometry.nodes > partition.most_nodes:
        return f"nodes: partition {partition.name} gives a job {partition.most_nodes} at most, not {geometry.nodes}"
    if partition.max_time is not None and geometry.time_limit > partition.max_time:
        longest = duration_text(partition.max_time)
        return f"time_limit: partition {partition.name} gives a job {longest} at most"
    return None


def changes(geometry: Geometry, snapshot: Snapshot) -> Sequence[Geometry]:
    """The same job with less of a time limit, longest first, and in other partitions that are open to everybody and
    have what it needs."""
    shorter = [limit for limit in reversed(_LIMITS) if limit <= geometry.time_limit / 2][:_TRIED]
    found = [replace(geometry, time_limit=limit) for limit in shorter]
    if geometry.gres or geometry.features:  # what nodes have is not compared here
        return found
    for partition in snapshot.partitions.values():
        closed = partition.accounts or partition.qos or not partition.up
        small = geometry.nodes < partition.min_nodes
        if partition.name in geometry.partition.split(",") or closed or small or _too_much(geometry, partition):
            continue
        if geometry.memory is None or geometry.memory <= _most_memory(partition, snapshot):
            found.append(replace(geometry, partition=partition.name))
    return found


def _most_memory(partition: Partition, snapshot: Snapshot) -> float:
    """MB of its node that has most; 0 where the site does not say."""
    nodes = (snapshot.nodes[name] for name in partition.nodes if name in snapshot.nodes)
    return max((node.memory or 0.0 for node in nodes), default=0.0)


def is_sooner(wait: float, changed: float) -> bool:
    """Whether a job that is expected to wait `changed` seconds is worth a change of one that waits `wait`."""
    return changed <= wait / 2 and wait - changed >= _WORTH


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise UserError(f"{name}: must be a text of at most {_LONGEST_TEXT} characters")
    return value


def _number(name: str, value: Any, most: float) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        unit = "seconds" if name == "time_limit" else "MB"
        raise UserError(f"{name}: must be a number of {unit} above 0 and at most {most:.0f}")
    return float(value)


def _count(name: str, value: object) -> int:
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= _MOST:
        raise UserError(f"{name}: must be a whole number from 1 to {_MOST}")
    return value
