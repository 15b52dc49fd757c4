"""The batch scripts of a bag: each task of a job array runs one or several tasks of the bag side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock_planning.broker.partitions import Candidate
from penstock_planning.broker.shape import JobShape
from penstock_planning.broker.tasks import Bag

__all__ = ["directives", "script"]


def directives(bag: Bag, candidate: Candidate, shape: JobShape) -> str:
    """What a job asks for beside its node, limit and partition, as lines of its script."""
    wanted = ["--ntasks=1"] if shape.nodes == 1 else [f"--ntasks={shape.nodes}", "--ntasks-per-node=1"]
    if not shape.whole:
        wanted.append(f"--cpus-per-task={shape.cores * shape.per}")
    if shape.memory is not None and candidate.rig.memory is not None:
        wanted.append(f"--mem={math.ceil(shape.memory * shape.per / 2**20)}M")
    if shape.gpus:
        items = (f"gpu:{m}:{n * shape.per}" if m else f"gpu:{n * shape.per}" for m, n in shape.gpus.items())
        wanted.append(f"--gres={','.join(items)}")
    elif "gres" in bag.options:
        wanted.append(f"--gres={bag.options['gres']}")
    features = [f for f in (candidate.constraint, bag.options.get("constraint", "")) if f]
    if features:
        wanted.append(f"--constraint={'&'.join(features)}")
    return "".join(f"#SBATCH {option}\n" for option in wanted)


def script(bag: Bag, candidate: Candidate, shape: JobShape, pieces: Sequence[Sequence[int]]) -> str:
    """The script of an array whose task i runs the tasks `pieces[i]` of the bag, as a user would write it.

    Each finds its number in PENSTOCK_TASK. The job fails if one of them does.
    """
    assert bag.run is not None
    listed = " ".join(f'"{" ".join(map(str, piece))}"' for piece in pieces)
    lines = [
        "#!/bin/bash",
        directives(bag, candidate, shape).rstrip(),
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
