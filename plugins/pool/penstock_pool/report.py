"""What a pool tells of itself, as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.errors import NotFound
from penstock_pool.machine import Machine, TaskEntry
from penstock_pool.model import TaskPhase

__all__ = ["ended", "number_of", "status", "tasks"]

_MOST: Final = 100_000


def status(
    machine: Machine, name: str, now: float, cpu: float, problem: str, others: Mapping[str, int]
) -> dict[str, Any]:
    """The whole: counts, members, what waits in vain. `cpu` is the CPU time (s) of the scheduler's process so far,
    `others` are counts of tasks that clients have given to Dask itself, running and waiting."""
    busy, cores = machine.busy()
    return {
        "pool": name,
        "now": now,
        "problem": problem,
        "cpu": cpu,
        "tasks": machine.counts(),
        "others": dict(others),
        "cores": cores,
        "busy": busy,
        "faults": machine.faults,
        "members": [
            {
                "address": address,
                "node": s.member.node,
                "job": s.member.job,
                "cores": s.member.capacity.cores,
                "memory": s.member.capacity.memory,
                "gpus": s.member.capacity.gpus,
                "left": None if s.member.ends is None else s.member.ends - now,
                "joined": s.joined,
                "draining": s.draining,
                "running": len(s.running),
                "busy": machine.busy_cores(s),
                "used": sum(used or 0.0 for used in s.running.values()),
            }
            for address, s in machine.stations.items()
        ],
        "unreachable": [
            {"cores": s.cores, "memory": s.memory, "gpus": s.gpus, "seconds": s.seconds, "tasks": count}
            for s, count in machine.unreachable(now).items()
        ],
    }


def tasks(machine: Machine, wish: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tasks by `ids` (numbers or names), or all, of these `phases` if given; at most `most`, the last ones."""
    if wish.get("ids") is not None:
        entries = [machine.entries[number_of(machine, one)] for one in wish["ids"]]
        if phases := wish.get("phases"):
            entries = [e for e in entries if e.phase in phases]
        return [_entry(e) for e in entries[-int(wish.get("most", len(entries) + 1)) :]]
    most = int(wish.get("most", _MOST))
    return [_entry(e) for e in machine.entries.of_phases(wish.get("phases") or list(TaskPhase), most)]


def ended(machine: Machine, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """How tasks have ended; of what is not kept any more nothing."""
    entries = [entry for number in numbers if (entry := machine.entries.get(number)) is not None]
    return [{"id": entry.id, "phase": str(entry.phase), "why": entry.why} for entry in entries]


def number_of(machine: Machine, said: object) -> int:
    """The number of a task by its number or name. Raises NotFound."""
    number = machine.find(str(said))
    if number is None and str(said).isdecimal():
        number = int(str(said))
        if machine.forgotten(number):
            raise NotFound(f"task {number} has ended and is not kept any more (pool.keep, pool.keep_tasks)")
    if number not in machine.entries or number is None:
        raise NotFound(f"the pool has no task {str(said)[:60]!r}")
    return number


def _entry(entry: TaskEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.task.name if entry.task.job is None else entry.task.job.name,
        "workflow": entry.task.workflow,
        "command": list(entry.task.argv),
        "phase": str(entry.phase),
        "last": None if entry.last is None else str(entry.last),
        "attempt": entry.attempt,
        "failed": entry.failed,
        "lost": entry.lost,
        "node": entry.node,
        "job": entry.job,
        "submitted": entry.submitted,
        "started": entry.started,
        "ended": entry.ended,
        "code": entry.code,
        "why": entry.why,
        "wall": entry.use.wall,
        "cpu": entry.use.cpu,
        "memory": entry.use.memory,
    }
