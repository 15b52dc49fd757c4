"""How the processes of an application come and go: what joins the old and the new ones while their data moves.

    old side:  problem = preflight(comm); then, once the agent has confirmed, depart(facts, comm, reply, method)
    new side:  arrive(comm) at the start of the program

Either gives a `Transition`. Its `bridge` is for moving data; `complete` ends it and returns the communicator of the new
size, or None in a process that leaves and must end. Methods:

    replace    all ranks are new; old and new ones are the two sides of an intercommunicator (paper 003) if one mpiexec
               can hold the new ones, else parts of one intracommunicator
    merge      whoever can stay does, each added node gets a world of its own (`dmr.worlds`), and one intracommunicator
               holds all who were or will be there

All functions and methods here are collective. What is derived from a communicator is the application's to free before.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, cast

from dmr import joining, line, quirks, spawn, worlds
from dmr.bridge import Bridge
from dmr.joining import Step
from dmr.spawn import SpawnError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mpi4py import MPI

    from dmr.wire import CheckReply

__all__ = ["Facts", "Lost", "Passport", "Transition", "arrive", "depart", "preflight"]


class Facts(Protocol):
    """What must be known of the job; `dmr.session.Session` knows it. Rank 0's counts."""

    job: int


class Lost(Exception):
    """The new processes were lost while data moved; raised on all old ranks, which hold their data and can go on."""


@dataclass(frozen=True)
class Passport:
    """What the new ranks must know of the job; `spawn_seconds` is a duration, because clocks of nodes differ.

    `new` are the new ranks' places behind the old ones (`dmr.worlds.Changes.new`); `jobs` are the jobs that hold nodes,
    where it is not the application's own.
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


_LOOK_AFTER: Final = 1.0


@dataclass
class _Standing:
    """What this process is part of: its world, the communicator that a merge gave last, the nodes of other jobs."""

    world: str = ""
    given: MPI.Intracomm | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)


_standing = _Standing()


class Transition:
    """One process's side of a resize under way: `bridge` for its data, `passport` for what is known of it."""

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

    def complete(self, problem: str | None = None) -> MPI.Intracomm | None:
        """Lets go of the processes that leave; call it once, when all data has been moved.

        Returns the communicator of the new size, or None: this process leaves, and must end. Where ranks stay, the
        communicator that the resize was asked with is gone.

        Args:
            problem: why data could not be moved, on an old rank that saw it fail.

        Raises:
            Lost: on the old ranks; what they had, the communicator included, is as before.
        """
        bridge = self.bridge
        problem = problem or self._meet()
        if bridge.old_rank is not None:
            problem = next((p for p in self._comm.allgather(problem) if p), None)
            if bridge.old_rank == 0:
                problem = problem or joining.settle(self._steps, joined=True)
                if problem:
                    joining.settle(self._steps, joined=False)
            # Not disconnected in that case: it would wait for the dead.
            if problem := self._comm.bcast(problem):
                raise Lost(problem)
        _standing.jobs = self.passport.jobs
        if bridge.comm.Is_inter():
            bridge.comm.Disconnect()
            return None if bridge.new_rank is None else self._comm
        return self._split()

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
        if _standing.given is not None:
            _standing.given.Disconnect()
        _standing.given = comm if stays else None
        return _standing.given


def preflight(comm: MPI.Intracomm) -> str | None:
    """Why starting new processes would fail, the same on all ranks, or None. To be asked before the agent is told."""
    return next((problem for problem in comm.allgather(spawn.preflight()) if problem), None)


def depart(facts: Facts, comm: MPI.Intracomm, reply: CheckReply, method: str = "replace") -> Transition | str:
    """Starts what the agent granted with `reply`; a text, the same on all ranks, says why it could not be done.

    `comm` is then as it was, and the application goes on with it.
    """
    began = time.monotonic()
    everyone = comm.allgather((_standing.world, quirks.node_name(os.environ)))
    names, places = zip(*everyone, strict=True)
    held = {node: reply.companion for node in reply.nodes if reply.companion and node not in places}
    jobs = {node: job for node, job in _standing.jobs.items() if node in reply.nodes and node in places} | held
    merge = method == "merge"
    found = worlds.changes(names, places, reply.nodes, reply.per_node, merge=merge, jobs=jobs)
    passport = Passport(
        facts.job, reply.epoch, reply.nodes, reply.per_node, comm.size, 0.0, method=method, new=found.new, jobs=jobs
    )
    steps: Sequence[Step] = ()
    try:
        steps = joining.start(comm, found.starts, reply.per_node, reply.epoch, jobs)
        if not found.stay and len(steps) == 1:
            passport = replace(passport, spawn_seconds=time.monotonic() - began)
            inter = joining.open_one(comm, steps[0], joining.Greeting(steps[0].world, False, (), passport))
            old, new = tuple(range(comm.size)), tuple(range(reply.size))
            return Transition(Bridge(inter, old, new, comm.rank, None), passport, comm, steps)
        whole = joining.join(comm, steps, passport)
    except SpawnError as error:
        if comm.rank == 0:
            joining.settle(steps, joined=False)
        return str(error)
    if not steps:
        whole = comm.Dup()
    passport = whole.bcast(replace(passport, spawn_seconds=time.monotonic() - began))
    return Transition(_bridge(whole, passport), passport, comm, steps)


def arrive(comm: MPI.Intracomm) -> Transition | None:
    """The new side, in a process that a resize started; None for a normal start. `comm` holds all such processes."""
    met = joining.accept(comm)
    if met is None:
        return None
    inter, greeting = met
    _standing.world = greeting.world
    passport: Passport = greeting.passport
    if not greeting.merge:
        old, new = tuple(range(inter.remote_size)), tuple(range(comm.size))
        return Transition(Bridge(inter, old, new, None, comm.rank), passport, comm)
    whole: MPI.Intracomm = inter.Merge(True)
    inter.Disconnect()
    try:
        whole = joining.join(whole, greeting.rest, passport, own=True)
    except SpawnError:
        sys.exit(0)  # those who were here before us go on without us
    passport = whole.bcast(None)
    return Transition(_bridge(whole, passport), passport, comm)


def _bridge(whole: MPI.Intracomm, passport: Passport) -> Bridge:
    rank, before = whole.rank, passport.old_size
    return Bridge(
        whole,
        tuple(range(before)),
        passport.new,
        rank if rank < before else None,
        passport.new.index(rank) if rank in passport.new else None,
    )
