"""What the parts of malleable jobs speak of: the phases of a resize, what is to be done in them, and deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = [
    "Allocate",
    "Announcement",
    "Answer",
    "AskSteps",
    "CancelResizer",
    "Companion",
    "Confirm",
    "Deadlines",
    "Extend",
    "Instruction",
    "LookAt",
    "Merge",
    "ResizePhase",
    "ResizeTerms",
    "Shrink",
    "Way",
]


class ResizePhase(StrEnum):
    """Where a resize stands."""

    IDLE = "idle"
    ALLOCATING = "allocating"
    MERGING = "merging"
    JOINING = "joining"
    CLEANING = "cleaning"
    OFFERED = "offered"
    RESIZING = "resizing"
    GIVING_BACK = "giving-back"
    PROPOSED = "proposed"
    LEAVING = "leaving"
    RELEASING = "releasing"


class Way(StrEnum):
    """How a job gets more nodes: they become its own, or a second job of the same user holds them for it."""

    MERGE = "merge"
    COMPANION = "companion"


@dataclass(frozen=True, slots=True)
class ResizeTerms:
    """On what terms a resize is made. `patience`: how long (s) Slurm may take for its nodes, None: as long as usual;
    `extend`: the time limit (s) that it needs, 0: its own; `announced`: the application has; `loan`: seconds for which
    it is given nodes, None: as long as it may run; `due`: those of a loan must go back, and cannot wait."""

    way: Way = Way.MERGE
    patience: float | None = None
    extend: float = 0.0
    announced: bool = False
    loan: float | None = None
    due: bool = False


@dataclass(frozen=True, slots=True)
class Companion:
    """A job that holds `nodes` for another one. Found by its unique `name`; `since` is when it was seen to run. `until`
    is when it ends, where its nodes were lent for a while only."""

    name: str
    job: int
    nodes: tuple[str, ...]
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Announcement:
    """The application will want `size` processes at the instant `at`."""

    size: int
    at: float


class Answer(NamedTuple):
    """What a check is answered: the nodes are all that the ranks shall run on, in order; `companion` is the job that
    holds the added ones, 0 where they are the job's own."""

    action: str
    size: int
    nodes: tuple[str, ...]
    companion: int = 0


@dataclass(frozen=True, slots=True)
class Allocate:
    """Ask Slurm for `nodes` nodes under the unique `name`, for `time_limit` seconds, and wait `patience` seconds."""

    job: int
    name: str
    nodes: int
    time_limit: float
    way: Way = Way.MERGE
    patience: float = 40.0


@dataclass(frozen=True, slots=True)
class Merge:
    """Move the nodes of `resizer` into `job`."""

    resizer: int
    job: int


@dataclass(frozen=True, slots=True)
class LookAt:
    """See which nodes the companion has got, and come back with `joined`."""

    companion: int


@dataclass(frozen=True, slots=True)
class Shrink:
    """Keep only these nodes of `job`."""

    job: int
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CancelResizer:
    """Find the allocation with this name and cancel it, whatever its state; then come back with `gone`."""

    job: int
    name: str


@dataclass(frozen=True, slots=True)
class AskSteps:
    """Look at the running steps of these jobs and come back with `steps_seen`."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """Raise the job's time limit to so many seconds, and those of its companions by as much, if by now it has no more
    than `nodes` nodes with theirs; then come back with `raising` (before), `extended` and `kept`."""

    job: int
    time_limit: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Confirm:
    """See that the job whose limit was raised has no more than `nodes` nodes, with those of its companions; else its
    limit becomes `time_limit` seconds again. Then come back with `kept`."""

    job: int
    time_limit: float
    nodes: int


Instruction = Allocate | Merge | LookAt | Shrink | CancelResizer | AskSteps | Extend | Confirm


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds: how long a grant may take, how long the application may take to accept it, and the rest between resizes.

    `resize` is how long the application may take to resize once it has accepted before the agent looks whether it still
    does, and how long it may have new processes started before that, while it goes on;
    `restart` the same of one that saves its state, ends and starts anew. `settle` is how long a lost request may
    still surface in Slurm after the agent was killed while sending it. `regrow` is how long nobody grows onto nodes
    that a malleable job gave back: a step of the same job that starts on such a node within the same second is refused
    by slurmd ("Job credential revoked"), MPICH's mpiexec then ends the whole application, and its proxies on that node
    may still be about to end. `cost` is what a resize takes until one has been measured.
    """

    grant: float = 40.0
    accept: float = 120.0
    resize: float = 600.0
    restart: float = 3600.0
    cooldown: float = 10.0
    settle: float = 5.0
    regrow: float = 5.0
    cost: float = 15.0
