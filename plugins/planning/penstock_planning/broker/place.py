"""Sends tasks of a bag to candidates, as job arrays: each task of an array runs one or several of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.api import JobSpec
from penstock.errors import OutcomeUnknown, PenstockError, UserError
from penstock.slurm.parse import array_text
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import Assessed
from penstock_planning.broker.bags import Array, BagRun
from penstock_planning.broker.shape import JobShape
from penstock_planning.broker.tasks import Bag

__all__ = ["place", "script"]


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
        script=script(bag, shape, pieces),
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


def script(bag: Bag, shape: JobShape, pieces: Sequence[Sequence[int]]) -> str:
    """The script of an array whose task i runs the tasks `pieces[i]` of the bag, as a user would write it.

    Each finds its number in PENSTOCK_TASK. The job fails if one of them does.
    """
    assert bag.run is not None
    listed = " ".join(f'"{" ".join(map(str, piece))}"' for piece in pieces)
    lines = [
        "#!/bin/bash",
        shape.directives.rstrip(),
        f"# {bag.task.name}: a bag of tasks, submitted by penstock select",
        f"pieces=({listed})",
        "penstock_run() {",
        bag.run.rstrip(),
        "}",
        "running=() code=0",
        "for PENSTOCK_TASK in ${pieces[$SLURM_ARRAY_TASK_ID]}; do",
        "    export PENSTOCK_TASK",
        "    (penstock_run) &",
        "    running+=($!)",
        "done",
    ]
    if shape.pad:
        # Cores that stay idle let the others' clocks rise, so that a task would run faster than elsewhere.
        lines += [
            f"busy=$(( ({shape.per} - ${{#running[@]}}) * {shape.cores} )) padding=()",
            "while [ $busy -gt 0 ]; do (while :; do :; done) & padding+=($!); busy=$((busy - 1)); done",
        ]
    lines.append('for one in "${running[@]}"; do wait "$one" || code=$?; done')
    if shape.pad:
        lines.append('[ ${#padding[@]} -eq 0 ] || kill "${padding[@]}"')
    return "\n".join([*lines, "exit $code", ""])
