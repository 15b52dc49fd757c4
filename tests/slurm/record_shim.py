"""Records what tests/unit/fronts replays: looks at a still queue, and what the real commands say of it.

`python tests/slurm/record_shim.py FOLDER-OF-A-CLUSTER` writes tests/fixtures/shim/RELEASE.json.gz.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from shim_scene import Scene, calls, freeze, make_scene, tool_calls

from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock.slurm.raw_looks import RawLooks
from penstock_fronts.squeue_format import LETTERS
from penstock_lab.cluster import Cluster

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "shim"


def looks(scene: Scene) -> dict[str, dict[str, str]]:
    """Every kind of look, as Alice."""
    user = scene.cluster.user("alice")
    budget = RequestBudget(BudgetLimits(burst=1000, per_second=1000))
    options = {"prefix": scene.cluster.prefix("alice"), "slurm_conf": scene.cluster.env["SLURM_CONF"]}
    raw = RawLooks(CliBackend(user=user.name, budget=budget, **options).runner)
    numbers = ",".join(map(str, scene.ids.values()))

    async def take() -> dict[str, dict[str, str]]:
        kinds = {
            "queue": raw.squeue(LETTERS, "-a"),
            "tasks": raw.squeue(LETTERS, "-a", "-r"),
            "numbers": raw.sacct("-j", numbers),
            "span": raw.sacct("-u", str(user.uid), "-S", "2020-01-01T00:00:00", "-E", "now"),
            "records": raw.scontrol("show", "job"),
            "lines": raw.scontrol("-o", "show", "job"),
        }
        if scene.cluster.slurm_version >= "24.05":
            kinds["states"] = raw.squeue("itT", "--only-job-state")
        found = {}
        for name, taking in kinds.items():
            look = await taking
            found[name] = {"text": look.text, "separator": look.separator}
        return found

    return asyncio.run(take())


def rows(found: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """What is in them, without the separators, which are others each time, and what passes even for suspended jobs."""
    kinds = ("queue", "tasks", "numbers", "span")
    texts = {kind: found[kind]["text"].replace(found[kind]["separator"], "|") for kind in kinds}
    return {kind: re.sub(r"\b\d+:\d\d:\d\d\b|\|\d+(?=\|)", "", text).split("\n") for kind, text in texts.items()}


def record(cluster: Cluster) -> dict[str, Any]:
    scene = make_scene(cluster)
    freeze(scene)
    users = {who: cluster.user(who).uid for who in ("alice", "bob")}
    before, last = looks(scene), None
    while rows(before) != last:
        last = rows(before)
        time.sleep(6)  # accounting is told in portions
        before = looks(scene)
    cases = []
    for program, words, variables in calls(scene):
        done = cluster.run_as("alice", [program, *words], env=variables)
        cases.append([program, words, variables, done.stdout, done.stderr, done.returncode])
    assert rows(before) == rows(looks(scene)), "something has moved"
    return {
        "release": cluster.slurm_version,
        "users": {cluster.users[who]: uid for who, uid in users.items()},
        "looks": before,
        "tools": tool_calls(scene, cluster.users["alice"]),
        "cases": cases,
    }


if __name__ == "__main__":
    found = record(Cluster.load(Path(sys.argv[1])))
    FIXTURES.mkdir(exist_ok=True)
    path = FIXTURES / f"{'.'.join(found['release'].split('.')[:2])}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
