"""The programs that `elastic_slurm` runs as elastic jobs, one of each kind that people have.

Each does tasks, or steps with a checkpoint each, until it is ended, and writes a line for every one that is done: the
node, and when it began and ended there. A step is one of every node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["EACH", "PROGRAMS", "STEP", "ElasticProgram"]

EACH: Final = 2.0
"""Seconds of a task."""
STEP: Final = 1.0
"""Seconds of a step."""

_DASK: Final = """
import os, sys, time
from distributed import Client

def work(n, seconds, ran):
    begin = time.time()
    time.sleep(seconds)
    with open(ran, "a") as file:
        file.write(f"{os.environ['PENSTOCK_HOST']} {begin} {time.time()}\\n")

client = Client()
tasks, seconds = int(sys.argv[1]), float(sys.argv[2])
client.gather(client.map(work, range(tasks), seconds=seconds, ran=os.path.abspath("ran"), pure=False))
"""

_RAY: Final = """
import os, sys, time
import ray

ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def work(seconds, ran):
    begin = time.time()
    time.sleep(seconds)
    with open(ran, "a") as file:
        file.write(f"{os.environ['PENSTOCK_HOST']} {begin} {time.time()}\\n")

tasks, seconds, ran = int(sys.argv[1]), float(sys.argv[2]), os.path.abspath("ran")
under_way = []
for _ in range(tasks):
    under_way.append(work.remote(seconds, ran))
    if len(under_way) == 64:
        _, under_way = ray.wait(under_way)
ray.get(under_way)
"""

_TORCH: Final = """
import os, sys, time
import torch
import torch.distributed as dist

seconds = float(sys.argv[1])
dist.init_process_group("gloo")
step, weights = 0, torch.zeros(32, dtype=torch.float64)
if os.path.exists("checkpoint"):
    saved = torch.load("checkpoint")
    step, weights = saved["step"], saved["weights"]
while True:
    begin = time.time()
    time.sleep(seconds)
    mine = torch.full((32,), float(step), dtype=torch.float64) / dist.get_world_size()
    dist.all_reduce(mine)
    step, weights = step + 1, weights + mine
    if dist.get_rank() == 0:
        torch.save({"step": step, "weights": weights}, "checkpoint.new")
        os.replace("checkpoint.new", "checkpoint")
    dist.barrier()
    with open("ran", "a") as file:
        file.write(f"{os.environ['PENSTOCK_HOST']} {begin} {time.time()}\\n")
"""

# One process on each node, in the order of the hosts.
_RESTART: Final = """
import os, signal, sys, time
from mpi4py import MPI

seconds, comm, told = float(sys.argv[1]), MPI.COMM_WORLD, []
signal.signal(signal.SIGUSR1, lambda number, _frame: told.append(number))
host = os.environ["PENSTOCK_ELASTIC_HOSTS"].split(",")[comm.rank]
step = int(open("checkpoint").read()) if os.path.exists("checkpoint") else 0
comm.Barrier()
if comm.rank == 0:
    open("up", "w").close()
while not comm.allreduce(len(told)):
    begin = time.time()
    time.sleep(seconds)
    step = comm.allreduce(step) // comm.size + 1
    with open("ran", "a") as file:
        file.write(f"{host} {begin} {time.time()}\\n")
if comm.rank == 0:
    with open("checkpoint.new", "w") as file:
        file.write(str(step))
    os.replace("checkpoint.new", "checkpoint")
comm.Barrier()
"""


@dataclass(frozen=True, slots=True)
class ElasticProgram:
    """`write` puts what it needs for so many tasks into a folder; what the file of the job says of it, by the Python
    that runs it, which has `package`."""

    write: Callable[[Path, int], object]
    says: Callable[[str, int], Mapping[str, Any]]
    package: str = ""


def _farm(place: Path, tasks: int) -> object:
    line = f'b=$(date +%s.%N); sleep {EACH:g}; echo "$PENSTOCK_HOST $b $(date +%s.%N)" >>ran'
    return (place / "tasks.txt").write_text(f"{line}\n" * tasks)


def _script(text: str) -> Callable[[Path, int], object]:
    return lambda place, _tasks: (place / "program.py").write_text(text)


def _in_tasks(grace: str) -> Callable[[str, int], Mapping[str, Any]]:
    return lambda python, tasks: {
        "run": f"{python} program.py {tasks} {EACH:g}",
        "python": python,
        "slots": 1,
        "grace": grace,
    }


def _restart(python: str, _tasks: int) -> Mapping[str, Any]:
    mpiexec = f"{Path(sys.executable).parent / 'mpiexec'} -n $PENSTOCK_ELASTIC_NODES -ppn 1"
    return {
        "run": f"rm -f up; exec {mpiexec} {python} program.py {STEP:g}",
        "signal": "USR1",
        "checkpoint": "checkpoint",
        "ready": "[ -e up ]",
        "grace": "10s",
        "loans": True,
    }


PROGRAMS: Final[Mapping[str, ElasticProgram]] = {
    "farm": ElasticProgram(_farm, lambda _, __: {"tasks": "tasks.txt", "slots": 1, "grace": "5s", "settle": 0.5}),
    "dask": ElasticProgram(_script(_DASK), _in_tasks("10s"), "distributed"),
    "ray": ElasticProgram(_script(_RAY), _in_tasks("15s"), "ray"),
    "torchrun": ElasticProgram(
        _script(_TORCH),
        lambda python, _: {"run": f"program.py {STEP:g}", "python": python, "grace": "10s", "loans": True},
        "torch",
    ),
    "restart": ElasticProgram(_script(_RESTART), _restart, "mpi4py"),
}
