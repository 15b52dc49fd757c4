"""What a job that a tool would submit now is expected to wait, as the agent tells it; and which tasks will be ready by
then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, TypeVar

from penstock.config import load
from penstock.errors import PenstockError
from penstock.ipc.client import ask_agent
from penstock.slurm.minutes import minutes_of
from penstock.slurm.sbatch_options import read_options, script_words
from penstock.values.lines import split_lines

__all__ = ["ExpectedWait", "geometry_of_script", "ready_within"]

_Task = TypeVar("_Task", bound=Hashable)
_FRESH: Final = 15.0  # seconds
_LIMIT: Final = 10.0
_HOUR: Final = 3600.0
_KEYS: Final = {"partition": "partition", "account": "account", "qos": "qos", "gres": "gres", "constraint": "features"}


def geometry_of_script(script: str) -> dict[str, Any]:
    """What a script's `#SBATCH` lines ask for, as far as a wait depends on it. Raises UserError for a wrong line."""
    found: dict[str, Any] = {"nodes": 1, "time_limit": _HOUR, "partition": "", "qos": ""}
    for _number, words in script_words(split_lines(script)):
        for name, said in read_options(words):
            value = said or ""
            if name in _KEYS:
                found[_KEYS[name]] = value
            elif name == "nodes" and value.isdecimal() and int(value):
                found["nodes"] = int(value)
            elif name == "time" and (minutes := minutes_of(value)):
                found["time_limit"] = minutes * 60
    return found


class ExpectedWait:
    """Of a job with this geometry. The agent is asked at most every quarter of a minute."""

    def __init__(self, geometry: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._geometry = dict(geometry)
        self._clock = clock
        self._asked = -math.inf
        self._wait: float | None = None

    def seconds(self) -> float | None:
        """None: no agent answers, or it cannot tell."""
        now = self._clock()
        if now - self._asked > _FRESH:
            self._asked = now
            try:
                told = ask_agent(load(), "waits", {"geometry": self._geometry}, _LIMIT)["outlook"]
                self._wait = None if told is None else float(told["estimate"])
            except PenstockError:
                self._wait = None
        return self._wait


def ready_within(
    waiting: Mapping[_Task, Collection[Hashable]], left: Mapping[Any, float], seconds: float
) -> set[_Task]:
    """Which tasks are ready in so many seconds. `waiting`: for each task what it waits for; `left`: how many seconds
    each task that runs is expected to go on."""
    return {task for task, needs in waiting.items() if all(left.get(one, math.inf) <= seconds for one in needs)}
