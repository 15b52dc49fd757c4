"""What the dashboard may ask of an agent that serves everybody: one's own, and all of it as the agent's user."""

from __future__ import annotations

import asyncio
import os

import pytest

from dashboard_scene import Scene
from penstock.api import Decision, JobSpec, Offer, Reason, Verb
from penstock.app import App
from penstock.config import config_of
from penstock.core.picture import picture_from_dict
from penstock.errors import UserError
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.part import MalleablePart
from penstock.state.sizes import FinishedResize
from penstock.state.store import Store
from penstock.workflow.documents import run_to_dict
from penstock.workflow.model import workflow_to_dict
from penstock.workflow.part import WorkflowPart
from penstock.workflow.phases import Submitter
from penstock_lab.mock.backend import virtual_cluster

ME = os.geteuid()


class Agent:
    """An agent over a simulated cluster on which alice and bob have a job each."""

    def __init__(self):
        self.running = asyncio.new_event_loop()
        self.backend = virtual_cluster(start=1e9)
        self.app = App(
            config_of({"agent": {"serve": "all", "seed": 1}, "slurm": {"min_interval": 10}}),
            self.backend,
            self.backend.clock,
            Store(":memory:"),
        )
        self.alice, self.bob = (self.backend.engine.uid_of(name) for name in ("alice", "bob"))
        self.do(self.app.start())
        for name in ("alice", "bob"):
            self.do(self.backend.as_user(name).submit(JobSpec("j", "#!/bin/sh\nsleep 100\n", 2, 600.0)))
        self.backend.clock.advance(5.0)
        self.do(self.app.loop.one_pass())

    def do(self, something):
        return self.running.run_until_complete(something) if asyncio.iscoroutine(something) else something

    def ask(self, uid, op, /, **request):
        return self.do(self.app.operations[op](uid, request))

    def decide(self, subject, text="because"):
        self.app.store.decisions.record(Decision(Verb.SUBMIT, subject, (Reason(text, text),)), self.app.clock.now())


@pytest.fixture
def agent():
    agent = Agent()
    yield agent
    agent.do(agent.app.close())
    agent.running.close()


def users(told):
    return {job.user for job in picture_from_dict(told["picture"], told["at"]).jobs.values()}


def test_the_cluster_is_shown_whole_to_the_agents_user_and_to_others_what_is_theirs(agent):
    for uid in (ME, 0):
        told = agent.ask(uid, "cluster")
        assert told["whole"]
        assert users(told) == {"alice", "bob"}
        assert told["picture"]["partitions"]
    told = agent.ask(agent.alice, "cluster")
    assert not told["whole"]
    assert users(told) == {"alice"}
    held = {n for job in told["picture"]["jobs"] for n in job["nodes"]}
    assert {n["name"] for n in told["picture"]["nodes"]} == held
    assert told["picture"]["partitions"] == told["picture"]["reservations"] == []
    assert agent.ask(77, "cluster")["picture"]["jobs"] == []


def test_a_picture_that_was_seen_is_not_sent_again(agent):
    told = agent.ask(ME, "cluster")
    assert "picture" not in agent.ask(ME, "cluster", seen=told["at"])
    assert "picture" in agent.ask(ME, "cluster", seen=told["at"] - 1)


def test_only_the_agents_user_has_slurm_looked_at_and_not_more_often_than_is_configured(agent):
    looks = agent.app.observer.looks
    agent.backend.clock.advance(11.0)
    agent.ask(agent.alice, "cluster", fresh=True)
    agent.ask(ME, "cluster")
    assert agent.app.observer.looks == looks
    agent.ask(ME, "cluster", fresh=True)
    agent.ask(ME, "cluster", fresh=True)
    assert agent.app.observer.looks == looks + 1


def test_decisions_are_shown_to_whose_they_are(agent):
    stage = {"name": "a", "job": 1, "after": [], "order": {"words": [], "workdir": "/"}}
    number = agent.ask(agent.alice, "guide", workflow="w", strategy="asa", stages=[stage])["run"]
    for subject in ("job 1", f"workflow {number}/a", f"workflow {number}", f"workflow {number}9", "agent"):
        agent.decide(subject)

    def subjects(uid, **request):
        return [
            d["subject"] for d in agent.ask(uid, "decisions", **request) if d["reasons"] == [["because", "because"]]
        ]

    everything = ["job 1", f"workflow {number}/a", f"workflow {number}", f"workflow {number}9", "agent"]
    assert subjects(ME) == subjects(0) == everything
    assert subjects(agent.alice) == [f"workflow {number}/a", f"workflow {number}"]
    assert subjects(agent.bob) == []
    last = agent.ask(ME, "decisions")[-1]["id"]
    agent.decide("job 2")
    assert subjects(ME, after=last) == ["job 2"]


@pytest.mark.parametrize("after", [-1, 2**63, 1.5, "1", None, True])
def test_the_number_of_a_decision_is_a_number(agent, after):
    with pytest.raises(UserError, match="must be the number of a decision"):
        agent.ask(ME, "decisions", after=after)


def test_the_latest_decisions_come_if_there_are_many(agent):
    for i in range(400):
        agent.decide("job 5", str(i))
    found = agent.ask(ME, "decisions")
    assert len(found) == 300
    assert found[-1]["reasons"] == [["399", "399"]]


def test_sizes_over_time_are_shown_to_whose_they_are(agent):
    def noted(number, uid, ended=None):
        offer = Offer(number, 4, 2, 8, nodes=("n1", "n2", "n3", "n4"))
        me = MalleableJob(number, uid, offer, offer.nodes, started=agent.app.clock.now() - 100)
        if ended is None:
            agent.app.part(MalleablePart).controller.jobs[number] = me
        agent.app.store.malleable.save(number, me.to_dict(), ended)

    now = agent.app.clock.now()
    noted(1, agent.alice)
    noted(2, agent.bob)
    noted(3, agent.alice, ended=now - 50)
    noted(4, agent.alice, ended=now - 2 * 86400)
    add = agent.app.store.resizes.add
    add(FinishedResize(1, 1, "expand", (2, 4), "completed", {"done": now - 20}), now - 10)
    add(FinishedResize(1, 0, "expand", (2, 4), "completed", {}), now - 1000)  # of an earlier job of this number
    add(FinishedResize(2, 1, "shrink", (8, 4), "refused", {}), now - 5)

    def told(uid):
        return {one["job"]: one for one in agent.ask(uid, "sizes")}

    assert sorted(told(ME)) == sorted(told(0)) == [1, 2, 3]
    assert sorted(told(agent.alice)) == [1, 3]
    assert sorted(told(agent.bob)) == [2]
    assert told(77) == {}
    mine = told(agent.alice)
    assert mine[1]["resizes"] == [{"kind": "expand", "old": 2, "new": 4, "outcome": "completed", "at": now - 20}]
    assert (mine[1]["ended"], mine[3]["ended"], mine[1]["minimum"], mine[1]["maximum"]) == (None, now - 50, 2, 8)


def test_a_workflow_that_goes_on_is_shown_however_many_have_begun_after_it(agent):
    flow = Scene(1e9).run
    number = agent.ask(ME, "submit", workflow=workflow_to_dict(flow.workflow), strategy="perstage")["run"]
    over = {**run_to_dict(flow), "phase": "completed"}
    for _ in range(200):
        agent.app.store.runs.save(agent.app.store.runs.add(ME, over, 2.0), over, finished=3.0)
    assert number in agent.app.part(WorkflowPart).controller.runs
    assert number in [run["id"] for run in agent.ask(ME, "status")["workflows"]]


def test_a_users_own_workflow_that_goes_on_is_shown_however_many_have_begun_after_it(agent):
    stage = {"name": "a", "job": 1, "after": [], "order": {"words": [], "workdir": "/"}}
    number = agent.ask(agent.alice, "guide", workflow="w", strategy="asa", stages=[stage])["run"]
    over = {**run_to_dict(agent.app.part(WorkflowPart).controller.runs[number]), "phase": "completed"}
    for _ in range(200):
        run = agent.app.store.runs.add(agent.alice, over, 2.0, Submitter.OWNER)
        agent.app.store.runs.save(run, {**over, "id": run}, finished=3.0)
    for uid in (0, agent.alice):
        assert number in [run["id"] for run in agent.ask(uid, "status")["workflows"]]
    assert agent.ask(agent.bob, "status")["workflows"] == []


def test_of_many_malleable_jobs_all_that_run_are_shown_and_ones_own_that_have_ended(agent):
    now = agent.app.clock.now()

    def noted(number, uid, ended=None):
        offer = Offer(number, 1, 1, 8, nodes=("n1",))
        me = MalleableJob(number, uid, offer, offer.nodes, started=now - 100)
        if ended is None:
            agent.app.part(MalleablePart).controller.jobs[number] = me
        agent.app.store.malleable.save(number, me.to_dict(), ended)

    noted(1, agent.alice, ended=now - 99)
    for number in range(2, 47):
        noted(number, agent.bob, ended=now - 50)
    for number in range(50, 95):
        noted(number, agent.bob)
    everything = [one["job"] for one in agent.ask(0, "sizes")]
    assert everything[-45:] == list(range(50, 95))
    assert len(everything) == 40 + 45
    assert [one["job"] for one in agent.ask(agent.alice, "sizes")] == [1]
