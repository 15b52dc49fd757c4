"""Profiles: what a command uses up on a baseline machine, as files that people read and edit.

The required amount of cycles is that of an execution without instruction-level parallelism, cycles x instructions a
cycle (Ha et al., Eqs. 3 to 5). Without counters the rate is taken as 1: then amounts are comparable only among profiles
of the same kind, which is enough to rank resources.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field

from penstock.errors import UserError
from penstock.values.models import Entry, number, read_as
from penstock_planning.broker.files import read
from penstock_planning.broker.measure import Run
from penstock_planning.select.accuracy import amount_of, epsilon, over, p2a, ranked_right
from penstock_planning.select.consumables import ISAS, Consumable, Requirement

__all__ = ["Comparison", "Profile", "compare", "load_profile", "means", "requirements_of", "save_profile"]

_NAMES: Final = tuple(f.name for f in fields(Run))


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs of a command on a machine (`name`, its clocks in Hz). `counters`: "perf", or "cpu-time" for CPU time x
    clock. `mean` is what counts, and may have been edited: keys are those of `Run`."""

    name: str
    command: Sequence[str]
    architecture: str
    processor: str
    base: float | None
    max: float | None
    counters: str
    runs: Sequence[Run]
    mean: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Instructions a cycle; 1 where they were not counted."""
        instructions = self.mean.get("instructions")
        return instructions / self.mean["cycles"] if instructions else 1.0

    @property
    def amount(self) -> float:
        """The cycles to require."""
        return amount_of(self.mean["cycles"], self.rate)


def means(runs: Sequence[Run]) -> tuple[dict[str, float], dict[str, float]]:
    """The mean and the standard deviation of each figure that all runs have."""
    mean, deviation = {}, {}
    for name in _NAMES:
        values = [getattr(run, name) for run in runs]
        if values and all(value is not None for value in values):
            mean[name] = statistics.fmean(values)
            deviation[name] = statistics.stdev(values) if len(values) > 1 else 0.0
    return mean, deviation


def save_profile(path: Path, profile: Profile) -> None:
    """Write a profile. Raises `UserError`."""
    _, deviation = means(profile.runs)
    document = {
        "name": profile.name,
        "command": list(profile.command),
        "architecture": profile.architecture,
        "processor": profile.processor,
        "base": profile.base,
        "max": profile.max,
        "counters": profile.counters,
        "mean": dict(profile.mean),
        "deviation": deviation,
        "runs": [asdict(run) for run in profile.runs],
    }
    head = (
        "# What the command used up on this machine: seconds, bytes, Hz. `mean` is what counts, and may be edited.\n"
        f"# Cycles to require (Eqs. 3 to 5): {profile.amount:.6g}\n"
    )
    try:
        path.write_text(head + yaml.safe_dump(document, sort_keys=False, width=120), encoding="utf-8")
    except OSError as e:
        raise UserError(f"{path}: cannot be written: {e.strerror}") from None


_Figure = Annotated[float, number(most=math.inf)]
_Above = Annotated[float, number(above=True, most=math.inf)]


class _Mean(Entry):
    wall: _Figure | None = None
    cpu: _Figure | None = None
    cycles: _Above
    instructions: _Figure | None = None
    clock: _Figure | None = None
    memory: _Figure | None = None
    read: _Figure | None = None
    written: _Figure | None = None
    base: _Figure | None = None
    max: _Figure | None = None


class _Run(_Mean):
    wall: _Figure
    cpu: _Figure
    memory: _Figure
    read: _Figure
    written: _Figure


class _Profile(Entry):
    name: Any = None
    command: list[Any] = Field(default_factory=list)
    architecture: Any
    processor: Any = ""
    base: _Above | None = None
    max: _Above | None = None
    counters: Literal["perf", "cpu-time"] | None = None
    runs: list[_Run] = Field(default_factory=list)
    mean: _Mean
    deviation: Any = None


def load_profile(path: Path) -> Profile:
    """Raises `UserError` for what is no profile."""
    document = read(path, "profile")
    try:
        said = read_as(_Profile, document)
    except UserError as e:
        raise UserError(f"{path}: {e}") from None
    return Profile(
        str(path.stem if said.name is None else said.name),
        [str(word) for word in said.command],
        str(said.architecture),
        str(said.processor),
        said.base,
        said.max,
        said.counters or ("cpu-time" if said.mean.instructions is None else "perf"),
        [Run(*(getattr(run, name) for name in _NAMES)) for run in said.runs],
        said.mean.model_dump(exclude_none=True),
    )


def requirements_of(profile: Profile) -> tuple[Requirement, ...]:
    """What a task with this profile requires: cycles of its architecture, and its memory as long as it runs."""
    isa = ISAS.get(profile.architecture, (profile.architecture,))
    found = [Requirement(Consumable.of("compute", {"isa": list(isa)}), profile.amount)]
    memory = max([profile.mean.get("memory", 0.0), *(run.memory for run in profile.runs)])
    if memory > 0:
        found.append(Requirement(Consumable.of("memory"), memory, held=True))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A profile of a target beside what the baseline's predicts: Eqs. 4 and 6, and errors of Tx in per cent (positive:
    predicted too long) by base and maximum clock; None where the clock is not known."""

    name: str
    p2a_cy: float
    epsilon: float
    actual: float
    by_base: float | None
    by_max: float | None
    error_base: float | None
    error_max: float | None


def compare(base: Profile, others: Sequence[Profile]) -> tuple[list[Comparison], dict[str, float]]:
    """The targets' profiles beside the baseline's, and the share of pairs of targets that are ranked right, by clock.

    Raises `UserError` for a profile of another architecture, or one that was measured in another way.
    """
    found = []
    for one in others:
        if one.architecture != base.architecture:
            raise UserError(
                f"{one.name}: its architecture is {one.architecture}, that of {base.name} is {base.architecture}: "
                "their cycles are not the same consumable"
            )
        if one.counters != base.counters:
            raise UserError(f"{one.name} was measured by {one.counters}, {base.name} by {base.counters}")
        if one.mean.get("wall", 0.0) <= 0:
            raise UserError(f"{one.name}: mean.wall is missing: how long did it run?")
        ratio, actual = p2a(base.amount, one.mean["cycles"]), one.mean["wall"]
        times = [None if clock is None else base.amount / clock for clock in (one.base, one.max)]
        errors = [None if seconds is None else over(seconds, actual) for seconds in times]
        found.append(Comparison(one.name, ratio, epsilon(ratio, one.rate), actual, *times, *errors))
    right = {}
    for clock in ("base", "max"):
        predicted = {c.name: seconds for c in found if (seconds := getattr(c, f"by_{clock}")) is not None}
        if len(predicted) == len(found) > 1:
            right[clock] = ranked_right(predicted, {c.name: c.actual for c in found})
    return found, right
