"""A pool that gets its own allocations, on a real Slurm."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import COMMAND, SlurmAgent

from penstock_lab.cluster import Cluster
from waiting import until

pytest.importorskip("distributed")
pytestmark = pytest.mark.slurm

LIMIT = 150.0


class AutoPool:
    """Pools of one ordinary user whose agent runs; gone after `down`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.agent = SlurmAgent(cluster, asa={"predictor": "share-mix", "alternatives": None}).start()

    def command(self, *words: str, pool: str = "main", code: int = 0) -> str:
        done: subprocess.CompletedProcess[str] = self.cluster.run_as(
            self.agent.who,
            [*COMMAND, "pool", words[0], "--pool", pool, *words[1:]],
            env=self.agent.environment,
            cwd=self.agent.folder,
            timeout=LIMIT,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *words: str, pool: str = "main") -> Any:
        return json.loads(self.command(*words, "--json", pool=pool))

    def start(self, *order: str, pool: str = "main") -> None:
        self.command("start", "--detach", pool=pool)
        self.command("auto", *order, pool=pool)

    def submit(self, count: int, seconds: float, pool: str = "main") -> None:
        lines = [{"command": ["sleep", str(seconds)], "time": f"{seconds + 1:g}s"}] * count
        file = self.agent.folder / f"{pool}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        file.chmod(0o644)
        self.command("submit", "--file", str(file), "--larger", pool=pool)

    def rows(self) -> list[list[str]]:
        """Jobs of the user in Slurm: number, state, nodes."""
        words = ["squeue", "-h", "-u", self.cluster.users[self.agent.who], "-o", "%i %T %D"]
        return [line.split() for line in self.cluster.run_as("root", words).stdout.splitlines()]

    def log(self, pool: str = "main") -> list[dict[str, Any]]:
        file = self.agent.folder / "agent" / "pools" / pool / "tasks.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()]

    def until(self, probe: Callable[[], Any], limit: float = LIMIT) -> Any:
        return until(probe, self.said, limit)

    def said(self) -> str:
        log = self.agent.log.read_text(errors="replace")[-4000:]
        return self.command("auto") + self.command("status") + str(self.rows()) + log

    def down(self) -> None:
        for path in (self.agent.folder / "agent" / "pools").glob("*"):
            self.command("stop", pool=path.name, code=0)
        self.agent.down()
        self.cluster.run_as("root", ["scancel", f"--user={self.cluster.users[self.agent.who]}"])


@pytest.fixture
def auto(cluster: Cluster) -> Iterator[AutoPool]:
    it = AutoPool(cluster)
    yield it
    it.down()


def test_tasks_get_nodes_and_the_nodes_go_when_they_have_ended(auto: AutoPool):
    auto.start("--max-nodes", "2", "-t", "10m")
    auto.submit(40, 2)
    most, whys = 0, []

    def done() -> bool:
        nonlocal most
        most = max(most, sum(int(nodes) for _, state, nodes in auto.rows() if state == "RUNNING"))
        told = auto.json("auto")
        assert told["order"]["max_nodes"] == 2
        whys.extend(each["why"] for each in told["allocations"])
        return bool(auto.json("status")["tasks"]["complete"] == 40)

    auto.until(done)
    assert most == 2 and whys and all(whys)
    auto.until(lambda: not auto.rows())  # nobody has told them to end
    auto.until(lambda: not auto.json("auto")["allocations"])
    explained = auto.cluster.run_as(
        auto.agent.who, [*COMMAND, "explain", "pool:main"], env=auto.agent.environment
    ).stdout
    assert "expected to start" in explained
    audit = auto.cluster.run_as(auto.agent.who, [*COMMAND, "audit"], env=auto.agent.environment).stdout
    assert "pool main" in audit
    # No member was ended with a task: all that ran was complete at once.
    assert {line["outcome"] for line in auto.log() if line["op"] == "end"} == {"complete"}


@pytest.mark.long
def test_what_is_queued_goes_when_its_demand_does_and_off_is_off(auto: AutoPool):
    words = ["sinfo", "-h", "-o", "%D"]
    nodes = auto.cluster.run_as("root", words).stdout.split()[0]
    hog = ["sbatch", "--parsable", f"-N{nodes}", "--exclusive", "-t10", "-o", "/dev/null", "--wrap=sleep 500"]
    blocker = auto.cluster.run_as("bob", hog, check=True).stdout.strip()
    auto.start("--max-nodes", "3", "-t", "5m")
    auto.submit(300, 5)
    auto.until(lambda: len(auto.rows()) >= 3)
    assert {state for _, state, _ in auto.rows()} == {"PENDING"}
    auto.command("cancel", *[str(n) for n in range(1, 301)])
    auto.until(lambda: not auto.rows())
    auto.submit(300, 5)
    auto.until(lambda: auto.rows())
    auto.command("auto", "--off")
    auto.until(lambda: not auto.rows())
    auto.cluster.run_as("root", ["scancel", blocker])
    assert auto.json("auto")["on"] is False
    auto.until(lambda: "--max-nodes has it do so" in auto.command("auto"))


@pytest.mark.long
def test_an_agent_that_is_killed_goes_on_where_it_was(auto: AutoPool):
    auto.start("--max-nodes", "2", "-t", "5m")
    auto.submit(60, 2)
    auto.until(lambda: auto.rows())
    auto.agent.stop(signal.SIGKILL)
    auto.agent.start()
    auto.until(lambda: auto.json("status")["tasks"]["complete"] == 60)
    submitted = [line for line in auto.agent.log.read_text().splitlines() if "verb=submit" in line]
    assert 1 <= len(submitted) <= 4
    auto.until(lambda: not auto.rows())


@pytest.mark.long
def test_what_slurm_refuses_is_said_with_its_words(enforcing: Cluster):
    auto = AutoPool(enforcing)
    try:
        auto.start("--max-nodes", "1", "-t", "5m", "--account", "no-such-account")
        auto.submit(4, 1)
        auto.until(lambda: "Invalid account" in auto.agent.log.read_text())
        assert "1 node at most" in auto.command("auto")
        assert auto.rows() == []
        assert auto.json("status")["tasks"]["waiting"] == 4
    finally:
        auto.down()


@pytest.mark.long
def test_a_dry_run_says_what_and_does_nothing(auto: AutoPool):
    auto.command("start", "--detach")
    auto.submit(20, 2)
    told = auto.command("auto", "--dry-run", "--max-nodes", "2", "-t", "5m")
    assert "Would submit" in told
    assert "node for" in told
    assert auto.rows() == []
    assert "does not get its own allocations" in auto.command("auto")
    assert "--max-nodes says" in auto.command("auto", "-t", "5m", code=2)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_twenty_hand_overs_without_a_gap(auto: AutoPool):
    """Four pools of one node each, whose allocations last two minutes: no pool is without a running task for 5 s."""
    names = ["a", "b", "c"]
    for name in names:
        auto.start("--max-nodes", "1", "-t", "2m", pool=name)
        auto.submit(1200, 2, pool=name)
    auto.until(lambda: all(_handed_over(auto.log(name)) >= 7 for name in names), 1200.0)
    gaps = [gap for name in names for gap in _gaps(auto.log(name))]
    print("gaps", sorted(round(gap, 2) for gap in gaps))
    assert len(gaps) >= 20
    assert max(gaps) <= 5.0


def _spans(log: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """By job: when its first task began, and its last one ended."""
    began = {(line["id"], line["n"]): line for line in log if line["op"] == "start"}
    found: dict[str, tuple[float, float]] = {}
    for line in log:
        if line["op"] == "end" and (start := began.get((line["id"], line["n"]))) is not None:
            first, last = found.get(start["job"], (start["at"], line["at"]))
            found[start["job"]] = (min(first, start["at"]), max(last, line["at"]))
    return found


def _handed_over(log: list[dict[str, Any]]) -> int:
    return max(len(_spans(log)) - 1, 0)


def _gaps(log: list[dict[str, Any]]) -> list[float]:
    spans = sorted(_spans(log).values())
    gaps, until = [], spans[0][1]
    for first, last in spans[1:]:
        gaps.append(max(first - until, 0.0))
        until = max(until, last)
    return gaps


def test_the_test_sees_a_gap():
    log = [
        {"op": "start", "id": 1, "n": 1, "at": 0.0, "job": "1"},
        {"op": "end", "id": 1, "n": 1, "at": 5.0},
        {"op": "start", "id": 2, "n": 1, "at": 9.0, "job": "2"},
        {"op": "end", "id": 2, "n": 1, "at": 12.0},
    ]
    assert _gaps(log) == [4.0]
