"""What a user asked for while no agent ran: taken from the state file at the next pass, by whichever agent or tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.api import Decision, Reason, Snapshot, Verb
from penstock.audit.record import Door
from penstock.core.parts import Operation
from penstock.errors import NotNow, NotPermitted, StoreError
from penstock.host.logs import get_logger
from penstock.ipc.audited import RequestAudit
from penstock.state.store import Store
from penstock.values.backoff import backoff
from penstock.values.documents import brief

__all__ = ["LATER", "STAGES", "Inbox"]

_log = get_logger(__name__)

_FIRST: Final = 10.0
_LONGEST: Final = 300.0
"""Seconds until stages that the settings do not let the agent take are tried again: at first, and at most."""

LATER: Final = ("cancel", "follow", "guide", "more", "pause", "resume", "retry", "submit")
"""The operations that may be left for later."""


STAGES: Final = ("follow", "guide")
"""Those that come with jobs which are in the queue."""


class _NotYet(NotNow):
    """Settings do not let the agent take a user's stages, whose jobs are in the queue and wait for it."""


class Inbox:
    """Carries out what was left, as if its user stood at the door. Only who can write the state file can leave it.

    Stages that the administrator's settings (`limits.allow`, a rehearsal) do not let the agent take are kept, and tried
    again: nobody stands at the door who could be told to let their jobs go.
    """

    def __init__(self, store: Store, operations: Mapping[str, Operation], audit: RequestAudit | None = None) -> None:
        self._store = store
        self._audit = audit
        self._operations = {name: operations[name] for name in LATER}
        self._put_off: dict[int, tuple[int, float]] = {}  # by user: failures in a row, and not before which time

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Carry out every request, in the order in which they came; one that cannot be now is kept."""
        decisions: list[Decision] = []
        now = snapshot.taken_at
        for number, _at, uid, op, payload in self._store.inbox.waiting():
            failures, again = self._put_off.get(uid, (0, now))
            if op in STAGES and now < again <= now + _LONGEST:  # else the clock was set back
                continue  # a later stage of a workflow is not taken before an earlier one
            try:
                with self._store.inbox.taking(number):
                    await self._carry_out(op, uid, payload)
            except _NotYet as e:
                self._put_off[uid] = failures + 1, now + backoff(_FIRST, failures, _LONGEST)
                text = f"{e}; its job stays in the queue, and the agent asks again"
                decisions.append(Decision(Verb.HOLD, f"request {number}", (Reason("kept", f"{op}: {text}"),)))
            except NotNow as e:
                _log.info("a stored request has to wait", op=op, why=str(e))
                break
            except StoreError:
                raise
            except Exception as e:
                # Whatever is wrong with it: kept, it would stop the agent in every pass to come.
                _log.error("a stored request was refused", op=op, why=brief(e))
                decisions.append(Decision(Verb.HOLD, f"request {number}", (Reason("refused", f"{op}: {e}"),)))
            else:
                if op in STAGES:
                    self._put_off.pop(uid, None)
                taken = Reason("taken", f"{op} was requested while no agent ran")
                decisions.append(Decision(Verb.ADOPT, f"request {number}", (taken,)))
        return decisions

    async def _carry_out(self, op: str, uid: int, payload: Mapping[str, Any]) -> None:
        operation = self._operations[op]
        try:
            if self._audit is None:
                await operation(uid, payload)
            else:
                await self._audit.carry_out(Door.INBOX, uid, op, payload, operation)
        except NotPermitted as e:
            if op in STAGES and e.by_setting:
                raise _NotYet(str(e)) from e
            raise

    def next_wake(self, now: float) -> float | None:
        """Nothing is ever due: what is left is found at the next pass."""
        return None
