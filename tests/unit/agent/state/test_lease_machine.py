"""The rules of the lease, over a folder and a database of lists, with holders that stop, crash and return anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.state.lease.machine import (
    Card,
    Create,
    Fence,
    HeldByOther,
    Moment,
    Names,
    Now,
    PidScope,
    Read,
    Remove,
    Taken,
    Watch,
    beat_every,
    parse,
    sure_for,
    take,
)

PATIENCE = 60.0


def card(host: str, pid: int = 7, **more: Any) -> Card:
    return Card(host, pid, 100 + pid, f"boot of {host}", "pid:[1]", 1000, "agent", 0.0, **more)


@dataclass
class Disk:
    """What all hosts share: the leases, and the number in the database."""

    leases: dict[int, bytes] = field(default_factory=dict)
    fence: int = 0
    holders: list[str] = field(default_factory=list)
    acts: list[tuple[str, int]] = field(default_factory=list)

    def do(self, step: Any, now: float) -> Any:
        match step:
            case Now():
                return now
            case Names():
                return set(self.leases)
            case Read(number):
                return self.leases.get(number)
            case Create(number, text):
                return self.leases.setdefault(number, text) is text
            case Remove(number):
                return self.leases.pop(number, None) and None
            case Fence(number):
                found, self.fence = self.fence, max(self.fence, number)
                return found
        raise AssertionError(step)


def tried(disk: Disk, me: Card, watch: Watch, now: float) -> Taken | HeldByOther:
    steps = take(me, watch)
    answer = None
    while True:
        try:
            answer = disk.do(steps.send(answer), now)
        except StopIteration as end:
            return end.value


def watch(host: str, runs: Any = lambda _pid, _ticks: True, **more: Any) -> Watch:
    return Watch(card(host).place, PATIENCE, runs, **more)


def test_the_first_one_has_it_and_the_next_steps_back_naming_it():
    disk = Disk()
    assert tried(disk, card("a"), watch("a"), 0.0) == Taken(1)
    assert disk.fence == 1
    other = tried(disk, card("b"), watch("b"), 0.0)
    assert isinstance(other, HeldByOther)
    assert other.by is not None
    assert (other.by.host, other.by.number) == ("a", 1)
    assert set(disk.leases) == {1}


def test_a_silent_one_is_succeeded_after_the_observers_own_time_and_not_before():
    disk, looking = Disk(), watch("b")
    tried(disk, card("a"), watch("a"), 1e6)  # its clock has nothing to do with the other's
    assert isinstance(tried(disk, card("b"), looking, 5.0), HeldByOther)
    assert isinstance(tried(disk, card("b"), looking, 5.0 + PATIENCE - 0.1), HeldByOther)
    assert tried(disk, card("b"), looking, 5.0 + PATIENCE) == Taken(2)
    assert (set(disk.leases), disk.fence) == ({2}, 2)


def test_a_beat_starts_the_observers_time_anew():
    disk, looking = Disk(), watch("b")
    tried(disk, card("a"), watch("a"), 0.0)
    tried(disk, card("b"), looking, 0.0)
    disk.leases[1] = replace(card("a"), number=1, beat=1).text()
    assert isinstance(tried(disk, card("b"), looking, PATIENCE), HeldByOther)
    assert isinstance(tried(disk, card("b"), looking, 2 * PATIENCE - 1), HeldByOther)
    assert tried(disk, card("b"), looking, 2 * PATIENCE) == Taken(2)


def test_what_was_seen_outlives_the_observer():
    disk, first = Disk(), watch("b")
    tried(disk, card("a"), watch("a"), 0.0)
    tried(disk, card("b"), first, 0.0)
    assert tried(disk, card("b"), watch("b", notes=first.notes), PATIENCE) == Taken(2)
    # A note from the future is of another clock.
    disk, later = Disk(), watch("b", notes={1: (first.notes[1][0], 1e9)})
    tried(disk, card("a"), watch("a"), 0.0)
    assert isinstance(tried(disk, card("b"), later, PATIENCE), HeldByOther)
    assert isinstance(tried(disk, card("b"), later, PATIENCE + 1), HeldByOther)


def test_on_the_same_host_a_process_that_is_gone_is_succeeded_at_once_and_one_that_is_stopped_is_not():
    disk = Disk()
    tried(disk, card("a", 7), watch("a"), 0.0)
    there = watch("a", lambda pid, ticks: (pid, ticks) == (7, 107))
    assert isinstance(tried(disk, card("a", 8), there, 10 * PATIENCE), HeldByOther)
    assert tried(disk, card("a", 8), watch("a", lambda *_: False), 0.0) == Taken(2)


def test_where_the_boot_is_not_known_processes_are_not_looked_for():
    disk, nowhere = Disk(), Watch(PidScope(), PATIENCE, lambda *_: False)
    tried(disk, replace(card("a"), boot="", space=""), nowhere, 0.0)
    assert isinstance(tried(disk, card("b"), nowhere, 0.0), HeldByOther)


def test_a_released_one_is_succeeded_at_once():
    disk = Disk({4: replace(card("a"), number=4, released=True).text()}, 4)
    assert tried(disk, card("b"), watch("b"), 0.0) == Taken(5)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff" * 50, b'{"host": 3}'])
def test_one_that_says_nothing_is_given_its_time_too(text):
    disk, looking = Disk({3: text}), watch("b")
    assert tried(disk, card("b"), looking, 0.0) == HeldByOther(None)
    assert tried(disk, card("b"), looking, PATIENCE) == Taken(4)


def test_leases_that_were_removed_by_hand_do_not_give_a_number_twice():
    disk = Disk({}, 57)
    assert tried(disk, card("a"), watch("a"), 0.0) == Taken(58)


def test_a_card_is_always_as_long_and_comes_back():
    for one in (card("a"), card("a" * 200, address="x:1", beat=10**9, at=1e9)):
        assert len(one.text()) == 1024
        assert parse(one.text()) == one


def test_in_doubt_more_time_has_passed_than_less():
    assert Moment(10.0, 100.0).since(Moment(5.0, 99.0)) == 5.0
    assert Moment(10.0, 900.0).since(Moment(9.0, 100.0)) == 800.0  # a virtual machine was stopped, or the clock was set


class Host:
    """One host that wants the state: takes it step by step, beats, acts while it is sure, writes through the fence.

    Its clock has its own origin and rate. While it is paused, nothing of it moves but the clock.
    """

    def __init__(self, name: str, disk: Disk, origin: float, rate: float) -> None:
        self.name, self.disk, self.origin, self.rate = name, disk, origin, rate
        self.notes: dict[int, tuple[str, float]] = {}
        self.paused_until = 0.0
        self.begin()

    def begin(self) -> None:
        """A new process: it remembers nothing but what is on the disk."""
        self.watch = watch(self.name, lambda *_: False, notes=self.notes)
        self.steps: Any = None
        self.answer: Any = None
        self.number: int | None = None
        self.renewed = self.next_beat = 0.0
        self.beats = 0
        self.sent = False

    def clock(self, now: float) -> float:
        return self.origin + self.rate * now

    def step(self, now: float) -> None:
        if now < self.paused_until:
            return
        mine = self.clock(now)
        if self.number is not None:
            self.hold(mine)
            return
        if self.steps is None:
            self.me = replace(card(self.name), since=now)
            self.steps, self.answer = take(self.me, self.watch), None
        try:
            step = self.steps.send(self.answer)
        except StopIteration as end:
            self.notes, self.steps = dict(self.watch.notes), None
            if isinstance(end.value, Taken):
                self.number = end.value.number
                self.me = replace(self.me, number=self.number)
                self.disk.holders.append(self.name)
            return
        if isinstance(step, Create):
            self.renewed = mine
        self.answer = self.disk.do(step, mine)

    def hold(self, mine: float) -> None:
        assert self.number is not None
        if mine >= self.next_beat:
            if self.number not in self.disk.leases:
                self.begin()
                return
            self.beats += 1
            self.disk.leases[self.number] = replace(self.me, beat=self.beats).text()
            self.next_beat = mine + beat_every(PATIENCE)
            if not self.somebody_tries(mine):
                self.renewed = mine
        if mine - self.renewed <= sure_for(PATIENCE):
            # At this very moment it may tell Slurm something. Nobody else may have begun by now.
            self.disk.acts.append((self.name, self.number))
            assert self.number >= self.disk.fence, f"{self.name} acts on {self.number}, and {self.disk.fence} has begun"
        # In one transaction: look, then write.
        if self.disk.fence == self.number:
            self.sent = True
        else:
            self.begin()

    def somebody_tries(self, mine: float) -> bool:
        later = max(self.disk.leases)
        if later == self.number:
            return False
        if not self.watch.lives(later, self.disk.leases[later], mine, mine) and self.disk.fence == self.number:
            del self.disk.leases[later]
        return True


EVENTS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, 2), st.integers(1, 12)),
    st.tuples(st.just("pass"), st.integers(0, 2), st.sampled_from([1, 4, 15, 21, 59, 61, 200])),
    st.tuples(st.just("pause"), st.integers(0, 2), st.sampled_from([1, 10, 25, 70, 500])),
    st.tuples(st.just("crash"), st.integers(0, 2), st.just(0)),
)


# Who wakes up between the successor's fence and the end of its own lease.
@example([("run", 1, 5), ("run", 0, 5), ("pass", 0, 61), ("run", 0, 8), ("run", 1, 1)], [(0.0, 1.0)] * 3)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(EVENTS, max_size=80),
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.8, 1.25)), min_size=3, max_size=3),
)
def test_never_two_that_act_and_somebody_has_it_in_the_end(events, clocks):
    disk = Disk()
    hosts = [Host(name, disk, *clock) for name, clock in zip("abc", clocks, strict=True)]
    now = 0.0
    for kind, which, amount in events:
        host = hosts[which]
        if kind == "run":
            for _ in range(amount):
                host.step(now)
        elif kind == "pass":
            now += amount
        elif kind == "pause":
            host.paused_until = now + amount
        else:
            host.notes = dict(host.watch.notes)
            host.begin()
    # Two of the three are gone for ever: the third has it after a while, whatever was left behind.
    for host in hosts[1:]:
        host.paused_until = float("inf")
    hosts[0].paused_until = 0.0
    for _ in range(400):
        hosts[0].step(now)
        now += 1.0
    assert hosts[0].number == disk.fence
    assert hosts[0].sent
