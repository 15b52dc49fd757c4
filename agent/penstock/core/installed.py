"""Parts that come in distributions of their own: which are installed here.

What needs no running agent (`doctor`, checks of files, commands) asks the classes: a `Part` says with its static
methods what it contributes there.
"""

from __future__ import annotations

from functools import cache

from penstock.core.extensions import POINTS, ExtensionPoint
from penstock.core.parts import Part
from penstock.errors import ConfigError
from penstock.host.distributions import beside, loaded

__all__ = ["extension_points", "installed_parts"]


@cache
def installed_parts() -> tuple[type[Part], ...]:
    """The classes of the parts that are installed beside the core, in the order in which they take their steps.

    Raises ConfigError for one that may not be taken in (`InstalledDistribution.why_not`), or cannot be loaded.
    """
    found: list[type[Part]] = []
    for one in beside():
        if not one.part:
            continue
        if why := one.why_not():
            raise ConfigError(f"{one.file}: the part of {one.name} is not taken in: {why}")
        try:
            part = loaded(one.part)
        except Exception as error:
            raise ConfigError(f"{one.file}: the part {one.part} cannot be loaded: {error!r}") from error
        if not (isinstance(part, type) and issubclass(part, Part) and part.name):
            raise ConfigError(f"{one.file}: {one.part} is no part: a class that is a `Part`, with a `name`")
        if part.name in (other.name for other in found):
            raise ConfigError(f"{one.file}: there is another part {part.name!r}")
        found.append(part)
    return tuple(found)


def extension_points() -> tuple[ExtensionPoint, ...]:
    """Every place where Penstock can be extended: those of the core, then those of each part that is installed."""
    return (*POINTS, *(point for part in installed_parts() for point in part.extension_points()))
