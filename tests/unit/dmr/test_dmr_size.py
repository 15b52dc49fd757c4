"""python -m dmr.size: a job script asks for another size, and its shell hears of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dmr import size, wire


class Agent:
    """A client of an agent that answers checks with these replies, the last for ever."""

    def __init__(self, *replies: wire.Reply | None, stands: bool = True) -> None:
        self._replies, self._stands = list(replies), stands
        self.said: list[wire.Request] = []

    def request(self, request: wire.Request, *, urgent: bool = False) -> wire.Reply | None:
        self.said.append(request)
        if isinstance(request, wire.Check):
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return (
            wire.Done() if self._stands or not isinstance(request, wire.Accept) else wire.Failure(error="stale-epoch")
        )

    def kinds(self) -> list[str]:
        return [request.op for request in self.said]


NONE = wire.CheckReply(action="none", size=1, epoch=0, nodes=("n1",))
GROWN = wire.CheckReply(action="expand", size=3, epoch=4, nodes=("n1", "n5", "n6"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "_AGAIN", 0.001)


def test_it_asks_until_the_nodes_are_there() -> None:
    agent = Agent(NONE, NONE, GROWN)
    assert size.obtain(agent, 7, 1, 3, 60.0) == ("n1", "n5", "n6")  # type: ignore[arg-type]
    assert agent.kinds() == ["check", "announce", "check", "check", "accept", "done"]
    first, done = agent.said[0], agent.said[-1]
    assert isinstance(first, wire.Check) and (first.size, first.minimum, first.maximum) == (1, 3, 3)
    assert isinstance(done, wire.Finished) and (done.epoch, done.size, done.nodes) == (4, 3, GROWN.nodes)


def test_a_shrink_is_not_announced() -> None:
    agent = Agent(
        wire.CheckReply(action="none", size=3, epoch=0, nodes=GROWN.nodes),
        wire.CheckReply(action="shrink", size=1, epoch=2, nodes=("n1",)),
    )
    assert size.obtain(agent, 7, 3, 1, 60.0) == ("n1",)  # type: ignore[arg-type]
    assert agent.kinds() == ["check", "check", "accept", "done"]


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (Agent(NONE), "3 nodes were not to be had within 0.01 s: the queue did not give them"),
        (Agent(None), "no agent answers"),
        (Agent(GROWN, stands=False), "the queue did not give them"),
        (Agent(wire.Failure(error="not-permitted", message="not your job")), "not-permitted: not your job"),
    ],
)
def test_it_says_why_not(agent: Agent, text: str) -> None:
    with pytest.raises(size.Unavailable, match=text):
        size.obtain(agent, 7, 1, 3, 0.01)  # type: ignore[arg-type]
    assert "done" not in agent.kinds()


@pytest.mark.parametrize("error", ["busy", "unavailable"])
def test_an_agent_that_cannot_now_is_asked_again(error: str) -> None:
    failure = wire.Failure(error=error, message="a moment")
    assert size.obtain(Agent(failure, None, NONE, failure, GROWN), 7, 1, 3, 60.0) == GROWN.nodes  # type: ignore[arg-type]
    # The client stays away for a while after it.
    with pytest.raises(size.Unavailable, match=f"within 0.01 s: the agent says {error}: a moment"):
        size.obtain(Agent(failure, None), 7, 1, 3, 0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", ["not-permitted", "unknown-job", "bad-request", "stale-epoch"])
def test_an_agent_that_never_will_is_not_asked_again(error: str) -> None:
    agent = Agent(wire.Failure(error=error, message="no"), GROWN)
    with pytest.raises(size.Unavailable, match=f"^the agent says {error}: no"):
        size.obtain(agent, 7, 1, 3, 60.0)  # type: ignore[arg-type]
    assert agent.kinds() == ["check"]


def test_what_the_agent_said_before_it_answered_again_is_no_reason() -> None:
    agent = Agent(wire.Failure(error="busy"), NONE)
    with pytest.raises(size.Unavailable, match="the queue did not give them"):
        size.obtain(agent, 7, 1, 3, 0.05)  # type: ignore[arg-type]


def test_the_shell_hears_of_the_nodes() -> None:
    start = {"SLURM_JOB_CPUS_PER_NODE": "4(x3)", "SLURM_NTASKS": "6", "SLURM_JOB_NUM_NODES": "3"}
    variables = "$SLURM_NNODES $SLURM_JOB_NODELIST $SLURM_JOB_CPUS_PER_NODE $SLURM_TASKS_PER_NODE $SLURM_NTASKS."
    script = f'SLURM_NTASKS=3; {size.exports(("n1", "n5"), [4, 4], start)}; echo "{variables}"'
    ran = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "2 n1,n5 4(x2) 2(x2) 4.\n"
    assert "unset SLURM_JOB_CPUS_PER_NODE SLURM_NTASKS SLURM_NPROCS" in size.exports(("n1",), [], {})


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"SLURM_JOB_ID": "7"}, "DMR_AGENT does not name an agent"),
        ({"DMR_AGENT": "127.0.0.1:1"}, "this is no Slurm job"),
        ({"SLURM_JOB_ID": "7", "DMR_AGENT": "127.0.0.1:1", "SLURM_JOB_NODELIST": "n1"}, "no agent answers"),
    ],
)
def test_a_script_ends_where_it_cannot_be(environment: dict[str, str], text: str, tmp_path: Path) -> None:
    script = f'set -e; eval "$({sys.executable} -m dmr.size 2 --wait 0)"; echo went on'
    # Slurm's commands would wait for a controller; here there are none.
    environment = {"PATH": str(tmp_path), **environment}
    ran = subprocess.run(["/bin/bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "") and text in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.parametrize("arguments", ["", "0", "two", "2 -n 0", "2 --wait nan", "2 --wait", "2 3"])
def test_a_script_ends_where_the_size_is_none(arguments: str) -> None:
    """A variable that is empty, say: eval of nothing would go on as if the size were there."""
    script = f'set -e; eval "$({sys.executable} -m dmr.size {arguments})"; echo went on'
    ran = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "") and "usage:" in ran.stderr


def test_a_script_ends_where_the_unforeseen_happens(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["size", "2"])
    monkeypatch.setattr(size, "_client", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        size.main()
    assert capsys.readouterr().out == "(exit 1)\n"
