"""The tools that people have as elastic jobs, on real Slurm of each release with PrologFlags=Contain."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_jobs import (
    PYTHON,
    agent,
    assert_all_done,
    by_chance,
    farm_file,
    home,
    rival,
    submit_file,
    tasks,
)
from malleable import Agent, assert_nothing_left, until

from environments import environment
from penstock_lab.cluster import Cluster
from penstock_lab.soak.solver import serial

__all__ = ["agent", "home"]  # fixtures

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(900, func_only=True)]


ANOTHER = {"nodes": 8, "contain": True}


@pytest.fixture
def contained(another: Cluster) -> Cluster:
    """The one of elastic jobs is that of a release here."""
    return another


def test_a_farm_loses_no_task_in_twenty_random_resizes(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    tasks(home, 700, 1.0)
    # The farm itself has use for all nodes until its last tasks.
    start = (
        f'unset PENSTOCK_ELASTIC_WANT; exec {PYTHON} -m dmr.elastic.farm head tasks.txt "$PENSTOCK_ELASTIC_FOLDER"/farm'
    )
    farm = submit_file(agent, farm_file(grace="6s", start=start))
    farm.until_said("farm: 700 tasks")
    assert by_chance(farm, 20, 8) >= 20, farm.said()
    until("the farm is done", farm.ended, 400)
    assert farm.state() == "COMPLETED", farm.said()
    assert_all_done(home, 700)
    assert_nothing_left(contained)


DASK = """
import sys, time
from distributed import Client, as_completed

def work(n):
    time.sleep(0.5)
    return n * n

def total(parts):
    return sum(parts)

client = Client()
squares = client.map(work, range(int(sys.argv[1])), pure=False, retries=0)
sums = [client.submit(total, squares[i : i + 20]) for i in range(0, len(squares), 20)]
found = sum(client.gather(sums))
print("total", found, flush=True)
assert found == sum(n * n for n in range(int(sys.argv[1])))
"""


def test_dask_loses_no_task_in_twenty_random_resizes(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    (home / "analyse.py").write_text(DASK)
    elastic = {"min": 1, "max": 5, "use": "dask", "run": f"{PYTHON} analyse.py 1500", "slots": 1, "python": PYTHON}
    file = {"name": "dask", "time": "30m", "output": "elastic-%j.log", "elastic": {**elastic, "interval": 0.5}}
    job = submit_file(agent, file)
    job.until_said("Scheduler at")
    assert by_chance(job, 20, 5) >= 20, job.said()
    until("it is done", job.ended, 600)
    assert job.state() == "COMPLETED", job.said()[-3000:]
    assert f"total {sum(n * n for n in range(1500))}" in job.said()
    assert_nothing_left(contained)


RAY = """
import sys, time
import ray

ray.init(log_to_driver=False)
count = int(sys.argv[1])

@ray.remote(num_cpus=1)
def work(n):
    time.sleep(0.5)
    return n * n

@ray.remote(num_cpus=1)
def total(*parts):
    return sum(parts)

squares = [work.remote(n) for n in range(count)]
sums = [total.remote(*squares[i : i + 20]) for i in range(0, count, 20)]
print("total", sum(ray.get(sums)), flush=True)
"""


@pytest.fixture(scope="module")
def ray_python() -> Iterator[str]:
    with environment("ray", ["ray==2.60.0"], [], os.environ.get("PENSTOCK_RAY", "")) as programs:
        yield str(programs / "python")


@pytest.mark.timeout(1800, func_only=True)
def test_ray_loses_no_task_in_twenty_random_resizes(
    agent: Agent, contained: Cluster, home: Path, ray_python: str
) -> None:
    agent.start()
    (home / "rays.py").write_text(RAY)
    elastic = {"min": 1, "max": 4, "use": "ray", "run": f"{ray_python} rays.py 2500", "slots": 1, "python": ray_python}
    file = {"name": "ray", "time": "40m", "output": "elastic-%j.log", "elastic": {**elastic, "interval": 0.5}}
    job = submit_file(agent, file)
    job.until_said("Ray runtime started", 120)
    assert by_chance(job, 20, 4) >= 20, job.said()
    until("it is done", job.ended, 1200)
    assert job.state() == "COMPLETED", job.said()[-3000:]
    assert f"total {sum(n * n for n in range(2500))}" in job.said()
    assert_nothing_left(contained)


@pytest.mark.mpi
def test_a_program_with_checkpoints_ends_with_the_bits_of_a_fixed_run(
    agent: Agent, contained: Cluster, home: Path
) -> None:
    """MPI over the job and its companion, which mpiexec reaches by srun; SIGUSR1 has it save, and it starts again."""
    agent.start()
    program = home / "saves.py"
    program.write_text((Path(__file__).parent / "elastic_saves.py").read_text())
    for old in ("state.npz", "result"):
        (home / old).unlink(missing_ok=True)
    mpiexec = Path(PYTHON).parent / "mpiexec"
    run = f"rm -f up; exec {mpiexec} -n $PENSTOCK_ELASTIC_NODES -ppn 1 {PYTHON} saves.py state.npz result 600 0.1"
    elastic = {"min": 1, "max": 4, "use": "restart", "run": run, "signal": "USR1", "checkpoint": "state.npz"}
    elastic["ready"] = "[ -e up ]"
    file = {"name": "saves", "time": "30m", "output": "elastic-%j.log", "elastic": {**elastic, "interval": 0.5}}
    job = submit_file(agent, file)
    job.until_said("grown 1 -> 4 nodes")
    rival(contained, 6, 15)
    job.until_said("shrunk 4 -> 1 nodes")
    job.until_said("program: 1 ranks from sweep", 60)
    until("it has grown again", lambda: job.said().count("-> 4 nodes") == 2, 120)
    until("it is done", job.ended, 300)
    print(job.said())
    assert job.state() == "COMPLETED", job.said()
    expected, change = serial(48, 32, 600)
    assert change > 1e-9 and (home / "result").read_bytes() == expected.tobytes()
    assert_nothing_left(contained)


@pytest.fixture(scope="session")
def torch_python() -> Iterator[str]:
    with environment("torch", ["torch==2.13.0+cpu", "numpy"], [], os.environ.get("PENSTOCK_TORCH", "")) as programs:
        yield str(programs / "python")


REFERENCE = """
import sys, torch
sys.path.insert(0, {folder!r})
from trains import BATCH, RATE, WIDTH, gradient
weights = torch.zeros(WIDTH, dtype=torch.float64)
for step in range({steps}):
    weights = weights - RATE * gradient(weights, step, 0, 1) / BATCH
saved = torch.load({checkpoint!r}, map_location="cpu")
assert saved["step"] == {steps}
print("difference", float((saved["weights"] - weights).abs().max()))
"""


@pytest.mark.timeout(1800, func_only=True)
def test_torchrun_trains_on_one_four_and_two_nodes(
    agent: Agent, contained: Cluster, home: Path, torch_python: str
) -> None:
    agent.start()
    steps = 300
    (home / "trains.py").write_text((Path(__file__).parent / "elastic_trains.py").read_text())
    shutil.rmtree(home / "training", ignore_errors=True)
    (home / "training").mkdir()
    (home / "training").chmod(0o777)
    run = f"trains.py training {steps} 0.3"
    elastic = {"min": 1, "max": 4, "use": "torchrun", "run": run, "python": torch_python, "interval": 0.5}
    job = submit_file(agent, {"name": "train", "time": "30m", "output": "elastic-%j.log", "elastic": elastic})
    folder = home / f"elastic-{job.id}"
    until("it has begun", folder.exists, 60)

    def want(nodes: int) -> None:
        (folder / "want").write_text(f"{nodes}\n")
        (folder / "want").chmod(0o666)

    def trained() -> list[tuple[int, int, float]]:
        """Steps, each with the number of its processes and the instant."""
        text = "".join(p.read_text(errors="replace") for p in folder.glob("*.out"))
        found = re.findall(r"step (\d+) of (\d+) at ([\d.]+)", text)
        return sorted(((int(s), int(n), float(t)) for s, n, t in found), key=lambda row: row[2])

    def until_trained(nodes: int) -> None:
        until(f"it trains on {nodes} nodes", lambda: [n for _, n, _ in trained()][-3:] == [nodes] * 3, 240, 0.5)

    want(2)
    until_trained(2)
    want(4)
    until_trained(4)
    want(2)
    job.until_said("shrunk 4 -> 2 nodes", 120)
    until_trained(2)
    until("it is done", job.ended, 900)
    assert job.state() == "COMPLETED", job.said()[-3000:]
    rows = trained()
    print(set(re.findall(r"by \w+ on \S+", "".join(p.read_text(errors="replace") for p in folder.glob("*.out")))))
    again = len(rows) - len({step for step, _, _ in rows})
    pause = max(b[2] - a[2] for a, b in itertools.pairwise(rows))
    text = REFERENCE.format(folder=str(home), steps=steps, checkpoint=str(home / "training" / "checkpoint"))
    done = contained.run_as("alice", [torch_python, "-c", text], check=True).stdout
    print(f"torchrun: {again} steps done twice, longest pause {pause:.1f} s, {done.strip()}")
    assert {step for step, _, _ in rows} == set(range(steps)) and again <= 4
    assert float(done.split()[-1]) <= 1e-6
    assert_nothing_left(contained)
