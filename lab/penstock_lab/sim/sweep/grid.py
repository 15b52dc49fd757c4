"""What a sweep computes: its axes, as options or a YAML file give them, and their combinations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Final

import yaml

from penstock import __version__
from penstock.errors import UserError
from penstock.values.yaml12 import parse_yaml
from penstock_lab.sim.estimates import FORMS, parse_estimates
from penstock_lab.sim.replay import POLICIES, TIES
from penstock_lab.sim.swf import FILTERS, machine_procs
from penstock_lab.sim.workloads import KINDS, LOADS, MAX_JOBS, MAX_LOAD, MODELS

__all__ = ["AXES", "Combination", "Grid", "read_grid"]

_MAX_COMBINATIONS: Final = 100_000
_MAX_PROCS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Combination:
    """One replay. Either `log` or `model` is set; what does not apply is None, so that equal replays are equal."""

    log: str | None
    model: str | None
    procs: int
    jobs: int | None
    kinds: str | None
    load: float | None
    seed: int | None
    filter: str | None
    estimates: str
    policy: str
    ties: str
    skip_bad: bool

    def key(self) -> str:
        """Names the combination's part file; another release or another version of the log is another key."""
        what: dict[str, Any] = {**asdict(self), "penstock": __version__}
        if self.log is not None:
            try:
                stat = Path(self.log).stat()
            except OSError:
                what["stat"] = None
            else:
                what["stat"] = [stat.st_size, stat.st_mtime_ns]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]

    def __str__(self) -> str:
        values = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        return ", ".join(f"{name} {value}" for name, value in values.items())


def _one_of(words: Iterable[str]) -> Callable[[object], str]:
    words = tuple(words)

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return check


def _whole(least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        text = str(value)
        if isinstance(value, bool) or not (text.isascii() and text.isdigit() and least <= int(text[:19]) <= most):
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return check


def _load(value: object) -> float:
    try:
        load = float(str(value))
    except ValueError:
        load = float("nan")
    if not 0 < load <= MAX_LOAD:
        raise ValueError(LOADS)
    return load


def _estimates(value: object) -> str:
    try:
        return str(parse_estimates(str(value)))
    except UserError:
        raise ValueError(FORMS) from None


def _path(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a file")
    return str(Path(value).absolute())


AXES: Final[dict[str, Callable[[object], Any]]] = {
    "log": _path,
    "model": _one_of(MODELS),
    "procs": _whole(1, _MAX_PROCS),
    "model-jobs": _whole(1, MAX_JOBS),
    "kinds": _one_of(KINDS),
    "load": _load,
    "seed": _whole(0, 2**63 - 1),
    "filter": _one_of(FILTERS),
    "estimates": _estimates,
    "policy": _one_of(POLICIES),
    "ties": _one_of(TIES),
}
"""The axes by the names of their options and of their keys in a file, with what checks a value."""

_DEFAULTS: Final[dict[str, tuple[Any, ...]]] = {
    "model-jobs": (5000,),
    "kinds": ("both",),
    "load": (None,),
    "seed": (1,),
    "filter": ("strong",),
    "policy": ("easy",),
    "ties": ("pyss",),
}


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes and their values, checked, without those that were not given."""

    axes: Mapping[str, tuple[Any, ...]]
    skip_bad: bool = False

    @classmethod
    def of(cls, axes: Mapping[str, Iterable[object]], skip_bad: bool, place: Callable[[str], str]) -> Grid:
        """Check the values; UserError says where the wrong one is (`place` names an axis) and what would be right."""
        checked = {}
        for name, values in axes.items():
            kept = []
            for value in values:
                try:
                    kept.append(AXES[name](value))
                except ValueError as e:
                    raise UserError(f"{place(name)} must be {e}, not {str(value)[:40]!r}") from None
            if kept:
                checked[name] = tuple(dict.fromkeys(kept))
        return cls(checked, skip_bad)

    def as_file(self) -> str:
        """The grid as a file that `read_grid` reads."""
        return yaml.safe_dump({**{name: list(v) for name, v in self.axes.items()}, "skip-bad": self.skip_bad})

    def combinations(self) -> list[Combination]:
        """All combinations, each once, those with the same jobs side by side. UserError when there is none.

        Estimates are the users' for logs and the run times for models unless given. Left out are combinations that
        cannot be: users' estimates of models, and the filter `singh` with any but actual estimates.
        """
        logs, models = self.axes.get("log", ()), self.axes.get("model", ())
        if not logs and not models:
            raise UserError("a sweep needs at least one --log or --model")
        if models and "procs" not in self.axes:
            raise UserError("--procs is missing: for how many processors are the models' jobs?")
        every = chain(*map(self._of_log, logs), *map(self._of_model, models))
        found = list(islice(every, _MAX_COMBINATIONS + 1))
        if not found:
            raise UserError("no combination is possible: models have no user estimates, and singh needs actual ones")
        if len(found) > _MAX_COMBINATIONS:
            raise UserError(f"more than {_MAX_COMBINATIONS} combinations")
        return list(dict.fromkeys(found))

    def _of_log(self, log: str) -> Iterator[Combination]:
        sizes = self.axes.get("procs") or (machine_procs(Path(log)),)
        for procs, keep, load, estimates in product(sizes, *map(self._of, ("filter", "load")), self._estimates("user")):
            if keep == "singh" and estimates != "actual":
                continue
            seeds = self._of("seed") if parse_estimates(estimates).random else (None,)
            for seed, policy, ties in product(seeds, self._of("policy"), self._of("ties")):
                yield Combination(
                    log, None, procs, None, None, load, seed, keep, estimates, policy, ties, self.skip_bad
                )

    def _of_model(self, model: str) -> Iterator[Combination]:
        kinds = self._of("kinds") if model == "lublin" else (None,)
        for procs, jobs, kind, load, seed in product(
            self.axes["procs"], self._of("model-jobs"), kinds, self._of("load"), self._of("seed")
        ):
            for estimates, policy, ties in product(self._estimates("actual"), self._of("policy"), self._of("ties")):
                if estimates != "user":
                    yield Combination(None, model, procs, jobs, kind, load, seed, None, estimates, policy, ties, False)

    def _of(self, name: str) -> tuple[Any, ...]:
        return self.axes.get(name, _DEFAULTS[name])

    def _estimates(self, default: str) -> tuple[str, ...]:
        return self.axes.get("estimates", (default,))


def read_grid(path: Path, axes: Mapping[str, Iterable[object]], skip_bad: bool) -> Grid:
    """The grid of a YAML file, whose keys are the axes with one value or a list; `axes` of the command replace its own.

    Names of logs are relative to the file's folder. UserError for a file that cannot be used.
    """
    try:
        data = parse_yaml(path.read_bytes(), "grid")
    except OSError as e:
        raise UserError(f"{path}: {e.strerror or e}") from None
    except UserError as e:
        raise UserError(f"{path}: {e}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} must be a list of keys with values, such as 'policy: [easy, conservative]'")
    skip = data.pop("skip-bad", False)
    if not isinstance(skip, bool):
        raise UserError(f"{path}: skip-bad must be true or false, not {str(skip)[:40]!r}")
    unknown = next((str(key) for key in data if key not in AXES), None)
    if unknown is not None:
        raise UserError(f"{path}: unknown key {unknown[:40]!r}; the keys are {', '.join(AXES)} and skip-bad")
    listed = {name: value if isinstance(value, list) else [value] for name, value in data.items()}
    logs = listed.get("log", [])
    listed["log"] = [str(path.absolute().parent / log) if isinstance(log, str) and log else log for log in logs]
    mine = Grid.of(listed, skip, lambda name: f"{path}: {name}")
    own = Grid.of(axes, skip_bad, lambda name: f"--{name}")
    return Grid({**mine.axes, **own.axes}, mine.skip_bad or own.skip_bad)
