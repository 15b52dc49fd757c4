"""What the agent's parts count for themselves, as metrics, read at the moment when Prometheus asks.

That is another thread, so every mapping is copied in one step before it is looked at, and nothing is read from the
state file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from penstock.core.brake import FEATURES
from penstock.core.catalogue import METRICS, PREFIX
from penstock.malleable.words import Phase as ResizePhase
from penstock.slurm.budget import Metered
from penstock.values.tally import Tally
from penstock.workflow.state import Phase, RunPhase, Submitter

if TYPE_CHECKING:
    from penstock.core.executor import Executor
    from penstock.core.observe import Observer
    from penstock.ipc.far import FarDoor
    from penstock.ipc.handlers import LocalDoor, RemoteDoor
    from penstock.ipc.server import Server
    from penstock.malleable.controller import MalleableController
    from penstock.messages.messenger import Messenger
    from penstock.state.store import Store
    from penstock.workflow.controller import WorkflowController

__all__ = ["Figures", "Requests"]

Labels = tuple[str, ...]
K = TypeVar("K")
V = TypeVar("V")

_ACTS: Final = ("submit", "cancel", "release", "change", "requeue", "expand", "merge", "shrink", "extend")


class Parts(Protocol):
    """The agent, as far as it is told of here."""

    executor: Executor
    store: Store
    observer: Observer
    malleable: MalleableController
    messenger: Messenger
    workflows: WorkflowController | None
    server: Server | None
    local: LocalDoor | None
    remote: RemoteDoor | None
    far: FarDoor | None


class Figures(Collector):
    """What the parts of one agent tell."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Family]:
        """See `Collector`."""
        yield from self._picture()
        yield from self._acting()
        yield from self._workflows()
        yield from self._resizes()
        yield from self._doors()
        messenger = self._parts.messenger
        ends = _by(("mail", "webhook", "command"), ("sent", "failed", "dropped"))
        yield _family("notifications_total", _copied(messenger.outcomes), ends)
        yield _one("notifications_waiting", len(messenger.outbox))
        store = self._parts.store
        yield _one("store_rows_written_total", store.written)
        yield _one("store_errors_total", store.errors)
        yield _histogram("wait_error_seconds", _by_one(store.wait_errors))
        yield _family("wait_bounds_total", _by_one(store.bounds_held), _by(("yes", "no")))

    def _picture(self) -> Iterator[Family]:
        observer = self._parts.observer
        last = observer.last
        yield _one("looks_total", observer.looks)
        # A picture that never came has the time of the failed try.
        yield _one("snapshot_timestamp_seconds", last.taken_at if last is not None and observer.looks else 0.0)
        yield _one("snapshot_usable", last is not None and last.usable)

    def _acting(self) -> Iterator[Family]:
        executor = self._parts.executor
        yield _family("acts_total", _copied(executor.outcomes), _by(_ACTS, ("done", "failed", "unknown")))
        yield _one("automatic_pauses_total", executor.pauses)
        yield _one("automatic_pause", executor.paused)
        pauses = Counter(pause.feature or "all" for pause in executor.brake.pauses)
        yield _family("pauses", _by_one(pauses), _by(("all", *FEATURES)))

    def _workflows(self) -> Iterator[Family]:
        book = self._parts.workflows.book if self._parts.workflows else None  # None: Slurm has not answered yet
        phases: Counter[Labels] = Counter()
        stages: Counter[Labels] = Counter()
        for run in list(book.runs.values()) if book else ():
            phases[run.submitter.value, run.phase.value] += 1
            stages.update((run.submitter.value, stage.phase.value) for stage in run.stages)
        ended = _copied(book.finished) if book else {}
        yield _family("workflows", phases, _by(Submitter, (phase.value for phase in RunPhase if not phase.final)))
        yield _family("stages", stages, _by(Submitter, Phase))
        yield _family(
            "workflows_finished_total", ended, _by(Submitter, (phase.value for phase in RunPhase if phase.final))
        )
        yield _one("guard_interventions_total", book.misses if book else 0)

    def _resizes(self) -> Iterator[Family]:
        malleable = self._parts.malleable
        registry = malleable.registry
        phases = Counter(me.phase.value for me in list(malleable.jobs.values()))
        yield _family("malleable_jobs", _by_one(phases), _by(ResizePhase))
        kinds = ("expand", "shrink")
        yield _family("resizes_total", _copied(registry.resizes), _by(kinds, ("completed", "abandoned")))
        yield _family("nodes_moved_total", _by_one(registry.moved), _by(kinds))
        yield _one("nodes_moved_in_hour", sum(move.nodes for move in registry.moves()))
        yield _histogram("resize_duration_seconds", {(): registry.durations})

    def _doors(self) -> Iterator[Family]:
        parts = self._parts
        doors = ("local", "remote")
        messages: dict[Labels, float] = {}
        for door, answering in zip(doors, (parts.local, parts.remote), strict=True):
            if answering is not None:
                messages |= {(door, outcome): number for outcome, number in _copied(answering.answers).items()}
        zeros = _by(doors, ("ok", "refused", "malformed", "failed"))
        if parts.far is not None:  # whose proven requests are answered, and counted, at the local door
            messages["far", "refused"] = parts.far.refused
        yield _family("messages_total", messages, zeros)
        away = parts.server.turned_away if parts.server else Counter()
        yield _family("connections_refused_total", _by_one(away), _by(doors))


class Requests(Collector):
    """What one backend asks of Slurm, and its budget's use."""

    def __init__(self, backend: Metered) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Family]:
        """See `Collector`."""
        meter, budget = self._backend.meter, self._backend.budget
        yield _family("slurm_requests_total", _copied(meter.outcomes))
        yield _histogram("slurm_request_duration_seconds", _by_one(meter.latency))
        yield _family("slurm_requests_refused_total", _by_one(budget.refused), _by(("budget", "submissions")))
        yield _one("slurm_budget_wait_seconds_total", budget.waited)
        yield _one("slurm_budget_tokens", budget.tokens)
        yield _one("slurm_budget_limit", budget.limits.burst)


def _copied(counts: Mapping[K, V]) -> dict[K, V]:
    return dict(list(counts.items()))


def _by_one(counts: Mapping[str, V]) -> dict[Labels, V]:
    """The same by the values of the only label."""
    return {(key,): value for key, value in _copied(counts).items()}


def _by(*values: Iterable[str]) -> dict[Labels, float]:
    """What has not happened yet is told as 0, so that the first time is seen as an increase."""
    return dict.fromkeys(product(*values), 0.0)


def _one(name: str, value: float) -> Family:
    return _family(name, {(): value})


def _family(name: str, values: Mapping[Any, float], zeros: Mapping[Labels, float] | None = None) -> Family:
    metric = METRICS[name]
    made: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        made = CounterMetricFamily(PREFIX + name, metric.text, labels=metric.labels)
    else:
        made = GaugeMetricFamily(PREFIX + name, metric.text, labels=metric.labels)
    for labels, value in {**(zeros or {}), **values}.items():
        made.add_metric(labels, float(value))
    return made


def _histogram(name: str, tallies: Mapping[Labels, Tally]) -> Family:
    metric = METRICS[name]
    made = HistogramMetricFamily(PREFIX + name, metric.text, labels=metric.labels)
    for labels, tally in tallies.items():
        made.add_metric(labels, tally.buckets(), tally.total)
    return made
