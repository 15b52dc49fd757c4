"""A plan against what becomes of it: a reserved workflow on a real Slurm, among jobs of somebody else."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.errors import PenstockError
from penstock_lab.cluster import Cluster
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.dmr.live import cluster_of
from penstock_lab.papers.report import Chapter, Goal, Table

__all__ = ["against_plan"]

_COMMAND: Final = (sys.executable, "-c", "from penstock.cli import main; main()")
_NODES: Final = 8
_LEVELS: Final = 5
_WIDTH: Final = 4
_LATE: Final = 5.0
_OWNER: Final = "operator"
_OTHER: Final = "bob"
_POLL: Final = 2.0
_PATIENCE: Final = 600.0


def against_plan(out: Path | None, tell: Tell, runs: int) -> Chapter:
    """When every task of a reserved workflow of twenty begins, beside when it was planned to begin."""
    with cluster_of(_NODES) as cluster:
        tasks = _one(cluster, tell)
    tasks.sort(key=lambda task: (task.planned, task.name))
    rows = [asdict(task) | {"off": task.after(task.slot), "late": task.after(task.planned)} for task in tasks]
    off = sum(row["off"] is None or not -1.0 <= row["off"] <= _LATE for row in rows)
    late = sum(row["late"] is None or row["late"] > _LATE for row in rows)
    goals = [
        Goal("8 nodes", f"share of tasks that begin more than {_LATE:g} s off their slot", off / len(rows), 0.05),
        Goal("8 nodes", f"share of tasks more than {_LATE:g} s behind the first plan", late / len(rows), 0.05),
    ]
    first = tasks[0].planned
    cells = [
        [
            task.name,
            f"{task.planned - first:.0f}",
            f"{task.slot - first:.0f}",
            *map(_seconds, (row["off"], row["late"])),
        ]
        for task, row in zip(tasks, rows, strict=True)
    ]
    text = (
        f"A workflow of {len(tasks)} tasks on one or two nodes each, planned by alpha 0 and reserved by an operator on "
        f"a real Slurm of {_NODES} nodes, on which another user's jobs run and wait. Tasks end before their limit, so "
        "later ones are given earlier slots on the way: `slot` is the one that a task had when it began, which is when "
        "its script writes down the time."
    )
    columns = ("task", "planned, s after the first", "slot", "off its slot by s", "off the first plan by s")
    return Chapter("real", "Plan and reality", text, rows, [Table("Tasks", columns, cells)], goals)


@dataclass(frozen=True, slots=True)
class _Task:
    """When it was planned to begin at first, when the slot began that it had in the end, and when it began (None: it
    never did), in seconds since 1970."""

    name: str
    planned: float
    slot: float
    began: float | None

    def after(self, time: float) -> float | None:
        """How long after this time it began."""
        return None if self.began is None else self.began - time


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _one(cluster: Cluster, tell: Tell) -> list[_Task]:
    """The tasks of one workflow, after all have begun or it took too long."""
    home = cluster.home(_OWNER)
    settings = {
        "agent": {"state_dir": str(home / "provision")},
        "slurm": {"backend": "cli"},
        "provision": {"margin": 60},
    }
    for name, value in (("penstock.yaml", settings), ("flow.yaml", _workflow())):
        _must(cluster, _OWNER, ["tee", name], input=yaml.safe_dump(value))
    for minutes in (2, 4, 3, 5):
        words = ["sbatch", "-N", "3", "-t", str(minutes), "-o", "/dev/null", "--wrap", f"sleep {50 * minutes}"]
        _must(cluster, _OTHER, words)
    plan = _ask(cluster, "plan", "flow.yaml", "--alpha", "0", "--reserve", "--json")
    planned = {stage["name"]: float(stage["start"]) for stage in plan["stages"]}
    tell(f"real: {len(planned)} tasks are reserved, the last from {max(planned.values()) - time.time():.0f} s on")
    end = max(planned.values()) + _PATIENCE
    began: dict[str, float] = {}
    while len(began) < len(planned) and time.time() < end:
        for line in _ask(cluster, "hold", "tick", "--json")["changes"]:
            tell(f"real: {line}")
        began = {path.stem: float(path.read_text()) for path in home.glob("*.at") if path.read_text().strip()}
        time.sleep(_POLL)
    slots: dict[str, float] = {}
    holds = _ask(cluster, "hold", "list", "--all", "--json")["holds"]
    for hold in sorted(holds, key=lambda hold: int(hold["hold"])):
        # Named for the run and the stage, and from its second slot on by a number.
        _run, _token, name, *_number = hold["name"].split("-")
        slots[name] = float(hold["start"])
    return [_Task(name, start, slots[name], began.get(name)) for name, start in planned.items()]


def _workflow() -> dict[str, Any]:
    """Levels of tasks, each after two of the level before."""
    rng = random.Random(1)
    stages: list[dict[str, Any]] = []
    before: list[str] = []
    for level in range(_LEVELS):
        names = [f"t{level}{i}" for i in range(_WIDTH)]
        for name in names:
            run = f"date +%s.%N > {name}.at; sleep {rng.randint(5, 40)}"
            after = rng.sample(before, 2) if before else []
            stages.append({"name": name, "nodes": rng.randint(1, 2), "time": "1m", "after": after, "run": run})
        before = names
    return {"name": "bench", "stages": stages}


def _ask(cluster: Cluster, *words: str) -> Any:  # noqa: ANN401 (JSON)
    env = {"PENSTOCK_CONFIG": str(cluster.home(_OWNER) / "penstock.yaml")}
    return json.loads(_must(cluster, _OWNER, [*_COMMAND, *words], env=env))


def _must(
    cluster: Cluster, who: str, words: list[str], env: Mapping[str, str] | None = None, input: str | None = None
) -> str:
    done = cluster.run_as(who, words, env=env, input=input, timeout=120)
    if done.returncode:
        said = re.sub(r"\s+", " ", done.stderr).strip()[-300:]
        raise PenstockError(f"{words[0]} of the measurement failed: {said}")
    return done.stdout
