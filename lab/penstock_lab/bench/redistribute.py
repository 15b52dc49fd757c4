"""What it costs to move an array between ranks, beside a raw Alltoallv of the same bytes in the same run.

    python -m penstock_lab.bench.redistribute [--rounds 12] [--megabytes 64 1000] [--sizes 4:8 8:4 3:5] [--json]
    python -m penstock_lab.bench.redistribute --owners 1000000
    python -m penstock_lab.bench.redistribute --on cupy [--sizes 4:8]     # in the memory of a GPU that all ranks share

Starts MPI processes on this machine for each pair of sizes, once as if those that can stay did, and once as if all
ranks were replaced (an intercommunicator). "Raw" is one Alltoallv of contiguous buffers with the same counts over the
same communicator, what stays with a rank included, into memory that was allocated for it a moment ago, as the memory of
a moved block is; "raw, warm" the same into memory that was used before. Seconds of wall clock of the slowest rank, the
median of the rounds, in each of which all three are done one after another. "Extra" is the peak of the allocations in
one move beyond the new block, by tracemalloc, the largest of all ranks. Between two measurements, and once it is done
with its own part, a rank sleeps: where there are more ranks than cores, who waits must not keep a core from who works.

With --on the arrays are those of a library in the memory of the GPU, raw is the same Alltoallv in the host's. With
--owners an array of so many numbers moves from random owners to other random ones (`Explicit`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from mpi4py import MPI

    from dmr.bridge import Bridge
    from dmr.distributions import Distribution
    from dmr.redistribute import Moved

KINDS = ("stay", "replaced")
SIZES = ["4:8", "8:4", "3:5"]
ROOM = 16 << 20
ASLEEP = 2e-4


@dataclass(frozen=True)
class Order:
    """What one run of mpiexec is to measure."""

    kind: str
    olds: int
    news: int
    megabytes: int = 64
    rounds: int = 12
    room: int = ROOM
    only: str = ""
    owners: int = 0
    on: str = "numpy"

    @property
    def processes(self) -> int:
        """No more than have a part in it."""
        return max(self.olds, self.news) if self.kind == "stay" else self.olds + self.news


def work(order: Order) -> None:
    """One MPI process: measures, and rank 0 writes lines of JSON."""
    from mpi4py import MPI

    bridge = bridge_of(order)
    said = {"old": order.olds, "new": order.news, "ranks": order.kind}
    if order.owners:
        found = measure_owners(bridge, order)
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps({**said, **found}), flush=True)
        return
    for name, before, after in moves():
        if order.only not in name or (order.on != "numpy" and "halo" in name):
            continue
        found = measure(bridge, name, before, after, order)
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps({**said, "MB": order.megabytes, **found}), flush=True)


def moves() -> Iterator[tuple[str, Distribution, Distribution]]:
    from dmr.distributions import Block, Block2D, BlockCyclic, Cyclic

    yield "blocks of rows", Block(), Block()
    yield "blocks of rows, inside a halo", Block(), Block()
    yield "rows in turn, 16 at a time", BlockCyclic(16), BlockCyclic(16)
    yield "blocks of columns", Block(axis=1), Block(axis=1)
    yield "rows, then columns in turn", Block(), Cyclic(axis=1)
    yield "blocks of rows, then a grid", Block(), Block2D()


def bridge_of(order: Order) -> Bridge:
    from mpi4py import MPI

    from dmr.bridge import Bridge

    world, olds, news = MPI.COMM_WORLD, tuple(range(order.olds)), tuple(range(order.news))
    if order.kind == "stay":
        mine = [world.rank if world.rank < len(side) else None for side in (olds, news)]
        return Bridge(world, olds, news, *mine)
    is_old = world.rank < order.olds
    local = cast("MPI.Intracomm", world.Split(0 if is_old else 1))
    inter = local.Create_intercomm(0, world, order.olds if is_old else 0)
    return Bridge(inter, olds, news, *((local.rank, None) if is_old else (None, local.rank)))


def meet() -> None:
    """Waits asleep for all ranks."""
    from mpi4py import MPI

    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(ASLEEP)


def medians(acts: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the slowest rank for each act, which is done once before it is measured; and all ranks' on a CPU.

    The latter hardly depend on what else this machine does, and where all ranks share its cores no act can be quicker
    than their quotient. They count what a rank spends on waiting, too.
    """
    from mpi4py import MPI

    times: dict[str, list[float]] = {one: [] for act in acts for one in (act, f"{act}, CPU")}
    for number in range(rounds + 1):
        for act, call in acts.items():
            meet()
            began, on_cpu = time.perf_counter(), time.process_time()
            call()
            seconds, on_cpu = time.perf_counter() - began, time.process_time() - on_cpu
            meet()
            seconds = MPI.COMM_WORLD.allreduce(seconds, MPI.MAX)
            on_cpu = MPI.COMM_WORLD.allreduce(on_cpu)
            if number:
                times[act].append(seconds)
                times[f"{act}, CPU"].append(on_cpu)
    return {act: statistics.median(taken) for act, taken in times.items()}


def measure(bridge: Bridge, name: str, before: Distribution, after: Distribution, order: Order) -> dict[str, Any]:
    import numpy as np

    from dmr import device
    from dmr.distributions import block_shape
    from dmr.redistribute import move

    side = round((order.megabytes * 1e6 / 8) ** 0.5)
    shape = (side, side)
    parts = None
    if bridge.old_rank is not None:
        block: Any = np.ones(block_shape(before, shape, len(bridge.old), bridge.old_rank))
        if order.on != "numpy":
            block = device.from_host(block, order.on)
        elif "halo" in name:
            block = np.ones([n + 2 for n in block.shape])[1:-1, 1:-1]
        parts = {"x": (block, before, after)}
    counts = raw_counts(bridge, before, after, shape)
    flat = [np.ones(sum(side)) for side in counts]

    def raw(into: np.ndarray) -> None:
        bridge.comm.Alltoallv([flat[0], counts[0]], [into, counts[1]])

    acts: dict[str, Callable[[], object]] = {
        "raw": lambda: raw(np.empty(sum(counts[1]))),
        "raw, warm": lambda: raw(flat[1]),
        "move": lambda: move(bridge, parts, max_extra_memory=order.room),
    }
    found = medians(acts, order.rounds)
    return {
        "move of": name,
        **found,
        "extra MB": extra_memory(lambda: move(bridge, parts, max_extra_memory=order.room)),
    }


def measure_owners(bridge: Bridge, order: Order) -> dict[str, Any]:
    """Random owners before, others after; `max RSS MB` is what the move added to the process that it cost most."""
    import numpy as np

    from dmr.distributions import Explicit
    from dmr.redistribute import move

    def dealt(n: int, size: int, seed: int) -> list[np.ndarray]:
        owner = np.random.default_rng(seed).integers(0, size, n)
        return [np.flatnonzero(owner == rank) for rank in range(size)]

    n, parts = order.owners, None
    if bridge.old_rank is not None:
        mine = dealt(n, order.olds, 1)[bridge.old_rank]
        after = Explicit(cut=lambda n, size: dealt(n, size, 2))
        parts = {"x": (mine * 1.0, Explicit(mine), after)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    moved = move(bridge, parts, max_extra_memory=order.room)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if moved and not np.array_equal(moved.values["x"], dealt(n, order.news, 2)[bridge.new_rank or 0]):
        raise SystemExit("the wrong numbers arrived")
    found = medians({"move": lambda: move(bridge, parts, max_extra_memory=order.room)}, order.rounds)
    extra = extra_memory(lambda: move(bridge, parts, max_extra_memory=order.room))
    return {"owners": n, **found, "extra MB": extra, "max RSS MB": largest(grown * 1024 / 1e6)}


def extra_memory(call: Callable[[], Moved | None]) -> float:
    """Peak beyond the new block in MB, the largest of all ranks."""
    tracemalloc.start()
    moved = call()
    extra = tracemalloc.get_traced_memory()[1] - (moved.values["x"].nbytes if moved else 0)
    tracemalloc.stop()
    return largest(extra / 1e6)


def largest(value: float) -> float:
    from mpi4py import MPI

    return float(MPI.COMM_WORLD.allreduce(value, MPI.MAX))


def raw_counts(
    bridge: Bridge, before: Distribution, after: Distribution, shape: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Elements to and from each other rank."""
    from mpi4py import MPI

    from dmr import plan

    def shared(source: int, target: int) -> int:
        sets = before.sends(shape, len(bridge.old), source), after.sets(shape, len(bridge.new), target)
        total = 1
        for pieces in map(plan.common, *sets):
            total *= sum(plan.length((piece.source,)) for piece in pieces)
        return total

    comm = bridge.comm
    out = [0] * (comm.remote_size if isinstance(comm, MPI.Intercomm) else comm.size)
    into = list(out)
    if bridge.old_rank is not None:
        for j, rank in enumerate(bridge.new):
            out[rank] = shared(bridge.old_rank, j)
    if bridge.new_rank is not None:
        for i, rank in enumerate(bridge.old):
            into[rank] = shared(i, bridge.new_rank)
    return out, into


def run(order: Order) -> Iterator[dict[str, Any]]:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    command = [str(mpiexec), "-n", str(order.processes), sys.executable, __file__, "--work", json.dumps(asdict(order))]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMI"))}
    # More processes than cores: who waits must not keep a core from who works.
    environment |= {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield from map(json.loads, running.stdout)
    if running.returncode:
        raise SystemExit(f"mpiexec ended with {running.returncode}")


COLUMNS = (
    *("MB", "ranks", "old ones", "move of", "move s", "raw s", "raw, warm s", "raw / move"),
    *("move CPU s", "raw CPU s", "extra MB"),
)
OF_OWNERS = ("owners", "ranks", "old ones", "move s", "CPU s", "extra MB", "max RSS MB")


def line(row: dict[str, Any]) -> str:
    sizes = f"{row['old']} to {row['new']}"
    if "owners" in row:
        cells = [str(row["owners"]), sizes, row["ranks"], f"{row['move']:.3f}", f"{row['move, CPU']:.3f}"]
        cells += [f"{row[key]:.1f}" for key in ("extra MB", "max RSS MB")]
    else:
        cells = [str(row["MB"]), sizes, row["ranks"], row["move of"]]
        cells += [f"{row[key]:.3f}" for key in ("move", "raw", "raw, warm")]
        cells += [f"{row['raw'] / row['move']:.2f}", f"{row['move, CPU']:.3f}", f"{row['raw, CPU']:.3f}"]
        cells += [f"{row['extra MB']:.1f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 1000])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="ranks before and after, say 4:8")
    parser.add_argument("--ranks", choices=KINDS, nargs="+", default=KINDS, help="what becomes of the old ones")
    parser.add_argument("--room", type=int, default=ROOM, help="bytes for buffers on each rank")
    parser.add_argument("--only", default="", help="moves whose name holds this")
    parser.add_argument("--owners", type=int, default=0, help="so many numbers from random owners to random ones")
    parser.add_argument("--on", choices=["numpy", "cupy", "torch"], default="numpy", help="whose arrays")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(Order(**options.work))
        return
    if not options.json:
        columns = OF_OWNERS if options.owners else COLUMNS
        print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for megabytes, sizes, kind in itertools.product(
        options.megabytes[:1] if options.owners else options.megabytes, options.sizes, options.ranks
    ):
        olds, news = map(int, sizes.split(":"))
        order = Order(kind, olds, news, megabytes, options.rounds, options.room, options.only, options.owners)
        order = replace(order, on=options.on)
        for row in run(order):
            print(json.dumps(row) if options.json else line(row), flush=True)
    if not options.json:
        room = options.room / 1e6
        print(f"\n{options.rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, room {room:.1f} MB")


if __name__ == "__main__":
    main()
