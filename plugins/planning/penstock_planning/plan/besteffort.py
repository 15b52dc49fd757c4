"""What a workflow may expect of the queue alone: every task is submitted when those it waits for have ended (4.7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from penstock.errors import Infeasible
from penstock.future.plan import QueueSchedule
from penstock_planning.plan.dag import Dag, rank_order
from penstock_planning.plan.heft import Schedule, ScheduledTask
from penstock_planning.plan.pricing import Pricing, plain_price

__all__ = ["Later", "best_effort", "when_parents_end"]


class Later(NamedTuple):
    """A task that cannot be submitted yet, and when it can be."""

    at: float


def when_parents_end(dag: Dag, now: float, submit: Callable[[float, int], float | Later]) -> float:
    """Call `submit(when, task)` for every task when its parents have ended, of those ready at once by rank, and again
    at the instant that it puts a task off to; it tells the task's end. The last of all ends, `now` without any."""
    place = {task: at for at, task in enumerate(rank_order(dag))}
    left = [len(dag.into(i)) for i in range(len(dag.tasks))]
    children: list[list[int]] = [[] for _ in dag.tasks]
    for edge in dag.edges:
        children[edge.parent].append(edge.child)
    ready_at, last = [now] * len(dag.tasks), now
    ready = [(now, place[i], i) for i, count in enumerate(left) if not count]
    heapify(ready)
    while ready:
        when, _, i = heappop(ready)
        end = submit(when, i)
        if isinstance(end, Later):
            heappush(ready, (end.at, place[i], i))
            continue
        last = max(last, end)
        for child in children[i]:
            ready_at[child] = max(ready_at[child], end)
            left[child] -= 1
            if not left[child]:
                heappush(ready, (ready_at[child], place[child], child))
    return last


def best_effort(dag: Dag, plan: QueueSchedule, pricing: Pricing, within: int = -1) -> Schedule:
    """The tasks, in order of rank, each in the first hole from the end of its parents on.

    Nobody else is thought to come to the queue, so it is a lower bound of what will happen. Raises Infeasible, naming
    the task, if there is no hole for one. Each costs the plain price of what it takes: it delays nobody.
    """
    profile, now = plan.profile.copy(), plan.queue.now
    placed: list[ScheduledTask] = []

    def submit(when: float, i: int) -> float:
        task = dag.tasks[i]
        found = profile.earliest(task.procs, task.durations[0], when, within & plan.queue.everything)
        if found is None:
            raise Infeasible(f"task {task.name}: {task.procs} processors are never free for it")
        start, nodes = found
        end = start + task.durations[0]
        profile.block(nodes, start, end)
        placed.append(ScheduledTask(i, 0, start, end, nodes))
        return end

    last = when_parents_end(dag, now, submit)
    cost = math.fsum(plain_price(pricing, dag.tasks[p.task].procs, p.start, p.end - p.start) for p in placed)
    return Schedule(last - now if last < math.inf else math.inf, cost, tuple(placed))
