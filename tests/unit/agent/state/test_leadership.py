"""While the agent is not sure that it holds its state, nothing reaches Slurm: by the executor or by the budget."""

from __future__ import annotations

import asyncio
import errno
import os
import re

import pytest
from factories import Doing, ManualClock

from penstock.core.executor import Concern, Executor
from penstock.errors import ConfigError, LeaseLost, NotNow, StoreError
from penstock.slurm.budget import RequestBudget
from penstock.state.leadership import lock_state
from penstock.state.store import Store
from penstock_lab.agent_world import World, chain, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


@pytest.mark.parametrize("error", [NotNow("not renewed", again_in=1.0), LeaseLost("gone")])
def test_an_act_is_looked_at_once_more_between_the_journal_and_the_request(error):
    store, sent = Store(":memory:"), []

    def stop() -> None:
        raise error

    async def request(_slurm) -> None:
        sent.append(1)

    executor = Executor(store, ManualClock(100.0), None, may_act=stop)
    with pytest.raises(type(error)):
        asyncio.run(executor.act(Doing(request), "workflow 1/a", {}, Concern("workflows", os.geteuid())))
    assert sent == []
    assert store.intents.unsettled() == [], "it was never sent, and the journal says so"


def test_a_request_that_changes_something_is_looked_at_when_its_turn_has_come():
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    def lost_while_waiting() -> None:
        if waited:
            raise LeaseLost("gone")

    budget = RequestBudget(clock=lambda: 0.0, sleep=sleep, may_change=lost_while_waiting)

    async def ask() -> int:
        for n in range(1000):
            try:
                await budget.admit("slurmctld", changing=True, patience=1e9)
            except LeaseLost:
                return n
        return -1

    assert asyncio.run(ask()) == budget.limits.burst, "those that need not wait pass"
    asyncio.run(budget.admit("slurmctld", changing=False, patience=1e9))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        *((n, StoreError) for n in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)),
        *((n, ConfigError) for n in (errno.EACCES, errno.EROFS, errno.ENAMETOOLONG)),
    ],
)
@pytest.mark.parametrize("call", ["os.mkdir", "os.open", "fcntl.flock"])
def test_a_disk_that_is_full_or_fails_is_no_mistake_of_the_configuration(tmp_path, monkeypatch, call, number, kind):
    def fails(*_args, **_more):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(call, fails)
    with pytest.raises(kind, match=re.escape(os.strerror(number))) as caught:
        lock_state(tmp_path / "state")
    monkeypatch.undo()
    assert type(caught.value) is kind


@virtual
async def test_a_pass_holds_and_says_why_and_goes_on_after(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(5.0, 5.0), "perstage")
    world.app.loop._why_not = lambda: "the lease was not renewed for 21 s"
    end = world.now + 60.0
    await world.until(lambda: world.now >= end)
    assert not world.submissions()
    last = world.store.decisions.of("agent")[-1]
    assert (last["verb"], last["reasons"]) == ("hold", [["lease", "the lease was not renewed for 21 s"]])
    world.app.loop._why_not = lambda: None
    run = await world.finish(number)
    assert run.phase.value == "completed"
    assert world.submissions() == {"a": 1, "b": 1}
