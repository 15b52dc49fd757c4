"""What each further node of a job has to have, from what the job has asked for and been given. Pure.

Slurm has many ways of asking for GPUs and other GRES. Those for each node (`--gres`, `--gpus-per-node`) are asked for
again as they are. The others (`--gpus`, `--gpus-per-task`, `--gpus-per-socket`, `--tres-per-task`, `--ntasks-per-gpu`)
say nothing of a node, so as many are asked for as that node of the job has that has the most. Columns read "gres:gpu:1"
up to 22.05, "gres/gpu:1" later, and "cpu=4,gres/gpu:a100=1" where tasks ask from 24.05 on (seen on 22.05, 24.11 and
26.05).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.api import NodeNeeds

__all__ = ["NEEDS_FIELDS", "given_in", "named_per_node", "node_needs", "tasks_per_gpu_in"]

NEEDS_FIELDS: Final = ("tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task", "Feature")
_GRES: Final = re.compile(r"([A-Za-z0-9_.-]+)(:[A-Za-z0-9_.-]+)?(:[A-Za-z0-9_.-]+)?")
_COUNT: Final = re.compile(r"[0-9]+[kKmMgGtTpP]?", re.ASCII)
_CONSTRAINT: Final = re.compile(r"[A-Za-z0-9_.:&|*()\[\]=-]{1,200}")
# "gpu:a100:2(IDX:0-1)", "fpga(CNT:1)": a kind, how many, which.
_GIVEN: Final = re.compile(
    r"([A-Za-z0-9_.-]+)(?::([A-Za-z0-9_.-]+))??(?::([0-9]+))?\((?:CNT:([0-9]+)|[^)]*)\)", re.ASCII
)
_DETAIL: Final = re.compile(r"\bNodes=\S+ CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_TASKS_PER_GPU: Final = re.compile(r"\bNtasksPerTRES=([0-9]+)", re.ASCII)
_GPU: Final = "gpu"

Kind = tuple[str, str]
"""The name and the type of a GRES; "" for the type of any."""


def given_in(text: str) -> list[str]:
    """The GRES that a job was given on its nodes, from `scontrol -o -d show job`: "gpu:a100:2(IDX:0-1),fpga(CNT:1)" for
    each group of nodes that are alike."""
    return _DETAIL.findall(text)


def tasks_per_gpu_in(text: str) -> bool:
    """Whether it has said `--ntasks-per-gpu`, from the same; no other place shows that it asked for GPUs by it."""
    return _TASKS_PER_GPU.search(text) is not None


def named_per_node(columns: Sequence[str]) -> bool:
    """Whether these (`NEEDS_FIELDS`) say of each node all that there is to know."""
    return any(name == _GPU for name, _, _ in _words(columns[0])) and not any(map(_words_in, columns[1:4]))


def node_needs(columns: Sequence[str], given: Sequence[str], *, tasks_per_gpu: bool = False) -> NodeNeeds:
    """`columns` are those of `NEEDS_FIELDS`, `given` see `given_in`. What cannot be read asks for nothing."""
    per_node = list(_words(columns[0]))
    wanted: dict[Kind, None] = {(name, kind): None for text in columns[1:4] for name, kind, _ in _words(text)}
    said = {name for name, _, _ in per_node}
    if tasks_per_gpu and _GPU not in said | {name for name, _ in wanted}:
        wanted[_GPU, ""] = None
    found = [word for _, _, word in per_node]
    nodes = [_given(text) for text in given]
    unknown = ""
    for name, kind in wanted:
        if name in said:
            continue
        most = max((_count(has, name, kind) for has in nodes), default=0)
        whole = f"{name}:{kind}" if kind else name
        if most:
            found.append(f"{whole}:{most}")
        else:
            unknown = f"it has asked for {whole}, but Slurm does not say how many each of its nodes has"
    features = columns[4]
    constraint = features if features not in ("(null)", "N/A") and _CONSTRAINT.fullmatch(features) else None
    return NodeNeeds(",".join(found) or None, constraint, unknown)


def _words_in(text: str) -> bool:
    return any(True for _ in _words(text))


def _words(text: str) -> Iterator[tuple[str, str, str]]:
    """The name, the type and, as `--gres` takes it, the whole of each GRES that a column asks for."""
    for word in text.split(","):
        asked = word.removeprefix("gres:").removeprefix("gres/")
        match = _GRES.fullmatch(asked.replace("=", ":"))
        if asked == word or match is None:
            continue
        parts = [part.removeprefix(":") for part in match.groups("") if part]
        kind = parts[1] if len(parts) == 3 or (len(parts) == 2 and not _COUNT.fullmatch(parts[1])) else ""
        yield parts[0], kind, ":".join(parts)


def _given(text: str) -> dict[Kind, int]:
    found: dict[Kind, int] = {}
    for name, kind, count, counted in _GIVEN.findall(text.replace("(null):", "")):
        found[name, kind] = found.get((name, kind), 0) + int(counted or count or 1)
    return found


def _count(has: Mapping[Kind, int], name: str, kind: str) -> int:
    return sum(count for (one, its), count in has.items() if one == name and kind in ("", its))
