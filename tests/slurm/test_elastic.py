"""Elastic jobs on a real Slurm with PrologFlags=Contain: nodes join and leave by companions, and what goes wrong."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from malleable import Agent, assert_nothing_left, serial, until

from environments import environment
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

PYTHON = sys.executable


@pytest.fixture
def agent(contained: Cluster) -> Iterator[Agent]:
    it = Agent(contained, dmr={"policy": "throughput"})
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])  # shown by pytest when the test failed
    for left in (it.folder, it.bin):
        shutil.rmtree(left, ignore_errors=True)


class Elastic:
    """An elastic job of the agent's user on one node, and what it has said."""

    def __init__(
        self, agent: Agent, *options: str, minutes: int = 30, sbatch: Sequence[str] = (), who: str = ""
    ) -> None:
        self.cluster = agent.cluster
        self.who = who or agent.who
        self.home = self.cluster.home(self.who)
        environment = agent.ask("env")
        if self.who != agent.who:  # who cannot read the agent's key proves itself by munge
            environment = {k: v for k, v in environment.items() if k != "DMR_KEY_FILE"}
        (self.home / "options.json").write_text(json.dumps(options))
        script = (
            f"#!{PYTHON}\nimport json, sys\nfrom dmr.elastic.__main__ import main\n"
            "sys.exit(main(json.load(open('options.json'))))\n"
        )
        words = ["sbatch", "--parsable", "-N1", f"-t{minutes}", "-o", "elastic-%j.log", "--no-requeue", *sbatch]
        done = self.cluster.run_as(self.who, words, input=script, env=environment, check=True)
        self.id = int(done.stdout)

    @classmethod
    def of(cls, agent: Agent, number: int) -> Elastic:
        """One that was submitted otherwise."""
        it = cls.__new__(cls)
        it.cluster, it.who, it.id = agent.cluster, agent.who, number
        it.home = agent.cluster.home(agent.who)
        return it

    def said(self) -> str:
        path = self.home / f"elastic-{self.id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self) -> str:
        shown = self.cluster.run_as("root", ["scontrol", "-o", "show", "job", str(self.id)]).stdout
        fields = dict(part.split("=", 1) for part in shown.split() if "=" in part)
        return fields.get("JobState", "")

    def ended(self) -> bool:
        return self.state() in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

    def companions(self) -> list[int]:
        listed = self.cluster.run_as("root", ["squeue", "-h", "-o", "%i %j"]).stdout.split("\n")
        return [int(line.split()[0]) for line in listed if f" penstock-{self.id}-" in line]

    def until_said(self, text: str, limit: float = 90.0) -> None:
        try:
            until(f"it says {text!r}", lambda: text in self.said(), limit)
        except AssertionError:
            print(self.said())
            raise


def rival(cluster: Cluster, nodes: int, seconds: int = 3) -> int:
    """Another user's job."""
    command = ["sbatch", "--parsable", f"-N{nodes}", "-t1", "-o", "/dev/null", "--wrap", f"sleep {seconds}"]
    return int(cluster.run_as("bob", command, check=True).stdout)


def state(cluster: Cluster, job: int) -> str:
    return cluster.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"]).stdout.strip()


@pytest.fixture
def resumed(contained: Cluster) -> Iterator[None]:
    yield
    contained.run_as("root", ["scontrol", "update", "nodename=n[1-8]", "state=resume"])


QUICK = ("--interval", "0.5", "--settle", "0.5", "--grace", "6")
HEAD = ("--start", "until [ -e over ]; do sleep 0.2; done")
WORK = "touch $SLURM_JOB_ID-$PENSTOCK_HOST; exec sleep 1000"


@pytest.fixture
def home(contained: Cluster) -> Path:
    """Of alice, without what the tests before have left."""
    place = contained.home("alice")
    for left in ("over", "want", "farm", "results", "bad", "options.json"):
        path = place / left
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return place


def end(job: Elastic) -> None:
    """Its head ends, and nothing is left."""
    (job.home / "over").touch()
    until("the job has ended", job.ended, 90)
    assert job.state() == "COMPLETED", job.said()
    assert_nothing_left(job.cluster)


def submit_file(agent: Agent, file: dict[str, object], name: str = "elastic.yaml") -> Elastic:
    """By `penstock elastic`, as the agent's user."""
    home = agent.cluster.home(agent.who)
    (home / name).write_text(yaml.safe_dump(file))
    environment = {"PENSTOCK_CONFIG": str(home / "penstock.yaml")}
    command = [PYTHON, "-c", "from penstock.cli import main; main()", "elastic", name, "--json"]
    done = agent.cluster.run_as(agent.who, command, env=environment, check=True)
    return Elastic.of(agent, json.loads(done.stdout)["job"])


def tasks(home: Path, count: int, seconds: float) -> None:
    line = f"sleep {seconds}; mkdir -p results; echo $PENSTOCK_TASK >> results/$PENSTOCK_TASK"
    (home / "tasks.txt").write_text(f"{line}\n" * count)


def assert_all_done(home: Path, count: int) -> None:
    found = {p.name for p in (home / "results").iterdir()}
    assert found == {str(n) for n in range(count)}


def farm_file(**more: object) -> dict[str, object]:
    elastic = {"min": 1, "max": 8, "use": "farm", "tasks": "tasks.txt", "slots": 1, "grace": "10s", "interval": 0.5}
    return {"name": "farm", "time": "30m", "output": "elastic-%j.log", "elastic": {**elastic, "settle": 0.5, **more}}


def test_a_farm_grows_gives_nodes_to_a_rival_and_loses_no_task(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    tasks(home, 40, 1.0)
    farm = submit_file(agent, farm_file())
    farm.until_said("grown 1 -> 8 nodes")
    waiting = rival(contained, 4)
    farm.until_said("shrunk 8 ->")
    until("the rival runs", lambda: state(contained, waiting) in ("RUNNING", "COMPLETED"))
    until("the farm is done", farm.ended, 180)
    assert farm.state() == "COMPLETED", farm.said()
    assert_all_done(home, 40)
    assert_nothing_left(contained)


@pytest.mark.long
def test_join_fails_on_one_node_hangs_on_leaving_and_a_companion_dies(
    agent: Agent, contained: Cluster, home: Path
) -> None:
    agent.start()
    # It fails on n3 as long as there is a file of that name, and nobody there hears of SIGTERM.
    join = f"[ ! -e bad/$PENSTOCK_HOST ] || exit 5; trap '' TERM; {WORK.replace('exec ', '')}"
    (home / "bad").mkdir()
    (home / "bad" / "n3").touch()
    (home / "bad").chmod(0o777)
    job = Elastic(agent, "--nodes", "1:3", *QUICK, *HEAD, "--join", join, sbatch=["-wn1", "--exclusive"])
    contained.run_as("root", ["scontrol", "update", "nodename=n[4-8]", "state=drain", "reason=test"], check=True)
    try:
        job.until_said("join failed on n3 (exit 5)")
        job.until_said("did not leave within 6 s: ended at once")
        (home / "bad" / "n3").unlink()
        job.until_said("grown 1 -> 3 nodes")
        (companion,) = job.companions()
        contained.run_as("alice", ["scancel", "--signal=KILL", str(companion)], check=True)
        job.until_said("the job goes on without n2, n3")
        until("it has another one", lambda: job.said().count("grown 1 -> 3 nodes") == 2, 90)
        assert companion not in job.companions()
    finally:
        contained.run_as("root", ["scontrol", "update", "nodename=n[4-8]", "state=resume"])
    end(job)


@pytest.mark.long
def test_a_notification_command_refuses_and_the_nodes_go_back(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    notify = "echo heard $PENSTOCK_RESIZE_EVENT $PENSTOCK_RESIZE_HOSTS $PENSTOCK_RESIZE_JOB; exit 3"
    job = Elastic(agent, "--nodes", "1:2", *QUICK, *HEAD, "--join", WORK, "--notify", notify)
    job.until_said("the notification command refused: exit 3")
    assert f"heard grow n2 {job.id}" in job.said()
    until("the companion has gone back", lambda: not job.companions())
    end(job)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing", "idle", "leaving", "releasing"])
def test_the_agent_is_killed_in_a_phase(phase: str, agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    slow = (
        f"sleep 2; {WORK}" if phase == "resizing" else f"trap 'sleep 2; exit' TERM; {WORK.replace('exec ', '')} & wait"
    )
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", slow, "--settle", "3")
    if phase in ("idle", "leaving", "releasing"):
        job.until_said("grown 1 -> 4 nodes")
    if phase in ("leaving", "releasing"):
        rival(contained, 6, 20)
    until(f"the resize is {phase}", lambda: agent.phase(job.id) == phase, 60, 0.005)
    agent.kill()
    assert job.state() == "RUNNING"
    agent.start()
    until("it has come through", lambda: agent.phase(job.id) == "idle", 120)
    job.until_said("grown 1 -> 4 nodes")
    end(job)


@pytest.mark.long
def test_the_supervisor_is_killed(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", WORK)
    job.until_said("grown 1 -> 4 nodes")
    contained.run_as("root", ["pkill", "-KILL", "-u", contained.users["alice"], "-f", "slurm_script"])
    until("the job has ended", job.ended, 60)
    assert_nothing_left(contained)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing", "idle", "leaving"])
@pytest.mark.usefixtures("resumed")
def test_a_node_goes_down_in_a_phase(phase: str, agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    slow = f"trap 'sleep 2; exit' TERM; {WORK.replace('exec ', '')} & wait"
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", slow, "--settle", "2", sbatch=["-wn1"])
    if phase in ("idle", "leaving"):
        job.until_said("grown 1 -> 4 nodes")
    if phase == "leaving":
        rival(contained, 6, 20)
    until(f"the resize is {phase}", lambda: agent.phase(job.id) == phase and job.companions(), 60, 0.005)
    down = ["scontrol", "update", "nodename=n2", "state=down", "reason=test"]
    contained.run_as("root", down, check=True)
    until("the resize is over", lambda: agent.phase(job.id) == "idle", 60)
    assert job.state() == "RUNNING", job.said()
    job.until_said("grown 1 -> 4 nodes")
    contained.run_as("root", ["scontrol", "update", "nodename=n2", "state=resume"])
    end(job)


@pytest.mark.long
@pytest.mark.usefixtures("resumed")
def test_the_heads_node_is_lost(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", WORK, sbatch=["-wn1"])
    job.until_said("grown 1 -> 4 nodes")
    contained.run_as("root", ["scontrol", "update", "nodename=n1", "state=down", "reason=test"], check=True)
    until("the job has ended", job.ended, 60)
    contained.run_as("root", ["scontrol", "update", "nodename=n1", "state=resume"])
    assert_nothing_left(contained)


def by_chance(job: Elastic, count: int, largest: int, seed: int = 5) -> int:
    """The program says by turns what it has use for, so that the job is resized; how often it was, `count` at least."""
    draw = random.Random(seed)
    want = job.home / f"elastic-{job.id}" / "want"

    def resizes() -> int:
        return job.said().count("elastic: grown ") + job.said().count("elastic: shrunk ")

    size = 1
    while resizes() < count and not job.ended():
        size = draw.choice([n for n in range(1, largest + 1) if n != size])
        want.write_text(f"{size}\n")
        want.chmod(0o666)
        before, deadline = resizes(), time.monotonic() + 15
        until("it is resized", lambda: resizes() > before or time.monotonic() > deadline or job.ended(), 60)  # noqa: B023
    want.write_text(f"{largest}\n")
    return resizes()


@pytest.mark.long
@pytest.mark.timeout(900)
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


@pytest.mark.long
@pytest.mark.timeout(900)
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


@pytest.mark.long
@pytest.mark.timeout(1800)
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


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.timeout(600)
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
saved = torch.load({checkpoint!r})
assert saved["step"] == {steps}
print("difference", float((saved["weights"] - weights).abs().max()))
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
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
    again = len(rows) - len({step for step, _, _ in rows})
    pause = max(b[2] - a[2] for a, b in itertools.pairwise(rows))
    text = REFERENCE.format(folder=str(home), steps=steps, checkpoint=str(home / "training" / "checkpoint"))
    done = contained.run_as("alice", [torch_python, "-c", text], check=True).stdout
    print(f"torchrun: {again} steps done twice, longest pause {pause:.1f} s, {done.strip()}")
    assert {step for step, _, _ in rows} == set(range(steps)) and again <= 4
    assert float(done.split()[-1]) <= 1e-6
    assert_nothing_left(contained)
