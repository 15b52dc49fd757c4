"""The metrics of messages to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock.core.families import Family, MetricSpec, by, copied, family, named, one
from penstock_messages.extending import CHANNELS

if TYPE_CHECKING:
    from penstock_messages.messenger import Messenger

__all__ = ["METRICS", "families"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec(
            "notifications_total",
            "counter",
            "Messages to people (docs/messages.md) by channel and outcome: sent, failed, dropped.",
            ("channel", "outcome"),
        ),
        MetricSpec("notifications_waiting", "gauge", "Messages to people that wait or are being sent."),
    )
)


def families(messenger: Messenger) -> Iterator[Family]:
    """What was sent, and what waits."""
    ends = by({**CHANNELS.own, **messenger.channels}, ("sent", "failed", "dropped"))
    yield family(METRICS["notifications_total"], copied(messenger.outcomes), ends)
    yield one(METRICS["notifications_waiting"], len(messenger.outbox))
