"""The metrics of the centre: its passes, its picture of Slurm, what it asked of Slurm and did there, its state file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.audit.auditor import Auditor
from penstock.core.executor import Executor
from penstock.core.families import Family, MetricSpec, by, by_one, copied, family, histogram, named, one
from penstock.core.observe import OUTCOMES, Observer
from penstock.core.pauses import FEATURES, as_pauses
from penstock.slurm.budget import Metered
from penstock.slurm.meter import LOOKS
from penstock.state.store import Store

__all__ = ["METRICS", "of_audit", "of_backend", "of_executor", "of_observer", "of_store"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec("build_info", "gauge", "Always 1; what runs is in the labels.", ("version", "python")),
        MetricSpec(
            "passes_total",
            "counter",
            "Passes of the loop: acted, hold (no complete and recent look at Slurm), failed.",
            ("verdict",),
        ),
        MetricSpec("pass_duration_seconds", "histogram", "How long finished passes took."),
        MetricSpec(
            "last_pass_timestamp_seconds",
            "gauge",
            "When the last pass finished; before the first one: the agent's start.",
        ),
        MetricSpec("config_last_reload_successful", "gauge", "Whether the configuration read last is in force."),
        MetricSpec(
            "controller_errors_total",
            "counter",
            "Faults of the agent itself, by the part that it caught them in.",
            ("part",),
        ),
        MetricSpec("decisions_total", "counter", "New decisions by verb.", ("verb",)),
        MetricSpec("looks_total", "counter", "Looks at the whole queue that succeeded."),
        MetricSpec(
            "view_answers_total",
            "counter",
            "Looks that the site's view was asked for: used, or why Slurm was asked instead (absent, forged, slow, "
            "broken, old, late, elsewhere, clock, private, busy), or that Slurm does not answer (slurm).",
            ("outcome",),
        ),
        MetricSpec("snapshot_timestamp_seconds", "gauge", "When Slurm was seen last; 0: never."),
        MetricSpec(
            "snapshot_usable", "gauge", "Whether the last look at Slurm was complete, so that the agent acts on it."
        ),
        MetricSpec("jobs", "gauge", "Jobs in the last look at Slurm.", ("state",)),
        MetricSpec("idle_nodes", "gauge", "Usable nodes that no job held in the last look at Slurm."),
        MetricSpec(
            "slurm_requests_total",
            "counter",
            "Requests to Slurm: ok, refused (Slurm said no), unanswered (or too late), abandoned (by the agent).",
            ("command", "outcome"),
        ),
        MetricSpec(
            "slurm_requests_by_feature_total",
            "counter",
            "Requests to Slurm by what they were for: looks, which serve everybody, or the acts of a feature.",
            ("feature",),
        ),
        MetricSpec("slurm_request_duration_seconds", "histogram", "How long requests to Slurm took.", ("command",)),
        MetricSpec(
            "slurm_requests_refused_total",
            "counter",
            "Requests to Slurm that the agent held back, by reason: budget, submissions, turns (a look for a front "
            "program that would have waited too long), or the service that did not answer.",
            ("reason",),
        ),
        MetricSpec(
            "slurm_budget_wait_seconds_total",
            "counter",
            "Time that requests to Slurm waited for the agent's own budget.",
        ),
        MetricSpec(
            "slurm_turn_wait_seconds_total",
            "counter",
            "Time that looks for front programs waited for their turn, behind the agent's own requests.",
        ),
        MetricSpec("slurm_budget_tokens", "gauge", "Requests to Slurm that could be made at once."),
        MetricSpec("slurm_budget_limit", "gauge", "The most requests to Slurm at once (slurm.request_burst)."),
        MetricSpec(
            "acts_total",
            "counter",
            "What was asked of Slurm to change something (submit, cancel, release, merge...): done, failed, unknown.",
            ("act", "outcome"),
        ),
        MetricSpec("automatic_pauses_total", "counter", "How often too many failures in a row paused all acts."),
        MetricSpec("automatic_pause", "gauge", "Whether all acts are paused now because of that."),
        MetricSpec(
            "pauses",
            "gauge",
            "Pauses in force that somebody has asked for, by penstock pause or penstock off.",
            ("feature",),
        ),
        MetricSpec(
            "audit_unwritable", "gauge", "Whether no audit record can be written, so that nothing is done for others."
        ),
        MetricSpec(
            "wait_error_seconds",
            "histogram",
            "Difference between a predicted queue wait and the real one, by which of them was longer.",
            ("predicted",),
        ),
        MetricSpec(
            "wait_bounds_total", "counter", "Waits by whether the bound predicted for 95 of 100 held.", ("held",)
        ),
        MetricSpec("store_rows_written_total", "counter", "Rows of the state file that were written."),
        MetricSpec("store_errors_total", "counter", "Reads and writes of the state file that failed."),
        MetricSpec("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."),
        MetricSpec("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
        MetricSpec("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
        MetricSpec("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds."),
        MetricSpec("process_open_fds", "gauge", "Number of open file descriptors."),
        MetricSpec("process_max_fds", "gauge", "Maximum number of open file descriptors."),
    )
)

_ACTS: Final = ("submit", "cancel", "release", "change", "requeue", "expand", "merge", "shrink", "extend", "reorder")


def of_observer(observer: Observer) -> Iterator[Family]:
    """What is known of the picture of Slurm."""
    last = observer.last
    yield one(METRICS["looks_total"], observer.looks)
    answers = by_one(observer.shared.outcomes) if observer.shared is not None else {}
    yield family(METRICS["view_answers_total"], answers, by(OUTCOMES))
    # A picture that never came has the time of the failed try.
    yield one(METRICS["snapshot_timestamp_seconds"], last.taken_at if last is not None and observer.looks else 0.0)
    yield one(METRICS["snapshot_usable"], last is not None and last.usable)


def of_executor(executor: Executor) -> Iterator[Family]:
    """What was done, and what is paused."""
    yield family(METRICS["acts_total"], copied(executor.outcomes), by(_ACTS, ("done", "failed", "unknown")))
    yield one(METRICS["automatic_pauses_total"], executor.pauses)
    yield one(METRICS["automatic_pause"], executor.paused)
    control = executor.pause_control
    pauses = Counter(pause.feature or "all" for pause in (*control.pauses, *as_pauses(control.off)))
    yield family(METRICS["pauses"], by_one(pauses), by(("all", *FEATURES)))


def of_audit(auditor: Auditor) -> Iterator[Family]:
    """Whether it can be told who asked for what."""
    yield one(METRICS["audit_unwritable"], bool(auditor.trouble))


def of_store(store: Store) -> Iterator[Family]:
    """What was written, and how far predictions of waits were off."""
    yield one(METRICS["store_rows_written_total"], store.written)
    yield one(METRICS["store_errors_total"], store.errors)
    yield histogram(METRICS["wait_error_seconds"], by_one(store.learning.wait_errors))
    yield family(METRICS["wait_bounds_total"], by_one(store.learning.bounds_held), by(("yes", "no")))


def of_backend(backend: Metered) -> Iterator[Family]:
    """What a backend asks of Slurm, and its budget's use."""
    meter, budget = backend.meter, backend.budget
    yield family(METRICS["slurm_requests_total"], copied(meter.outcomes))
    features: Counter[str] = Counter()
    for purpose, count in meter.purposes.items():
        features[purpose.feature] += count
    yield family(METRICS["slurm_requests_by_feature_total"], by_one(features), by((LOOKS, *FEATURES)))
    yield histogram(METRICS["slurm_request_duration_seconds"], by_one(meter.latency))
    yield family(
        METRICS["slurm_requests_refused_total"], by_one(budget.refused), by(("budget", "submissions", "turns"))
    )
    yield one(METRICS["slurm_budget_wait_seconds_total"], budget.waited)
    yield one(METRICS["slurm_turn_wait_seconds_total"], budget.turns.waited)
    yield one(METRICS["slurm_budget_tokens"], budget.tokens)
    yield one(METRICS["slurm_budget_limit"], budget.limits.burst)
