"""What the agent tells Prometheus: base units, `_total` on counters only, no label that grows with jobs or users.

What the loop does is counted here, as it happens; what the parts count themselves, the centre's among them, is added by
who knows them (`add`), and read when Prometheus asks.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.registry import Collector

from penstock import __version__
from penstock.api import Decision, Snapshot, Verb
from penstock.core.families import PREFIX, Family
from penstock.core.figures import METRICS
from penstock.host.listening import bare, cannot_listen
from penstock.host.scrape import Scraped, serve

__all__ = ["Metrics"]

_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class _Added(Collector):
    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        return self._families()


class Metrics:
    """One registry per agent, so that several agents in one process (tests) do not share counts."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # gauges beside every counter that nobody asks for
        self.registry = CollectorRegistry()
        ProcessCollector(namespace=PREFIX.removesuffix("_"), registry=self.registry)
        self._gauge("build_info").labels(__version__, platform.python_version()).set(1)
        self._passes = self._counter("passes_total")
        for verdict in ("acted", "hold", "failed"):
            self._passes.labels(verdict)
        m = METRICS["pass_duration_seconds"]
        self._pass_seconds = Histogram(PREFIX + m.name, m.text, buckets=_SECONDS, registry=self.registry)
        self._last_pass = self._gauge("last_pass_timestamp_seconds")
        self._last_pass.set(time.time())
        self._reloaded = self._gauge("config_last_reload_successful")
        self._reloaded.set(1)
        self._errors = self._counter("controller_errors_total")
        self._decisions = self._counter("decisions_total")
        for verb in Verb:
            self._decisions.labels(verb.value)
        self._jobs = self._gauge("jobs")
        self._idle_nodes = self._gauge("idle_nodes")
        for state in ("pending", "running"):
            self._jobs.labels(state)

    def _counter(self, name: str) -> Counter:
        return Counter(PREFIX + name, METRICS[name].text, METRICS[name].labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        return Gauge(PREFIX + name, METRICS[name].text, METRICS[name].labels, registry=self.registry)

    def add(self, families: Callable[[], Iterable[Family]]) -> None:
        """Tell these, too, whenever Prometheus looks."""
        self.registry.register(_Added(families))

    def serve(self, listen: str) -> Scraped:
        """Serve /metrics at HOST:PORT, to whoever can connect."""
        host, _, port = listen.rpartition(":")
        try:
            return serve(self.registry, bare(host) or "127.0.0.1", int(port))
        except (OSError, ValueError) as e:
            raise cannot_listen("metrics.listen", listen, e) from e

    # -- what the loop does --------------------------------------------------------------------------------------------

    def passed(self, snapshot: Snapshot, seconds: float, now: float) -> None:
        """A pass over this picture took so many seconds and is over at `now`."""
        self._passes.labels("acted" if snapshot.usable else "hold").inc()
        self._pass_seconds.observe(seconds)
        self._last_pass.set(now)
        if snapshot.usable:
            self._saw(snapshot)

    def failed(self) -> None:
        """A pass did not come to its end."""
        self._passes.labels("failed").inc()

    def knows(self, part: str) -> None:
        """There is such a part; it has had no fault yet."""
        self._errors.labels(part)

    def broke(self, part: str) -> None:
        """This part of the agent has a fault; the others went on."""
        self._errors.labels(part).inc()

    def decided(self, decision: Decision) -> None:
        """Count a new decision."""
        self._decisions.labels(decision.verb.value).inc()

    def reloaded(self, ok: bool) -> None:
        """The configuration was read again."""
        self._reloaded.set(ok)

    def _saw(self, snapshot: Snapshot) -> None:
        counts = {"pending": 0, "running": 0}
        for job in snapshot.jobs.values():
            counts["pending"] += job.pending
            counts["running"] += job.running
        for state, number in counts.items():
            self._jobs.labels(state).set(number)
        self._idle_nodes.set(len(snapshot.idle_nodes()))
