"""The pool's rules: states, placement, the task log. No clock, no process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.errors import NotFound, StoreError, UserError
from penstock_pool import report
from penstock_pool.journal import Journal, read_journal
from penstock_pool.machine import Kill, Machine, StartAttempt
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, PoolTask, TaskPhase, Use, task_to_dict
from penstock_pool.placement import Pack, _best, _longest_first, shape_of
from penstock_pool.taskfile import read_tasks
from penstock_pool.taskjson import task_from_dict


def task(**more: object) -> PoolTask:
    return PoolTask(argv=("true",), **more)


def member(
    name: str, cores: float = 4.0, ends: float | None = None, memory: int | None = None, gpus: int = 0
) -> PoolMember:
    return PoolMember(name, f"node-{name}", "1", Capacity(cores, memory, gpus), ends)


def machine_of(*members: PoolMember, share: float = 1.0) -> Machine:
    made = Machine(Pack(), share)
    for one in members:
        made.join(one, 0.0)
    return made


def end(it: Machine, start: StartAttempt, outcome: AttemptOutcome = AttemptOutcome.COMPLETE, now: float = 1.0) -> None:
    it.ended(start.address, start.id, start.attempt, outcome, 0, "", Use(), now)


def forgotten(it: Machine, tasks: list[PoolTask]) -> tuple[Machine, list[int]]:
    """What is left of a machine that runs these when its scheduler is killed; and their numbers."""
    numbers = it.submit(tasks, 0.0)
    assert len(it.place(0.0)) == len(tasks)
    again = Machine(Pack())
    assert again.recall(json.loads(json.dumps(it.journal)), 2.0) == len(tasks)
    return again, numbers


class TestStates:
    def test_a_failed_task_is_retried_elsewhere_up_to_its_limit(self):
        it = machine_of(member("a"), member("b"))
        it.submit([task(retries=2)], 0.0)
        seen = []
        for _ in range(3):
            (start,) = it.place(0.0)
            seen.append(start.address)
            end(it, start, AttemptOutcome.FAILED)
        assert seen[0] != seen[1]  # elsewhere; when it has failed on all members, anywhere
        assert it.entries[1].phase is TaskPhase.FAILED
        assert it.place(0.0) == []

    def test_it_goes_back_to_the_only_member_that_is_large_enough(self):
        it = machine_of(member("large", cores=8), member("small", cores=1))
        it.submit([task(cores=8)], 0.0)
        (start,) = it.place(0.0)
        end(it, start, AttemptOutcome.FAILED)
        assert [s.address for s in it.place(0.0)] == ["large"]

    def test_a_lost_task_is_retried_always(self):
        it = Machine(Pack())
        it.submit([task(retries=0)], 0.0)
        for i in range(10):
            it.join(member(f"m{i}"), 0.0)
            (start,) = it.place(0.0)
            it.leave(start.address, 1.0)
        entry = it.entries[1]
        assert (entry.phase, entry.lost, entry.failed, entry.attempt) == (TaskPhase.WAITING, 10, 0, 10)

    def test_late_news_of_an_earlier_attempt_is_ignored(self):
        it = machine_of(member("a"), member("b"))
        it.submit([task()], 0.0)
        (first,) = it.place(0.0)
        it.leave(first.address, 1.0)
        (second,) = it.place(1.0)
        it.join(member(first.address), 2.0)
        end(it, first)
        assert it.entries[1].phase is TaskPhase.RUNNING
        end(it, second)
        assert it.entries[1].phase is TaskPhase.COMPLETE

    def test_cancel(self):
        it = machine_of(member("a", cores=1))
        it.submit([task(), task()], 0.0)
        (start,) = it.place(0.0)
        (kill,) = it.cancel([1, 2, 99], 1.0)
        assert (kill.address, kill.id, kill.attempt) == ("a", start.id, 1)
        assert it.entries[2].phase is TaskPhase.CANCELLED
        end(it, start, AttemptOutcome.CANCELLED)
        assert it.counts()["cancelled"] == 2

    @pytest.mark.parametrize("outcome", [AttemptOutcome.FAILED, AttemptOutcome.LOST])
    def test_a_task_that_was_cancelled_is_not_tried_again_however_it_ended(self, outcome):
        it = machine_of(member("a"), member("b"))
        it.submit([task(retries=2)], 0.0)
        (start,) = it.place(0.0)
        it.cancel([1], 1.0)
        end(it, start, outcome)
        entry = it.entries[1]
        assert (entry.phase, entry.last, entry.failed, entry.lost) == (
            TaskPhase.CANCELLED,
            AttemptOutcome.CANCELLED,
            0,
            0,
        )
        assert it.place(2.0) == []

    def test_a_task_that_completes_before_it_is_killed_is_complete(self):
        it = machine_of(member("a"))
        it.submit([task()], 0.0)
        (start,) = it.place(0.0)
        it.cancel([1], 1.0)
        end(it, start)
        assert it.entries[1].phase is TaskPhase.COMPLETE

    def test_a_task_that_was_cancelled_stays_so_without_its_member_or_the_scheduler(self):
        it = machine_of(member("a"))
        it.submit([task(name="x"), task()], 0.0)
        it.place(0.0)
        assert len(it.cancel([1], 1.0)) == len(it.cancel([1], 1.5)) == 1  # a kill may be asked for again
        log = [json.loads(json.dumps(line)) for line in it.journal]
        assert [line["op"] for line in log] == ["task", "task", "start", "start", "cancel"]
        it.journal.clear()
        again = Machine(Pack())
        assert again.recall(log, 2.0) == 2
        assert again.join(member("a"), 2.0) == []  # it was started anew, and has neither
        it.leave("a", 2.0)
        for one in (it, again):
            assert [e.phase for e in one.entries.values()] == [TaskPhase.CANCELLED, TaskPhase.WAITING]
            assert [line["outcome"] for line in one.journal] == ["cancelled", "lost"]
        third = machine_of(member("c"))
        assert third.recall(log + [json.loads(json.dumps(line)) for line in again.journal], 3.0) == 0
        assert third.submit([task(name="x")], 3.0, again=True) == [1]
        starts = third.place(3.0)
        third.leave("c", 4.0)
        assert len(starts) == 2 and third.entries[1].phase is TaskPhase.WAITING, "tried again as if it were new"

    def test_what_a_member_still_runs_goes_on_under_a_new_scheduler(self):
        it, log = forgotten(machine_of(member("a"), member("b")), [task(), task(), task(), task()])
        attempts = {n: (n, it.entries[n].attempt) for n in log}
        assert it.join(PoolMember("new", "node-a", "1", Capacity(4)), 2.0, attempts.values()) == []
        assert it.place(2.0) == []
        assert it.busy_cores(it.stations["new"]) == 4
        it.ended("new", 1, 1, AttemptOutcome.COMPLETE, 0, "", Use(), 3.0)
        assert it.counts() == {"waiting": 0, "running": 3, "complete": 1, "failed": 0, "cancelled": 0}
        it.leave("new", 4.0)
        assert it.counts()["waiting"] == 3

    def test_what_no_member_has_any_more_is_lost_at_once_where_its_own_is_back_else_after_a_while(self):
        it, _ = forgotten(machine_of(member("a", cores=1), member("b", cores=1)), [task(), task()])
        it.join(PoolMember("new", "node-a", "1", Capacity(1)), 2.0)
        assert it.counts()["running"] == 1
        it.join(PoolMember("other", "node-a", "2", Capacity(1)), 2.0)
        assert it.counts()["running"] == 1, "of another job"
        assert len(it.place(3.0)) == 1
        assert it.place(29.0) == []
        assert [start.attempt for start in it.place(33.0)] == [2]

    def test_what_does_not_count_any_more_is_ended_where_it_runs(self):
        it, _ = forgotten(machine_of(member("a")), [task(), task(), task(), task()])
        assert it.cancel([1], 2.0) == []  # nobody is known who could
        assert it.signals([1, 2], 10, "all") == []
        kills = it.join(member("a"), 2.0, [(1, 1), (2, 1), (3, 2), (77, 1)])
        assert [(kill.id, kill.attempt) for kill in kills] == [(1, 1), (3, 2), (77, 1)]
        assert [entry.phase for entry in it.entries.values()] == [TaskPhase.RUNNING] * 2 + [TaskPhase.WAITING] * 2
        assert it.join(member("late"), 3.0, [(2, 1)]) == [Kill("late", 2, 1)], "one has it already"
        it.ended("a", 1, 1, AttemptOutcome.CANCELLED, -15, "cancelled", Use(), 3.0)
        assert it.entries[1].phase is TaskPhase.CANCELLED

    def test_a_name_is_taken_in_once(self):
        it = machine_of(member("a"))
        assert it.submit([task(name="x"), task(name="y")], 0.0) == [1, 2]
        assert it.submit([task(name="y"), task(name="z")], 0.0) == [2, 3]

    def test_with_again_what_has_failed_is_new_and_what_is_complete_stays(self):
        it = machine_of(member("a"))
        it.submit([task(name="x", retries=0), task(name="y", retries=0)], 0.0)
        first, second = it.place(0.0)
        end(it, first, AttemptOutcome.FAILED)
        end(it, second)
        log = [json.loads(json.dumps(line)) for line in it.journal]
        it.journal.clear()
        assert it.submit([task(name="x"), task(name="y")], 0.0, again=True) == [1, 2]
        again = machine_of(member("a"))
        again.recall(log + it.journal, 0.0)
        for one in (it, again):
            assert [(s.id, s.attempt) for s in one.place(0.0)] == [(1, 2)]

    def test_it_goes_back_where_it_failed_if_all_others_end_too_soon(self):
        it = machine_of(member("long", ends=500.0), member("short", ends=50.0))
        it.submit([task(seconds=100.0)], 0.0)
        (start,) = it.place(0.0)
        end(it, start, AttemptOutcome.FAILED)
        assert [s.address for s in it.place(1.0)] == ["long"]

    def test_a_job_is_drained_with_all_its_members(self):
        it = machine_of(member("a"), member("b"))
        assert it.drain_job("1") == ["a", "b"]
        assert it.drain_job("2") == []

    def test_a_task_larger_than_any_member_is_said_with_the_largest(self):
        it = machine_of(member("a", cores=2), member("b", cores=16, memory=32_000_000_000))
        with pytest.raises(UserError, match=r"needs 17 cores; the largest member of the pool has 16 cores, 32 GB"):
            it.submit([task(), task(cores=17)], 0.0)
        assert it.entries == {}
        assert it.submit([task(cores=17)], 0.0, larger=True) == [1]
        assert it.unreachable(0.0) == {shape_of(task(cores=17)): 1}

    def test_draining_members_get_nothing(self):
        it = machine_of(member("a"))
        it.drain("a")
        it.drain("unknown")
        it.submit([task()], 0.0)
        assert it.place(0.0) == []


class TestPack:
    def test_no_task_outlives_its_allocation(self):
        it = machine_of(member("short", ends=50.0), member("long", ends=500.0))
        it.submit([task(seconds=100.0), task(seconds=40.0), task(seconds=1000.0)], 0.0)
        assert {s.id: s.address for s in it.place(0.0)} == {1: "long", 2: "short"}

    def test_a_task_of_unknown_time_goes_where_most_is_left(self):
        it = machine_of(member("short", ends=50.0), member("long", ends=500.0))
        it.submit([task()], 0.0)
        assert [s.address for s in it.place(0.0)] == ["long"]

    def test_fractions_memory_and_gpus(self):
        it = machine_of(member("a", cores=1, memory=10, gpus=1))
        it.submit([task(cores=0.25, memory=4)] * 3, 0.0)
        assert len(it.place(0.0)) == 2  # by memory
        it = machine_of(member("a", cores=1, gpus=1))
        it.submit([task(cores=0.25)] * 5, 0.0)
        assert len(it.place(0.0)) == 4
        it = machine_of(member("a", cores=4, gpus=1))
        it.submit([task(gpus=1)] * 2, 0.0)
        assert len(it.place(0.0)) == 1

    def test_others_share_cores_that_are_left_idle_up_to_the_threshold(self):
        it = machine_of(member("a", cores=4))
        it.submit([task(workflow="one")] * 4, 0.0)
        it.submit([task(workflow="two")] * 4, 0.0)
        it.submit([task(workflow="one")], 0.0)
        assert [s.task.workflow for s in it.place(0.0)] == ["one"] * 4
        assert it.place(0.0) == []  # not measured yet
        it.measured("a", {1: 0.4, 2: 0.4, 3: 0.6, 4: 0.6})
        assert [s.task.workflow for s in it.place(0.0)] == ["two"] * 2
        assert it.place(0.0) == []

    def test_a_threshold_below_100_percent_takes_no_cores_away(self):
        it = machine_of(member("a", cores=4), share=0.5)
        it.submit([task(workflow="one")] * 4 + [task(workflow="two")], 0.0)
        assert len(it.place(0.0)) == 4
        it.measured("a", dict.fromkeys(range(1, 5), 0.5))
        assert it.place(0.0) == []

    @given(
        st.lists(st.tuples(st.sampled_from([0.3, 1, 2, 5]), st.sampled_from([None, 5.0, 30.0, 300.0])), max_size=40),
        st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([None, 10.0, 100.0])), min_size=1, max_size=5),
    )
    def test_it_keeps_the_rules_and_leaves_nothing_that_fits(self, tasks, members):
        it = machine_of(*(member(f"m{i}", cores, ends) for i, (cores, ends) in enumerate(members)))
        it.submit([task(cores=cores, seconds=seconds) for cores, seconds in tasks], 0.0, larger=True)
        for start in it.place(0.0):
            ends = it.stations[start.address].member.ends
            assert ends is None or (start.task.seconds or 0.0) < ends
        assert it.faults == 0
        for station in it.stations.values():
            taken = sum(it.entries[n].task.cores for n in station.running)
            free = station.member.capacity.cores - taken
            assert free > -1e-9
            for entry in it.entries.values():
                if entry.phase is TaskPhase.WAITING:
                    late = station.member.ends is not None and (entry.task.seconds or 0.0) >= station.member.ends
                    assert entry.task.cores > free + 1e-9 or late

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([0.3, 1, 2]), st.sampled_from([None, 5.0, 30.0]), st.sampled_from(["", "a", "b"])
            ),
            max_size=40,
        ),
        st.lists(
            st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([None, 10.0, 100.0]), st.sampled_from([0.0, 1.5])),
            min_size=1,
            max_size=5,
        ),
        st.sampled_from([0.5, 1.0]),
    )
    def test_each_task_goes_where_it_would_if_all_members_were_looked_at_for_it(self, tasks, members, share):
        class EachAnew(Pack):
            def place(self, waiting, rooms, now):
                for group in sorted(waiting, key=_longest_first):
                    while group.left:
                        best = _best(group.shape, [room for room in rooms if not room.full], now)
                        if best is None:
                            break
                        yield group.take(), best.put(group.shape)

        seen = []
        for placement in (Pack(), EachAnew()):
            it = Machine(placement, share)
            for i, (cores, ends, others) in enumerate(members):
                it.join(member(f"m{i}", cores, ends), 0.0)
                it.stations[f"m{i}"].others = min(others, cores)
            it.submit([task(cores=c, seconds=s, workflow=w) for c, s, w in tasks], 0.0, larger=True)
            seen.append([(start.id, start.address) for start in it.place(0.0)])
        assert seen[0] == seen[1]

    def test_a_plugin_that_breaks_the_rules_is_not_obeyed(self):
        class Wild:
            name = "wild"

            def place(self, waiting, rooms, now):
                return [(1, "a"), (1, "a"), (2, "a"), (99, "a"), (2, "nobody")]

        it = Machine(Wild())
        it.join(member("a", cores=1), 0.0)
        it.submit([task(), task()], 0.0)
        assert [s.id for s in it.place(0.0)] == [1]
        assert it.faults == 4


def told(it: Machine, log: list[dict] | None = None, now: float = 0.0) -> tuple[object, ...]:
    """All that a machine knows that was made from a log."""
    if log is not None:
        it.recall(log, now)
    ends = [n for n in dict.fromkeys(reversed(it.endings.order)) if it.entries[n].phase.final]
    return dict(it.entries.items()), it.counts(), it.entries.last, ends


class Pool(RuleBasedStateMachine):
    """Whatever happens in whatever order, every task is somewhere once, and the log tells the same story."""

    def __init__(self) -> None:
        super().__init__()
        self.it = Machine(Pack())
        self.log: list[dict] = []
        self.now = 0.0
        self.live: list[StartAttempt] = []
        self.away: list[tuple[PoolMember, list[StartAttempt]]] = []  # members of a killed scheduler, with what they run
        self.members = 0
        self.done: list[int] = []
        self.cancelled: set[int] = set()

    def tick(self) -> None:
        self.now += 1.0
        self.log += [json.loads(json.dumps(line)) for line in self.it.journal]
        self.it.journal.clear()

    @rule(cores=st.sampled_from([0.5, 1, 3]), retries=st.integers(0, 1), count=st.integers(1, 3))
    def submit(self, cores, retries, count):
        self.it.submit([task(cores=cores, retries=retries)] * count, self.now, larger=True)
        self.tick()

    @rule(cores=st.sampled_from([1, 2, 4]))
    def join(self, cores):
        self.members += 1
        self.it.join(member(f"m{self.members}", cores), self.now)
        self.tick()

    @rule()
    def place(self):
        self.live += self.it.place(self.now)
        self.tick()

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1000), outcome=st.sampled_from(AttemptOutcome))
    def end(self, which, outcome):
        start = self.live.pop(which % len(self.live))
        entry = self.it.entries.get(start.id)  # what has ended elsewhere may have been forgotten
        if entry is not None and entry.attempt == start.attempt and start.address in self.it.stations:
            self.done += [start.id] if outcome is AttemptOutcome.COMPLETE else []
        end(self.it, start, outcome, self.now)
        self.tick()

    @precondition(lambda self: self.it.stations)
    @rule(which=st.integers(0, 1000))
    def leave(self, which):
        address = list(self.it.stations)[which % len(self.it.stations)]
        self.it.leave(address, self.now)
        self.tick()

    @precondition(lambda self: self.it.entries)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which):
        number = list(self.it.entries)[which % len(self.it.entries)]
        self.it.cancel([number], self.now)
        self.cancelled.add(number)
        self.tick()

    @rule()
    def log_is_made_shorter(self):
        """Whatever has happened before and comes after, it says the same."""
        longer = Machine(Pack())
        longer.recall(self.log, self.now)
        self.log = [json.loads(line) for line in self.it.snapshot()]
        shorter = Machine(Pack())
        shorter.recall(self.log, self.now)
        assert told(shorter) == told(longer)
        assert told(Machine(Pack()), [json.loads(line) for line in shorter.snapshot()], self.now) == told(longer)

    @rule(most=st.integers(0, 5), old=st.floats(0.0, 5.0))
    def long_ended_tasks_are_forgotten(self, most, old):
        before, open_ = dict(self.it.entries.items()), self.it.open
        for entry, _files in self.it.forget(self.now - old, most):
            assert entry.phase.final
            self.done = [n for n in self.done if n != entry.id]
            self.cancelled.discard(entry.id)
        assert self.it.open == open_ and len(self.it.entries) - open_ <= most
        kept = [n for n in self.it.entries if before[n].phase.final]
        forgotten = [n for n in before if n not in self.it.entries]
        assert max((before[n].ended for n in forgotten), default=0.0) <= min(
            (before[n].ended for n in kept), default=self.now
        )
        self.log = [json.loads(line) for line in self.it.snapshot()]
        self.tick()

    @rule()
    def scheduler_is_killed(self):
        again = Machine(Pack())
        again.recall(self.log, self.now)
        for number, entry in self.it.entries.items():
            other = again.entries[number]
            assert (other.phase, other.failed, other.attempt) == (entry.phase, entry.failed, entry.attempt)
        for station in self.it.stations.values():
            here = [start for start in self.live if start.address == station.member.address]
            self.away.append((station.member, here))
        self.it, self.live = again, []
        self.tick()

    @precondition(lambda self: self.away)
    @rule(which=st.integers(0, 1000), came=st.integers(0, 3))
    def comes_back(self, which, came):
        """A member, with all that it was sent: the last `came` did not come any more."""
        old, starts = self.away.pop(which % len(self.away))
        self.members += 1
        it = replace(old, address=f"m{self.members}")
        starts = starts[: len(starts) - came] if came else starts
        kills = self.it.join(it, self.now, [(start.id, start.attempt) for start in starts])
        ended = {(kill.id, kill.attempt) for kill in kills}
        self.live += [replace(s, address=it.address) for s in starts if (s.id, s.attempt) not in ended - self._dying()]
        self.tick()

    def _dying(self) -> set[tuple[int, int]]:
        """What still counts, and is to be killed."""
        return {(n, self.it.entries[n].attempt) for s in self.it.stations.values() for n in s.running}

    @rule()
    def a_minute_passes(self):
        self.now += 60.0

    @invariant()
    def every_task_is_in_one_place(self):
        running = [n for s in self.it.stations.values() for n in s.running] + list(self.it._unclaimed)
        assert sorted(running) == sorted(n for n, e in self.it.entries.items() if e.phase is TaskPhase.RUNNING)
        waiting = [n for tasks in self.it._waiting.values() for n in tasks]
        assert sorted(waiting) == sorted(n for n, e in self.it.entries.items() if e.phase is TaskPhase.WAITING)
        known = len(self.it.entries) + sum(self.it.entries.forgotten.values())
        assert sum(self.it.counts().values()) == known == self.it.entries.last

    @invariant()
    def what_is_left_on_a_member_is_what_its_tasks_leave(self):
        for station in self.it.stations.values():
            known = self.it._room(station)
            station.room = None
            assert self.it._room(station) == known

    @rule(cores=st.sampled_from([0.1, 0.7]))
    def is_measured(self, cores):
        for address, station in self.it.stations.items():
            self.it.measured(address, dict.fromkeys(station.running, cores))

    @invariant()
    def what_was_cancelled_never_waits_again(self):
        assert all(self.it.entries[n].phase is not TaskPhase.WAITING for n in self.cancelled)

    @invariant()
    def what_is_complete_stays_so_and_is_complete_once(self):
        assert len(self.done) == len(set(self.done))
        assert all(self.it.entries[n].phase is TaskPhase.COMPLETE for n in self.done)


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


class TestJournal:
    def test_a_torn_line_is_cut_off_and_the_rest_is_kept(self, tmp_path: Path):
        path = tmp_path / "tasks.jsonl"
        log = Journal(path)
        log.append([{"op": "a"}, {"op": "b"}])
        log.close()
        with path.open("ab") as file:
            file.write(b'{"op": "c')
        assert read_journal(path) == [{"op": "a"}, {"op": "b"}]
        log = Journal(path)
        assert list(log.recall()) == [{"op": "a"}, {"op": "b"}]
        log.append([{"op": "d"}])
        log.close()
        assert read_journal(path)[-1] == {"op": "d"}

    def test_one_scheduler_at_a_time(self, tmp_path: Path):
        log = Journal(tmp_path / "tasks.jsonl")
        with pytest.raises(StoreError, match="another scheduler"):
            Journal(tmp_path / "tasks.jsonl")
        log.close()
        Journal(tmp_path / "tasks.jsonl").close()

    def test_a_line_of_json_may_hold_what_ends_lines_elsewhere(self, tmp_path: Path):
        (tmp_path / "tasks").write_text('{"command": ["echo", "a\u2028b"]}\n{"command": ["x"]}\n', encoding="utf-8")
        assert [task["command"] for task in read_tasks(tmp_path / "tasks", "/w")] == [["echo", "a\u2028b"], ["x"]]

    def test_a_foreign_file_is_named_with_its_line(self, tmp_path: Path):
        path = tmp_path / "tasks.jsonl"
        path.write_text('{"op": "a"}\nhello\n')
        with pytest.raises(StoreError, match=r"tasks\.jsonl:2"):
            list(Journal(path).recall())


class TestTaskFormat:
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ([], "must be a map with the keys command, name"),
            ({}, "the key 'command' is missing"),
            ({"command": []}, "command"),
            ({"command": "sh -c 'x"}, "command: No closing quotation"),
            ({"command": ["a\0b"]}, "command"),
            ({"command": "x", "core": 1}, "unknown key 'core'"),
            ({"command": "x", "cores": 0}, "cores: must be a number above 0"),
            ({"command": "x", "cores": float("nan")}, "cores"),
            ({"command": "x", "cores": True}, "cores"),
            ({"command": "x", "memory": "2 apples"}, "memory: unknown unit 'apples': must be an amount such as"),
            ({"command": "x", "gpus": 0.5}, "gpus: must be a whole number"),
            ({"command": "x", "time": "soon"}, "time: must be a duration"),
            ({"command": "x", "inputs": "a"}, "inputs: must be a list of texts"),
            ({"command": "x", "workdir": "here"}, "workdir: must be an absolute path"),
            ({"command": "x", "environment": {"A": 1}}, "environment: must be a map of texts"),
            ({"command": "x", "environment": {"A=B": "c"}}, "environment"),
            ({"command": "x", "retries": -1}, "retries"),
            ({"command": "x", "name": "a\nb"}, "name: must be a printable text"),
        ],
    )
    def test_what_is_wrong_is_named(self, value, said):
        with pytest.raises(UserError) as found:
            task_from_dict(value, "f:3", "/w")
        assert str(found.value).startswith("f:3: ")
        assert said in str(found.value)

    def test_there_and_back(self):
        whole = PoolTask(("a", "b c"), "n", "w", 0.5, 2**30, 1, 60.0, ("i",), "/d", {"A": "b"}, 0)
        for one in (whole, PoolTask(("a",), workdir="/w")):
            assert task_from_dict(json.loads(json.dumps(task_to_dict(one))), "t", "/w") == one

    def test_shapes_of_times_round_up_to_two_digits(self):
        assert [shape_of(task(seconds=s)).seconds for s in (1.23, 12.0, 123.4, 0.101)] == pytest.approx(
            [1.3, 12.0, 130.0, 0.11]
        )


def test_cores_that_run_others_tasks_are_given_to_nobody():
    it = machine_of(member("a", cores=2))
    it.stations["a"].others = 1.0
    it.submit([task(), task()], 0.0)
    assert [start.id for start in it.place(0.0)] == [1]
    it.stations["a"].others = 0.0
    assert [start.id for start in it.place(0.0)] == [2]


def test_report():
    it = machine_of(member("a", cores=1, ends=100.0))
    it.submit([task(name="x"), task(), task(cores=0.5, seconds=1e6)], 0.0)
    it.place(0.0)
    it.stations["a"].others = 1.0
    told = report.status(it, "main", 10.0, 0.5, "", {"running": 1, "waiting": 2})
    assert told["others"] == {"running": 1, "waiting": 2} and told["busy"] == 2.0
    it.stations["a"].others = 0.0
    told = report.status(it, "main", 10.0, 0.5, "", {"running": 0, "waiting": 0})
    assert told["tasks"]["running"] == 1
    assert (told["busy"], told["cores"], told["members"][0]["left"]) == (1.0, 1.0, 90.0)
    assert told["unreachable"] == [{"cores": 0.5, "memory": 0, "gpus": 0, "seconds": 1e6, "tasks": 1}]
    assert [t["id"] for t in report.tasks(it, {"phases": ["waiting"]})] == [2, 3]
    assert [t["name"] for t in report.tasks(it, {"ids": ["x", 1]})] == ["x", "x"]
    with pytest.raises(NotFound):
        report.tasks(it, {"ids": ["y"]})
    json.dumps([told, report.tasks(it, {})])
