"""The state of a pool, without I/O: what happened goes in, what is to be done comes out.

The states of the ASA paper, section 3.1: an attempt runs, is complete, failed or lost. A failed task is tried again on
another member, as often as it says; a lost one always. Every change that must outlive the scheduler is a line of the
task log (`journal`); `recall` makes the state from such lines again. Attempts without an end go on where a member says
that it has them (`join`); those that none claims in time are lost. `snapshot` says the same as all lines so far, in
fewer, and what has ended long ago can be forgotten (`forget`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import UserError
from penstock_pool.demand import Demand, MemberLoad, TaskBatch, TaskRunTimes, coalesced
from penstock_pool.endings import LOG, TaskEndings
from penstock_pool.entries import KEPT, TaskEntries, TaskEntry
from penstock_pool.jobqueue import JobQueue
from penstock_pool.model import AttemptOutcome, PoolMember, PoolTask, TaskPhase, Use, idle_share, task_to_dict
from penstock_pool.placement import Load, MemberRoom, PoolPlacement, TaskGroup, TaskShape, shape_of
from penstock_pool.taskjson import task_from_dict

__all__ = ["Kill", "Machine", "SignalAttempt", "StartAttempt", "Station", "TaskEntry"]

_SMALLEST_LOST_TIME: Final = 1.0
_CLAIM: Final = 30.0  # seconds that members have to come back to a new scheduler with what they run
_LONGER: Final = 0.1
"""What one that has overrun its time still takes, as a share of what it has taken."""
_OTHERS: Final = "\n"
"""What tasks of Dask's own clients count as: no workflow can be called that."""


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Run this attempt of this task there."""

    address: str
    id: int
    attempt: int
    task: PoolTask


@dataclass(frozen=True, slots=True)
class Kill:
    """End this attempt there."""

    address: str
    id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SignalAttempt:
    """Send this signal there: to the batch shell alone, to its steps alone, or to both (`whom`)."""

    address: str
    id: int
    attempt: int
    signal: int
    whom: str


@dataclass(slots=True)
class Station:
    """A member and what it runs: task -> cores that were measured (None: not yet). `others`: cores that run tasks of
    clients who talk to Dask itself. It has idled for `idled` seconds before it last ran something, and since
    `idle_since` where it runs nothing."""

    member: PoolMember
    joined: float
    draining: bool = False
    running: dict[int, float | None] = field(default_factory=dict)
    others: float = 0.0
    room: MemberRoom | None = None  # what its own tasks leave; None: to be reckoned anew
    idle_since: float = 0.0
    idled: float = 0.0

    def runs(self, number: int, used: float | None = None) -> None:
        """It runs this task, with this CPU use."""
        self.running[number], self.room = used, None

    def runs_not(self, number: int) -> None:
        """It runs this task no more."""
        del self.running[number]
        self.room = None


class Machine:
    """One pool. `share`: see `MemberRoom`; `journal` collects lines for the log until the caller takes them."""

    def __init__(self, placement: PoolPlacement, share: float = 1.0) -> None:
        self._placement = placement
        self._share = share
        self.entries = TaskEntries()
        self.stations: dict[str, Station] = {}
        self.journal: list[dict[str, Any]] = []
        self.faults = 0  # pairs of a placement that were against the rules
        self.queue = JobQueue(self.entries)
        self.endings = TaskEndings(self.entries, self.queue)
        self._run_times = TaskRunTimes()
        self._names: dict[str, int] = {}
        self._waiting: dict[TaskShape, dict[int, None]] = {}
        self._unclaimed: set[int] = set()  # running, says the log, and no member has said yet that it has them
        self._claim_until = 0.0
        self._count: Counter[TaskPhase] = Counter()

    # What happened.

    def submit(self, tasks: Sequence[PoolTask], now: float, *, larger: bool = False, again: bool = False) -> list[int]:
        """Take the tasks in; their numbers. One whose name is known already is not taken in again: its old number.
        With `again` such a task that has failed or was cancelled is tried again as if it were new.

        Raises UserError for a task that no member could hold, with the largest there is; not if there is none at all,
        or with `larger`. Nothing is taken in then.
        """
        stations = [s.member.capacity for s in self.stations.values() if not s.draining]
        if stations and not larger:
            for task in tasks:
                if not any(capacity.holds(task) for capacity in stations):
                    largest = max(stations, key=lambda c: (c.cores, c.memory or 0, c.gpus))
                    raise UserError(
                        f"task {task.name or ' '.join(task.argv)[:60]!r} needs {_needs(task)}; the largest member of "
                        f"the pool has {largest}"
                    )
        if len(tasks) > 1 and all(task.job is not None for task in tasks):
            return self._submit_array(tasks, now)
        numbers = []
        for task in tasks:
            known = self._names.get(task.name) if task.name else None
            if known is None:
                known = self.entries.last + 1
                self.journal.append({"op": "task", "id": known, "at": now, "task": task_to_dict(task)})
                self._add(known, task, now)
            elif again and self.entries[known].phase in (TaskPhase.FAILED, TaskPhase.CANCELLED):
                self.journal.append({"op": "again", "id": known, "at": now})
                self._again(self.entries[known])
            numbers.append(known)
        return numbers

    def _submit_array(self, tasks: Sequence[PoolTask], now: float) -> list[int]:
        """All or none: their numbers follow each other, so they are one line of the log."""
        known = self._names.get(tasks[0].name)
        if known is None:
            known = self.entries.last + 1
            told = [task_to_dict(task) for task in tasks]
            self.journal.append({"op": "array", "id": known, "at": now, "tasks": told})
            for place, task in enumerate(tasks):
                self._add(known + place, task, now)
        return list(range(known, known + len(tasks)))

    def join(self, member: PoolMember, now: float, has: Iterable[tuple[int, int]] = ()) -> list[Kill]:
        """A member is there. `has`: attempts (task, attempt) of an earlier scheduler of this pool whose ends may not be
        in the log. Those that still count go on; which of them are to be ended."""
        station = self.stations[member.address] = Station(member, now, idle_since=now)
        kills = []
        for number, attempt in has:
            entry = self.entries.get(number)
            if entry is not None and number in self._unclaimed and entry.attempt == attempt:
                self._unclaimed.discard(number)
                entry.address = member.address
                station.runs(number)
                if not entry.cancelled and not entry.again:
                    continue
            kills.append(Kill(member.address, number, attempt))
        if member.job:  # where it is known which member it is, what it does not have is nowhere
            at = (member.node, member.job)
            self._lose([n for n in self._unclaimed if (self.entries[n].node, self.entries[n].job) == at], now)
        return kills

    def drain(self, address: str) -> None:
        """It takes no more tasks. Unknown members are none of our business."""
        if address in self.stations:
            self.stations[address].draining = True

    def drain_job(self, job: str) -> list[str]:
        """The members of one allocation take no more tasks; their addresses."""
        found = [a for a, s in self.stations.items() if s.member.job == job]
        for address in found:
            self.drain(address)
        return found

    def leave(self, address: str, now: float) -> None:
        """It is gone, with whatever ran there."""
        station = self.stations.pop(address, None)
        for number in station.running if station else ():
            self._end(self.entries[number], AttemptOutcome.LOST, None, "its member has left", Use(), now)

    def ended(
        self,
        address: str,
        number: int,
        attempt: int,
        outcome: AttemptOutcome,
        code: int | None,
        why: str,
        use: Use,
        now: float,
    ) -> None:
        """A member tells how an attempt ended. What is not running there in this attempt is ignored."""
        station = self.stations.get(address)
        entry = self.entries.get(number)
        if station is None or entry is None or number not in station.running or entry.attempt != attempt:
            return
        station.runs_not(number)
        if not station.running:
            station.idle_since = now
        self._end(entry, outcome, code, why, use, now)

    def measured(self, address: str, cores: Mapping[int, float]) -> None:
        """CPU use (cores) of running tasks there, as seen lately."""
        station = self.stations.get(address)
        for number, used in cores.items():
            if station is not None and number in station.running:
                station.runs(number, used)

    def cancel(self, numbers: Iterable[int], now: float) -> list[Kill]:
        """Take tasks back; those that run are to be killed, and are cancelled when they have ended, unless complete."""
        kills = []
        for number in numbers:
            entry = self.entries.get(number)
            if entry is None or entry.phase.final:
                continue
            if entry.phase is TaskPhase.RUNNING:
                if not entry.cancelled:
                    entry.cancelled = True
                    self.journal.append({"op": "cancel", "id": number, "at": now})
                kills += self._kills(entry)
            else:
                self._forget_waiting(entry)
                self._end(entry, AttemptOutcome.CANCELLED, None, "", Use(), now)
        return kills

    def hold(self, numbers: Iterable[int], now: float, *, held: bool) -> list[int]:
        """Hold jobs that have not started, or release them; those of which that is true now."""
        done = []
        for number in numbers:
            entry = self.entries[number]
            if entry.task.job is None or entry.phase is not TaskPhase.WAITING:
                continue
            if entry.held != held:
                self.journal.append({"op": "hold", "id": number, "at": now, "held": held})
                self._hold(entry, held)
            done.append(number)
        return done

    def requeue(self, numbers: Iterable[int], now: float) -> list[Kill]:
        """Have jobs that run, or have ended, run again."""
        kills = []
        for number in numbers:
            entry = self.entries[number]
            if entry.task.job is None or entry.phase is TaskPhase.WAITING or entry.cancelled:
                continue
            self.journal.append({"op": "again", "id": number, "at": now})
            if entry.phase is TaskPhase.RUNNING:
                entry.again = True
                kills += self._kills(entry)
            else:
                self._again(entry)
        return kills

    def signals(self, numbers: Iterable[int], signal: int, whom: str) -> list[SignalAttempt]:
        """What is to be sent for a signal to those of these tasks that run."""
        running = [
            entry for n in numbers if (entry := self.entries[n]).phase is TaskPhase.RUNNING and n not in self._unclaimed
        ]
        return [SignalAttempt(entry.address, entry.id, entry.attempt, signal, whom) for entry in running]

    # What is to be done.

    def place(self, now: float) -> list[StartAttempt]:
        """Start what fits. A pair that breaks the rules is not obeyed, and counted in `faults`."""
        if self._unclaimed and now >= self._claim_until:
            self._lose(list(self._unclaimed), now)
        for number in self.queue.freed(now):
            waiting = self.entries[number]
            self._waiting.setdefault(waiting.shape, {})[waiting.id] = None
        if hopeless := self.queue.hopeless():
            self.cancel(hopeless, now)
        if not self._waiting:
            return []
        rooms = {a: self._room(s) for a, s in self.stations.items() if not s.draining and not _over(s.member, now)}
        if not rooms:
            return []
        groups = [TaskGroup(_reachable(s, rooms, now), iter(tasks), len(tasks)) for s, tasks in self._waiting.items()]
        pairs = list(self._placement.place(groups, [self._room(self.stations[a]) for a in rooms], now))
        starts = []
        for number, address in pairs:
            entry, room = self.entries.get(number), rooms.get(address)
            if entry is None or room is None or entry.phase is not TaskPhase.WAITING or not room.fits(entry.shape, now):
                self.faults += 1
                continue
            room.put(entry.shape)
            starts.append(self._start(entry, self.stations[address], now))
        return starts

    def due(self, start: StartAttempt, now: float) -> bool:
        """Whether a start that could not be sent when it was given out still stands. If its task was cancelled since,
        it has ended with this."""
        entry = self.entries[start.id]
        if entry.phase is not TaskPhase.RUNNING or entry.attempt != start.attempt:
            return False
        if entry.cancelled:
            why = "cancelled before it was started"
            self.ended(start.address, start.id, start.attempt, AttemptOutcome.CANCELLED, None, why, Use(), now)
            return False
        return True

    # What one may want to know.

    def counts(self) -> dict[str, int]:
        """Tasks by phase."""
        return {str(phase): self._count[phase] for phase in TaskPhase}

    @property
    def open(self) -> int:
        """How many tasks have not ended."""
        return self._count[TaskPhase.WAITING] + self._count[TaskPhase.RUNNING]

    def recent(self, since: float) -> list[TaskEntry]:
        """Those that have not ended, and those that have since then, in the order of their numbers."""
        return sorted([*self.entries.open(), *self.endings.recent(since)], key=lambda entry: entry.id)

    def forgotten(self, number: int) -> bool:
        """Whether there was such a task, and nothing is known of it any more."""
        return 0 < number <= self.entries.last and number not in self.entries

    def find(self, name: str) -> int | None:
        """The task of this name."""
        return self._names.get(name)

    def unreachable(self, now: float) -> dict[TaskShape, int]:
        """What waits although no member there is could take it, be it as empty as it may; how many of each."""
        empty = [_empty(s.member) for s in self.stations.values() if not s.draining]
        return {s: len(tasks) for s, tasks in self._waiting.items() if not any(room.fits(s, now) for room in empty)}

    def demand(self, now: float, others: int, foreseen: tuple[TaskBatch, ...]) -> Demand:
        """What is to be done, and by whom: see `Demand`. `others`: tasks that wait of clients of Dask's own."""
        waiting = [self._batch(shape, len(tasks)) for shape, tasks in self._waiting.items()]
        if others:
            waiting.append(self._batch(TaskShape(None, 1.0, 0, 0, _OTHERS), others))
        members = []
        for station in self.stations.values():
            lefts = [(self._left(self.entries[n], now), self.entries[n].task.cores) for n in station.running]
            if station.others:
                lefts.append(
                    (self._run_times.expected(_kind(TaskShape(None, 1.0, 0, 0, _OTHERS)), None), station.others)
                )
            member, capacity = station.member, station.member.capacity
            left = None if member.ends is None else max(member.ends - now, 0.0)
            members.append(
                MemberLoad(
                    member.job,
                    member.node,
                    capacity.cores,
                    capacity.memory,
                    capacity.gpus,
                    left,
                    sum(seconds * cores for seconds, cores in lefts),
                    max((seconds for seconds, _ in lefts), default=0.0),
                    station.draining,
                )
            )
        return Demand(now, coalesced(waiting), foreseen, tuple(members))

    def spare(self, now: float, *, more: bool = False) -> list[str]:
        """Members that give back what they cannot use, and that nothing which waits could run on any more, or which
        have idled for their share of time: they are told to leave. `more`: other tasks are expected soon."""
        found = []
        for address, station in self.stations.items():
            if not station.member.gives_back or station.draining or station.running:
                continue
            if station.others:
                station.idle_since = now
            elif self._waiting:
                if not any(_empty(station.member).fits(shape, now) for shape in self._waiting):
                    found.append(address)
            elif not more and now - station.idle_since >= idle_share(now - station.joined, station.idled):
                found.append(address)
        return found

    def _batch(self, shape: TaskShape, count: int) -> TaskBatch:
        seconds = self._run_times.expected(_kind(shape), shape.seconds)
        return TaskBatch(shape.cores, shape.memory, shape.gpus, seconds, count, shape.seconds or 0.0)

    def _left(self, entry: TaskEntry, now: float) -> float:
        """Seconds that a task which runs still takes, as expected."""
        ran = now - (now if entry.started is None else entry.started)
        expected = self._run_times.expected(_kind(entry.shape), entry.shape.seconds)
        return expected - ran if ran < expected else ran * _LONGER

    def busy(self) -> tuple[float, float]:
        """Cores that run tasks, and cores there are."""
        taken = sum(self.busy_cores(station) for station in self.stations.values())
        return taken, sum(s.member.capacity.cores for s in self.stations.values())

    # The log in fewer lines.

    def forget(self, before: float, most: int, spared: Set[int] = frozenset()) -> list[tuple[TaskEntry, list[str]]]:
        """Know no more of tasks that have ended before an instant, and keep at most so many ended ones; those that are
        forgotten, each with the files (of jobs) that nobody needs any more. Numbers do not come back.

        Kept are those that are `spared`, those that a job waits for, and arrays as a whole while one of it is kept.
        """
        gone = self.endings.forget(before, len(self.entries) - self.open - most, spared)
        for entry, _files in gone:
            if self._names.get(entry.task.name) == entry.id:
                del self._names[entry.task.name]
        return gone

    def snapshot(self) -> Iterator[bytes]:
        """The lines of a log that says what this machine knows. `journal` must be empty: it is not part of it."""
        return self.endings.snapshot()

    def busy_cores(self, station: Station) -> float:
        """Cores of a member that run tasks, whosever these are."""
        return station.others + self.held_cores(station)

    def held_cores(self, station: Station) -> float:
        """Cores of a member that the pool's own tasks were promised."""
        return sum(self.entries[number].task.cores for number in station.running)

    # From the log.

    def recall(self, lines: Iterable[Mapping[str, Any]], now: float) -> int:
        """Take in what a log says, in an empty machine; how many tasks ran at its end, and wait for their members.

        Raises KeyError, ValueError, TypeError or UserError for a line that no log of ours holds.
        """
        for line in lines:
            if "log" in line:
                if line["log"] != LOG:
                    raise ValueError(f"log of version {line['log']}")
                self.entries.last = int(line["last"])
                self.entries.forgotten.update({TaskPhase(p): int(n) for p, n in line["forgotten"].items()})
                self._count.update(self.entries.forgotten)
            elif line["op"] == KEPT:
                self._keep(line)
            elif line["op"] == "task":
                self._add(int(line["id"]), task_from_dict(line["task"], "task log", "/"), float(line["at"]))
            elif line["op"] == "array":
                for place, one in enumerate(line["tasks"]):
                    task = task_from_dict(one, "task log", "/")
                    self._add(int(line["id"]) + place, task, float(line["at"]))
            elif line["op"] == "hold":
                self._hold(self.entries[int(line["id"])], bool(line["held"]))
            elif line["op"] == "start":
                entry = self.entries[int(line["id"])]
                self._forget_waiting(entry)
                if entry.task.job is not None:
                    self.queue.begun(entry)
                self._turn(entry, TaskPhase.RUNNING)
                entry.attempt, entry.started, entry.ended = int(line["n"]), float(line["at"]), None
                entry.node, entry.job = str(line["node"]), str(line["job"])
            elif line["op"] == "cancel":
                self.entries[int(line["id"])].cancelled = True
            elif line["op"] == "again":
                entry = self.entries[int(line["id"])]
                if entry.phase is TaskPhase.RUNNING:
                    entry.again = True
                else:
                    self._again(entry)
            elif line["op"] == "end":
                entry = self.entries[int(line["id"])]
                self._forget_waiting(entry)
                use = Use(*line["use"])
                self._end(entry, AttemptOutcome(line["outcome"]), line["code"], line["why"], use, float(line["at"]))
        self.journal.clear()
        self._unclaimed = {entry.id for entry in self.entries.open() if entry.phase is TaskPhase.RUNNING}
        self._claim_until = now + _CLAIM
        return len(self._unclaimed)

    def _add(self, number: int, task: PoolTask, now: float) -> None:
        entry = TaskEntry(number, task, shape_of(task), submitted=now)
        self.entries.add(entry)
        if task.name:
            self._names[task.name] = number
        self._count[TaskPhase.WAITING] += 1
        entry.held = task.job is not None and task.job.held
        self._wait(entry)

    def _keep(self, line: Mapping[str, Any]) -> None:
        entry = self.entries.take_line(line)
        if entry.task.name:
            self._names[entry.task.name] = entry.id
        self._count[entry.phase] += 1
        if entry.phase.final:
            self.endings.add(entry.id)
            self.queue.knows(entry)
        elif entry.phase is TaskPhase.WAITING:
            self._wait(entry)
        elif entry.task.job is not None:
            self.queue.take(entry)
            self.queue.begun(entry)

    def _again(self, entry: TaskEntry) -> None:
        self.endings.outdate(entry.id)
        self.entries.revive(entry)
        entry.failed, entry.shape = 0, shape_of(entry.task)
        self._turn(entry, TaskPhase.WAITING)
        self._wait(entry)

    def _wait(self, entry: TaskEntry) -> None:
        if entry.task.job is not None:
            self.queue.take(entry)
        else:
            self._waiting.setdefault(entry.shape, {})[entry.id] = None

    def _hold(self, entry: TaskEntry, held: bool) -> None:
        entry.held = held
        if entry.phase is TaskPhase.WAITING:
            self._forget_waiting(entry)
            self.queue.take(entry)

    def _lose(self, numbers: Iterable[int], now: float) -> None:
        for number in numbers:
            self._unclaimed.discard(number)
            why = "its member has not come back to a new scheduler"
            self._end(self.entries[number], AttemptOutcome.LOST, None, why, Use(), now)

    def _kills(self, entry: TaskEntry) -> list[Kill]:
        """What is to be sent to end it now; of one that no member has claimed yet, nothing."""
        return [] if entry.id in self._unclaimed else [Kill(entry.address, entry.id, entry.attempt)]

    def _start(self, entry: TaskEntry, station: Station, now: float) -> StartAttempt:
        self._forget_waiting(entry)
        self._turn(entry, TaskPhase.RUNNING)
        entry.attempt += 1
        entry.started, entry.ended = now, None
        entry.address, entry.node, entry.job = station.member.address, station.member.node, station.member.job
        if not station.running:
            station.idled += now - station.idle_since
        station.runs(entry.id)
        if entry.task.job is not None:
            self.queue.begun(entry)
        self.journal.append(
            {"op": "start", "id": entry.id, "n": entry.attempt, "at": now, "node": entry.node, "job": entry.job}
        )
        return StartAttempt(entry.address, entry.id, entry.attempt, entry.task)

    def _end(self, entry: TaskEntry, outcome: AttemptOutcome, code: int | None, why: str, use: Use, now: float) -> None:
        if entry.cancelled and outcome is not AttemptOutcome.COMPLETE:
            outcome = AttemptOutcome.CANCELLED
        elif entry.again:
            outcome = AttemptOutcome.REQUEUED
        entry.cancelled = entry.again = False
        self.journal.append(
            {
                "op": "end",
                "id": entry.id,
                "n": entry.attempt,
                "at": now,
                "outcome": str(outcome),
                "code": code,
                "why": why,
                "use": [round(use.wall, 3), round(use.cpu, 3), use.memory],
            }
        )
        entry.last, entry.code, entry.why, entry.use, entry.ended = outcome, code, why, use, now
        entry.failed += outcome.failed
        entry.lost += outcome in (AttemptOutcome.LOST, AttemptOutcome.REQUEUED)
        job = entry.task.job
        once = outcome is AttemptOutcome.LOST and job is not None and not job.requeue
        if outcome is AttemptOutcome.COMPLETE:
            self._run_times.saw(_kind(entry.shape), use.wall)
            self._turn(entry, TaskPhase.COMPLETE)
        elif outcome is AttemptOutcome.CANCELLED:
            self._turn(entry, TaskPhase.CANCELLED)
        elif once or (outcome.failed and entry.failed > entry.task.retries):
            self._turn(entry, TaskPhase.FAILED)
        else:
            if outcome.failed and entry.address:
                entry.shape = entry.shape._replace(avoid=entry.shape.avoid | {entry.address})
            self._turn(entry, TaskPhase.WAITING)
            self._wait(entry)
        if entry.phase.final:
            self.endings.add(entry.id)
            if job is not None:
                self.queue.over(entry)

    def _turn(self, entry: TaskEntry, phase: TaskPhase) -> None:
        self._count[entry.phase] -= 1
        self._count[phase] += 1
        entry.phase = phase

    def _forget_waiting(self, entry: TaskEntry) -> None:
        self.queue.kept.pop(entry.id, None)
        queue = self._waiting.get(entry.shape, {})
        queue.pop(entry.id, None)
        if not queue:
            self._waiting.pop(entry.shape, None)

    def _room(self, station: Station) -> MemberRoom:
        """What is left there, for a placement to take from."""
        whole = station.room = station.room or self._whole_room(station)
        loads = {name: Load(load.promised, load.used) for name, load in whole.loads.items()}
        if station.others:
            loads[_OTHERS] = Load(station.others, station.others)
        return MemberRoom(whole.member, whole.memory, whole.gpus, whole.share, loads)

    def _whole_room(self, station: Station) -> MemberRoom:
        capacity = station.member.capacity
        room = MemberRoom(station.member, _memory(station.member), capacity.gpus, self._share)
        for number, seen in station.running.items():
            task = self.entries[number].task
            room.memory -= task.memory or 0
            room.gpus -= task.gpus
            load = room.loads.setdefault(task.workflow, Load())
            load.promised += task.cores
            load.used += task.cores if seen is None else min(seen, task.cores)
        return room


def _kind(shape: TaskShape) -> tuple[Any, ...]:
    """Tasks that take alike long."""
    return shape[:5]


def _reachable(shape: TaskShape, rooms: Mapping[str, MemberRoom], now: float) -> TaskShape:
    """The shape; a task that has failed on every member that could take it, if it were empty, may go there again."""
    if not shape.avoid or any(_empty(r.member).fits(shape, now) for a, r in rooms.items() if a not in shape.avoid):
        return shape
    return shape._replace(avoid=frozenset())


def _empty(member: PoolMember) -> MemberRoom:
    return MemberRoom(member, _memory(member), member.capacity.gpus)


def _memory(member: PoolMember) -> float:
    return math.inf if member.capacity.memory is None else member.capacity.memory


def _over(member: PoolMember, now: float) -> bool:
    return member.ends is not None and member.ends - now < _SMALLEST_LOST_TIME


def _needs(task: PoolTask) -> str:
    parts = [f"{task.cores:g} cores"]
    if task.memory is not None:
        parts.append(f"{task.memory / 1e9:.3g} GB")
    if task.gpus:
        parts.append(f"{task.gpus} GPUs")
    return ", ".join(parts)
