"""What is expected of the waits of a bag's jobs: under the fair share that their user has on each cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from test_select_market import SITE, bag, nodes, offered, partition

from penstock.api import Geometry, Snapshot
from penstock.config import config_of
from penstock.errors import SlurmUnavailable
from penstock.state.store import Store
from penstock.values.waits import Estimate, Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.learners import make
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.live.history import FairShares, complete
from penstock_planning.broker.clusters import ClusterView
from penstock_planning.broker.shape import shape
from penstock_planning.broker.tq import expectations


class Slurm:
    """Of one cluster, by a user with this fair share."""

    def __init__(self, share: float | Exception) -> None:
        self.share, self.asked = share, 0

    def now(self) -> float:
        return 1000.0

    def whoami(self) -> str:
        return "ann"

    async def history(self, **_: object) -> list[Any]:
        return []

    async def shares(self) -> dict[str, float]:
        self.asked += 1
        if isinstance(self.share, Exception):
            raise self.share
        return {"phys": self.share}


def view(slurm: Any, **site: Any) -> ClusterView:
    them = nodes(4)
    snapshot = Snapshot(1000.0, {}, them, {"batch": partition(them)})
    return ClusterView("near", replace(SITE, **site), snapshot, slurm)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_waits_are_those_of_the_fair_share_there(tmp_path, share):
    """The agent's state has what both shares of its cluster were kept waiting for."""
    config = config_of({"agent": {"state_dir": tmp_path, "seed": 1}})
    store = Store(tmp_path / "penstock.db")
    for of, seconds in ((0.1, 5000.0), (0.9, 100.0)):
        known = partial(complete, cluster="near", usual={}, shares={"phys": of}, one_user=True)
        learned = ModelStore(
            store.learning, lambda: 7.0, partial(make, "median", LIVE_ALTERNATIVES), seed=1, complete=known
        )
        for _ in range(40):
            learned.observe(Geometry("batch", "", 1, 3600.0), Observation(seconds), Estimate(0, seconds))
    slurm = Slurm(share)
    asyncio.run(FairShares(slurm, slurm, store).refresh())
    store.close()
    config = replace(config, asa=replace(config.asa, predictor="median"))
    told, problem = asyncio.run(expectations(config, view(slurm)))
    assert problem is None and slurm.asked == 1, "its agent has asked for it"
    assert told.share({}) == share and told.share({"account": "other"}) is None
    them, task = nodes(4), bag(tmp_path, time="1h")
    (candidate,) = offered(SITE, partition(them), them)
    found = told.wait(candidate, shape(task, candidate), task.options, None, None)
    assert found.expected == pytest.approx({0.1: 5000.0, 0.9: 100.0}[share], rel=0.3)
    told.close()


def test_another_cluster_is_asked_where_shares_count(tmp_path):
    config, slurm = config_of({"agent": {"state_dir": tmp_path}}), Slurm(0.4)
    told, _ = asyncio.run(expectations(config, view(slurm)))
    assert told.share({}) == 0.4 and slurm.asked == 1
    told, _ = asyncio.run(expectations(config, view(slurm, priority_type="priority/basic")))
    assert told.share({}) is None and slurm.asked == 1
    told, problem = asyncio.run(expectations(config, view(Slurm(SlurmUnavailable("away")))))
    assert told.share({}) is None and problem is None
