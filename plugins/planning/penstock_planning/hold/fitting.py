"""Whether a node has what a stage asks for, as far as both say it: a slot is of certain nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.api import Node
from penstock.slurm.hostlist import ParseError, asked_hosts
from penstock.values.gres import asked_gres, counts, node_gres
from penstock.workflow.asks import Asks

__all__ = ["unfit", "wanted"]

_MEMORY: Final = re.compile(r"([0-9]{1,15})([KMGT]?)", re.ASCII | re.IGNORECASE)
_MB: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}
_FEATURES: Final = re.compile(r"[\w.-]+(?:[&,][\w.-]+)*")
"""All of them; what says more (`a|b`, `[a|b]`, `a*2`) is Slurm's to judge."""


def wanted(asks: Asks) -> str:
    """What it asks of its nodes, in sbatch's words."""
    said = {"mem": asks.memory, "gres": asks.gres, "gpus": asks.gpus}
    said |= {"constraint": asks.constraint, "exclude": asks.exclude}
    return " ".join(f"--{name}={value}" for name, value in said.items() if value)


def unfit(asks: Asks, nodes: Iterable[Node]) -> list[str]:
    """The names of those on which it cannot run."""
    return [node.name for node in nodes if not _fits(asks, node)]


def _fits(asks: Asks, node: Node) -> bool:
    memory = _MEMORY.fullmatch(asks.memory)
    if memory and node.memory is not None and int(memory[1]) * _MB[memory[2].upper()] > node.memory:
        return False
    if _FEATURES.fullmatch(asks.constraint) and not set(re.split("[&,]", asks.constraint)) <= set(node.features):
        return False
    has = counts(node_gres(node.gres.lower()))
    try:
        asked = counts(asked_gres(asks.gres.lower()))
        # --gpus are of all nodes together: one at least of each.
        each = dict.fromkeys(
            counts(asked_gres(",".join(f"gpu:{one}" for one in asks.gpus.lower().split(",") if one))), 1
        )
        excluded = asked_hosts(asks.exclude)
    except (ValueError, ParseError):
        return True  # Slurm says it
    return node.name not in excluded and all(has.get(name, 0) >= n for name, n in {**each, **asked}.items())
