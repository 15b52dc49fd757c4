"""What the state file holds of guided workflows, read without an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.guided.admission import plan, registration
from penstock.guided.state import GuidedRun, Kept, guided_from_dict
from penstock.schema import UNREADABLE
from penstock.store import Store

__all__ = ["latest_runs", "planned"]

_TEXT: Final = 4_000_000  # characters; reading more would keep the agent from its work
_CONSIDERED: Final = 200  # latest workflows of a user that a new stage may belong to


def latest_runs(store: Store, uid: int | None = None) -> list[GuidedRun]:
    """The latest guided workflows of a user, or of all, as they were last stored, oldest first. Raises `StoreError`."""
    found = []
    for number, _uid, state in store.runs(kind="guided", uid=uid, limit=_CONSIDERED, most_text=_TEXT):
        try:
            found.append(guided_from_dict(state))
        except UNREADABLE as e:
            raise store.unreadable(f"workflow {number}") from e
    return found


def planned(runs: Sequence[GuidedRun], request: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The number of the run that these stages would join, per stage the known ones before it, and which ways of keeping
    jobs back are known (`Kept`), JSON-able.

    Raises what registering them would.
    """
    run, before = plan(runs, registration(request, now))
    stages = {
        name: [{"name": s.name, "job": s.job, "phase": s.phase.value} for s in parents]
        for name, parents in before.items()
    }
    return {"run": None if run is None else run.id, "before": stages, "keeps": [kept.value for kept in Kept if kept]}
