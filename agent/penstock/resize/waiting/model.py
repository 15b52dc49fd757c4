"""A job that may run on several numbers of nodes, each with its own time limit. Pure.

    #PENSTOCK moldable=2:8h,4:4h30m,8:2h30m
    #PENSTOCK checkpoint=USR1:state.dat

Each shape is what its owner could have asked sbatch for: so many nodes for so long. With a checkpoint the owner allows
that it is stopped and put back into the queue while it runs, where another shape ends that much sooner.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from dmr.elastic.plans import signal_number
from penstock.api import Job
from penstock.errors import UserError
from penstock.values.durations import DURATION_FORMS, duration_text, parse_duration

__all__ = [
    "Checkpoint",
    "MoldPhase",
    "MoldShape",
    "MoldableJob",
    "SavedFile",
    "read_checkpoint",
    "read_shapes",
    "shapes_text",
]

_NODES: Final = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
_MOST: Final = 20
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class MoldShape:
    """So many nodes for at most so long (s)."""

    nodes: int
    limit: float

    def __str__(self) -> str:
        return f"{self.nodes}:{duration_text(self.limit)}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The job's script saves its state to `file` when it gets `signal`, and goes on."""

    signal: int
    file: str

    def __str__(self) -> str:
        return f"{self.signal}:{self.file}"


class SavedFile(NamedTuple):
    """When a file was written last, and its size."""

    at: float
    size: int


class MoldPhase(StrEnum):
    """`WAITING` until it is put back; `SAVING`: the signal is being sent, or was; `STOPPING`: it is being put back."""

    WAITING = "waiting"
    SAVING = "saving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class MoldableJob:
    """What the agent knows of one. Instants are seconds since 1970.

    `refused` are numbers of nodes that Slurm would not give its owner, `asked` is the number that was asked for last
    (of a job that was put back Slurm shows the old one until it starts). `since` is when something was asked for last,
    `restarts` what Slurm counted then. `done` is the part of the work (0 to 1) that earlier runs did, as far as limits
    tell, and `rests_until` when it may be put back again at the earliest. `saved` is its checkpoint before the signal.
    `born` is Slurm's submission time (epoch s), which tells the job from a later one of the same number; None: no look
    has shown it, or an earlier release did not keep it.
    """

    job: int
    uid: int
    shapes: tuple[MoldShape, ...]
    checkpoint: Checkpoint | None = None
    refused: tuple[int, ...] = ()
    asked: int | None = None
    phase: MoldPhase = MoldPhase.WAITING
    since: float = 0.0
    restarts: int = 0
    done: float = 0.0
    rests_until: float = 0.0
    saved: SavedFile | None = None
    born: float | None = None

    def is_job(self, row: Job) -> bool:
        """Whether this row of its number is the job, which may have been requeued since."""
        return self.born in (None, row.submit) or row.restarts > self.restarts

    @property
    def open_shapes(self) -> tuple[MoldShape, ...]:
        """Those that its owner may have, as far as is known; at least the smallest."""
        return tuple(s for s in self.shapes if s.nodes not in self.refused) or self.shapes[:1]

    def shape(self, nodes: int) -> MoldShape | None:
        """The one with so many nodes."""
        return next((s for s in self.shapes if s.nodes == nodes), None)

    def left(self, job: Job, now: float) -> float:
        """The part of the work that is not done while it runs, at most, as its shape's limit holds for all of it."""
        here = self.shape(len(job.nodes))
        if here is None or job.start is None:
            return 1.0 - self.done
        return max(1.0 - self.done - max(now - job.start, 0.0) / here.limit, 0.0)

    def without(self, nodes: int) -> MoldableJob:
        """Slurm does not give its owner so many nodes."""
        return replace(self, refused=(*self.refused, nodes))

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "job": self.job,
            "uid": self.uid,
            "shapes": shapes_text(self.shapes),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "refused": list(self.refused),
            "asked": self.asked,
            "phase": self.phase.value,
            "since": self.since,
            "restarts": self.restarts,
            "done": self.done,
            "rests_until": self.rests_until,
            "saved": self.saved,
            "born": self.born,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> MoldableJob:
        """What `to_dict` gave. Raises KeyError, TypeError or ValueError for anything else."""
        saves = told["checkpoint"]
        try:
            return cls(
                int(told["job"]),
                int(told["uid"]),
                read_shapes(told["shapes"]),
                None if saves is None else read_checkpoint(saves),
                tuple(int(nodes) for nodes in told["refused"]),
                None if told["asked"] is None else int(told["asked"]),
                MoldPhase(told["phase"]),
                float(told["since"]),
                int(told["restarts"]),
                float(told["done"]),
                float(told["rests_until"]),
                None if told["saved"] is None else SavedFile(*told["saved"]),
                None if told.get("born") is None else float(told["born"]),
            )
        except UserError as e:
            raise ValueError(str(e)) from e


def read_shapes(text: str) -> tuple[MoldShape, ...]:
    """The shapes, the smallest first. Raises UserError."""
    form = "NODES:TIME,NODES:TIME..., such as 2:8h,4:4h30m,8:2h30m"
    found: dict[int, MoldShape] = {}
    for part in text.split(",") if isinstance(text, str) else ():
        nodes, colon, time = part.strip().partition(":")
        if not colon or not _NODES.fullmatch(nodes):
            raise UserError(f"must be {form}, not {text[:60]!r}")
        # sbatch would take a bare number for minutes, the other keys of #PENSTOCK lines for seconds.
        if time.strip().isdigit():
            raise UserError(f"the time for {nodes} nodes needs a unit: {time[:20]}m or {time[:20]}s")
        limit = parse_duration(time)
        if limit is None:
            raise UserError(f"the time for {nodes} nodes must be {DURATION_FORMS}, not {time[:60]!r}")
        if int(nodes) in found:
            raise UserError(f"{nodes} nodes are there twice")
        found[int(nodes)] = MoldShape(int(nodes), 60.0 * math.ceil(limit / 60.0))  # Slurm keeps whole minutes
    if not 2 <= len(found) <= _MOST:
        raise UserError(f"must be 2 to {_MOST} times {form}")
    return tuple(found[nodes] for nodes in sorted(found))


def shapes_text(shapes: tuple[MoldShape, ...]) -> str:
    """As a user writes them."""
    return ",".join(map(str, shapes))


def read_checkpoint(text: str) -> Checkpoint:
    """A signal and a file. Raises UserError."""
    name, colon, file = text.partition(":")
    if not colon or not file or len(file) > _LONGEST or "\0" in file:
        raise UserError(f"must be SIGNAL:FILE, such as USR1:state.dat, not {text[:60]!r}")
    try:
        number = signal_number(name)
    except ValueError as e:
        raise UserError(str(e)) from None
    if number in map(signal_number, ("KILL", "STOP")):
        raise UserError(f"{name}: no program can save anything on that signal")
    return Checkpoint(number, file)
