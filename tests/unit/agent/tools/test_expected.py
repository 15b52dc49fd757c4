"""What is asked about the wait of a job script, and what will be ready by then."""

from __future__ import annotations

import math

import pytest

from penstock.errors import AgentUnavailable, UserError
from penstock.tools import expected
from penstock.tools.expected import ExpectedWait, geometry_of_script, ready_within


def test_what_a_script_asks_for():
    script = (
        "#!/bin/bash\n#SBATCH -J dask-worker\n#SBATCH -p batch -A them\n#SBATCH -N 2 --time=00:05:00 -C 'big&fast'\n"
    )
    assert geometry_of_script(script + "srun x\n#SBATCH -p late\n") == {
        "nodes": 2,
        "time_limit": 300.0,
        "partition": "batch",
        "qos": "",
        "account": "them",
        "features": "big&fast",
    }
    assert geometry_of_script("")["time_limit"] == 3600.0
    assert geometry_of_script("#SBATCH -N 2-4 -t UNLIMITED\n")["nodes"] == 1
    with pytest.raises(UserError, match="cannot be read"):
        geometry_of_script("#SBATCH -p 'x\n")


def test_the_agent_is_asked_now_and_then(monkeypatch):
    now, asked = [0.0], []
    answers = [{"outlook": {"estimate": 40}}, {"outlook": None}, AgentUnavailable("none")]

    def answer(_config, op, arguments, _timeout):
        asked.append((op, arguments))
        told = answers.pop(0)
        if isinstance(told, Exception):
            raise told
        return told

    monkeypatch.setattr(expected, "ask_agent", answer)
    wait = ExpectedWait({"nodes": 1}, lambda: now[0])
    assert (wait.seconds(), wait.seconds()) == (40.0, 40.0)
    assert asked == [("waits", {"geometry": {"nodes": 1}})]
    for _ in range(2):
        now[0] += 16
        assert wait.seconds() is None


def test_what_is_ready_by_then():
    left = {"a": 30.0, "b": 90.0, "c": math.inf}
    waiting = {"1": ["a"], "2": ["a", "b"], "3": ["c"], "4": ["d"], "5": []}
    found = [ready_within(waiting, left, wait) for wait in (10.0, 30.0, 100.0)]
    assert found == [{"5"}, {"1", "5"}, {"1", "2", "5"}]
