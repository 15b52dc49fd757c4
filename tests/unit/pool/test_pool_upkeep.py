"""The log of a pool is made shorter, and what has ended long ago is forgotten with its files; whenever it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pooled_jobs import after, array, job

pytest.importorskip("distributed")

from penstock.errors import AgentUnavailable, NotFound, StoreError
from penstock_pool import report, upkeep
from penstock_pool.callfiles import PoolCall
from penstock_pool.folder import PoolFolder
from penstock_pool.futures import PoolExecutor, _Open
from penstock_pool.jobfiles import JobFiles
from penstock_pool.journal import Journal, read_journal
from penstock_pool.machine import Machine
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, PoolTask, TaskPhase, Use, task_to_dict
from penstock_pool.output import output_path
from penstock_pool.placement import Pack
from penstock_pool.scheduler import PoolScheduler
from penstock_pool.upkeep import PoolRetention, Upkeep


def machine_of(cores: float = 100.0) -> Machine:
    made = Machine(Pack())
    made.join(PoolMember("a", "n1", "1", Capacity(cores)), 0.0)
    return made


def run(it: Machine, now: float = 1.0, outcome: AttemptOutcome = AttemptOutcome.COMPLETE) -> list[int]:
    """Have all that waits run and end."""
    starts = it.place(now)
    for start in starts:
        it.ended(start.address, start.id, start.attempt, outcome, 0, "", Use(1.0, 0.5, 7), now)
    return [start.id for start in starts]


def shorter(it: Machine) -> Machine:
    """The machine that a snapshot makes."""
    it.journal.clear()
    made = machine_of()
    made.recall([json.loads(line) for line in it.snapshot()], 50.0)
    return made


class TestWhatASnapshotSays:
    def test_jobs_arrays_holds_and_what_is_to_be_killed_are_as_they_were(self):
        it = machine_of(cores=4.0)
        first, held, dependent = (
            it.submit([job("one")], 0.0)
            + it.submit([job("two")], 0.0)
            + it.submit([job("three", after=(after("afterok", 1),))], 0.0)
        )
        it.hold([held], 1.0, held=True)
        several = it.submit(array(3, most=1), 2.0)
        assert run(it, 3.0) == [first, several[0]]
        starts = it.place(4.0)
        assert [start.id for start in starts] == [dependent, several[1]]
        it.cancel([dependent], 5.0)
        it.requeue([several[1]], 5.0)
        made = shorter(it)
        for number, entry in it.entries.items():
            entry.address = ""  # no business of another scheduler
            assert made.entries[number] == entry
        assert made.counts() == it.counts() and made.endings.order == it.endings.order
        assert made.place(6.0) == []  # the array has one that runs, and may have no other
        made.hold([held], 7.0, held=False)
        assert [start.id for start in made.place(7.0)] == [held]
        assert made.queue.of_job(job().job.first + several[0]) == several

    def test_a_name_is_still_known_and_a_number_is_never_given_again(self):
        it = machine_of()
        it.submit([PoolTask(("true",), name="seed-7")], 0.0)
        run(it)
        it.submit([PoolTask(("true",))], 0.0)
        made = shorter(it)
        assert made.submit([PoolTask(("true",), name="seed-7")], 9.0) == [1]
        made.cancel([2], 9.0)
        made.forget(100.0, 0)
        made = shorter(made)
        assert made.submit([PoolTask(("true",), name="seed-7")], 9.0) == [3]
        assert made.counts() == {"waiting": 1, "running": 0, "complete": 1, "failed": 0, "cancelled": 1}

    def test_one_that_has_ended_can_be_run_again(self):
        it = machine_of()
        it.submit([job()], 0.0)
        run(it, outcome=AttemptOutcome.FAILED)
        it.entries.line(1)
        it.requeue([1], 2.0)
        made = shorter(it)
        assert made.entries[1].phase is TaskPhase.WAITING and run(made, 3.0) == [1]
        assert shorter(made).entries[1].attempt == 2

    def test_a_log_of_the_version_before_is_read_and_one_of_a_later_is_not(self, tmp_path: Path):
        old = [
            {"op": "task", "id": 1, "at": 0.0, "task": task_to_dict(PoolTask(("true",), name="x"))},
            {"op": "start", "id": 1, "n": 1, "at": 1.0, "node": "n1", "job": "7"},
            {
                "op": "end",
                "id": 1,
                "n": 1,
                "at": 2.0,
                "outcome": "complete",
                "code": 0,
                "why": "",
                "use": [1.0, 0.5, 9],
            },
        ]
        it = Machine(Pack())
        it.recall(old, 3.0)
        made = shorter(it)
        assert made.entries[1] == it.entries[1] and made.find("x") == 1
        header = json.loads(next(it.snapshot()))
        assert "op" not in header  # which the version before asks each line for, and so refuses
        folder = PoolFolder("main", tmp_path)
        folder.journal.write_text(json.dumps(header | {"log": 3}) + "\n")
        with pytest.raises(StoreError, match="no task log of this version"):
            PoolScheduler(folder, Pack(), 1.0)


class TestWhatIsForgotten:
    def test_the_first_that_have_ended_go_by_their_number_and_by_their_age(self):
        it = machine_of(cores=1.0)
        it.submit([PoolTask(("true",))] * 4, 0.0)
        assert [run(it, now) for now in (1.0, 2.0, 3.0, 4.0)] == [[1], [2], [3], [4]]
        assert [entry.id for entry, _ in it.forget(-1.0, 3)] == [1]
        assert [entry.id for entry, _ in it.forget(3.0, 3)] == [2]
        assert list(it.entries) == [3, 4]
        with pytest.raises(NotFound, match="task 1 has ended and is not kept any more"):
            report.number_of(it, 1)
        with pytest.raises(NotFound, match="has no task"):
            report.number_of(it, 5)

    def test_what_a_job_waits_for_is_kept_and_so_is_what_somebody_asks_for(self):
        it = machine_of()
        it.submit([job("one")], 0.0)
        it.submit([job("two", after=(after("afterok", 1), after("afterok", 3)))], 0.0)
        it.submit([job("three", held=True)], 0.0)
        it.submit([PoolTask(("true",))] * 2, 0.0)
        assert run(it) == [4, 5, 1]
        assert [entry.id for entry, _ in it.forget(9.0, 0, {5})] == [4]
        it.hold([3], 2.0, held=False)
        assert run(shorter(it), 3.0) == [3]
        assert run(it, 3.0) == [3] and run(it, 4.0) == [2]

    def test_an_array_is_kept_as_a_whole_while_one_of_it_is(self):
        it = machine_of()
        numbers = it.submit(array(3, most=1), 0.0)
        assert run(it, 1.0) == numbers[:1] and run(it, 2.0) == numbers[1:2]
        assert it.forget(9.0, 0) == []  # one of it still waits
        assert run(it, 3.0) == numbers[2:]
        assert it.forget(-1.0, 2) == [], "one of it has ended too lately"
        assert sorted(entry.id for entry, _ in it.forget(9.0, 2)) == numbers

    def test_places_in_the_order_of_ends_stay_what_they_were(self):
        it = machine_of(cores=1.0)
        it.submit([PoolTask(("true",))] * 5, 0.0)
        for now in range(5):
            run(it, float(now))
        it.forget(-1.0, 3, {1})
        assert it.endings.gone == 1 and it.endings.order[3 - it.endings.gone :] == [4, 5]
        assert it.endings.order[: 3 - it.endings.gone] == [1, 3]

    def test_what_was_run_again_counts_by_its_last_end(self):
        it = machine_of()
        it.submit([job()], 0.0)
        run(it, 1.0)
        it.submit([PoolTask(("true",))], 1.0)
        run(it, 2.0)
        it.requeue([1], 3.0)
        run(it, 4.0)
        assert [entry.id for entry, _ in shorter(it).forget(-1.0, 1)] == [2]
        assert [entry.id for entry, _ in it.forget(-1.0, 1)] == [2] and it.endings.order == [1]


# -- the files ---------------------------------------------------------------------------------------------------------

LONG = [b'{"n":%d}' % number for number in range(100)]
SHORT = [b'{"log":2}', b'{"n":99}']


def lines(path: Path) -> list[Any]:
    return read_journal(path)


class TestKilledInBetween:
    """Between any two statements of the change from one log to the other, on copies of the folder as it is then."""

    @pytest.mark.parametrize("call", ["open", "write", "fsync", "pread", "rename", "close"])
    @pytest.mark.parametrize("nth", range(1, 5))
    def test_the_log_is_one_of_both_with_all_that_came_meanwhile(self, tmp_path, monkeypatch, call, nth):
        """The process ends before the nth call of this kind: what then stands there has everything."""
        path = tmp_path / "tasks.jsonl"
        log = Journal(path)
        log.append([json.loads(line) for line in LONG])
        since = log.size

        class Killed(BaseException):
            pass

        calls = 0

        def dying(real):
            def one(*given, **named):
                nonlocal calls
                calls += 1
                if calls == nth:
                    raise Killed
                return real(*given, **named)

            return one

        real_append = log.append
        with monkeypatch.context() as patched:
            try:
                if call == "rename":
                    patched.setattr(Path, "rename", dying(Path.rename))
                else:
                    patched.setattr(os, call, dying(getattr(os, call)))
                log.prepare(SHORT)
                real_append([{"n": 100}])
                log.swap(since)
            except Killed:
                pass
        old, new = [json.loads(line) for line in LONG], [json.loads(line) for line in SHORT]
        found = [line for line in lines(path) if line != {"n": 100}]
        assert found in (old, new)
        appended = lines(path)[-1] == {"n": 100}
        monkeypatch.undo()
        for number in {log._file, log._prepared} - {None}:  # as the kernel does
            with contextlib.suppress(OSError):
                os.close(number)
        again = Journal(path)
        assert list(again.recall()) == lines(path)
        assert [one.name for one in tmp_path.iterdir()] == ["tasks.jsonl"]  # nothing half-made is left
        again.append([{"n": 101}])
        again.close()
        assert lines(path) == found + [{"n": 100}] * appended + [{"n": 101}]

    def test_no_disk_for_a_shorter_log_leaves_the_long_one(self, tmp_path, monkeypatch):
        path = tmp_path / "tasks.jsonl"
        log = Journal(path)
        log.append([{"n": 1}])

        def full(*_given):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match="No space left"):
                log.prepare(SHORT)
        log.prepare(SHORT)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", full)
            with pytest.raises(StoreError, match="No space left"):
                log.swap(0)
        log.append([{"n": 2}])
        log.close()
        assert lines(path) == [{"n": 1}, {"n": 2}]
        assert [one.name for one in tmp_path.iterdir()] == ["tasks.jsonl"]

    def test_the_shorter_one_is_locked_as_the_longer_was(self, tmp_path):
        path = tmp_path / "tasks.jsonl"
        log = Journal(path)
        log.append([json.loads(line) for line in LONG])
        log.prepare(SHORT)
        log.append([{"n": 100}])
        log.swap(log.size - len(b'{"n":100}\n'))
        with pytest.raises(StoreError, match="another scheduler"):
            Journal(path)
        log.append([{"n": 101}])
        log.close()
        again = Journal(path)
        assert list(again.recall()) == [*map(json.loads, SHORT), {"n": 100}, {"n": 101}]
        again.close()

    def test_one_that_opened_the_log_just_before_it_was_swapped_takes_the_new_one(self, tmp_path, monkeypatch):
        from penstock_pool import journal

        path = tmp_path / "tasks.jsonl"
        log = Journal(path)
        log.append([json.loads(line) for line in LONG])
        real, opened = journal.open_locked, []

        def slow(*given, **named):
            """It opens the file while the other one swaps it and ends."""
            if not opened:
                opened.append(os.open(path, os.O_RDWR))
                log.prepare(SHORT)
                log.swap(log.size)
                log.close()
                return opened[0]
            return real(*given, **named)

        monkeypatch.setattr(journal, "open_locked", lambda *g, **n: slow(*g, **n) if g[0] == path else real(*g, **n))
        again = Journal(path)
        again.append([{"n": 100}])
        again.close()
        assert lines(path) == [*map(json.loads, SHORT), {"n": 100}]


@pytest.fixture
def folder(tmp_path: Path) -> PoolFolder:
    made = PoolFolder("main", tmp_path / "main")
    made.make()
    return made


class Kept:
    """A pool's folder, machine and log, which are to keep so many ended tasks."""

    def __init__(self, folder: PoolFolder, tasks: int) -> None:
        self.folder = folder
        self.machine = machine_of()
        self.journal = Journal(folder.journal)
        self.machine.recall(self.journal.recall(), 0.0)
        self.upkeep = Upkeep(folder, self.machine, self.journal, PoolRetention(0.0, tasks))
        self.jobs = JobFiles(folder)

    def write(self) -> None:
        self.journal.append(self.machine.journal)
        self.machine.journal.clear()

    def end(self) -> list[int]:
        run(self.machine)
        self.write()
        asyncio.run(self.upkeep.run(2.0, frozenset()))
        self.journal.close()
        return sorted(self.machine.entries)

    def job(self, script: bytes) -> PoolTask:
        made = job()
        names = {"script": self.jobs.keep_script(script), "environment": self.jobs.keep_environment({"A": "b"})}
        return PoolTask(made.argv, job=type(made.job)(made.job.first, "j", **names), workdir="/")

    def files(self) -> list[str]:
        return sorted(p.name for d in ("output", "jobs", "calls") for p in (self.folder.path / d).glob("*"))


class TestFiles:
    def test_what_is_forgotten_takes_its_files_with_it_and_no_others(self, folder: PoolFolder):
        it = Kept(folder, tasks=2)
        call = PoolCall.write(folder, time.sleep, (1,), {}, {})
        tasks = [it.job(b"one"), it.job(b"two"), call.task, it.job(b"two"), PoolTask(("true",))]
        for task in tasks:
            it.machine.submit([task], 0.0)
        for number in range(1, 6):
            output_path(folder.output, number, 1, "out").write_text("said")
        (Path(call.task.argv[-1]).with_suffix(".result")).write_text("returned")
        (folder.path / "keep.me").write_text("")
        terms = it.machine.entries[4].task.job
        assert it.end() == [2, 4]  # jobs are looked at last here, and so they have ended last
        assert it.files() == sorted([terms.script, terms.environment, "2.1.out", "4.1.out"])
        assert (folder.path / "keep.me").exists()

    def test_a_script_that_a_kept_job_needs_stays(self, folder: PoolFolder):
        it = Kept(folder, tasks=1)
        for script in (b"one", b"two", b"two"):
            it.machine.submit([it.job(script)], 0.0)
        terms = it.machine.entries[3].task.job
        assert it.end() == [3]
        assert it.files() == sorted([terms.script, terms.environment])

    def test_what_a_killed_scheduler_has_left_goes_at_the_next_start(self, folder: PoolFolder):
        it = Kept(folder, tasks=1)
        for script in (b"one", b"two"):
            it.machine.submit([it.job(script)], 0.0)
        call = PoolCall.write(folder, time.sleep, (1,), {}, {})
        lost, fresh = (PoolCall.write(folder, time.sleep, (1,), {}, {}) for _ in range(2))
        output_path(folder.output, 1, 1, "out").write_text("said")
        output_path(folder.output, 9, 1, "out").write_text("of nobody known, perhaps of a later one")
        for one in (call, lost):
            os.utime(one.task.argv[-1], (1.0, 1.0))
        one, two = (it.machine.entries[number].task.job for number in (1, 2))
        run(it.machine)
        it.machine.submit([call.task], 3.0)
        assert [entry.id for entry, _ in it.machine.forget(-1.0, 1)] == [1]
        it.write()
        it.journal.prepare(list(it.machine.snapshot()))
        it.journal.swap(it.journal.size)
        it.journal.close()  # killed here: the log knows them no more, and their files are there
        again = Kept(folder, tasks=1)
        again.upkeep.sweep()
        assert one.script != two.script
        kept = {two.script, two.environment, "9.1.out", Path(call.task.argv[-1]).name, Path(fresh.task.argv[-1]).name}
        assert kept == set(it.files())
        again.journal.close()

    def test_a_log_is_left_alone_until_it_is_long(self, folder: PoolFolder, monkeypatch):
        it = Kept(folder, tasks=100)
        it.machine.submit([PoolTask(("true",))] * 50, 0.0)
        assert not it.upkeep.due()
        monkeypatch.setattr(upkeep, "SHORT", 1000)
        it.upkeep = Upkeep(folder, it.machine, it.journal, PoolRetention(0.0, 100))
        it.write()
        assert it.upkeep.due()
        it.end()
        log = read_journal(folder.journal)
        assert log[0]["log"] == 2 and len(log) == 51
        made = Machine(Pack())
        made.recall(log, 0.0)
        assert dict(made.entries.items()) == dict(it.machine.entries.items())


# -- the scheduler -----------------------------------------------------------------------------------------------------


class Quiet(PoolScheduler):
    """One without a network."""

    def __init__(self, folder: PoolFolder, tasks: int) -> None:
        super().__init__(folder, Pack(), 1.0, retention=PoolRetention(0.0, tasks))
        self.machine.join(PoolMember("a", "n1", "7", Capacity(1.0)), 0.0)

    def _send(self, order: object) -> None:
        pass

    def _soon(self) -> None:
        pass

    def ask(self, what: str, **body: Any) -> Any:
        answer = json.loads(asyncio.run(self._asked(what, json.dumps(body))))
        if "error" in answer:
            raise NotFound(answer["error"])
        return answer["ok"]

    def work(self, count: int) -> list[int]:
        """That many tasks, all of which run."""
        numbers = self.ask("submit", tasks=[{"command": ["true"], "workdir": "/"}] * count)
        while run(self.machine):
            self._flush()
        return numbers

    def keep_up(self) -> None:
        self._upkeep._look_at = 0.0
        assert self._upkeep.due()
        asyncio.run(self._upkeep.run(self.now(), self._still_awaited()))


class TestScheduler:
    def test_who_watches_ends_hears_of_each_or_that_some_were_missed(self, folder: PoolFolder):
        it = Quiet(folder, tasks=2)
        begin = it.ask("ends", **{"from": None, "life": "", "seconds": 0})
        it.work(5)
        some = it.ask("ends", **{"from": begin["next"], "life": begin["life"], "seconds": 0})
        assert [task["id"] for task in some["tasks"]] == [1, 2, 3, 4, 5] and not some["missed"]
        it.keep_up()
        it.work(1)
        more = it.ask("ends", **{"from": some["next"], "life": some["life"], "seconds": 0})
        assert [task["id"] for task in more["tasks"]] == [6] and not more["missed"]
        late = it.ask("ends", **{"from": begin["next"], "life": begin["life"], "seconds": 0})
        assert [task["id"] for task in late["tasks"]] == [4, 5, 6] and late["missed"]
        assert it.ask("forgotten", ids=[1, 4, 9]) == [1]
        it._journal.close()
        anew = Quiet(folder, tasks=2)
        place = {"from": more["next"], "life": more["life"], "seconds": 0}
        told = anew.ask("ends", **place)
        assert [task["id"] for task in told["tasks"]] == [4, 5, 6] and told["missed"]
        anew._journal.close()

    def test_what_a_client_waits_for_is_kept_until_it_can_ask_how_it_ended(self, folder: PoolFolder):
        it = Quiet(folder, tasks=0)
        first, other = it.ask("submit", tasks=[{"command": ["true"], "workdir": "/"}] * 2)
        assert not it.ask("wait", ids=[first], seconds=0)
        it.work(0)
        it.keep_up()
        assert it.ask("tasks", ids=[first])[0]["phase"] == "complete"
        with pytest.raises(NotFound, match="not kept any more"):
            it.ask("tasks", ids=[other])
        it._awaited = dict.fromkeys(it._awaited, 0.0)
        it.keep_up()
        with pytest.raises(NotFound, match="not kept any more"):
            it.ask("tasks", ids=[first])
        assert it.ask("status")["tasks"]["complete"] == 2
        it._journal.close()

    def test_a_future_whose_end_was_missed_says_so_and_waits_no_longer(self, tmp_path: Path):
        class Line:
            """To a scheduler that does not keep the end of task 7 any more."""

            ended = False

            async def ask(self, what: str, body: dict[str, Any]) -> Any:
                if what == "forgotten":
                    return [number for number in body["ids"] if number == 7]
                if self.ended:
                    raise AgentUnavailable("stopped")
                self.ended = True
                return {
                    "next": 9,
                    "life": "x",
                    "missed": True,
                    "tasks": [{"id": 8, "phase": "failed", "why": "code 3"}],
                }

        async def watched() -> list[Future[Any]]:
            pool = PoolExecutor.__new__(PoolExecutor)
            pool._door, pool._order, pool._queue, pool._closed = (
                threading.Lock(),
                asyncio.Lock(),
                asyncio.Queue(),
                False,
            )
            calls = [_Open(PoolCall(PoolTask(("true",)), tmp_path / str(number))) for number in (7, 8)]
            for number, one in zip((7, 8), calls, strict=True):
                one.number = number
            pool._open, pool._running = set(calls), {7: calls[0], 8: calls[1]}
            await pool._watch(Line(), {"next": 0, "life": "x"})
            return [one.future for one in calls]

        missed, failed = asyncio.run(watched())
        assert str(missed.exception()) == "task 7 ended: its end is not kept any more"
        assert str(failed.exception()) == "task 8 failed: code 3"

    def test_one_that_is_killed_after_its_log_was_made_shorter_has_forgotten_nothing_else(self, folder: PoolFolder):
        it = Quiet(folder, tasks=3)
        it.work(4)
        it.keep_up()
        it.ask("submit", tasks=[{"command": ["true"], "workdir": "/", "name": "last"}])
        os.close(it._journal._file)  # as a kill does
        again = Quiet(folder, tasks=3)
        assert list(again.machine.entries) == [2, 3, 4, 5]
        assert again.ask("submit", tasks=[{"command": ["true"], "workdir": "/", "name": "last"}]) == [5]
        assert again.work(1) == [6]
        again._journal.close()
