"""Slots, plans and where to run. On a cluster instants are seconds since 1970 and durations seconds; with
--queue both count in the file's unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from penstock.console.answers import Answer, AnswerPart, Document, absent

__all__ = [
    "ANSWERS",
    "Bags",
    "Compare",
    "HoldAnswer",
    "HoldTick",
    "Holds",
    "Ledger",
    "Plan",
    "Profile",
    "Quotes",
    "Select",
    "SitesPlan",
    "Slots",
    "Stage",
]


class QueueStart(AnswerPart):
    """When such a job starts in the queue: by everybody's time limits (null: never), and likely, in nine of ten cases
    between `low` and `high` (null: not known, or not within 30 days)."""

    guaranteed: float | None
    low: float | None
    likely: float | None
    high: float | None


class Slot(AnswerPart):
    """`procs` nodes (processors, in a file) from `start` for `duration`; `c` and `f` are prices. `nodes`: which."""

    start: float
    procs: int
    duration: float
    c: float
    f: float
    divisible: bool
    extensible: bool
    nodes: list[str] = absent()
    likely: QueueStart = absent()


class Slots(Answer):
    """In order of their start."""

    slots: list[Slot]


class Quote(AnswerPart):
    """A start with its price for delays (null: it cannot be had), and by how much it delays which jobs."""

    start: float
    c: float
    f: float | None
    delays: dict[str, float]
    nodes: list[str] = absent()


class Quotes(Answer):
    """In order of their start. `queued`: null for a file, and where nodes must have something."""

    quotes: list[Quote]
    queued: QueueStart | None


class Point(AnswerPart):
    """What a plan costs and how long it takes."""

    cost: float | None
    makespan: float | None


class Placed(AnswerPart):
    """A stage in its slot, and on which nodes (numbers of processors, in a file). Where the slot is shorter than the
    stage's limit: that limit, and how probable it is that the stage takes longer than its slot. `likely`: when it
    starts as one of a chain of jobs in the queue, without slots; absent for a file, with --reserve, and where nodes
    must have something."""

    name: str
    start: float
    end: float
    procs: int
    on: list[int] | list[str]
    limit: float | None = absent()
    overrun: float = absent()
    likely: QueueStart = absent()


class OnFront(Point):
    """`takes` says which slots: `free slots`, `others' slots` (who is delayed, at a price), `whole slots`."""

    takes: str


class Chosen(AnswerPart):
    """`front` are the plans that no other beats, `best_effort` what the queue alone would give; `notes` say what was
    not looked at."""

    method: str
    front: list[OnFront]
    notes: list[str]
    cost: float | None
    makespan: float | None
    best_effort: Point | None
    stages: list[Placed]


class InReservations(AnswerPart):
    """The jobs of stages that have a reservation each."""

    by: Literal["reservations"]
    jobs: dict[str, int]


class AskedFor(AnswerPart):
    """The jobs of stages that wait in the queue beside a slot each, for which an operator was asked, and `why`."""

    by: Literal["requests"]
    why: str
    jobs: dict[str, int]


class InChain(AnswerPart):
    """Workflows that were handed over as chains, and `why` nothing is reserved; null: the next tick takes it on."""

    by: Literal["chain"]
    why: str
    workflows: dict[str, int | None]


class Plan(Answer, Chosen):
    """The chosen plan. `run`: with --reserve, how it is run."""

    run: InReservations | AskedFor | InChain = absent()


class Booked(Document):
    """A stage in its slot, by the clock of its site."""

    name: str
    start: float
    end: float


class RunThere(Document):
    """Whether it runs there in `reservations` or as a `chain`."""

    by: str


class Reserved(Document):
    """A plan as the site answered that it is reserved at, whatever release that has."""

    stages: list[Booked]
    run: RunThere = absent()


class PlacedThere(Placed):
    """A stage at a site; `start_there` is by that site's clock."""

    site: str
    start_there: float


class Site(AnswerPart):
    """A site that has answered; `clock_ahead` is how many seconds its clock is before this one. A queue
    file has no partition."""

    name: str
    partition: str | None
    procs: int
    slots: int
    clock_ahead: float


class LeftOut(AnswerPart):
    """A site that has not."""

    name: str
    why: str


class Transfer(AnswerPart):
    """Data of one stage for another; `correction` is what measured transfers took, over what the file says."""

    of: str
    for_: str
    from_: str
    to: str
    bytes: float
    start: float
    end: float
    correction: float


class SitesPlan(Answer, Chosen):
    """A plan over several sites (--sites, --site). `reserved`: with --reserve."""

    now: float
    stages: list[PlacedThere]  # type: ignore[assignment]
    sites: list[Site]
    left_out: list[LeftOut]
    transfers: list[Transfer]
    reserved: Reserved = absent()


class Hold(AnswerPart):
    """A held slot; `base` and `f` are its price, f null where no reservation could be had. `submit_at`, `chance` and
    `idle` are those of a job that idles until it begins: when it is submitted, the probability that it runs by then,
    and for how long (s) it then idles on average; null without one."""

    hold: int
    name: str
    phase: str
    method: str
    used: str
    reason: str
    nodes: int
    start: float
    duration: float
    base: float
    f: float | None
    account: str
    submit_at: float | None
    chance: float | None
    idle: float | None


class HoldAnswer(Answer, Hold):
    """One held slot."""


class Holds(Answer):
    """By number."""

    holds: list[Hold]


class HoldTick(Holds):
    """`changes` are sentences on what was done."""

    changes: list[str]


class Account(AnswerPart):
    """In units of the price; `budget` and `left` are null where no budget was set."""

    name: str
    budget: float | None
    spent: float
    promised: float
    left: float | None


class Entry(AnswerPart):
    """A line of the ledger."""

    hold: int
    kind: str
    account: str
    at: float
    amount: float


class Ledger(Answer):
    """What slots have cost."""

    accounts: list[Account]
    entries: list[Entry]


class Resource(AnswerPart):
    """Where a task may run. Seconds: `tx` runs, `tq` waits, `ttc` both; `cost` in the metric; null: not known. With
    several tasks `task` says which. On a cluster: how many tasks in how many jobs go there, under which `qos` where the
    file names any, and what was submitted."""

    resource: str
    viable: bool
    why: str | None
    cost: float | None
    tx: float | None
    tq: float | None
    ttc: float | None
    task: str = absent()
    tasks: int = absent()
    jobs: int = absent()
    qos: str | None = absent()
    bag: int = absent()
    job_ids: list[int | None] = absent()


class Select(Answer):
    """Best first, task by task."""

    resources: list[Resource]


class Progress(AnswerPart):
    """Tasks by what became of them; `unplaced` wait for a place (`homeless` in earlier releases)."""

    waiting: int
    running: int
    done: int
    failed: int
    unplaced: int
    homeless: int


class Array(AnswerPart):
    """A job array; `job` is null while its submission is not known. `withdrawn` are those of its jobs that moved."""

    job: int | None
    cluster: str
    resource: str
    jobs: int
    withdrawn: int


class Move(AnswerPart):
    """Tasks that went from one resource to another."""

    at: float
    from_: str
    to: str
    tasks: int


class Bag(AnswerPart):
    """A bag of tasks; `finished` is null while it goes on."""

    bag: int
    name: str
    tasks: int
    finished: float | None
    cancelled: bool
    progress: Progress
    arrays: list[Array]
    moves: list[Move]
    problems: list[str]


class Bags(Answer):
    """By number."""

    bags: list[Bag]


class Profile(Answer):
    """What a command used up. `amount` are the cycles to require; mean and deviation are by figure."""

    file: str
    counters: str
    amount: float
    mean: dict[str, float]
    deviation: dict[str, float]


class Machine(AnswerPart):
    """A machine beside what the base's profile predicts: seconds, and errors in per cent by base and maximum clock."""

    name: str
    p2a_cy: float
    epsilon: float
    actual: float
    by_base: float | None
    by_max: float | None
    error_base: float | None
    error_max: float | None


class Compare(Answer):
    """`ranked_right` is the share of pairs of machines whose predicted order is the real one, by clock."""

    machines: list[Machine]
    ranked_right: dict[str, float]


class Stage(Answer):
    """Data that were moved: bytes (null: not known) in seconds, what was predicted, and what later ones are corrected
    by."""

    from_: str
    to: str
    path: str
    bytes: float | None
    seconds: float
    predicted: float | None
    correction: float | None


ANSWERS: Final[Mapping[str, Any]] = {
    "bags": Bags,
    "hold cancel": HoldAnswer,
    "hold list": Holds,
    "hold open": HoldAnswer,
    "hold tick": HoldTick,
    "ledger": Ledger,
    "plan": Plan | SitesPlan,
    "profile compare": Compare,
    "profile run": Profile,
    "quote": Quotes,
    "select": Select,
    "slots": Slots,
    "stage": Stage,
}
"""By the words after `penstock`."""
