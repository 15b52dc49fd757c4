"""The protocol between an application's rank 0 and the agent: TCP, one JSON object per line, version 1.

    application                                  agent
    check   "may I stay as I am?"          ->    CheckReply: none, or expand/shrink/migrate to `size` on `nodes`
    announce "I shall want that size"      ->    Done
    accept  "I take up that epoch"         ->    Done, or Failure("stale-epoch"): then the application must not resize
    refuse  "I cannot", the nodes go back  ->    Done
    done    "the new ranks run, data moved"->    Done            (sent by the *new* rank 0)
    ended   "how do these jobs stand?"     ->    Endings         (of a job script, see `dmr.ended`)

Both sides build the dataclasses below; they validate themselves, so neither a wrong message nor a wrong program gets
past its constructor. Every refusal is a `WireError` that names the field. Unknown operations are refused, unknown extra
keys are ignored (a later minor release may add some), and a line is at most `MAX_LINE` bytes.

A request carries `auth`, a credential (`dmr.credential`) over the SHA-256 of the request's canonical JSON without
`auth`. The receiver checks the digest of what it *received*, extra keys included. Freshness (`time`) and replay (`id`)
are for the receiver to judge. Standard library only; the agent imports this module too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time as _time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

__all__ = [
    "ACTIONS",
    "ERRORS",
    "MAX_INT",
    "MAX_LINE",
    "MAX_TEXT",
    "METHODS",
    "VERSION",
    "Accept",
    "Announce",
    "Check",
    "CheckReply",
    "Done",
    "Ended",
    "Endings",
    "Failure",
    "Finished",
    "Received",
    "Refuse",
    "Reply",
    "Request",
    "WireError",
    "clean",
    "decode_reply",
    "decode_request",
    "digest",
    "encode",
    "signed",
]

VERSION: Final = 1
MAX_LINE: Final = 64 * 1024
MAX_TEXT: Final = 500
MAX_INT: Final = 2**31 - 1
ACTIONS: Final = ("none", "expand", "shrink", "migrate")
METHODS: Final = ("replace", "merge", "restart")
ERRORS: Final = ("not-permitted", "unknown-job", "bad-request", "stale-epoch", "busy", "unavailable")

_HEX16: Final = re.compile(r"[0-9a-f]{16}")
# Node names end up in `hosts=` lists and in Slurm commands, so nothing that either could read as syntax is a name.
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_AUTH: Final = re.compile(r"[ -~]{0,4096}")
_COMPANION: Final = re.compile(r"penstock-[1-9][0-9]{0,9}-[a-z0-9]{1,32}")
_GRES: Final = re.compile(r"[A-Za-z0-9_.:,-]{0,200}")
_CONSTRAINT: Final = re.compile(r"[A-Za-z0-9_.:&|*()\[\]=-]{0,200}")
_SLURM_NAME: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127})?")
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_STATE: Final = re.compile(r"[A-Z][A-Z_]{0,31}")
_MOST_JOBS: Final = 1000


class WireError(ValueError):
    """A message that is not of this protocol; `field` names the culprit ("line" when it is not even an object)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def clean(text: str) -> str:
    """Any text made fit for a free-text field: one line, printable, at most `MAX_TEXT` characters."""
    line = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(line.split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def _int(name: str, value: object, low: int) -> None:
    if type(value) is not int or not low <= value <= MAX_INT:
        raise WireError(name, f"must be an integer from {low} to {MAX_INT}")


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise WireError(name, f"must be printable text of at most {MAX_TEXT} characters")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise WireError(name, f"must be one of {', '.join(allowed)}")


def _nodes(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(n, str) and _NODE.fullmatch(n) for n in value):
        raise WireError(name, "must be a list of host names")
    if len(set(value)) != len(value):
        raise WireError(name, "must not name a node twice")


def _seconds(name: str, value: object) -> None:
    if type(value) is not float or not math.isfinite(value) or value < 0:
        raise WireError(name, "must be a number of seconds, finite and not negative")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every request carries: the Slurm job, the epoch it speaks of, a nonce, the sender's clock, a credential."""

    op: ClassVar[str] = ""
    job: int
    epoch: int
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    time: float = field(default_factory=_time.time)
    auth: str = ""

    def __post_init__(self) -> None:
        _int("job", self.job, 1)
        _int("epoch", self.epoch, 0)
        if not isinstance(self.id, str) or not _HEX16.fullmatch(self.id):
            raise WireError("id", "must be 16 hexadecimal digits")
        _seconds("time", self.time)
        if (
            not isinstance(self.auth, str)
            or len(self.auth) > 4096
            or not (self.auth.isascii() and self.auth.isprintable())
        ):
            raise WireError("auth", "must be printable ASCII of at most 4096 characters")


@dataclass(frozen=True, kw_only=True)
class Check(Request):
    """The application offers to be resized (DMR paper, section 5.1). Sizes are processes.

    `epoch` is the last one the application has finished, 0 at its start. `nodes` are those it runs on, in order of its
    ranks, `per_node` ranks on each, or empty when it does not know.

    `method` is how it resizes: all ranks are replaced, the old ones stay ("merge"), or it saves its state, ends and is
    started anew ("restart"). `companion`: it can also use nodes that another job of the same user holds. `steps_left`
    and `step_seconds` (measured, with the present size) tell how long it still runs, where it knows.
    `requests_nodes`: its launcher can ask Slurm for such a job, as its own user. `leaves_within`: it can do with nodes
    of another job for a while, and leaves them within so many seconds whenever it is asked to; None: what it is given
    it is to have as long as its own job may run. `starting` is the epoch on offer for which it is having new processes
    started, 0 for none; it accepts when they are up. The answer says whether the offer still stands.
    """

    op: ClassVar[str] = "check"
    size: int
    minimum: int
    maximum: int
    factor: int = 1
    preferred: int | None = None
    per_node: int = 1
    nodes: tuple[str, ...] = ()
    method: str = "replace"
    companion: bool = False
    steps_left: int | None = None
    step_seconds: float | None = None
    requests_nodes: bool = False
    starting: int = 0
    leaves_within: float | None = None

    def __post_init__(self) -> None:
        Request.__post_init__(self)
        _int("starting", self.starting, 0)
        for name in ("size", "minimum", "maximum", "factor", "per_node"):
            _int(name, getattr(self, name), 1)
        if self.minimum > self.maximum:
            raise WireError("minimum", "must not be above maximum")
        if self.preferred is not None:
            _int("preferred", self.preferred, 1)
            if not self.minimum <= self.preferred <= self.maximum:
                raise WireError("preferred", "must lie between minimum and maximum")
        _nodes("nodes", self.nodes)
        _one_of("method", self.method, METHODS)
        if type(self.companion) is not bool:
            raise WireError("companion", "must be true or false")
        if type(self.requests_nodes) is not bool:
            raise WireError("requests_nodes", "must be true or false")
        if self.steps_left is not None:
            _int("steps_left", self.steps_left, 0)
        if self.step_seconds is not None:
            _seconds("step_seconds", self.step_seconds)
        if self.leaves_within is not None:
            _seconds("leaves_within", self.leaves_within)


@dataclass(frozen=True, kw_only=True)
class Announce(Request):
    """The application will want `size` processes in `in_seconds` seconds, for a phase that it knows to come."""

    op: ClassVar[str] = "announce"
    size: int
    in_seconds: float

    def __post_init__(self) -> None:
        Request.__post_init__(self)
        _int("size", self.size, 1)
        _seconds("in_seconds", self.in_seconds)


@dataclass(frozen=True, kw_only=True)
class Accept(Request):
    """The application takes up the resize of `epoch`; sent before it spawns anything."""

    op: ClassVar[str] = "accept"


@dataclass(frozen=True, kw_only=True)
class Refuse(Request):
    """The application will not or cannot do the resize of `epoch` and goes on with its old size."""

    op: ClassVar[str] = "refuse"
    why: str

    def __post_init__(self) -> None:
        Request.__post_init__(self)
        _text("why", self.why)


@dataclass(frozen=True, kw_only=True)
class Finished(Request):
    """`done`: the `size` new ranks run on `nodes`, hold all data and have disconnected from the old ones.

    `timings` maps a phase ("spawn", "move") to its duration in seconds.
    """

    op: ClassVar[str] = "done"
    size: int
    nodes: tuple[str, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Request.__post_init__(self)
        _int("size", self.size, 1)
        _nodes("nodes", self.nodes)
        if not isinstance(self.timings, Mapping) or len(self.timings) > 32:
            raise WireError("timings", "must map at most 32 names to seconds")
        for name, value in self.timings.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise WireError("timings", "names are lower case, at most 64 characters")
            _seconds("timings", value)


@dataclass(frozen=True, kw_only=True)
class Ended(Request):
    """A job script waits for other jobs of its user, `jobs`: how does each of them stand? Changes nothing."""

    op: ClassVar[str] = "ended"
    jobs: tuple[int, ...]

    def __post_init__(self) -> None:
        Request.__post_init__(self)
        if not isinstance(self.jobs, tuple) or not 0 < len(self.jobs) <= _MOST_JOBS:
            raise WireError("jobs", f"must be a list of 1 to {_MOST_JOBS} job numbers")
        for job in self.jobs:
            _int("jobs", job, 1)


@dataclass(frozen=True, kw_only=True)
class NodeRequest:
    """What the agent cannot do, because it is another user: ask Slurm for a job that holds `node_count` nodes.

    `name` begins with `penstock-JOB-`; `time_limit` and `patience`, after which the request is withdrawn, in seconds.
    `gres` and `constraint` are what each node must have. Empty texts leave the choice to Slurm. `last`: behind all who
    wait. It may be told several times, and is done once.
    """

    name: str
    node_count: int
    time_limit: float
    patience: float
    partition: str = ""
    account: str = ""
    qos: str = ""
    exclusive: bool = False
    last: bool = False
    gres: str = ""
    constraint: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _COMPANION.fullmatch(self.name):
            raise WireError("name", "must be penstock-JOB- and at most 32 letters and digits")
        _int("node_count", self.node_count, 1)
        _seconds("time_limit", self.time_limit)
        _seconds("patience", self.patience)
        for name in ("partition", "account", "qos"):
            value = getattr(self, name)
            if not isinstance(value, str) or not _SLURM_NAME.fullmatch(value):
                raise WireError(name, "must be a name as Slurm has them, or empty")
        for name, form in (("gres", _GRES), ("constraint", _CONSTRAINT)):
            value = getattr(self, name)
            if not isinstance(value, str) or not form.fullmatch(value):
                raise WireError(name, "must be as salloc takes it, or empty")
        for name in ("exclusive", "last"):
            if type(getattr(self, name)) is not bool:
                raise WireError(name, "must be true or false")

    @property
    def job(self) -> int:
        """The application's job."""
        return int(self.name.split("-")[1])


@dataclass(frozen=True, kw_only=True)
class CheckReply:
    """The answer to a check: stay, or be `size` processes on `nodes` (the full list, in order), `per_node` on each.

    To "migrate" is to keep the size on other nodes (DMR paper, listings 1 and 2): Python programs do; those in C refuse
    an action that they do not know, and the agent of this release asks nobody for it.

    `companion` is the job that holds the added nodes where that is not the application's own, else 0. `node_request` is
    for its launcher, of a check that said `requests_nodes`.
    """

    action: str
    size: int
    epoch: int
    nodes: tuple[str, ...] = ()
    per_node: int = 1
    companion: int = 0
    reason: str = ""
    node_request: NodeRequest | None = None

    def __post_init__(self) -> None:
        _one_of("action", self.action, ACTIONS)
        _int("size", self.size, 1)
        _int("epoch", self.epoch, 0)
        _nodes("nodes", self.nodes)
        _int("per_node", self.per_node, 1)
        _int("companion", self.companion, 0)
        _text("reason", self.reason)
        if self.node_request is not None and not isinstance(self.node_request, NodeRequest):
            raise WireError("node_request", "must be an object")
        if self.action != "none" and len(self.nodes) * self.per_node != self.size:
            raise WireError("nodes", "must hold exactly `size` processes, `per_node` on each")


@dataclass(frozen=True, kw_only=True)
class Endings:
    """The answer to `ended`: by job number in text, the state of each that the agent has seen, in Slurm's word for it;
    and in how many seconds to ask again."""

    states: Mapping[str, str]
    again_in: float

    def __post_init__(self) -> None:
        if not isinstance(self.states, Mapping) or len(self.states) > _MOST_JOBS:
            raise WireError("states", f"must have a state for each of at most {_MOST_JOBS} jobs")
        for job, state in self.states.items():
            if not isinstance(job, str) or not (job.isascii() and job.isdigit()):
                raise WireError("states", "must be by job number")
            if not isinstance(state, str) or not _STATE.fullmatch(state):
                raise WireError("states", "must be words as Slurm has them")
        _seconds("again_in", self.again_in)


@dataclass(frozen=True)
class Done:
    """The answer to accept, refuse and done: noted."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The agent says no; `error` is one of `ERRORS`."""

    error: str
    message: str = ""

    def __post_init__(self) -> None:
        _one_of("error", self.error, ERRORS)
        _text("message", self.message)


Reply = CheckReply | Endings | Done | Failure
_REQUESTS: Final[Mapping[str, type[Request]]] = {c.op: c for c in (Check, Announce, Accept, Refuse, Finished, Ended)}
# Fields that came after the first release: a peer that does not know them means their defaults.
_LATER: Final = frozenset(
    {
        "method",
        "companion",
        "steps_left",
        "step_seconds",
        "requests_nodes",
        "node_request",
        "starting",
        "leaves_within",
        "gres",
        "constraint",
    }
)
_Message = TypeVar("_Message", Request, CheckReply, Endings, NodeRequest, Failure)
_R = TypeVar("_R", bound=Request)


class Received(NamedTuple):
    """A request and the digest its `auth` must be made over."""

    request: Request
    digest: str


def _body(message: Request | Reply) -> dict[str, Any]:
    body: dict[str, Any] = {"v": VERSION}
    if isinstance(message, Request):
        body["op"] = message.op
    else:
        body["ok"] = not isinstance(message, Failure)
    for f in fields(message):
        value = getattr(message, f.name)
        if isinstance(value, NodeRequest):
            value = {g.name: getattr(value, g.name) for g in fields(value)}
        body[f.name] = dict(value) if isinstance(value, Mapping) else value
    return body


def _canonical(body: Mapping[str, Any]) -> str:
    bare = {k: v for k, v in body.items() if k != "auth"}
    try:
        text = json.dumps(bare, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise WireError("line", "has a value that JSON cannot express") from error
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def digest(request: Request) -> str:
    """SHA-256 (hexadecimal) of the request's canonical JSON without `auth`: sorted keys, no spaces, ASCII."""
    return _canonical(_body(request))


def signed(request: _R, sign: Callable[[str], str]) -> _R:
    """The same request with its credential."""
    return replace(request, auth=sign(digest(request)))


def encode(message: Request | Reply) -> bytes:
    """The message as one line, newline included.

    Raises:
        WireError: it would be longer than `MAX_LINE`.
    """
    line = json.dumps(_body(message), separators=(",", ":")).encode("ascii") + b"\n"
    if len(line) > MAX_LINE:
        raise WireError("line", f"longer than {MAX_LINE} bytes")
    return line


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE:
        raise WireError("line", f"longer than {MAX_LINE} bytes")
    try:
        body = json.loads(line.decode("utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise WireError("line", "is not JSON") from error
    if not isinstance(body, dict):
        raise WireError("line", "must be a JSON object")
    if type(body.get("v")) is not int or body["v"] != VERSION:
        raise WireError("v", f"must be {VERSION}")
    return body


def _build(cls: type[_Message], body: Mapping[str, Any]) -> _Message:
    values: dict[str, Any] = {}
    for f in fields(cls):
        if f.name not in body:
            if f.name in _LATER:
                continue
            raise WireError(f.name, "is missing")
        value = body[f.name]
        if f.name in ("nodes", "jobs"):
            value = tuple(value) if isinstance(value, list) else None
        elif f.name == "node_request" and isinstance(value, dict):
            try:
                value = _build(NodeRequest, value)
            except WireError as error:
                raise WireError("node_request", str(error)) from None
        elif f.name in ("time", "in_seconds", "step_seconds", "time_limit", "patience", "again_in"):
            value = _float(value)
        elif f.name == "timings" and isinstance(value, dict):
            value = {k: _float(v) for k, v in value.items()}
        values[f.name] = value
    return cls(**values)


def _float(value: object) -> object:
    """JSON writes 2.0 as 2 in some languages; an integer too large for a float stays what it is and is refused."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def decode_request(line: bytes) -> Received:
    """The request in one line, and the digest of what was received.

    Raises:
        WireError: anything that is not a request of this version; never another exception, whatever the bytes.
    """
    body = _object(line)
    op = body.get("op")
    if not isinstance(op, str) or op not in _REQUESTS:
        raise WireError("op", f"must be one of {', '.join(_REQUESTS)}")
    return Received(_build(_REQUESTS[op], body), _canonical(body))


def decode_reply(line: bytes) -> Reply:
    """The reply in one line.

    Raises:
        WireError: anything that is not a reply of this version.
    """
    body = _object(line)
    ok = body.get("ok")
    if ok is False:
        return _build(Failure, body)
    if ok is not True:
        raise WireError("ok", "must be true or false")
    if "states" in body:
        return _build(Endings, body)
    return _build(CheckReply, body) if "action" in body else Done()
