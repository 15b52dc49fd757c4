"""What the part of held slots says to those who ask for no agent."""

from __future__ import annotations

import asyncio

import pytest

from penstock.app import App
from penstock.config import config_of
from penstock.core.findings import Level, Trouble
from penstock.errors import ConfigError, NotFound, PenstockError
from penstock.future.bits import NodeBits
from penstock.future.partition import queue_for
from penstock.future.plan import make_plan
from penstock.state.store import Store
from penstock.statefile.statefile import inspect
from penstock.workflow.documents import in_slots
from penstock.workflow.files.formats import parse_workflow
from penstock.workflow.state import StageSlot
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_planning.hold.ledger import Ledger
from penstock_planning.part import SlotsPart
from penstock_planning.plan.holding import Hold, WantedSlot


def within(call):
    try:
        return call()
    except PenstockError as error:
        return Trouble(str(error))


@pytest.mark.parametrize(
    ("set_", "key", "mode", "level"),
    [
        (False, None, None, Level.NO),
        (True, None, None, Level.NO),
        (True, b"0123456789abcdef", 0o604, Level.NO),
        (True, b"0123456789abcdef", 0o600, Level.OK),
    ],
)
def test_doctor_is_told_whether_requests_can_be_signed(tmp_path, set_, key, mode, level):
    path = tmp_path / "key"
    if key is not None:
        path.write_bytes(key)
        path.chmod(mode)
    config = config_of({"provision": {"requests": str(tmp_path), "request_key": str(path)} if set_ else {}})
    (finding,) = SlotsPart.checks(config, within)
    assert (finding.check, finding.level) == ("request-key", level)
    assert bool(finding.change) is (level is Level.NO)


def test_the_ledger_is_a_file_that_is_checked_like_the_state(tmp_path):
    (kind,) = SlotsPart.files()
    path = kind.path(config_of({"provision": {"ledger": str(tmp_path / "ledger.db")}}))
    assert path == tmp_path / "ledger.db"
    book = Ledger(path)
    book._db.execute("INSERT INTO holds VALUES (1, 'u', 'a', 0, '{}')")
    book.close()
    assert inspect(path, kind).problems == ("holds 1: state cannot be read: it has no 'wanted'",)


def test_the_dashboard_is_told_what_stays_free_at_the_configured_prices():
    finder = SlotsPart.free_slots(config_of({}))
    snapshot = make_snapshot([make_job(1, *NODES[:6], end=1600.0)], at=1000.0)
    partition = snapshot.partitions["batch"]
    queue = queue_for(snapshot, partition)
    found = finder(snapshot, make_plan(queue.queue), NodeBits(queue.names), partition)
    assert [(slot.start, slot.end, slot.nodes) for slot in found] == [
        (1000.0, None, NODES[6:]),
        (1600.0, None, NODES[:6]),
    ]
    assert {slot.price for slot in found} == {snapshot.nodes[NODES[0]].cpus}


def test_prices_that_are_not_installed_are_a_wrong_configuration():
    with pytest.raises(ConfigError, match="no pricing 'none'"):
        SlotsPart.free_slots(config_of({"provision": {"pricing": "none"}}))


def ledger_config(tmp_path):
    return config_of({"agent": {"state_dir": str(tmp_path)}, "provision": {"ledger": str(tmp_path / "ledger.db")}})


def test_workflows_in_slots_are_told_with_what_is_held_for_each_stage(tmp_path):
    config = ledger_config(tmp_path)
    book = Ledger(config.provision.ledger)
    hold = Hold(WantedSlot("w-a", "u", "lab", 2, "main", 5000.0, 600.0, "reservation", 1.0, 0.0))
    flow = parse_workflow("name: w\nstages: [{name: a, run: date, nodes: 2, time: 10m}]", "w.yaml")
    book.store_run(in_slots("w-1", flow, {"a": StageSlot("w-a", book.open_hold(hold))}, 0.0))
    (told,) = SlotsPart.reserved_runs(config, final=False)
    assert told["name"] == "w-1"
    assert told["slots"] == {"a": hold.to_dict()}


def test_of_a_workflow_that_is_not_there_nothing_is_given_up(tmp_path):
    backend = virtual_cluster(start=1e9)
    one = App(ledger_config(tmp_path), backend, backend.clock, Store(":memory:"))
    with pytest.raises(NotFound, match="no workflow w-1"):
        asyncio.run(SlotsPart.give_up_run(one.config, backend, one.executor, "w-1"))
