"""From commit fd8d5927 to this one while its programs, workflows, jobs and slots run or wait, and back.

A state from before that commit is refused.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import earlier
import pytest
from agents import COMMAND, Desk, SlurmAgent
from fresh import Machine
from malleable import Agent, Jacobi, an_agent, assert_nothing_left, until
from test_install import free_ports

from penstock_lab.cluster import Cluster
from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(3600)]

OLDER = PROJECT / "tests" / "fixtures" / "0.1.0" / "agents.sql"


@pytest.fixture(scope="module")
def modules() -> Iterator[str]:
    """Of that commit, which every user can read."""
    with tempfile.TemporaryDirectory(prefix="pst-earlier-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield str(earlier.modules(Path(name)))


@pytest.mark.mpi
@pytest.mark.parametrize("serves", ["own", "all"])
def test_programs_of_that_commit_run_on_and_are_resized_by_the_agent_of_today(
    cluster: Cluster, modules: str, serves: str
) -> None:
    """`own`: the agent is the user's; `all`: an operator's, which has the launcher ask for nodes."""
    who = "alice" if serves == "own" else "operator"
    with an_agent(cluster, who, agent={"serve": serves}) as agent:
        agent.environment["PYTHONPATH"] = modules
        agent.start()
        of_then = {"PYTHONPATH": modules}
        jacobi = Jacobi(agent, who="alice", sweeps=900, exports=of_then)
        until("it has grown under the old agent", lambda: agent.resizes("expand", jacobi.id), 200)
        words = [*COMMAND, "db", "backup", str(agent.folder / "before.db")]
        cluster.run_as(who, words, env={"PENSTOCK_CONFIG": str(agent._config), **of_then}, check=True)
        agent.stop()
        at_the_upgrade = len(jacobi.events())

        del agent.environment["PYTHONPATH"]
        agent.start()
        words = ["sbatch", "--parsable", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 2"]
        cluster.run_as("bob", words, check=True)
        until("it has shrunk under the new one", lambda: agent.resizes("shrink", jacobi.id), 200)
        until("it has grown again", lambda: len(agent.resizes("expand", jacobi.id)) == 2, 200)
        assert not jacobi.ended() and len(jacobi.events()) > at_the_upgrade
        jacobi.assert_exact()
        assert jacobi.sizes()[:4] == [2, 4, 2, 4]
        assert_nothing_left(cluster)
        agent.stop()

        # Back: the older agent does not touch a newer state, and says so; the copy of before is its own.
        agent.environment["PYTHONPATH"] = modules
        state = agent.folder / "penstock.db"
        before = state.read_bytes()
        code, said = ends(agent)
        assert code == 8 and "malleable" in said and str(state) in said
        assert state.read_bytes() == before
        shutil.move(agent.folder / "before.db", state)
        for left in agent.folder.glob("penstock.db-*"):
            left.unlink()
        agent.start()
        assert agent.ask("status")["resizes"]


def ends(agent: Agent) -> tuple[int, str]:
    """How an agent that cannot go on ends, and what it says."""
    with pytest.raises(AssertionError, match="the agent ended"):
        agent.start()
    assert agent._process is not None
    return agent._process.wait(60), agent.log.read_text()[-2000:]


FLOW = """
name: up
stages:
  - {{name: a, nodes: 1, time: 10m, run: "until [ -e {go} ]; do sleep 0.2; done; date >> agents-a"}}
  - {{name: b, nodes: 1, time: 5m, run: "date >> agents-b", after: a}}
"""
OWN = """#!/bin/bash
#SBATCH -N1 -t10 -o /dev/null
{waits}
date >> {ran}
"""
MOLDABLE = """#!/bin/bash
#SBATCH -N8 -t60 --exclusive -o /dev/null
#PENSTOCK moldable=2:1h,4:30m,8:15m
date >> {ran}
"""


def test_what_waits_under_that_commit_goes_on(
    cluster: Cluster, modules: str, make_agent: Callable[..., SlurmAgent]
) -> None:
    """The agent's workflow, one whose jobs their owner has submitted, a moldable job, and a slot with work in it."""
    site = make_agent()
    desk, place = Desk(site), site.folder
    go = place / "go"
    waits = f"until [ -e {go} ]; do sleep 0.2; done"
    cluster.run_as("alice", ["sbatch", "-N1", "-t1", "-o", "/dev/null", "--wrap", "true"], check=True)
    asked = ["sacct", "-n", "-X", "-u", cluster.users["alice"], "-s", "CD", "-S", "now-1hour", "-E", "now"]
    until("a job of hers is in accounting, by which slots go", lambda: cluster.run_as("alice", asked).stdout.strip())

    site.environment["PYTHONPATH"] = modules
    site.start()
    run = site.submit(FLOW.format(go=go), "perstage")
    for name, text in (
        ("up-a.sh", OWN.format(waits=waits, ran=place / "own-a")),
        ("up-b.sh", OWN.format(waits="", ran=place / "own-b")),
    ):
        desk.write(name, text)
    desk.say("penstock", "sbatch", "--penstock-workflow=w", "--penstock-stage=a", str(desk.home / "up-a.sh"))
    words = ["--penstock-workflow=w", "--penstock-stage=b", "--penstock-after=a", str(desk.home / "up-b.sh")]
    desk.say("penstock", "sbatch", *words)
    held = ["-N1", "-t5m", "--at", "now+15s", "--kind", "var", "--run", f"{waits}; date >> {place}/slot"]
    slot = json.loads(desk.say("penstock", "hold", "open", *held, "--json"))["hold"]
    site.until(lambda: holds(desk)[slot] == "held", "the job in the slot to run")
    site.until(lambda: site.state(run)["stages"][0]["phase"] == "running", "the first stage")
    site.until(lambda: desk.phases()["a"] == "running", "the first stage of the owner's")
    taking = ["sbatch", "--parsable", "-N5", "--exclusive", "-t60", "-o", "/dev/null", "--wrap", "sleep 3000"]
    rival = cluster.run_as("bob", taking, check=True).stdout.strip()
    site.until(lambda: "R" in cluster.run_as("bob", ["squeue", "-h", "-j", rival, "-o", "%t"]).stdout, "bob's job")
    desk.write("up-m.sh", MOLDABLE.format(ran=place / "moldable"))
    moldable = int(desk.say("penstock", "sbatch", "--parsable", str(desk.home / "up-m.sh")).strip())
    site.until(lambda: molded(desk) == {moldable}, "the moldable job to be known")
    assert site.stop() == 0
    before = jobs(desk)

    del site.environment["PYTHONPATH"]
    site.start()
    assert site.state(run)["stages"][0]["job"] in before and molded(desk) == {moldable}
    assert holds(desk)[slot] == "held" and desk.phases() == {"a": "running", "b": "waiting"}
    desk.say("touch", str(go))
    done = site.finish(run)
    assert (done["phase"], [stage["attempt"] for stage in done["stages"]]) == ("completed", [1, 1])
    site.until(lambda: desk.workflow()["phase"] == "completed", "the end of the owner's workflow")
    cluster.run_as("bob", ["scancel", rival], check=True)
    ran = ("agents-a", "agents-b", "own-a", "own-b", "slot", "moldable")
    site.until(lambda: all((place / name).exists() for name in ran), "all to have run", 120)
    assert {name: len((place / name).read_text().splitlines()) for name in ran} == dict.fromkeys(ran, 1), "each once"
    site.until(lambda: not molded(desk), "the moldable job to be over")
    site.until(lambda: not holds(desk).get(slot), "the slot to be settled")
    entries = json.loads(desk.say("penstock", "ledger", "--json"))["entries"]
    assert {entry["kind"] for entry in entries} >= {"charge"}
    assert jobs(desk) - before <= {site.state(run)["stages"][1]["job"]}, "nothing was submitted once more"


def holds(desk: Desk) -> dict[int, str]:
    """The phase of each slot that is held, by its number."""
    return {row["hold"]: row["phase"] for row in json.loads(desk.say("penstock", "hold", "list", "--json"))["holds"]}


def molded(desk: Desk) -> set[int]:
    return {job["job"] for job in json.loads(desk.say("penstock", "status", "--json"))["moldable"]}


def jobs(desk: Desk) -> set[int]:
    return {int(number) for number in desk.queue()}


@pytest.mark.parametrize("words", [["agent"], ["tick"], ["status"], ["db", "check"]], ids=" ".join)
def test_a_state_from_before_that_commit_is_refused_and_left_as_it_is(
    make_agent: Callable[..., SlurmAgent], words: list[str]
) -> None:
    site = make_agent()
    folder = site.folder / "agent"
    state = folder / "penstock.db"
    folder.mkdir(mode=0o700)
    with closing(sqlite3.connect(state)) as db:
        db.executescript(OLDER.read_text(encoding="utf-8"))
    user = site.cluster.user("alice")
    for path in (folder, state):
        shutil.chown(path, user.uid, user.gid)
    state.chmod(0o600)
    before = state.read_bytes()
    done = site.run("alice", *words)
    assert done.returncode == (7 if words[0] == "db" else 8), done.stderr
    assert f"{state} was written by an older Penstock (version 4" in done.stderr
    assert "install Penstock of commit fd8d5927" in done.stderr
    assert state.read_bytes() == before
    assert not list(folder.glob("penstock.db?*"))


# -- the packages, on a booted Debian ----------------------------------------------------------------------------------


def package(source: Path, folder: Path) -> Path:
    """The agent's Debian package of this source."""
    words = ["bash", str(source / "deploy" / "build-deb.sh"), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(done.stdout.split()[0])


@pytest.fixture
def packages() -> Iterator[tuple[Path, Path]]:
    """Of that commit and of today."""
    with tempfile.TemporaryDirectory(prefix="pst-packages-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield package(earlier.source(folder), folder / "then"), package(PROJECT, folder / "now")


_STAGES = """
mkdir -p w; cd w
printf '#!/bin/bash\n#SBATCH -N1 -t5\nuntil [ -e /home/alice/go ]; do sleep 0.5; done\n' >a.sh
printf '#!/bin/bash\n#SBATCH -N1 -t5\n#PENSTOCK stage=b after=a\ntouch /home/alice/b-ran\n' >b.sh
penstock sbatch --penstock-workflow=flow --penstock-stage=a a.sh
penstock sbatch --penstock-workflow=flow b.sh
"""


def test_the_package_is_upgraded_under_a_running_workflow_and_goes_back(packages: tuple[Path, Path]) -> None:
    then, now = packages
    machine = Machine(then.parent.parent)
    try:
        _upgraded(machine, then, now)
    finally:
        print(machine.journal("penstock"))
        machine.down()


def _upgraded(machine: Machine, then: Path, now: Path) -> None:
    machine.start_slurm(free_ports(6))
    port = free_ports(2)
    # Both are of one version: it is the same package to apt.
    install = "DEBIAN_FRONTEND=noninteractive apt-get -y -q install --reinstall -o Dpkg::Options::=--force-confold"
    machine.script(f"apt-get -q update; {install} {then}", limit=1800)
    machine.script("sacctmgr -i add user penstock account=root adminlevel=operator")
    change = f"s/:9342/:{port}/; s/:9341/:{port + 1}/; s/dry_run: true/dry_run: false/"
    machine.script(f"sed -i '{change}' /etc/penstock/penstock.yaml; systemctl enable --now penstock")
    of_then = machine.script("penstock --version")
    machine.script(_STAGES, login="alice")

    def phases() -> str:
        done = machine.run("runuser", "-u", "alice", "--", "penstock", "status", "--json")
        return json.dumps(json.loads(done.stdout)["workflows"]) if done.returncode == 0 else done.stderr

    def serves() -> bool:
        return machine.show("penstock", "ActiveState", "StatusText") == ["active", "serving"]

    running = "squeue -h -t RUNNING -o %j"
    until("its first stage runs", lambda: machine.script(running, login="alice").split(), 120, 0.5)
    print("that commit says:", machine.script("penstock status", login="alice"))
    jobs = machine.script("squeue -h -o %i", login="alice").split()
    assert len(jobs) == 2
    (before,) = machine.show("penstock", "MainPID")

    # Up: the service is restarted by the package, the state goes along, and so does the workflow.
    machine.script(f"{install} {now}", limit=1800)
    assert machine.script("penstock --version") != of_then
    until("it serves", serves, 120, 0.5)
    assert machine.show("penstock", "MainPID") != [before]
    assert machine.script("squeue -h -o %i", login="alice").split() == jobs
    machine.script("touch /home/alice/go", login="alice")
    until("the other stage has run", lambda: machine.run("test", "-e", "/home/alice/b-ran").returncode == 0, 240, 0.5)
    until("the workflow is over", lambda: '"completed"' in phases(), 120, 0.5)

    # Back: the state is of the same version, and what workflows have more in it is passed over.
    machine.script(f"{install} {then}", limit=1800)
    assert machine.script("penstock --version") == of_then
    until("it serves again", serves, 120, 0.5)
    assert '"completed"' in phases()
