"""A program that goes from one set of nodes to the next, as its arguments say, without any agent.

    walking.py METHOD N:n1,n2[/JOB] ...     N ranks per node; JOB holds the nodes that are added

Numbers that are dealt by rows move with it, by messages that this program sends itself; it checks them in each place.
Every line it prints tells of one place: its number and the size. With
WALK_SURROUNDINGS another tells what each process finds around it; with WALK_GATES it stays in each place until there is
a file of that name and the place's number.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dmr import joining, plan, transition, wire
from dmr.distributions import Block

ROWS = 101


class Facts:
    job, epoch, nodes, per_node = 42, 0, (), 1


def block(size: int, rank: int) -> range:
    return range(*plan.block_bounds(ROWS, size, rank))


def move(bridge, mine: dict[int, int]) -> dict[int, int]:
    """Each number to its new rank; all pairs talk, so that lost or mixed up ranks are noticed."""
    sent = []
    if bridge.old_rank is not None:
        for rank, place in enumerate(bridge.new):
            part = {i: mine[i] for i in block(len(bridge.new), rank) if i in mine}
            sent.append(bridge.comm.isend((bridge.old_rank, rank, part), place, tag=7))
    got: dict[int, int] = {}
    if bridge.new_rank is not None:
        for place in bridge.old:
            before, now, part = bridge.comm.recv(source=place, tag=7)
            assert (bridge.old[before], now) == (place, bridge.new_rank)
            got |= part
    MPI.Request.waitall(sent)
    return got


def surroundings() -> list[object]:
    names = ("VIRTUAL_ENV", "LOADEDMODULES", "OMP_NUM_THREADS")
    variables = [os.environ.get(name, "") for name in names]
    return [sys.executable, str(Path.cwd()), sorted(os.sched_getaffinity(0)), *variables]


def carry(begun, mine: dict[int, int]) -> dict[int, int]:
    if begun.passport.method != "restart":
        return move(begun.bridge, mine)
    # Nothing connects old and new ranks: only the library itself can move data.
    parts = {"numbers": (np.array(list(mine.values()), dtype="i8"), Block())} if mine else None
    moved = begun.move(parts)
    if moved is None:
        return {}
    return dict(zip(block(len(begun.bridge.new), begun.bridge.new_rank), moved.values["numbers"].tolist(), strict=True))


def main() -> None:
    method, *places = sys.argv[1:]
    begun = transition.arrive(MPI.COMM_WORLD)
    if begun is None:
        comm, at = MPI.COMM_WORLD, 0
        numbers = {i: 1000 + i for i in block(comm.size, comm.rank)}
    else:
        at = begun.passport.epoch
        numbers = carry(begun, {})
        comm = begun.complete()
        if begun.passport.failed and comm.rank == 0:
            print("went back:", begun.passport.failed, flush=True)
        at = begun.passport.failed_epoch or at
    while True:
        assert numbers == {i: 1000 + at + i for i in block(comm.size, comm.rank)}, (at, comm.rank, numbers)
        if comm.rank == 0:
            print("place", at, comm.size, flush=True)
        if os.environ.get("WALK_SURROUNDINGS"):
            seen = comm.gather(surroundings())
            if seen is not None:
                print("surroundings", at, json.dumps(sorted(seen)), flush=True)
        if gates := os.environ.get("WALK_GATES"):
            while comm.rank == 0 and not Path(f"{gates}{at}").exists():
                time.sleep(0.05)
            joining.wait(comm)
        if at == len(places):
            break
        how, _, job = places[at].partition("/")
        per_node, _, nodes = how.partition(":")
        names = tuple(nodes.split(","))
        size = int(per_node) * len(names)
        reply = wire.CheckReply(
            action="expand", size=size, epoch=at + 1, nodes=names, per_node=int(per_node), companion=int(job or 0)
        )
        at += 1
        numbers = {i: n + 1 for i, n in numbers.items()}
        begun = transition.depart(Facts(), comm, reply, transition.prepare(comm, reply, method))
        if isinstance(begun, str):
            if comm.rank == 0:
                print("stays:", begun, flush=True)
            begun = None
            continue
        moved = carry(begun, numbers)
        try:
            following = begun.complete()
        except transition.Lost as lost:
            if comm.rank == 0:
                print("lost:", lost, flush=True)
            begun = None
            continue
        if following is None:
            sys.exit(begun.exit_code)
        comm, numbers = following, moved
    comm.Barrier()


main()
