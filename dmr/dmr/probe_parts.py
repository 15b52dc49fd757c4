"""The programs that `python -m dmr.probe` runs under MPI. Each prints one line, "works", if it does.

python -m dmr.probe_parts start | spawn | accept FILE | connect FILE | resize METHOD NODES
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mpi4py import MPI

from dmr import joining, transition, wire
from dmr.distributions import Replicated

__all__: list[str] = []

_ROUNDS = 2


class _Facts:
    """A job that no agent knows."""

    job = 1
    epoch = 0
    nodes: tuple[str, ...] | None = ()
    per_node = 1


def start() -> None:
    """Ranks come up and talk."""
    comm = MPI.COMM_WORLD
    if comm.allreduce(1) == comm.size and comm.rank == 0:
        print("works", MPI.Get_library_version().splitlines()[0].split(",")[0], flush=True)


def spawn() -> None:
    """One rank spawns another, merges with it, lets go of it and does it again."""
    inter = MPI.Comm.Get_parent()
    if inter != MPI.COMM_NULL:
        _together(inter, True)
        return
    for _ in range(_ROUNDS):
        inter = MPI.COMM_WORLD.Spawn(sys.executable, ["-m", "dmr.probe_parts", "spawn"], maxprocs=1)
        _together(inter, False)
    print("works", flush=True)


def accept(file: Path) -> None:
    """Opens a port and writes its name down."""
    port = MPI.Open_port()
    unfinished = file.with_suffix(".new")
    unfinished.write_text(port)
    unfinished.rename(file)
    _together(MPI.COMM_WORLD.Accept(port), True)


def connect(file: Path) -> None:
    """Connects to the port, from another mpiexec."""
    while not file.exists():
        time.sleep(0.02)
    _together(MPI.COMM_WORLD.Connect(file.read_text()), False)
    print("works", flush=True)


def resize(method: str, nodes: list[str]) -> None:
    """Grows to two ranks and shrinks to one, as the library does it, and keeps a number on the way."""
    larger = (nodes[:2], 1) if len(nodes) > 1 else (nodes, 2)
    places = [larger, (nodes[:1], 1)]
    comm, at, number = MPI.COMM_WORLD, 0, 1000
    begun = transition.arrive(comm)
    while True:
        if begun is not None:
            moved = begun.move({"number": (number, Replicated())} if begun.bridge.old_rank is not None else None)
            following = begun.complete()
            if following is None:
                sys.exit(begun.exit_code)
            if moved is None or begun.passport.failed:
                sys.exit(begun.passport.failed or "nothing has moved")
            comm, at, number = following, begun.passport.epoch, moved.values["number"]
        if comm.allreduce(number) != (1000 + at) * comm.size:
            sys.exit("the number was lost")
        if at == len(places):
            break
        names, per_node = places[at]
        number += 1
        reply = wire.CheckReply(
            action="expand",
            size=len(names) * per_node,
            epoch=at + 1,
            nodes=tuple(names),
            per_node=per_node,
        )
        outcome = transition.depart(_Facts(), comm, reply, transition.prepare(comm, reply, method))
        if isinstance(outcome, str):
            sys.exit(outcome)
        begun = outcome
    print("works", flush=True)


def _together(inter: MPI.Intercomm, high: bool) -> None:
    comm = inter.Merge(high)
    inter.Disconnect()
    if comm.allreduce(1) != comm.size:
        sys.exit("a sum came out wrong")
    joining.wait(comm)
    comm.Disconnect()


def main() -> None:
    """Runs the part that the arguments name."""
    match sys.argv[1:]:
        case ["start"]:
            start()
        case ["spawn"]:
            spawn()
        case ["accept", file]:
            accept(Path(file))
        case ["connect", file]:
            connect(Path(file))
        case ["resize", method, nodes]:
            resize(method, nodes.split(","))
        case _:
            sys.exit("this is for dmr.probe to start")


if __name__ == "__main__":
    main()
