"""Expected waits for portals: from the last look alone, the same until the next, and to whom they are told."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter

import pytest

from penstock.api import JobSpec
from penstock.app import App
from penstock.config import config_of
from penstock.errors import NotFound, NotPermitted, UserError
from penstock.slurm.base import Backend
from penstock.state.store import Store
from penstock.waits.live import glance
from penstock_lab.mock.backend import virtual_cluster

ME = os.geteuid()
HOUR = 3600.0


class Counting:
    """A backend whose calls are counted by name."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name):
        found = getattr(self.backend, name)
        if callable(found):
            self.calls[name] += 1
        return found


class Agent:
    """An agent over a simulated cluster that bob's job has whole for two hours, while one of alice's waits."""

    def __init__(self, **asa):
        self.running = asyncio.new_event_loop()
        self.slurm = virtual_cluster(start=1e9)
        self.backend = Counting(self.slurm)
        settings = {"agent": {"serve": "all", "seed": 1}, "slurm": {"min_interval": 10}, "asa": asa}
        self.app = App(config_of(settings), self.backend, self.slurm.clock, Store(":memory:"))
        self.alice, self.bob = (self.slurm.engine.uid_of(name) for name in ("alice", "bob"))
        self.do(self.app.start())
        nodes = len(self.do(self.slurm.nodes()))
        for name, limit in (("bob", 2 * HOUR), ("alice", HOUR)):
            script = "#!/bin/sh\n#MOCK duration=7000\n"
            self.do(self.slurm.as_user(name).submit(JobSpec("j", script, nodes, limit)))
            self.slurm.clock.advance(1.0)
        self.nodes = nodes

    def look(self):
        self.do(self.app.observer.look(0.0))
        self.do(self.app.loop.one_pass())

    def do(self, something):
        return self.running.run_until_complete(something) if asyncio.iscoroutine(something) else something

    def ask(self, uid, op, /, **request):
        return self.do(self.app.operations[op](uid, request))


@pytest.fixture
def make():
    made = []

    def one(**asa):
        made.append(Agent(**asa))
        return made[-1]

    yield one
    for agent in made:
        agent.do(agent.app.close())
        agent.running.close()


@pytest.fixture
def agent(make):
    it = make()
    it.look()
    return it


def test_before_the_first_look_nothing_is_known_and_that_is_said(make):
    told = make().ask(ME, "expect", jobs=[{}])
    assert told["at"] is None and told["problems"] == ["the agent has not looked at Slurm yet"]
    assert [told["jobs"][0][name] for name in ("p50", "p95", "slurm")] == [None, None, None]


def test_each_job_is_answered_from_the_queue_as_it_was_seen(agent):
    told = agent.ask(ME, "expect", jobs=[{"nodes": 1, "time_limit": 600}, {"partition": "nowhere"}, {"nodes": 9999}, 3])
    first, *others = told["jobs"]
    assert 600 < first["p50"] <= first["p95"], "the cluster is full for two hours"
    assert ["there is no 'nowhere'" in others[0]["error"], "at most, not 9999" in others[1]["error"]] == [True, True]
    assert "a job must be a mapping" in others[2]["error"]
    assert told["problems"] == [] and told["age"] < 60
    assert [(p["name"], p["default"], p["nodes"]) for p in told["partitions"]] == [("main", True, agent.nodes)]


def test_a_thousand_questions_ask_slurm_for_nothing_and_predict_once(agent, monkeypatch):
    predictions = []
    monkeypatch.setattr(
        glance, "predicted", lambda *args, real=glance.predicted: predictions.append(args) or real(*args)
    )
    before = Counter(agent.backend.calls)
    jobs = [{"nodes": n, "time_limit": t} for n in (1, 2, 4) for t in (600, HOUR, 4 * HOUR)]
    begun = time.perf_counter()
    answers = [agent.ask(ME, "expect", jobs=jobs) for _ in range(1000)]
    took = time.perf_counter() - begun
    assert all(one["jobs"] == answers[0]["jobs"] for one in answers)
    assert set(agent.backend.calls - before) <= {"whoami"}, "which is no request"
    assert len(predictions) == len(jobs)
    assert took < 30, "some microseconds each"


def test_a_new_look_is_a_new_answer(agent):
    before = agent.ask(ME, "expect", jobs=[{"nodes": 1}])["jobs"][0]["p50"]
    agent.do(agent.slurm.as_user("bob").cancel(min(agent.app.observer.last.jobs)))
    agent.slurm.clock.advance(3700.0)
    assert agent.ask(ME, "expect", jobs=[{"nodes": 1}])["jobs"][0]["p50"] == before
    told = agent.ask(ME, "expect", jobs=[])
    assert told["age"] > told["stale_after"], "that it is old is said"
    agent.look()
    assert agent.ask(ME, "expect", jobs=[{"nodes": 1}])["jobs"][0]["p50"] != before


def test_an_answer_is_whole_also_when_a_look_and_another_question_come_between(agent):
    jobs = [{"nodes": 1, "time_limit": 60 * n} for n in range(1, 41)]

    async def ask(wanted):
        return (await agent.app.operations["expect"](ME, {"jobs": wanted}))["jobs"]

    async def between():
        first = asyncio.ensure_future(ask(jobs))
        await asyncio.sleep(0)
        agent.slurm.clock.advance(60.0)
        await agent.app.observer.look(0.0)
        assert not first.done()
        return await asyncio.gather(first, ask(jobs[::-1]))

    found, turned = agent.do(between())
    assert [one["time_limit"] for one in found] == [job["time_limit"] for job in jobs]
    assert all(one["p50"] is not None for one in (*found, *turned))


def test_what_would_start_sooner_is_named_where_it_would(agent, monkeypatch):
    waits = {HOUR * 24: 7200.0, HOUR * 12: 7000.0, HOUR * 8: 900.0, HOUR * 4: 60.0}

    def predicted(_models, geometry):
        wait = waits.get(geometry.time_limit, 10.0)
        return None, {"50": wait, "75": wait, "95": 2 * wait}

    monkeypatch.setattr(glance, "predicted", predicted)
    (told,) = agent.ask(ME, "expect", jobs=[{"time_limit": HOUR * 24}], sooner=True)["jobs"]
    assert told["sooner"] == [
        {"change": "time_limit", "partition": "main", "time_limit": HOUR * 8, "p50": 900.0, "p95": 1800.0}
    ]
    assert agent.ask(ME, "expect", jobs=[{"time_limit": 600}], sooner=True)["jobs"][0]["sooner"] == []
    assert "sooner" not in agent.ask(ME, "expect", jobs=[{}])["jobs"][0]


def test_users_are_told_only_where_the_site_wants_it(make):
    closed, opened = make(), make(told_to="everybody")
    for agent in (closed, opened):
        agent.look()
    with pytest.raises(NotPermitted, match="told_to: everybody"):
        closed.ask(closed.alice, "expect", jobs=[{}])
    with pytest.raises(NotPermitted, match="told_to"):
        closed.ask(closed.alice, "hours")
    assert opened.ask(opened.alice, "expect", jobs=[{}])["jobs"][0]["p50"] is not None
    assert len(opened.ask(opened.alice, "hours")["hours"]) == 24
    for request in ({"jobs": [{"account": "theirs"}]}, {"jobs": [{"qos": "high"}]}):
        with pytest.raises(NotPermitted, match="agent's own user, root, or an operator"):
            opened.ask(opened.alice, "expect", **request)
        assert opened.ask(ME, "expect", **request)["jobs"]


def test_ones_turn_in_the_queue_is_ones_own_to_see(agent):
    running, waiting = sorted(agent.app.observer.last.jobs)
    told = agent.ask(agent.alice, "turn", job=waiting)
    assert (told["pending"], told["place"], told["of"], told["partition"]) == (True, 1, 1, "main")
    assert agent.ask(ME, "turn", job=running)["place"] is None
    for number in (running, 999_999):
        with pytest.raises(NotFound, match=f"no job {number}"):
            agent.ask(agent.alice, "turn", job=number)


@pytest.mark.parametrize(
    ("op", "request_", "said"),
    [
        ("expect", {}, "jobs: must be a list"),
        ("expect", {"jobs": [{}] * 101}, "at most 100 at once"),
        ("expect", {"jobs": [{}] * 21, "sooner": True}, "sooner: of at most 20 jobs at once"),
        ("turn", {"job": "12"}, "job: must be the number"),
        ("turn", {"job": -1}, "job: must be the number"),
        ("hours", {"offset": "2h"}, "offset: must be the seconds"),
    ],
)
def test_bad_questions_are_said_to_be_bad(agent, op, request_, said):
    with pytest.raises(UserError) as refused:
        agent.ask(ME, op, **request_)
    assert said in str(refused.value)
