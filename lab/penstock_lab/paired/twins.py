"""Twins: two real Slurm clusters with the same queue, and the same chain of stages in both, brought there in two ways.

    python -m penstock_lab.paired.twins [--way agent] [--over plain] [--pairs 30] [--at-once 3] [--out FILE]

Each pair has two throw-away clusters of eight nodes. Another user's jobs arrive on both at the same instants and run as
long: ten at once, then one after the other, so that a queue stays. Then the same chain of four stages is submitted to
both. Run times, widths and arrivals are drawn from the pair's number. A makespan is from right before the first
submission to the last stage's end, as Slurm has it (whole seconds).

    plain     as a user does it: `sbatch --dependency=afterok`, all at once
    agent     by the agent, under `--strategy`
    submit    by the command line, `penstock submit`
    reserve   by `penstock plan --reserve`

`--ordinary`: limits, accounts and QOS are enforced, the others' jobs end at a quarter of their limits, and the chain's
user is an ordinary one, who may reserve nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from penstock.api import Job, JobSpec, JobState
from penstock.errors import PenstockError
from penstock.workflow.model import Stage, Workflow
from penstock_lab.demo.sites import Site, slurm_site
from penstock_lab.intervals import Interval, ratio_of_means

__all__ = ["WAYS", "Pair", "Rival", "chain", "judged", "measure", "rivals"]

_AT_FIRST: Final = 10
_EVERY: Final = 8.0  # s; with two nodes for half a minute each, about as much as eight nodes do
_HORIZON: Final = 600.0
_LOAD_FIRST: Final = 5.0
_LIMIT: Final = 120.0
_RIVALS_LIMIT: Final = 60.0
_QUARTERS: Final = (15, 30, 45)  # s; four times as long are whole minutes, as Slurm has limits
_LOOK: Final = 0.5
_PATIENCE: Final = 900.0


@dataclass(frozen=True, slots=True)
class Rival:
    """Somebody else's job: when it comes (s from the beginning), on how many nodes, for how long, and its limit (s)."""

    at: float
    nodes: int
    seconds: int
    limit: float = _RIVALS_LIMIT


@dataclass(frozen=True, slots=True)
class Pair:
    """Makespans (s) of the same chain in the same queue, and the waits of each one's stages after the first, added: by
    the way that is measured, and by the one that it is compared with."""

    number: int
    span: float
    over: float
    waits: float
    over_waits: float


def rivals(number: int, ordinary: bool = False) -> list[Rival]:
    """The others' jobs of a pair, in order of arrival."""
    draw = random.Random(f"rivals {number}")

    def one(at: float) -> Rival:
        if not ordinary:
            return Rival(at, 2, draw.randint(20, 40))
        seconds = draw.choice(_QUARTERS)
        return Rival(at, 2, seconds, 4.0 * seconds)

    found, at = [one(0.0) for _ in range(_AT_FIRST)], 0.0
    while (at := at + draw.uniform(0.5, 1.5) * _EVERY) < _HORIZON:
        found.append(one(at))
    return found


def chain(number: int, workdir: str) -> Workflow:
    """The chain of a pair: four stages of some 15 s."""
    draw = random.Random(f"chain {number}")
    stages: list[Stage] = []
    for i in range(4):
        seconds = draw.randint(12, 18)
        after = (stages[-1].name,) if stages else ()
        nodes = draw.choice((2, 2, 4, 6))
        stages.append(Stage(f"s{i + 1}", nodes, _LIMIT, 15.0, f"sleep {seconds}", after))
    return Workflow(f"twin{number}", tuple(stages), workdir=workdir)


@dataclass(frozen=True, slots=True)
class Terms:
    """What is compared, and where."""

    way: str
    over: str
    strategy: str
    ordinary: bool
    workflows: dict[str, object]


async def measure(number: int, terms: Terms) -> Pair:
    """One pair. PenstockError where a chain does not end."""
    up = partial(slurm_site, None, accrue_always=False, interval=1.0, workflows=terms.workflows, enforce=terms.ordinary)
    async with up() as one, up() as other:
        began = time.time()
        others = rivals(number, terms.ordinary)
        load = [asyncio.create_task(_arrive(site, others, began)) for site in (one, other)]
        try:
            await asyncio.sleep(max(began + _LOAD_FIRST - time.time(), 0.0))
            ways = (WAYS[terms.way], WAYS[terms.over])
            span, over = await asyncio.gather(*(w(s, number, terms) for w, s in zip(ways, (one, other), strict=True)))
        finally:
            for task in load:
                task.cancel()
            await asyncio.gather(*load, return_exceptions=True)
    return Pair(number, span[0], over[0], span[1], over[1])


async def _arrive(site: Site, others: Sequence[Rival], began: float) -> None:
    for rival in others:
        await asyncio.sleep(max(began + rival.at - time.time(), 0.0))
        script = f"#!/bin/sh\nsleep {rival.seconds}\n"
        await site.arena.rival(JobSpec("rival", script, rival.nodes, rival.limit, output="/dev/null"))


async def _plain(site: Site, number: int, _terms: Terms) -> tuple[float, float]:
    """As somebody without Penstock would do it."""
    jobs: list[int] = []
    began = time.time()
    for stage in chain(number, str(site.folder)).order:
        script = f"#!/bin/sh\n{stage.command}\n"
        after = f"afterok:{jobs[-1]}" if jobs else None
        spec = JobSpec(stage.name, script, stage.nodes, stage.time_limit, dependency=after, output="/dev/null")
        jobs.append(await site.own.submit(spec))
    seen: dict[int, Job] = {}
    deadline = began + _PATIENCE
    while time.time() < deadline:
        seen |= {job.id: job for job in await site.own.jobs() if job.id in jobs}
        if jobs[-1] in seen and seen[jobs[-1]].state.ended:
            return _judged(began, [seen[job] for job in jobs])
        await asyncio.sleep(_LOOK)
    raise PenstockError(f"pair {number}: the plain chain did not end")


async def _by_agent(site: Site, number: int, terms: Terms) -> tuple[float, float]:
    began = time.time()
    return await _followed(site, began, await site.arena.submit(chain(number, str(site.folder)), terms.strategy))


async def _by_command(words: Sequence[str], site: Site, number: int, _terms: Terms) -> tuple[float, float]:
    """By a command line with the chain's file, whose agent runs nothing else."""
    assert site.command is not None
    flow = chain(number, str(site.folder))
    stages = [
        {"name": s.name, "nodes": s.nodes, "time": f"{s.time_limit:g}s", "run": s.command, "after": [*s.after]}
        for s in flow.order
    ]
    path = site.folder / "chain.yaml"
    path.write_text(json.dumps({"name": flow.name, "stages": stages}), encoding="utf-8")
    began = time.time()
    done = await asyncio.to_thread(site.command, [words[0], str(path), *words[1:]])
    if done.returncode:
        raise PenstockError(f"pair {number}: {' '.join(words)}: {done.stderr.strip()}")
    (run,) = await site.arena.runs()
    return await _followed(site, began, run)


async def _followed(site: Site, began: float, run: int) -> tuple[float, float]:
    deadline = began + _PATIENCE
    while time.time() < deadline:
        state = (await site.arena.runs())[run]
        if state.phase.final:
            known = {job.id: job for job in await site.own.jobs()}
            return _judged(began, [known[stage.job or 0] for stage in state.stages])
        await asyncio.sleep(_LOOK)
    raise PenstockError(f"workflow {run} did not end")


WAYS: Final[dict[str, Callable[[Site, int, Terms], Awaitable[tuple[float, float]]]]] = {
    "plain": _plain,
    "agent": _by_agent,
    "submit": partial(_by_command, ("submit",)),
    "reserve": partial(_by_command, ("plan", "--reserve")),
}
"""How a chain comes into the queue: makespan and later waits (s)."""


def _judged(began: float, jobs: Sequence[Job]) -> tuple[float, float]:
    """Makespan, and what the later jobs waited after the end of the one before (s)."""
    waits, ready = 0.0, began
    for number, job in enumerate(jobs):
        if job.state is not JobState.COMPLETED or job.start is None or job.end is None:
            raise PenstockError(f"job {job.id}: {job.state.value}")
        if number:
            waits += max(job.start - ready, 0.0)
        ready = job.end
    return ready - began, waits


def judged(pairs: Sequence[Pair]) -> tuple[Interval, Interval]:
    """Makespans and later waits over those they are compared with: ratios of means with 95 % intervals over pairs."""
    spans = ratio_of_means([p.span for p in pairs], [p.over for p in pairs])
    return spans, ratio_of_means([p.waits for p in pairs], [p.over_waits for p in pairs])


async def _all(options: argparse.Namespace) -> list[Pair]:
    gate = asyncio.Semaphore(options.at_once)
    workflows: dict[str, object] = {"age_while_dependent": True} if options.age else {}
    terms = Terms(options.way, options.over, options.strategy, options.ordinary, workflows)

    async def one(number: int) -> Pair | None:
        async with gate:
            try:
                pair = await measure(number, terms)
            except (PenstockError, KeyError) as error:
                print(f"pair {number} is left out: {error!r}", file=sys.stderr, flush=True)
                return None
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(pair)) + "\n")
            print(f"{time.strftime('%H:%M:%S')} {pair}", file=sys.stderr, flush=True)
            return pair

    found = await asyncio.gather(*(one(n) for n in range(options.first, options.first + options.pairs)))
    return [pair for pair in found if pair is not None]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--first", type=int, default=1, help="number of the first pair")
    parser.add_argument("--at-once", type=int, default=3, help="pairs side by side")
    parser.add_argument("--way", choices=WAYS, default="agent")
    parser.add_argument("--over", choices=WAYS, default="plain", help="what it is compared with")
    parser.add_argument("--strategy", default="auto", help="of `agent`")
    parser.add_argument("--ordinary", action="store_true", help="see above")
    parser.add_argument("--age", action="store_true", help="stages may age while they depend on others")
    parser.add_argument("--out", type=Path, help="a file to add a line to for each pair")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    pairs = asyncio.run(_all(options))
    spans, waits = judged(pairs)
    print(f"{len(pairs)} of {options.pairs} pairs, {options.way} over {options.over}:")
    print(f"makespan {spans.told()}, median {statistics.median(p.span / p.over for p in pairs):.3f}")
    print(f"later waits {waits.told()}")


if __name__ == "__main__":
    main()
