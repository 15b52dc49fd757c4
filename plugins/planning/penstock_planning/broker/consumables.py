"""Requirements, tasks, capabilities and resources as files say them.

A requirement is `{type: compute, form: {isa: x86}, amount: 3e12}`, or with `hold:` in place of `amount:` what must be
there at once; a capability `{type: compute, form: {isa: x86}, rate: 2.8 GHz}`, or `capacity:` of what can be held.
`amt`, and `c: {type, form}` around type and form, as the paper writes them, are understood as well.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from penstock.values.documents import show
from penstock.values.models import Amount, Entry, Name, Rate, kind, number, whole, wrong
from penstock_planning.select.consumables import Capability, Consumable, Metric, Parallel, Requirement
from penstock_planning.select.speedup import Amdahl, Speedup, SpeedupTable

__all__ = ["MOST", "CapabilityEntry", "Cores", "ParallelEntry", "RequirementEntry"]

MOST: Final = 10_000_000
"""Cores, or tasks: what is above is a mistake."""


def _form(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong("a map of attributes to values", value)
    for attribute, values in value.items():
        if not isinstance(attribute, str) or not attribute.strip():
            raise ValueError(f"must have names of attributes as keys, not {show(attribute)}")
        several = values if isinstance(values, list) else [values]
        if not several:
            raise ValueError(f"{attribute} has no values, so nothing can meet it: name one, or leave {attribute} out")
        for one in several:
            if not isinstance(one, str | bool | int | float):
                raise ValueError(f"{attribute} must be a value or a list of values, not {show(one)}")
    Consumable.of("any", value)
    return value


def _fraction(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if good else None  # type: ignore[arg-type]


def _digits(value: object) -> object:
    """A number as JSON has it where it is a key."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


Form = Annotated[dict[str, Any], kind(_form)]
Cores = Annotated[int, whole(1, MOST)]
_Times = Annotated[float, number(above=True, most=MOST, what="how many times as fast as on one core")]


class _Inner(Entry):
    type: Name
    form: Form = Field(default_factory=dict)


class _Consumable(Entry):
    type: Name | None = None
    form: Form | None = None
    consumable: _Inner | None = None
    c: _Inner | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.consumable or self.c:
            if self.type is not None or self.form is not None:
                name = "consumable" if self.consumable else "c"
                raise ValueError(f"has both {name!r} and a type or form of its own")
        elif self.type is None:
            raise ValueError("the key 'type' is missing")
        return self

    @property
    def what(self) -> Consumable:
        """Type and form, in whichever way they are written."""
        inner = self.consumable or self.c
        return Consumable.of(inner.type, inner.form) if inner else Consumable.of(self.type or "", self.form or {})


class RequirementEntry(_Consumable):
    """A requirement as it is written."""

    amount: Amount | None = None
    amt: Amount | None = None
    hold: Amount | None = None

    @model_validator(mode="after")
    def _one_amount(self) -> Self:
        if sum(one is not None for one in (self.amount, self.amt, self.hold)) != 1:
            raise ValueError("must have either 'amount' (used up) or 'hold' (there at once)")
        return self

    @property
    def made(self) -> Requirement:
        """What it says."""
        return Requirement(self.what, self.amount or self.amt or self.hold or 0.0, self.hold is not None)


class _Rates(Entry):
    money: Amount | None = None
    energy: Amount | None = None


class CapabilityEntry(_Consumable):
    """A capability as it is written."""

    rate: Rate | None = None
    rates: _Rates = _Rates()
    capacity: Amount | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.rate is None) == (self.capacity is None):
            raise ValueError("must have either 'rate' (units a second) or 'capacity' (what can be held at once)")
        return self

    @property
    def made(self) -> Capability:
        """What it says."""
        if self.capacity is not None:
            return Capability(self.what, capacity=self.capacity)
        rates = {Metric(name): rate for name, rate in self.rates if rate is not None}
        return Capability(self.what, self.rate, rates=rates)


class ParallelEntry(Entry):
    """How a task gets faster: `{cores: 8, serial: 0.05}`, or measured, `{cores: 8, speedup: {2: 1.9, 8: 6.1}}`."""

    cores: Cores | None = None
    serial: Annotated[float, kind(_fraction, "a fraction from 0 to 1")] | None = None
    speedup: Annotated[dict[Annotated[Cores, BeforeValidator(_digits)], _Times], Field(min_length=1)] | None = None
    types: list[Name] | None = None

    @model_validator(mode="after")
    def _one_speedup(self) -> Self:
        if self.serial is not None and self.speedup is not None:
            raise ValueError("has both 'serial' and 'speedup'; one of them says how it gets faster")
        return self

    def made(self, cores: int | None) -> Parallel:
        """What it says, on so many cores where it does not. Raises ValueError."""
        cores = self.cores or cores or 1
        speedup: Speedup | None = None
        if self.serial is not None:
            speedup = Amdahl(self.serial)
        elif self.speedup is not None:
            speedup = SpeedupTable(tuple(sorted({1: 1.0, **self.speedup}.items())))
        elif cores > 1:
            raise ValueError(f"parallel: on {cores} cores it must say how it gets faster: 'serial' or 'speedup'")
        return Parallel(cores, speedup) if self.types is None else Parallel(cores, speedup, frozenset(self.types))
