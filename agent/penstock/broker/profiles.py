"""Profiles: what a command uses up on a baseline machine, as files that people read and edit.

The required amount of cycles is that of an execution without instruction-level parallelism, cycles x instructions a
cycle (paper 000, Eqs. 3 to 5). Without counters the rate is taken as 1: then amounts are comparable only among profiles
of the same kind, which is enough to rank resources.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.broker.files import read
from penstock.broker.measure import Run
from penstock.errors import UserError
from penstock.select.accuracy import amount_of, epsilon, over, p2a, ranked_right
from penstock.select.architectures import ISAS
from penstock.select.consumables import Consumable, Requirement
from penstock.values.documents import mapping, show

__all__ = ["Comparison", "Profile", "compare", "load_profile", "means", "requirements_of", "save_profile"]

_KEYS: Final = ("name", "command", "architecture", "processor", "base", "max", "counters", "runs", "mean", "deviation")
_OPTIONAL: Final = ("instructions", "clock")


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
    for field in fields(Run):
        values = [getattr(run, field.name) for run in runs]
        if values and all(value is not None for value in values):
            mean[field.name] = statistics.fmean(values)
            deviation[field.name] = statistics.stdev(values) if len(values) > 1 else 0.0
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


def load_profile(path: Path) -> Profile:
    """Raises `UserError` for what is no profile."""
    document = read(path, "profile")
    try:
        data = mapping(document, "", _KEYS, ("architecture", "mean"))
        mean = _figures(data["mean"], "mean", ("cycles",))
        runs = [_run(one, f"runs[{i}]") for i, one in enumerate(data.get("runs", []))]
        counters = data.get("counters", "perf" if "instructions" in mean else "cpu-time")
        if counters not in ("perf", "cpu-time"):
            raise UserError(f"counters: must be perf or cpu-time, not {show(counters)}")
        return Profile(
            str(data.get("name", path.stem)),
            [str(word) for word in data.get("command", [])],
            str(data["architecture"]),
            str(data.get("processor", "")),
            _clock(data, "base"),
            _clock(data, "max"),
            counters,
            runs,
            mean,
        )
    except UserError as e:
        raise UserError(f"{path}: {e}") from None


def _clock(data: Mapping[str, Any], key: str) -> float | None:
    return _figures({key: data[key]}, "clocks", (key,))[key] if key in data else None


def _figures(value: object, where: str, required: Sequence[str]) -> dict[str, float]:
    data = mapping(value, where, (*(f.name for f in fields(Run)), "base", "max"), tuple(required))
    for key, number in data.items():
        good = isinstance(number, int | float) and not isinstance(number, bool)
        if not good or not 0 <= number < math.inf or (key in required and number == 0):
            least = "above" if key in required else "of at least"
            raise UserError(f"{where}.{key}: must be a number {least} 0, not {show(number)}")
    return {key: float(number) for key, number in data.items()}


def _run(value: object, where: str) -> Run:
    names = [f.name for f in fields(Run)]
    data = _figures(value, where, ["cycles"])
    missing = [name for name in names if name not in data and name not in _OPTIONAL]
    if missing:
        raise UserError(f"{where}: the key {missing[0]!r} is missing")
    return Run(**{name: data.get(name) for name in names})  # type: ignore[arg-type]


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
