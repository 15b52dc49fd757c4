"""Nodes that the launcher asks of Slurm for an agent that is another user."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmr import line, wire
from dmr.command import parse
from dmr.limits import Limits
from dmr.node_requests import NodeRequests, command
from dmr.session import Progress, Session
from dmr.supervisor import Supervisor

WANTED = wire.NodeRequest(name="penstock-7-abc", node_count=3, time_limit=61.0, patience=5.0)


def test_the_request_names_what_the_agent_said_and_nothing_to_run():
    assert command(WANTED) == ["salloc", "--no-shell", "--job-name=penstock-7-abc", "--nodes=3", "--time=2"]
    full = wire.NodeRequest(
        name="penstock-7-abc",
        node_count=1,
        time_limit=1.0,
        patience=1.0,
        partition="batch",
        account="lab",
        qos="normal",
        exclusive=True,
        last=True,
    )
    whose = ["--time=1", "--partition=batch", "--account=lab", "--qos=normal"]
    assert command(full)[4:] == [*whose, "--nice=2147483645", "--begin=now+1", "--exclusive"]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "penstock-7"},
        {"name": "x"},
        {"name": "penstock-7-a b"},
        {"node_count": 0},
        {"partition": "--wrap"},
        {"qos": "a b"},
        {"time_limit": float("inf")},
        {"exclusive": 1},
        {"last": 1},
    ],
)
def test_what_is_no_request_is_refused(changes):
    good = {"name": "penstock-7-abc", "node_count": 1, "time_limit": 60.0, "patience": 5.0}
    wire.NodeRequest(**good)
    with pytest.raises(wire.WireError):
        wire.NodeRequest(**{**good, **changes})


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A salloc and a scancel that write down how they were called; salloc does what the file `do` says."""
    for name in ("salloc", "scancel"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/bash\necho {name} "$@" "[$SLURM_JOB_ID$SALLOC_QOS]" "$SLURM_CONF" >>{tmp_path}/calls\n'
            f"test {name} = scancel || . {tmp_path}/do\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


async def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


ENVIRON = {"SLURM_JOB_ID": "7", "SALLOC_QOS": "high", "SLURM_CONF": "/etc/slurm.conf"}


def test_it_is_asked_once_as_from_a_shell_and_cancelled_at_the_end(slurm):
    (slurm / "do").write_text("echo 'salloc: Granted job allocation 12' >&2\n")

    async def run():
        requests = NodeRequests({**os.environ, **ENVIRON})
        for _ in range(3):
            requests.run(WANTED)
        await until(lambda: requests._granted)
        await requests.close()

    asyncio.run(run())
    assert calls(slurm) == [
        f"{' '.join(command(WANTED))} [] /etc/slurm.conf",
        f"scancel --name={WANTED.name} 12 [] /etc/slurm.conf",
    ]


def test_a_request_that_waits_is_withdrawn_after_its_patience_and_at_the_end(slurm, caplog):
    (slurm / "do").write_text(
        f"trap 'echo withdrawn >>{slurm}/calls; echo salloc: Job allocation 12 has been revoked. >&2; exit 1' TERM\n"
        f"echo listens >>{slurm}/calls\n"
        "for i in {1..600}; do sleep 0.1; done\n"
    )

    async def run(patience, wait):
        requests = NodeRequests(os.environ)
        requests.run(wire.NodeRequest(name="penstock-7-a", node_count=1, time_limit=60.0, patience=patience))
        await until(lambda: len(calls(slurm)) >= wait)
        await requests.close()
        assert not requests._granted

    asyncio.run(run(2.0, 3))
    assert calls(slurm)[1:] == ["listens", "withdrawn"]
    assert "Slurm did not give 1 nodes for growth: salloc: Job allocation 12 has been revoked." in caplog.text
    (slurm / "calls").unlink()
    asyncio.run(run(60.0, 2))
    assert calls(slurm)[1:] == ["listens", "withdrawn"]


def test_a_request_that_is_withdrawn_while_it_starts_is_not_killed(slurm, monkeypatch):
    """salloc that is killed takes nothing back: Slurm would grant nodes that nobody uses."""
    (slurm / "do").write_text(
        f"trap 'echo withdrawn >>{slurm}/calls; exit 1' TERM\n"
        f"echo listens >>{slurm}/calls\n"
        "for i in {1..600}; do sleep 0.1; done\n"
    )
    started = asyncio.create_subprocess_exec

    async def slowly(*argv, **how):
        process = await started(*argv, **how)
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            process.kill()
            raise
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)

    async def run():
        requests = NodeRequests(os.environ)
        requests.run(wire.NodeRequest(name="penstock-7-a", node_count=1, time_limit=60.0, patience=60.0))
        await until(lambda: len(calls(slurm)) >= 2)
        await requests.close()

    asyncio.run(run())
    assert calls(slurm)[1:] == ["listens", "withdrawn"]


def test_the_launcher_asks_for_nodes_for_its_own_job_only(slurm):
    (slurm / "do").write_text("echo 'salloc: Granted job allocation 12' >&2\n")

    async def run():
        supervisor = Supervisor(parse("hydra", "mpiexec", ["-n", "1", "true"]), os.environ, 7, 10.0)
        for wanted in ({"name": "penstock-8-abc"}, {"nodes": 3}, {"name": "rm -rf"}):
            said = {"name": "penstock-7-abc", "node_count": 1, "time_limit": 60.0, "patience": 5.0, **wanted}
            with pytest.raises(line.LineError):
                await supervisor._answer({"op": "node-request", "node_request": said})
        good = {"name": "penstock-7-abc", "node_count": 1, "time_limit": 60.0, "patience": 5.0}
        assert await supervisor._answer({"op": "node-request", "node_request": good}) == {}
        await until(lambda: supervisor._node_requests._granted)
        await supervisor._node_requests.close()

    asyncio.run(run())
    assert [c.split()[0] for c in calls(slurm)] == ["salloc", "scancel"]


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name in ("DMR_SIZES", "DMR_INHIBITOR_SECONDS", "DMR_INHIBITOR_STEPS", "DMR_RANKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    it = Session()
    it.place(["a", "b"])
    return it


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ({}, True),
        ({"name": "penstock-8-abc"}, False),  # of another job
        ({"node_count": 7}, False),  # more than its maximum of 8 has use for
    ],
)
def test_rank_0_passes_on_what_its_application_has_use_for(session, monkeypatch, said, passed):
    heard: list[object] = []
    monkeypatch.setattr(line, "ask", lambda _limit, **request: heard.append(request) or {})
    wanted = {"name": "penstock-7-abc", "node_count": 6, "time_limit": 60.0, "patience": 5.0, **said}
    reply = wire.CheckReply(action="none", size=2, epoch=0, node_request=wire.NodeRequest(**wanted))
    session.client = SimpleNamespace(request=lambda _request: reply)
    for _ in range(2):
        session.decide(2, Limits(1, 8), Progress(companion=True))
    empty = dict.fromkeys(("partition", "account", "qos", "gres", "constraint"), "")
    whole = {**empty, "exclusive": False, "last": False, **wanted}
    expected = [{"op": "node-request", "node_request": whole}] if passed else []
    end = time.monotonic() + 20
    while len(heard) < len(expected) and time.monotonic() < end:
        time.sleep(0.01)
    assert heard == expected
