"""State files with a bit of everything in them, as an agent writes it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.api import Decision, Offer, Reason, Verb
from penstock.audit.chain import ChainHead
from penstock.audit.opening import HEAD
from penstock.core.events import Event
from penstock.core.off import Off, keep_off
from penstock.core.pauses import Pause, PauseControl
from penstock.resize.running.machine import MalleableJob
from penstock.resize.waiting.model import MoldableJob, read_shapes
from penstock.state.schema import MIGRATIONS
from penstock.state.sizes import FinishedResize
from penstock.state.store import TICKED, Store
from penstock.workflow.documents import run_to_dict
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import Kept, RunPhase, StagePhase, Submitter
from penstock.workflow.run.runner import Runner
from penstock.workflow.state import Own, StageRun, WorkflowRun, units_of

AT = 1.7e9

FLOW = Workflow(
    "mosaic",
    tuple(Stage(n, 1, 60.0, 30.0, f"srun ./{n} --ümlaut 😀", a) for n, a in (("a", ()), ("b", ("a",)), ("c", ("b",)))),
    environment={"PATH": "/usr/bin"},
)


def as_stored(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found


def workflow_state(number: int, *, over: bool = False, name: str = "mosaic") -> dict[str, Any]:
    """One whose first stage has ended and whose second one has the job `10 * number`."""
    run = Runner(accrues=True).start(number, replace(FLOW, name=name), "asa", AT, partition="batch", token=f"t{number}")
    phases = (
        StagePhase.DONE,
        StagePhase.DONE if over else StagePhase.RUNNING,
        StagePhase.DONE if over else StagePhase.WAITING,
    )
    stages = tuple(
        replace(s, phase=p, attempt=1, job=10 * number + i, submitted=AT + i, start=AT + 9.25, end=AT + 19.5)
        for i, (s, p) in enumerate(zip(run.stages, phases, strict=True))
    )
    phase = RunPhase.COMPLETED if over else RunPhase.ACTIVE
    run = replace(run, stages=stages, phase=phase, ended_at=AT + 20 if over else None)
    return as_stored(run_to_dict(run))


def owners_run(number: int, stages: tuple[StageRun, ...], uid: int = 0, user: str = "me", **more: Any) -> WorkflowRun:
    """A workflow whose owner has submitted the jobs; a stage without `own` is one that is not kept back."""
    known = tuple(s if s.own is not None else replace(s, own=Own()) for s in stages)
    what: dict[str, Any] = {"name": "own", "strategy": "asa", "submitted_at": AT, "partition": "", "qos": "", **more}
    who: dict[str, Any] = {"submitter": Submitter.OWNER, "uid": uid, "user": user}
    return WorkflowRun(id=number, stages=known, units=units_of(known), **who, **what)


def owners_state(number: int, uid: int = 0) -> dict[str, Any]:
    first = StageRun("a", phase=StagePhase.DONE, job=5, start=AT, end=AT + 9)
    kept = StageRun("b", (0,), job=6, own=Own(kept=Kept.BEGIN))
    return as_stored(run_to_dict(owners_run(number, (first, kept), uid)))


def malleable_state(job: int, uid: int = 0) -> dict[str, Any]:
    offer = Offer(job, 2, 1, 16, 2, nodes=("n1", "n2"), steps_left=90, step_seconds=1.5)
    return as_stored(MalleableJob(job, uid, offer, offer.nodes, 3, started=AT).to_dict())


def fill(store: Store, decisions: int = 30, runs: int = 6) -> Store:
    """What an agent has written after a while: old and new, over and not."""
    with store.together():
        for i in range(decisions):
            reasons = (Reason("wait", f"a wait of {i} s is expected"), Reason("due", "the stage before ends soon"))
            details: Mapping[str, Any] = {"estimate": i / 7, "job": i}
            store.decisions.record(
                Decision(Verb.SUBMIT, f"workflow {1 + i % max(runs, 1)}/a{i}", reasons, details), AT + i
            )
        for number in range(1, runs + 1):
            if number % 5 == 4:
                store.runs.add(0, owners_state(number), AT, Submitter.OWNER)
            else:
                over = number % 3 == 0
                store.runs.add(0, {}, AT)
                store.runs.save(number, workflow_state(number, over=over), AT + 20 if over else None)
        store.intents.settle(store.intents.intend("submit", "workflow 1/a", {"name": "x"}, AT), "done", "", AT + 1)
        store.intents.settle(
            store.intents.intend("submit", "workflow 1/b", {"name": "x"}, AT), "unknown", "no answer", AT + 1
        )
        store.intents.intend("release", "workflow 2/b", {"job": 21}, AT)
        store.malleable.save(70, malleable_state(70), ended=AT + 5)
        store.malleable.save(71, malleable_state(71))
        for job, ended in ((80, AT + 5), (81, None)):
            store.moldable.save(job, 0, MoldableJob(job, 0, read_shapes("2:8h,4:4h")).to_dict(), ended)
        marks = {"accepted": AT, "done": AT + 3.5}
        store.resizes.add(FinishedResize(70, 1, "expand", (1, 2), "completed", marks, uid=0, nodes=1), AT + 4)
        store.resizes.add(FinishedResize(71, 2, "shrink", (2, 1), "withdrawn", {}, uid=0, nodes=0), AT + 5)
        for i in range(20):
            store.learning.add_wait(f"cluster batch normal {i % 3}", 60.0 + i, 50.0 + i, 0, AT + i, 99.5)
        store.learning.save_learned("queue-watch cluster", {"seen": [1, 2, 3], "at": AT}, AT)
        speeds = {
            "version": 1,
            "curve": [[1, 2.0], [2, 1.5]],
            "in_vain": 0,
            "used": AT,
            "runs": [[70, AT, [[1, 2.0, AT]]]],
        }
        store.learning.save_learned("speeds 1000 x:1", speeds, AT)
        store.messages.add("stage-failed 1", "mail", Event("k", "stage-failed", AT, "t", "text").to_dict(), AT)
        store.facts.remember(TICKED, str(AT))
        store.facts.remember("dmr.port", "41234")
        store.facts.remember("slurm.submissions", json.dumps([41.5, AT]))
        keep_off(store, Off(0, AT, "work on Slurm"))
        store.facts.remember(HEAD, str(ChainHead(12, "a" * 64)))
        PauseControl(store).pause(Pause("malleable", None, "batch", 0, AT, "maintenance"))
        store.inbox.post(0, "cancel", {"run": 2}, AT)
    return store


def settled(path: Path) -> Path:
    """All of it in the file itself, as an agent leaves it that ends in peace."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def of_version(path: Path, version: int) -> Path:
    """A file whose header says that version, with a workflow that goes on and a wait."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(MIGRATIONS[-1])
        db.execute(
            "INSERT INTO runs (id, uid, created, state, submitter) VALUES (1, 7, 1.0, ?, 'agent')",
            (json.dumps(workflow_state(1)),),
        )
        db.execute("INSERT INTO waits (at, key, wait, censored) VALUES (1.0, 'k', 5.0, 0)")
        db.execute(f"PRAGMA user_version={version}")
        db.commit()
    return path
