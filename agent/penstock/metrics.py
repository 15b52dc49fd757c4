"""What the agent tells Prometheus: base units, `_total` on counters only, no label that grows with jobs or users."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from penstock.api import Decision, Snapshot
from penstock.errors import ConfigError

__all__ = ["Metrics"]


class Metrics:
    """One registry per agent, so that several agents in one process (tests) do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.passes = Counter("penstock_passes", "Finished passes of the loop.", ["verdict"], registry=r)
        self.pass_seconds = Histogram("penstock_pass_duration_seconds", "Duration of a pass.", registry=r)
        self.decisions = Counter("penstock_decisions", "New decisions by verb.", ["verb"], registry=r)
        self.looks = Gauge("penstock_looks", "Looks at the queue since the start.", registry=r)
        self.jobs = Gauge("penstock_jobs", "Jobs in the last picture.", ["state"], registry=r)
        self.idle_nodes = Gauge("penstock_idle_nodes", "Usable nodes that no job holds.", registry=r)

    def serve(self, listen: str) -> None:
        """Serve /metrics at HOST:PORT."""
        host, _, port = listen.rpartition(":")
        try:
            start_http_server(int(port), addr=host or "127.0.0.1", registry=self.registry)
        except (OSError, ValueError) as e:
            raise ConfigError(f"`metrics.listen`: cannot listen at {listen!r}: {e}") from e

    def saw(self, snapshot: Snapshot) -> None:
        """Set what follows from a picture."""
        counts = {"pending": 0, "running": 0}
        for job in snapshot.jobs.values():
            counts["pending"] += job.pending
            counts["running"] += job.running
        for state, number in counts.items():
            self.jobs.labels(state).set(number)
        self.idle_nodes.set(len(snapshot.idle_nodes()))

    def decided(self, decision: Decision) -> None:
        """Count a new decision."""
        self.decisions.labels(decision.verb.value).inc()
