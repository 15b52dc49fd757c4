"""Random lives of jobs that their owner has submitted, and an agent on a bad day: what must hold whatever happens.

`Queue` is a small Slurm of its own: begin times, holds, afterok, dependencies that are dropped, jobs that leave the
controller's memory, accounting that lags. Others hold and release, the owner requeues, cancels, submits again and adds
stages; the agent is killed between any two of its writes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from owned_jobs import NEVER, run_of, stage_of

from penstock.api import AccountingRecord, Job, JobState
from penstock.values.waits import Estimate
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.phases import Kept, RunPhase, StagePhase
from penstock.workflow.run.instructions import Change, Finished, Lookup, Observe, Release, Requeue, SlurmView
from penstock.workflow.run.runner import Runner
from penstock.workflow.submit.admission import admit, plan, registration

ALICE, BOB, NOBODY = 1000, 1001, 0  # a job of nobody's is one that Slurm has never known
NAMES = {ALICE: "alice", BOB: "bob"}
BAD_ENDS = (JobState.FAILED, JobState.TIMEOUT, JobState.NODE_FAIL, JobState.CANCELLED)


@dataclass
class Entry:
    """A job. `needs` are those that it is `afterok`, `by` says who holds it ("": nobody, "user", "admin")."""

    id: int
    uid: int
    submit: float
    kept: Kept
    needs: set[int]
    length: float
    outcome: JobState
    begin: float = 0.0
    by: str = ""
    state: JobState = JobState.PENDING
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    restarts: int = 0
    requeued: float = -1.0
    let_go: bool = False

    @property
    def held_back(self) -> bool:
        """For the agent, still."""
        return self.state is JobState.PENDING and (self.by == "user" if self.kept is Kept.HOLD else self.begin == NEVER)


@dataclass
class Queue:
    rng: random.Random
    now: float = 0.0
    entries: dict[int, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = self.rng.choice([20.0, 300.0, 1e9])
        self.lag = self.rng.choice([0.0, 10.0, 120.0])

    def submit(self, needs, kept, failing, uid=ALICE):
        number = len(self.entries) + 1
        outcome = self.rng.choice(BAD_ENDS) if self.rng.random() < failing else JobState.COMPLETED
        entry = Entry(number, uid, self.now, kept, set(needs), self.rng.choice([1, 40, 100, 150]), outcome)
        entry.begin = NEVER if kept is Kept.BEGIN else 0.0
        entry.by = "user" if kept is Kept.HOLD else ""
        self.entries[number] = entry
        return number

    def advance(self, now):
        while self.now < now:
            self.now += 1
            for entry in self.entries.values():
                if entry.uid != NOBODY:
                    self.live(entry)

    def live(self, entry):
        if entry.state is JobState.PENDING and not entry.by and entry.begin <= self.now:
            open_ = [one for n in entry.needs if (one := self.entries[n]).state is not JobState.COMPLETED]
            if open_:
                if any(one.state.ended for one in open_) and self.rng.random() < 0.01:  # kill_invalid_depend
                    self.cancel(entry)
                return
            if entry.eligible is None:
                entry.eligible = self.now
            if self.rng.random() < 0.1:
                entry.state, entry.start = JobState.RUNNING, self.now
        elif entry.state is JobState.RUNNING and self.now >= entry.start + entry.length:
            entry.state, entry.end = entry.outcome, self.now

    def cancel(self, entry):
        if not entry.state.ended:
            entry.start = self.now if entry.start is None else entry.start
            entry.state, entry.end = JobState.CANCELLED, self.now

    def requeue(self, entry):
        entry.state, entry.start, entry.end, entry.eligible = JobState.PENDING, None, None, None
        entry.restarts, entry.outcome, entry.requeued = entry.restarts + 1, JobState.COMPLETED, self.now
        entry.begin = self.now + 120  # so does Slurm

    def forgotten(self, entry):
        return entry.uid == NOBODY or (entry.state.ended and self.now - entry.end > self.memory)

    def shown(self, entry):
        open_ = {n for n in entry.needs if self.entries[n].state is not JobState.COMPLETED}
        waits = "BeginTime" if entry.begin > self.now else "Dependency" if open_ else "Priority"
        return Job(
            id=entry.id, uid=entry.uid, user=NAMES[entry.uid], account="", partition="batch", qos="",
            state=entry.state, submit=entry.submit, start=entry.start, end=entry.end, time_limit=200.0, num_nodes=2,
            eligible=entry.begin if entry.begin > self.now else entry.eligible, num_cpus=2, nodes=(),
            reason={"": waits, "user": "JobHeldUser", "admin": "JobHeldAdmin"}[entry.by],
            priority=0 if entry.by else 9, restarts=entry.restarts,
            dependency=",".join(f"afterok:{n}({'failed' if self.entries[n].state.ended else 'unfulfilled'})"
                                for n in sorted(open_)),
        )  # fmt: skip

    def view(self, wanted):
        jobs = {e.id: self.shown(e) for e in self.entries.values() if not self.forgotten(e)}
        records = {
            e.id: AccountingRecord(
                id=e.id, name="x", user=NAMES[e.uid], partition="batch", qos="", account="", state=e.state,
                exit_code=int(e.state is not JobState.COMPLETED), submit=e.submit, eligible=e.eligible,
                start=e.start, end=e.end, time_limit=200.0, num_nodes=2,
            )
            for e in self.entries.values()
            if e.uid in NAMES and self.forgotten(e) and e.id in wanted and self.now - e.end > self.memory + self.lag
        }  # fmt: skip
        return SlurmView(self.now, jobs, records)


class Agent:
    """The controller as it should be: a look before each act, a write after it; and what users do meanwhile."""

    def __init__(self, seed, strategy, stages, trouble):
        self.rng = random.Random(seed)
        self.trouble = trouble
        self.queue = Queue(self.rng)
        self.runner = Runner(accrues=self.rng.random() < 0.5, ages_from_release=self.rng.random() < 0.5)
        self.way = self.rng.choice([Kept.BEGIN, Kept.BEGIN, Kept.HOLD])
        dense = None if self.rng.random() < 0.3 else self.rng.random()
        made, jobs = [], []
        for i in range(stages):
            after = [i - 1] * (i > 0) if dense is None else [j for j in range(i) if self.rng.random() < dense]
            kept = self.way if self.rng.random() < 0.8 else Kept.NOT
            jobs.append(self.queue.submit([jobs[j] for j in after], kept, 0.15 * trouble))
            expect = self.rng.choice([None, 100.0])
            begin = self.rng.choice([None, None, 50.0]) if kept else None
            made.append(stage_of(f"s{i}", jobs[i], after, kept, expect=expect, begin=begin))
        acting = "eager" if strategy == "auto" else None
        self.keep(run_of(made, strategy, by=acting, levels_ahead=self.rng.choice([1, 2, 8])))
        self.wanted, self.finished, self.observed = set(), [], []
        self.acts = Counter()
        self.view = None
        for whose in (BOB, NOBODY):
            if self.chance(0.1):
                self.queue.entries[self.rng.choice(jobs)].uid = whose

    def chance(self, p):
        return self.rng.random() < p * self.trouble

    def keep(self, run):
        """On the disk, and in memory."""
        self.saved = json.dumps(run_to_dict(run))
        self.run = run
        assert run_from_dict(json.loads(self.saved)) == run

    def die(self):
        """What was not written down is forgotten."""
        self.run = run_from_dict(json.loads(self.saved))

    def entry(self, stage):
        return self.queue.entries[stage.job]

    def predict(self, geometry):
        assert (geometry.user, geometry.partition, geometry.nodes, geometry.time_limit) == ("alice", "batch", 2, 200.0)
        return Estimate(0, self.rng.choice([10.0, 80.0, 300.0]))

    # -- a pass --------------------------------------------------------------------------------------------------------

    def one_pass(self):
        view = self.view
        if view is None or not self.chance(0.1):  # else the same look again
            view = self.view = self.queue.view(self.wanted)
        self.looked_at = view.taken_at
        if self.chance(0.2):
            self.queue.advance(self.queue.now + self.rng.choice([1, 5, 30]))  # the view is old when it is used
            self.something_happens()
        now = self.queue.now
        step = self.runner.step(self.run, view, now, self.predict)
        again = self.runner.step(step.run, view, now, self.predict)
        assert again.run == step.run
        assert not [i for i in again.instructions if isinstance(i, Observe | Finished)]
        if self.chance(0.05):
            return now  # killed before it could write that down
        self.keep(step.run)
        for order in step.instructions:
            if self.chance(0.05):
                self.die()
                break
            self.carry_out(order, view)
        return now

    def carry_out(self, order, view):
        now = self.queue.now
        if isinstance(order, Release | Change | Requeue):
            stage, entry = self.run.stage(order.stage), self.queue.entries[order.job]
            assert stage.job == order.job
            if not self.stands(entry, view) or self.chance(0.2):
                return
            assert entry.uid == ALICE, "nothing is done to the jobs of others"
            self.acts[type(order).__name__, order.job] += 1
        match order:
            case Release():
                self.check_release(stage, entry, order)
                if order.kept is Kept.BEGIN:
                    assert not entry.by, "who holds a job wants it to stay as it is"
                    entry.begin = now
                else:
                    assert entry.by == "user", "the hold for the agent, and no other"
                    entry.by = ""
                entry.let_go = True
                news = lambda run: self.runner.released(run, order.stage, now)  # noqa: E731
            case Change():
                named = {int(term.removeprefix("afterok:")) for term in order.dependency.split(",") if term}
                wanted = {p.job for p in self.parents(stage) if p.phase is not StagePhase.DONE}
                assert named == wanted
                assert entry.state is JobState.PENDING
                entry.needs = named
                news = lambda run: self.runner.changed(run, order, now)  # noqa: E731
            case Requeue():
                # By the look that it goes by: a parent may have ended since, and to wait again does no harm.
                open_ = [p for p in self.parents(stage) if any(not row.state.ended for row in view.rows(p.job))]
                assert open_ and entry.state is JobState.RUNNING, "it was started too early"
                self.queue.requeue(entry)
                news = lambda run: self.runner.requeued(run, order.stage, order.job, now)  # noqa: E731
            case Lookup(jobs=numbers):
                self.wanted.update(numbers)
                stages = [replace(s, asked=s.asked + 1, asked_at=now) if s.job in numbers and not s.phase.final else s
                          for s in self.run.stages]  # fmt: skip
                news = lambda run: replace(run, stages=tuple(stages))  # noqa: E731
            case Observe():
                self.observed.append((order.stage, self.run.stage(order.stage).job))
                return
            case Finished():
                self.finished.append(order)
                return
            case _:
                raise AssertionError(f"{order}: the agent neither submits nor cancels jobs of an owner's")
        if self.chance(0.1):
            self.die()
        else:
            self.keep(news(self.run))

    def stands(self, entry, view):
        """Whether a fresh look shows the job as the one did that was decided on."""
        old, new = view.jobs.get(entry.id), None if self.queue.forgotten(entry) else self.queue.shown(entry)
        told = [(j.uid, j.state, j.held, j.reason if j.held else "", j.put_off, j.dependency, j.restarts)
                for j in (old, new) if j is not None]  # fmt: skip
        return len(told) == 2 and told[0] == told[1]

    def parents(self, stage):
        return [self.run.stages[j] for j in stage.after]

    def check_release(self, stage, entry, order):
        assert order.kept is entry.kept is stage.mine.kept
        assert entry.held_back and not entry.let_go, "once"
        assert stage.mine.begin is None or self.queue.now >= stage.mine.begin
        assert self.run.phase in (RunPhase.ACTIVE, RunPhase.FAILING)
        for parent in self.parents(stage):
            before = self.entry(parent)
            assert parent.phase is not StagePhase.WAITING and not (before.held_back and not before.let_go)
            assert before.state is JobState.COMPLETED or before.id in entry.needs, "it is behind all that are open"
            if self.run.strategy == "perstage":
                assert before.state is JobState.COMPLETED

    # -- what others do ------------------------------------------------------------------------------------------------

    def something_happens(self):
        mine = [self.entry(stage) for stage in self.run.stages if self.entry(stage).uid == ALICE]
        if not mine:
            return
        entry = self.rng.choice(mine)
        pending = entry.state is JobState.PENDING
        match self.rng.choice(["admin", "admin lifts", "hold", "lift", "let go", "drop", "requeue", "cancel", "again",
                               "more", "stop"]):  # fmt: skip
            case "admin" if pending and entry.kept is not Kept.HOLD:
                entry.by = "admin"
            case "admin lifts" if entry.by == "admin":
                entry.by = ""
            case "hold" if pending and not entry.by and entry.kept is not Kept.HOLD:
                entry.by = "user"
            case "lift" if entry.by == "user":
                entry.by = ""
            case "let go" if pending and entry.begin == NEVER:
                entry.begin = self.queue.now
            case "drop" if entry.needs:
                entry.needs.discard(self.rng.choice(sorted(entry.needs)))
            case "requeue" if not self.queue.forgotten(entry) and entry.start is not None:
                if entry.state is not JobState.COMPLETED:
                    self.queue.requeue(entry)
            case "cancel" if self.rng.random() < 0.3:
                self.queue.cancel(entry)
            case "again":
                self.submit_again()
            case "more" if len(self.run.stages) < 12:
                self.add(f"s{len(self.run.stages)}", self.rng.sample([s.name for s in self.run.stages], 1))
            case "stop" if self.rng.random() < 0.1:
                self.keep(self.runner.cancel(self.run, "asked for"))  # and its owner is slow with the jobs

    def submit_again(self):
        """What `penstock retry` does: a new job for a stage that did not complete."""
        broken = [s for s in self.run.stages if s.phase in (StagePhase.FAILED, StagePhase.CANCELLED)]
        if broken and self.run.phase is RunPhase.FAILING:
            self.add(broken[0].name, [parent.name for parent in self.parents(broken[0])])

    def add(self, name, after):
        if self.run.phase not in (RunPhase.ACTIVE, RunPhase.FAILING):
            return
        open_ = [self.run.stage(n).job for n in after if self.run.stage(n).phase is not StagePhase.DONE]
        job = self.queue.submit(open_, self.way, 0.0)
        stage = {"name": name, "job": job, "after": after, "kept": self.way.value}
        asked = registration({"workflow": "w", "strategy": "asa", "run": 3, "stages": [stage]}, self.queue.now)
        found, _before = plan([self.run], asked)
        self.keep(admit(found, asked.stages))

    def scancel(self):
        for stage in self.run.stages:
            if self.entry(stage).uid == ALICE:
                self.queue.cancel(self.entry(stage))

    def calm(self):
        """Nobody holds anything any more; where a stage did not complete the owner gives up."""
        self.trouble = 0.0
        for entry in self.queue.entries.values():
            entry.by = "" if entry.by == "admin" or entry.kept is not Kept.HOLD else entry.by
        if self.run.phase in (RunPhase.FAILING, RunPhase.CANCELLING):
            self.scancel()

    # -- until the end -------------------------------------------------------------------------------------------------

    def go(self):
        for turn in range(3000):
            if self.run.phase.final:
                break
            if turn > 60:
                self.calm()
            now = self.one_pass()
            wake = self.runner.next_wake(self.run, now)
            assert wake is None or wake > now
            if self.chance(0.4):
                self.something_happens()
            later = now + self.rng.choice([1, 5, 20, 60])
            self.queue.advance(min(later, max(wake, now + 1)) if wake is not None else later)
        self.check_end()

    def check_end(self):
        run = self.run
        assert run.phase.final, f"stuck: {[(s.name, s.phase.value, s.job) for s in run.stages]}"
        # None if the agent was killed right after it had written down the end.
        assert [f.ok for f in self.finished] in ([], [run.phase is RunPhase.COMPLETED])
        assert all(s.phase.final for s in run.stages)
        # Of what its owner puts back after the last look nothing was known.
        ours = [s for s in run.stages if self.entry(s).uid == ALICE and self.entry(s).requeued < self.looked_at]
        for stage in ours:
            assert self.entry(stage).state.ended, "no job is left behind"
            assert (stage.phase is StagePhase.DONE) == (self.entry(stage).state is JobState.COMPLETED)
        assert (run.phase is RunPhase.COMPLETED) == all(s.phase is StagePhase.DONE for s in run.stages)
        assert max(n for (what, _job), n in [*self.acts.items(), (("", 0), 0)] if what != "Change") <= 1 + max(
            e.restarts for e in self.queue.entries.values()
        )


STRATEGIES = st.sampled_from(["asa", "eager", "perstage", "auto"])


@given(st.integers(0, 2**32), STRATEGIES, st.integers(1, 8), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=250, deadline=None)
def test_whatever_happens(seed, strategy, stages, trouble):
    agent = Agent(seed, strategy, stages, trouble)
    agent.go()
    if trouble == 0:
        assert agent.run.phase is RunPhase.COMPLETED
        kept = [s.job for s in agent.run.stages if s.mine.kept]
        assert agent.acts == Counter({("Release", job): 1 for job in kept}), "each is let go once, and that is all"
        for stage in agent.run.stages:
            ends = [agent.entry(parent).end for parent in agent.parents(stage)]
            assert agent.entry(stage).start >= max(ends, default=0.0), "the order is kept"
