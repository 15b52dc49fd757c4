"""How the processes of an application come and go: what joins the old and the new ones while their data moves.

    old side:  prepared = prepare(comm, reply, method); perhaps ahead(...), and go on until the new processes are up;
               then, once the agent has confirmed, depart(facts, comm, reply, prepared)
    new side:  arrive(comm) at the start of the program

Either gives a `Transition`. Its `tell` and `move` (or its `bridge`) are for the application's data; `complete` ends it
and returns the communicator of the new size, or None in a process that leaves and must end with its `exit_code`.
Methods, of which `available` says which work here:

    replace    all ranks are new; old and new ones are the two sides of an intercommunicator (DMR paper) if one mpiexec
               can hold the new ones, else parts of one intracommunicator
    merge      whoever can stay does, each added node gets a world of its own (`dmr.worlds`), and one intracommunicator
               holds all who were or will be there
    restart    the state is saved, all end, and the launcher starts the program anew (`dmr.restart`); `bridge` then does
               not reach the new ranks, so use `tell` and `move`

All functions and methods here are collective. What is derived from a communicator is the application's to free before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from dmr import joining, line, quirks, redistribute, spawn, worlds
from dmr.bridge import Bridge
from dmr.joining import Start, Step
from dmr.passage import Lost, Passport, Transition, standing
from dmr.spawn import SpawnError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mpi4py import MPI

    from dmr.wire import CheckReply

__all__ = [
    "Facts",
    "Lost",
    "Passport",
    "Prepared",
    "Transition",
    "ahead",
    "arrive",
    "available",
    "companion",
    "depart",
    "prepare",
]


class Facts(Protocol):
    """What must be known of the job; `dmr.session.Session` knows it. Rank 0's counts."""

    job: int
    epoch: int
    nodes: tuple[str, ...] | None
    per_node: int


def available() -> tuple[str, ...]:
    """The methods that work here, best first; the same on all ranks of one program. Empty: no resizing at all."""
    from mpi4py import MPI

    return quirks.methods(MPI.Get_library_version(), os.environ)


def companion() -> bool:
    """Whether nodes that another job of the same user holds can be used: only with a launcher, and MPI ports."""
    return joining.by_port() and "merge" in available()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A resize that is on offer, in terms of processes; the same on all ranks.

    `changes`: who comes, stays and goes. `jobs`: by node, the job that holds it where that is not the application's
    own. `problem`: why starting new processes would fail, or "".
    """

    method: str
    changes: worlds.Changes
    jobs: Mapping[str, int]
    problem: str = ""


def prepare(comm: MPI.Intracomm, reply: CheckReply, method: str = "replace", factor: int = 1) -> Prepared:
    """What the resize would take; collective. Nothing has happened, and the agent need not have been told.

    `factor` is that of the sizes that may come.
    """
    # One exchange for all there is to know: who shares a core with others waits for each of them.
    everyone = comm.allgather((_preflight(reply, method), standing.world, quirks.node_name(os.environ)))
    problems, names, places = zip(*everyone, strict=True)
    held = {node: reply.companion for node in reply.nodes if reply.companion and node not in places}
    jobs = {node: job for node, job in standing.jobs.items() if node in reply.nodes and node in places} | held
    merge = method == "merge"
    found = worlds.changes(names, places, reply.nodes, reply.per_node, merge=merge, jobs=jobs, factor=factor)
    return Prepared(method, found, jobs, next(filter(None, problems), ""))


def _preflight(reply: CheckReply, method: str) -> str:
    problem = spawn.preflight() or (joining.obstacle() if method != "restart" else None)
    if method != "restart" and not joining.by_port():
        # A merge starts a world for each node.
        at_once = reply.nodes[:1] if method == "merge" else reply.nodes
        problem = problem or spawn.too_long(at_once, reply.per_node)
    return problem or ""


def ahead(comm: MPI.Intracomm, reply: CheckReply, prepared: Prepared) -> tuple[bool, Start | None]:
    """Has the new processes started that the same call of `depart` would start, while the application goes on.

    Whether there are any; and on rank 0, what is known of them. Collective; nothing has happened if it is false.
    """
    if not prepared.changes.starts:
        return False, None
    begun = None
    if comm.rank == 0:
        with contextlib.suppress(RuntimeError):  # no thread can be had
            begun = Start(prepared.changes.starts, reply.per_node, reply.epoch, prepared.jobs)
    redistribute.load()
    return comm.bcast(begun is not None), begun


def depart(
    facts: Facts,
    comm: MPI.Intracomm,
    reply: CheckReply,
    prepared: Prepared,
    started: Sequence[Sequence[str]] | None = None,
    ahead_seconds: float = 0.0,
) -> Transition | str:
    """Starts what the agent granted with `reply`; a text, the same on all ranks, says why it could not be done.

    `comm` is then as it was, and the application goes on with it. `prepared` is the same resize. `started` are the new
    processes' worlds, where `ahead` has started them, and that took `ahead_seconds`.
    """
    began = time.monotonic()
    found, jobs, method = prepared.changes, prepared.jobs, prepared.method
    passport = Passport(
        facts.job,
        reply.epoch,
        reply.nodes,
        reply.per_node,
        comm.size,
        0.0,
        method=method,
        new=found.new,
        jobs=jobs,
        ahead_seconds=ahead_seconds,
    )
    if method == "restart":
        if reply.companion:
            return "a restart cannot use nodes of another job"
        from dmr.restart import Leaving

        former = {"epoch": facts.epoch, "nodes": facts.nodes or (), "per_node": facts.per_node}
        return Leaving(comm, passport, former)
    steps: Sequence[Step] = ()
    try:
        steps = joining.start(comm, found.starts, reply.per_node, reply.epoch, jobs, started)
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
    passport = replace(passport, spawn_seconds=time.monotonic() - began)
    if steps:
        passport = whole.bcast(passport)  # to those who join
    else:
        whole = comm.Dup()
    return Transition(_bridge(whole, passport), passport, comm, steps)


def arrive(comm: MPI.Intracomm) -> Transition | None:
    """The new side, in a process that a resize started; None for a normal start. `comm` holds all such processes."""
    if os.environ.get(line.TICKET):
        redistribute.load()  # now, while nobody waits for us
    met = joining.accept(comm)
    if met is None:
        if not os.environ.get(line.RESTARTED):
            return None
        from dmr.restart import resumed  # what it needs takes longer to import than all of what others need

        return resumed(comm)
    inter, greeting = met
    standing.world = greeting.world
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
