"""How fast resources are selected: 1,000 task types among 10,000 resources, beside the algorithms as they are printed.

    python -m penstock_lab.bench.matchmaking

Ends with 1 when the goal, one second for all, is missed. Times are CPU time, the median of 5 rounds. The
resources come from so many processor models as a large site has, or each is one of its own, which nothing can share.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from penstock_planning.select.catalogue import Catalogue
from penstock_planning.select.consumables import Capability, Consumable, Requirement, Resource, Task
from penstock_planning.select.cost import run_time
from penstock_planning.select.matchmaking import res_select, satisfy_task

ROUNDS = 5
GOAL = 1.0
TASKS, RESOURCES = 1_000, 10_000
ISAS = ("x86", "arm", "power", "riscv")
SIMD = ("sse4.1", "avx2", "avx512", "neon", "sve")
GPUS = ("a100", "h100", "mi300", "v100")


def resources(models: int, count: int, rng: np.random.Generator) -> list[Resource]:
    """So many resources of so many models, each with cycles, memory, I/O and in part GPUs."""
    kinds = []
    for number in range(models):
        simd = rng.choice(SIMD, rng.integers(1, 4), replace=False).tolist()
        form: dict[str, str | list[str]] = {"isa": str(rng.choice(ISAS)), "simd": simd}
        form |= {"model": f"cpu{number}", "glibc": f"2.{10 + number % 30}"}
        gpu: dict[str, str | int] = {"model": str(rng.choice(GPUS)), "revision": number}
        kinds.append((Consumable.of("compute", form), Consumable.of("io", {"fs": f"fs{number % 50}"}), gpu))
    found = []
    for number in range(count):
        compute, io, gpu = kinds[number % models]
        caps = [
            Capability(compute, float(rng.uniform(1e9, 4e9))),
            Capability(Consumable.of("memory"), capacity=float(rng.choice([64e9, 256e9, 1e12]))),
            Capability(io, float(rng.uniform(1e8, 1e10))),
        ]
        if number % 3 == 0:
            caps.append(Capability(Consumable.of("gpu", gpu), capacity=4.0))
        found.append(Resource(f"r{number}", tuple(caps)))
    return found


def tasks(count: int, rng: np.random.Generator) -> list[Task]:
    """Task types that differ in every form."""
    found = []
    for number in range(count):
        form = {"isa": [str(rng.choice(ISAS)), "x86"], "simd": rng.choice(SIMD, 2, replace=False).tolist()}
        form["glibc"] = f">=2.{10 + number % 25}"
        needs = [
            Requirement(Consumable.of("compute", form), float(rng.uniform(1e12, 1e15))),
            Requirement(Consumable.of("memory"), float(rng.choice([1e9, 1e11])), held=True),
            Requirement(
                Consumable.of("io", {"fs": [f"fs{i}" for i in range(number % 40)]} if number % 40 else {}), 1e9
            ),
        ]
        if number % 10 == 0:
            needs.append(Requirement(Consumable.of("gpu", {"model": str(rng.choice(GPUS))}), 1.0, held=True))
        found.append(Task(f"t{number}", (tuple(needs),)))
    return found


def plain(wanted: Sequence[Task], offered: Sequence[Resource]) -> list[Resource | None]:
    """The algorithms as the paper prints them."""
    chosen = []
    for task in wanted:
        viable = [res for res in offered if satisfy_task(res, task)]
        chosen.append(res_select(viable, [run_time(task, res) for res in viable], lambda seconds: -seconds))
    return chosen


def select(offered: Sequence[Resource], wanted: Sequence[Task]) -> object:
    """What is chosen from a fresh catalogue."""
    return Catalogue(offered).select(wanted)


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU, the median of the rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        rounds.append(time.process_time() - begin)
    return statistics.median(rounds)


def main() -> int:
    """Print the table; 1 when the goal is missed."""
    rng = np.random.default_rng(1)
    wanted, missed = tasks(TASKS, rng), False
    print("| what | seconds | goal | reached |\n|---|---|---|---|")
    for models in (200, RESOURCES):
        offered = resources(models, RESOURCES, rng)
        built = timed(partial(Catalogue, offered))
        # A fresh catalogue each time: nothing may be left over from the round before.
        both = timed(partial(select, offered, wanted))
        reached = both <= GOAL
        missed |= not reached
        what = f"{TASKS:,} task types among {RESOURCES:,} resources of {models:,} models"
        print(f"| {what} | {both:.2f} | {GOAL:g} | {'yes' if reached else 'NO'} |")
        print(f"| of which the index of the resources | {built:.2f} | - | - |")
        few, some = wanted[:5], offered[:500]
        begin = time.process_time()
        expected = plain(few, some)
        each = (time.process_time() - begin) / (len(few) * len(some))
        assert [r and r.name for r in Catalogue(some).select(few)] == [r and r.name for r in expected]
        print(
            f"| the algorithms as printed, all pairs at {1e6 * each:.1f} us | {each * TASKS * RESOURCES:.0f} | - | - |"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
