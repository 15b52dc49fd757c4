"""Which submissions become tasks of a pool: those that a rule names, and no others. Pure.

By their partition: `-p penstock`, or `-p penstock-NAME` for another pool than `main`. By a word of their comment:
`penstock-pool`, `penstock-pool=NAME`. By their time limit, where the configuration sets one (`pool.below`).
"""

from __future__ import annotations

from penstock.slurm.minutes import minutes_of
from penstock.slurm.option_words import value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.slurm.option_words import SbatchWords

__all__ = ["PoolChoice", "pool_of"]

_MAIN = "main"
_WORD = "penstock-pool"


class PoolChoice:
    """The pool's name, and whether it was asked for by its partition, so that no job of Slurm can do instead."""

    def __init__(self, pool: str, *, only: bool) -> None:
        self.pool = pool
        self.only = only


def pool_of(
    line: SbatchWords, head: SbatchWords, environ: Mapping[str, str], settings: Mapping[str, str]
) -> PoolChoice | None:
    """The pool that a submission goes to; None for none. `settings`: `pool_partition`, and `pool_below` in minutes."""

    named = settings.get("pool_partition", "")
    partition = value_of("partition", line, head, environ) or ""
    if named and partition == named:
        return PoolChoice(_MAIN, only=True)
    if named and partition.startswith(f"{named}-"):
        return PoolChoice(partition[len(named) + 1 :], only=True)
    for word in (line.value("comment") or head.value("comment") or "").split():
        key, equals, pool = word.partition("=")
        if key == _WORD:
            return PoolChoice(pool if equals and pool else _MAIN, only=False)
    below = settings.get("pool_below", "")
    limit = minutes_of(value_of("time", line, head, environ) or "")
    if below and limit is not None and 0 < limit <= float(below):
        return PoolChoice(_MAIN, only=False)
    return None
