"""The agent's side: what the queue and Slurm expect reaches the predictor, is saved, and fails without harm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from factories import ManualClock

from penstock.api import AccountingRecord, Geometry, JobSpec, JobState, StartEstimate
from penstock.config import config_of
from penstock.errors import Infeasible, NotNow, SlurmUnavailable
from penstock.state.store import Store
from penstock.values.waits import Observation
from penstock.waits.learners.geometry import key_of
from penstock.waits.learners.history import Median
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_watch import QueueWatch
from penstock.waits.live.forecast import Forecast
from penstock.waits.live.history import FairShares, complete, defaults, learn_history
from penstock.waits.live.predictor import Predictions
from penstock_lab.testing import NODES, make_job, make_snapshot

ASK = Geometry("batch", "normal", 2, 600)


@dataclass
class Slurm:
    """Says `answer`, or raises it, to every question of its kind."""

    clock: ManualClock
    answer: object = None
    asked: list[object] = field(default_factory=list)

    def whoami(self) -> str:
        return "alice"

    def _say(self, question):
        self.asked.append(question)
        answer = self.answer
        if isinstance(answer, list):  # one after the other, the last one for ever
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def estimate(self, spec: JobSpec) -> StartEstimate:
        return StartEstimate(self.clock.now() + self._say(spec), (), 1, "batch")

    async def shares(self):
        return self._say("shares")

    async def history(self, *, ids=(), name=None, since=None):
        return self._say(since)


@pytest.fixture
def store():
    opened = Store(":memory:")
    yield opened
    opened.close()


def forecast(store, answer=None, *, watch=True, ask=True, said=None):
    clock = ManualClock()
    slurm = Slurm(clock, answer)
    one = Forecast(
        slurm,
        store,
        clock,
        watch=QueueWatch(QueueLearner()) if watch else None,
        ask_slurm=ask,
        say=lambda key, why: None if said is None else said.append((key, why)),
    )
    one.start("c1")
    return one, slurm, clock


def prepare(one, *geometries):
    return asyncio.run(one.prepare({key_of(g): g for g in geometries or (ASK,)}))


def test_slurm_is_asked_when_an_estimate_is_due_and_not_again_for_a_minute(store):
    one, slurm, clock = forecast(store, 90.0)
    assert one.hints(ASK) == {} and slurm.asked == []
    assert prepare(one) is True
    assert one.hints(ASK) == {"slurm": 90.0}
    assert prepare(one) is False and len(slurm.asked) == 1
    spec = slurm.asked[0]
    assert (spec.nodes, spec.time_limit, spec.partition, spec.qos, spec.account) == (2, 600, "batch", "normal", None)
    clock.at += 61
    assert one.hints(ASK) == {}, "old news"
    assert prepare(one) is True and len(slurm.asked) == 2


@pytest.mark.parametrize("error", [NotNow("licence"), Infeasible("never"), SlurmUnavailable("down")])
def test_no_estimate_is_no_hint_and_no_error(store, error):
    one, slurm, clock = forecast(store, error)
    assert prepare(one) is False
    assert one.hints(ASK) == {}
    clock.at += 30
    assert prepare(one) is False and len(slurm.asked) == 1
    clock.at += 900
    prepare(one)
    assert len(slurm.asked) == 2


def test_many_geometries_at_once_are_not_all_asked_about(store):
    one, slurm, _ = forecast(store, 5.0)
    prepare(one, *(Geometry("batch", "normal", 2**i, 600) for i in range(10)))
    assert len(slurm.asked) == 4


def test_each_can_be_switched_off(store):
    one, slurm, _ = forecast(store, 90.0, watch=False, ask=False)
    assert prepare(one) is False
    asyncio.run(one.reconcile(make_snapshot([make_job(1)], 100.0)))
    assert one.hints(ASK) == {} and slurm.asked == []
    asyncio.run(one.close())


def busy(at, number):
    """A full machine, one job that started a moment ago and one that waits."""
    full = [make_job(i, n, end=at + 500) for i, n in enumerate(NODES, start=1)]
    begun = make_job(number, "n1", submit=at - 30, eligible=at - 30, start=at - 10, end=at + 500)
    return make_snapshot([*full, begun, make_job(number + 1, submit=at - 5, eligible=at - 5)], at)


def test_the_queue_is_watched_fitted_saved_and_taken_up_again(store, monkeypatch):
    monkeypatch.setattr("penstock.waits.live.forecast._SAVE_AFTER", 1e9)

    async def live() -> None:
        one, _, clock = forecast(store)
        for i in range(320):
            clock.at += 60
            await one.reconcile(busy(clock.at, 100 + 2 * i))
            if one._task is not None:
                await one._task
        assert one.hints(ASK)["queue"] == pytest.approx(20, rel=0.2)
        saved = store.learning.learned("queue-watch c1")
        assert saved is not None and saved["learner"]["model"] is not None, "when it was fitted"
        await one.close()

    asyncio.run(live())
    again, _, clock = forecast(store)
    clock.at = 1e6
    asyncio.run(again.reconcile(busy(clock.at, 9000)))
    assert again.hints(ASK)["queue"] == pytest.approx(20, rel=0.2)


def test_a_long_queue_is_looked_through_beside_the_loop(store):
    async def live() -> None:
        one, _, _ = forecast(store)
        await one.reconcile(make_snapshot((make_job(i) for i in range(1, 400)), 100.0))
        assert one._task is not None and not one._task.done() and one.hints(ASK) == {}
        await one.reconcile(make_snapshot([], 101.0))  # busy: not looked at
        await one._task
        assert one.hints(ASK)["queue"] > 600

    asyncio.run(live())


def test_a_damaged_state_is_kept_aside_and_said(store):
    store.learning.save_learned("queue-watch c1", {"version": 77}, 1.0)
    said = []
    forecast(store, said=said)
    assert [key for key, _ in said] == ["queue-watch c1"]
    assert store.learning.learned("queue-watch c1") is None and store.learning.learned("aside 1000 queue-watch c1") == {
        "version": 77
    }


# -- accounting --------------------------------------------------------------------------------------------------------


def record(number, wait=60.0, **changes):
    values = {
        "name": "x", "user": "alice", "partition": "batch", "qos": "normal", "account": "physics",
        "state": JobState.COMPLETED, "exit_code": 0, "submit": 900.0, "eligible": 1000.0, "start": 1000.0 + wait,
        "end": 9000.0, "time_limit": 600.0, "num_nodes": 2,
    }  # fmt: skip
    return AccountingRecord(id=number, **{**values, **changes})


def learn(store, answer, period=86400.0):
    clock = ManualClock(2000.0)
    slurm, model_store = Slurm(clock, answer), ModelStore(store.learning, clock.now, Median)
    return asyncio.run(learn_history(slurm, store, model_store, clock, period)), slurm, model_store


def test_accounting_is_read_once_and_learned_from(store):
    records = [record(i) for i in range(9)]
    records += [record(20, state=JobState.CANCELLED), record(21, start=None), record(22, state=JobState.RESIZING)]
    count, slurm, model_store = learn(store, [records])
    assert count == 9 and slurm.asked == [2000.0 - 86400]
    asked = complete(ASK, "", defaults(store), {}, one_user=False)
    assert asked.account == "physics"
    assert model_store.predict(asked).seconds == 60.0
    count, slurm, _ = learn(store, [records])
    assert count == 0 and slurm.asked == []


def test_a_state_file_of_before_forecasts_is_read_once_more_for_the_shares_of_limits_alone(store):
    store.facts.remember("waits.history", "3 waits at 7")
    records = [record(i) for i in range(3)]
    count, slurm, _ = learn(store, [records])
    assert (count, len(slurm.asked)) == (0, 1) and list(store.learning.wait_keys()) == []
    assert learn(store, [records])[1].asked == []


def test_absent_accounting_is_no_error_and_is_tried_at_the_next_start(store):
    assert learn(store, SlurmUnavailable("no accounting"))[0] == 0
    assert defaults(store) == {}
    assert learn(store, [[]])[0] == 0
    assert learn(store, [[record(1)]])[0] == 0, "an empty history is one, too"


def test_switched_off_nothing_is_asked(store):
    assert learn(store, [[record(1)]], period=0)[1].asked == []


def test_fair_shares_are_asked_for_once_an_hour_and_stay_without_an_answer(store):
    clock = ManualClock()
    slurm = Slurm(clock, [{"physics": 0.3}, SlurmUnavailable("down"), {"physics": 0.9}])
    standing = FairShares(slurm, clock, store)
    news = []
    for _ in range(4):
        news.append(asyncio.run(standing.refresh()))
        assert asyncio.run(standing.refresh()) is False
        clock.at += 3600
        if len(news) == 2:
            assert standing.shares == {"physics": 0.3}
    assert news == [True, False, True, False] and len(slurm.asked) == 4
    one = complete(ASK, "c1", {}, standing.shares, one_user=True)
    assert (one.account, one.share, one.cluster, one.user) == ("physics", 0.9, "c1", "")
    two = complete(ASK, "c1", {}, {"a": 0.1, "b": 0.2}, one_user=True)
    assert (two.account, two.share) == ("", None), "which of the two is the default is not known"


def test_a_spent_budget_is_waited_for(store):
    count, slurm, _ = learn(store, [NotNow("budget", again_in=0.01), [record(1)]])
    assert count == 1 and len(slurm.asked) == 2


def test_a_wait_that_the_next_process_sees_is_learned_under_what_it_was_predicted_for(store):
    clock = ManualClock()

    def process():
        config = config_of({"asa": {"watch_queue": False, "ask_slurm": False}})
        made = Predictions(config, Slurm(clock, {"physics": 0.9}), store, clock)
        made.start("c1")
        return made

    for _ in range(30):  # `penstock tick`: each is a process, and nothing is predicted where a start is seen
        first = process()
        asyncio.run(first.prepare([ASK]))
        estimate = first.model_store.predict(ASK)
        clock.at += 60
        process().model_store.observe(ASK, Observation(7000.0), estimate)
    asked = process()
    asyncio.run(asked.prepare([ASK]))
    assert store.learning.wait_keys() == [asked.model_store.key(ASK)]


def test_a_clock_set_back_is_no_reason_not_to_ask_and_not_to_look(store):
    one, slurm, clock = forecast(store, 90.0)
    standing = FairShares(slurm, clock, store)
    slurm.answer = {"physics": 0.3}
    asyncio.run(standing.refresh())
    slurm.answer = 90.0
    prepare(one)
    asyncio.run(one.reconcile(make_snapshot([make_job(1, "n1", end=99_999)], clock.at)))
    clock.at -= 900.0
    slurm.asked.clear()
    full = [make_job(i, n, end=clock.at + 5000) for i, n in enumerate(NODES, start=1)]
    asyncio.run(one.reconcile(make_snapshot(full, clock.at)))
    assert one.hints(ASK)["queue"] == pytest.approx(5000), "it has seen the queue as it is now"
    assert "slurm" not in one.hints(ASK), "how old that is nobody knows"
    assert prepare(one) is True and len(slurm.asked) == 1
    slurm.answer = {"physics": 0.9}
    assert asyncio.run(standing.refresh()) is True
