"""Whether JupyterHub's spawner takes a server for one that has gone, with the real batchspawner and JupyterHub."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from environments import environment
from portal import PORTALS

pytestmark = [pytest.mark.long, pytest.mark.timeout(600, func_only=True)]

READY = os.environ.get("PENSTOCK_TEST_JUPYTERHUB", "")
# As tests/slurm/test_portals.py has it, so that one environment does for both.
PACKAGES = ("jupyterhub==6.1.1", "batchspawner==1.3.0", "jupyter_server>=2,<3")
POLLS = """
import asyncio, json, sys
from penstock_portals.spawner import PenstockSpawner

async def polled(said):
    spawner = PenstockSpawner(req_username="me", req_homedir="/", req_keepvars="")
    spawner.job_id = "7"

    async def run_command(*words, **more):
        return said

    spawner.run_command = run_command
    return await spawner.poll()

print(json.dumps({said: asyncio.run(polled(said)) for said in json.load(sys.stdin)}))
"""
RUNS_ON = ["SUSPENDED n1", "RESIZING n1", "SIGNALING n1", "STOPPED n1", "COMPLETING n1", "RUNNING n1", "PENDING ",
           "CONFIGURING n1", "REQUEUED ", "REQUEUE_HOLD ", "SPECIAL_EXIT "]  # fmt: skip
GONE = ["COMPLETED n1", "FAILED n1", "CANCELLED ", "TIMEOUT n1", "OUT_OF_MEMORY n1", "NODE_FAIL n1", ""]


@pytest.fixture(scope="module")
def polls():
    """What the spawner's `poll` says by what squeue has printed of its job; None: the server is not gone."""
    with environment("hub", PACKAGES, [str(PORTALS)], READY) as programs:
        done = subprocess.run(
            [str(programs / "python"), "-c", POLLS],
            env={**os.environ, "PYTHONPATH": str(PORTALS)},
            input=json.dumps([*RUNS_ON, *GONE]), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("said", RUNS_ON)
def test_a_server_whose_job_is_there_is_not_forgotten(polls, said):
    assert polls[said] is None


@pytest.mark.parametrize("said", GONE)
def test_a_server_whose_job_has_ended_is(polls, said):
    assert polls[said] == 1
