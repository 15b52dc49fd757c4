"""Submission as early as possible, behind a node of the parent instead of a dependency on it."""

from __future__ import annotations

from penstock.workflow.strategies.eager import Eager
from penstock.workflow.ties import Tie

__all__ = ["Handover"]


class Handover(Eager):
    """as eager, but a stage whose parents run waits for a node of theirs, not for them: it ages, and no node idles

    A job that asks for a node which its parent holds (`--nodelist`) cannot start before the parent has given it up. To
    Slurm it is an ordinary job that waits for resources: it ages without ACCRUE_ALWAYS, and the backfill plan keeps
    nodes for it (run on 22.05.8 and 24.11.5). When the parents have ended and it still waits, the wish is dropped. A
    guard in the script makes sure that the parents have succeeded. Only where jobs do not share nodes.
    """

    name = "handover"
    tie = Tie.NODES
