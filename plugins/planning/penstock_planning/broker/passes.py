"""One pass over a submitted bag: read what became of it, take up what was left half done, move what would end sooner
elsewhere. Any command may make a pass at any time, one after the other (`Bags.locked`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.api import Job
from penstock.errors import Infeasible, LeftAlone, NotFound, PenstockError
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import Assessed, ClusterMarket, assess
from penstock_planning.broker.bags import Array, BagRun, Bags
from penstock_planning.broker.choice import Preference, choose, lanes_of
from penstock_planning.broker.clusters import ClusterView
from penstock_planning.broker.follow import Progress, given_way, read_array, read_records, rows_of, summary, waiting_in
from penstock_planning.broker.place import place
from penstock_planning.select.correction import Corrections
from penstock_planning.select.spread import Hysteresis, JobMove, Pending, rebalance

__all__ = ["Pass", "run_pass"]

Save = Callable[[], None]
_BY: Final = Preference()

_LOOKED_FOR: Final = 120.0
"""Seconds after which a submission that nobody answered, and that no job bears the name of, was none."""


@dataclass(slots=True)
class Pass:
    """What a pass found and did."""

    progress: Progress
    moves: list[JobMove] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Round:
    """What one pass is made with: `save` writes the bag down, `now` is the earliest of its clusters' clocks."""

    run: BagRun
    market: ClusterMarket
    acts: BagActs
    learned: Corrections
    save: Save
    now: float


async def run_pass(
    bags: Bags,
    run: BagRun,
    market: ClusterMarket,
    acts: BagActs,
    hysteresis: Hysteresis | None,
    by: Preference = _BY,
) -> Pass:
    """Make a pass; the bag and what it taught are written down. `acts` are on this bag. `hysteresis` None:
    nothing is moved; nor are tasks that were all sent to the best resource (`by.alone`)."""
    learned, problems = bags.corrections(), list(market.problems)
    now = min(view.backend.now() for view in market.views.values())

    def save() -> None:
        bags.save(run)

    this = _Round(run, market, acts, learned, save, now)
    for array in list(run.arrays):
        view = market.views.get(array.cluster)
        if view is None:
            continue
        try:
            await _read(this, array, view)
        except PenstockError as e:
            problems.append(f"{array.name} on {array.cluster}: {e}")
    bags.save_corrections(learned)
    save()
    moves: list[JobMove] = []
    progress = _progress(run, market)
    if progress.waiting or progress.unplaced:
        moves = await _improve(this, None if by.alone else hysteresis, by, problems)
        # What was placed or moved waits, though not yet in this look at the clusters.
        left = len(run.unplaced)
        progress = replace(progress, waiting=progress.waiting + progress.unplaced - left, unplaced=left)
    if not (progress.waiting or progress.running or progress.unplaced):
        run.finished = run.finished or now
    save()
    return Pass(progress, moves, problems)


def _progress(run: BagRun, market: ClusterMarket) -> Progress:
    return summary(run, {name: list(view.snapshot.jobs.values()) for name, view in market.views.items()})


async def _read(this: _Round, array: Array, view: ClusterView) -> None:
    run, save = this.run, this.save
    backend, jobs = view.backend, list(view.snapshot.jobs.values())
    if array.job is None:
        found = await backend.find(array.name) or [r.id for r in await backend.history(name=array.name)]
        if found:
            array.job = min(found)
        elif this.now - array.submitted > _LOOKED_FOR:
            run.arrays.remove(array)
            run.unplaced = sorted([*run.unplaced, *(task for piece in array.pieces for task in piece)])
        save()
        return
    if array.held:
        jobs = list(await backend.jobs())
        run.unplaced = sorted([*run.unplaced, *_left(array, jobs)])
        save()
        await _let_go(array, view, this.acts, jobs)
        save()
    over = all(str(i) in array.states for i in array.alive)
    if not over and not read_array(array, jobs, run.bag.task.name, this.learned):
        read_records(array, jobs, await backend.history(name=array.name), run.bag.task.name, this.learned)
    run.unplaced = sorted([*run.unplaced, *given_way(array)])


async def _improve(this: _Round, hysteresis: Hysteresis | None, by: Preference, problems: list[str]) -> list[JobMove]:
    run, market, now = this.run, this.market, this.now
    own = {c: [a.job for a in run.arrays if a.cluster == c and a.job is not None] for c in market.views}
    count = sum(len(a.pieces[i]) for a in run.arrays for i in a.alive) + len(run.unplaced)
    assessed = await assess(market, run.bag, count, this.learned, own=own)
    if run.unplaced:
        jobs = choose(run.bag, len(run.unplaced), assessed, by).jobs
        problems += await place(run, assessed, jobs, this.save, now, this.acts)
        return []
    if hysteresis is None:
        return []
    lanes = lanes_of(assessed, by.quantile)
    waiting, where = _pending(run, market, {a.candidate.name: a for a in assessed}, hysteresis, now)
    moves = rebalance(waiting, lanes, hysteresis)
    for array, indices in _by_array(moves, where):
        try:
            taken = await _withdraw(this, array, indices)
        except PenstockError as e:
            problems.append(f"{array.name} on {array.cluster}: {e}")
            continue
        # Where each goes: its move says so; what had begun meanwhile stays.
        for to in dict.fromkeys(m.to for m in moves if where[m.key][0] is array and where[m.key][1] in taken):
            going = [i for i in taken if any(m.to == to and where[m.key] == (array, i) for m in moves)]
            tasks = sum(len(array.pieces[i]) for i in going)
            per = next(lane.per for lane in lanes if lane.name == to)
            run.moves.append({"at": now, "from": array.lane, "to": to, "tasks": tasks})
            problems += await place(run, assessed, {to: -(-tasks // per)}, this.save, now, this.acts)
    return moves


def _pending(
    run: BagRun, market: ClusterMarket, assessed: Mapping[str, Assessed], hysteresis: Hysteresis, now: float
) -> tuple[list[Pending], dict[int, tuple[Array, int]]]:
    """The jobs that wait and may move, and which task of which array each is."""
    found: list[Pending] = []
    where: dict[int, tuple[Array, int]] = {}
    for array in run.arrays:
        view, here = market.views.get(array.cluster), assessed.get(array.lane)
        if view is None or here is None or array.job is None or now - array.submitted < hysteresis.seconds:
            continue
        indices = waiting_in(array, list(view.snapshot.jobs.values())) or []
        starts = here.own.get(array.job, ())
        for index, start in zip(indices, starts, strict=False):
            key = len(found)
            where[key] = (array, index)
            found.append(Pending(key, array.lane, len(array.pieces[index]), start, here.lane.longest(len(indices))))
    return found, where


def _by_array(moves: list[JobMove], where: Mapping[int, tuple[Array, int]]) -> list[tuple[Array, list[int]]]:
    found: dict[int, tuple[Array, list[int]]] = {}
    for move in moves:
        array, index = where[move.key]
        found.setdefault(id(array), (array, []))[1].append(index)
    return list(found.values())


async def _withdraw(this: _Round, array: Array, wanted: list[int]) -> list[int]:
    """Take back those of the wanted tasks that still wait; they are unplaced then. Which they were.

    The array is held first, so that none can begin between the look and the cancel.
    """
    run, market, acts, save = this.run, this.market, this.acts, this.save
    view = market.views[array.cluster]
    partition = next((c.partition.name for c in market.candidates if c.name == array.lane), "")
    array.held = True
    save()
    try:
        await acts.hold(view, array, partition)
    except (Infeasible, NotFound, LeftAlone) as e:  # all have begun, or nobody is to touch them
        array.held = False
        save()
        if isinstance(e, LeftAlone):
            raise
        return []
    waiting = waiting_in(array, list(await view.backend.jobs())) or []
    array.leaving, array.waited = sorted(set(wanted) & set(waiting)), len(waiting)
    save()
    if array.leaving:
        await acts.cancel(view, array, array.leaving)
    before = set(array.withdrawn)
    jobs = list(await view.backend.jobs())
    run.unplaced = sorted([*run.unplaced, *_left(array, jobs)])
    save()
    await _let_go(array, view, acts, jobs)
    save()
    return sorted(set(array.withdrawn) - before)


def _left(array: Array, jobs: list[Job]) -> list[int]:
    """The tasks that were taken back, if so many fewer wait now."""
    waiting = sum(row.tasks for row in rows_of(array, jobs) if row.pending)
    if not array.leaving or waiting != array.waited - len(array.leaving):
        array.leaving = []
        return []
    array.withdrawn = sorted([*array.withdrawn, *array.leaving])
    gone, array.leaving = array.leaving, []
    return [task for i in gone for task in array.pieces[i]]


async def _let_go(array: Array, view: ClusterView, acts: BagActs, jobs: list[Job]) -> None:
    if array.job is not None and any(row.pending for row in rows_of(array, jobs)):
        await acts.release(view, array)
    array.held = False
