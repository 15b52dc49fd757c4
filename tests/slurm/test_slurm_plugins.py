"""The files of plugins/slurm in a real Slurm: what slurmctld and the commands refuse, and what an epilog leaves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import SlurmAgent

from malleable_cases import CASES
from penstock_lab.cluster import Cluster, ClusterSpec, up
from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300, func_only=True)]

PLUGINS = PROJECT / "plugins" / "slurm"
RELEASES = [None, *(pytest.param(name, marks=pytest.mark.release) for name in ("trixie", "sid"))]
LIMIT = 60.0


@pytest.fixture(scope="module", params=RELEASES)
def site(request, need_slurm, new_folder) -> Iterator[Cluster]:
    """A cluster whose administrator has done what docs/slurm-plugins.md says."""
    need_slurm(request.param)
    folder = new_folder(f"lua-{request.param or 'here'}")
    with tempfile.TemporaryDirectory() as place:
        files = []
        for file in PLUGINS.iterdir():
            copy = Path(place) / file.name
            copy.write_text(file.read_text().replace('"/etc/slurm/', f'"{folder}/etc/'))
            copy.chmod(file.stat().st_mode & 0o777)
            files.append(copy)
        cleanup = f"{folder}/etc/penstock-cleanup.sh"
        lines = ("JobSubmitPlugins=lua", "CliFilterPlugins=lua", f"Prolog={cleanup}", f"Epilog={cleanup}")
        it = up(ClusterSpec(nodes=2, folder=folder, release=request.param, extra=lines, beside=tuple(files)))
    yield it
    it.down()


def submit(it: Cluster, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    for _ in range(3):
        done = it.run_as("alice", ["sbatch", "--parsable", "-o/dev/null", *options], input=script)
        if done.returncode >= 0:  # 24.11's was once ended by SIGPIPE, with nothing said, on a machine in full use
            break
    return done


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def states(it: Cluster) -> set[str]:
    """What sinfo says of the nodes."""
    return set(it.run_as("root", ["sinfo", "-h", "-N", "-o", "%T"], check=True).stdout.split())


def test_slurmctld_says_what_penstock_sbatch_says(site):
    for case in CASES:
        variables = [f"--export=ALL,DMR_SIZES={case.forced}"] if case.forced else []
        done = submit(site, case.script, "--hold", *variables, *case.options)
        if case.refusal is None:
            assert done.returncode == 0 and done.stdout.strip().isdecimal(), (case, done.stderr)
            assert "penstock: " not in done.stderr or "has no effect" in done.stderr, (case, done.stderr)
        else:
            assert done.returncode != 0 and not done.stdout, (case, done.stdout)
            assert f"penstock: {case.refusal}" in done.stderr, (case, done.stderr)
    site.run_as("root", ["scancel", "--partition=batch"], check=True)


def test_commands_without_a_script(site):
    wrong, right = {"DMR_SIZES": "8:4"}, {"DMR_SIZES": "4:8"}
    step = ["srun", "-N1", "true"]
    for command in (["salloc", *step], step, ["sbatch", "--wrap=true"]):
        done = site.run_as("alice", command, env=wrong)
        assert done.returncode != 0, command
        assert "penstock: DMR_SIZES: malleable: the minimum 8 is above the maximum 4" in done.stderr
        site.run_as("alice", command, env=right, check=True)
        site.run_as("alice", command, check=True)
    site.run_as("alice", ["salloc", "env", "DMR_SIZES=8:4", *step], check=True)  # a step is no submission


@pytest.fixture
def strict(site) -> Iterator[None]:
    """A job_submit.lua that refuses jobs of workflow `strict`, until the test has ended."""
    file = site.folder / "etc" / "job_submit.lua"
    text = file.read_text()
    begin = "function slurm_job_submit(job_desc, part_list, submit_uid)\n"
    words = 'if job_desc.name:find("strict$") then slurm.log_user("no munge today: try again") return slurm.ERROR end\n'

    def put(content: str, age: float) -> None:
        file.write_text(content)
        os.utime(file, times=(time.time(), time.time() + age))  # slurmctld reads a newer one, by whole seconds

    put(text.replace(begin, begin + words), 3.0)
    yield
    put(text, 6.0)


def test_a_stage_that_a_plug_in_refuses_fails_the_workflow_with_its_words(site, strict):
    agent = SlurmAgent(site)
    try:
        agent.start()
        flow = "name: strict\nstages: [{name: s, nodes: 1, time: 60, run: 'true'}]\n"
        run = agent.finish(agent.submit(flow, "perstage"), 20)
    finally:
        agent.down()
    assert (run["phase"], run["stages"][0]["phase"]) == ("failed", "failed")
    assert "s: could not be submitted: " in run["why"] and "no munge today: try again" in run["why"], run


@pytest.fixture
def broken(site) -> Iterator[None]:
    """A penstock.lua that fails at every batch job, until the test has ended."""
    file, caller = (site.folder / "etc" / name for name in ("penstock.lua", "job_submit.lua"))
    text = file.read_text()
    begin = "local function judge_job(job)\n"
    assert begin in text

    def put(content: str, age: float) -> None:
        file.write_text(content)
        os.utime(caller, times=(time.time(), time.time() + age))  # slurmctld looks at whole seconds, and at this one

    put(text.replace(begin, f"{begin}    job.script.x.y = 1\n"), 10.0)
    yield
    put(text, 20.0)


def test_an_error_in_lua_lets_jobs_through(site, broken):
    log = site.folder / "log" / "slurmctld.log"
    known = log.read_text().count("goes through unchanged")
    done = submit(site, "#!/bin/sh\n#PENSTOCK malleable=8:4\n", "--hold")
    assert done.returncode == 0 and "penstock" not in done.stderr, done.stderr
    until(lambda: log.read_text().count("goes through unchanged") == known + 1)
    site.run_as("root", ["scancel", done.stdout.strip()], check=True)


def test_what_a_job_has_left_is_removed_and_nobody_elses(site):
    leaves = "mkdir -p /tmp/penstock-pool-$SLURM_JOB_ID-999999999-mine/deep"
    script = f'#!/bin/sh\n[ ! -e "/tmp/penstock-pool-$SLURM_JOB_ID-999999999-old" ] || exit 7\n{leaves}\n'
    job = int(submit(site, script, "--hold", "-N2").stdout)
    before, mine, theirs = (Path(f"/tmp/penstock-pool-{job}-999999999-{name}") for name in ("old", "mine", "theirs"))
    try:
        site.run_as("alice", ["mkdir", str(before)], check=True)  # as by a node that crashed while the job ran
        site.run_as("bob", ["mkdir", "-m", "700", str(theirs)], check=True)
        site.run_as("alice", ["scontrol", "release", str(job)], check=True)
        record = ["scontrol", "-o", "show", "job", str(job)]
        until(lambda: "JobState=COMPLETED" in site.run_as("root", record).stdout)
        until(lambda: states(site) == {"idle"})  # the epilogs have ended, and well
        assert theirs.is_dir()
        assert not mine.exists()
    finally:
        for folder in (before, mine, theirs):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()
