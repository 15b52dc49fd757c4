"""How long one pass over many active workflows takes: the runner alone, and the whole controller with its store.

    python -m penstock_lab.bench.workflows [--runs 1000] [--stages 8] [--strategy asa|eager|handover] [--rounds 7]

Every workflow has one stage that runs, one in the queue behind it and others that wait; the queue holds as many jobs of
other users. A pass is measured when nothing is new (the usual one), and when every running stage has just ended, so
that each workflow has something to do; the answers of Slurm cost nothing here. Rounds compare two passes over new
looks, in each of which ten workflows have changed: one that steps over all, the reference, and the usual one. Acts are
journaled (two writes, and one for the run's new state, each durable): where a thousand jobs are submitted or changed in
one pass, that is counted. `--json` prints all as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog

from penstock.api import Geometry, Job, JobSpec, JobState, Snapshot
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.state.store import Store
from penstock.values.waits import Estimate, Observation
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import StagePhase, Submitter
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.run.instructions import SlurmView
from penstock.workflow.run.runner import Runner
from penstock.workflow.strategy import Rules

NOW = 1_000_000_000.0
GOAL = 0.2


class Waits:
    """Stands for the store of learners, which has a benchmark of its own."""

    def predict(self, geometry: Geometry) -> Estimate:
        return Estimate(0, 30.0)

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        pass


class Slurm:
    """Takes every job at once."""

    def __init__(self) -> None:
        self.last = 10_000_000
        self.taken: dict[int, str] = {}

    async def submit(self, spec: JobSpec) -> int:
        self.last += 1
        self.taken[self.last] = spec.name
        return self.last

    async def find(self, name: str, uid: int | None = None) -> list[int]:
        return [number for number, given in self.taken.items() if given == name]

    async def release(self, job: int) -> None:
        pass

    async def update(self, job: int, **changes: object) -> None:
        pass


def job(number: int, state: str, **more: Any) -> Job:
    values: dict[str, Any] = {
        "uid": 1, "user": "ann", "account": "", "partition": "batch", "qos": "", "reason": "Priority", "submit": NOW,
        "eligible": NOW, "start": None, "end": None, "time_limit": 600.0, "num_nodes": 1, "num_cpus": 1, "nodes": (),
        "priority": 100,
    }  # fmt: skip
    return Job(id=number, state=JobState(state), **{**values, **more})


def flow(stages: int) -> Workflow:
    return Workflow(
        "w", tuple(Stage(f"s{i}", 1, 600, 300, "srun ./x", (f"s{i - 1}",) if i else ()) for i in range(stages))
    )


def picture(runs: int, at: float, ended: bool) -> Snapshot:
    jobs: dict[int, Job] = {}
    for i in range(1, runs + 1):
        state = "COMPLETED" if ended else "RUNNING"
        jobs[i] = job(i, state, start=NOW, end=at if ended else NOW + 600, nodes=(f"n{i}",))
        jobs[runs + i] = job(
            runs + i, "PENDING", eligible=None, dependency="" if ended else f"afterok:{i}(unfulfilled)"
        )
        jobs[2 * runs + i] = job(2 * runs + i, "PENDING")
    return Snapshot(at, jobs, {}, {})


def started(runner: Runner, runs: int, stages: int, strategy: str) -> list[Any]:
    """Runs whose first stage runs and whose second is in the queue."""
    made = []
    workflow = flow(stages)
    for i in range(1, runs + 1):
        run = runner.start(i, workflow, strategy, NOW, partition="batch", token="abc")
        for number, place in ((i, 0), (runs + i, 1)):
            view = SlurmView(NOW + place, {i: job(i, "RUNNING", start=NOW, nodes=(f"n{i}",))} if place else {})
            run = runner.step(run, view, NOW + 290 * place, Waits().predict).run
            assert run.stages[place].phase is StagePhase.INTENDED, run.stages[place]
            run = runner.submitted(run, f"s{place}", number, NOW)
        made.append(run)
    return made


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def step_all(runner: Runner, pairs: Iterable[tuple[Any, SlurmView]]) -> None:
    """One step of every run, in the same state as before."""
    for run, view in pairs:
        runner.step(run, view, NOW + 291, Waits().predict)


async def _nobody(_geometries: object) -> bool:
    """No expert has anything to say of a wait."""
    return False


async def whole(folder: Path, runs: int, stages: int, strategy: str, rounds: int) -> dict[str, float]:
    """Passes of the controller, over a store on disk."""
    runner = Runner(accrues=True)
    store = Store(folder / "bench.db")
    clock: Any = SimpleNamespace(at=NOW + 290)
    clock.now = lambda: clock.at
    observer: Any = SimpleNamespace(last=None, min_interval=1.0, want=lambda: None)
    fake: Any = Slurm()
    models: Any = Waits()
    site: Any = SimpleNamespace(
        config=Config,
        reader=fake,
        observer=observer,
        executor=Executor(store, clock, fake),
        store=store,
        clock=clock,
        waits=SimpleNamespace(model_store=models, prepare=_nobody),
        wake=lambda _why: None,
    )
    controller = WorkflowController(site, runner, Rules())
    with store.together():
        for run in started(runner, runs, stages, strategy):
            store.runs.add(1, {}, NOW, Submitter.AGENT)
            controller.book.save(run)
    found = {}

    async def a_pass(at: float, *, ended: bool = False, changed: range = range(0)) -> float:
        snapshot = picture(runs, NOW + at, ended)
        late.update(i for i in changed if i <= runs)
        snapshot.jobs.update({n: job(n, "PENDING", eligible=None) for n in fake.taken})  # type: ignore[attr-defined]
        for i in late:
            snapshot.jobs[runs + i] = replace(snapshot.jobs[runs + i], eligible=NOW + 1)  # type: ignore[index]
        clock.at, observer.last = NOW + at + 0.1, snapshot
        begin = time.perf_counter()
        await controller.reconcile(snapshot)
        return time.perf_counter() - begin

    late: set[int] = set()
    for number in range(3):
        await a_pass(290 + 0.1 * number)
    found["nothing new"] = await a_pass(291)
    for number in range(rounds):
        for name in ("full", "ten changed"):
            at = 291.5 + number + 0.5 * (name != "full")
            if name == "full":
                controller.full_pass()
            first = 1 + 10 * (2 * number + (name == "full"))
            found[f"{name} {number}"] = await a_pass(at, changed=range(first, first + 10))
    found["all have ended"] = await a_pass(299, ended=True)
    store.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--strategy", choices=("asa", "eager", "handover"), default="asa")
    parser.add_argument("--rounds", type=int, default=7, help="at most seven: then the running stages are late")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    runner = Runner(accrues=True)
    runs = started(runner, chosen.runs, chosen.stages, chosen.strategy)
    rows = {}
    for name, ended in (("nothing new", False), ("all have ended", True)):
        jobs = picture(chosen.runs, NOW + 291, ended).jobs
        views = [SlurmView(NOW + 291, {n: jobs[n] for n in run.jobs()}) for run in runs]
        pairs = list(zip(runs, views, strict=True))
        rows[f"runner, {name}"] = timed(partial(step_all, runner, pairs))
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(whole(Path(folder), chosen.runs, chosen.stages, chosen.strategy, chosen.rounds))
    full, part = ([measured.pop(f"{name} {i}") for i in range(chosen.rounds)] for name in ("full", "ten changed"))
    rows |= {f"controller, {name}": seconds for name, seconds in measured.items()}
    rows |= {"controller, full": statistics.median(full), "controller, ten changed": statistics.median(part)}
    ratios = [one / other for one, other in zip(part, full, strict=True)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if chosen.json:
        told = {"runs": chosen.runs, "stages": chosen.stages, "seconds": rows, "memory_mb": memory}
        print(json.dumps({**told, "ten changed, of a full pass": ratios}))
        return
    for name, seconds in rows.items():
        print(f"{name:32} {seconds * 1000:8.0f} ms")
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f"{'ten changed, of a full pass':32} {middle:8.2f} ({low:.2f} to {high:.2f}), goal {GOAL:g}")
    print(f"{'peak memory':32} {memory:8.0f} MB")


if __name__ == "__main__":
    main()
