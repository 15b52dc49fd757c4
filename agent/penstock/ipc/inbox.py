"""What a user asked for while no agent ran: taken from the state file at the next pass, by whichever agent or tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from penstock.api import Decision, Reason, Snapshot, Verb
from penstock.audit.record import Door
from penstock.errors import NotNow, StoreError
from penstock.ipc.audited import RequestAudit
from penstock.ipc.handlers import LocalOp
from penstock.state.store import Store

__all__ = ["LATER", "Inbox"]

_log = structlog.get_logger(__name__)

LATER: Final = ("cancel", "guide", "pause", "resume", "retry", "submit")
"""The operations that may be left for later."""


class Inbox:
    """Carries out what was left, as if its user stood at the door. Only who can write the state file can leave it."""

    def __init__(self, store: Store, operations: Mapping[str, LocalOp], audit: RequestAudit | None = None) -> None:
        self._store = store
        self._audit = audit
        self._operations = {name: operations[name] for name in LATER}

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Carry out every request, in the order in which they came; one that cannot be now is kept."""
        decisions: list[Decision] = []
        for number, _at, uid, op, payload in self._store.inbox():
            try:
                with self._store.taking(number):
                    await self._carry_out(op, uid, payload)
            except NotNow as e:
                _log.info("a request that was left must wait", op=op, why=str(e))
                break
            except StoreError:
                raise
            except Exception as e:
                # Whatever is wrong with it: kept, it would stop the agent in every pass to come.
                _log.error("a request that was left is refused", op=op, why=repr(e))
                decisions.append(Decision(Verb.HOLD, f"request {number}", (Reason("refused", f"{op}: {e}"),)))
            else:
                decisions.append(Decision(Verb.ADOPT, f"request {number}", (Reason("taken", f"{op} was left"),)))
        return decisions

    async def _carry_out(self, op: str, uid: int, payload: Mapping[str, Any]) -> None:
        operation = self._operations[op]
        if self._audit is None:
            await operation(uid, payload)
        else:
            await self._audit.carry_out(Door.INBOX, uid, op, payload, operation)

    def next_wake(self, now: float) -> float | None:
        """Nothing is ever due: what is left is found at the next pass."""
        return None
