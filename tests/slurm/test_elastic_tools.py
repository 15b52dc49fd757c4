"""The tools that people have as elastic jobs, on real Slurm of each release with PrologFlags=Contain."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elastic_jobs import (
    PYTHON,
    Elastic,
    agent,
    assert_all_done,
    by_chance,
    farm_file,
    home,
    rival,
    state,
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


@pytest.mark.mpi
def test_a_program_that_does_not_give_borrowed_nodes_back_goes_on_from_its_checkpoint(
    agent: Agent, contained: Cluster, home: Path
) -> None:
    """It does not listen. The loan ends at its limit all the same, who waited for the nodes starts in time, and
    the bits are those of a fixed run."""
    agent.start()
    (home / "saves.py").write_text((Path(__file__).parent / "elastic_saves.py").read_text())
    for old in ("state.npz", "result"):
        (home / old).unlink(missing_ok=True)
    busy = rival(contained, 4, 175, "-t3", "-wn[5-8]")
    until("others run", lambda: state(contained, busy) == "RUNNING")
    mpiexec = Path(PYTHON).parent / "mpiexec"
    run = f"rm -f up; exec {mpiexec} -n $PENSTOCK_ELASTIC_NODES -ppn 1 {PYTHON} saves.py state.npz result 2200 0.1 20"
    elastic = {"min": 1, "max": 4, "use": "restart", "run": run, "signal": "USR1", "checkpoint": "state.npz"}
    elastic |= {"ready": "[ -e up ]", "grace": "6s", "loans": True, "interval": 0.5}
    file = {"name": "saves", "time": "30m", "output": "elastic-%j.log", "sbatch": ["-wn1"], "elastic": elastic}
    job = submit_file(agent, file)
    until("the job runs", lambda: job.state() == "RUNNING")
    waiting = rival(contained, 7, 20, "-t5")
    job.until_said("grown 1 -> 4 nodes")
    (home / "stubborn").touch()
    until("others have ended", lambda: state(contained, busy) == "COMPLETED", 200)
    until("who waited runs", lambda: state(contained, waiting) == "RUNNING", 60)
    until("it goes on", lambda: job.said().count("program: 1 ranks from sweep") == 2, 60)
    (home / "stubborn").unlink()
    until("it is done", job.ended, 400)
    print(job.said())
    assert job.state() == "COMPLETED", job.said()
    begun = [int(n) for n in re.findall(r"ranks from sweep (\d+)", job.said())]
    assert begun[-1] >= 20, "not from the beginning"
    expected, _ = serial(48, 32, 2200)
    assert (home / "result").read_bytes() == expected.tobytes()
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


class Training:
    """A training job: the steps that it has told of, and how many nodes its program says that it has use for."""

    def __init__(self, job: Elastic, told: Callable[[], str]) -> None:
        self._job = job
        self._folder = job.home / f"elastic-{job.id}"
        self._told = told
        until("it has begun", self._folder.exists, 60)

    def want(self, nodes: int) -> None:
        (self._folder / "want").write_text(f"{nodes}\n")
        (self._folder / "want").chmod(0o666)

    def steps(self) -> list[tuple[int, int, float]]:
        """Each with the number of its processes and the instant."""
        found = re.findall(r"step (\d+) of (\d+) at ([\d.]+)", self._told())
        return sorted(((int(s), int(n), float(t)) for s, n, t in found), key=lambda row: row[2])

    def until_on(self, nodes: int) -> None:
        until(f"it trains on {nodes} nodes", lambda: [n for _, n, _ in self.steps()][-3:] == [nodes] * 3, 240, 0.5)

    def assert_exact(self, steps: int, python: str, home: Path, again: int) -> str:
        """All steps done, at most so many twice, with the weights of an undisturbed run; the pauses, for telling."""
        until("it is done", self._job.ended, 900)
        assert self._job.state() == "COMPLETED", self._job.said()[-3000:]
        rows = self.steps()
        twice = len(rows) - len({step for step, _, _ in rows})
        pause = max(b[2] - a[2] for a, b in itertools.pairwise(rows))
        text = REFERENCE.format(folder=str(home), steps=steps, checkpoint=str(home / "training" / "checkpoint"))
        done = self._job.cluster.run_as("alice", [python, "-c", text], check=True).stdout
        assert {step for step, _, _ in rows} == set(range(steps)) and twice <= again
        assert float(done.split()[-1]) <= 1e-6
        return f"{twice} steps done twice, longest pause {pause:.1f} s, {done.strip()}"


def prepare_training(home: Path) -> None:
    (home / "trains.py").write_text((Path(__file__).parent / "elastic_trains.py").read_text())
    shutil.rmtree(home / "training", ignore_errors=True)
    (home / "training").mkdir()
    (home / "training").chmod(0o777)


@pytest.mark.timeout(1800, func_only=True)
def test_torchrun_trains_on_one_four_and_two_nodes(
    agent: Agent, contained: Cluster, home: Path, torch_python: str
) -> None:
    agent.start()
    steps = 300
    prepare_training(home)
    run = f"trains.py training {steps} 0.3"
    elastic = {"min": 1, "max": 4, "use": "torchrun", "run": run, "python": torch_python, "interval": 0.5}
    job = submit_file(agent, {"name": "train", "time": "30m", "output": "elastic-%j.log", "elastic": elastic})
    folder = home / f"elastic-{job.id}"
    training = Training(job, lambda: "".join(p.read_text(errors="replace") for p in folder.glob("*.out")))
    for nodes in (2, 4):
        training.want(nodes)
        training.until_on(nodes)
    training.want(2)
    job.until_said("shrunk 4 -> 2 nodes", 120)
    training.until_on(2)
    print("torchrun:", training.assert_exact(steps, torch_python, home, again=4))
    assert_nothing_left(contained)


@pytest.fixture(scope="session")
def ray_train_python() -> Iterator[str]:
    packages = ["ray[train]==2.60.0", "torch==2.13.0+cpu"]
    with environment("ray-train", packages, [], os.environ.get("PENSTOCK_RAY_TRAIN", "")) as programs:
        yield str(programs / "python")


@pytest.mark.timeout(2400, func_only=True)
def test_ray_train_trains_on_one_three_and_two_nodes(
    agent: Agent, contained: Cluster, home: Path, ray_train_python: str
) -> None:
    agent.start()
    steps, python = 200, ray_train_python
    prepare_training(home)
    (home / "ray_trains.py").write_text((Path(__file__).parent / "elastic_ray_trains.py").read_text())
    elastic = {"min": 1, "max": 3, "use": "ray", "run": f"{python} ray_trains.py training {steps} 0.3 3"}
    elastic |= {"slots": 1, "python": python, "interval": 0.5}
    job = submit_file(agent, {"name": "train", "time": "40m", "output": "elastic-%j.log", "elastic": elastic})
    told = home / "training" / "steps"
    training = Training(job, lambda: told.read_text() if told.exists() else "")
    for nodes in (1, 3, 2):
        training.want(nodes)
        training.until_on(nodes)
    # What follows the last checkpoint that Ray has taken is done again, with each of the two resizes.
    print("Ray Train:", training.assert_exact(steps, python, home, again=8))
    assert_nothing_left(contained)
