"""One MPI program, resized as it runs: grows on idle nodes, shrinks when a job waits, and computes the same bits."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.api import JobSpec
from penstock_lab.demo.sites import Ground
from penstock_lab.demo.timeline import Timeline
from penstock_lab.demo.view import View

__all__ = ["Resizing", "run_resized"]

_PATIENCE = 300.0
_RESIZER = "resizer"


@dataclass(slots=True)
class Resizing:
    """What happened: the resizes with their instants, whether the rival ran, and the two results. `jobs` are those that
    the picture shows, but for resizers, which hold nodes for a moment. `booked`: it was compared with Slurm's
    accounting, from which it differs by `off` seconds (see `accounting.difference`)."""

    resizes: list[dict[str, Any]] = field(default_factory=list)
    rival_started: bool = False
    same_bits: bool = False
    residual: float = 0.0
    sizes: list[int] = field(default_factory=list)
    timeline: Timeline | None = None
    problem: str | None = None
    jobs: list[int] = field(default_factory=list)
    booked: bool = False
    off: float | None = None


async def run_resized(ground: Ground, view: View, *, pace: Sequence[str] = ("--sweep-seconds", "0.08")) -> Resizing:
    """Run Jacobi fixed and malleable; a rival that needs all but two nodes makes the malleable one shrink.

    `pace`: options that make each of the 300 sweeps of the malleable one last, so that it still runs when all of that
    happens.
    """
    arena, own, folder, nodes = ground.arena, ground.own, ground.folder, len(ground.nodes)
    labels: dict[int, str] = {}
    timeline = Timeline(lambda job: labels.get(job.id, _RESIZER if job.dependency.startswith("expand") else "rival"))
    found = Resizing(timeline=timeline)
    environment = await arena.ask("env")
    fixed = await own.submit(_jacobi(folder, "fixed", {}, ()))
    labels[fixed] = "fixed"
    job = await own.submit(_jacobi(folder, "malleable", environment, pace))
    labels[job] = "jacobi"
    view.say(f"job {job}: Jacobi on 2 nodes, malleable up to 4; job {fixed}: the same on 2 nodes throughout")
    rival: int | None = None
    seen = 0
    deadline = arena.now() + _PATIENCE
    while arena.now() < deadline:
        at, queue = await arena.look()
        jobs = {j.id: j for j in queue}
        timeline.sample(at, queue)
        resizes = [r for r in (await arena.ask("status"))["resizes"] if r["job"] == job]
        for r in resizes[seen:]:
            view.say(f"job {job}: {r['kind']} {r['old_size']} to {r['new_size']} ranks: {r['outcome']}")
            timeline.mark(r["marks"].get("done", r["finished"]), f"{r['kind']} to {r['new_size']}")
        seen = len(resizes)
        found.resizes = resizes
        if rival is None and any(r["kind"] == "expand" and r["outcome"] == "completed" for r in resizes):
            rival = await arena.rival(JobSpec("rival", "#!/bin/bash\nsleep 4\n", nodes - 2, 60.0, output="/dev/null"))
            view.say(f"job {rival}: a rival asks for {nodes - 2} nodes")
        if rival is not None and rival in jobs and jobs[rival].running and not found.rival_started:
            found.rival_started = True
            view.say(f"job {rival}: the rival runs on {nodes - 2} nodes")
        view.show("an MPI job that is resized", list(jobs.values()), labels)
        if all(i in jobs and jobs[i].state.ended for i in (job, fixed)):
            break
        await arena.tick()
    else:
        found.problem = f"job {job} did not end within {_PATIENCE:.0f} s"
        for i in (job, fixed):
            await own.cancel(i)
    found.jobs = sorted({bar.job for bar in timeline.bars if bar.label != _RESIZER})
    _read_results(folder, found)
    return found


def _jacobi(folder: Path, name: str, environment: dict[str, str], pace: Sequence[str]) -> JobSpec:
    """300 sweeps: far from converged, so that a lost row would show."""
    command = [sys.executable, "-m", "dmr.launch", "-n", "2", "-ppn", "1", sys.executable, "-m", "dmr.examples.jacobi"]
    command += ["--rows", "192", "--cols", "192", "--sweeps", "300", "--check-every", "5"]
    command += ["--min", "2", "--max", "4", "--factor", "2", *pace]
    command += ["--out", f"{folder}/{name}.npy", "--report", f"{folder}/{name}.jsonl"]
    return JobSpec(
        name=f"jacobi-{name}",
        script=f"#!/bin/bash\nexec {shlex.join(command)}\n",
        nodes=2,
        time_limit=600.0,
        workdir=str(folder),
        output=str(folder / f"{name}.out"),
        environment=environment,
    )


def _read_results(folder: Path, found: Resizing) -> None:
    try:
        fixed, malleable = np.load(folder / "fixed.npy"), np.load(folder / "malleable.npy")
        events = [json.loads(line) for line in (folder / "malleable.jsonl").read_text().splitlines()]
    except (OSError, ValueError) as e:
        output = folder / "malleable.out"
        tail = output.read_text(errors="replace")[-2000:] if output.exists() else ""
        found.problem = found.problem or f"no result: {e}\n{tail}"
        return
    found.same_bits = fixed.tobytes() == malleable.tobytes()
    found.residual = float(events[-1].get("change", 0.0))
    found.sizes = [e["size"] for e in events if e["event"] in ("start", "resized")]
