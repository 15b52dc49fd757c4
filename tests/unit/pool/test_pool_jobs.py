"""Jobs of a pool: what they wait for, holds, arrays, what a log says of them. No clock, no process."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from pooled_jobs import after, array, job

from penstock.fronts.programs.step import POOL_JOB
from penstock_pool.filenames import error_name, input_name, output_name
from penstock_pool.jobenv import exported, job_environment
from penstock_pool.machine import Machine, StartAttempt
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, PoolTask, TaskPhase, Use, task_to_dict
from penstock_pool.placement import Pack
from penstock_pool.taskjson import task_from_dict
from penstock_pool.terms import FIRST_JOB, AfterJob, WaitReason
from penstock_pool.waiting import ConditionVerdict, OtherJob, dependency_verdict, wait_reason


def machine_of(cores: float = 8.0) -> Machine:
    made = Machine(Pack())
    made.join(PoolMember("a", "n1", "1", Capacity(cores)), 0.0)
    return made


def end(it: Machine, start: StartAttempt, outcome: AttemptOutcome = AttemptOutcome.COMPLETE, now: float = 1.0) -> None:
    code = 0 if outcome is AttemptOutcome.COMPLETE else 3
    it.ended(start.address, start.id, start.attempt, outcome, code, "", Use(), now)


def started(it: Machine, now: float = 0.0) -> list[int]:
    return [start.id for start in it.place(now)]


def again(it: Machine) -> Machine:
    """The machine that its log makes."""
    made = machine_of()
    made.recall(json.loads(json.dumps(it.journal)), 50.0)
    return made


class TestDependencies:
    @pytest.mark.parametrize(
        ("kind", "outcome", "runs"),
        [
            ("afterok", AttemptOutcome.COMPLETE, True),
            ("afterok", AttemptOutcome.FAILED, False),
            ("afterok", AttemptOutcome.TIMEOUT, False),
            ("afternotok", AttemptOutcome.FAILED, True),
            ("afternotok", AttemptOutcome.COMPLETE, False),
            ("afterany", AttemptOutcome.MEMORY, True),
        ],
    )
    def test_a_job_runs_when_what_it_waits_for_has_ended_so(self, kind, outcome, runs):
        it = machine_of()
        it.submit([job()], 0.0)
        (start,) = it.place(0.0)
        it.submit([job(after=(after(kind, 1),))], 0.0)
        assert started(it) == []
        assert it.queue.kept[2] is WaitReason.DEPENDENCY
        end(it, start, outcome)
        assert started(it, 2.0) == ([2] if runs else [])
        if not runs:
            assert it.queue.kept[2] is WaitReason.NEVER

    def test_after_counts_from_the_start_and_waits_its_minutes(self):
        it = machine_of()
        it.submit([job()], 0.0)
        it.submit([job(after=(after("after", 1, delay=60.0),))], 0.0)
        assert started(it, 10.0) == [1]
        assert started(it, 69.0) == []
        assert started(it, 70.0) == [2]

    def test_one_of_several_is_enough_where_that_is_said(self):
        it = machine_of()
        it.submit([job()], 0.0)
        it.submit([job(begin=99.0)], 0.0)
        it.submit([job(after=(after("afterok", 1), after("afterok", 2)), one=True)], 0.0)
        (start,) = it.place(0.0)
        end(it, start)
        assert started(it, 1.0) == [3]

    def test_a_singleton_waits_for_earlier_jobs_of_its_name_alone(self):
        it = machine_of()
        it.submit([job("x")], 0.0)
        it.submit([job("x", after=(AfterJob("singleton"),))], 0.0)
        it.submit([job("y", after=(AfterJob("singleton"),))], 0.0)
        (first, other) = it.place(0.0)
        assert (first.id, other.id) == (1, 3)
        end(it, first)
        assert started(it, 1.0) == [2]

    def test_of_an_array_it_waits_for_all_or_for_one_task_or_for_its_own(self):
        it = machine_of()
        numbers = it.submit(array(2), 0.0)
        it.submit([job(after=(after("afterok", numbers[0]),))], 0.0)
        it.submit([job(after=(after("afterok", numbers[0], task=12),))], 0.0)
        it.submit(array(2, key="b", after=(after("aftercorr", numbers[0]),)), 0.0)
        first, second = it.place(0.0)
        end(it, second)
        assert started(it, 1.0) == [4, 6]  # what waits for task 12, and the other array's task 12
        end(it, first)
        assert started(it, 1.0) == [3, 5]

    def test_what_corresponds_to_no_task_waits_for_all_of_them(self):
        it = machine_of()
        numbers = it.submit(array(2), 0.0)
        alone = it.submit([job()], 0.0)
        it.submit(array(3, key="b", after=(after("aftercorr", numbers[0]),)), 0.0)
        it.submit(array(2, key="c", after=(after("aftercorr", alone[0]),)), 0.0)
        first, second, single = it.place(0.0)
        end(it, first)
        assert started(it, 1.0) == [4]
        end(it, second)
        assert started(it, 1.0) == [5, 6]
        end(it, single)
        assert started(it, 1.0) == [7, 8]

    def test_jobs_of_slurms_are_asked_for_until_they_have_ended(self):
        it = machine_of()
        it.submit([job(after=(AfterJob("afterok", 77), AfterJob("afterok", 78, 3)))], 0.0)
        assert started(it) == []
        assert it.queue.awaited() == {(77, None), (78, 3)}
        it.queue.learn({(77, None): OtherJob(1.0, 2.0, completed=True)})
        assert it.queue.awaited() == {(78, 3)}
        it.queue.learn({(78, 3): OtherJob(1.0, 2.0, completed=True)})
        assert started(it) == [1]

    def test_what_can_never_run_is_cancelled_where_that_is_said(self):
        it = machine_of()
        it.submit([job()], 0.0)
        it.submit([job(after=(after("afternotok", 1),), kill_invalid=True)], 0.0)
        (start,) = it.place(0.0)
        end(it, start)
        assert started(it) == []
        assert it.entries[2].phase is TaskPhase.CANCELLED

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["afterok", "afterany", "afternotok"]),
                st.sampled_from([OtherJob(), OtherJob(1.0), OtherJob(1.0, 2.0), OtherJob(1.0, 2.0, True)]),
            ),
            min_size=1,
            max_size=4,
        ),
        st.booleans(),
    )
    def test_a_verdict_is_for_good(self, conditions, one):
        """Once all jobs have ended nothing is open, and what is met or not before stays so."""
        terms = job(after=tuple(AfterJob(kind, i) for i, (kind, _) in enumerate(conditions)), one=one).job
        assert terms is not None
        now = dependency_verdict(terms, lambda one: [conditions[one.job or 0][1]], 5.0)
        for completed in (True, False):
            over = [o if o.ended is not None else OtherJob(1.0, 3.0, completed) for _, o in conditions]
            then = dependency_verdict(terms, lambda one, over=over: [over[one.job or 0]], 5.0)
            assert then is not ConditionVerdict.OPEN
            assert now in (ConditionVerdict.OPEN, then)


class TestHolds:
    def test_a_held_job_waits_until_it_is_released_also_after_a_restart(self):
        it = machine_of()
        it.submit([job(held=True)], 0.0)
        it.submit([job()], 0.0)
        it.hold([2], 0.0, held=True)
        assert started(it) == []
        anew = again(it)
        assert started(anew) == []
        assert anew.queue.kept == {1: WaitReason.HELD, 2: WaitReason.HELD}
        assert anew.hold([1, 2], 0.0, held=False) == [1, 2]
        assert started(anew) == [1, 2]
        assert anew.hold([1], 0.0, held=True) == []  # it runs

    def test_a_begin_time_is_waited_for(self):
        it = machine_of()
        it.submit([job(begin=100.0)], 0.0)
        assert started(it, 99.0) == []
        assert it.queue.kept[1] is WaitReason.BEGIN
        assert started(it, 100.0) == [1]
        assert it.entries[1].eligible == 100.0


class TestArrays:
    def test_the_numbers_of_its_tasks_follow_each_other_and_it_is_taken_once(self):
        it = machine_of()
        it.submit([job()], 0.0)
        assert it.submit(array(3), 0.0) == [2, 3, 4]
        assert it.submit(array(3), 0.0) == [2, 3, 4]  # the answer was lost: the same key
        assert [line["op"] for line in it.journal] == ["task", "array"]
        assert it.queue.of_job(FIRST_JOB + 2) == [2, 3, 4]
        assert it.queue.of_job(FIRST_JOB + 2, 14) == [4]
        assert it.queue.of_job(FIRST_JOB + 4) == [4]
        assert it.queue.of_job(FIRST_JOB + 1) == [1]
        assert it.queue.of_job(FIRST_JOB + 9) == it.queue.of_job(12) == it.queue.of_job(FIRST_JOB + 2, 13) == []

    def test_no_more_of_it_run_than_it_says(self):
        it = machine_of()
        it.submit(array(4, most=2), 0.0)
        first, _second = it.place(0.0)
        assert it.queue.kept == {3: WaitReason.ARRAY, 4: WaitReason.ARRAY}
        end(it, first)
        assert started(it, 1.0) == [3]
        anew = again(it)  # its attempts are lost and run again, two at a time
        assert len(started(anew, 90.0)) == 2


class TestEnds:
    def test_a_job_is_not_tried_again_when_it_has_failed(self):
        it = machine_of()
        it.submit([job()], 0.0)
        (start,) = it.place(0.0)
        end(it, start, AttemptOutcome.TIMEOUT)
        assert it.entries[1].phase is TaskPhase.FAILED
        assert it.entries[1].last is AttemptOutcome.TIMEOUT

    @pytest.mark.parametrize(("requeue", "phase"), [(True, TaskPhase.WAITING), (False, TaskPhase.FAILED)])
    def test_one_whose_member_was_lost_runs_again_unless_it_says_not(self, requeue, phase):
        it = machine_of()
        it.submit([job(requeue=requeue)], 0.0)
        it.place(0.0)
        it.leave("a", 1.0)
        assert it.entries[1].phase is phase
        assert again(it).entries[1].phase is phase

    def test_requeued_it_runs_again_whatever_it_was(self):
        it = machine_of()
        it.submit([job()], 0.0)
        (start,) = it.place(0.0)
        (kill,) = it.requeue([1], 1.0)
        assert (kill.id, kill.attempt) == (1, 1)
        end(it, start, AttemptOutcome.CANCELLED)
        assert it.entries[1].last is AttemptOutcome.REQUEUED
        (start,) = it.place(2.0)
        assert start.attempt == 2
        end(it, start)
        assert it.requeue([1], 3.0) == []
        assert started(it, 3.0) == [1]
        anew = again(it)
        assert anew.entries[1].attempt == 3
        assert started(anew, 90.0) == [1]

    def test_a_cancelled_one_is_not_requeued(self):
        it = machine_of()
        it.submit([job()], 0.0)
        (start,) = it.place(0.0)
        it.cancel([1], 1.0)
        assert it.requeue([1], 1.0) == []
        end(it, start, AttemptOutcome.CANCELLED)
        assert it.entries[1].phase is TaskPhase.CANCELLED

    def test_signals_go_to_those_that_run(self):
        it = machine_of(cores=1.0)
        it.submit([job()], 0.0)
        it.submit([job()], 0.0)
        it.place(0.0)
        (sent,) = it.signals([1, 2], 10, "steps")
        assert (sent.address, sent.id, sent.attempt, sent.signal, sent.whom) == ("a", 1, 1, 10, "steps")


def test_terms_survive_the_log():
    for task in (job(after=(after("afterok", 4),), limit=60.0, signal=10), array(3, most=2)[1]):
        told = json.loads(json.dumps(task_to_dict(task)))
        assert task_from_dict(told, "task", "/") == task


class TestFiles:
    def names(self, task: PoolTask, number: int = 7) -> tuple[str, str, str]:
        of = (task.job, number, "/work", "n1.site", "alice")
        return input_name(*of), output_name(*of), error_name(*of)

    def test_what_is_not_said_is_as_slurm_has_it(self):
        assert self.names(job()) == ("/dev/null", "/work/slurm-5000000007.out", "")
        assert self.names(array(2)[1])[1] == "/work/slurm-5000000006_12.out"

    @pytest.mark.parametrize(
        ("pattern", "name"),
        [
            ("%j.out", "/work/5000000007.out"),
            ("/x/%A_%4a", "/x/5000000006_0012"),
            ("%x-%u-%N-%n-%t-%s-%J", "/work/j-alice-n1-0-0-batch-5000000007"),
            ("%%j", "/work/%j"),
            ("%b %3t %q", "/work/2 000 %q"),
            ("\\%j", "/work/%j"),
        ],
    )
    def test_patterns(self, pattern, name):
        assert self.names(array(2, stdout=pattern, stderr=pattern)[1])[1:] == (name, name)


class TestEnvironment:
    def whole(self, task: PoolTask, submitted: dict[str, str], attempt: int = 1) -> dict[str, str]:
        more = {"node": "n1", "attempt": attempt, "user": (7, 8, "alice"), "cluster": "site"}
        return job_environment(task, 7, submitted, **more)

    def test_a_job_sees_its_own_numbers_and_the_front_programs_first(self):
        it = self.whole(
            array(2, fronts="/f", ntasks=2, cpus=3, ntasks_said=True)[1], {"PATH": "/bin", "A": "b"}, attempt=2
        )
        assert it["SLURM_JOB_ID"] == it[POOL_JOB] == "5000000007"
        assert (it["SLURM_ARRAY_JOB_ID"], it["SLURM_ARRAY_TASK_ID"]) == ("5000000006", "12")
        assert (it["SLURM_NTASKS"], it["SLURM_CPUS_ON_NODE"], it["SLURM_RESTART_COUNT"]) == ("2", "6", "1")
        assert (it["PATH"], it["A"]) == ("/f/task:/f:/bin", "b")
        assert "SLURM_CPUS_PER_TASK" not in it

    def test_nothing_of_the_job_in_which_it_was_submitted_is_left(self):
        own = {
            "SLURM_JOB_ID": "4",
            "SLURM_STEP_ID": "0",
            "SLURM_CONF": "/c",
            "PENSTOCK_TASK": "1",
            "X": "1",
            "PATH": "/b",
        }
        assert exported(own, None) == exported(own, "ALL") == {"SLURM_CONF": "/c", "X": "1", "PATH": "/b"}

    def test_export_leaves_out_and_adds(self):
        own = {"HOME": "/h", "X": "1", "Y": "2", "PATH": "/mine"}
        assert exported(own, "ALL,Z=3,Y")["Z"] == "3"
        assert exported(own, "X=2,all,Z=3") == {**own, "Z": "3"}  # as sbatch does (22.05.8)
        assert exported(own, "NONE").keys() == {"HOME", "PATH"}
        assert exported(own, "X,Z=a b").items() >= {("X", "1"), ("Z", "a b")}
        assert "Y" not in exported(own, "X")


class Waiting(RuleBasedStateMachine):
    """Each job is looked at when it matters: at any time the reasons are those that a look at all of them gives."""

    def __init__(self) -> None:
        super().__init__()
        self.it = machine_of(cores=3.0)
        self.now = 0.0
        self.live: list[StartAttempt] = []

    def place(self) -> None:
        self.now += 1.0
        queue = self.it.queue
        while (starts := self.it.place(self.now)) or queue._due:  # what has come of it may be what another waits for
            self.live += starts
        for number, reason in queue.kept.items():
            entry = self.it.entries[number]
            find, running = queue._find_for(entry), len(queue._free.get(queue.base(entry), ()))
            terms = entry.task.job
            assert reason is wait_reason(terms, held=entry.held, find=find, running=running, now=self.now)
        assert WaitReason.NONE not in queue.kept.values()

    def one(self, which: int) -> int:
        return 1 + which % self.it.entries.last

    @rule(
        kind=st.sampled_from(["", "after", "afterok", "afternotok", "afterany", "aftercorr", "singleton", "slurm"]),
        which=st.integers(0, 1000),
        count=st.integers(1, 4),
        most=st.integers(0, 2),
        delay=st.sampled_from([0.0, 0.0, 2.0]),
        later=st.sampled_from([0.0, 0.0, 3.0]),
        invalid=st.booleans(),
    )
    def submit(self, kind, which, count, most, delay, later, invalid):
        terms = {"begin": self.now + later if later else 0.0, "kill_invalid": invalid}
        if kind == "singleton":
            terms["after"] = (AfterJob("singleton"),)
        elif kind == "slurm":
            terms["after"] = (AfterJob("afterok", 77),)
        elif kind and self.it.entries.last:
            target = self.it.entries[self.one(which)]
            number = self.it.queue.base(target) if which % 2 else target.id
            terms["after"] = (after(kind, number, delay=delay if kind == "after" else 0.0),)
        made = array(count, most, key=f"k{self.now}", **terms) if count > 1 else [job(**terms)]
        self.it.submit(made, self.now)
        self.place()

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1000), outcome=st.sampled_from(AttemptOutcome))
    def ends(self, which, outcome):
        end(self.it, self.live.pop(which % len(self.live)), outcome, self.now)
        self.place()

    @precondition(lambda self: self.it.entries.last)
    @rule(which=st.integers(0, 1000), what=st.sampled_from(["hold", "release", "requeue", "cancel"]))
    def is_changed(self, which, what):
        numbers = [self.one(which)]
        if what in ("hold", "release"):
            self.it.hold(numbers, self.now, held=what == "hold")
        elif what == "requeue":
            self.it.requeue(numbers, self.now)
        else:
            self.it.cancel(numbers, self.now)
        self.place()

    @rule(completed=st.booleans())
    def slurm_says(self, completed):
        if self.it.queue.awaited():
            self.it.queue.learn({(77, None): OtherJob(1.0, 2.0, completed=completed)})
        self.place()

    @rule()
    def time_passes(self):
        self.now += 5.0
        self.place()

    @rule()
    def scheduler_is_killed(self):
        self.it.journal.clear()
        made = machine_of(cores=3.0)
        made.recall([json.loads(line) for line in self.it.snapshot()], self.now)
        made.join(PoolMember("b", "n2", "2", Capacity(3.0)), self.now, [(s.id, s.attempt) for s in self.live])
        made.queue.slurm = self.it.queue.slurm
        self.it = made
        self.live = [StartAttempt("b", s.id, s.attempt, s.task) for s in self.live]
        self.place()


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
