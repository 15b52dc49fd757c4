"""The request budget: never more than it allows, whoever asks and however; and nothing that goes round it."""

import asyncio
import inspect
import random
from functools import partial
from pathlib import Path

import pytest
from factories import ManualClock
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

import penstock.slurm
import penstock_rest
from penstock.api import Allocation, JobSpec, Owner, ReservationSpec
from penstock.app import App
from penstock.config import config_of
from penstock.core import figures
from penstock.core.allowance import carry_on
from penstock.core.metrics import Metrics
from penstock.errors import NotNow, SlurmUnavailable, StoreError
from penstock.slurm.base import Backend, Changer, Reader
from penstock.slurm.budget import BudgetLimits, RequestBudget, SubmissionKind
from penstock.slurm.cli import CliBackend
from penstock.slurm.meter import Meter
from penstock.slurm.turns import behind_all
from penstock.state.leadership import open_acts
from penstock.state.store import Store
from penstock.values.backoff import Ladder
from penstock.values.bucket import TokenBucket
from penstock_lab.mock.backend import virtual_cluster


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds


def budget(**limits):
    time = Time()
    return RequestBudget(BudgetLimits(**limits), clock=time, sleep=time.sleep, rng=random.Random(1)), time


OWN, ASKED = SubmissionKind.OWN, SubmissionKind.ASKED


def admit(budget, service="slurmctld", *, changing=False, patience=1e9, submits=None):
    return asyncio.run(budget.admit(service, changing=changing, patience=patience, submits=submits))


asks = st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=120)


@given(asks, st.integers(4, 40), st.floats(0.1, 10))
def test_never_more_requests_than_the_bucket_holds(asks, burst, rate):
    subject, time = budget(burst=burst, per_second=rate)
    sent = []
    for pause, changing in asks:
        time.now += pause
        sent.append(admit(subject, changing=changing).at)
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + rate * (sent[last] - sent[first]) + 1e-3


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 3)), max_size=80), st.integers(4, 40), st.floats(0.1, 10))
def test_looks_for_users_neither_break_the_limit_nor_take_what_the_agent_has_left(asks, burst, rate):
    """User 0 is the agent itself."""
    subject, time = budget(burst=burst, per_second=rate)
    sent = []

    async def ask(uid):
        if not uid:
            before = subject._requests.tokens(time.now)
            ticket = await subject.admit("slurmctld", changing=True, patience=1e9)
            assert before < 1 or ticket.at == before_sleep
        else:
            with behind_all({uid}):
                ticket = await subject.admit("slurmctld", changing=False, patience=1e9)
            assert subject._requests.tokens(time.now) >= min(burst / 2, burst - 1) - 1e-3
        sent.append(ticket.at)

    for pause, uid in asks:
        time.now += pause
        before_sleep = time.now
        asyncio.run(ask(uid))
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + rate * (sent[last] - sent[first]) + 1e-3


@given(st.lists(st.floats(0, 900), max_size=150), st.integers(2, 80))
def test_never_more_submissions_in_an_hour_than_allowed(pauses, limit):
    subject, time = budget(burst=10_000, submissions_per_hour=limit)
    sent = []
    for pause in pauses:
        time.now += pause
        try:
            sent.append(admit(subject, "slurmctld", changing=True, submits=OWN).at)
        except NotNow as error:
            assert not isinstance(error, SlurmUnavailable)
            assert 0 < error.again_in <= 2 * 3600 / limit + 1e-6
    for at in sent:
        assert sum(at <= other < at + 3600 for other in sent) <= limit


def test_a_submission_that_was_refused_works_when_it_says():
    subject, time = budget(submissions_per_hour=4)
    for _ in range(2):
        admit(subject, "slurmctld", changing=True, submits=OWN)
    with pytest.raises(NotNow, match=r"more than 4 submissions an hour .*submissions_per_hour.*1800 s") as caught:
        admit(subject, "slurmctld", changing=True, submits=OWN)
    time.now += caught.value.again_in
    admit(subject, "slurmctld", changing=True, submits=OWN)
    assert subject.refused == {"submissions": 1}


def test_what_a_user_has_asked_for_has_a_budget_of_its_own():
    subject, time = budget(burst=10_000, submissions_per_hour=2, user_submissions_burst=5, user_submissions_per_hour=60)
    admit(subject, changing=True, submits=OWN)
    for _ in range(5):
        admit(subject, changing=True, submits=ASKED)
    text = r"more than 5 submissions at once and then 60 an hour \(`slurm.user_submissions_burst`.* possible in 60 s"
    with pytest.raises(NotNow, match=text) as caught:
        admit(subject, changing=True, submits=ASKED)
    with pytest.raises(NotNow, match="more than 2 submissions an hour"):
        admit(subject, changing=True, submits=OWN)
    time.now += caught.value.again_in
    admit(subject, changing=True, submits=ASKED)


def test_a_whole_workflow_is_submitted_at_once():
    """A plain chain is, too; and a budget that spreads it over an hour would make it slower than that."""
    subject, _time = budget(burst=10_000)
    for _ in range(500):
        admit(subject, changing=True, submits=ASKED)


def test_looks_leave_room_for_acts():
    subject, time = budget(burst=8, per_second=1.0)
    for _ in range(6):
        admit(subject)
    before = time.now
    admit(subject, changing=True)
    assert time.now == before
    admit(subject)
    assert time.now > before and subject.waited == time.now - before


def test_who_would_wait_longer_than_his_patience_is_told_at_once():
    subject, time = budget(burst=4, per_second=0.1)
    for _ in range(4):
        admit(subject, changing=True)
    before = time.now
    with pytest.raises(SlurmUnavailable, match="too many requests to Slurm; the next is possible in 10 s") as caught:
        admit(subject, changing=True, patience=9.0)
    assert time.now == before and caught.value.again_in == pytest.approx(10)
    assert subject.refused == {"budget": 1}
    assert admit(subject, changing=True, patience=10.5).at == pytest.approx(before + 10)


def test_slurm_that_does_not_answer_is_left_in_peace_longer_and_longer():
    subject, time = budget(burst=1000)
    pauses = []
    for _ in range(9):
        subject.answered(admit(subject), ok=False)
        try:
            admit(subject, changing=True)
            pauses.append(0.0)
        except SlurmUnavailable as error:
            pauses.append(error.again_in)
            time.now += error.again_in
        time.now += 0.1
    for pause, rung in zip(pauses, (0, 1, 2, 5, 15, 60, 120, 300, 300), strict=True):
        assert 0.8 * rung <= pause <= 1.2 * rung
    assert subject.refused["slurmctld"] == 8
    admit(subject, "slurmdbd")  # the accounting daemon is somebody else
    subject.answered(admit(subject), ok=True)
    subject.answered(admit(subject), ok=False)
    admit(subject)


def test_requests_that_fail_together_are_one_failure():
    subject, time = budget(burst=100)
    together = [admit(subject) for _ in range(20)]
    for ticket in together:
        time.now += 0.01
        subject.answered(ticket, ok=False)
    admit(subject)


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_the_ladder_spreads_by_a_fifth(seed, failures):
    rungs = (0.0, 1.0, 10.0)
    ladder = Ladder(random.Random(seed), rungs)
    for number in range(failures):
        rung = rungs[min(number, 2)]
        assert 0.8 * rung <= ladder.failed() <= 1.2 * rung
    ladder.succeeded()
    assert ladder.failed() == 0


def test_a_bucket_does_not_mind_a_clock_that_is_set_back():
    bucket = TokenBucket(2, 1.0)
    assert bucket.tokens(100.0) == 2
    bucket.take()
    assert bucket.tokens(50.0) == 1
    assert bucket.tokens(100.5) == 1.5


def submitted(budget):
    """How many are let through at once."""
    count = 0
    while True:
        try:
            admit(budget, changing=True, submits=OWN)
        except NotNow:
            return count
        count += 1


def test_the_limit_outlives_the_process():
    store, clock, found = Store(":memory:"), ManualClock(1e9), []
    for _ in range(6):  # ticks, a quarter of an hour after one another
        subject, _time = budget(burst=1000, submissions_per_hour=60)
        carry_on(subject, store, clock)
        found.append(submitted(subject))
        clock.at += 900
    assert found[0] == 30 and sum(found[:4]) <= 60
    assert all(6 <= some <= 8 for some in found[1:])


@pytest.mark.parametrize("step", [-7200.0, 7200.0, -1e9, 1e9])
def test_a_clock_that_is_set_gives_and_takes_a_full_bucket_at_most(step):
    store, clock = Store(":memory:"), ManualClock(2e9)
    first, _time = budget(burst=1000, submissions_per_hour=60)
    carry_on(first, store, clock)
    assert submitted(first) == 30
    clock.at += step
    second, _time = budget(burst=1000, submissions_per_hour=60)
    carry_on(second, store, clock)
    assert submitted(second) == (0 if step < 0 else 30)
    clock.at += 3600
    third, _time = budget(burst=1000, submissions_per_hour=60)
    carry_on(third, store, clock)
    assert submitted(third) == 30


def test_what_cannot_be_written_down_is_not_submitted(tmp_path):
    store, (subject, _time) = Store(tmp_path / "s.db"), budget()
    carry_on(subject, store, ManualClock())
    store.connection._db.execute("PRAGMA query_only=ON")
    with pytest.raises(StoreError):
        admit(subject, changing=True, submits=OWN)


def test_an_agent_goes_on_with_what_the_one_before_has_left(tmp_path):
    class Counted:
        """A simulated Slurm with a budget."""

        def __init__(self):
            self.backend, self.budget, self.meter = virtual_cluster(start=1e9), budget(burst=1000)[0], Meter()

        def __getattr__(self, name):
            return getattr(self.backend, name)

    config = config_of({"agent": {"state_dir": tmp_path}})

    async def begun(store):
        slurm = Counted()
        app = App(config, slurm, slurm.clock, store)
        await app.start()
        return slurm.budget

    store = Store(":memory:")
    assert submitted(asyncio.run(begun(store))) == 30
    assert submitted(asyncio.run(begun(store))) == 0
    commands, _time = budget(burst=1000)
    carry_on(commands, open_acts(config), ManualClock(1e9))
    assert submitted(commands) == 0, "an agent and its user's commands have one limit"


def test_two_processes_share_what_is_left_as_they_submit(tmp_path):
    stores = [Store(tmp_path / "acts.db", shared=shared) for shared in (False, False)]
    agent, command = (budget(burst=1000, submissions_per_hour=60)[0] for _ in stores)
    for subject, store in zip((agent, command), stores, strict=True):
        carry_on(subject, store, ManualClock(1e9))
    for subject in (agent, command) * 15:
        admit(subject, changing=True, submits=OWN)
    assert submitted(agent) == submitted(command) == 0


def arguments(method):
    """Something for every parameter of a backend's call."""
    values = {
        "spec": {
            "submit": JobSpec("a", "#!/bin/sh\n", 1, 60.0),
            "estimate": JobSpec("a", "#!/bin/sh\n", 1, 60.0),
            "allocate": Allocation("a", 1, 60.0),
            "reserve": ReservationSpec("r", 2e9, 60.0, 1, users=("root",)),
        }.get(method),
        "job": 1,
        "number": 10,
        "resizer": 1,
        "into": 2,
        "keep": ["n1"],
        "name": "a",
        "patience": 1.0,
        "start": 2e9,
        "duration": 60.0,
        "nodelist": ["n1"] if method == "move_reservation" else None,
        "ids": [1],
        "jobs": [1],
        "owners": [Owner("alice", "physics", "batch", "normal")],
    }
    parameters = list(inspect.signature(getattr(Backend, method)).parameters)[1:]
    given = {name: values[name] for name in parameters if values.get(name) is not None}
    return given | ({"time_limit": 60.0} if method == "update" else {})


CALLS = sorted(
    name for part in (Reader, Changer) for name, call in vars(part).items() if inspect.iscoroutinefunction(call)
)


@pytest.mark.parametrize("method", CALLS)
def test_no_call_goes_round_the_budget(method, monkeypatch):
    async def started(*argv, **_):
        raise AssertionError(f"{argv} was started")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    subject, _ = budget(burst=10)
    for service in ("slurmctld", "slurmdbd") * 2:
        subject.clock.now += 0.1
        subject.answered(admit(subject, service), ok=False)
    with pytest.raises(SlurmUnavailable, match="gave no answer"):
        asyncio.run(getattr(CliBackend(budget=subject), method)(**arguments(method)))


def test_only_one_module_starts_processes():
    folders = [Path(package.__file__).parent for package in (penstock.slurm, penstock_rest)]
    words = ("create_subprocess", "subprocess.run", "Popen", "os.system", "os.spawn", "os.exec")
    starters = {
        path.name
        for folder in folders
        for path in folder.glob("*.py")
        if any(word in path.read_text() for word in words)
    }
    # What prints a token is run once in the life of a token, and before a request that the budget has let pass.
    assert starters == {"commands.py", "tokens.py"}


def test_the_metrics_tell_its_use():
    backend = CliBackend(budget=budget(submissions_per_hour=2)[0])
    backend.meter.ended("squeue", "ok", 0.3)
    admit(backend.budget, "slurmctld", changing=True, submits=OWN)
    with pytest.raises(NotNow):
        admit(backend.budget, "slurmctld", changing=True, submits=OWN)
    metrics = Metrics()
    metrics.add(partial(figures.of_backend, backend))
    text = generate_latest(metrics.registry).decode()
    assert 'penstock_slurm_requests_total{command="squeue",outcome="ok"} 1.0' in text
    assert 'penstock_slurm_requests_refused_total{reason="submissions"} 1.0' in text
    assert "penstock_slurm_budget_tokens 29.0" in text
