"""The agent and its records. Instants are seconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from penstock.console.answers import Answer, AnswerPart, Document

__all__ = [
    "ANSWERS",
    "Audit",
    "Backup",
    "Check",
    "Configuration",
    "Doctor",
    "Off",
    "On",
    "Paused",
    "Salvage",
    "Vacuum",
    "Verified",
]


class Feature(AnswerPart):
    """Something that Penstock can do, whether it can here, and by which checks."""

    id: str
    title: str
    outcome: str
    wanted: bool
    right: str
    because: list[str]
    docs: str


class Finding(AnswerPart):
    """What one check saw, what would change it and what that costs."""

    id: str
    level: str
    seen: str
    change: str
    cost: str
    docs: str


class Doctor(Answer):
    """`requests` are counts by Slurm's commands. Null where Slurm did not answer."""

    penstock: str
    user: str
    host: str
    python: str
    config: str | None
    cluster: str | None
    slurm: str | None
    operator: bool | None
    requests: dict[str, int]
    seconds: float
    healthy: bool
    verdict: str
    features: list[Feature]
    checks: list[Finding]


class Paused(Answer):
    """`left`: nobody answered, and it is left for the next pass. Else what was paused, or lifted, in words. `unwritten`
    says why that does not outlive the agent; empty: it does."""

    left: bool
    pauses: list[str]
    unwritten: str


class Order(AnswerPart):
    """Who (uid) has said that all is to be off, when, and what was stopped for it."""

    by: int
    since: float
    why: str
    release: bool
    drop_slots: bool
    units: list[str]


class Command(AnswerPart):
    """What to type."""

    command: str
    note: str


class Item(AnswerPart):
    """One thing of Penstock's; `place`: "left" in Slurm, "alone" where it does without an agent, or "waits"."""

    kind: str
    uid: int
    user: str
    place: Literal["left", "alone", "waits"]
    text: str
    jobs: list[int]
    pending: bool
    todo: list[Command]


class Items(AnswerPart):
    """What there is, and when that was looked at."""

    at: float
    pending: bool
    items: list[Item]


class Off(Answer):
    """`report` is null while it is not known what is left. `type` says what is still to be typed. `unwritten`: see
    `Paused`; the agent is left running then."""

    off: Order | None
    text: str
    unwritten: str
    settled: bool
    problems: list[str]
    report: Items | None
    stopped: list[str]
    type: list[str]
    dry_run: bool
    nothing_left: bool


class On(Answer):
    """The order that was lifted; null: it was not off."""

    off: Order | None
    started: list[str]
    type: list[str]


class Record(Document):
    """A record as it is stored, and its hash."""

    seq: int
    at: str
    verb: str
    hash: str


class Audit(Answer):
    """Oldest first."""

    records: list[Record]


class Fault(AnswerPart):
    """What is wrong, and where."""

    file: str
    line: int
    text: str
    at: float | None


class Verified(Answer):
    """--verify: whether the record is what was written. `last` is NUMBER:HASH of the last one."""

    whole: bool
    records: int
    first: int | None
    last: str | None
    findings: list[Fault]
    before_since: list[Fault]
    notes: list[Fault]
    compared_with: list[str]
    anchored: int
    anchors_not_kept: int
    warnings: list[str]


class Span(AnswerPart):
    """The first and the last of a table's rows."""

    first: float | None
    last: float | None


class Check(Answer):
    """A state file. `version` is its own, `program` what this program writes; `size` in bytes."""

    path: str
    kind: str
    version: int
    program: int
    compatible: Literal["same", "older", "newer"]
    size: int
    whole: bool
    problems: list[str]
    rows: dict[str, int]
    spans: dict[str, Span]


class Backup(Check):
    """The copy."""


class Kept(AnswerPart):
    """What could be read of a table, and what could not."""

    kept: int
    left_out: list[str]
    unreadable_pages: int
    unreadable_rows: int


class Salvage(Check):
    """The new file, and what is in it by table. `lost`: something could not be read."""

    from_: str
    lost: bool
    tables: dict[str, Kept]


class Vacuum(Answer):
    """Bytes before and after, and how many rows were taken out by what they were."""

    path: str
    before: int
    after: int
    forgotten: dict[str, int]


class Configuration(Answer):
    """Its sections as `penstock config schema` has them; with --origin each key is a `value` and where it is `from`."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "allow",
        "json_schema_extra": {"additionalProperties": {"additionalProperties": True, "type": "object"}},
    }


ANSWERS: Final[Mapping[str, Any]] = {
    "audit": Audit | Verified,
    "config show": Configuration,
    "db backup": Backup,
    "db check": Check,
    "db salvage": Salvage,
    "db vacuum": Vacuum,
    "doctor": Doctor,
    "off": Off,
    "on": On,
    "pause": Paused,
    "resume": Paused,
}
"""By the words after `penstock`."""
