"""penstock off and on over a real Slurm: a site's agent, a companion, stages that are kept back, and a slot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import SlurmAgent
from malleable import Jacobi, assert_nothing_left, until

from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.timeout(600)]


class Site(SlurmAgent):
    """What `Jacobi` asks of an agent, of one that all users reach."""

    def ask(self, op: str, **arguments: object) -> Any:
        return ask(self.socket, op, arguments)

    def grown(self, job: int) -> int:
        """How often the job has grown."""
        done = [r for r in self.ask("status")["resizes"] if r["job"] == job and r["kind"] == "expand"]
        return sum(r["outcome"] == "completed" for r in done)


def queue(cluster: Cluster) -> dict[str, list[str]]:
    """User, name, state and reason of all jobs, by id."""
    rows = cluster.run_as("root", ["squeue", "-h", "-o", "%i|%u|%j|%T|%r"]).stdout.splitlines()
    return {row.split("|")[0]: row.split("|")[1:] for row in rows}


def test_a_site_gets_rid_of_it_and_takes_it_up_again(contained: Cluster) -> None:
    dmr = {"listen": f"{contained.address}:0", "policy": "wide", "cooldown": 1, "grant_timeout": 10}
    service = Site(
        contained, "operator", agent={"serve": "all"}, dmr={**dmr, "munge_socket": str(contained.munge_socket)}
    )
    try:
        service.start()
        jacobi = Jacobi(service, who="alice", pause=0.08, sweeps=500)
        until("it has grown", lambda: service.grown(jacobi.id))
        stage = ["sbatch", "--parsable", "-t2", "-N1", "-o", "/dev/null", "--penstock-workflow=w"]
        stage.append("--penstock-strategy=perstage")
        jobs = []
        for name, more in (("a", ["--wrap", "sleep 30"]), ("b", ["--penstock-after=a", "--wrap", "true"])):
            done = service.run("alice", *stage, f"--penstock-stage={name}", *more)
            assert done.returncode == 0, done.stderr
            jobs.append(done.stdout.strip())
        first, second = jobs
        held = service.run("operator", "hold", "open", "-N1", "-t2m", "--at", "now+30m", "--json")
        assert held.returncode == 0, held.stderr

        # Others may not; the look at it changes nothing.
        assert service.run("bob", "off").returncode == 4
        looked = json.loads(service.run("operator", "off", "--dry-run", "--json").stdout)
        assert {i["kind"] for i in looked["report"]["items"] if i["place"] == "left"} >= {"companion", "slot"}
        assert jacobi.state() == "RUNNING" and service.answers()

        done = service.run("operator", "off", "--why", "maintenance", "--timeout", "60")
        print(done.stdout, done.stderr)
        assert done.returncode == 6, "a slot and a stage are left"
        assert f"scontrol update jobid={second} StartTime=now ResetAccrueTime" in done.stdout
        assert "penstock hold cancel" in done.stdout and "Stopped: agent" in done.stdout
        assert service.process is not None and service.process.wait(30) == 0
        there = queue(contained)
        assert not [row for row in there.values() if row[1].startswith(f"penstock-{jacobi.id}-")], there
        assert jacobi.state() == "RUNNING" and jacobi.sizes() == [2, 4, 2]

        # Without an agent, and now all of it.
        done = service.run("operator", "off", "--release", "--drop-slots")
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout
        assert "Nothing of Penstock's is left in Slurm." in done.stdout
        assert "No reservations" in contained.run_as("root", ["scontrol", "show", "res"]).stdout
        assert not {"JobHeldUser", "BeginTime"} & {row[3] for row in queue(contained).values()}

        told = service.run("operator", "on")
        assert told.returncode == 0 and "Penstock is on." in told.stdout, told.stderr
        service.start()
        assert service.ask("left")["off"] is None
        jacobi.assert_exact()
        until("the workflow has ended", lambda: service.ask("status")["workflows"][-1]["phase"] == "completed", 90)
        states = ["sacct", "-nX", "-P", "-j", f"{first},{second}", "-o", "State,Start,End"]
        rows = [r.split("|") for r in contained.run_as("root", states).stdout.splitlines()]
        assert [r[0] for r in rows] == ["COMPLETED"] * 2 and rows[0][2] <= rows[1][1], rows
        assert_nothing_left(contained)
    finally:
        print(service.said())
        service.down()
