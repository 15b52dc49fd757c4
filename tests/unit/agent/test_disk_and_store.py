"""Writes that fail, one or all for a while: nothing is done twice, forgotten, or known to the agent alone."""

from __future__ import annotations

import asyncio
import os

import pytest
from factories import Doing, ManualClock

from penstock.api import JobSpec
from penstock.core.executor import Concern, Executor
from penstock.core.off import Off, off_in
from penstock.core.pauses import Pause, PauseControl, pauses_in
from penstock.errors import OutcomeUnknown, SlurmUnavailable, StoreError
from penstock.state.store import Store
from penstock.workflow.phases import RunPhase
from penstock_lab import agent_world
from penstock_lab.agent_world import APP, SITE, WAYS, MortalConnection, World, chain, settled, virtual
from penstock_lab.testing import make_snapshot

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


class Disk:
    """Which writes fail, counted from `since`: those with these numbers."""

    def __init__(self) -> None:
        self.writes = 0
        self.full: range = range(0)

    def check(self, path: str) -> None:
        self.writes += 1
        if self.writes in self.full:
            raise StoreError(f"the state file {path}: database or disk is full")


class Patient(World):
    """A pass that fails is made again soon, as `Loop.run` does it."""

    async def tick(self) -> None:
        try:
            await super().tick()
        except StoreError:
            self.pass_at = self.now + 5.0


@pytest.fixture
def disk(monkeypatch):
    the_disk = Disk()

    class OnDisk(MortalConnection):
        def execute(self, sql, args=()):
            if not sql.lstrip().startswith(("SELECT", "BEGIN", "ROLLBACK")):
                the_disk.check(self.path)
            return super().execute(sql, args)

    monkeypatch.setattr(agent_world, "MortalConnection", OnDisk)
    return the_disk


@pytest.mark.parametrize("writes", [1, 4])
@pytest.mark.parametrize("strategy", ["asa", "auto"])
@virtual
async def test_whichever_writes_fail_each_stage_is_submitted_once_and_the_file_knows_it(
    tmp_path, disk, strategy, writes
):
    k, hit = 0, True
    while hit:
        disk.full = range(0)
        world = Patient(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27), strategy)
        first = disk.writes + 1 + k
        disk.full = range(first, first + writes)
        run = await world.finish(number)
        hit = disk.writes >= first
        await world.until(lambda w=world: not w.workflows.runs)
        assert run.phase is RunPhase.COMPLETED, k
        assert world.submissions() == {"a": 1, "b": 1}, k
        await world.until(lambda w=world: not w.store.intents.unsettled())
        assert world.store.runs.latest(live_only=True) == [], k
        world.kill()
        k += 3
    assert k > 15


@virtual
async def test_a_workflow_that_could_not_be_stored_is_not_run(tmp_path, disk):
    """Its user hears that it was not taken, and submits it again."""
    k, refused, accepted = 1, 0, 0
    while accepted < 2:  # what is asked for the plan may be stored or not
        world = Patient(tmp_path / str(k))
        await world.boot()
        disk.full = range(disk.writes + k, disk.writes + k + 1)
        try:
            await world.submit(chain(10, 11), "auto")
            accepted += 1
        except StoreError:
            refused += 1
            number = await world.submit(chain(10, 11), "auto")
            await world.finish(number)
            assert world.submissions() == {"a": 1, "b": 1}, k
        world.kill()
        k += 1
    assert refused > 2


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_whichever_writes_fail_no_resizer_and_no_node_is_lost(tmp_path, disk, way):
    for k in range(0, 40, 3):
        disk.full = range(0)
        world = Patient(tmp_path / str(k), **SITE[way])
        await world.boot()
        program = await world.malleable(seconds=900, **APP[way])
        disk.full = range(disk.writes + 1 + k, disk.writes + 6 + k)
        await world.until(lambda p=program: p.sizes[-1] == 8)
        await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 120\n", 4, 180))
        await world.until(lambda p=program: p.sizes[-1] == 4)
        await world.restart()
        await world.until(lambda w=world, p=program: settled(w, p))
        await world.backend.cancel(program.job)
        await world.until(lambda w=world: not w.malleables.jobs)
        assert world.resizers() == [], k
        world.kill()


ABOUT = Concern("workflows", os.geteuid())


class Unwritable(Store):
    """A store whose intents and facts cannot be written while `full`."""

    full = False

    def __init__(self, path):
        super().__init__(path)
        self.intents.settle = self._guarded(self.intents.settle)
        self.facts.remember = self._guarded(self.facts.remember)

    def _guarded(self, write):
        def guarded(*arguments):
            if self.full:
                raise StoreError("disk is full")
            write(*arguments)

        return guarded


def test_what_was_done_is_no_failure_because_the_journal_is_full(tmp_path):
    store, clock = Unwritable(tmp_path / "s.db"), ManualClock()
    executor = Executor(store, clock, None)

    async def request(_):
        store.full = True
        return 7

    assert asyncio.run(executor.act(Doing(request), "w", {}, ABOUT)) == 7
    assert len(store.intents.unsettled()) == 1
    with pytest.raises(StoreError):
        asyncio.run(executor.reconcile(make_snapshot()))
    store.full = False
    asyncio.run(executor.reconcile(make_snapshot()))
    assert store.intents.unsettled() == []


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), SlurmUnavailable("away")])
def test_how_an_act_failed_is_heard_though_the_journal_is_full(tmp_path, error):
    store = Unwritable(tmp_path / "s.db")
    executor = Executor(store, ManualClock(), None)

    async def request(_):
        store.full = True
        raise error

    with pytest.raises(type(error)):
        asyncio.run(executor.act(Doing(request), "w", {}, ABOUT))
    assert not executor.ready("w")


def test_a_pause_that_cannot_be_stored_holds_until_it_can_and_says_so(tmp_path):
    store = Unwritable(tmp_path / "s.db")
    pause_control = PauseControl(store)
    before, mine = Pause("malleable", None, None, 0, 1.0, ""), Pause(None, 7, None, 7, 2.0, "")
    pause_control.pause(before)
    assert not pause_control.unwritten
    store.full = True
    pause_control.pause(mine)
    assert pause_control.pauses == (before, mine)
    assert pauses_in(store) == (before,)
    assert pause_control.unwritten == (
        "what is paused is known to this agent alone and does not outlive the agent: disk is full"
    )
    with pytest.raises(StoreError):
        pause_control.resume([before])  # a restart would pause it again
    assert pause_control.pauses == (before, mine)
    with pytest.raises(StoreError):
        pause_control.write()
    store.full = False
    pause_control.write()
    assert pauses_in(store) == (before, mine)
    assert not pause_control.unwritten


def test_what_was_never_stored_is_lifted_without_a_write(tmp_path):
    store = Unwritable(tmp_path / "s.db")
    pause_control = PauseControl(store)
    store.full = True
    pause_control.pause(wanted := Pause(None, None, None, 0, 1.0, ""))
    pause_control.turn_off(order := Off(0, 1.0))
    assert pause_control.off == order
    pause_control.resume([wanted])
    assert pause_control.unwritten.startswith("that it is off is known to this agent alone")
    assert pause_control.turn_on() == order
    assert not pause_control.unwritten
    assert (pauses_in(store), off_in(store)) == ((), None)


def test_an_order_that_cannot_be_taken_back_in_the_file_lasts(tmp_path):
    store = Unwritable(tmp_path / "s.db")
    pause_control = PauseControl(store)
    pause_control.turn_off(order := Off(0, 1.0))
    store.full = True
    with pytest.raises(StoreError):
        pause_control.turn_on()
    assert pause_control.off == order
