"""Nodes that die and come back by themselves, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from penstock_lab.mock.model import ClusterConfig, Failures

__all__ = ["schedule_failures"]


class _Nodes(Protocol):
    """A cluster whose nodes may die."""

    config: ClusterConfig
    now: float

    @property
    def out_of_order(self) -> Mapping[str, str]: ...
    def fail_node(self, name: str) -> None: ...
    def resume_node(self, name: str) -> None: ...
    def call_at(self, time: float, action: Callable[[], None]) -> None: ...


def schedule_failures(engine: _Nodes, settings: Failures) -> None:
    """Let each node of the cluster live by `settings` from now on, with a random sequence of its own."""
    scale = settings.mtbf / math.gamma(1.0 + 1.0 / settings.shape)
    for name in engine.config.node_names:
        _live(engine, name, settings, scale, Random(f"{settings.seed}/{name}"))


def _live(engine: _Nodes, name: str, settings: Failures, scale: float, random: Random) -> None:
    def die() -> None:
        if name not in engine.out_of_order:  # else somebody else has taken it out of service
            engine.fail_node(name)
            engine.call_at(engine.now + random.expovariate(1.0 / settings.repair), come_back)
        else:
            engine.call_at(engine.now + random.weibullvariate(scale, settings.shape), die)

    def come_back() -> None:
        engine.resume_node(name)
        engine.call_at(engine.now + random.weibullvariate(scale, settings.shape), die)

    engine.call_at(engine.now + random.weibullvariate(scale, settings.shape), die)
