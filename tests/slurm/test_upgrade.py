"""From release 0.1.0 to this one while programs with its library run, and back, which is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import earlier
import pytest
from fresh import Machine
from malleable import Agent, Jacobi, an_agent, assert_nothing_left, until
from test_install import free_ports

from penstock import __version__
from penstock.state.schema import VERSION
from penstock_lab.cluster import Cluster
from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def modules() -> Iterator[str]:
    """Of 0.1.0, which every user can read."""
    with tempfile.TemporaryDirectory(prefix="pst-earlier-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield str(earlier.modules(Path(name)))


@pytest.mark.parametrize("serves", ["own", "all"])
def test_programs_of_0_1_0_run_on_and_are_resized_by_the_agent_of_today(
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
        agent.stop()
        at_the_upgrade = len(jacobi.events())

        del agent.environment["PYTHONPATH"]
        agent.start()
        assert (agent.folder / f"penstock.db.before-{VERSION}").exists()
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
        assert "was written by a newer Penstock" in said
        assert code == 7, "as 0.1.0 ends where its state is refused; releases after it end with 8"
        assert state.read_bytes() == before
        shutil.move(agent.folder / f"penstock.db.before-{VERSION}", state)
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


# -- the packages, on a booted Debian ----------------------------------------------------------------------------------


def package(source: Path, folder: Path) -> Path:
    """The agent's Debian package of this source."""
    words = ["bash", str(source / "deploy" / "build-deb.sh"), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(done.stdout.split()[0])


@pytest.fixture
def packages() -> Iterator[tuple[Path, Path]]:
    """Of 0.1.0 and of today."""
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


def test_the_package_of_0_1_0_is_upgraded_under_a_running_workflow_and_does_not_come_back_by_itself(
    packages: tuple[Path, Path],
) -> None:
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
    install = "DEBIAN_FRONTEND=noninteractive apt-get -y -q install -o Dpkg::Options::=--force-confold"
    machine.script(f"apt-get -q update; {install} {then}", limit=1800)
    machine.script("sacctmgr -i add user penstock account=root adminlevel=operator")
    change = f"s/:9342/:{port}/; s/:9341/:{port + 1}/; s/dry_run: true/dry_run: false/"
    machine.script(f"sed -i '{change}' /etc/penstock/penstock.yaml; systemctl enable --now penstock")
    assert "0.1.0" in machine.script("penstock --version")
    machine.script(_STAGES, login="alice")

    def phases() -> str:
        done = machine.run("runuser", "-u", "alice", "--", "penstock", "status", "--json")
        return json.dumps(json.loads(done.stdout)["workflows"]) if done.returncode == 0 else done.stderr

    running = "squeue -h -t RUNNING -o %j"
    until("its first stage runs", lambda: machine.script(running, login="alice").split(), 120, 0.5)
    print("0.1.0 says:", machine.script("penstock status", login="alice"))
    jobs = machine.script("squeue -h -o %i", login="alice").split()
    assert len(jobs) == 2
    (before,) = machine.show("penstock", "MainPID")

    # Up: the service is restarted by the package, the state goes along, and so does the workflow.
    machine.script(f"{install} {now}", limit=1800)
    assert __version__ in machine.script("penstock --version")
    until("it serves", lambda: machine.show("penstock", "ActiveState", "StatusText") == ["active", "serving"], 120, 0.5)
    assert machine.show("penstock", "MainPID") != [before]
    assert f"penstock.db.before-{VERSION}" in machine.script("ls /var/lib/penstock")
    assert machine.script("squeue -h -o %i", login="alice").split() == jobs
    machine.script("touch /home/alice/go", login="alice")
    until("the other stage has run", lambda: machine.run("test", "-e", "/home/alice/b-ran").returncode == 0, 240, 0.5)
    until("the workflow is over", lambda: '"completed"' in phases(), 120, 0.5)

    # Back: not without being told to, and then the older agent leaves the newer state alone.
    refused = machine.run("bash", "-c", f"{install} {then}", limit=600)
    assert refused.returncode != 0 and "downgrade" in (refused.stdout + refused.stderr).lower()
    machine.script(f"{install} --allow-downgrades {then}", limit=1800)
    assert "0.1.0" in machine.script("penstock --version")
    until("it ends", lambda: machine.show("penstock", "ExecMainStatus") == ["7"], 120, 0.5)
    assert "was written by a newer Penstock" in machine.journal("penstock")
    # As the guide says.
    machine.script(f"""
        systemctl stop penstock
        cd /var/lib/penstock
        mkdir newer && mv penstock.db penstock.db-* newer/ 2>/dev/null || true
        cp -a penstock.db.before-{VERSION} penstock.db
        systemctl start penstock
    """)
    assert machine.show("penstock", "ActiveState") == ["active"]
