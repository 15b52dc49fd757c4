"""What a command answers by itself where no agent does: the same as an agent would, and nothing of it lasts."""

from __future__ import annotations

import os
import time
from contextlib import closing

import pytest

from penstock.config import load
from penstock.console.door import plan_stages
from penstock.console.stand_in import _Nobody, answered
from penstock.errors import LeftAlone, NotNow, SlurmUnavailable, StoreError, UserError
from penstock.state.store import Store

A = {"name": "a", "job": 5, "after": [], "kept": "begin"}
B = {"name": "b", "job": 0, "after": ["a"]}


@pytest.fixture
def config(site, tmp_path, monkeypatch):
    """The site's, with a state folder that no agent has had yet."""
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(tmp_path / "state"))
    return load()


def request(*stages, strategy="asa"):
    return {"workflow": "w", "strategy": strategy, "stages": list(stages)}


def state(config):
    config.agent.state_dir.mkdir(parents=True, exist_ok=True)
    return Store(config.agent.state_dir / "penstock.db")


def test_stages_that_wait_for_the_next_tick_are_known_and_still_wait(config):
    with closing(state(config)) as store:
        store.inbox.post(os.geteuid(), "guide", request(A), time.time())
        told = plan_stages(config, request(B))
        assert told["run"] is not None and told["before"] == {"b": [{"name": "a", "job": 5, "phase": "waiting"}]}
        assert len(store.inbox.waiting()) == 1 and store.runs.latest() == [], "what was worked out is not kept"


def test_what_an_agent_would_refuse_is_refused_before_the_job_is_in_the_queue(config):
    with pytest.raises(UserError, match="strategy: bigjob is not possible here"):
        plan_stages(config, request(B | {"after": []}, strategy="bigjob"))


def test_where_all_is_off_nothing_is_planned(config):
    with closing(state(config)) as store:
        store.facts.remember("off", '{"by": 0, "since": 1.0}')
    with pytest.raises(LeftAlone, match="Penstock was turned off"):
        plan_stages(config, request(B | {"after": []}))


def test_it_changes_nothing_in_slurm():
    with pytest.raises(NotNow, match="changes nothing"):
        _Nobody().check()


def test_a_state_of_another_version_is_an_error_and_for_a_forecast_none_at_all(config, site):
    with closing(state(config)) as store:
        store.connection.execute("PRAGMA user_version=1")
    with pytest.raises(StoreError):
        answered(config, "plan", request(B | {"after": []}))
    flow = {"name": "f", "stages": [{"name": "a", "nodes": 1, "time_limit": 60.0, "run_time": 60.0, "run": ":"}]}
    with pytest.raises(UserError):  # it came as far as reading the workflow
        answered(config, "try", {"workflow": {**flow, "stages": 3}}, without_state=True)


def test_a_slurm_that_does_not_answer_is_an_error_but_where_sbatch_would_wait_for_it(config, monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_SLURM__MOCK_SOCKET", str(tmp_path / "gone"))
    assert plan_stages(load(), request(B | {"after": []}))["before"] == {"b": []}
    with pytest.raises(SlurmUnavailable):
        answered(load(), "left", {"preview": True})
