"""Examples of commands, by command, as the man pages show them. A test parses each, so that none goes stale."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXAMPLES"]

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        "submit": (
            ("penstock submit mosaic.yaml", "A workflow file."),
            ("penstock submit blast.json --max-nodes 4 -t 30m", "A WfFormat file; its stages get up to 4 nodes."),
        ),
        "status": (("penstock status mosaic", "One workflow with its stages."),),
        "explain": (("penstock explain w1", "Why workflow 1 is where it is."),),
        "logs": (("penstock logs mosaic merge -f", "Go on with what a stage writes."),),
        "cancel": (("penstock cancel w3", "Workflow 3 and its jobs."),),
        "retry": (("penstock retry mosaic merge", "One stage, and what comes after it."),),
        "waits": (("penstock waits -N 4 -t 2h -p batch", "The wait of a job of 4 nodes for 2 hours."),),
        "slots": (("penstock slots -N 4 -t 2:00:00 --to now+2d", "Where 4 nodes are free for 2 hours."),),
        "quote": (("penstock quote -N 2 -t 3h --at now+1h", "The price of a slot that begins in an hour."),),
        "plan": (("penstock plan mosaic.yaml --deadline now+1d --gantt", "A plan that ends by tomorrow."),),
        "hold open": (("penstock hold open -N 2 -t 3h --at 18:00", "Two nodes from the evening on."),),
        "ledger": (("penstock ledger --account lab --budget 5000", "What the account may spend in all."),),
        "profile": (("penstock profile --runs 5 -- ./md --steps 1000", "Measure a program."),),
        "pool start": (("penstock pool start --detach", "Open a pool in the background."),),
        "pool join": (("penstock pool join --idle 5m", "The last line of a job's script."),),
        "pool submit": (("penstock pool submit -t 2m -- ./model --seed 1", "One task."),),
        "config show": (("penstock config show --origin", "Every value, and where it comes from."),),
        "pause": (("penstock pause --feature malleable --why upgrade", "Resize no job until `penstock resume`."),),
        "audit": (("penstock audit --since 7d --user alice", "What one user asked for in a week."),),
        "db backup": (("penstock db backup state.db", "Copy the state, beside a running agent too."),),
    }
)
"""By the words after `penstock`: command lines, each with what it does."""
