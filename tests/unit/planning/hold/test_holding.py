"""Slots held on the simulated Slurm in virtual time: every way, every end, and kills in between."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from factories import hand

from penstock.api import Job, JobSpec, JobState, Reservation
from penstock.errors import Infeasible, LeaseLost, NotFound, NotNow, OutcomeUnknown, StateRefused, StoreError, UserError
from penstock.statefile.statefile import inspect
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig
from penstock_planning.hold import ledger as ledger_module
from penstock_planning.hold import requests
from penstock_planning.hold.holds import Holds, RequestFolder
from penstock_planning.hold.ledger import Ledger
from penstock_planning.hold.ledgerfile import LEDGER
from penstock_planning.plan.holding import Act, Hold, HoldPhase, LedgerEntry, Limits, Seen, WantedSlot, step
from penstock_planning.plan.transfers import Measured

KEY = b"0123456789abcdef"


class World:
    """A cluster of four nodes on which root and the operator may reserve; `holds` acts as `user`."""

    def __init__(self, user="root", limits=None, requested=None):
        self.root = virtual_cluster(ClusterConfig(nodes=4), user="root")
        self.backend = self.root if user == "root" else self.root.as_user(user)
        self.ledger = Ledger(":memory:")
        self.holds = Holds(self.backend, hand(self.backend), self.ledger, limits, requested)
        self.start = self.root.now()

    def run(self, work):
        return asyncio.run(work)

    def to(self, seconds):
        self.root.clock.advance_to(self.start + seconds)
        return self.run(self.holds.tick())

    def wanted(self, method="reservation", **more):
        base = {
            "name": "slot-1", "user": "alice", "account": "lab", "nodes": 2, "partition": self.partition(),
            "start": self.start + 1000, "duration": 600.0, "method": method, "base": 20.0, "f": 5.0,
        }  # fmt: skip
        return WantedSlot(**{**base, **more})

    def partition(self):
        return self.run(self.root.partitions())[0].name

    def submit(self, nodes, limit, seconds):
        script = f"#!/bin/sh\n#MOCK duration={seconds} exit=0\n"
        return self.run(self.root.as_user("bob").submit(JobSpec("busy", script, nodes, limit)))

    def reservations(self):
        return [r.name for r in self.run(self.root.reservations())]

    def jobs(self):
        return [j for j in self.run(self.root.jobs()) if not j.state.ended and j.user != "bob"]

    def nothing_left(self):
        assert self.reservations() == [] and self.jobs() == []

    def entries(self):
        return {line.kind: line.amount for line in self.ledger.lines()}


def test_a_reservation_from_asking_to_the_end():
    world = World()
    number = world.run(world.holds.open(world.wanted()))
    hold = world.ledger.hold(number)
    assert hold.phase is HoldPhase.HELD and world.reservations() == ["slot-1"]
    assert world.entries() == {"charge": 25.0}
    (made,) = world.run(world.root.reservations())
    assert made.users == {"alice"} and made.end - made.start >= 660
    world.to(1100)
    world.to(1700)
    assert world.ledger.hold(number).phase is HoldPhase.DONE
    world.nothing_left()
    assert world.entries() == {"charge": 25.0}
    assert world.ledger.holds() == {} and number in world.ledger.holds(final=True)


def test_cancelling_costs_the_penalty_once():
    world = World()
    number = world.run(world.holds.open(world.wanted()))
    for _ in range(3):
        assert world.run(world.holds.cancel(number)).phase is HoldPhase.CANCELLED
    world.nothing_left()
    assert world.entries() == {"charge": 25.0, "refund": -25.0, "penalty": 0.5}
    assert world.ledger.account("lab").spent == 0.5


def test_after_its_begin_nothing_comes_back():
    world = World()
    number = world.run(world.holds.open(world.wanted()))
    world.to(1100)
    assert world.run(world.holds.cancel(number)).phase is HoldPhase.CANCELLED
    world.nothing_left()
    assert world.entries() == {"charge": 25.0}


def test_what_somebody_else_deletes_is_paid_back():
    world = World()
    number = world.run(world.holds.open(world.wanted()))
    world.run(world.root.unreserve("slot-1"))
    world.to(10)
    hold = world.ledger.hold(number)
    assert (hold.phase, hold.reason) == (HoldPhase.LOST, "somebody else deleted the reservation")
    assert world.ledger.account("lab").spent == 0


def test_slurms_refusal_is_passed_on():
    world = World()
    world.submit(3, 5000.0, 5000)
    number = world.run(world.holds.open(world.wanted()))
    hold = world.ledger.hold(number)
    assert hold.phase is HoldPhase.FAILED and hold.reason
    world.nothing_left()
    assert world.entries() == {}
    mortal = World(user="alice")
    number = mortal.run(mortal.holds.open(mortal.wanted()))
    assert mortal.ledger.hold(number).phase is HoldPhase.FAILED


def test_a_pass_looks_once_however_many_slots_there_are(monkeypatch):
    world = World()
    slots = [world.wanted(name=f"slot-{i}", start=world.start + 1000 * (i + 1)) for i in range(5)]
    looks = []
    for name in ("reservations", "jobs", "nodes", "find"):
        asked = getattr(world.backend, name)

        async def counted(*words, name=name, asked=asked):
            looks.append(name)
            return await asked(*words)

        monkeypatch.setattr(world.backend, name, counted)

    async def all_of_them():
        view = world.holds.view()
        return [await world.holds.open(slot, view) for slot in slots]

    numbers = world.run(all_of_them())
    assert [world.ledger.hold(n).phase for n in numbers] == [HoldPhase.HELD] * 5
    assert sorted(looks) == ["nodes", "reservations"]
    looks.clear()
    world.to(10)
    assert looks == ["reservations"]
    # What a pass has changed itself, it knows.
    for number in numbers:
        world.ledger.store(number, replace(world.ledger.hold(number), giving_up=True), (), 0.0)
    looks.clear()
    world.to(20)
    assert looks == ["reservations"]
    world.nothing_left()


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_answer_or_a_kill_never_charges_twice(lost, monkeypatch):
    world = World()
    reserve = world.backend.reserve
    calls = []

    async def broken(spec):
        calls.append(spec.name)
        made = await reserve(spec) if lost == "after" or len(calls) > 1 else None
        if len(calls) == 1:
            raise OutcomeUnknown("the answer was lost")
        return made

    monkeypatch.setattr(world.backend, "reserve", broken)
    number = world.run(world.holds.open(world.wanted()))
    assert world.ledger.hold(number).phase is HoldPhase.ASKED and world.entries() == {}
    world.holds = Holds(world.backend, hand(world.backend), world.ledger)  # as after a kill
    world.to(10)
    world.to(20)
    assert world.ledger.hold(number).phase is HoldPhase.HELD
    assert world.entries() == {"charge": 25.0}
    assert len(calls) == (2 if lost == "before" else 1)


def virtual(world, **more):
    more = {"submit_at": world.start + 100, "run_time": 1500.0, "node_second": 0.01, "f": math.inf, **more}
    more.setdefault("command", "#MOCK duration=1490 exit=0")
    return world.wanted(more.pop("method", "var"), **more)


def test_a_virtual_reservation():
    world = World(user="alice")
    number = world.run(world.holds.open(virtual(world)))
    assert world.ledger.hold(number).phase is HoldPhase.NEW and world.jobs() == []
    world.to(99)
    assert world.jobs() == []
    world.to(100)
    world.to(110)
    hold = world.ledger.hold(number)
    assert hold.phase is HoldPhase.HELD and len(world.jobs()) == 1
    assert world.entries()["charge"] == 20.0 and world.entries()["idle"] == pytest.approx(900 * 2 * 0.01, abs=0.3)
    world.to(1700)
    assert world.ledger.hold(number).phase is HoldPhase.DONE
    world.nothing_left()


def test_a_virtual_reservation_that_waits_too_long_leaves_nothing():
    world = World(user="alice")
    world.submit(4, 5000.0, 5000)
    number = world.run(world.holds.open(virtual(world)))
    world.to(110)
    assert len(world.jobs()) == 1
    world.to(1000)
    hold = world.ledger.hold(number)
    assert (hold.phase, hold.reason) == (HoldPhase.FAILED, "the job did not begin before the slot")
    world.nothing_left()
    assert world.entries() == {}


def test_a_virtual_reservation_without_a_chance():
    world = World(user="alice")
    number = world.run(world.holds.open(virtual(world, submit_at=None)))
    assert world.ledger.hold(number).phase is HoldPhase.FAILED


@pytest.mark.parametrize(("f", "used"), [(100.0, "VAR"), (1.0, "AR"), (0.0, "AR")])
def test_the_combined_scheme_keeps_the_cheaper(f, used):
    world = World()
    number = world.run(world.holds.open(virtual(world, method="combined", f=f, user="root")))
    assert world.reservations() == ["slot-1"]
    world.to(100)
    world.to(110)
    world.to(120)
    hold = world.ledger.hold(number)
    assert hold.used == used and hold.phase is HoldPhase.HELD
    assert world.reservations() == ([] if used == "VAR" else ["slot-1"])
    assert len(world.jobs()) == (1 if used == "VAR" else 0)
    if used == "VAR":
        assert world.entries()["penalty"] == 10.0 and world.entries()["refund"] == -100.0
    assert world.ledger.account("lab").spent <= 20 + f + 1e-9
    world.to(1800)
    assert world.ledger.hold(number).phase is HoldPhase.DONE
    world.nothing_left()


IDLES = WantedSlot(
    "slot-1", "alice", "lab", 2, "p", 1000.0, 600.0, "combined", 20.0, 1e6, submit_at=500.0, run_time=1100.0
)
MADE = Reservation("slot-1", 1000.0, 1660.0, ("n1", "n2"), frozenset({"alice"}), frozenset(), frozenset(), False)


def idle_job(state, start, end):
    return Job(
        7, 1, "alice", "lab", "p", "q", JobState(state), "", 500.0, 500.0, start, end, 1100.0, 2, 2, (), 1
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "why"),
    [
        # Slurm gives the moment of the end as the start of a job that was cancelled while it waited.
        (idle_job("CANCELLED", 700.0, 700.0), "cancelled while it waited"),
        (idle_job("CANCELLED", None, 700.0), "without a start"),
        (idle_job("FAILED", 650.0, 700.0), "died before the slot began"),
    ],
)
def test_a_reservation_is_not_given_up_for_a_dead_idle_job(job, why):
    held = Hold(IDLES, HoldPhase.HELD, job=7, job_asked=True)
    for now in (710.0, 1010.0):
        found = step(held, Seen(MADE, job), now)
        assert (found.hold.used, found.hold.phase, found.entries) == ("AR", HoldPhase.HELD, ()), why
        assert Act.UNRESERVE not in found.acts


def test_a_virtual_reservation_whose_job_never_ran_is_not_charged():
    asked = Hold(replace(IDLES, method="var", f=math.inf), HoldPhase.ASKED, job=7, job_asked=True)
    found = step(asked, Seen(None, idle_job("CANCELLED", 700.0, 700.0)), 710.0)
    assert (found.hold.phase, found.entries) == (HoldPhase.FAILED, ())


def test_an_idle_job_that_did_its_work_while_nobody_looked_is_kept():
    held = Hold(IDLES, HoldPhase.HELD, job=7, job_asked=True)
    done = Seen(MADE, idle_job("COMPLETED", 600.0, 1500.0))
    found = step(held, done, 1510.0)
    assert (found.hold.used, found.acts) == ("VAR", (Act.UNRESERVE,))
    assert step(found.hold, replace(done, reservation=None), 1510.0).hold.phase is HoldPhase.HELD


@pytest.mark.parametrize("job", [None, idle_job("CANCELLED", 600.0, 700.0)])
@pytest.mark.parametrize("method", ["combined", "var"])
def test_a_slot_is_lost_with_the_idle_job_that_was_kept_for_it(method, job):
    kept = Hold(replace(IDLES, method=method), HoldPhase.HELD, job=7, job_asked=True, used="VAR")
    assert step(kept, Seen(None, idle_job("RUNNING", 600.0, 1700.0)), 710.0).hold.phase is HoldPhase.HELD
    found = step(kept, Seen(None, job), 710.0)
    assert (found.hold.phase, found.hold.reason) == (HoldPhase.LOST, "the idle job ended before the slot began")
    if job is not None:  # the pass came late
        assert step(kept, Seen(None, job), 1010.0).hold.phase is HoldPhase.LOST


def test_an_idle_job_that_was_kept_and_dies_leaves_no_slot():
    world = World()
    number = world.run(world.holds.open(virtual(world, method="combined", f=100.0, user="root")))
    for at in (100, 110, 120):
        world.to(at)
    assert world.ledger.hold(number).used == "VAR"
    world.run(world.root.cancel(world.ledger.hold(number).job))
    world.to(130)
    assert world.ledger.hold(number).phase is HoldPhase.LOST
    world.nothing_left()


def refusing(world, monkeypatch, error):
    """Slurm takes no job; each time that it is asked is noted."""
    tried = []

    async def submit(spec):
        tried.append(world.root.now() - world.start)
        raise error

    monkeypatch.setattr(world.backend, "submit", submit)
    return tried


@pytest.mark.parametrize(("method", "phase"), [("var", HoldPhase.FAILED), ("combined", HoldPhase.HELD)])
def test_an_idle_job_that_slurm_refuses_is_asked_for_once(method, phase, monkeypatch):
    world = World()
    tried = refusing(world, monkeypatch, Infeasible("Invalid account"))
    number = world.run(world.holds.open(virtual(world, method=method, f=100.0)))
    for at in (100, 160, 220, 280):
        world.to(at)
    hold = world.ledger.hold(number)
    assert tried == [100] and hold.phase is phase and "Invalid account" in hold.reason
    assert world.reservations() == (["slot-1"] if method == "combined" else [])
    assert world.entries() == ({"charge": 120.0} if method == "combined" else {})


@pytest.mark.parametrize("method", ["var", "combined"])
def test_an_idle_job_that_slurm_does_not_take_now_is_asked_for_once_a_pass(method, monkeypatch):
    world = World()
    tried = refusing(world, monkeypatch, NotNow("too many jobs"))
    number = world.run(world.holds.open(virtual(world, method=method, f=100.0)))
    for at in (100, 160, 220):
        world.to(at)
    assert tried == [100, 160, 220]
    monkeypatch.undo()
    for at in (280, 290, 300):
        world.to(at)
    assert world.ledger.hold(number).used == "VAR"


@pytest.mark.parametrize("f", [100.0, 1.0])
def test_what_a_combined_hold_decided_against_is_given_back_also_after_a_kill(f, monkeypatch):
    """The reservation where the idle job is kept, the idle job where the reservation is."""
    world = World()
    number = world.run(world.holds.open(virtual(world, method="combined", f=f, user="root")))

    async def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(world.backend, "unreserve", killed)
        patched.setattr(world.backend, "cancel", killed)
        for second in (100, 110, 120):
            world.to(second)
    assert world.ledger.hold(number).used and len(world.reservations()) == len(world.jobs()) == 1
    entries = world.entries()
    world.to(130)
    assert len(world.reservations()) + len(world.jobs()) == 1 and world.entries() == entries


def test_what_could_not_be_given_back_is_given_back_later(monkeypatch):
    world = World()
    number = world.run(world.holds.open(world.wanted()))

    async def down(_name):
        raise NotNow("not now")

    with monkeypatch.context() as patched:
        patched.setattr(world.backend, "unreserve", down)
        assert world.run(world.holds.cancel(number)).phase is HoldPhase.CANCELLED
        assert world.reservations() == ["slot-1"] and number in world.ledger.holds()
        assert world.ledger.account("lab").promised == 0
    world.to(10)
    world.nothing_left()
    assert world.ledger.holds() == {}


def test_the_combined_scheme_without_a_reservation_is_the_virtual_one():
    world = World(user="alice")
    number = world.run(world.holds.open(virtual(world, method="combined", f=7.0)))
    world.to(100)
    world.to(110)
    hold = world.ledger.hold(number)
    assert hold.phase is HoldPhase.HELD and hold.wanted.method == "var"
    world.to(1700)
    world.nothing_left()


def test_a_request_that_an_operator_grants(tmp_path):
    world = World(user="alice", requested=RequestFolder(tmp_path / "asked", KEY))
    number = world.run(world.holds.open(world.wanted("request")))
    (path,) = (tmp_path / "asked").glob("*.request")
    assert world.ledger.hold(number).phase is HoldPhase.ASKED and world.entries() == {}
    world.run(world.root.reserve(requests.read(path, KEY)))
    world.to(10)
    assert world.ledger.hold(number).phase is HoldPhase.HELD and not path.exists()
    assert world.entries() == {"charge": 25.0}


def test_a_request_that_nobody_grants_is_taken_back(tmp_path):
    world = World(user="alice", requested=RequestFolder(tmp_path, KEY))
    number = world.run(world.holds.open(world.wanted("request")))
    world.to(1000)
    assert world.ledger.hold(number).phase is HoldPhase.FAILED
    assert list(tmp_path.glob("*.request")) == []
    world.nothing_left()


def test_a_request_that_could_not_be_taken_back_is_taken_back_later(tmp_path, monkeypatch):
    world = World("alice", requested=RequestFolder(tmp_path, KEY))
    number = world.run(world.holds.open(world.wanted("request")))

    def full(*_):
        raise StoreError("not now")

    with monkeypatch.context() as patched, pytest.raises(StoreError):
        patched.setattr(requests, "drop", full)
        world.run(world.holds.cancel(number))
    assert list(tmp_path.iterdir())
    world.to(10)
    assert not list(tmp_path.iterdir()) and world.ledger.hold(number).settled


def test_a_request_that_cannot_be_written_is_written_later(tmp_path):
    folder = tmp_path / "asked"
    folder.write_text("a file where the folder should be")
    world = World(user="alice", requested=RequestFolder(folder, KEY))
    number = world.run(world.holds.open(world.wanted("request")))
    hold = world.ledger.hold(number)
    assert hold.phase is HoldPhase.ASKED and "cannot be written" in hold.reason
    world.to(10)
    folder.unlink()
    world.to(20)
    assert len(list(folder.glob("*.request"))) == 1 and world.ledger.hold(number).reason == ""


def test_a_request_that_never_could_be_written_takes_no_other_slot_along(tmp_path):
    folder = tmp_path / "asked"
    folder.write_text("a file where the folder should be")
    world = World(requested=RequestFolder(folder, KEY))
    world.run(world.holds.open(world.wanted("request")))
    other = world.run(world.holds.open(world.wanted(name="slot-2")))
    world.to(1000)
    world.to(2000)
    assert [h.phase for h in world.ledger.holds(final=True).values()] == [HoldPhase.FAILED, HoldPhase.DONE]
    assert world.ledger.hold(other).phase is HoldPhase.DONE


def test_a_request_is_written_after_a_kill_in_between(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_words):
        raise Killed

    world = World(user="alice", requested=RequestFolder(tmp_path, KEY))
    with monkeypatch.context() as patched:
        patched.setattr(requests, "write", killed)
        with pytest.raises(Killed):
            world.run(world.holds.open(world.wanted("request")))
    world.to(10)
    assert len(list(tmp_path.glob("*.request"))) == 1


def test_a_request_that_somebody_has_taken_is_not_written_again(tmp_path):
    world = World(user="alice", requested=RequestFolder(tmp_path, KEY))
    number = world.run(world.holds.open(world.wanted("request")))
    (path,) = tmp_path.glob("*.request")
    path.unlink()
    world.to(10)
    assert not path.exists() and world.ledger.hold(number).phase is HoldPhase.ASKED
    # Releases before this one did not note it.
    old = {key: value for key, value in world.ledger.hold(number).to_dict().items() if key != "requested"}
    assert Hold.from_dict(old).requested


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        (None, "slot-1", "not permitted: `provision.requests` is not set"),
        (b"short", "slot-1", "at least 16"),
        (KEY, "a/b", "letters, digits"),
    ],
)
def test_a_request_that_cannot_be_made_at_all_fails_and_says_why(key, name, said, tmp_path):
    world = World(user="alice", requested=None if key is None else RequestFolder(tmp_path, key))
    number = world.run(world.holds.open(world.wanted("request", name=name)))
    hold = world.ledger.hold(number)
    assert hold.phase is HoldPhase.FAILED and said in hold.reason


def test_a_request_that_was_changed_is_refused(tmp_path):
    world = World(user="alice", requested=RequestFolder(tmp_path, KEY))
    world.run(world.holds.open(world.wanted("request")))
    (path,) = tmp_path.glob("*.request")
    text = path.read_text()
    path.write_text(text.replace('"nodes": 2', '"nodes": 4'))
    with pytest.raises(UserError, match="has a wrong signature"):
        requests.read(path, KEY)
    path.write_text(text)
    with pytest.raises(UserError, match="has a wrong signature"):
        requests.read(path, KEY[::-1])
    path.write_text("{}")
    with pytest.raises(UserError, match="is no request"):
        requests.read(path, KEY)


def test_budgets_say_what_would_be_enough():
    world = World()
    world.ledger.set_budget("lab", 40)
    world.run(world.holds.open(world.wanted()))
    with pytest.raises(Infeasible, match="account lab has 15 left, and this may cost 25: a budget of 50 would be"):
        world.run(world.holds.open(world.wanted(name="slot-2")))
    assert world.reservations() == ["slot-1"]
    world.ledger.set_budget("lab", None)
    world.run(world.holds.open(world.wanted(name="slot-2")))
    account = world.ledger.account("lab")
    assert (account.spent, account.promised, account.left) == (50, 0, None)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(notice=2000), "a slot must be requested at least 2000 s ahead here$"),
        (Limits(share=0.25), "the limit here is 1 reserved node at a time"),
        (Limits(per_user=0), "at most 0 slots"),
        (Limits.preset("strict"), "3600 s ahead"),
    ],
)
def test_a_sites_limits(limits, said):
    world = World(limits=limits)
    with pytest.raises(Infeasible, match=said):
        world.run(world.holds.open(world.wanted()))
    assert world.ledger.holds(final=True) == {}


def test_the_ledger_survives(tmp_path):
    path = tmp_path / "ledger.db"
    world = World()
    first = Ledger(path)
    number = first.open_hold(Hold(world.wanted()))
    first.store(number, replace(first.hold(number), phase=HoldPhase.HELD), [LedgerEntry("charge", 25)], 1.0)
    first.close()
    again = Ledger(path)
    again.store(number, again.hold(number), [LedgerEntry("charge", 99)], 2.0)
    assert again.hold(number).wanted == world.wanted()
    assert [(e.kind, e.amount) for e in again.lines("lab")] == [("charge", 25)]
    assert [a.name for a in again.accounts()] == ["lab"]
    with pytest.raises(NotFound):
        again.hold(99)
    assert path.stat().st_mode & 0o077 == 0
    (tmp_path / "broken.db").write_text("not a database, and long enough to be none at all" * 10)
    with pytest.raises(StoreError):
        Ledger(tmp_path / "broken.db")


class FullAtCommit:
    """A database on a disk that is full when a transaction is to be written; see a connection's own methods."""

    def __init__(self, db, taken_back):
        self._db, self._taken_back = db, taken_back

    def execute(self, sql, *args):
        if sql == "COMMIT":
            if self._taken_back:
                self._db.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(sql, *args)

    def __getattr__(self, name):
        return getattr(self._db, name)


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_disk_that_is_full_at_the_end_of_a_transaction_leaves_the_ledger_as_it_was(tmp_path, taken_back):
    world = World()
    ledger = Ledger(tmp_path / "ledger.db")
    sound = ledger._db
    ledger._db = FullAtCommit(sound, taken_back)
    with pytest.raises(StoreError, match="disk is full"):
        ledger.open_hold(Hold(world.wanted()))
    ledger._db = sound
    assert not sound.in_transaction
    number = ledger.open_hold(Hold(world.wanted()))
    assert ledger.hold(number).wanted == world.wanted()


def test_an_agent_that_has_lost_the_state_writes_nothing_into_the_ledger(tmp_path):
    world = World()
    lost = []

    def may_write():
        if lost:
            raise LeaseLost(lost[0])

    ledger = Ledger(tmp_path / "ledger.db", may_write=may_write)
    number = ledger.open_hold(Hold(world.wanted()))
    lost.append("another host has taken over")
    for write in (
        lambda: ledger.open_hold(Hold(world.wanted())),
        lambda: ledger.store(number, Hold(world.wanted()), [], 1.0),
        lambda: ledger.set_budget("lab", 7.0),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert list(ledger.holds()) == [number] and ledger.account("lab").budget is None, "what is there can be read"


@pytest.mark.parametrize("version", range(1, ledger_module.VERSION))
@pytest.mark.parametrize("shared", [False, True])
def test_a_ledger_from_before_is_refused_with_what_to_install_first_and_left_as_it_is(tmp_path, version, shared):
    path = tmp_path / "ledger.db"
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=" + ("WAL" if shared else "DELETE"))
        db.execute(f"PRAGMA user_version={version}")
        db.commit()
    before = path.read_bytes()
    told = f"version {version}, .* install Penstock of commit fd8d5927 .* first"
    for look in (lambda: Ledger(path, shared=shared), lambda: Ledger.copy_of(path), lambda: inspect(path, LEDGER)):
        with pytest.raises(StateRefused, match=told) as done:
            look()
        assert done.value.exit_code == 8
    assert path.read_bytes() == before


def test_a_ledger_knows_of_transfers(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    ledger.add_transfer("near", "far", 5.0, 1e9, Measured(10, 12))
    ledger.add_transfer("far", "near", 6.0, 1e9, Measured(10, 30))
    ledger.add_transfer("near", "far", 7.0, 1e9, Measured(10, 11))
    assert ledger.transfers() == {
        ("near", "far"): [Measured(10, 12), Measured(10, 11)],
        ("far", "near"): [Measured(10, 30)],
    }
    ledger.close()
    again = Ledger(path)
    assert len(again.transfers()) == 2
    again.close()
