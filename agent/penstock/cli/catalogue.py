"""Every metric of the agent: its parts' together, with those that are installed beside the core, for the documentation
and for tests.

python -m penstock.cli.catalogue       prints the table of docs/admin-metrics-and-systemd.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.core import figures
from penstock.core.families import PREFIX, MetricSpec, named
from penstock.core.installed import installed_parts
from penstock.ipc import figures as doors
from penstock.resize.running import figures as malleable
from penstock.workflow.run import figures as workflow

__all__ = ["METRICS", "PREFIX", "MetricSpec", "table"]

METRICS: Final[Mapping[str, MetricSpec]] = {
    **figures.METRICS,
    **workflow.METRICS,
    **malleable.METRICS,
    **doors.METRICS,
    **named(metric for part in installed_parts() for metric in part.metrics()),
}


def table() -> str:
    """The table of the documentation, in Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.text} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
