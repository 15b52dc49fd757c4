"""No request that changes something is left out of the audit trail, and each record names what it is about."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest
from factories import ManualClock

from penstock.app import App
from penstock.audit.auditor import Auditor
from penstock.audit.reading import RecordFilter, records
from penstock.audit.record import Door
from penstock.audit.trail import Trail
from penstock.config import config_of
from penstock.errors import NotFound
from penstock.ipc.audited import CHANGING, RequestAudit
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig

_ONLY_LOOK = {
    "cluster", "decisions", "env", "expect", "explain", "hours", "left", "pauses", "ping", "plan", "queue", "shape",
    "sizes", "status", "try", "turn", "waits",
}  # fmt: skip


def test_each_request_either_changes_something_or_only_looks(tmp_path):
    slurm = virtual_cluster(ClusterConfig(nodes=1), user="root")
    app = App(config_of({"agent": {"state_dir": tmp_path}}), slurm, slurm.clock, Store(":memory:"))

    async def known() -> set[str]:
        await app.start()
        return set(app.operations)

    names = asyncio.run(known())
    assert names >= CHANGING
    assert names - CHANGING <= _ONLY_LOOK, "a new request: does it change anything?"


_STAGES = [{"name": "a", "job": 7, "after": []}, {"name": "b", "job": 8, "after": [7]}]
_ASKED: dict[str, tuple[dict[str, Any], dict[str, Any], str, int | None, dict[str, Any]]] = {
    # what is asked, what is answered, then of the record: subject, job, some of the details
    "cancel": ({"run": 3}, {"jobs": [7, 8]}, "workflow 3", None, {}),
    "end": ({}, {"ends": True}, "the agent", None, {}),
    "follow": (
        {"links": [{"job": 9, "after": [7]}]}, {"run": 3}, "workflow 3", 9, {"jobs": "9"},
    ),
    "guide": (
        {"workflow": "mosaic", "strategy": "asa", "stages": _STAGES}, {"run": 3},
        "workflow 3", None, {"name": "mosaic", "stages": 2, "jobs": "7,8", "strategy": "asa"},
    ),
    "mold": (
        {"job": 7, "shapes": "2:8h,4:4h30m", "checkpoint": "/p/state", "born": 5.0}, {"job": 7, "puts_back": True},
        "job 7", 7, {"shapes": "2:8h,4:4h30m", "checkpoint": "/p/state"},
    ),
    "more": ({"run": 3, "seconds": 600}, {}, "workflow 3", None, {"seconds": 600}),
    "off": (
        {"why": "move", "release": True, "drop_slots": False, "units": ["penstock.service"]}, {"off": {}},
        "the agent", None, {"why": "move", "release": True, "units": "penstock.service"},
    ),
    "on": ({}, {"off": None}, "the agent", None, {}),
    "pause": (
        {"feature": "malleable", "partition": "gpu", "why": "tests"}, {"pauses": ["x"]},
        "malleable in gpu", None, {"feature": "malleable", "partition": "gpu", "why": "tests"},
    ),
    "resume": ({"uid": 0}, {"pauses": ["x"]}, "everything of root", None, {}),
    "retry": ({"run": 3, "stage": "a"}, {}, "workflow 3", None, {"stage": "a"}),
    "submit": (
        {"workflow": {"name": "mosaic", "stages": [{}, {}]}, "strategy": "auto"}, {"run": 3},
        "workflow 3", None, {"name": "mosaic", "stages": 2, "strategy": "auto"},
    ),
}  # fmt: skip


def test_what_each_request_is_about_is_known_to_the_test_below():
    assert set(_ASKED) == CHANGING


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("op", sorted(CHANGING))
def test_each_record_names_what_it_is_about(tmp_path, op, refused):
    request, answer, subject, job, details = _ASKED[op]
    owners = {"workflow 3": 1234, "job 7": 1234}

    async def operation(_uid, _request):
        if refused:
            raise NotFound("there is none")
        return answer

    audit = RequestAudit(Auditor(Trail(tmp_path), lambda: 1e9), ManualClock(1e9), owners.get)
    with contextlib.suppress(NotFound):
        asyncio.run(audit.carry_out(Door.UNIX, os.geteuid(), op, request, operation))
    record = list(records(tmp_path, RecordFilter(verb=op), 1).entries)[-1][1]
    assert record.outcome.value == ("refused" if refused else "done")
    assert details.items() <= dict(record.details).items()
    assert record.job == job
    if refused and "run" not in request and subject.startswith("workflow"):  # it never was one
        assert record.subject == "" and (record.details.get("name") or record.details["jobs"])
    else:
        assert record.subject == subject
        assert record.owner == (0 if op == "resume" else owners.get(subject))
