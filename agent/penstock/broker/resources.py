"""A resource file: what each resource offers, and what a job waits there.

resources:
  - name: supermic
    capabilities:
      - {type: compute, form: {isa: x86, simd: [sse4.1, avx2]}, rate: 2.8 GHz}
      - {type: memory, capacity: 60 GB}
    tq: 10m                     # the wait, if left out none; or by quantile in per cent: {50: 5m, 95: 2h}
    charge: 1.0                 # service units a core-hour
    watts: 9.5                  # of a busy core
    correction: 1.22            # what predicted run times are multiplied with
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.broker.consumables import capabilities_at, name_at
from penstock.broker.files import entries
from penstock.errors import UserError
from penstock.select.consumables import Resource
from penstock.select.ranking import Wait
from penstock.values.documents import mapping, show
from penstock.values.durations import DURATION_FORMS, parse_duration

__all__ = ["Offered", "number_at", "read_resources", "wait_at"]

_KEYS: Final = ("name", "id", "capabilities", "tq", "charge", "watts", "correction")


@dataclass(frozen=True, slots=True)
class Offered:
    """A resource, and its wait as far as the file says."""

    resource: Resource
    wait: Wait | None


def read_resources(path: Path) -> list[Offered]:
    """The resources of a file and of those that it includes. UserError for what cannot be read or is wrong."""
    found: dict[str, Offered] = {}
    for where, entry, _ in entries(path, "resources", "resource file"):
        offered = _offered(entry, where)
        name = offered.resource.name
        if name in found:
            raise UserError(f"{where}: two resources are called {name!r}")
        found[name] = offered
    if not found:
        raise UserError(f"{path}: has no resources")
    return list(found.values())


def _offered(entry: object, where: str) -> Offered:
    data = mapping(entry, where, _KEYS, ("capabilities",))
    if "name" not in data and "id" not in data:
        raise UserError(f"{where}: the key 'name' is missing")
    name = name_at(data.get("name", data.get("id")), f"{where}.name")
    capabilities = capabilities_at(data["capabilities"], f"{where}.capabilities")
    numbers = {
        key: number_at(data[key], f"{where}.{key}", strictly=key == "correction")
        for key in ("charge", "watts", "correction")
        if key in data
    }
    wait = None if "tq" not in data else wait_at(data["tq"], f"{where}.tq")
    try:
        return Offered(Resource(name, capabilities, **numbers), wait)
    except ValueError as e:
        raise UserError(f"{where}: {e}") from None


def number_at(value: object, where: str, *, strictly: bool = False) -> float:
    """A number of at least 0, `strictly`: above it."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not (0 <= float(value) < 1e18) or (strictly and not value):  # type: ignore[arg-type]
        raise UserError(f"{where}: must be a number {'above' if strictly else 'of at least'} 0, not {show(value)}")
    return float(value)  # type: ignore[arg-type]


def wait_at(value: object, where: str) -> Wait:
    """A wait as a duration, or as durations by quantile in per cent; the median is then what is expected."""
    if not isinstance(value, dict):
        return Wait(_seconds(value, where))
    pairs = []
    for percent, seconds in value.items():
        try:
            share = float(percent) / 100
        except (TypeError, ValueError):
            share = 0.0
        if not 0 < share <= 1:
            raise UserError(f"{where}: must have quantiles in per cent as keys, such as 50 and 95, not {show(percent)}")
        pairs.append((share, _seconds(seconds, f"{where}.{percent}")))
    pairs.sort()
    if not pairs:
        raise UserError(f"{where}: has no quantiles")
    try:
        return Wait(Wait(0.0, tuple(pairs)).at(0.5), tuple(pairs))
    except ValueError as e:
        raise UserError(f"{where}: {e}") from None


def _seconds(value: object, where: str) -> float:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    seconds = parse_duration(value)
    if seconds is None:
        raise UserError(f"{where}: must be 0 or {DURATION_FORMS}, not {show(value)}")
    return seconds
