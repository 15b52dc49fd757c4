"""Parts that come in distributions of their own: which are installed here.

What needs no running agent (`doctor`, checks of files, commands) asks the classes: a `Part` says with its static
methods what it contributes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from penstock.core.extensions import POINTS, ExtensionPoint
from penstock.core.parts import Operation, Part
from penstock.errors import ConfigError
from penstock.host.distributions import beside, loaded

__all__ = ["beside_own", "extension_points", "installed_parts", "with_parts"]


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


def beside_own(own: Iterable[type[Part]]) -> list[type[Part]]:
    """The agent's own parts, then those that are installed. Raises ConfigError for one that takes an own one's name."""
    kinds = list(own)
    names = {kind.name for kind in kinds}
    for kind in installed_parts():
        if kind.name in names:
            raise ConfigError(f"{kind.__module__}: a part of Penstock itself is named {kind.name!r}: take another name")
        kinds.append(kind)
    return kinds


def with_parts(own: Mapping[str, Operation], parts: Sequence[Part]) -> Mapping[str, Operation]:
    """The agent's own operations and those of its parts, by name. Raises ConfigError where two have one name."""
    found = dict(own)
    for part in parts:
        more = part.operations()
        if both := found.keys() & more.keys():
            raise ConfigError(f"the part {part.name} takes the operation {min(both)!r}, which is another's")
        found |= more
    around: Mapping[str, Operation] = found
    for part in parts:
        around = part.around(around)
    return around


def extension_points() -> tuple[ExtensionPoint, ...]:
    """Every place where Penstock can be extended: those of the core, then those of each part that is installed."""
    return (*POINTS, *(point for part in installed_parts() for point in part.extension_points()))
