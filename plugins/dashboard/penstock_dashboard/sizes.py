"""Malleable jobs as the page draws them, out of what the agent says: JSON-able values, times in epoch s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

__all__ = ["malleable_model", "resized_at"]

Json = dict[str, Any]


def malleable_model(sizes: Iterable[Mapping[str, Any]], now: float) -> list[Json]:
    """Each malleable job's size in nodes over time, the newest first; see the agent's answer to `sizes`."""
    found = [_breath(one, now) for one in sizes]
    return sorted(found, key=lambda m: (m["ended"] is not None, -m["job"]))


def _breath(said: Mapping[str, Any], now: float) -> Json:
    per_node = max(int(said["per_node"]), 1)

    def nodes(size: int) -> int:
        return -(-size // per_node)

    done = [r for r in said["resizes"] if r["outcome"] == "completed"]
    now_size = nodes(said["size"])
    first = nodes(done[0]["old"]) if done else now_size
    start = said["started"] if said["started"] is not None else (done[0]["at"] if done else now)
    points = [[start, first]]
    for r in done:
        points.append([max(r["at"], points[-1][0]), nodes(r["new"])])
    until = said["ended"] if said["ended"] is not None else max(now, points[-1][0])
    if said["ended"] is None and points[-1][1] != now_size:
        points.append([until, now_size])  # by a way that leaves no record, such as `dmr.size`
    lengths = [(b[0] - a[0], a[1]) for a, b in pairwise([*points, [until, now_size]])]
    return {
        "job": said["job"],
        "started": start,
        "ended": said["ended"],
        "size": now_size,
        "minimum": nodes(said["minimum"]),
        "maximum": nodes(said["maximum"]),
        "phase": said["phase"],
        "target": nodes(said["target"]) if said["target"] else None,
        "companions": said["companions"],
        "note": said["note"],
        "points": points,
        "node_seconds": sum(seconds * size for seconds, size in lengths),
        "resizes": [
            {"at": r["at"], "kind": r["kind"], "old": nodes(r["old"]), "new": nodes(r["new"]), "outcome": r["outcome"]}
            for r in said["resizes"]
        ],
    }


def resized_at(malleable: Iterable[Json]) -> dict[int, float]:
    """When running jobs got their present size, of those that were resized."""
    return {m["job"]: m["points"][-1][0] for m in malleable if m["ended"] is None and len(m["points"]) > 1}
