"""Each request that changes something leaves a record: who asked at which door for what, and what became of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from dmr import wire
from dmr.wire import clean
from penstock.audit.auditor import Auditor, new_id
from penstock.audit.record import Door, Record, RecordKind, RecordOutcome, Scalar, code_of
from penstock.core.parts import Operation
from penstock.errors import AuditUnwritable, NotNow, OutcomeUnknown, PenstockError, StoreError
from penstock.host.clock import Clock
from penstock.host.logins import login
from penstock.values.documents import brief

__all__ = ["CHANGING", "PEER", "RequestAudit"]

CHANGING: Final = frozenset(
    {"cancel", "end", "follow", "guide", "mold", "more", "off", "on", "pause", "resume", "retry", "submit"}
)
"""The requests of the command line that change something."""
_STOPPING: Final = frozenset({"cancel", "end", "off", "pause"})
"""What only makes the agent do less is served while nothing can be written down, too."""
_OF_AGENT: Final = frozenset({"end", "off", "on"})
"""What is about the agent as a whole."""
_REPEATED: Final = frozenset({"announce"})
"""What a program may say at every step."""
PEER: ContextVar[str] = ContextVar("peer", default="")
"""Where the connection of this task comes from."""
_LISTED: Final = 25  # jobs
_UIDS: Final = 2**32
_TRIES: Final = 10
_AGAIN: Final = 0.5  # seconds
_LARGEST: Final = 2**63


class RequestAudit:
    """Records of requests. `owner` says whose a workflow or a job is ("workflow 3"), None where nobody's."""

    def __init__(self, auditor: Auditor, clock: Clock, owner: Callable[[str], int | None]) -> None:
        self._auditor = auditor
        self._clock = clock
        self._owner = owner

    async def carry_out(self, door: Door, uid: int, op: str, request: Mapping[str, Any], operation: Operation) -> Any:  # noqa: ANN401
        """What the operation answers; its errors pass through. Raises AuditUnwritable, and nothing was done, where a
        request of somebody else than the agent's user could not be written down, and OutcomeUnknown where that was seen
        only when it had been done."""
        if op not in CHANGING:
            return await operation(uid, request)
        number, needs_record = new_id(), uid != os.geteuid() and op not in _STOPPING
        try:
            if needs_record:
                self._auditor.require()
            answer = await operation(uid, request)
        except Exception as e:
            if door is Door.INBOX and isinstance(e, NotNow | StoreError):
                raise  # it stays where it was left
            self._command(door, uid, op, request, None, number, e)
            raise
        self._command(door, uid, op, request, answer, number)
        if needs_record and door is not Door.INBOX:  # where nobody waits for an answer
            await self._on_disk()
        return answer

    async def _on_disk(self) -> None:
        """Until the record of what was done is on disk. Raises OutcomeUnknown where it does not come there."""
        for _ in range(_TRIES):
            if not self._auditor.trouble:
                return
            await asyncio.sleep(_AGAIN)
            self._auditor.catch_up()
        if self._auditor.trouble:
            raise OutcomeUnknown(
                f"it was done, but its record cannot be written: {self._auditor.trouble}. Look before you ask again; "
                "until the file can be written nothing more is done for others"
            )

    def turned_away(self, door: Door, uid: int | None, error: BaseException, verb: str = "request") -> None:
        """Somebody was refused before it was known (or looked at) what they wanted."""
        self._note(door, uid, verb, RecordOutcome.REFUSED, code_of(error), str(error), repeats=True)

    def program(self, uid: int, request: wire.Request, reply: wire.Reply, *, registered: bool) -> None:
        """What a program was answered; `registered`: this has made its job known to the agent. A check that changes
        nothing leaves no record."""
        verb = request.op
        if isinstance(reply, wire.Failure):
            self._of_job(uid, verb, request, RecordOutcome.REFUSED, reply.error, reply.message, repeats=True)
        elif registered:
            self._of_job(uid, verb, request, RecordOutcome.DONE, "registered", "")
        elif not isinstance(request, wire.Check | wire.Ended):
            self._of_job(uid, verb, request, RecordOutcome.DONE, "", _said(request), repeats=verb in _REPEATED)

    def program_refused(self, uid: int | None, request: wire.Request, error: BaseException) -> None:
        """A program was not believed, or asked for what is not its user's."""
        self._of_job(uid, request.op, request, RecordOutcome.REFUSED, code_of(error), str(error), repeats=True)

    # -- records -------------------------------------------------------------------------------------------------------

    def _of_job(
        self, uid: int | None, verb: str, request: wire.Request, outcome: RecordOutcome, code: str, text: str, *,
        repeats: bool = False,
    ) -> None:  # fmt: skip
        subject = f"job {request.job}"
        self._note(
            Door.TCP,
            uid,
            verb,
            outcome,
            code,
            text,
            subject=subject,
            owner=self._owner(subject),
            job=request.job,
            number=new_id(),
            details={"epoch": request.epoch, **_peer()},
            repeats=repeats,
        )

    def _command(
        self, door: Door, uid: int, op: str, request: Mapping[str, Any], answer: object, number: str,
        error: Exception | None = None,
    ) -> None:  # fmt: skip
        subject, owner, details = self._about(uid, op, request, answer)
        jobs = str(details.get("jobs", "")).split(",")
        job = int(jobs[0]) if len(jobs) == 1 and jobs[0].isdecimal() else None
        if error is None:
            outcome, code, text = RecordOutcome.DONE, "", _lines(answer)
        else:
            wrong = isinstance(error, StoreError) or not isinstance(error, PenstockError)
            outcome, code = RecordOutcome.FAILED if wrong else RecordOutcome.REFUSED, code_of(error)
            text = str(error) if isinstance(error, PenstockError) else brief(error)
            if isinstance(error, AuditUnwritable):
                outcome = RecordOutcome.REFUSED
        self._note(
            door,
            uid,
            op,
            outcome,
            code,
            text,
            subject=subject,
            owner=owner,
            job=job,
            number=number,
            details={**details, **_peer()},
            repeats=error is not None,
        )

    def _about(
        self, uid: int, op: str, request: Mapping[str, Any], answer: object
    ) -> tuple[str, int | None, dict[str, Scalar]]:
        """What a request of the command line is about, as far as it can be told from what may be anything."""
        if op in ("pause", "resume"):
            whose = request.get("uid")
            scope = {key: _word(request.get(key)) for key in ("feature", "partition", "why")}
            whose = whose if type(whose) is int and 0 <= whose < _UIDS else None
            what = scope["feature"] or "everything"
            whom = "" if whose is None else f" of {login(whose)}"
            where = f" in {scope['partition']}" if scope["partition"] else ""
            return f"{what}{whom}{where}", whose, {k: v for k, v in scope.items() if v}
        if op in _OF_AGENT:
            return "the agent", None, _said_of_off(request)
        if op == "mold":
            given = {key: _word(request.get(key)) for key in ("shapes", "checkpoint")}
            jobs = _jobs([request])
            subject = f"job {jobs}" if jobs else ""
            return subject, self._owner(subject), {k: v for k, v in {"jobs": jobs, **given}.items() if v}
        number = answer.get("run") if isinstance(answer, Mapping) else request.get("run")
        if type(number) is not int:
            number = request.get("run")
        subject = f"workflow {number}" if type(number) is int and 0 < number < _LARGEST else ""
        owner = self._owner(subject) if subject else None
        flow = request.get("workflow")
        details: dict[str, Scalar] = {}
        if isinstance(flow, Mapping):
            details |= {"name": _word(flow.get("name")), "stages": _length(flow.get("stages"))}
        elif isinstance(flow, str):
            details |= {"name": _word(flow), "stages": _length(request.get("stages"))}
        if op == "guide":
            details["jobs"] = _jobs(request.get("stages"))
        if op == "follow":
            details["jobs"] = _jobs(request.get("links"))
        details |= {key: _word(request.get(key)) for key in ("stage", "strategy")}
        details["seconds"] = _number(request.get("seconds"))
        return subject, owner, {k: v for k, v in details.items() if v not in (None, "")}

    def _note(
        self,
        door: Door,
        uid: int | None,
        verb: str,
        outcome: RecordOutcome,
        code: str,
        text: str,
        *,
        subject: str = "",
        owner: int | None = None,
        job: int | None = None,
        number: str = "",
        details: Mapping[str, Scalar] | None = None,
        repeats: bool = False,
    ) -> None:
        self._auditor.request(
            Record(
                self._clock.now(),
                RecordKind.REQUEST,
                verb,
                outcome,
                code,
                door,
                uid,
                "" if uid is None else login(uid),
                owner,
                job,
                subject,
                number,
                clean(text),
                details=details if details is not None else dict(_peer()),
            ),
            repeats=repeats,
        )


def _peer() -> dict[str, Scalar]:
    """The address of who came over the network."""
    peer = PEER.get()
    return {} if not peer or peer.startswith("uid ") else {"peer": peer}


def _word(value: object) -> str:
    return clean(value)[:200] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and abs(value) < _LARGEST else None


def _said_of_off(request: Mapping[str, Any]) -> dict[str, Scalar]:
    units = request.get("units")
    named = ",".join(map(_word, units[:_LISTED])) if isinstance(units, list) else ""
    said: dict[str, Scalar] = {key: True for key in ("release", "drop_slots") if request.get(key)}
    return said | {k: v for k, v in {"why": _word(request.get("why")), "units": named}.items() if v}


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, list | tuple) else None


def _jobs(stages: object) -> str:
    some = stages[:_LISTED] if isinstance(stages, list | tuple) else ()
    found = [s.get("job") for s in some if isinstance(s, Mapping)]
    return ",".join(str(n) for n in found if type(n) is int and 0 < n < _LARGEST)


def _lines(answer: object) -> str:
    """What the answer says in words: the pauses that were set or lifted, by whom."""
    pauses = answer.get("pauses") if isinstance(answer, Mapping) else None
    return "; ".join(map(str, pauses)) if isinstance(pauses, list) else ""


def _said(request: wire.Request) -> str:
    match request:
        case wire.Announce():
            return f"{request.size} processes in {request.in_seconds:g} s"
        case wire.Refuse():
            return request.why
        case wire.Finished():
            return f"{request.size} processes"
    return ""
