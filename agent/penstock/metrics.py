"""What the agent tells Prometheus: base units, `_total` on counters only, no label that grows with jobs or users."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.api import Decision, Snapshot
from penstock.errors import ConfigError
from penstock.slurm.budget import Metered

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

    def watch(self, backend: Metered) -> None:
        """Tell what the backend asks of Slurm, and what its budget does, whenever Prometheus looks."""
        self.registry.register(_Requests(backend))

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


class _Requests(Collector):
    """The request budget's use; the numbers are the backend's own, read when they are asked for."""

    def __init__(self, backend: Metered) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        backend, budget = self._backend, self._backend.budget
        for name, text, values, label in (
            ("requests", "Requests to Slurm by command.", backend.requests, "command"),
            ("request_seconds", "Time that requests to Slurm took.", backend.seconds, "command"),
            ("requests_refused", "Requests that the budget did not let pass.", budget.refused, "reason"),
        ):
            family = CounterMetricFamily(f"penstock_slurm_{name}", text, labels=[label])
            for key, value in values.items():
                family.add_metric([key], value)
            yield family
        waited = "Time that requests to Slurm waited for their turn."
        yield CounterMetricFamily("penstock_slurm_budget_wait_seconds", waited, value=budget.waited)
        tokens = "Requests to Slurm that could be made at once."
        yield GaugeMetricFamily("penstock_slurm_budget_tokens", tokens, value=budget.tokens)
