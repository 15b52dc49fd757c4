"""One process's side of a resize under way; `dmr.transition` makes them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from dmr import joining, line, redistribute
from dmr.bridge import Bridge
from dmr.joining import Step
from dmr.patience import Patient

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.redistribute import Moved, Parts

__all__ = ["NO_MEMORY", "Lost", "Passport", "Transition", "standing"]

# What a MemoryError without words of its own says.
NO_MEMORY: Final = "a process has no memory for its part of the data"


class Lost(Exception):
    """The new processes were lost while data moved; raised on all old ranks, which hold their data and can go on."""


@dataclass(frozen=True)
class Passport:
    """What the new ranks must know of the job; `spawn_seconds` is a duration, because clocks of nodes differ.

    `new` are the new ranks' places behind the old ones (`dmr.worlds.Changes.new`); `jobs` are the jobs that hold nodes,
    where it is not the application's own. `failed` says why the resize `failed_epoch` failed, if these processes were
    started with the former size after that; the agent is to hear a refusal then. `ahead_seconds` is how long the new
    processes took to start while the old ones went on.
    """

    job: int
    epoch: int
    nodes: tuple[str, ...]
    per_node: int
    old_size: int
    spawn_seconds: float
    method: str = "replace"
    new: tuple[int, ...] = ()
    jobs: Mapping[str, int] = field(default_factory=dict)
    failed: str = ""
    failed_epoch: int = 0
    ahead_seconds: float = 0.0


_LOOK_AFTER: Final = 1.0
_Plain = tuple[type[Exception], str]


def _plain(problem: Exception) -> _Plain:
    """A form that pickles, whatever it is."""
    return next(kind for kind in (Lost, MemoryError, ValueError, Exception) if isinstance(problem, kind)), str(problem)


@dataclass
class _Standing:
    """What this process is part of: its world, the communicator that a merge gave last, the nodes of other jobs."""

    world: str = ""
    given: MPI.Intracomm | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)


standing = _Standing()


class Transition:
    """One process's side of a resize under way: `bridge` for its data, `passport` for what is known of it.

    A process that leaves ends with `exit_code`.
    """

    exit_code = 0

    def __init__(self, bridge: Bridge, passport: Passport, comm: MPI.Intracomm, steps: Sequence[Step] = ()) -> None:
        self.bridge = bridge
        self.passport = passport
        self._comm = comm
        self._steps = steps

    def lost(self) -> str | None:
        """Why moving data can never end, where that is known: a new process has died. Not collective; for old ranks.

        Asks the launcher: not more than once a second, please. Without one the whole application ends in that case.
        """
        tickets = [step.world for step in self._steps if step.port]
        if not tickets:
            return None
        try:
            line.ask(5.0, op="alive", tickets=tickets)
        except line.LineError as error:
            return str(error)
        return None

    def _look(self) -> None:
        if self.bridge.old_rank is not None and (problem := self.lost()):
            raise Lost(problem)

    def tell(self, value: Any = None) -> Any:  # noqa: ANN401
        """What old rank 0 says to all new ranks; collective over the bridge, returns it on new ranks.

        Raises:
            Lost: on old ranks, as `move` does.
        """
        from mpi4py import MPI

        bridge, comm = self.bridge, Patient(self.bridge.comm, self._look)
        if not comm.Is_inter() or bridge.old_rank is None:
            return comm.bcast(value, root=bridge.old[0])
        # Between groups the root names itself ROOT and its own side looks on.
        return comm.bcast(value, root=MPI.ROOT if bridge.old_rank == 0 else MPI.PROC_NULL)

    def move(self, parts: Parts | None = None) -> Moved | None:
        """Moves the application's state as `dmr.redistribute.move` does, whatever the method.

        Raises:
            ValueError, MemoryError: on all ranks, old and new, for which the data cannot be moved. New ones then call
                `abandon`, old ones give `complete` the error.
            Lost: on old ranks, where new ones are known to have died; give it `complete`, too.
        """
        return redistribute.move(self.bridge, parts, look=self._look)

    def complete(self, problem: Exception | None = None) -> MPI.Intracomm | None:
        """Lets go of the processes that leave; call it once, when all data has been moved.

        Returns the communicator of the new size, or None: this process leaves, and must end. Where ranks stay, the
        communicator that the resize was asked with is gone.

        Args:
            problem: why data could not be moved: what `tell` or `move` raised on this old rank.

        Raises:
            Lost, ValueError, MemoryError: one of them on all old ranks alike, whatever each has seen; what they had,
                the communicator included, is as before.
        """
        bridge = self.bridge
        if problem is None and (gone := self._meet()):
            problem = Lost(gone)
        if bridge.old_rank is not None:
            self._agree(problem)
        standing.jobs = self.passport.jobs
        if bridge.comm.Is_inter():
            bridge.comm.Disconnect()
            return None if bridge.new_rank is None else self._comm
        return self._split()

    def abandon(self) -> None:
        """In place of `complete`, on new ranks, when all know that data could not be moved: these must end."""
        self.bridge.comm.Disconnect()

    def _agree(self, problem: Exception | None) -> None:
        """Raises on all old ranks what one of them has seen.

        They need not have seen the same: where one hears that the data cannot be moved, the new processes end, and
        another that still waits for its last message finds them dead.
        """
        seen = [one for one in self._comm.allgather(problem and _plain(problem)) if one]
        if self._steps:
            if self.bridge.old_rank == 0 and not seen and (gone := joining.settle(self._steps, joined=True)):
                seen = [(Lost, gone)]
            seen = self._comm.bcast(seen)
        if not seen:
            return
        kind, text = min(seen, key=lambda one: one[0] is Lost)  # why they ended says more than that they did
        if not any(kind is Lost for kind, _ in seen):  # else it would wait for the dead
            self.bridge.comm.Disconnect()
        if self.bridge.old_rank == 0:
            joining.settle(self._steps, joined=False, leaving=kind is not Lost)
        raise kind(text)

    def _meet(self) -> str | None:
        """Waits until everybody has come to the end; the problem, if they never will."""
        request: MPI.Request = self.bridge.comm.Ibarrier()
        look = time.monotonic() + _LOOK_AFTER
        while not request.Test():
            time.sleep(0.001)
            if time.monotonic() > look:
                if problem := self.lost():
                    return problem
                look = time.monotonic() + _LOOK_AFTER
        return None

    def _split(self) -> MPI.Intracomm | None:
        from mpi4py import MPI

        bridge = self.bridge
        stays = bridge.new_rank is not None
        whole = cast("MPI.Intracomm", bridge.comm)
        comm = cast("MPI.Intracomm", whole.Split(0 if stays else MPI.UNDEFINED, bridge.new_rank or 0))
        whole.Disconnect()
        # Nobody may leave while connected to those who stay: not in MPI's sense either.
        if standing.given is not None:
            standing.given.Disconnect()
        standing.given = comm if stays else None
        return standing.given
