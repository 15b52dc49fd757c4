"""The strategies by name."""

from __future__ import annotations

from functools import cache

from penstock.core.extensions import STRATEGIES
from penstock.workflow.strategy import Strategy

__all__ = ["known_strategies", "strategy_named"]


def known_strategies() -> tuple[str, ...]:
    """The names of all, those of extensions last."""
    return STRATEGIES.names()


@cache
def strategy_named(name: str) -> Strategy:
    """The strategy of that name. Raises UserError, or ConfigError when its extension is broken."""
    made: Strategy = STRATEGIES.make(name)
    return made
