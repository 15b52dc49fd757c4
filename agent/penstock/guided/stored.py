"""What the state file holds of guided workflows, read without an agent."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Final

from penstock.guided.state import GuidedRun, guided_from_dict
from penstock.pace import at_once
from penstock.schema import UNREADABLE
from penstock.store import Store

__all__ = ["latest_runs", "read_latest"]

_TEXT: Final = 4_000_000  # characters; reading more would keep the agent from its work
_CONSIDERED: Final = 200  # latest workflows of a user that a new stage may belong to
_A_PART: Final = 1000  # characters that cost about as much to read as a stage to look through


def latest_runs(store: Store, uid: int | None = None) -> list[GuidedRun]:
    """The latest guided workflows of a user, or of all, as they were last stored, oldest first. Raises `StoreError`."""
    return at_once(read_latest(store, uid, {}))


def read_latest(
    store: Store, uid: int | None, at_hand: Mapping[int, GuidedRun]
) -> Generator[int, None, list[GuidedRun]]:
    """The same in parts (see `Pace.walk`), with those `at_hand` by their numbers, which need not be read. Raises
    `StoreError`."""
    found = []
    for number, _uid, text in store.run_texts(kind="guided", uid=uid, limit=_CONSIDERED, most_text=_TEXT):
        run = at_hand.get(number)
        if run is None:
            try:
                run = guided_from_dict(json.loads(text))
            except UNREADABLE as e:
                raise store.unreadable(f"workflow {number}") from e
            yield len(text) // _A_PART
        found.append(run)
    return found
