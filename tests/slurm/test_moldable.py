"""Moldable jobs on a real Slurm: the nodes of one that waits follow the queue, and one that runs is put back."""

from __future__ import annotations

import json
import signal

import pytest
from agents import Desk, SlurmAgent

pytestmark = pytest.mark.slurm

SCRIPT = """#!/bin/bash
#SBATCH -N4 -t 60 --exclusive -o {out} {more}
#PENSTOCK moldable=2:1h,4:30m,8:15m
echo "began on $SLURM_JOB_NUM_NODES with $(srun hostname | wc -l)"
sleep {seconds}
"""
SAVES = """#!/bin/bash
#SBATCH -t 60 --exclusive -o {name}.out
#PENSTOCK moldable=2:1h,4:30m,8:15m checkpoint=USR1:{name}.dat
steps=$(cat {name}.dat 2>/dev/null || echo 0)
echo "began on $SLURM_JOB_NUM_NODES at $steps"
trap 'echo $steps > {name}.new && mv {name}.new {name}.dat' USR1
while [ ! -e {name}.end ]; do sleep 0.2; steps=$((steps + 1)); done
"""


class MoldingSite:
    """Eight nodes, Alice's agent, and Bob who takes nodes."""

    def __init__(self, site: SlurmAgent) -> None:
        self.site = site.start()
        self.desk = Desk(site)
        self.bob = Desk(site, "bob")

    def take(self, nodes: int) -> str:
        words = ["sbatch", "--parsable", f"-N{nodes}", "--exclusive", "-t120", "-o/dev/null", "--wrap", "sleep 3600"]
        job = self.bob.say(*words).strip()
        self.site.until(lambda: self.state(job) == "RUNNING", f"job {job} of bob's")
        return job

    def state(self, job: str) -> str:
        return self.bob.say("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def shape(self, job: str) -> tuple[str, str]:
        nodes, limit = self.bob.say("squeue", "-h", "-t", "all", "-j", job, "-o", "%D %l").split()
        return nodes, limit

    def output(self, name: str) -> list[str]:
        path = self.desk.home / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("slurmstepd")]

    def explained(self, job: str) -> list[str]:
        told = json.loads(self.desk.say("penstock", "explain", job, "--json"))
        return [reason[0] for decision in told["decisions"] for reason in decision["reasons"]]


@pytest.fixture
def molding(make_agent):
    return MoldingSite(make_agent(malleable={"put_back_after": 2, "put_back_gain": 60}))


def test_the_nodes_of_a_job_follow_the_queue_until_it_starts(molding):
    site, desk = molding.site, molding.desk
    first, second = molding.take(4), molding.take(4)
    script = desk.write("mold.sh", SCRIPT.format(out="mold.out", seconds=60, more=""))
    job = desk.say("penstock", "sbatch", "--parsable", script).strip()
    site.until(lambda: molding.shape(job) == ("8", "15:00"), "the fastest shape")
    (told,) = json.loads(desk.say("penstock", "status", "--json"))["moldable"]
    assert (told["job"], told["shapes"]) == (int(job), "2:1h,4:30m,8:15m")
    molding.bob.say("scancel", first)
    site.until(lambda: molding.state(job) == "RUNNING", "its start on what is free")
    assert molding.shape(job) == ("4", "30:00")
    site.until(lambda: molding.output("mold.out") == ["began on 4 with 4"], "what it writes")
    assert set(molding.explained(job)) == {"ends-first"}
    # A plain job, and one whose command line says how large it is, are nobody's business.
    plain = desk.say("penstock", "sbatch", "--parsable", "-N3", script).strip()
    assert len(json.loads(desk.say("penstock", "status", "--json"))["moldable"]) == 1
    assert molding.shape(plain)[0] == "3"
    molding.bob.say("scancel", second)
    refused = desk.run("penstock", "sbatch", "--ntasks-per-node=2", script)
    assert refused.returncode == 2 and "--ntasks-per-node does not go with it" in refused.stderr


@pytest.mark.long  # Slurm leaves a job alone for two minutes after it was put back
@pytest.mark.parametrize("killed", [False, True])
def test_a_running_job_is_put_back_and_goes_on_from_its_checkpoint(molding, killed):
    site, desk = molding.site, molding.desk
    rival = molding.take(6)
    name = f"saves-{killed}"
    script = desk.write(f"{name}.sh", SAVES.format(name=name))
    job = desk.say("penstock", "sbatch", "--parsable", script).strip()
    site.until(lambda: molding.output(f"{name}.out") == ["began on 2 at 0"], "its start on two nodes")
    molding.bob.say("scancel", rival)
    if killed:  # as soon as it has been told to save
        site.until(lambda: molding.output(f"{name}.dat"), "its checkpoint")
        site.stop(signal.SIGKILL)
        site.start()
    site.until(lambda: len(molding.output(f"{name}.out")) > 1, "its second start", 240)
    again = molding.output(f"{name}.out")[-1].split()
    assert again[:4] == ["began", "on", "8", "at"] and int(again[4]) > 0
    assert molding.shape(job) == ("8", "15:00")
    desk.run("touch", f"{name}.end")
    site.until(lambda: molding.state(job) == "COMPLETED", "its end")
    assert "ends-first" in molding.explained(job)


def test_without_an_agent_the_script_says_what_is_asked_for(make_agent):
    desk = Desk(make_agent())
    own = desk.write("own.sh", SCRIPT.format(out="/dev/null", seconds=1, more=""))
    bare = desk.write("bare.sh", SCRIPT.format(out="/dev/null", seconds=1, more="").replace("-N4 -t 60", ""))
    shapes = []
    for script in (own, bare):
        done = desk.run("penstock", "sbatch", "--parsable", "-H", script)
        assert done.returncode == 0 and "the job will keep its size" in done.stderr
        shapes.append(desk.say("squeue", "-h", "-j", done.stdout.strip(), "-o", "%D %l").split())
    assert shapes == [["4", "1:00:00"], ["2", "1:00:00"]]


def test_it_has_what_its_owner_may_have_where_limits_are_enforced(enforcing, site_limits):
    site_limits.user("alice", MaxTRESPerJob="node=4")
    site = SlurmAgent(enforcing)
    try:
        molding = MoldingSite(site)
        rivals = [molding.take(4), molding.take(4)]
        script = molding.desk.write("limited.sh", SCRIPT.format(out="limited.out", seconds=60, more=""))
        job = molding.desk.say("penstock", "sbatch", "--parsable", script).strip()
        site.until(lambda: molding.shape(job) == ("4", "30:00"), "the fastest shape that it may have")
        molding.bob.say("scancel", *rivals)
        site.until(lambda: molding.output("limited.out") == ["began on 4 with 4"], "its start")
    finally:
        site.down()


@pytest.mark.parametrize("all_users", [True, pytest.param(False, marks=pytest.mark.long)], ids=["site", "own"])
def test_no_size_is_chosen_whose_time_limit_its_owner_may_not_have(enforcing, site_limits, all_users):
    """What an operator sets Slurm starts beyond MaxWall; what the owner sets waits for ever."""
    site_limits.user("alice", MaxWall="3")
    who, served = ("operator", {"agent": {"serve": "all"}}) if all_users else ("alice", {})
    site = SlurmAgent(enforcing, who, **served)
    try:
        molding = MoldingSite(site)
        small, rivals = molding.take(1), [molding.take(4), molding.take(3)]
        text = "#!/bin/bash\n#SBATCH -N4 -t3 --exclusive -o longest.out\n#PENSTOCK moldable=1:6m,4:3m\nsleep 60\n"
        job = molding.desk.say("penstock", "sbatch", "--parsable", molding.desk.write("l.sh", text)).strip()
        molding.bob.say("scancel", small)
        site.until(lambda: "limits" in molding.explained(job), "the verdict")
        assert (molding.shape(job), molding.state(job)) == (("4", "3:00"), "PENDING")
        molding.bob.say("scancel", *rivals)
        site.until(lambda: molding.state(job) == "RUNNING", "its start")
        assert molding.shape(job) == ("4", "3:00")
    finally:
        site.down()
