"""What a metric is, and how a part of the agent tells the values of its own when Prometheus asks.

Each part has its metrics in a module of its own (`figures`): what they are (`METRICS`), and `families`, which reads
what the part has counted. That is done in another thread than the loop's, so every mapping is copied in one step before
it is looked at, and nothing is read from the state file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final, Literal, NamedTuple, TypeVar

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from penstock.values.tally import Tally

__all__ = ["PREFIX", "Family", "Labels", "MetricSpec", "by", "by_one", "copied", "family", "histogram", "named", "one"]

PREFIX: Final = "penstock_"

Labels = tuple[str, ...]
K = TypeVar("K")
V = TypeVar("V")


class MetricSpec(NamedTuple):
    """One metric without its prefix; a counter's name has its `_total` here. No label grows with jobs or users."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


def named(metrics: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
    """By name."""
    return {metric.name: metric for metric in metrics}


def copied(counts: Mapping[K, V]) -> dict[K, V]:
    """In one step: what is counted goes on while Prometheus asks, in another thread."""
    return dict(list(counts.items()))


def by_one(counts: Mapping[str, V]) -> dict[Labels, V]:
    """The same by the values of the only label."""
    return {(key,): value for key, value in copied(counts).items()}


def by(*values: Iterable[str]) -> dict[Labels, float]:
    """What has not happened yet is told as 0, so that the first time is seen as an increase."""
    return dict.fromkeys(product(*values), 0.0)


def one(metric: MetricSpec, value: float) -> Family:
    """A metric without labels."""
    return family(metric, {(): value})


def family(metric: MetricSpec, values: Mapping[Any, float], zeros: Mapping[Labels, float] | None = None) -> Family:
    """A counter or gauge with its values by the values of its labels; `zeros` where there is none yet."""
    made: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        made = CounterMetricFamily(PREFIX + metric.name, metric.text, labels=metric.labels)
    else:
        made = GaugeMetricFamily(PREFIX + metric.name, metric.text, labels=metric.labels)
    for labels, value in {**(zeros or {}), **values}.items():
        made.add_metric(labels, float(value))
    return made


def histogram(metric: MetricSpec, tallies: Mapping[Labels, Tally]) -> Family:
    """A histogram by the values of its labels."""
    made = HistogramMetricFamily(PREFIX + metric.name, metric.text, labels=metric.labels)
    for labels, tally in tallies.items():
        made.add_metric(labels, tally.buckets(), tally.total)
    return made
