"""What a user wants of a pool that gets its own allocations, and what has become of it: one JSON file in its folder.

Whoever makes a pass has the file locked, reads it, and writes it before each request to Slurm and after it, so that a
process that is killed in between leaves the name of the job that it may have submitted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import StoreError
from penstock.host.files import locked, replace
from penstock_pool.auto.choose import AllocationShape
from penstock_pool.folder import PoolFolder

__all__ = ["AutoAllocation", "AutoOrder", "AutoState", "forget", "held_alone", "read_state", "write_state"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AutoOrder:
    """What the user allows: see `penstock pool auto`. `limit` and `idle` in seconds; `cores` of each node (None: whole
    nodes); `options` are more words for sbatch; `python` is what members are started with, in `workdir`."""

    max_nodes: int
    limit: float
    max_jobs: int = 20
    idle: float = 300.0
    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    cores: int | None = None
    options: tuple[str, ...] = ()
    workdir: str = "/"
    python: str = ""


@dataclass(slots=True)
class AutoAllocation:
    """One that was asked for. Times are seconds since 1970; `job` None: it is being submitted, or was when its process
    was killed. `waits` are quantiles (s) of the wait that was expected, `estimate` the prediction that is learned by,
    `why` it was asked for. `leaving`: it was taken back, or is to leave. `born` is Slurm's submission time of the
    job in the look that first showed it under its name."""

    name: str
    shape: AllocationShape
    submitted: float
    waits: tuple[float, ...]
    estimate: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    job: int | None = None
    started: float | None = None
    joined: bool = False
    leaving: bool = False
    born: float | None = None


@dataclass(slots=True)
class AutoState:
    """The order, what there is, and how it went: submissions that `failed` one after the other, allocations `lost` one
    after the other before they had joined; `paused` says why nothing more is asked for, until the user resumes it.
    `off`: nothing more is wanted; `done`: since when no task has waited; `told` is the last verdict, for people."""

    order: AutoOrder
    allocations: list[AutoAllocation] = field(default_factory=list)
    failed: int = 0
    lost: int = 0
    paused: str = ""
    off: bool = False
    done: float | None = None
    told: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> AutoAllocation:
        """The one of this name."""
        return next(each for each in self.allocations if each.name == name)


def read_state(folder: PoolFolder) -> AutoState | None:
    """The order of a pool; None where nobody has given one. Raises StoreError for a file that is none."""
    path = folder.wanted
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["version"] != _VERSION:
            raise StoreError(f"{path}: is of another version of Penstock ({told['version']!r})")
        order = {**told["order"], "partitions": tuple(told["order"]["partitions"])}
        order["options"] = tuple(order["options"])
        allocations = [
            AutoAllocation(**{**each, "shape": AllocationShape(**each["shape"]), "waits": tuple(each["waits"])})
            for each in told["allocations"]
        ]
        rest = {key: told[key] for key in ("failed", "lost", "paused", "off", "done", "told")}
        return AutoState(AutoOrder(**order), allocations, **rest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise StoreError(
            f"{path}: cannot be read: {e!r}; remove it, and give the order anew: what was asked for ends when idle"
        ) from e


def write_state(folder: PoolFolder, state: AutoState) -> None:
    """Keep it. Raises StoreError."""
    try:
        replace(folder.wanted, json.dumps({"version": _VERSION, **asdict(state)}))
    except OSError as e:
        raise StoreError(f"{folder.wanted}: cannot be written: {e.strerror}") from e


def forget(folder: PoolFolder) -> None:
    """There is no order any more."""
    folder.wanted.unlink(missing_ok=True)


@contextmanager
def held_alone(folder: PoolFolder, patience: float = 0.0) -> Iterator[None]:
    """One pass, or change of the order, at a time. Raises NotNow where another process has it."""
    path: Path = folder.path / "auto.lock"
    with locked(path, os.O_CREAT | os.O_RDWR, f"pool {folder.name!r} is being looked after", patience):
        yield
