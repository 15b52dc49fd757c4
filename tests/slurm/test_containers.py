"""The image on a real engine: all in one container, and one container per node, which die, are cut off and restart."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from engine import Engine, NoEngineError, Site, engine
from malleable import until

from penstock.workflow.commands.runs import shown
from penstock_lab.soak.solver import serial

pytestmark = pytest.mark.timeout(3600)

FLOW = "{name: w, stages: [{name: a, nodes: 1, time: 2m, run: sleep 2}, {name: b, nodes: 1, time: 2m, run: 'true'}]}"
SUBMIT = f'cd "$(mktemp -d -p ~)"; echo "{FLOW}" >w.yaml; penstock submit w.yaml'
NODES = [f"n{i}" for i in range(1, 9)]
# Who comes later takes long to come, so that it can be lost before it has joined.
LATE = """
import pathlib, time
begun = pathlib.Path("begun")
if begun.exists():
    time.sleep(15)
from dmr.examples.jacobi import main
if __name__ == "__main__":
    begun.touch()
    main()
"""


def note(reason: str) -> None:
    """For the last lines of scripts/test.sh."""
    if shared := os.environ.get("PENSTOCK_TEST_SHARED"):
        (Path(shared) / "no-engine").write_text(reason + "\n")


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    """An engine that has the image."""
    try:
        with engine() as it:
            it.image()
            yield it
    except NoEngineError as error:
        note(str(error))
        pytest.skip(f"NO ENGINE: {error}")


# -- all in one --------------------------------------------------------------------------------------------------------


def phases(site: Site, service: str) -> list[str]:
    """Of alice's workflows, the oldest first; Slurm may be too busy to answer at once."""
    return [run.phase for run in shown(json.loads(site.said(service, "pst-alice", "penstock", "status", "--json")))]


def test_the_container_serves_as_soon_as_it_is_healthy_and_keeps_its_state(docker: Engine) -> None:
    site = Site(docker, "compose.yaml", f"pst{os.getpid()}", {"PENSTOCK_METRICS_PORT": "0"})
    try:
        site.compose("up", "-d", "--no-build")
        site.until_healthy(["slurm"])
        site.said("slurm", "pst-alice", "bash", "-c", SUBMIT)
        assert site.said("slurm", "root", "ps", "-o", "user=", "-C", "penstock").split() == ["penstock"], "never root"
        until("the workflow ends", lambda: phases(site, "slurm") == ["completed"], 120, 1.0)
        first = site.container("slurm")
        longer = SUBMIT.replace("name: w,", "name: v,").replace("sleep 2", "sleep 600")
        site.said("slurm", "pst-alice", "bash", "-c", longer)
        old = {int(n) for n in site.said("slurm", "pst-alice", "squeue", "-h", "-t", "all", "-o", "%A").split()}
        site.compose("down", "--timeout", "60")
        site.compose("up", "-d", "--no-build")
        site.until_healthy(["slurm"])
        assert site.container("slurm") != first
        assert phases(site, "slurm") == ["completed", "active"], "the volume has what was"
        new = int(site.said("slurm", "pst-alice", "sbatch", "--parsable", "-N1", "-t9", "--wrap", "sleep 500"))
        assert new > max(old), "no number is used again: what is known by one would be another job"
        site.said("slurm", "root", "penstock", "cancel", "2")
        until("what is gone is given up", lambda: phases(site, "slurm")[1] == "cancelled", 360, 1.0)
        assert site.said("slurm", "pst-alice", "squeue", "-h", "-j", str(new), "-o", "%T") == "RUNNING"
    finally:
        site.down()


@pytest.mark.long
def test_two_builds_have_the_same_files(docker: Engine) -> None:
    """Names, kinds, modes and owners; what is in them may bear a date."""

    def files(image: str) -> list[str]:
        made = docker.docker("create", image)
        try:
            words = f"docker export {made} | tar -tv --numeric-owner | awk '{{$3=$4=$5=\"\"; print}}'"
            return sorted(docker.run("bash", "-c", words, limit=600).stdout.splitlines())
        finally:
            docker.docker("rm", made)

    docker.image("penstock:again", "--no-cache")
    first, again = files("penstock"), files("penstock:again")
    assert len(first) > 10_000
    assert first == again, sorted(set(first) ^ set(again))[:20]


# -- one container per node --------------------------------------------------------------------------------------------


class Nodes(Site):
    """The site of containers, and an MPI program on it."""

    def __init__(self, docker: Engine) -> None:
        self.net = f"10.87.{os.getpid() % 200 + 20}"
        super().__init__(docker, "compose-nodes.yaml", f"psn{os.getpid()}", {"PENSTOCK_NET": self.net})

    def alice(self, script: str, limit: float = 120.0) -> str:
        """What a shell of hers on the login node says."""
        return self.said("login", "pst-alice", "bash", "-euc", script, limit=limit)

    def state(self, job: int) -> str:
        return self.said("login", "root", "bash", "-c", f"squeue -h -t all -j {job} -o %T")

    def until_idle(self) -> None:
        """Every node is back, and nobody has it."""
        until(
            "all is idle", lambda: self.alice("sinfo -h -N -o %T | sort | uniq -c").split() == ["8", "idle"], 180, 1.0
        )

    def jacobi(self, *, sweeps: int = 240, pause: float = 0.4, or_else: str = "", late: bool = False) -> int:
        """A malleable Jacobi on two nodes; its number."""
        run = "-m dmr.examples.jacobi"
        if late:
            self.alice(f"rm -f begun; cat >late.py <<'END'\n{LATE}\nEND")
            run = "late.py"
        script = (
            f"#!/bin/bash\npython -m dmr.launch -n 2 -ppn 1 python {run} --rows 48 --cols 32 --sweeps {sweeps} "
            f"--check-every 3 --min 2 --max 4 --factor 2 --seconds {pause} --out r.npy --report r.jsonl{or_else}\n"
        )
        words = 'rm -f r.npy r.jsonl; eval "$(penstock env)"; sbatch --parsable -J jacobi -N2 -t10 -o j.out'
        return int(self.alice(f"{words} <<<{shlex.quote(script)}"))

    def malleable(self, job: int) -> dict:
        """What the agent says of it; empty while it does not know it."""
        said = json.loads(self.alice("penstock status --json"))
        return next((one for one in said["malleable"] if one["job"] == job), {})

    def assert_exact(self, job: int, sweeps: int = 240) -> None:
        """Ended well, with the bits of a run without MPI."""
        until("Jacobi has ended", lambda: self.state(job) not in ("RUNNING", "PENDING", "COMPLETING"), 600, 1.0)
        assert self.state(job) == "COMPLETED", self.alice("tail -50 j.out")
        expected, change = serial(48, 32, sweeps)
        assert change > 1e-6, "a converged field would hide lost rows"
        shell = "python -c 'import numpy; print(numpy.load(\"r.npy\").tobytes().hex())'"
        found = np.frombuffer(bytes.fromhex(self.alice(shell)))
        assert found.tobytes() == expected.tobytes()

    def sizes(self) -> list[int]:
        events = map(json.loads, self.alice("cat r.jsonl").splitlines())
        return [e["size"] for e in events if e["event"] in ("start", "resized")]

    def lose(self, node: str, way: str) -> None:
        """It is killed, or nothing reaches it any more."""
        if way == "killed":
            self.engine.docker("kill", self.container(node))
        else:
            self.engine.docker("network", "disconnect", f"{self.name}_site", self.container(node))

    def bring_back(self, node: str, way: str) -> None:
        container = self.container(node)
        if way == "killed":
            self.engine.docker("start", container)
        else:
            address = f"{self.net}.{10 + int(node[1:])}"
            self.engine.docker("network", "connect", "--ip", address, f"{self.name}_site", container)
        self.until_idle()


@pytest.fixture(scope="module")
def nodes(docker: Engine) -> Iterator[Nodes]:
    site = Nodes(docker)
    try:
        site.compose("up", "-d", "--no-build")
        site.until_healthy(["controller", "login", *NODES])
        yield site
    finally:
        print(site.compose("logs", "--tail=40", check=False)[-8000:])
        site.down()


@pytest.mark.long
def test_every_node_is_a_host_and_healthy_means_that_it_serves(nodes: Nodes) -> None:
    nodes.alice(SUBMIT)
    limit = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null"
    address = "ip -br -4 address show eth0 | tr / ' ' | awk '{print $3}'"
    said = nodes.alice(f"srun -N8 -t1 bash -c {shlex.quote(f'echo $(hostname) $({address}) $({limit})')}")
    rows = sorted(line.split() for line in said.splitlines())
    assert rows == [[name, f"{nodes.net}.{10 + i}", str(2 << 30)] for i, name in enumerate(NODES, 1)]
    until("the workflow ends", lambda: set(phases(nodes, "login")) == {"completed"}, 120, 1.0)


@pytest.mark.long
def test_the_demo_says_that_all_happened(nodes: Nodes) -> None:
    said = nodes.alice("python -m penstock demo --backend site", limit=900)
    assert said.count("ok  ") >= 9 and "FAIL" not in said, said
    print(said)


@pytest.mark.long
@pytest.mark.parametrize("way", ["killed", "cut off"])
def test_a_node_is_lost_while_a_job_grows_onto_it(nodes: Nodes, way: str) -> None:
    """The program goes on with what it has, and its result is exact."""
    nodes.until_idle()
    job = nodes.jacobi(late=True, sweeps=600)
    companion = f"squeue -h -t R -o '%j %N' | sed -n 's/^penstock-{job}-[^ ]* //p'"
    held = nodes.alice(f'until held=$({companion}); [ -n "$held" ]; do sleep 0.2; done; scontrol show hostnames $held')
    lost = held.split()[-1]
    nodes.lose(lost, way)
    try:
        nodes.assert_exact(job, 600)
        assert lost not in nodes.alice(f"sacct -n -X -j {job} -o nodelist"), "it has never been the job's"
        assert nodes.sizes()[0] == 2
        print(way, lost, nodes.sizes())
    finally:
        nodes.bring_back(lost, way)


@pytest.mark.long
@pytest.mark.parametrize("way", ["killed", "cut off"])
def test_a_node_of_the_job_itself_is_lost(nodes: Nodes, way: str) -> None:
    """The program ends with it, and its job goes back into the queue, as its script says; the result is exact."""
    nodes.until_idle()
    job = nodes.jacobi(or_else=' || scontrol requeue "$SLURM_JOB_ID"', sweeps=400)
    until("it has begun", lambda: nodes.malleable(job).get("phase"), 120, 0.5)
    lost = nodes.alice(f"scontrol show hostnames $(squeue -h -j {job} -o %N)").split()[-1]
    nodes.lose(lost, way)
    try:
        nodes.assert_exact(job, 400)
        assert nodes.alice(f"scontrol -o show job {job} | grep -o 'Restarts=[0-9]*'") != "Restarts=0"
    finally:
        nodes.bring_back(lost, way)


@pytest.mark.long
def test_a_rolling_restart_loses_nothing(nodes: Nodes) -> None:
    """Every host in turn, while a workflow runs, the nodes drained before."""
    nodes.until_idle()
    stages = [f"{{name: s{i}, nodes: 1, time: 5m, run: sleep 5 && date >>s{i}.out" + "}" for i in range(12)]
    for before, i in enumerate(range(1, 12)):
        stages[i] = stages[i][:-1] + f", after: [s{before}]}}"
    flow = f"{{name: long, stages: [{', '.join(stages)}]}}"
    nodes.alice(f"rm -rf long; mkdir long; cd long; cat >w.yaml <<<{shlex.quote(flow)}; penstock submit w.yaml")
    for service in ("controller", "login", *NODES):
        if service in NODES:
            nodes.said("controller", "root", "scontrol", "update", f"nodename={service}", "state=drain", "reason=new")
            nodes.alice(f"until sinfo -h -n {service} -o %T | grep -q drained; do sleep 0.5; done")
        nodes.compose("restart", "-t", "60", service)
        nodes.until_healthy([service])
        if service in NODES:
            nodes.said("controller", "root", "scontrol", "update", f"nodename={service}", "state=resume")
    until("the workflow ends", lambda: phases(nodes, "login")[-1] == "completed", 300, 1.0)
    assert nodes.alice("cat long/s*.out | wc -l") == "12", "each stage once"
