"""Parts that come in distributions of their own: which are installed here.

What needs no running agent (`doctor`, checks of files, commands) asks the classes: a `Part` says with its static
methods what it contributes there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

from penstock.core.extensions import POINTS, ExtensionPoint
from penstock.core.parts import Operation, Part
from penstock.errors import ConfigError
from penstock.host.distributions import InstalledDistribution, beside, loaded

__all__ = ["beside_own", "each_part", "extension_points", "installed_parts", "with_parts"]


@cache
def installed_parts() -> tuple[type[Part], ...]:
    """The classes of the parts that are installed beside the core, in the order in which they take their steps.

    Raises ConfigError for one that may not be taken in (`InstalledDistribution.why_not`), or cannot be loaded.
    """
    found: list[type[Part]] = []
    for one, part in each_part():
        if isinstance(part, str):
            raise ConfigError(f"{one.file}: {part}")
        found.append(part)
    return tuple(found)


def each_part(own: Iterable[type[Part]] = ()) -> Iterator[tuple[InstalledDistribution, type[Part] | str]]:
    """Each distribution that brings a part, with its class, or with why that is not taken in beside the agent's `own`:
    for `doctor`."""
    names = {kind.name for kind in own}
    for one in beside():
        if one.part:
            part = _taken(one, names)
            if not isinstance(part, str):
                names.add(part.name)
            yield one, part


def _taken(one: InstalledDistribution, names: Collection[str]) -> type[Part] | str:
    if why := one.why_not():
        return f"the part of {one.name} is not taken in: {why}"
    try:
        part = loaded(one.part)
    except Exception as error:
        return f"the part {one.part} cannot be loaded: {error!r}"
    if not (isinstance(part, type) and issubclass(part, Part) and part.name):
        return f"{one.part} is no part: a class that is a `Part`, with a `name`"
    return f"there is another part {part.name!r}" if part.name in names else part


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
