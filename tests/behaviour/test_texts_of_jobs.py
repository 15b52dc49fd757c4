"""What Slurm says of which program a job runs, and how long what was asked for without a shell lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.slurm.parse import parse_version
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120, func_only=True)]

SCRIPT = "#!/bin/bash\nsleep 60\n"


def submit(slurm: Cluster, *words: str, script: str | None = None) -> int:
    said = slurm.run_as("alice", ["sbatch", "--parsable", "-o", "/dev/null", *words], input=script, check=True)
    return int(said.stdout)


def told(slurm: Cluster, *words: str) -> dict[int, dict[str, Any]]:
    said = slurm.run_as("root", ["squeue", "-a", *words, "--json"], check=True)
    return {job["job_id"]: job for job in json.loads(said.stdout)["jobs"]}


def test_a_script_from_stdin_has_no_command(slurm: Cluster) -> None:
    """A script that comes from stdin, or by --wrap, has no command, and without -J the name "sbatch" or "wrap".

    Releases seen: 22.05.8.
    Guess: the name is what the script calls first, or some path of a spooled file is the command.
    Relied on by: penstock.resize.running.learning (what only has a name may be any program).
    """
    number, wrapped = submit(slurm, script=SCRIPT), submit(slurm, "--wrap", "sleep 60")
    named = submit(slurm, "-J", "heat", script=SCRIPT)
    found = {job: (one["name"], one["command"] or "") for job, one in told(slurm).items()}
    assert [found[job] for job in (number, wrapped, named)] == [("sbatch", ""), ("wrap", ""), ("heat", "")]


def test_the_command_of_a_job_has_its_scripts_arguments(slurm: Cluster) -> None:
    """The command of a job is the absolute path of its script with the arguments, and its name that of the file.

    Releases seen: 22.05.8.
    Guess: the command is the path alone.
    Relied on by: penstock.resize.running.learning (`run.sh heat` and `run.sh sleep` are two programs).
    """
    script = slurm.home("alice") / "run.sh"
    script.write_text(SCRIPT)
    number = submit(slurm, str(script), "heat", "x y")
    one = told(slurm)[number]
    assert (one["name"], one["command"]) == ("run.sh", f"{script} heat x y")


def test_the_json_of_one_job_is_that_of_the_whole_queue_before_23_02(slurm: Cluster) -> None:
    """`squeue -j N --json` prints all jobs up to 22.05, and only that one from 23.02 on.

    Releases seen: 22.05.8.
    Guess: it prints that job.
    Relied on by: penstock.resize.running.learning (asks once for a job, beside the passes, and rests after a
    long answer).
    """
    one, other = submit(slurm, script=SCRIPT), submit(slurm, script=SCRIPT)
    found = told(slurm, "-j", str(one))
    assert one in found
    assert (other in found) == (parse_version(slurm.slurm_version) < (23, 2))


def test_nodes_asked_for_without_a_shell_outlive_who_asked(slurm: Cluster) -> None:
    """An allocation by `salloc --no-shell` stays when the process that asked for it is killed.

    Releases seen: 22.05.8.
    Guess: it ends with the client, as that of `salloc` with a shell does.
    Relied on by: penstock.resize.running.controller (companions that an agent has lent outlive its kill).
    """
    words = ["bash", "-c", "salloc --no-shell -N1 -t5 -J lent >/dev/null 2>&1; kill -9 $$"]
    assert slurm.run_as("alice", words).returncode != 0
    states = slurm.run_as("root", ["squeue", "-h", "-n", "lent", "-o", "%T"]).stdout.split()
    assert states == ["RUNNING"]
