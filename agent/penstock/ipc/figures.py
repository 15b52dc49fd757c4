"""The metrics of the doors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.core.families import Family, Labels, MetricSpec, by, by_one, copied, family, named, one
from penstock.ipc.far import FarDoor
from penstock.ipc.handlers import LocalDoor, RemoteDoor
from penstock.ipc.server import Server

__all__ = ["METRICS", "families"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec(
            "messages_total",
            "counter",
            "Requests to the agent by door and outcome. Doors: local (the command line), remote (MPI jobs), far "
            "(commands on other hosts, only if refused for lack of proof). Outcomes: ok, refused, malformed, failed.",
            ("door", "outcome"),
        ),
        MetricSpec(
            "refused_requesters_total",
            "counter",
            "Whose requests were refused or malformed, by door: each user, or host where no user was proven, once "
            "in 15 minutes.",
            ("door",),
        ),
        MetricSpec(
            "guard_questions_total", "counter", "Questions of waiting jobs about others, which Slurm was not asked."
        ),
        MetricSpec(
            "connections_refused_total", "counter", "Connections refused because too many were open.", ("door",)
        ),
    )
)


def families(
    server: Server | None, local: LocalDoor | None, remote: RemoteDoor | None, far: FarDoor | None
) -> Iterator[Family]:
    """What came to the doors, as far as they are open."""
    doors = ("local", "remote")
    messages: dict[Labels, float] = {}
    for door, answering in zip(doors, (local, remote), strict=True):
        if answering is not None:
            messages |= {(door, outcome): number for outcome, number in copied(answering.answers).items()}
    yield one(METRICS["guard_questions_total"], remote.desk.guards.asked if remote is not None else 0)
    zeros = by(doors, ("ok", "refused", "malformed", "failed"))
    if far is not None:  # whose proven requests are answered, and counted, at the local door
        messages["far", "refused"] = far.refused
    yield family(METRICS["messages_total"], messages, zeros)
    requesters = {door: it.requesters.count for door, it in zip(doors, (local, remote), strict=True) if it is not None}
    requesters |= {"far": far.requesters.count} if far is not None else {}
    yield family(METRICS["refused_requesters_total"], by_one(requesters), by(doors))
    away = server.turned_away if server else Counter()
    yield family(METRICS["connections_refused_total"], by_one(away), by(doors))
