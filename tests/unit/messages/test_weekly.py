"""The report of the week, as a message."""

from __future__ import annotations

import pytest

from penstock.core.events import Event
from penstock_lab.agent_world import World, virtual
from penstock_messages.part import MessagesPart

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


@virtual
async def test_the_week_is_told_once_a_week(tmp_path):
    world = World(tmp_path, {"messages": {"command": ["/bin/true"]}})
    await world.boot()
    told: list[Event] = []
    for days in (0.0, 6.9, 7.1, 7.2, 14.5):
        world.clock.advance_to(1_000_000_000.0 + days * 86400)
        await world.restart()
        world.app.part(MessagesPart).messenger._post = lambda _way, event, done: (told.append(event), done(None))
        await world.app.part(MessagesPart).messenger._report()
        world.app.part(MessagesPart).messenger.step()
    assert [event.kind for event in told] == ["report", "report"]
    assert "waiting saved" in told[0].text and told[0].uid is None
    since, until = told[1].details["since"], told[1].details["until"]
    assert until - since == pytest.approx(7.4 * 86400, abs=10)


@virtual
async def test_after_a_clock_was_set_back_the_week_begins_anew(tmp_path):
    world = World(tmp_path, {"messages": {"command": ["/bin/true"]}})
    await world.boot()
    told: list[str] = []
    world.app.part(MessagesPart).messenger.tell = lambda event: told.append(event.kind)
    now = world.now
    world.store.facts.remember("messages.reported", str(now + 30 * 86400))
    for days in (0.0, 6.9, 7.1):
        world.clock.advance_to(now + days * 86400)
        await world.app.part(MessagesPart).messenger._report()
    assert told == ["report"]
