"""What the state file holds of workflows: of those whose owners submit the jobs, read without an agent, and of earlier
runs of those that the agent submits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from penstock.core.pace import at_once
from penstock.errors import UserError
from penstock.state.schema import UNREADABLE
from penstock.state.store import Store
from penstock.workflow.documents import run_from_dict
from penstock.workflow.phases import Submitter
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import KEEPS_PLACE, Rules

__all__ = ["earlier_runs", "latest_runs", "note_rules", "read_latest"]

_EARLIER: Final = 200  # runs of which run times are learned
_TEXT: Final = 4_000_000  # characters; reading more would keep the agent from its work
_CONSIDERED: Final = 200  # latest workflows of a user that a new stage may belong to
_A_PART: Final = 1000  # characters that cost about as much to read as a stage to look through


def latest_runs(store: Store, uid: int | None = None) -> list[WorkflowRun]:
    """The latest workflows of a user who submits the jobs, or of all such, as they were last stored, oldest first.

    Raises `StoreError`."""
    return at_once(read_latest(store, uid, {}))


def read_latest(
    store: Store, uid: int | None, at_hand: Mapping[int, WorkflowRun]
) -> Generator[int, None, list[WorkflowRun]]:
    """The same in parts (see `Pace.walk`), with those `at_hand` by their numbers, which need not be read. Raises
    `StoreError`."""
    found = []
    for number, _uid, text in store.runs.texts(submitter=Submitter.OWNER, uid=uid, limit=_CONSIDERED, most_text=_TEXT):
        run = at_hand.get(number)
        if run is None:
            try:
                run = run_from_dict(json.loads(text))
            except UNREADABLE as e:
                raise store.unreadable(f"workflow {number}") from e
            yield len(text) // _A_PART
        found.append(run)
    return found


def earlier_runs(store: Store, uid: int) -> Iterator[WorkflowRun]:
    """The latest runs of a user that the agent has submitted, oldest first."""
    for _number, _owner, state in store.runs.latest(limit=_EARLIER, submitter=Submitter.AGENT, uid=uid):
        if state:
            with contextlib.suppress(KeyError, TypeError, ValueError, UserError):  # of another release
                yield run_from_dict(state)


def note_rules(store: Store, rules: Rules) -> None:
    """Keep what a plain chain makes of the site, for the report, which is made without an agent."""
    known = json.dumps(rules.keeps_place)
    if store.facts.get(KEEPS_PLACE) != known:
        store.facts.remember(KEEPS_PLACE, known)
