"""Requirements, tasks, capabilities and resources as files say them.

A requirement is `{type: compute, form: {isa: x86}, amount: 3e12}`, or with `hold:` in place of `amount:` what must be
there at once; a capability `{type: compute, form: {isa: x86}, rate: 2.8 GHz}`, or `capacity:` of what can be held.
`amt`, and `c: {type, form}` around type and form, as the paper writes them, are understood as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from penstock.errors import UserError
from penstock.select.consumables import Capability, Consumable, Metric, Parallel, Requirement
from penstock.select.units import parse_amount, parse_rate
from penstock.values.documents import mapping, show
from penstock.values.speedup import Amdahl, Speedup, Table

__all__ = ["amount_at", "capabilities_at", "count_at", "name_at", "parallel_at", "requirements_at", "text_at"]

T = TypeVar("T")

_REQUIREMENT: Final = ("type", "form", "amount", "amt", "hold", "consumable", "c")
_CAPABILITY: Final = ("type", "form", "rate", "rates", "capacity", "consumable", "c")
_PARALLEL: Final = ("cores", "serial", "speedup", "types")
_MOST: Final = 10_000_000


def _at(where: str, make: Callable[[], T]) -> T:
    """What `make` makes; its ValueError as one that names the place."""
    try:
        return make()
    except UserError:
        raise
    except ValueError as e:
        raise UserError(f"{where}: {e}") from None


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise UserError(f"{where}: must be a list, not {show(value)}")
    return value


def name_at(value: object, where: str) -> str:
    """A name: a text on one line, or a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > 200:
        raise UserError(f"{where}: must be a name of 1 to 200 characters, not {show(value)}")
    return value.strip()


def text_at(value: object, where: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise UserError(f"{where}: must be a text, not {show(value)}")
    return value


def count_at(value: object, where: str, least: int = 1, most: int = _MOST) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(f"{where}: must be a whole number from {least} to {most}, not {show(value)}")
    return value


def amount_at(value: object, where: str) -> float:
    """An amount with or without a unit."""
    return _at(where, lambda: parse_amount(value))


def _consumable(data: Mapping[str, Any], where: str) -> Consumable:
    inner = [key for key in ("consumable", "c") if key in data]
    if inner:
        if "type" in data or "form" in data:
            raise UserError(f"{where}: has both {inner[0]!r} and a type or form of its own")
        return _consumable(mapping(data[inner[0]], f"{where}.{inner[0]}", ("type", "form"), ("type",)), where)
    if "type" not in data:
        raise UserError(f"{where}: the key 'type' is missing")
    kind = name_at(data["type"], f"{where}.type")
    form = data.get("form", {})
    if not isinstance(form, dict):
        raise UserError(f"{where}.form: must be a map of attributes to values, not {show(form)}")
    for attribute, values in form.items():
        at = f"{where}.form.{attribute}"
        if not isinstance(attribute, str) or not attribute.strip():
            raise UserError(f"{where}.form: must have names of attributes as keys, not {show(attribute)}")
        several = values if isinstance(values, list) else [values]
        if not several:
            raise UserError(f"{at}: has no values, so nothing can meet it: name one, or leave {attribute} out")
        for one in several:
            if not isinstance(one, str | bool | int | float):
                raise UserError(f"{at}: must be a value or a list of values, not {show(one)}")
    return _at(f"{where}.form", lambda: Consumable.of(kind, form))


def requirements_at(value: object, where: str) -> tuple[Requirement, ...]:
    """One instruction: a list of requirements."""
    return tuple(_requirement(one, f"{where}[{number}]") for number, one in enumerate(_list(value, where)))


def _requirement(entry: object, where: str) -> Requirement:
    data = mapping(entry, where, _REQUIREMENT, ())
    given = [key for key in ("amount", "amt", "hold") if key in data]
    if len(given) != 1:
        raise UserError(f"{where}: must have either 'amount' (used up) or 'hold' (there at once)")
    consumable = _consumable(data, where)
    amount = amount_at(data[given[0]], f"{where}.{given[0]}")
    return Requirement(consumable, amount, given[0] == "hold")


def capabilities_at(value: object, where: str) -> tuple[Capability, ...]:
    """The capabilities of a resource."""
    return tuple(_capability(one, f"{where}[{number}]") for number, one in enumerate(_list(value, where)))


def _capability(entry: object, where: str) -> Capability:
    data = mapping(entry, where, _CAPABILITY, ())
    if ("rate" in data) == ("capacity" in data):
        raise UserError(f"{where}: must have either 'rate' (units a second) or 'capacity' (what can be held at once)")
    consumable = _consumable(data, where)
    if "capacity" in data:
        return Capability(consumable, capacity=amount_at(data["capacity"], f"{where}.capacity"))
    names = tuple(metric.value for metric in Metric if metric is not Metric.TIME)
    rates = {
        Metric(name): _at(f"{where}.rates.{name}", lambda number=number: parse_amount(number))  # type: ignore[misc]
        for name, number in mapping(data.get("rates", {}), f"{where}.rates", names, ()).items()
    }
    return Capability(consumable, _at(f"{where}.rate", lambda: parse_rate(data["rate"])), rates=rates)


def parallel_at(value: object, where: str, cores: int | None = None) -> Parallel:
    """How a task gets faster: `{cores: 8, serial: 0.05}`, or measured, `{cores: 8, speedup: {2: 1.9, 8: 6.1}}`."""
    data = mapping(value, where, _PARALLEL, ())
    cores = count_at(data["cores"], f"{where}.cores") if "cores" in data else cores or 1
    if "serial" in data and "speedup" in data:
        raise UserError(f"{where}: has both 'serial' and 'speedup'; one of them says how it gets faster")
    speedup: Speedup | None = None
    if "serial" in data:
        speedup = _at(f"{where}.serial", lambda: Amdahl(_fraction(data["serial"])))
    elif "speedup" in data:
        speedup = _measured(data["speedup"], f"{where}.speedup")
    elif cores > 1:
        raise UserError(f"{where}: on {cores} cores it must say how it gets faster: 'serial' or 'speedup'")
    if "types" not in data:
        return Parallel(cores, speedup)
    types = [name_at(one, f"{where}.types") for one in _list(data["types"], f"{where}.types")]
    return Parallel(cores, speedup, frozenset(types))


def _fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a fraction from 0 to 1, not {show(value)}")
    return float(value)


def _measured(value: object, where: str) -> Table:
    if not isinstance(value, dict) or not value:
        raise UserError(f"{where}: must be a map of cores to how many times as fast, not {show(value)}")
    points = []
    for cores, times in value.items():
        at = f"{where}.{cores}"
        number = int(cores) if isinstance(cores, str) and cores.isascii() and cores.isdigit() else cores
        if isinstance(times, bool) or not isinstance(times, int | float) or not 0 < times < _MOST:
            raise UserError(f"{at}: must be how many times as fast as on one core, not {show(times)}")
        points.append((count_at(number, at), float(times)))
    points.sort()
    if points[0][0] != 1:
        points.insert(0, (1, 1.0))
    return _at(where, lambda: Table(tuple(points)))
