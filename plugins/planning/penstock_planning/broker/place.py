"""Sends tasks of a bag to candidates, as job arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.api import JobSpec
from penstock.errors import OutcomeUnknown, PenstockError, UserError
from penstock.slurm.parse import array_text
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import Assessed
from penstock_planning.broker.bags import Array, BagRun
from penstock_planning.broker.scripts import script

__all__ = ["place"]


async def place(
    run: BagRun,
    assessed: Sequence[Assessed],
    jobs: Mapping[str, int],
    save: Callable[[], None],
    now: float,
    acts: BagActs,
) -> list[str]:
    """Submit so many jobs to each lane, filled with tasks that are in no job; `save` writes the bag down.

    Says what could not be submitted; those tasks stay unplaced. An array whose submission was not answered stays
    without a job: it is looked for by its name later.
    """
    if run.bag.run is None:
        raise UserError(f"{run.bag.task.name}: the key 'run' is missing: what shall its tasks run?")
    problems = []
    by_name = {a.candidate.name: a for a in assessed}
    for lane, number in jobs.items():
        where = by_name[lane]
        per, room = where.shape.per, where.candidate.max_array
        left = min(number, -(-len(run.unplaced) // per))
        while left > 0:
            size = min(left, room)
            tasks, run.unplaced = run.unplaced[: size * per], run.unplaced[size * per :]
            pieces = [tasks[i : i + per] for i in range(0, len(tasks), per)]
            left -= size
            problem = await _submit(run, where, pieces, save, now, acts)
            if problem is not None:
                problems.append(f"{lane}: {problem}")
                break
    return problems


async def _submit(
    run: BagRun, where: Assessed, pieces: list[list[int]], save: Callable[[], None], now: float, acts: BagActs
) -> PenstockError | None:
    bag, candidate, shape = run.bag, where.candidate, where.shape
    plain = (shape.run - shape.fetch) / candidate.resource.correction
    name, fetch = run.next_name(), shape.fetch
    array = Array(name, candidate.cluster, candidate.name, pieces, plain, now, qos=where.qos, fetch=fetch)
    run.arrays.append(array)
    save()
    spec = JobSpec(
        name=array.name,
        script=script(bag, candidate, shape, pieces),
        nodes=shape.nodes,
        time_limit=shape.limit,
        partition=candidate.partition.name,
        account=bag.options.get("account"),
        qos=where.qos,
        workdir=bag.options.get("workdir"),
        array=array_text(range(len(pieces))),
        output=f"{array.name}_%a.out",  # ids of two clusters may be the same
        environment={"PENSTOCK_BAG": bag.task.name, **bag.environment},
    )
    try:
        array.job = await acts.submit(where.view, spec)
    except OutcomeUnknown as e:
        save()
        return e
    except PenstockError as e:
        run.arrays.remove(array)
        run.unplaced = sorted([*run.unplaced, *(task for piece in pieces for task in piece)])
        save()
        return e
    save()
    return None
