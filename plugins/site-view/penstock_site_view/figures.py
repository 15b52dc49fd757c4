"""The metrics of the service: what it asked of Slurm, and what it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.core.families import Family, MetricSpec, by, by_one, copied, family, histogram, named, one
from penstock.slurm.budget import Metered
from penstock_site_view.looks import Looks
from penstock_site_view.service import OUTCOMES, ViewService

__all__ = ["METRICS", "families"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec("site_view_slurm_requests_total", "counter", "Requests to Slurm.", ("command", "outcome")),
        MetricSpec(
            "site_view_slurm_request_duration_seconds", "histogram", "How long requests to Slurm took.", ("command",)
        ),
        MetricSpec("site_view_looks_total", "counter", "Looks at Slurm that were begun."),
        MetricSpec(
            "site_view_requests_total",
            "counter",
            "Requests of users: answered with a look, or refused as slurm (which did not answer), private (Slurm is to "
            "say what they may see), busy (they asked too often), request (not understood), failed.",
            ("outcome",),
        ),
        MetricSpec("site_view_users", "gauge", "Users who have asked since the start."),
        MetricSpec("site_view_sent_bytes_total", "counter", "Bytes of looks that were sent."),
        MetricSpec("site_view_connections_refused_total", "counter", "Connections refused as too many were open."),
    )
)


def families(backend: Metered, looks: Looks, service: ViewService) -> Iterator[Family]:
    """What was counted so far."""
    meter = backend.meter
    yield family(METRICS["site_view_slurm_requests_total"], copied(meter.outcomes))
    yield histogram(METRICS["site_view_slurm_request_duration_seconds"], by_one(meter.latency))
    yield one(METRICS["site_view_looks_total"], looks.looks.taken)
    yield family(METRICS["site_view_requests_total"], by_one(service.answers), by(OUTCOMES))
    yield one(METRICS["site_view_users"], service.users)
    yield one(METRICS["site_view_sent_bytes_total"], service.sent)
    yield one(METRICS["site_view_connections_refused_total"], service.turned_away)
