"""What the page draws, out of what the agent says: JSON-able values, times in epoch s, None for not known or no end.

Sets of nodes are lists of [first row, how many] in the order of `cluster.nodes`. Texts are as others wrote them: the
page shows them as text and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from penstock.api import Job, Reservation, Snapshot
from penstock.dashboard.past import JobHistory, NodeSpan
from penstock.dashboard.planned import Expected, PlannedStarts
from penstock.workflow.documents import run_from_dict
from penstock.workflow.metrics import perceived_wait
from penstock.workflow.state import StagePhase, WorkflowRun

__all__ = [
    "cluster_model",
    "decisions_model",
    "malleable_model",
    "natural",
    "resized_at",
    "spans",
    "workflows_model",
    "works",
]

_ENDED_SHOWN: Final = 10
_BARS: Final = 4000
_DIGITS: Final = re.compile(r"(\d+)")
Json = dict[str, Any]


def natural(name: str) -> tuple[tuple[str, int, str], ...]:
    """A key by which n2 comes before n10."""
    parts = _DIGITS.split(name)
    numbers = [*parts[1::2], ""]
    return tuple((text, int(number or 0), number) for text, number in zip(parts[::2], numbers, strict=True))


# -- the cluster -------------------------------------------------------------------------------------------------------


def cluster_model(snapshot: Snapshot, outlook: PlannedStarts, past: JobHistory, work: Mapping[int, Json]) -> Json:
    """Nodes, partitions, and bars of who holds or will hold which nodes.

    `work` says of jobs what the agent knows them as: `label`, `workflow` (number), `malleable`.
    """
    names = sorted(snapshot.nodes, key=natural)
    rows = {name: i for i, name in enumerate(names)}
    reserved = {n for r in snapshot.reservations if r.active for n in r.nodes}
    busy = snapshot.busy_nodes()
    over = [_job_bar("past", h, None, rows, work) for h in past.over]
    bars = [_job_bar("running", h, snapshot.jobs.get(h.job), rows, work) for h in past.held]
    # The plan may be older than the picture: who has begun or is gone since is expected no more.
    bars += [_planned_bar(e, job, rows, work) for e in outlook.jobs if (job := _waiting(e, snapshot)) is not None]
    bars += [bar for r in snapshot.reservations if (bar := _reserved_bar(r, rows)) is not None]
    down = [n for n in names if not snapshot.nodes[n].usable and n not in busy and n not in reserved]
    partitions = sorted(snapshot.partitions.values(), key=lambda p: (not p.default, p.name))
    waiting = [job for job in snapshot.jobs.values() if job.pending]
    return {
        "at": snapshot.taken_at,
        "nodes": [{"name": n, "state": _state(n, snapshot, busy, reserved)} for n in names],
        "down": spans(down, rows),
        "partitions": [{"name": p.name, "rows": spans(p.nodes, rows)} for p in partitions],
        # What holds nodes is never left out, or they would seem to be free.
        "bars": [*over[-max(_BARS - len(bars), 1) :], *bars],
        "slots": {
            name: [{"rows": spans(s.nodes, rows), "count": len(s.nodes), "start": s.start, "end": s.end} for s in slots]
            for name, slots in outlook.slots
        },
        "planned_at": outlook.at,
        "since": past.since,
        "notes": list(outlook.notes),
        "counts": {
            "nodes": len(names),
            "busy": len(busy & set(names)),
            "down": len(down),
            "running": sum(job.state.holds_nodes for job in snapshot.jobs.values()),
            "waiting": sum(max(job.tasks, 1) for job in waiting),
        },
    }


def spans(nodes: Iterable[str], rows: Mapping[str, int]) -> list[list[int]]:
    """The rows of these nodes as [first, how many]; those without a row are left out."""
    found: list[list[int]] = []
    for row in sorted({rows[n] for n in nodes if n in rows}):
        if found and row == found[-1][0] + found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([row, 1])
    return found


def _state(name: str, snapshot: Snapshot, busy: Iterable[str], reserved: Iterable[str]) -> str:
    if name in busy:
        return "busy"
    if snapshot.nodes[name].usable:
        return "idle"
    return "reserved" if name in reserved else "down"


def _job_bar(kind: str, held: NodeSpan, job: Job | None, rows: Mapping[str, int], work: Mapping[int, Json]) -> Json:
    end = held.end if job is None else job.end
    return {
        "kind": kind,
        "name": str(held.job),
        "job": held.job,
        "user": held.user,
        "partition": held.partition,
        "rows": spans(held.nodes, rows),
        "count": len(held.nodes),
        "start": held.start,
        "end": end,
        **_known(held.job, work),
    }


def _waiting(expected: Expected, snapshot: Snapshot) -> Job | None:
    job = snapshot.jobs.get(int(expected.name.partition("_")[0]))
    return job if job is not None and job.pending else None


def _planned_bar(expected: Expected, job: Job, rows: Mapping[str, int], work: Mapping[int, Json]) -> Json:
    return {
        "kind": "planned",
        "name": expected.name,
        "job": job.id,
        "user": job.user,
        "partition": job.partition,
        "rows": spans(expected.nodes, rows),
        "count": len(expected.nodes),
        "start": expected.start,
        "end": expected.end,
        **_known(job.id, work),
    }


def _known(job: int, work: Mapping[int, Json]) -> Json:
    return {"label": "", "workflow": None, "malleable": False, **work.get(job, {})}


def _reserved_bar(reservation: Reservation, rows: Mapping[str, int]) -> Json | None:
    where = spans(reservation.nodes, rows)
    if not where:
        return None
    return {
        "kind": "reserved",
        "name": reservation.name,
        "job": None,
        "user": ", ".join(sorted(reservation.users | reservation.accounts)),
        "partition": reservation.partition,
        "rows": where,
        "count": sum(n for _, n in where),
        "start": reservation.start,
        "end": reservation.end if math.isfinite(reservation.end) else None,
        **_known(-1, {}),
    }


# -- workflows ---------------------------------------------------------------------------------------------------------


def workflows_model(status: Mapping[str, Any], now: float) -> list[Json]:
    """Open workflows and the latest that have ended, newest first, out of an answer to `status`."""
    found = [_run(run_from_dict(w), now) for w in status["workflows"]]
    found.sort(key=lambda w: w["number"], reverse=True)
    ended = [w["number"] for w in found if w["final"]]
    return [w for w in found if not w["final"] or w["number"] in ended[:_ENDED_SHOWN]]


def _run(run: WorkflowRun, now: float) -> Json:
    stages: list[Json] = []
    for i, (s, unit) in enumerate(zip(run.stages, run.units, strict=True)):
        before = [stages[j] for j in s.after]
        # A job that is kept back does not stand in the queue before it is let go.
        queued = s.released if s.own is not None and s.own.kept else s.submitted
        length = unit.run_time if math.isfinite(unit.run_time) else None
        stages.append(
            {
                "name": s.name,
                "after": [p["name"] for p in before],
                "phase": "kept" if s.own is not None and s.phase is StagePhase.WAITING else s.phase.value,
                "job": s.job,
                "nodes": unit.nodes,
                "queued": queued,
                "start": s.start,
                "end": s.end,
                "estimate": s.estimate,
                "waited": perceived_wait(run, i),
                "why": s.failure,
                **_expected(s.phase, queued, s.start, s.end, s.estimate, length, before, now),
            }
        )
    return {
        "number": run.id,
        "name": run.name,
        "strategy": run.strategy if run.acting == run.strategy else f"{run.strategy}: {run.acting}",
        "phase": run.phase.value,
        "final": run.phase.final,
        "why": run.why,
        "stages": stages,
    }


def _expected(
    phase: StagePhase,
    queued: float | None,
    start: float | None,
    end: float | None,
    estimate: float | None,
    length: float | None,
    before: Sequence[Json],
    now: float,
) -> Json:
    """When a stage is expected to start and to end, as far as it has not: after its wait, and after its parents."""
    begin = start
    if begin is None and not phase.final:
        ends = [p["end"] if p["end"] is not None else p["expected_end"] for p in before]
        known = [e for e in ends if e is not None]
        if len(known) == len(ends):
            waited_out = None if queued is None or estimate is None else queued + estimate
            candidates = [now, *known, *([waited_out] if waited_out is not None else [])]
            begin = max(candidates) if known or waited_out is not None else None
    over = None
    if end is None and begin is not None and length is not None and not phase.final:
        over = max(begin + length, now)
    return {"expected_start": None if start is not None else begin, "expected_end": over}


# -- malleable jobs ----------------------------------------------------------------------------------------------------


def malleable_model(sizes: Iterable[Mapping[str, Any]], now: float) -> list[Json]:
    """Each malleable job's size in nodes over time, the newest first; see the agent's answer to `sizes`."""
    found = [_breath(one, now) for one in sizes]
    return sorted(found, key=lambda m: (m["ended"] is not None, -m["job"]))


def _breath(said: Mapping[str, Any], now: float) -> Json:
    per_node = max(int(said["per_node"]), 1)

    def nodes(size: int) -> int:
        return -(-size // per_node)

    done = [r for r in said["resizes"] if r["outcome"] == "completed"]
    now_size = nodes(said["size"])
    first = nodes(done[0]["old"]) if done else now_size
    start = said["started"] if said["started"] is not None else (done[0]["at"] if done else now)
    points = [[start, first]]
    for r in done:
        points.append([max(r["at"], points[-1][0]), nodes(r["new"])])
    until = said["ended"] if said["ended"] is not None else max(now, points[-1][0])
    if said["ended"] is None and points[-1][1] != now_size:
        points.append([until, now_size])  # by a way that leaves no record, such as `dmr.size`
    lengths = [(b[0] - a[0], a[1]) for a, b in pairwise([*points, [until, now_size]])]
    return {
        "job": said["job"],
        "started": start,
        "ended": said["ended"],
        "size": now_size,
        "minimum": nodes(said["minimum"]),
        "maximum": nodes(said["maximum"]),
        "phase": said["phase"],
        "target": nodes(said["target"]) if said["target"] else None,
        "companions": said["companions"],
        "note": said["note"],
        "points": points,
        "node_seconds": sum(seconds * size for seconds, size in lengths),
        "resizes": [
            {"at": r["at"], "kind": r["kind"], "old": nodes(r["old"]), "new": nodes(r["new"]), "outcome": r["outcome"]}
            for r in said["resizes"]
        ],
    }


# -- decisions ---------------------------------------------------------------------------------------------------------


def decisions_model(decisions: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Decisions newest first, with their reasons as sentences."""
    return [
        {
            "id": d["id"],
            "at": d["at"],
            "verb": d["verb"],
            "subject": d["subject"],
            "reasons": [text for _code, text in d["reasons"]],
        }
        for d in reversed(list(decisions))
    ]


def works(workflows: Iterable[Json], malleable: Iterable[Json]) -> dict[int, Json]:
    """By job: what the agent knows it as; see `cluster_model`."""
    found: dict[int, Json] = {}
    for w in workflows:
        for s in w["stages"]:
            if s["job"] is not None:
                found[s["job"]] = {"label": f"{w['name']} / {s['name']}", "workflow": w["number"]}
    for m in malleable:
        if m["ended"] is None:
            found.setdefault(m["job"], {"label": "malleable"})["malleable"] = True
            for companion in m["companions"]:
                found.setdefault(companion, {"label": f"nodes of job {m['job']}", "malleable": True})
    return found


def resized_at(malleable: Iterable[Json]) -> dict[int, float]:
    """When running jobs got their present size, of those that were resized."""
    return {m["job"]: m["points"][-1][0] for m in malleable if m["ended"] is None and len(m["points"]) > 1}
