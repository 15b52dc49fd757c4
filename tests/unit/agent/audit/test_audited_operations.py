"""No request that changes something is left out of the audit trail: each one at the door is known to be of one kind."""

from __future__ import annotations

import asyncio

from penstock.app import App
from penstock.config import Config
from penstock.ipc.audited import CHANGING
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig

_ONLY_LOOK = {
    "cluster", "decisions", "env", "expect", "explain", "hours", "left", "pauses", "ping", "plan", "queue", "shape",
    "sizes", "status", "try", "turn", "waits",
}  # fmt: skip


def test_each_request_either_changes_something_or_only_looks(tmp_path):
    slurm = virtual_cluster(ClusterConfig(nodes=1), user="root")
    app = App(Config.model_validate({"agent": {"state_dir": tmp_path}}), slurm, slurm.clock, Store(":memory:"))

    async def known() -> set[str]:
        await app.start()
        return set(app.operations)

    names = asyncio.run(known())
    assert names >= CHANGING
    assert names - CHANGING <= _ONLY_LOOK, "a new request: does it change anything?"
