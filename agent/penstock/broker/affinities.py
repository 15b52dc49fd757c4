"""The affinities by name: those that come with Penstock, and those of plug-ins (entry points `penstock.affinity`)."""

from __future__ import annotations

from importlib.metadata import entry_points

from penstock.errors import ConfigError, UserError
from penstock.select.consumables import Metric
from penstock.select.ranking import OWN, Affinity

__all__ = ["affinity_named"]


def affinity_named(name: str) -> Affinity:
    """The affinity of that name. Raises UserError, or ConfigError when its plug-in is broken."""
    if name in OWN:
        return OWN[name]
    plugins = {e.name: e for e in entry_points(group="penstock.affinity")}
    if name not in plugins:
        raise UserError(f"--metric must be one of {', '.join([*OWN, *sorted(plugins)])}, not {name!r}")
    try:
        made: Affinity = plugins[name].load()()
        Metric(made.metric)
    except Exception as e:
        raise ConfigError(f"affinity {name!r}: its plug-in cannot be loaded: {e!r}") from e
    return made
