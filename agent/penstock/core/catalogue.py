"""Every metric of the agent: name, kind, labels and meaning. The registry is made from it, and so is the docs' table.

python -m penstock.core.catalogue       prints the table of docs/admin-metrics-and-systemd.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

__all__ = ["METRICS", "PREFIX", "Metric", "table"]

PREFIX: Final = "penstock_"


class Metric(NamedTuple):
    """One metric without its prefix; a counter's name has its `_total` here. No label grows with jobs or users."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_ALL: Final = (
    Metric("build_info", "gauge", "Always 1; what runs is in the labels.", ("version", "python")),
    Metric(
        "passes_total", "counter", "Passes of the loop: acted, hold (Slurm's picture was no use), failed.", ("verdict",)
    ),
    Metric("pass_duration_seconds", "histogram", "How long finished passes took."),
    Metric(
        "last_pass_timestamp_seconds", "gauge", "When the last pass finished; before the first one: the agent's start."
    ),
    Metric("config_last_reload_successful", "gauge", "Whether the configuration read last is in force."),
    Metric(
        "controller_errors_total",
        "counter",
        "Faults of the agent itself, by the part that it caught them in.",
        ("part",),
    ),
    Metric("decisions_total", "counter", "New decisions by verb.", ("verb",)),
    Metric("looks_total", "counter", "Looks at the whole queue that succeeded."),
    Metric("snapshot_timestamp_seconds", "gauge", "When Slurm was seen last; 0: never."),
    Metric("snapshot_usable", "gauge", "Whether the last picture of Slurm is complete, so that the agent acts on it."),
    Metric("jobs", "gauge", "Jobs in the last picture.", ("state",)),
    Metric("idle_nodes", "gauge", "Usable nodes in the last picture that no job holds."),
    Metric(
        "slurm_requests_total",
        "counter",
        "Requests to Slurm: ok, refused (Slurm said no), unanswered (or too late), abandoned (by the agent).",
        ("command", "outcome"),
    ),
    Metric("slurm_request_duration_seconds", "histogram", "How long requests to Slurm took.", ("command",)),
    Metric(
        "slurm_requests_refused_total",
        "counter",
        "Requests that the agent's own budget did not let pass: budget, submissions, or the service left in peace.",
        ("reason",),
    ),
    Metric("slurm_budget_wait_seconds_total", "counter", "Time that requests to Slurm waited for their turn."),
    Metric("slurm_budget_tokens", "gauge", "Requests to Slurm that could be made at once."),
    Metric("slurm_budget_limit", "gauge", "The most requests to Slurm at once (slurm.request_burst)."),
    Metric(
        "acts_total",
        "counter",
        "What was asked of Slurm to change something (submit, cancel, release, merge...): done, failed, unknown.",
        ("act", "outcome"),
    ),
    Metric("automatic_pauses_total", "counter", "How often too many failures in a row paused all acts."),
    Metric("automatic_pause", "gauge", "Whether all acts are paused now because of that."),
    Metric("pauses", "gauge", "Pauses in force that somebody asked for (penstock pause).", ("feature",)),
    Metric(
        "workflows",
        "gauge",
        "Workflows that go on, by who submits their jobs: the agent, or their owner.",
        ("submitter", "state"),
    ),
    Metric("stages", "gauge", "Jobs of those workflows.", ("submitter", "state")),
    Metric("workflows_finished_total", "counter", "Workflows that have ended.", ("submitter", "outcome")),
    Metric(
        "guard_interventions_total", "counter", "Jobs that started before their parents had ended, and were taken back."
    ),
    Metric(
        "wait_error_seconds",
        "histogram",
        "Difference between a predicted queue wait and the real one, by which of them was longer.",
        ("predicted",),
    ),
    Metric("wait_bounds_total", "counter", "Waits by whether the bound predicted for 95 of 100 held.", ("held",)),
    Metric("malleable_jobs", "gauge", "Malleable jobs by the phase of their resize.", ("phase",)),
    Metric("resizes_total", "counter", "Resizes that are over: completed, abandoned.", ("kind", "outcome")),
    Metric(
        "resize_duration_seconds",
        "histogram",
        "How long completed resizes took, from the grant or the word to the end.",
    ),
    Metric("nodes_moved_total", "counter", "Nodes that completed resizes added or gave back.", ("kind",)),
    Metric(
        "nodes_moved_in_hour",
        "gauge",
        "Nodes that resizes moved within the last hour or are moving, which limits.nodes_per_hour caps.",
    ),
    Metric("store_rows_written_total", "counter", "Rows of the state file that were written."),
    Metric("store_errors_total", "counter", "Reads and writes of the state file that failed."),
    Metric(
        "messages_total",
        "counter",
        "Requests at the doors (local: the command line, remote: MPI jobs): ok, refused, malformed, failed; far: those "
        "of commands on other hosts that prove nothing.",
        ("door", "outcome"),
    ),
    Metric(
        "notifications_total",
        "counter",
        "Messages to people (docs/messages.md) by the way they took and how they ended: sent, failed, dropped.",
        ("channel", "outcome"),
    ),
    Metric("notifications_waiting", "gauge", "Messages to people that wait or are on their way."),
    Metric("connections_refused_total", "counter", "Connections that were one too many.", ("door",)),
    Metric("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
    Metric("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
    Metric("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds."),
    Metric("process_open_fds", "gauge", "Number of open file descriptors."),
    Metric("process_max_fds", "gauge", "Maximum number of open file descriptors."),
)

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}


def table() -> str:
    """The table of the documentation, in Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in _ALL:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.text} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
