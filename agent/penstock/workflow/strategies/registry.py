"""The strategies by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from penstock.core.extensions import STRATEGIES
from penstock.values.lines import split_lines

if TYPE_CHECKING:
    from penstock.workflow.strategy import Strategy

__all__ = ["known_strategies", "strategy_line", "strategy_named"]

_LINES: Final[Mapping[str, str]] = {
    "auto": "picks one of the others by the site's rules; `penstock explain` says which and why",
    "asa": "submits each stage ahead of its queue wait, as learned from earlier waits, behind a dependency",
    "asa-naive": "as asa, but without a dependency: a job that starts too early idles, or is taken back and submitted "
    "again",
    "asa-after": "as asa-naive, but Slurm keeps the time: a job becomes eligible T minutes after its parent's start",
    "eager": "submits each stage as soon as those before it are in the queue, behind a dependency: nodes never idle",
    "seed": "as eager, and each stage ages from its submission on although it depends on others, where the site "
    "allows that",
    "handover": "as eager, but a stage whose parents run waits for a node of theirs, not for them: it ages, and no "
    "node idles",
    "packed": "packs neighbouring stages into one job where that saves more waiting than it costs in core-hours",
    "perstage": "submits each stage when those before it have ended: no dependency, full waits",
    "bigjob": "submits one job with the most nodes and the sum of the times",
    "elastic": "submits one malleable job for all stages, and resizes it to the nodes that each stage needs",
}
"""The first lines of the docstrings of Penstock's own, which `penstock submit --help` need not load."""


def known_strategies() -> tuple[str, ...]:
    """The names of all, those of extensions last."""
    return STRATEGIES.names()


@cache
def strategy_named(name: str) -> Strategy:
    """The strategy of that name. Raises UserError, or ConfigError when its extension is broken."""
    made: Strategy = STRATEGIES.make(name)
    return made


def strategy_line(name: str) -> str:
    """What it does, in a line. Raises like `strategy_named`."""
    if name in _LINES:
        return _LINES[name]
    return next(iter(split_lines((type(strategy_named(name)).__doc__ or "").strip())), "")
