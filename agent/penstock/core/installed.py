"""Parts that come in distributions of their own: which are installed here.

What needs no running agent (`doctor`, checks of files, commands) asks the classes: a `Part` says with its static
methods what it contributes there.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from penstock.core.extensions import POINTS, ExtensionPoint
from penstock.core.parts import Part

__all__ = ["extension_points", "installed_parts"]

_PLACES: Final = ("penstock.autoalloc.part:PoolsPart", "penstock.holding.part:SlotsPart")


@cache
def installed_parts() -> tuple[type[Part], ...]:
    """The classes of the parts that are installed beside the core, in the order in which they take their steps."""
    found = []
    for place in _PLACES:
        module, _, name = place.partition(":")
        found.append(getattr(import_module(module), name))
    return tuple(found)


def extension_points() -> tuple[ExtensionPoint, ...]:
    """Every place where Penstock can be extended: those of the core, then those of each part that is installed."""
    return (*POINTS, *(point for part in installed_parts() for point in part.extension_points()))
