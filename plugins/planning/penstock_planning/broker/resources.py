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
from typing import Annotated, Self

from pydantic import model_validator

from penstock.errors import UserError
from penstock.values.documents import show
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.values.models import Entry, Name, kind, number, read_as, wrong
from penstock_planning.broker.consumables import CapabilityEntry
from penstock_planning.broker.files import entries
from penstock_planning.select.consumables import Resource
from penstock_planning.select.ranking import Wait

__all__ = ["OfferedResource", "read_resources"]


@dataclass(frozen=True, slots=True)
class OfferedResource:
    """A resource, and its wait as far as the file says."""

    resource: Resource
    wait: Wait | None


def _seconds(value: object) -> float:
    seconds = parse_duration(value, zero=True)
    if seconds is None or (seconds == 0 and value != 0):
        raise wrong(f"0 or {DURATION_FORMS}", value)
    return seconds


def _wait(value: object) -> Wait:
    """A wait as a duration, or as durations by quantile in per cent; the median is then what is expected."""
    if not isinstance(value, dict):
        return Wait(_seconds(value))
    pairs = []
    for percent, seconds in value.items():
        try:
            share = float(percent) / 100
        except (TypeError, ValueError):
            share = 0.0
        if not 0 < share <= 1:
            raise ValueError(f"must have quantiles in per cent as keys, such as 50 and 95, not {show(percent)}")
        pairs.append((share, _seconds(seconds)))
    if not pairs:
        raise ValueError("has no quantiles")
    pairs.sort()
    return Wait(Wait(0.0, tuple(pairs)).at(0.5), tuple(pairs))


class _Resource(Entry):
    name: Name | None = None
    id: Name | None = None
    capabilities: list[CapabilityEntry]
    tq: Annotated[Wait, kind(_wait)] | None = None
    charge: Annotated[float, number()] | None = None
    watts: Annotated[float, number()] | None = None
    correction: Annotated[float, number(above=True)] | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.name is None and self.id is None:
            raise ValueError("the key 'name' is missing")
        return self


def read_resources(path: Path) -> list[OfferedResource]:
    """The resources of a file and of those that it includes. UserError for what cannot be read or is wrong."""
    found: dict[str, OfferedResource] = {}
    for where, entry, _ in entries(path, "resources", "resource file"):
        offered = _offered(entry, where)
        name = offered.resource.name
        if name in found:
            raise UserError(f"{where}: two resources are called {name!r}")
        found[name] = offered
    if not found:
        raise UserError(f"{path}: has no resources")
    return list(found.values())


def _offered(entry: object, where: str) -> OfferedResource:
    said = read_as(_Resource, entry, where)
    numbers = said.model_dump(include={"charge", "watts", "correction"}, exclude_none=True)
    try:
        return OfferedResource(
            Resource(said.name or said.id or "", tuple(c.made for c in said.capabilities), **numbers), said.tq
        )
    except ValueError as e:
        raise UserError(f"{where}: {e}") from None
