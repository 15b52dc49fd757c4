"""Finds placements by name: the default and those of plug-ins."""

from __future__ import annotations

from importlib.metadata import entry_points

from penstock.errors import ConfigError
from penstock.pool.placement import Placement

__all__ = ["placement_named"]


def placement_named(name: str) -> Placement:
    """The placement of that name. Raises ConfigError with those that are installed."""
    known = {e.name: e for e in entry_points(group="penstock.placement")}
    if name not in known:
        raise ConfigError(
            f"`pool.placement`: no placement {name!r} is installed (installed: {', '.join(sorted(known))})"
        )
    try:
        made: Placement = known[name].load()()
    except Exception as e:
        raise ConfigError(f"`pool.placement`: {name!r} cannot be loaded: {e!r}") from e
    return made
