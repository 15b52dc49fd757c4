"""What the parts of an elastic job speak of: its plan, what happens to it, what is to be done. Standard library only.

An elastic job is a Slurm job, the *base*, and jobs of the same user that the agent gets for it, its *companions*. The
base is never given back. Sizes are nodes.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "PROGRAM",
    "AcceptResize",
    "Accepted",
    "AskAgent",
    "ElasticNode",
    "ElasticPlan",
    "Event",
    "Exit",
    "FinishHeard",
    "FinishResize",
    "HasEnded",
    "Instruction",
    "Join",
    "KillNodes",
    "Leave",
    "Left",
    "Notified",
    "Notify",
    "Offered",
    "Ready",
    "RefuseResize",
    "RunProgram",
    "Say",
    "Signal",
    "StopAsked",
    "TimePassed",
    "Wanted",
]

PROGRAM: Final = "*"
"""What `start` runs, where a member's host would stand."""


@dataclass(frozen=True, kw_only=True)
class ElasticPlan:
    """What a job says about itself. Commands are lines for `bash -c`, times are in seconds.

    `minimum` nodes are the base's at least, of `maximum` in all; down to `preferred` it gives nodes to whoever waits
    for them (none: down to the minimum). `start` runs once, on the base's first node; with its end the job ends.
    `join` runs on each node, those of the base too if `base_joins`. A node that is to go is told by `leave`, a command
    on the base's first node, and when that has ended, or there is none, by `signal`; after `grace` it is gone.
    A node counts as joined when `ready`, a command on the base's first node, succeeds, or when its output has
    `ready_line` in it, or when it has been running for `settle`; not within `ready_timeout`: then its growth is undone.
    `notify` is a command on the base's first node that hears of each resize before it; if it fails, a growth is
    refused. `loans`: nodes that are free for a while only are of use, too; they leave before that is over. None:
    they are to a job of the first kind.

    `again` makes it another kind of job: `start` is then a program over all nodes, which is told by `signal` (or, if
    there is one, by `leave` alone) to save its state and end, and which `again` starts anew on the new set of nodes.
    `checkpoint` is a file that it must have written for that. `finished` is a command that succeeds when the program
    has nothing left to do. It gets no signal before it is `ready`, or has been running for `settle`.
    """

    minimum: int
    maximum: int
    preferred: int | None = None
    factor: int = 1
    start: str = ""
    join: str = ""
    base_joins: bool = True
    leave: str = ""
    signal: int = int(signal.SIGTERM)
    grace: float = 30.0
    ready: str = ""
    ready_line: str = ""
    settle: float = 2.0
    ready_timeout: float = 120.0
    notify: str = ""
    again: str = ""
    checkpoint: str = ""
    finished: str = ""
    interval: float = 5.0
    loans: bool | None = None

    @property
    def leaves_within(self) -> float | None:
        """Seconds within which nodes leave after the agent has decided it: until the next two questions, and `grace`.
        None: no loans. A program that starts again may refuse to leave, so it has to say that it wants them."""
        loans = not self.again if self.loans is None else self.loans
        return self.grace + 2 * self.interval if loans else None


@dataclass(frozen=True)
class ElasticNode:
    """A node of the job, and the Slurm job that holds it."""

    host: str
    job: int


# -- what happens ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimePassed:
    """Time has passed."""


@dataclass(frozen=True)
class Offered:
    """The agent's answer to `AskAgent`; `action` "none" for every kind of no. `answered`: there was one."""

    action: str = "none"
    epoch: int = 0
    nodes: tuple[str, ...] = ()
    companion: int = 0
    reason: str = ""
    answered: bool = True


@dataclass(frozen=True)
class Accepted:
    """The agent's answer to `AcceptResize`."""

    ok: bool


@dataclass(frozen=True)
class FinishHeard:
    """The agent's answer to `FinishResize`."""

    ok: bool


@dataclass(frozen=True)
class Notified:
    """The notification command has ended."""

    ok: bool
    why: str = ""


@dataclass(frozen=True)
class Ready:
    """What was started on this host has joined."""

    host: str


@dataclass(frozen=True)
class HasEnded:
    """What was started on this host has ended. Of a program that is started again: whether there is a new checkpoint
    (`saved`), and whether nothing is left to do (`finished`)."""

    host: str
    code: int
    saved: bool = True
    finished: bool = False


@dataclass(frozen=True)
class Left:
    """The leave command has ended."""


@dataclass(frozen=True)
class Wanted:
    """The program says how many nodes it has use for."""

    nodes: int


@dataclass(frozen=True)
class StopAsked:
    """Somebody ends the job by this signal."""

    number: int


Event = TimePassed | Offered | Accepted | FinishHeard | Notified | Ready | HasEnded | Left | Wanted | StopAsked

# -- what is to be done ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskAgent:
    """Ask the agent whether it may stay as it is; comes back as `Offered`."""

    epoch: int
    nodes: tuple[str, ...]
    minimum: int
    maximum: int
    factor: int
    preferred: int
    again: bool = False
    leaves_within: float | None = None


@dataclass(frozen=True)
class AcceptResize:
    """Tell the agent that a resize is taken up; comes back as `Accepted`."""

    epoch: int


@dataclass(frozen=True)
class RefuseResize:
    """Tell the agent that a resize does not take place."""

    epoch: int
    why: str


@dataclass(frozen=True)
class FinishResize:
    """Tell the agent that a resize is done; comes back as `FinishHeard`."""

    epoch: int
    nodes: tuple[str, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Notify:
    """Run the notification command; comes back as `Notified`. `event` is "grow" or "shrink"."""

    event: str
    members: tuple[ElasticNode, ...]


@dataclass(frozen=True)
class Join:
    """Start `join` on this node; comes back as `Ready`, and at its end as `HasEnded`."""

    member: ElasticNode


@dataclass(frozen=True)
class Leave:
    """These are to go within `seconds`: run `leave`; comes back as `Left`."""

    members: tuple[ElasticNode, ...]
    seconds: float


@dataclass(frozen=True)
class Signal:
    """Send the plan's signal to what runs on these nodes."""

    members: tuple[ElasticNode, ...]


@dataclass(frozen=True)
class KillNodes:
    """End at once what runs on these nodes."""

    members: tuple[ElasticNode, ...]


@dataclass(frozen=True)
class RunProgram:
    """Start `start` (or `again`) for these nodes; comes back as `Ready` and `HasEnded` of the host `PROGRAM`."""

    members: tuple[ElasticNode, ...]
    again: bool


@dataclass(frozen=True)
class Say:
    """Tell the user."""

    text: str
    warning: bool = field(default=False)


@dataclass(frozen=True)
class Exit:
    """All is over: the job ends with this code."""

    code: int


Instruction = (
    AskAgent
    | AcceptResize
    | RefuseResize
    | FinishResize
    | Notify
    | Join
    | Leave
    | Signal
    | KillNodes
    | RunProgram
    | Say
    | Exit
)
