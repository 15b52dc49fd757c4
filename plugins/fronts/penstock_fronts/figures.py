"""The metrics of what front programs are answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.core.families import Family, MetricSpec, by, copied, family, named, one
from penstock_fronts.door import PROGRAMS, ShimDoor

__all__ = ["METRICS", "families"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec(
            "front_answers_total",
            "counter",
            "Status calls of front programs: served from a look, or through (the real command had to run).",
            ("program", "outcome"),
        ),
        MetricSpec("front_looks_total", "counter", "Looks that were taken to answer front programs."),
    )
)


def families(door: ShimDoor | None) -> Iterator[Family]:
    """What was answered, as far as there is a door for it."""
    answers = copied(door.answers) if door is not None else {}
    yield family(METRICS["front_answers_total"], answers, by(PROGRAMS, ("served", "through")))
    yield one(METRICS["front_looks_total"], door.cache.taken if door is not None else 0)
