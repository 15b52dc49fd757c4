"""Why a reserved stage gets another slot although the one that it has would do: words that are kept with its workflow,
so that nobody is told of a delay. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["CAN_BEGIN_EARLIER", "FOR_THE_BETTER", "MAKES_ROOM", "PLAN_ENDS_EARLIER"]

CAN_BEGIN_EARLIER: Final = "it can begin earlier"
PLAN_ENDS_EARLIER: Final = "so the plan can end earlier"
MAKES_ROOM: Final = "it makes room for others first"
FOR_THE_BETTER: Final = frozenset({CAN_BEGIN_EARLIER, PLAN_ENDS_EARLIER, MAKES_ROOM})
"""All of them."""
