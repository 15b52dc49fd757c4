"""Writes records for the doors and the executor: repeated refusals together, what cannot be written later, and says
where the chain is.

While the file cannot be written, records wait in memory (and stand in the system's log meanwhile), `trouble` says so,
and `require` refuses what is done for others. Nothing else raises.
"""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Final, Protocol

from penstock.api import Decision, Snapshot
from penstock.audit.aggregate import Repeats
from penstock.audit.chain import ChainHead
from penstock.audit.reading import is_told
from penstock.audit.record import Door, Record, RecordKind, RecordOutcome, Scalar, code_of
from penstock.audit.trail import Trail
from penstock.errors import AuditUnwritable, NotPermitted, StoreError
from penstock.host.logins import login
from penstock.host.logs import get_logger

__all__ = ["ANCHOR_EVERY", "AgentLog", "AuditSink", "Auditor", "new_id"]

_log = get_logger(__name__)

ANCHOR_EVERY: Final = 100
"""Records after which the chain is anchored again."""
_WAITING: Final = 10_000
"""Records that wait in memory for a file that cannot be written."""
_SUBJECTS: Final = 10_000


class AuditSink(Protocol):
    """Where else records and anchors go (`penstock.audit.journal.SystemLog`, or `AgentLog`)."""

    def record(self, record: Record, head: ChainHead | None) -> None:
        """A record; no head: it is not in the file."""
        ...

    def anchor(self, head: ChainHead, why: str) -> None:
        """How far the chain is."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class AgentLog:
    """The agent's own log, where the host has none that could be told."""

    def record(self, record: Record, head: ChainHead | None) -> None:
        """See `AuditSink`; acts are in the log already."""
        if record.kind is not RecordKind.ACT:
            named = {"user": record.user, "door": record.door.value, "subject": record.subject, "code": record.code}
            text = {"verb": record.verb, "outcome": record.outcome.value, "why": record.text}
            number = {} if head is None else {"record": head.seq}
            _log.info("audit", **text, **{k: v for k, v in named.items() if v}, **number)

    def anchor(self, head: ChainHead, why: str) -> None:
        """See `AuditSink`."""
        _log.info("audit trail", record=head.seq, hash=head.hash, why=why)

    def close(self) -> None:
        """Nothing is to be let go of."""


def new_id() -> str:
    """A number for a request, which no other one has."""
    return secrets.token_hex(8)


class Auditor:
    """`trail` None: nothing is kept (a simulation). `on_anchor` keeps the head of the chain in a second place. `door`:
    who acts, the agent or a user's command."""

    def __init__(
        self,
        trail: Trail | None,
        now: Callable[[], float],
        listener: AuditSink | None = None,
        *,
        repeats: Repeats | None = None,
        on_anchor: Callable[[ChainHead], None] = lambda _head: None,
        door: Door = Door.AGENT,
    ) -> None:
        self._trail = trail
        self._now = now
        self._listener = listener
        self._repeats = Repeats() if repeats is None else repeats
        self._on_anchor = on_anchor
        self._door = door
        self._waiting: deque[Record] = deque()
        self._lost = 0
        self._together: list[Record] | None = None
        self._asked: OrderedDict[str, str] = OrderedDict()
        self.trouble = ""
        self.written = 0
        for entry in trail.latest() if trail is not None else ():
            fields = entry.fields
            if fields.get("kind") == RecordKind.REQUEST and fields.get("outcome") == RecordOutcome.DONE:
                self._link(str(fields.get("subject", "")), str(fields.get("request", "")))

    def _link(self, subject: str, request: str) -> None:
        """Acts on this subject were led to by this request."""
        if subject and request:
            self._asked[subject] = request
            self._asked.move_to_end(subject)
            if len(self._asked) > _SUBJECTS:
                self._asked.popitem(last=False)

    # -- what is told --------------------------------------------------------------------------------------------------

    def request(self, record: Record, *, repeats: bool = False) -> None:
        """A request and how it ended; `repeats`: alike ones are counted together when there are many."""
        if self._trail is None:
            return
        if record.outcome is RecordOutcome.DONE:
            self._link(record.subject, record.request)
        if repeats:
            # Nobody was told that this is kept, so it need not wait for the disk.
            self._put(self._repeats.take(record), durable=False)
        else:
            self._put([record])

    def act(
        self,
        verb: str,
        subject: str,
        owner: int | None,
        details: Mapping[str, Scalar],
        job: int | None,
        outcome: RecordOutcome,
        error: BaseException | None = None,
    ) -> None:
        """An act on Slurm and how it ended; its intent in the journal of acts is among the details."""
        if self._trail is not None:
            code, text = ("", "") if error is None else (code_of(error), str(error) or repr(error))
            self._put([self._mine(RecordKind.ACT, verb, outcome, code, text, subject, owner, job, details)])

    def interrupted(
        self, verb: str, subject: str, owner: int | None, payload: Mapping[str, Scalar], intent: int, since: float
    ) -> None:
        """An act that was under way when whoever did it was killed, as its intent in the journal has it, which was
        opened at `since`. Nothing where the trail has it already: the end came after that was told."""
        if self._trail is None:
            return
        # What cannot be read is told once more: rather twice than never.
        with suppress(StoreError, NotPermitted):
            if is_told(self._trail.folder, self._door, intent, since):
                return
        job = payload.get("job")
        details = {**payload, "intent": intent}
        self.act(verb, subject, owner, details, job if type(job) is int else None, RecordOutcome.INTERRUPTED)

    def life(self, verb: str, text: str) -> None:
        """The agent began, ended, or read its configuration again."""
        if self._trail is not None:
            self._put([self._mine(RecordKind.AGENT, verb, RecordOutcome.DONE, "", text)])

    def _mine(
        self,
        kind: RecordKind,
        verb: str,
        outcome: RecordOutcome,
        code: str,
        text: str,
        subject: str = "",
        owner: int | None = None,
        job: int | None = None,
        details: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> Record:
        uid = os.geteuid()
        request = self._asked.get(subject) or self._asked.get(subject.partition("/")[0], "")
        details = {key: value for key, value in details.items() if value not in (None, "")}
        return Record(
            self._now(), kind, verb, outcome, code, self._door, uid, login(uid), owner, job, subject, request, text,
            details=details,
        )  # fmt: skip

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is told inside is written at its end, with one wait for the disk."""
        if self._together is not None or self._trail is None:
            yield
            return
        self._together = []
        try:
            yield
        finally:
            records, self._together = self._together, None
            self._put(records)

    # -- whether it can be told ----------------------------------------------------------------------------------------

    def require(self) -> None:
        """Raises AuditUnwritable where what is about to be done could not be written down."""
        if self._trail is None:
            return
        try:
            if self._waiting or self._lost:
                self._flush(durable=True)
            self._trail.check()
        except AuditUnwritable as e:
            self._failed(e)
            raise AuditUnwritable(f"{e}; nothing is done for others until it can be") from e
        self._well()

    # -- begin, end, and in between ------------------------------------------------------------------------------------

    def start(self, text: str) -> None:
        """The agent begins."""
        self.life("start", text)
        self._anchor("start")

    def stop(self) -> None:
        """The agent ends."""
        self.life("stop", "")

    def close(self) -> None:
        """Write what was counted, anchor the chain if it has grown, and let go of the file and the log."""
        if self._trail is not None:
            self._put(self._repeats.rest())
            if self.written:
                self._anchor("stop")
            self._trail.close()
        if self._listener is not None:
            self._listener.close()

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """A controller of the loop as well: writes what is due, or could not be written when it happened."""
        self.catch_up()
        return []

    def next_wake(self, now: float) -> float | None:
        """It comes along with other passes."""
        return None

    def catch_up(self) -> None:
        """Write what is due, or could not be written when it happened."""
        if self._trail is not None and ((due := self._repeats.due(self._now())) or self._waiting or self._lost):
            self._put(due)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _put(self, records: Sequence[Record], *, durable: bool = True) -> None:
        if self._together is not None:
            self._together.extend(records)
            return
        self._waiting.extend(records)
        try:
            self._flush(durable)
        except AuditUnwritable as e:
            self._failed(e)
            if self._listener is not None:
                for record in records:
                    self._listener.record(record, None)
            while len(self._waiting) > _WAITING:
                self._waiting.popleft()
                self._lost += 1
        else:
            self._well()

    def _flush(self, durable: bool) -> None:
        assert self._trail is not None
        records = list(self._waiting)
        if self.trouble or self._lost:
            text = f"the file could not be written for a while: {self.trouble or 'records were lost'}"
            if self._lost:
                text += f"; {self._lost} records are lost"
            records.insert(
                0, self._mine(RecordKind.FILE, "late", RecordOutcome.DONE, "lost" if self._lost else "late", text)
            )
        if not records:
            return
        written = self._trail.append(records, durable=durable)
        self._waiting.clear()
        self._lost = 0
        self.written += len(written)
        for one in written:
            if self._listener is not None:
                self._listener.record(one.record, one.head)
        if written[-1].head.seq // ANCHOR_EVERY > (written[0].head.seq - 1) // ANCHOR_EVERY:
            self._anchor(f"every {ANCHOR_EVERY} records")

    def _anchor(self, why: str) -> None:
        if self._trail is None or self.trouble:
            return
        head = self._trail.head
        if self._listener is not None:
            self._listener.anchor(head, why)
        try:
            self._on_anchor(head)
        except StoreError as e:
            _log.error("the head of the audit trail cannot be kept in the state file", why=str(e))

    def _failed(self, error: AuditUnwritable) -> None:
        if not self.trouble:
            _log.error("audit records cannot be written; they will be when that works again", why=str(error))
        self.trouble = str(error)

    def _well(self) -> None:
        if self.trouble:
            _log.info("audit records can be written again", after=self.trouble)
            self.trouble = ""
