"""What a geometry's learner begins with: waits that are known already, of its own class and of those that are like it.

The waits, not the neighbours' states, are taken over: they mean the same to every learner. They are gone through as if
they were being learned from one after the other, the least like first, so that what is nearest weighs most; and the
more a class differs, the fewer of its waits count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from penstock.values.waits import Known, Observation
from penstock.waits.learners.base import Learner
from penstock.waits.learners.geometry import Class, neighbours

__all__ = ["WaitStore", "begin"]

_CLASSES: Final = 4
_OWN: Final = 60
_OTHERS: Final = 24


class WaitStore(Protocol):
    """Where observed waits are kept (the agent's store)."""

    def wait_keys(self) -> Sequence[str]:
        """The keys that have any."""
        ...

    def waits(self, key: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        """The latest waits of a key (None: of all), oldest first: `key`, `wait` and `estimate` in seconds, `censored`,
        a `Known`."""
        ...


def begin(learner: Learner, wanted: Class, memory: WaitStore, rng: np.random.Generator) -> int:
    """Teach a fresh learner of the class `wanted`; how many waits there were."""
    count = 0
    for apart, key in reversed(neighbours(wanted, memory.wait_keys(), _CLASSES)):
        for row in memory.waits(key, _OWN if not apart else round(_OTHERS / (1 + apart))):
            learner.update(Observation(row["wait"], Known(row["censored"])), learner.predict(rng), rng)
            count += 1
    return count
