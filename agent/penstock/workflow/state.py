"""The state of one running workflow: frozen, and to and from JSON-able values, so that it survives the agent.

Who puts its jobs into the queue is part of it (`phases.Submitter`). Times are seconds since the epoch, None means not
known (yet).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.api import JobState
from penstock.workflow.intervals import Intervals
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import Kept, RunPhase, StagePhase, Submitter
from penstock.workflow.ties import Tie

__all__ = [
    "Order",
    "Own",
    "StageRun",
    "StageSlot",
    "WorkflowRun",
    "units_of",
    "updated",
]

E = TypeVar("E", "StageRun", "Own")


@dataclass(frozen=True, slots=True)
class Order:
    """How a stage's job was submitted, to submit it again: sbatch's `words`, in the folder `workdir`.

    Without what Penstock added to it. `script` is what sbatch read from its standard input, None when it read a file.
    """

    words: tuple[str, ...] = ()
    workdir: str = ""
    script: str | None = None


@dataclass(frozen=True, slots=True)
class Own:
    """What is known of a job that its owner has submitted.

    `kept`: how it is kept back until the agent lets it go; any other hold is left alone. `begin` is the owner's own
    earliest start, before which it is not let go, `base` the owner's own dependency, which stays whatever else is
    changed. `registered`: when it was taken charge of. `expect` is its run time (s) as its owner said or earlier runs
    had it, None: neither, then its `limit` counts. `user`, `partition`, `qos`, `account`, `nodes` (how many) and
    `limit` (s, None: not known) are as Slurm shows them. `trouble` is the state in which a task of an array ended that
    did not complete. `former` are the jobs of earlier tries, `requeued_at` is when it was put back by the agent.
    `chained`: what it comes after is its owner's own dependency, which Slurm has as it was written: nothing is done to
    it but to follow a stage before it to a new job.
    """

    kept: Kept = Kept.NOT
    begin: float | None = None
    base: str = ""
    order: Order = Order()
    registered: float = 0.0
    expect: float | None = None
    partition: str = ""
    qos: str = ""
    account: str = ""
    nodes: int = 0
    limit: float | None = None
    trouble: str | None = None
    former: tuple[int, ...] = ()
    requeued_at: float | None = None
    chained: bool = False


@dataclass(frozen=True, slots=True)
class StageSlot:
    """What is held for a stage: `name` is that of its reservation, `hold` its number in the ledger. `moves` counts the
    slots that the stage had before; `whole` is the time limit (s) of its next one if it takes longer than this, which
    was made short on purpose. `killed` is a job of its name that Slurm had cancelled under release 0.1.0, which gave
    the next one the same name. `queued`: the slot was only asked for; the job waits in the queue, and is put into it
    when it begins."""

    name: str
    hold: int
    moves: int = 0
    whole: float | None = None
    killed: int | None = None
    queued: bool = False


@dataclass(frozen=True, slots=True)
class StageRun:
    """One job of a workflow: usually a stage; under `bigjob` all stages in one.

    `after` are the places in `WorkflowRun.stages` of the jobs it comes after, `covers` the stages it runs. `attempt`
    counts the Submits given out. `depends_on` are the jobs of those parents that had not completed when it was
    submitted, `tie` what keeps it behind them: with AFTER `minutes` after the start of each, with NODES the nodes
    `pins`. `hold`: it was submitted held, until its dependency had been read back. `changes` counts how often that was
    changed since, `looked_at` is when that was last thought over.
    `nodes` are those it holds or held last, `exclude` those on which it failed and shall not run again.
    `misses` counts its starts that came too early and were taken back. `wasted` are the node-seconds of attempts that
    came to nothing, `idle` those of them in which it waited for parents. `retries` counts attempts that failed by
    themselves and were repeated, `mishaps` those that failed with their nodes, `timeouts` those at their limit.
    `restarts` is Slurm's count of requeues.
    `estimate` is the predicted wait (s), `estimate_index` the predictor's alternative, `estimate_said` what its experts
    said (s, by name). `parent_end` is when the last of its parents was expected to end, `due` = `parent_end` -
    `estimate` when it is to be submitted. `submitted` is our time until Slurm's is seen. `slurm_state` and `exit_code`
    are Slurm's last word; `sought` is since when the job of a Submit without an answer is looked for, `observed` says
    that its wait was reported, `hindered` (a `waits.causes.Cause`) what else than its turn it was seen to wait for.
    `asked` counts how often accounting has been asked what became of the job without an answer that settles it, last at
    `asked_at`. `trouble` is how a task of an array has ended that did not complete, which Slurm may forget before the
    others end. `own` is what else is known of one that its owner has submitted, `slot` what is held for it.
    `again_from` is when the attempt before this one was over, or it was asked for again; `holds` are when its job was
    seen held by others than the agent. `called` is the name that its job was given, and `born` Slurm's submission time
    of it in the look that first showed it, or since it was requeued: what makes the number an identity (`identity.py`).
    """

    name: str
    after: tuple[int, ...] = ()
    phase: StagePhase = StagePhase.WAITING
    attempt: int = 0
    job: int | None = None
    depends_on: tuple[int, ...] = ()
    covers: tuple[str, ...] = ()
    tie: Tie = Tie.NONE
    minutes: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    hold: bool = True
    changes: int = 0
    looked_at: float | None = None
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    misses: int = 0
    wasted: float = 0.0
    idle: float = 0.0
    retries: int = 0
    mishaps: int = 0
    timeouts: int = 0
    restarts: int = 0
    estimate_index: int | None = None
    estimate: float | None = None
    estimate_said: Mapping[str, float] = field(default_factory=dict)
    parent_end: float | None = None
    due: float | None = None
    submitted: float | None = None
    released: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    slurm_state: str | None = None
    exit_code: int | None = None
    failure: str | None = None
    failures: int = 0
    retry_at: float | None = None
    sought: float | None = None
    observed: bool = False
    hindered: str | None = None
    asked: int = 0
    asked_at: float | None = None
    own: Own | None = None
    slot: StageSlot | None = None
    trouble: str | None = None
    again_from: float | None = None
    holds: Intervals = ()
    called: str = ""
    born: float | None = None

    @property
    def mine(self) -> Own:
        """`own`, of a job that its owner has submitted. Raises ValueError for one of the agent's."""
        if self.own is None:
            raise ValueError(f"stage {self.name} was not submitted by its owner")
        return self.own

    @property
    def stands_by(self) -> bool:
        """Whether a job of its owner's is in the queue, and nobody is known to have let it go."""
        return self.phase is StagePhase.WAITING or (self.phase is StagePhase.QUEUED and not self.mine.kept)

    @property
    def held_again(self) -> bool:
        """Whether its job has failed, and Slurm holds it for another run."""
        return self.phase is StagePhase.FAILED and self.slurm_state == JobState.REQUEUE_HOLD.value

    @property
    def held(self) -> StageSlot:
        """`slot`, of a stage that has one. Raises ValueError for another."""
        if self.slot is None:
            raise ValueError(f"stage {self.name} has no slot")
        return self.slot


def updated(entry: E, **changes: Any) -> E:  # noqa: ANN401
    """The entry with these fields; itself where they say nothing new, which is so in most passes."""
    news = any(getattr(entry, name) != value for name, value in changes.items())
    return replace(entry, **changes) if news else entry


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """One run of a workflow under a strategy. `partition` and `qos` are what its geometries are learned under, where a
    stage has no partition of its own.

    `submitter` says who submits its jobs. `name` is the workflow's, `uid` and `user` say whose it is; `flow` is the
    workflow itself, None if its owner submits the jobs: then they are registered as they come, `submitted_at` is when
    the first was, and where they run is in `StageRun.own`.

    `strategy` is the one that was asked for, `by` the one that acts (`auto` picks another); None: the same. `units` are
    its jobs as stages, one for each of `stages`. `max_time` (s) is the partition's limit, None: there is none.
    `levels_ahead` is how many levels of jobs that have not started are in the queue at most (`strategy.soon`). `gain`:
    how much shorter (s) it was than a plain chain in forecasts, where these chose its jobs.
    `token` keeps job names unique when numbers start again with a new state file; `stage_first`: they begin with the
    stage's, as they did not in earlier releases. `environment` names that of who submitted it (`state.environments`).
    `stages` has one entry per job, each after all that it comes after. `discarded` are jobs given up (their dependency
    was lost) that must be seen to end, `given_up` says what `born` and `called` were of each.
    `why` says what made it fail or who cancelled it. `outlook` is what
    `strategy.expected_ends` has worked out of this very state, by the moment that it was asked for.

    In slots, `leaving` are the names and holds of those that are given up and may have a job or a reservation left, and
    `told` is what was said last of each stage ("" for the run).

    `pauses` are when the agent was told to leave it alone. `open_until`: until then more stages may come, so that
    it goes on although those it has have ended; None: these are all.

    FAILING: a stage did not complete. The agent then cancels what is left of its own jobs; those of an owner stay where
    they are, and wait for their owner to retry or to cancel; in slots all goes on that does not come after it.
    CANCELLING: nothing of it is submitted or let go any more.
    """

    id: int
    name: str
    strategy: str
    submitted_at: float
    partition: str
    qos: str
    stages: tuple[StageRun, ...]
    units: tuple[Stage, ...]
    flow: Workflow | None = None
    submitter: Submitter = Submitter.AGENT
    uid: int = 0
    user: str = ""
    by: str | None = None
    max_time: float | None = None
    levels_ahead: int = 2
    gain: float | None = None
    phase: RunPhase = RunPhase.ACTIVE
    why: str | None = None
    ended_at: float | None = None
    discarded: tuple[int, ...] = ()
    given_up: Mapping[int, tuple[float | None, str]] = field(default_factory=dict)
    token: str = ""
    stage_first: bool = True
    environment: str = ""
    leaving: tuple[tuple[str, int], ...] = ()
    told: Mapping[str, str] = field(default_factory=dict)
    pauses: Intervals = ()
    open_until: float | None = None
    outlook: dict[float, dict[int, tuple[float, bool]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def called(self) -> str:
        """What commands and decisions know it by."""
        return self.name if self.in_slots else str(self.id)

    @property
    def workflow(self) -> Workflow:
        """What the agent submits. Raises ValueError for a workflow whose owner does."""
        if self.flow is None:
            raise ValueError(f"workflow {self.id}: its owner submits the jobs")
        return self.flow

    @property
    def owned(self) -> bool:
        """Whether its owner submits the jobs."""
        return self.submitter is Submitter.OWNER

    @property
    def chain(self) -> bool:
        """Whether nobody has named it: its jobs depend on one another, and that is all (`chains.py`)."""
        return self.owned and all(stage.own is not None and stage.own.chained for stage in self.stages)

    @property
    def in_slots(self) -> bool:
        """Whether its stages have slots of their own."""
        return self.submitter is Submitter.SLOT

    @property
    def goes_on(self) -> bool:
        """Whether stages are still submitted or let go."""
        failing = self.phase is RunPhase.FAILING and self.submitter is not Submitter.AGENT
        return self.phase is RunPhase.ACTIVE or failing

    @property
    def doing(self) -> str:
        """What the agent does with a stage that is due, in a word for people."""
        return "release" if self.owned else "submit"

    @property
    def done(self) -> str:
        """The same when it has been done."""
        return "released" if self.owned else "submitted"

    @property
    def acting(self) -> str:
        """The name of the strategy that acts."""
        return self.by or self.strategy

    @property
    def label(self) -> str:
        """What the run is called in job names: its number and token, unique beyond this agent's state."""
        return f"{self.id}-{self.token}" if self.token else self.called

    def stage(self, name: str) -> StageRun:
        """The entry of a stage. Raises KeyError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def with_stage(self, stage: StageRun) -> WorkflowRun:
        """The same run with the entry of that name replaced; itself when nothing changes."""
        for i, old in enumerate(self.stages):
            if old.name == stage.name:
                return self.put(i, stage)
        raise KeyError(stage.name)

    def put(self, i: int, stage: StageRun) -> WorkflowRun:
        """The same with this as entry `i`; itself when nothing changes."""
        if (old := self.stages[i]) == stage:
            return self
        units = self.units
        if stage.own is not None and stage.own != old.own:
            units = (*units[:i], _unit(stage, units[i].after), *units[i + 1 :])
        return replace(self, stages=(*self.stages[:i], stage, *self.stages[i + 1 :]), units=units)

    def without(self, job: int, born: float | None, called: str) -> WorkflowRun:
        """The same run, which has given up this job, and waits for its end."""
        return replace(self, discarded=(*self.discarded, job), given_up={**self.given_up, job: (born, called)})

    def unit(self, i: int) -> Stage:
        """Number `i` as it is asked for now: after attempts that ran into their limit with half as much time again for
        each, as far as the partition allows."""
        unit, times = self.units[i], self.stages[i].timeouts
        if not times:
            return unit
        most = unit.time_limit * 1.5**times
        if self.max_time is not None:
            most = max(min(most, self.max_time), unit.time_limit)
        return replace(unit, time_limit=most)

    def partitions_of(self, i: int) -> tuple[str, ...]:
        """Where the job of entry `i` may start."""
        own = self.stages[i].own
        return tuple((own.partition if own is not None else self.units[i].asks.partition or self.partition).split(","))

    @property
    def partitions(self) -> tuple[str, ...]:
        """Where any of its jobs may start."""
        return tuple(dict.fromkeys(name for i in range(len(self.stages)) for name in self.partitions_of(i)))

    def parents(self, i: int) -> tuple[StageRun, ...]:
        """The entries that number `i` comes after; none for one that may start at once."""
        return tuple(self.stages[j] for j in self.stages[i].after)

    def following(self, places: Iterable[int]) -> frozenset[int]:
        """The places of all entries that come after one of these, directly or not."""
        found = set(places)
        start = frozenset(found)
        for i, stage in enumerate(self.stages):  # parents stand before their children
            if not found.isdisjoint(stage.after):
                found.add(i)
        return frozenset(found - start)

    def ready_at(self, i: int) -> float | None:
        """When the last parent of number `i` ended, epoch s; None while that is not known of all of them.

        For one without: when the workflow was submitted, or an owner's job was registered, which may be much later.
        """
        ends = [parent.end for parent in self.parents(i)]
        known = [end for end in ends if end is not None]
        own = self.stages[i].own
        begun = self.submitted_at if own is None else own.registered
        return None if len(known) < len(ends) else max(known, default=begun)

    def jobs(self) -> tuple[int, ...]:
        """Ids of all jobs whose fate matters to the run still, ascending: what the loop's view should cover. Those that
        failed and that Slurm holds for another run are in the queue, too."""
        live = (s.job for s in self.stages if s.job is not None and (not s.phase.final or s.held_again))
        return tuple(sorted({*live, *self.discarded}))


def units_of(stages: Iterable[StageRun]) -> tuple[Stage, ...]:
    """What jobs that their owner has submitted ask for, as far as Slurm has shown it; infinite times are not known."""
    known = tuple(stages)
    names = [stage.name for stage in known]
    return tuple(_unit(stage, tuple(map(names.__getitem__, stage.after))) for stage in known)


def _unit(stage: StageRun, after: tuple[str, ...]) -> Stage:
    own = stage.mine
    limit = own.limit or math.inf
    return Stage(stage.name, max(own.nodes, 1), limit, own.expect or limit, "", after)
