"""What `penstock off` asks of the agent's parts: to hand back what they hold."""

from __future__ import annotations

import asyncio

from penstock.app import App
from penstock.config import config_of
from penstock.core.offitems import ItemState, OffItem
from penstock.core.parts import Part
from penstock.shutdown.part import OffPart
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.testing import make_snapshot

ITEM = OffItem("slot", 0, ItemState.LEFT, "a thing that is held")


class Holder(Part):
    name = "holder"

    def __init__(self):
        self.asked = []

    async def hand_back(self, snapshot, *, act, drop):
        self.asked.append((act, drop))
        return [ITEM]


def test_what_a_part_holds_is_told_and_nothing_is_done_to_look_at_it(monkeypatch, tmp_path):
    holder, made = Holder(), App._made
    monkeypatch.setattr(App, "_made", lambda self, *given: (*made(self, *given), holder))
    backend = virtual_cluster(start=1e9)
    config = config_of({"agent": {"state_dir": str(tmp_path)}})
    one = App(config, backend, backend.clock, Store(":memory:"))
    asyncio.run(one.start())
    report = asyncio.run(one.part(OffPart).drain.preview(make_snapshot([])))
    assert report.items == (ITEM,)
    assert holder.asked == [(False, False)]
