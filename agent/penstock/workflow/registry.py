"""The strategies by name: those that come with Penstock, and those of plug-ins (entry points `penstock.strategies`)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from penstock.errors import ConfigError, UserError
from penstock.workflow.strategies.asa import Asa
from penstock.workflow.strategies.asa_after import AsaAfter
from penstock.workflow.strategies.asa_naive import AsaNaive
from penstock.workflow.strategies.auto import Auto
from penstock.workflow.strategies.bigjob import BigJob
from penstock.workflow.strategies.eager import Eager
from penstock.workflow.strategies.elastic import Elastic
from penstock.workflow.strategies.handover import Handover
from penstock.workflow.strategies.packed import Packed
from penstock.workflow.strategies.perstage import PerStage
from penstock.workflow.strategy import Strategy

__all__ = ["known_strategies", "strategy_named"]

_OWN: dict[str, Strategy] = {
    s.name: s
    for s in (
        *(Auto(), Asa(), AsaNaive(), AsaAfter(), Eager(), Handover()),
        *(Packed(), PerStage(), BigJob(), Elastic()),
    )
}


@cache
def _plugins() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group="penstock.strategies") if e.name not in _OWN}


@cache
def _loaded(name: str) -> Strategy:
    try:
        made: Strategy = _plugins()[name].load()()
    except Exception as e:
        raise ConfigError(f"strategy {name!r}: its plug-in cannot be loaded: {e!r}") from e
    return made


def known_strategies() -> tuple[str, ...]:
    """The names of all, those of plug-ins last."""
    return (*_OWN, *sorted(_plugins()))


def strategy_named(name: str) -> Strategy:
    """The strategy of that name. Raises UserError, or ConfigError when its plug-in is broken."""
    if name in _OWN:
        return _OWN[name]
    if name in _plugins():
        return _loaded(name)
    raise UserError(f"strategy: must be one of {', '.join(known_strategies())}, not {name!r}")
