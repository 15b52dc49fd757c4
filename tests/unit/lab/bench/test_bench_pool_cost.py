"""The benchmark of what a task costs runs, with few tasks, and judges what it has measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("distributed")

from penstock_lab.bench import pool_cost


def test_a_short_run_measures_the_scheduler_its_memory_and_its_log():
    words = [sys.executable, "-m", "penstock_lab.bench.pool_cost", "--tasks", "300", "--only", "pool", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=150)
    row = json.loads(done.stdout)["rows"]["pool"]
    assert row["tasks"] == 300 and row["seconds"] > 0 and row["ms_per_task"] > 0, done.stderr
    assert list(row["marks"]) == ["0%", "10%", "50%", "100%"]
    assert row["marks"]["100%"]["log_mb"] > 0.01 and row["marks"]["0%"]["memory_mb"] > 10


def rows(pool_ms: float, bare_ms: float, memory: float = 100.0, log: float = 9.0) -> dict[str, dict[str, object]]:
    marks = {"50%": {"memory_mb": 100.0, "log_mb": 9.0}, "100%": {"memory_mb": memory, "log_mb": log}}
    return {
        "pool": {"ms_per_task": pool_ms, "marks": marks},
        "bare distributed": {"ms_per_task": bare_ms},
        "client": {"submitted_per_s": 999.0},
    }


def test_a_log_that_is_too_short_to_be_made_shorter_may_grow():
    few = rows(0.3, 0.1, log=6.4)
    few["pool"]["marks"]["50%"]["log_mb"] = 4.4  # as measured with 20,000 tasks
    assert pool_cost.verdicts(few)["log flat"]


@pytest.mark.parametrize("missing", ["tqdm", "hyperqueue"])
def test_what_is_missing_of_hyperqueue_is_said(missing, monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "hyperqueue":
                raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.delitem(sys.modules, "hyperqueue", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    said = pool_cost.in_hyperqueue(None, 1)["skipped"]
    assert said == f"{missing} is not installed: pip install hyperqueue==0.27.0 tqdm"


def test_the_goal_is_what_is_more_and_what_grows_is_not_flat():
    assert [*pool_cost.verdicts(rows(0.3, 0.1)).values()] == [True, True, True, False]
    assert [*pool_cost.verdicts(rows(0.5, 0.4)).values()] == [True, True, True, False]
    assert [*pool_cost.verdicts(rows(0.31, 0.1, memory=140.0, log=18.0)).values()] == [False, False, False, False]
