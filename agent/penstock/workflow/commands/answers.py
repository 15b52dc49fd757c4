"""Workflows and malleable jobs. Instants are seconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.answers import Answer, AnswerPart, Document, absent

__all__ = [
    "ANSWERS",
    "Cancel",
    "Decision",
    "Elastic",
    "Explain",
    "Logs",
    "More",
    "Retry",
    "Status",
    "Submit",
    "Tick",
    "Top",
    "Try",
]


class Submit(Answer):
    """`run` is the number of the workflow; null: it was left for the next `penstock tick`."""

    run: int | None


class Elastic(Answer):
    """`job` is null with --dry-run; `script` is what sbatch gets."""

    job: int | None
    script: str


class Cancel(Answer):
    """`run` is its number, or its name if it has slots. `failed` says which jobs could not be cancelled, and why.
    `unwritten`: why an agent that is restarted goes on with it; empty: it does not."""

    run: int | str
    jobs: list[int]
    failed: list[str]
    unwritten: str


class More(Answer):
    """For so many `seconds` the workflow waits for more stages; 0: it ends with those it has."""

    run: int
    seconds: float


class Retry(Answer):
    """`jobs` are the new ones by stage, where the caller's command submitted them. `tasks` are those of
    arrays, of which the others have completed."""

    run: int | None
    jobs: dict[str, int]
    tasks: dict[str, str]


class Logs(Answer):
    """The stage whose output it is."""

    workflow: int | str
    stage: str
    job: int
    files: list[str]


class Stage(Document):
    """A stage as the agent keeps it. From the end of the stages before it to its start it had a `perceived_wait` in the
    queue, was `paused` (held, or the agent was told to leave the workflow alone), and there was the agent's `reaction`,
    until it had submitted the stage or let it go. `reason` is what Slurm says that its job waits for."""

    name: str
    phase: str
    job: int | None
    submitted: float | None
    start: float | None
    end: float | None
    exit_code: int | None
    failure: str | None
    retries: int
    perceived_wait: float | None
    paused: float | None
    reaction: float | None
    reason: str = absent()


class Workflow(Document):
    """A workflow as the agent keeps it; `id` is its number. One in slots has its holds as `slots`, by stage."""

    id: int
    name: str
    uid: int
    user: str
    strategy: str
    phase: str
    why: str | None
    submitted_at: float
    ended_at: float | None
    stages: list[Stage]
    slots: dict[str, dict[str, Any]] = absent()


class Offer(Document):
    """What a malleable program said last; sizes are processes."""

    size: int
    minimum: int
    maximum: int


class Companion(Document):
    """A job that holds nodes for another."""

    job: int
    nodes: list[str]


class Malleable(Document):
    """A malleable job as the agent keeps it; sizes are processes."""

    job: int
    uid: int
    phase: str
    nodes: list[str]
    target: int
    companions: list[Companion]
    note: str
    offer: Offer


class Moldable(Document):
    """A job whose nodes follow the queue until it starts; `shapes` as its owner has written them."""

    job: int
    uid: int
    shapes: str
    phase: str
    asked: int | None


class Resize(Document):
    """A resize that is over."""

    job: int
    kind: str
    outcome: str


class Top(Answer):
    """`problems` say why nothing is done. `reserved` are the caller's workflows in slots."""

    now: float
    problems: list[str]
    workflows: list[Workflow]
    reserved: list[Workflow]
    malleable: list[Malleable]
    moldable: list[Moldable]


class QueueJob(Document):
    """A job in the queue that is neither a stage nor malleable or moldable so far. `name` is its number as squeue has
    it; `called` the name in the file that `penstock elastic` has submitted it from, and null for others. `start` is
    null while it waits."""

    job: int
    name: str
    called: str | None
    state: str
    reason: str
    nodes: int
    tasks: int
    submitted: float
    start: float | None


class Status(Top):
    """The same with what is over. `paused_until`: Slurm is left alone until then. `jobs` are the asker's others, at
    most 200."""

    paused_until: float
    resizes: list[Resize]
    jobs: list[QueueJob]


class Decision(Document):
    """What was decided about whom, and why: each reason is a code and a text."""

    at: float
    verb: str
    subject: str
    reasons: list[tuple[str, str]]
    details: dict[str, Any]


class Explain(Answer):
    """Those about `subject`, oldest first."""

    subject: str
    decisions: list[Decision]


class Tick(Answer):
    """`ran`: this command did the pass. `left` is how many workflows go on; null: Slurm did not answer."""

    ran: bool
    problems: list[str]
    decisions: list[Decision]
    left: int | None


class Makespan(AnswerPart):
    """From now to the last end: the median, and between which two 80 of 100 lie."""

    median: float
    low: float
    high: float


class Less(AnswerPart):
    """The mean of a makespan less the plain chain's in the same future, with its 95 % interval; below 0: shorter."""

    mean: float
    low: float
    high: float


class TriedCut(AnswerPart):
    """The stages of each job. `less` is null for the plain chain."""

    jobs: list[list[str]]
    makespan: Makespan
    less: Less | None
    core_hours: float


class Try(Answer):
    """What a workflow may expect. `line` says it in words and `because` why, `notes` what it is made from. `live`: an
    agent answered. `cuts` are the ways to cut it into jobs, the plain chain first, `chosen` is the place of the safe
    one; `gain`: that is not the plain chain. `futures` is how often the queue's future was drawn; 0: there is no
    forecast, and `cuts` is empty."""

    workflow: str
    partition: str
    at: float
    live: bool
    line: str
    because: str
    gain: bool
    futures: int
    chosen: int
    cuts: list[TriedCut]
    notes: list[str]


ANSWERS: Final[Mapping[str, Any]] = {
    "cancel": Cancel,
    "more": More,
    "elastic": Elastic,
    "explain": Explain,
    "logs": Logs,
    "retry": Retry,
    "status": Status,
    "submit": Submit | Try,
    "tick": Tick,
    "top": Top,
    "try": Try,
}
"""By the words after `penstock`."""
