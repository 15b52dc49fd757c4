"""Nodes that die and come back by themselves, in virtual time."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from penstock_lab.mock.model import Failures

if TYPE_CHECKING:
    from penstock_lab.mock.engine import Engine

__all__ = ["schedule_failures"]


def schedule_failures(engine: Engine, settings: Failures) -> None:
    """Let each node of the cluster live by `settings` from now on, with a random sequence of its own."""
    scale = settings.mtbf / math.gamma(1.0 + 1.0 / settings.shape)
    for name in engine.config.node_names:
        _live(engine, name, settings, scale, Random(f"{settings.seed}/{name}"))


def _live(engine: Engine, name: str, settings: Failures, scale: float, random: Random) -> None:
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
