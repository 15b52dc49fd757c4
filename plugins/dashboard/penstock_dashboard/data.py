"""What the page draws, out of what the agent says: JSON-able values, times in epoch s, None for not known or no end.

Sets of nodes are lists of [first row, how many] in the order of `cluster.nodes`. Texts are as others wrote them: the
page shows them as text and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.api import Job, Reservation, Snapshot
from penstock.future.bands import Band
from penstock.future.expected import Expected
from penstock.future.queued import Likely, within
from penstock_dashboard.past import JobHistory, NodeSpan
from penstock_dashboard.planned import PlannedStarts

__all__ = ["cluster_model", "decisions_model", "natural", "spans", "waiting_starts", "works"]

_BARS: Final = 4000
_WAITING: Final = 300
_DIGITS: Final = re.compile(r"(\d+)")
Json = dict[str, Any]


def natural(name: str) -> tuple[tuple[str, int, str], ...]:
    """A key by which n2 comes before n10."""
    parts = _DIGITS.split(name)
    numbers = [*parts[1::2], ""]
    return tuple((text, int(number or 0), number) for text, number in zip(parts[::2], numbers, strict=True))


# -- the cluster -------------------------------------------------------------------------------------------------------


def cluster_model(
    snapshot: Snapshot, outlook: PlannedStarts, past: JobHistory, work: Mapping[int, Json], likely: Likely | None = None
) -> Json:
    """Nodes, partitions, bars of who holds or will hold which nodes, and who waits.

    `work` says of jobs what the agent knows them as: `label`, `workflow` (number), `malleable`, `expected_end`, `end`.
    """
    starts = waiting_starts(snapshot, outlook, likely)
    names = sorted(snapshot.nodes, key=natural)
    rows = {name: i for i, name in enumerate(names)}
    reserved = {n for r in snapshot.reservations if r.active for n in r.nodes}
    busy = snapshot.busy_nodes()
    over = [_job_bar("past", h, None, rows, work) for h in past.over]
    bars = [_job_bar("running", h, snapshot.jobs.get(h.job), rows, work) for h in past.held]
    # The plan may be older than the picture: who has begun or is gone since is expected no more.
    planned = [(e, job) for e in outlook.jobs if (job := _waiting(e, snapshot)) is not None]
    bars += [_planned_bar(e, job, rows, work, starts) for e, job in planned]
    bars += [bar for r in snapshot.reservations if (bar := _reserved_bar(r, rows)) is not None]
    down = [n for n in names if not snapshot.nodes[n].usable and n not in busy and n not in reserved]
    partitions = sorted(snapshot.partitions.values(), key=lambda p: (not p.default, p.name))
    in_order = snapshot.pending()
    ready = {job.id for job in in_order}
    waiting = [*in_order, *(job for job in snapshot.jobs.values() if job.pending and job.id not in ready)]
    waiting.sort(key=lambda job: _first_start(job, starts).get("start", math.inf))
    return {
        "at": snapshot.taken_at,
        "nodes": [{"name": n, "state": _state(n, snapshot, busy, reserved)} for n in names],
        "down": spans(down, rows),
        "partitions": [{"name": p.name, "rows": spans(p.nodes, rows)} for p in partitions],
        # What holds nodes is never left out, or they would seem to be free.
        "bars": [*over[-max(_BARS - len(bars), 1) :], *bars],
        "slots": {
            name: [
                {"rows": spans(s.nodes, rows), "count": len(s.nodes), "start": s.start, "end": s.end, "price": s.price}
                for s in slots
            ]
            for name, slots in outlook.slots
        },
        "queue": [_queued(job, starts, work) for job in waiting[:_WAITING]],
        "planned_at": outlook.at,
        "likely": None if likely is None else {"at": likely.at, "why": likely.why},
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
    known = work.get(held.job, {})
    if job is None and end is not None and known.get("end") is not None and known["end"] > held.start:
        end = min(end, known["end"])  # Slurm says when it ended; that it is gone is seen a while later
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


def waiting_starts(snapshot: Snapshot, outlook: PlannedStarts, likely: Likely | None) -> dict[str, Json]:
    """By name (`7_0`: a task of an array), of those who wait: `start` by everybody's limits, and `low`, `likely` and
    `high`, which are missing where they are not known."""
    found = {}
    for expected in outlook.jobs:
        if _waiting(expected, snapshot) is not None:
            band = likely.bands.get(expected.name) if likely is not None else None
            found[expected.name] = {"start": expected.start, **_band(band, expected.start, snapshot.taken_at)}
    return found


def _band(band: Band | None, guaranteed: float, now: float) -> Json:
    """It may be older than the plan, and than the picture."""
    if band is None:
        return {}
    return within(Band(*(max(at, now) for at in band)), max(guaranteed, now))._asdict()


def _first_start(job: Job, starts: Mapping[str, Json]) -> Json:
    """Of a job, or of the first task of an array."""
    return starts.get(str(job.id)) or starts.get(f"{job.id}_0") or {}


def _queued(job: Job, starts: Mapping[str, Json], work: Mapping[int, Json]) -> Json:
    return {
        "job": job.id,
        "tasks": job.tasks,
        "user": job.user,
        "partition": job.partition,
        "nodes": job.least_nodes,
        "limit": job.time_limit,
        "submit": job.submit,
        "reason": job.reason,
        "start": None,
        **_known(job.id, work),
        **_first_start(job, starts),
    }


def _planned_bar(
    expected: Expected, job: Job, rows: Mapping[str, int], work: Mapping[int, Json], starts: Mapping[str, Json]
) -> Json:
    return {
        "kind": "planned",
        "name": expected.name,
        "job": job.id,
        "user": job.user,
        "partition": job.partition,
        "rows": spans(expected.nodes, rows),
        "count": len(expected.nodes),
        "end": expected.end,
        **_known(job.id, work),
        **starts[expected.name],
    }


def _known(job: int, work: Mapping[int, Json]) -> Json:
    names = ("label", "workflow", "malleable", "expected_end")
    known = work.get(job, {})
    return dict(zip(names, ("", None, False, None), strict=True)) | {
        name: known[name] for name in names if name in known
    }


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
                found[s["job"]] = {
                    "label": f"{w['name']} / {s['name']}",
                    "workflow": w["number"],
                    "expected_end": s["expected_end"] if s["start"] is not None else None,
                    "end": s["end"],
                }
    for m in malleable:
        if m["ended"] is None:
            found.setdefault(m["job"], {"label": "malleable"})["malleable"] = True
            for companion in m["companions"]:
                found.setdefault(companion, {"label": f"nodes of job {m['job']}", "malleable": True})
    return found
