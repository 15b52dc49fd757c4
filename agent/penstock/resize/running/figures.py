"""The metrics of resizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.core.families import Family, MetricSpec, by, by_one, copied, family, histogram, named, one
from penstock.resize.running.controller import MalleableController
from penstock.resize.running.words import ResizePhase as ResizePhase

__all__ = ["METRICS", "families"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec("malleable_jobs", "gauge", "Malleable jobs by the phase of their resize.", ("phase",)),
        MetricSpec("resizes_total", "counter", "Resizes that have ended: completed, abandoned.", ("kind", "outcome")),
        MetricSpec(
            "resize_duration_seconds",
            "histogram",
            "How long completed resizes took, from the grant of the nodes (or the application's consent) to the end.",
        ),
        MetricSpec("nodes_moved_total", "counter", "Nodes that completed resizes added or gave back.", ("kind",)),
        MetricSpec(
            "nodes_moved_in_hour",
            "gauge",
            "Nodes that resizes moved within the last hour or are moving, which limits.nodes_per_hour caps.",
        ),
    )
)


def families(malleable: MalleableController) -> Iterator[Family]:
    """What is known of resizes."""
    registry = malleable.registry
    phases = Counter(me.phase.value for me in list(malleable.jobs.values()))
    yield family(METRICS["malleable_jobs"], by_one(phases), by(ResizePhase))
    kinds = ("expand", "shrink")
    yield family(METRICS["resizes_total"], copied(registry.resizes), by(kinds, ("completed", "abandoned")))
    yield family(METRICS["nodes_moved_total"], by_one(registry.moved), by(kinds))
    yield one(METRICS["nodes_moved_in_hour"], sum(move.nodes for move in registry.moves()))
    yield histogram(METRICS["resize_duration_seconds"], {(): registry.durations})
