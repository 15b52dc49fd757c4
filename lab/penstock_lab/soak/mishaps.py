"""What happens to the agent, the controller and Slurm's commands in a soak on a real Slurm."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock_lab.soak.site import Mood, Site

__all__ = ["Mishaps"]

_MOODS: Final = (
    Mood(),
    Mood(slow=150),
    Mood(fail=150, lost=50),
    Mood(slow=50, fail=50, lost=50),
    Mood(before=15, after=15),
)


class Mishaps:
    """Each method is one, told and counted; `tend` starts what has ended again."""

    def __init__(self, place: Site, draw: random.Random, counts: Counter[str], event: Callable[[str], None]) -> None:
        self._site = place
        self._draw = draw
        self._counts = counts
        self._event = event

    def weather(self) -> None:
        """Calls of Slurm's commands are otherwise from now on."""
        mood = self._draw.choice(_MOODS)
        self._site.mood(mood)
        self._event(f"calls: {mood}")

    def kill_agent(self) -> None:
        """SIGKILL."""
        if self._site.running:
            self._site.kill()

    def kill_controller(self) -> None:
        """SIGKILL right after it has saved its state; it is started again."""
        self._event("the controller is killed")
        self._site.kill_controller()
        self._counts["controller kills"] += 1

    def restart_controller(self) -> None:
        """In an orderly way."""
        self._event("the controller is restarted")
        self._site.restart_controller()
        self._counts["controller restarts"] += 1

    def tend(self) -> None:
        """The agent lives again where it was killed, by these or by a command."""
        if self._site.tend():
            self._counts["agent kills"] += 1
            self._event(f"the agent was killed, and lives again ({self._site.lives})")
