"""Which waiting task goes to which member: the extension point of a pool (the paper's "framework"), and the default.

A placement is a class with a `name` and one method. Installed under the entry point `penstock.placement` and named in
the configuration (`pool.placement`), it replaces the default; docs/extending.md has a complete one.

`place` is called when something has ended, come or gone. It sees the tasks that wait, grouped by what they need, and
the room of each member that takes tasks; what it yields is started. `fits` keeps the hard rules, which are checked once
more after the extension: a member's memory and GPUs, its end, its cores. Pure: no clock, no file, no socket.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from penstock.core.extensions import ExtensionPoint
from penstock_pool.model import PoolMember, PoolTask

__all__ = ["PLACEMENTS", "Load", "MemberRoom", "Pack", "PoolPlacement", "TaskGroup", "TaskShape", "shape_of"]

PLACEMENTS: Final = ExtensionPoint(
    "penstock.placement",
    "placement",
    "`pool.placement`",
    {"pack": "penstock_pool.placement:Pack"},
    protocols=("penstock_pool.placement:PoolPlacement",),
)
_FUZZ: Final = 1e-9


class TaskShape(NamedTuple):
    """What a task needs, tasks of one shape being alike to a placement. `seconds` is rounded up to two digits, so that
    thousands of tasks make tens of shapes. `avoid`: members on which it has failed."""

    seconds: float | None
    cores: float
    memory: int
    gpus: int
    workflow: str
    avoid: frozenset[str] = frozenset()


def shape_of(task: PoolTask, avoid: frozenset[str] = frozenset()) -> TaskShape:
    """The shape of a task."""
    return TaskShape(_two_digits(task.seconds), task.cores, task.memory or 0, task.gpus, task.workflow, avoid)


def _two_digits(seconds: float | None) -> float | None:
    if seconds is None or seconds <= 0:
        return seconds
    unit: float = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / unit - _FUZZ) * unit


@dataclass(slots=True)
class TaskGroup:
    """Waiting tasks of one shape, in the order of submission."""

    shape: TaskShape
    tasks: Iterator[int]
    left: int

    def take(self) -> int:
        """The next task of it."""
        self.left -= 1
        return next(self.tasks)


@dataclass(slots=True)
class Load:
    """What one workflow's tasks on a member take: the cores that they were promised, and those that they were seen to
    use (never more than promised; as promised until they were measured)."""

    promised: float = 0.0
    used: float = 0.0


@dataclass(slots=True)
class MemberRoom:
    """What is left on one member. `share`: how much of its cores may be used in all before no other workflow's tasks
    are put beside those that leave cores idle; 1.0 is 100 %."""

    member: PoolMember
    memory: float
    gpus: int
    share: float = 1.0
    loads: dict[str, Load] = field(default_factory=dict)

    def cores(self, workflow: str) -> float:
        """Cores that are free to a task of this workflow: its own tasks count as promised, others as measured."""
        mine = others = promised = 0.0
        for name, load in self.loads.items():
            promised += load.promised
            if name == workflow:
                mine = load.promised
            else:
                others += load.used
        whole = self.member.capacity.cores
        # A threshold below 100 % only forbids sharing; it never takes away cores that nobody was promised.
        return max(whole - promised, min(whole, self.share * whole) - mine - others)

    def fits(self, shape: TaskShape, now: float) -> bool:
        """Whether a task of this shape can start here now and ends before the member does."""
        ends = self.member.ends
        return (
            shape.cores <= self.cores(shape.workflow) + _FUZZ
            and shape.memory <= self.memory
            and shape.gpus <= self.gpus
            and (ends is None or now + (shape.seconds or 0.0) < ends)
        )

    def put(self, shape: TaskShape) -> str:
        """A task of this shape goes here; the member's address."""
        self.memory -= shape.memory
        self.gpus -= shape.gpus
        load = self.loads.setdefault(shape.workflow, Load())
        load.promised += shape.cores
        load.used += shape.cores
        return self.member.address

    @property
    def full(self) -> bool:
        """No core is left to anybody."""
        whole = self.member.capacity.cores
        used = sum(load.used for load in self.loads.values())
        return used + _FUZZ >= whole


class PoolPlacement(Protocol):
    """See the module's text."""

    name: str

    def place(self, waiting: Sequence[TaskGroup], rooms: Sequence[MemberRoom], now: float) -> Iterable[tuple[int, str]]:
        """Pairs of a task and the address of the member that it goes to.

        It takes tasks from the groups (`take`) and tells the room (`put`) as it goes on.
        """


class Pack:
    """The longest tasks first, each onto the member that ends soonest after it.

    So long allocations are kept for long tasks, short tasks use up what is left of short ones, and no task that says
    how long it takes outlives its allocation. A task that does not say goes where the most time is left, after those
    that do. Of members that end alike the fullest comes first. A task that has failed goes elsewhere if it can.
    """

    name: Final = "pack"

    def place(self, waiting: Sequence[TaskGroup], rooms: Sequence[MemberRoom], now: float) -> Iterator[tuple[int, str]]:
        """See the class."""
        open_rooms = [room for room in rooms if not room.full]
        for group in sorted(waiting, key=_longest_first):
            best = None
            while group.left and open_rooms:
                # The best one for a shape only becomes fuller by it, and stays the best until it holds no more.
                if best is None or not best.fits(group.shape, now):
                    best = _best(group.shape, open_rooms, now)
                if best is None:
                    break
                yield group.take(), best.put(group.shape)
                if best.full:
                    open_rooms.remove(best)
                    best = None
            if not open_rooms:
                return


def _longest_first(group: TaskGroup) -> tuple[bool, float, float]:
    seconds = group.shape.seconds
    return (seconds is None, -(seconds or 0.0), -group.shape.cores)


def _best(shape: TaskShape, rooms: Sequence[MemberRoom], now: float) -> MemberRoom | None:
    found = [room for room in rooms if room.fits(shape, now)]
    if shape.avoid:
        found = [room for room in found if room.member.address not in shape.avoid]
    if not found:
        return None
    sign = -1.0 if shape.seconds is None else 1.0
    return min(found, key=lambda room: (sign * _end(room), room.cores(shape.workflow)))


def _end(room: MemberRoom) -> float:
    return math.inf if room.member.ends is None else room.member.ends


# What placements of others import by its name of 0.1; for one release.
Shape, Group, Room, Placement = TaskShape, TaskGroup, MemberRoom, PoolPlacement
