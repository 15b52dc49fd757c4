"""An agent that says what a test wants it to: a cluster in the middle of its day, and one full of hostile names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.api import Job, JobState, Node, Partition, Reservation, Snapshot
from penstock.core.picture import picture_to_dict
from penstock.errors import AgentUnavailable
from penstock.workflow.documents import run_to_dict
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.state import StageRun, WorkflowRun
from penstock_planning.plan.pricing import PaperPricing
from penstock_planning.plan.shown import shown_slots

NASTY = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>&amp;"\'>'
MINUTE = 60.0
SLOTS = partial(shown_slots, PaperPricing)
"""What finds the free slots, at the prices of the paper."""


def job(number: int, *nodes: str, user: str = "bob", start: float = 0.0, limit: float = 3600.0, n: int = 0) -> Job:
    """A running job on these nodes, or one that waits for `n`."""
    return Job(
        id=number,
        uid=1102,
        user=user,
        account="science",
        partition="batch",
        qos="normal",
        state=JobState.RUNNING if nodes else JobState.PENDING,
        reason="None" if nodes else "Resources",
        submit=start,
        eligible=start,
        start=start if nodes else None,
        end=start + limit if nodes else None,
        time_limit=limit,
        num_nodes=len(nodes) or n,
        num_cpus=4 * (len(nodes) or n),
        nodes=nodes,
        priority=10000 - number,
    )


class Scene:
    """Answers as an agent does. What it says may be changed between two looks; `silent`: nobody answers."""

    def __init__(self, now: float, text: str = "") -> None:
        self.now = now
        self.silent = False
        self.problems: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        names = [f"n{i}" for i in range(1, 17)]
        nodes = {n: Node(n, "IDLE", 32, True, ("batch",)) for n in names}
        nodes["n16"] = replace(nodes["n16"], state="DOWN", usable=False)
        running = [
            job(4101, "n1", "n2", "n3", user="carol" + text, start=now - 22 * MINUTE, limit=50 * MINUTE),
            job(4107, "n4", "n5", "n6", "n7", user="alice", start=now - 9 * MINUTE, limit=30 * MINUTE),
            job(4110, "n8", "n9", "n10", "n11", user="alice", start=now - 31 * MINUTE, limit=80 * MINUTE),
            job(4112, "n12", user="bob", start=now - 4 * MINUTE, limit=12 * MINUTE),
        ]
        waiting = [
            job(4113, n=2, user="alice", start=now - 3 * MINUTE, limit=20 * MINUTE),
            job(4114, n=6, user="carol" + text, start=now - 2 * MINUTE, limit=25 * MINUTE),
            job(4115, n=1, user="dave", start=now - MINUTE, limit=15 * MINUTE),
        ]
        partitions = {
            "batch": Partition("batch", tuple(names), True, True, None, 3600.0, None),
            "short": Partition("short", tuple(names[:4]), True, False, None, 600.0, None),
        }
        kept = Reservation(
            "course" + text,
            now + 40 * MINUTE,
            now + 90 * MINUTE,
            ("n13", "n14"),
            frozenset({"erin"}),
            frozenset(),
            frozenset(),
            False,
        )
        self.snapshot = self._now = Snapshot(
            now, {j.id: j for j in (*running, *waiting)}, nodes, partitions, (), (kept,)
        )
        self.run = self._workflow(text)
        self.resizes = [
            {"kind": "expand", "old": 2, "new": 4, "outcome": "completed", "at": now - 24 * MINUTE},
            {"kind": "expand", "old": 4, "new": 8, "outcome": "completed", "at": now - 17 * MINUTE},
            {"kind": "shrink", "old": 8, "new": 2, "outcome": "completed", "at": now - 10 * MINUTE},
            {"kind": "expand", "old": 2, "new": 4, "outcome": "completed", "at": now - 5 * MINUTE},
        ]
        self.decisions = [
            self._decided(1, 31, "submit", "workflow 7/project", "its parents are done; it is due at once"),
            self._decided(2, 24, "expand", "job 4110", "2 idle nodes, and nobody who waits could use them"),
            self._decided(3, 17, "expand", "job 4110", "4 idle nodes, and nobody who waits could use them"),
            self._decided(4, 10, "shrink", "job 4110", "job 4107 can start on the 6 nodes that it gives back" + text),
            self._decided(
                5,
                3,
                "submit",
                "workflow 7/merge",
                "its wait is predicted to be 12 min" + text,
                "project ends in 11 min",
            ),
            self._decided(6, 1, "hold", "workflow 7/publish", "not yet due: merge is expected to start in 9 min"),
        ]

    def before(self, minutes: float) -> Snapshot:
        """The cluster as it was: the malleable job had other nodes, and other jobs ran."""
        at = self.now - minutes * MINUTE
        size = next((r["new"] for r in reversed(self.resizes) if r["at"] <= at), 2)
        breathing = {2: ("n8", "n9"), 4: ("n8", "n9", "n10", "n11"), 8: tuple(f"n{i}" for i in range(4, 12))}[size]
        gone = [
            job(4095, "n1", "n2", user="dave", start=self.now - 60 * MINUTE, limit=36 * MINUTE),
            job(4098, "n12", "n13", "n14", user="bob", start=self.now - 40 * MINUTE, limit=34 * MINUTE),
            job(4104, "n15", user="erin", start=self.now - 18 * MINUTE, limit=11 * MINUTE),
        ]
        there = [replace(j, nodes=breathing) if j.id == 4110 else j for j in self._now.jobs.values() if j.nodes]
        running = {j.id: j for j in (*there, *gone) if j.start is not None and j.start <= at < (j.end or at)}
        return replace(self._now, taken_at=at, jobs=running)

    def _workflow(self, text: str) -> WorkflowRun:
        at = self.now
        units = (
            Stage("project", 4, 1800.0, 20 * MINUTE, "srun ./project"),
            Stage("merge", 2, 1200.0, 8 * MINUTE, "./merge", after=("project",)),
            Stage("publish", 1, 600.0, 2 * MINUTE, "./publish", after=("merge",)),
        )
        stages = (
            StageRun(
                "project",
                phase=StagePhase.RUNNING,
                job=4107,
                covers=("project",),
                submitted=at - 19 * MINUTE,
                start=at - 9 * MINUTE,
                estimate=8 * MINUTE,
            ),
            StageRun(
                "merge",
                after=(0,),
                phase=StagePhase.QUEUED,
                job=4113,
                covers=("merge",),
                submitted=at - 3 * MINUTE,
                estimate=12 * MINUTE,
            ),
            StageRun(
                "publish",
                after=(1,),
                covers=("publish",),
                estimate=5 * MINUTE,
                failure=text or None,
                due=at + 12 * MINUTE,
            ),
        )
        return WorkflowRun(
            id=7,
            name="mosaic",
            flow=Workflow("mosaic", units),
            strategy="auto",
            submitted_at=at - 20 * MINUTE,
            partition="batch",
            qos="normal",
            stages=stages,
            units=units,
            by="asa_after",
        )

    def _decided(self, number: int, minutes: float, verb: str, subject: str, *reasons: str) -> dict[str, Any]:
        at = self.now - minutes * MINUTE
        return {"id": number, "at": at, "verb": verb, "subject": subject, "reasons": [["code", r] for r in reasons]}

    def decide(self, verb: str, subject: str, *reasons: str) -> None:
        """Something is decided now."""
        self.decisions.append(self._decided(len(self.decisions) + 1, 0, verb, subject, *reasons))

    def grow(self, count: int) -> None:
        """The cluster has so many nodes now."""
        at = self.now = self.now + 1.0
        more = {f"n{i}": Node(f"n{i}", "IDLE", 32, True, ("batch",)) for i in range(17, count + 1)}
        partition = replace(self.snapshot.partitions["batch"], nodes=(*self.snapshot.nodes, *more))
        partitions = {**self.snapshot.partitions, "batch": partition}
        nodes = {**self.snapshot.nodes, **more}
        self.snapshot = replace(self.snapshot, taken_at=at, nodes=nodes, partitions=partitions)

    def finish(self) -> None:
        """The workflow's first stage has ended, and its second one runs."""
        first, second, third = self.run.stages
        first = replace(first, phase=StagePhase.DONE, end=self.now)
        second = replace(second, phase=StagePhase.RUNNING, start=self.now)
        self.run = replace(self.run, stages=(first, second, third), phase=RunPhase.ACTIVE)

    def __call__(self, op: str, request: Mapping[str, Any]) -> Any:
        """What an agent answers to an operation of the dashboard."""
        self.asked.append((op, dict(request)))
        if self.silent:
            raise AgentUnavailable("no agent answers at /run/agent.sock. Start one with `penstock agent`.")
        if op == "cluster":
            snapshot = self.snapshot
            told = {"now": self.now, "name": "granite", "at": snapshot.taken_at, "problems": [], "whole": True}
            return told if request.get("seen") == snapshot.taken_at else {**told, "picture": picture_to_dict(snapshot)}
        if op == "status":
            return {
                "now": self.now,
                "problems": self.problems,
                "workflows": [run_to_dict(self.run)],
                "malleable": [],
                "resizes": [],
            }
        if op == "decisions":
            return [d for d in self.decisions if d["id"] > request["after"]]
        assert op == "sizes"
        return [self._size(4099, 20, 6, []), self._size(4110, None, 4, self.resizes)]

    def _size(self, number: int, ended: float | None, size: int, resizes: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "job": number,
            "uid": 1101,
            "started": self.now - (31 if ended is None else 45) * MINUTE,
            "ended": None if ended is None else self.now - ended * MINUTE,
            "size": size,
            "minimum": 2,
            "maximum": 8,
            "per_node": 1,
            "phase": "idle",
            "target": None,
            "companions": [],
            "note": "",
            "resizes": resizes,
        }
