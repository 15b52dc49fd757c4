"""How fast the queue becomes slots, prices and plans.

    python -m penstock_lab.bench.provision [--json]

CPU time on one core. The queues are made: 430 nodes, running jobs that fill them, and pending jobs of 1 to 64 nodes and
a minute to 18 hours. A quote is exact; starts are the first twenty and twenty drawn from all. Beside each stands a
reference in the same run: planning the queue anew with plain searches of the profile, which is what `starts_beside` is
checked against. Ends with 1 when a goal is missed or an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.future.plan import Claim, ClusterQueue, PendingJob, make_plan
from penstock_planning.plan.dag import Dag, one_site
from penstock_planning.plan.front import Evaluation
from penstock_planning.plan.heft import Scheduler
from penstock_planning.plan.moga import MogaSettings, moga
from penstock_planning.plan.orders import free_plans
from penstock_planning.plan.pricing import PaperPricing, quote
from penstock_planning.plan.slots import default_horizon, free_slots

NODES = 430
PRICING = PaperPricing()
T = TypeVar("T")


def a_queue(jobs: int, seed: int = 1) -> ClusterQueue:
    rng = random.Random(seed)

    def width() -> int:
        return min(NODES, int(2 ** rng.uniform(0, 6)))

    claims: list[Claim] = []
    at = 0
    while at + (count := width()) <= NODES:
        claims.append(Claim(f"r{at}", ((1 << count) - 1) << at, 0, rng.randint(60, 64800)))
        at += count
    everything = (1 << NODES) - 1
    waiting = []
    for i in range(jobs):
        procs = width()
        waiting.append(PendingJob(f"j{i}", procs, rng.randint(60, 64800), everything, procs))
    return ClusterQueue(NODES, 0, tuple(claims), tuple(waiting))


def a_workflow(tasks: int, levels: int, procs: int, seed: int = 1) -> Dag:
    """Figure 12's kind: levels of equal size, two parents each, 1,000 s and `procs` processors on average."""
    rng = random.Random(seed)
    rows: list[tuple[str, int, float, list[str]]] = []
    before: list[str] = []
    for _ in range(levels):
        level = [f"t{len(rows) + i}" for i in range(tasks // levels)]
        for name in level:
            parents = rng.sample(before, min(2, len(before)))
            rows.append((name, rng.randint(1, 2 * procs - 1), rng.randint(500, 1500), parents))
        before = level
    return one_site(rows)


def cybershake() -> Dag:
    rows: list[tuple[str, int, float, list[str]]] = [("xyz", 1, 1, []), ("pre", 1, 300, ["xyz"])]
    rows += [("cvm", 288, 2100, ["xyz"])]
    rows += [(name, 288, 86400, ["pre", "cvm"]) for name in ("chk1", "chk2")]
    rows += [(f"s{i}", 1, 519, ["chk1", "chk2"]) for i in range(4017)]
    return one_site([*rows, *((f"p{i}", 1, 1, [f"s{i}"]) for i in range(4017))])


def timed(work: Callable[[], T]) -> tuple[float, T]:
    begin = time.process_time()
    found = work()
    return time.process_time() - begin, found


def anew(queue: ClusterQueue, nodes: int, start: float, end: float) -> tuple[float, ...]:
    profile = queue.taken()
    profile.block(nodes, start, end)
    out = []
    for job in queue.waiting:
        found = profile.earliest(job.procs, job.duration, queue.now, job.within)
        assert found is not None
        profile.block(found[1], found[0], found[0] + job.duration)
        out.append(found[0])
    return tuple(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    rows: list[dict[str, object]] = []
    wrong = 0

    def report(what: str, seconds: float, goal: float | None, beside: str = "") -> None:
        nonlocal wrong
        missed = goal is not None and seconds > goal
        wrong += missed
        rows.append({"what": what, "seconds": seconds, "goal": goal, "reached": not missed, "beside": beside})

    options = parser.parse_args()
    for jobs, goal in ((1000, 0.1), (10_000, 3.0)):
        queue = a_queue(jobs)
        spent, plan = timed(lambda: make_plan(queue))  # noqa: B023
        plain = ""
        if jobs == 1000:  # of ten thousand it would take minutes
            again, slow = timed(lambda: anew(queue, 0, 0, 0))  # noqa: B023
            wrong += slow != plan.starts
            plain = f"plain {again:.2f} s, "
        cut, slots = timed(lambda: free_slots(plan.profile, default_horizon(0, plan.last_finish), PRICING))  # noqa: B023
        report(f"slots of {jobs} jobs", spent + cut, 5.0 if jobs == 10_000 else None, f"{plain}{len(slots)} slots")
        instants = plan.instants()
        drawn = [*instants[:20], *random.Random(2).sample(instants, 20)]
        times, checked = [], 0
        for i, start in enumerate(drawn):
            once, priced = timed(lambda: quote(plan, 64, 7200, start, PRICING))  # noqa: B023
            if priced.feasible:
                times.append(once)
                if i % 8 == 0 and jobs == 1000:
                    expected = anew(queue, priced.nodes, start, start + 7200)
                    pairs = zip(queue.waiting, plan.starts, expected, strict=True)
                    wrong += priced.f != sum(max(b - a, 0) * j.procs for j, a, b in pairs)
                    checked += 1
        mean = sum(times) / len(times)
        report(f"quote among {jobs} jobs, mean of {len(times)} starts", mean, goal)
        report(f"quote among {jobs} jobs, the slowest", max(times), goal, f"{checked} checked")
    plan = make_plan(a_queue(25))
    slots = free_slots(plan.profile, default_horizon(0, plan.last_finish), PRICING)
    few = sorted(slots, key=lambda s: -s.procs * s.duration)[:30]
    dag = a_workflow(100, 10, 22)
    first = ((True,) * len(few), tuple(s.extensible for s in few))
    searched = Evaluation(Scheduler(dag, few))
    spent, points = timed(lambda: moga(searched, 1, MogaSettings(start=first)))
    beside = f"{searched.count} plans, {searched.scheduled} scheduled, front of {len(points)}"
    report(f"moga, 100 tasks, {len(few)} slots", spent, 2.0, beside)
    spent, ordered = timed(lambda: list(free_plans(dag, few)))
    report(f"orders, 100 tasks, {len(few)} slots", spent, 0.5, f"{len(ordered)} plans")
    dag = cybershake()
    spent, scheduler = timed(lambda: Scheduler(dag, few))
    evaluate = Evaluation(scheduler)
    more, points = timed(lambda: moga(evaluate, 1, MogaSettings(start=first)))
    report(
        "CyberShake, 8,039 tasks, moga",
        spent + more,
        10.0,
        f"{evaluate.count} plans, {evaluate.scheduled} scheduled, front of {len(points)}",
    )
    spent, ordered = timed(lambda: list(free_plans(dag, few)))
    report("CyberShake, 8,039 tasks, orders", spent, 2.0, f"{len(ordered)} plans")
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            told = "" if row["goal"] is None else f"goal {row['goal']} s {'reached' if row['reached'] else 'MISSED'}"
            print(f"{row['what']:45} {row['seconds']:8.3f} s  {told:22} {row['beside']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
