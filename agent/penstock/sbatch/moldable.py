"""On how many nodes a malleable job may start: from its smallest size to the one that it runs well on. Pure.

Not more, although it may grow to more: Slurm gives a job all that is free up to the most that it asks for, and what is
free then the next ones in line want, too. It would shrink again for them at its first check, and of some programs the
first step on many nodes takes as much node-time as half of the run. Beyond the preferred size it grows while nobody
waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import UserError
from penstock.sbatch.directives import Request
from penstock.slurm.option_words import SbatchWords

__all__ = ["moldable", "shaped"]

_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_SAYS = ("nodes", "ntasks", "gpus", "nodelist", "nodefile")


def moldable(asked: Request, line: SbatchWords, script: SbatchWords, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Options that let a malleable job start on whatever is free between its smallest and its preferred size (its
    largest, where it has none).

    An elastic one starts on as few nodes as it may have, which it keeps. Empty where the user says how large it is to
    be at its start, and for other jobs. UserError when no size of it fills whole nodes.
    """
    if (asked.malleable is None and asked.elastic is None) or line.several or script.several:
        return ()
    if any(found.has(name) for found in (line, script) for name in _SAYS):
        return ()
    if asked.elastic is not None:
        return (f"--nodes={asked.elastic.partition(':')[0]}",)
    assert asked.malleable is not None
    least, most, *rest = (int(part) for part in asked.malleable.split(":"))
    preferred = rest[0] if rest else most
    said = line.value("ntasks-per-node") or script.value("ntasks-per-node") or environ.get("DMR_RANKS_PER_NODE") or "1"
    per_node = int(said) if _WHOLE.fullmatch(said) and int(said) > 0 else 1
    fewest, widest = -(-least // per_node), most // per_node
    if fewest > widest:
        raise UserError(f"malleable={asked.malleable}: no size of it fills whole nodes of {per_node} processes")
    start = min(max(preferred // per_node, fewest), widest)
    return (f"--nodes={fewest}-{start}",)


_FIXED = ("ntasks", "ntasks-per-node", "gpus", "nodelist", "nodefile", "array", "no-requeue")


def shaped(asked: Request, line: SbatchWords, script: SbatchWords) -> bool:
    """Whether a moldable job's shape is to be chosen: not where the command line itself says nodes or time. UserError
    for what would hold it to one size, or to its first number of tasks."""
    if asked.moldable is None:
        return False
    if line.several or script.several:
        raise UserError("moldable: a job of several components (:) keeps its size")
    for name in _FIXED:
        if not (line.has(name) or script.has(name)) or (name == "no-requeue" and asked.checkpoint is None):
            continue
        hint = "; say it in the script's srun line, as sbatch counts the tasks once" if name.startswith("nt") else ""
        raise UserError(f"moldable: --{name} does not go with it{hint}")
    return not (line.has("nodes") or line.has("time"))
