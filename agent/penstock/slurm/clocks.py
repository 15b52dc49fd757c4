"""The controller's clock, as this host knows it.

It is told now and then, in whole seconds. In between the time since boot runs on, which nobody sets: a host whose clock
is put right meanwhile does not take the correction for the time.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["ControllerClock", "since_boot"]

_log = logging.getLogger(__name__)
_AGREE: Final = 2.0  # the answer tells whole seconds, and has been on its way
_EVERY: Final = 300.0


class ControllerClock:
    """What time it is for the controller: by this host's clock, unless the two were found to differ."""

    def __init__(self) -> None:
        self._offset: float | None = None  # of the controller's time to the time since boot
        self._own = 0.0  # of this host's, when they were compared
        self._compared_at = 0.0

    def now(self) -> float:
        """The controller's time; this host's until they have been compared."""
        return time.time() if self._offset is None else since_boot() + self._offset

    @property
    def doubtful(self) -> bool:
        """Whether they should be compared again: it is some time ago, or this host's clock was set since (or the host
        was stopped for a while, which the time since boot of a virtual machine may not show)."""
        if self._offset is None:
            return False
        at = since_boot()
        return at - self._compared_at >= _EVERY or abs(time.time() - at - self._own) > _AGREE

    def compare(self, said: float, seconds: float) -> None:
        """The controller has just answered, within so many seconds, that it is `said`."""
        at = since_boot()
        offset, own = said + 0.5 - (at - seconds / 2), time.time() - at
        # Near enough, this host's clock is the finer one, and what is known already does not jump to and fro. A slow
        # answer tells too little to give up what is known.
        known = [own] if self._offset is None else [self._offset, own] if seconds > _AGREE else [own, self._offset]
        chosen = next((one for one in known if abs(offset - one) <= max(_AGREE, seconds)), offset)
        if chosen != self._offset and chosen != own:
            way = "behind" if chosen > own else "ahead of"
            _log.warning(
                "this host's clock is %.0f s %s slurmctld's; times are corrected by that", abs(chosen - own), way
            )
        self._offset, self._own, self._compared_at = chosen, own, at


def since_boot() -> float:
    """Seconds, those included for which the host was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
