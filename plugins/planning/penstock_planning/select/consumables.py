"""What tasks use and resources offer: the terms of Ha et al., section III-A, and the aggregation (Eq. 1).

Beyond the paper a requirement may be *held*: an amount that must be there at once while the task runs (memory, GPUs),
beside amounts that are used up at a rate (cycles, bytes read).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock_planning.select.speedup import Speedup
from penstock_planning.select.values import Value, value_of

__all__ = [
    "ISAS",
    "Capability",
    "Consumable",
    "Instruction",
    "Metric",
    "Parallel",
    "Requirement",
    "Resource",
    "Task",
    "aggregate",
]

Raw = bool | float | str
Form = tuple[tuple[str, frozenset[Value]], ...]

ISAS: Final[Mapping[str, Sequence[str]]] = {
    "x86_64": ("x86_64", "x86"),
    "aarch64": ("aarch64", "arm"),
    "ppc64le": ("ppc64le", "power"),
}
"""What processors' architectures are called in forms, by the kernel's name: that name, and what people say."""


class Metric(StrEnum):
    """What a cost is counted in: seconds, service units, joules."""

    TIME = "time"
    MONEY = "money"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True)
class Consumable:
    """A unit of work of one `type`; `form` says under which conditions it can be used: attributes with sets of values,
    ascending by name."""

    type: str
    form: Form = ()

    @classmethod
    def of(cls, type: str, form: Mapping[str, Raw | Iterable[Raw]] | None = None) -> Consumable:
        """From plain values: one, or several, per attribute. ValueError for an attribute without any."""
        pairs = []
        for attribute, given in sorted((form or {}).items()):
            several = [given] if isinstance(given, str | bool | int | float) else list(given)
            if not several:
                raise ValueError(f"{attribute} has no values: name one, or leave it out")
            pairs.append((attribute, frozenset(value_of(one) for one in several)))
        return cls(type, tuple(pairs))

    def __str__(self) -> str:
        if not self.form:
            return self.type
        said = (f"{name}: {'|'.join(sorted(map(str, values)))}" for name, values in self.form)
        return f"{self.type} {{{', '.join(said)}}}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A fixed amount (> 0) of a consumable. `held`: so much at once for as long as the task runs."""

    consumable: Consumable
    amount: float
    held: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.amount < math.inf:
            raise ValueError(f"an amount is above 0 and finite, not {self.amount:g}")

    def __str__(self) -> str:
        return f"{self.amount:g} of {self.consumable}" + (" at once" if self.held else "")


Instruction = tuple[Requirement, ...]
"""Requirements of one step of a task; no order among them."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a task gets faster on `cores`: what it uses of consumables of these types takes 1 / S(cores) of the time."""

    cores: int = 1
    speedup: Speedup | None = None
    types: frozenset[str] = frozenset({"compute"})

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ValueError(f"a task runs on at least one core, not {self.cores}")

    def share(self, type: str) -> float:
        """The part of the time on one core that remains."""
        return 1.0 / self.speedup.at(self.cores) if self.speedup is not None and type in self.types else 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """A sequence of instructions."""

    name: str
    instructions: tuple[Instruction, ...]
    parallel: Parallel = Parallel()

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What it needs as a whole; see `aggregate`."""
        return aggregate(self.instructions)


@dataclass(frozen=True, slots=True)
class Capability:
    """The `rate` (> 0) at which a consumable is offered: units a second and core. Or, of what is held, the `capacity`.

    `rates` are units per unit of another cost (per service unit, per joule), where they are known.
    """

    consumable: Consumable
    rate: float | None = None
    capacity: float | None = None
    rates: Mapping[Metric, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in (self.rate, self.capacity, *self.rates.values()):
            if number is not None and not 0 < number < math.inf:
                raise ValueError(f"a rate or capacity is above 0 and finite, not {number:g}")
        if (self.rate is None) == (self.capacity is None):
            raise ValueError("a capability has either a rate or a capacity")

    @property
    def held(self) -> bool:
        """Whether it offers something to hold."""
        return self.capacity is not None


@dataclass(frozen=True, slots=True)
class Resource:
    """A set of capabilities, each of another consumable.

    `charge` is service units per core-hour, `watts` the power of a busy core; `correction` what the predicted run time
    is multiplied with (`correction.Corrections`). None: not known.
    """

    name: str
    capabilities: tuple[Capability, ...]
    charge: float | None = None
    watts: float | None = None
    correction: float = 1.0

    def __post_init__(self) -> None:
        offered = [(c.consumable, c.held) for c in self.capabilities]
        for one in offered:
            if offered.count(one) > 1:
                raise ValueError(f"{self.name} offers {one[0]} twice; every capability is of another consumable")
        for what, number in (("charge", self.charge), ("watts", self.watts)):
            if number is not None and not 0 <= number < math.inf:
                raise ValueError(f"{self.name}: {what} is 0 or more, not {number:g}")
        if not 0 < self.correction < math.inf:
            raise ValueError(f"{self.name}: a correction is above 0, not {self.correction:g}")


def aggregate(instructions: Sequence[Instruction]) -> tuple[Requirement, ...]:
    """One requirement per consumable, in the order in which they first appear (Eq. 1).

    Amounts that are used up are added. What is held is added within an instruction, and the largest of them counts, as
    each gives back what it held.
    """
    used: dict[tuple[Consumable, bool], float] = {}
    for instruction in instructions:
        held: dict[Consumable, float] = {}
        for requirement in instruction:
            key = (requirement.consumable, requirement.held)
            if requirement.held:
                held[requirement.consumable] = held.get(requirement.consumable, 0.0) + requirement.amount
                used.setdefault(key, 0.0)
            else:
                used[key] = used.get(key, 0.0) + requirement.amount
        for consumable, amount in held.items():
            used[consumable, True] = max(used[consumable, True], amount)
    return tuple(Requirement(consumable, amount, held) for (consumable, held), amount in used.items())
