"""Which new process goes on with the work of which old one, when whole tasks are handed on (DMR paper, section 6.2).

    expand 2 -> 4: old rank 0 goes on as new ranks 0 and 1, old rank 1 as 2 and 3
    shrink 4 -> 2: old rank 0 sends to old rank 1, which goes on as new rank 0; old rank 2 to old rank 3, as new rank 1

So each new rank gets one task, and with rows in blocks (`dmr.block_bounds`) and one size a multiple of the other each
task's rows are those of its new rank. Pure arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

from dmr.plan import block_bounds

__all__ = ["Mapping", "mapping"]


class Mapping(NamedTuple):
    """What one old rank has to do.

    Args:
        onto: the new ranks that it hands a task to; none if it is a sender.
        senders: the old ranks that hand their data to it first, in order.
        receiver: the old rank that it hands its data to, if it is a sender.
    """

    onto: tuple[int, ...]
    senders: tuple[int, ...]
    receiver: int | None

    @property
    def factor(self) -> int:
        """How many new ranks go on with this rank's data, or of how many old ranks the data ends in one new rank."""
        return max(len(self.onto), len(self.senders) + 1)


def mapping(old: int, new: int, rank: int) -> Mapping:
    """What old rank `rank` of `old` has to do when they become `new`; any two sizes.

    Raises:
        ValueError: a size below 1, or a rank outside 0..old-1.
    """
    if new >= old:
        return Mapping(tuple(range(*block_bounds(new, old, rank))), (), None)
    block_bounds(old, old, rank), block_bounds(new, new, 0)  # refuse what is no rank or size
    # The new rank whose group of old ranks this one is in: the groups are blocks of old ranks.
    target = next(t for t in range(new) if rank < block_bounds(old, new, t)[1])
    first, stop = block_bounds(old, new, target)
    if rank < stop - 1:
        return Mapping((), (), stop - 1)
    return Mapping((target,), tuple(range(first, rank)), None)
