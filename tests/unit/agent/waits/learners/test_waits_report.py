"""`penstock waits`: the figures by hand, with an agent and without."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest

from penstock.api import Geometry
from penstock.config import config_of
from penstock.errors import StoreError, UserError
from penstock.state.store import Store
from penstock.values.waits import Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.base import BOUND
from penstock.waits.learners.common import OWN
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.learners import make
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.queue_watch import ALL
from penstock.waits.learners.report import accuracy, calibration, outlook, pinball, survey
from penstock.waits.live.outlook import from_store, geometry_of

ASK = Geometry("batch", "normal", 4, 7200)


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "penstock.db")
    yield opened
    opened.close()


def model_store(store, name="share-mix", **more):
    return ModelStore(store.learning, lambda: 7.0, partial(make, name, LIVE_ALTERNATIVES), seed=1, **more)


def row(wait, estimate, bound=None, censored=0):
    return {"key": "k", "wait": wait, "estimate": estimate, "bound": bound, "censored": censored}


def test_calibration_by_hand():
    """600 s for 60: one decade; 10 for 59: both a minute, none. A hidden wait and one not predicted do not count."""
    rows = [row(60, 600, 900), row(59, 10, 20), row(5, 500, 600, censored=1), row(70, None)]
    found = calibration(rows)
    assert found.pop("pinball_95") == pytest.approx(0.05 * math.log10(900 / 60) / 2)
    assert found == {
        "predictions": 2,
        "log10_error": 0.5,
        "within_1_min": 0.5,
        "within_10_min": 1.0,
        "bounded": 2,
        "coverage_95": 0.5,
    }
    nothing = calibration([])
    assert (nothing.pop("predictions"), nothing.pop("bounded")) == (0, 0)
    assert set(nothing.values()) == {None}


def test_the_pinball_loss_by_hand():
    """A wait of ten times its bound costs 0.95, a bound of ten times the wait 0.05; a minute is the least of both."""
    assert pinball(100.0, 1000.0) == pytest.approx(0.95)
    assert pinball(1000.0, 100.0) == pytest.approx(0.05)
    assert pinball(1.0, 59.0) == 0.0


def test_accuracy_compares_on_the_same_jobs():
    slurm, queue = Judged(OWN, 10), Judged(ALL, 10)
    slurm.add(100.0, {"penstock": 100.0, "slurm": 1000.0})
    queue.add(60.0, {"queue": 600.0, BOUND: 700.0, "squeue": None})
    queue.add(60.0, {"queue": 60.0, BOUND: None, "squeue": 6000.0})
    rows = accuracy([row(60, 600, 900), row(70, None)], slurm, queue)
    told = {(r["jobs"], r["who"], r["beside"]): r for r in rows}
    assert told["predicted", "penstock", None]["predictions"] == 1
    assert told["predicted", "penstock", "sbatch --test-only"]["log10_error"] == 0.0
    assert told["predicted", "sbatch --test-only", "penstock"]["log10_error"] == pytest.approx(1.0)
    whole = told["all", "penstock", None]
    assert (whole["predictions"], whole["log10_error"], whole["coverage_95"]) == (2, 0.5, 1.0)
    assert told["all", "penstock", "squeue --start"]["within_1_min"] == 1.0
    assert told["all", "squeue --start", "penstock"]["log10_error"] == pytest.approx(2.0)
    assert len(accuracy([], slurm, None)) == 3


def test_an_outlook_has_ascending_quantiles_and_says_what_it_stands_on(store):
    one = model_store(store, hints=lambda g: {"queue": 500.0, "slurm": 9000.0})
    found = outlook(one, store.learning, ASK)
    assert (found["known_waits"], found["like_geometries"]) == (0, 0)
    for i in range(40):
        one.observe(ASK, Observation(450.0 + i), one.predict(ASK))
    found = outlook(one, store.learning, ASK)
    quantiles = found["quantiles"]
    assert quantiles["50"] == found["estimate"] <= quantiles["75"] <= quantiles["95"]
    assert 400 < found["estimate"] < 550
    assert found["known_waits"] == 40 and found["calibration"]["predictions"] == 40
    assert found["experts"]["queue"] == 500.0 and found["trust"]["slurm"] < found["trust"]["queue"]
    near = outlook(one, store.learning, Geometry("batch", "normal", 8, 7200))
    assert (near["known_waits"], near["like_geometries"]) == (0, 1)
    json.dumps(found)


@pytest.mark.parametrize("name", ["asa-default", "share", "qbets", "last", "median", "queue", "slurm"])
def test_every_predictor_has_an_outlook(store, name):
    one = model_store(store, name)
    for _ in range(3):
        found = outlook(one, store.learning, ASK)
        assert found["quantiles"]["50"] <= found["quantiles"]["75"] <= found["quantiles"]["95"]
        one.observe(ASK, Observation(50.0), one.predict(ASK))


def test_the_survey_has_a_row_a_geometry(store):
    one = model_store(store)
    for i in range(3):
        one.observe(ASK, Observation(100.0 * (i + 1)), one.predict(ASK))
    one.observe(Geometry("debug", "", 1, 60, gres="gpu:2"), Observation(1.0), None)
    first, second = survey(store.learning)["geometries"]
    assert (first["partition"], first["nodes"], first["time_limit"], first["waits"]) == ("batch", [4, 7], 7200.0, 3)
    assert (first["last"], first["median"], first["predictions"]) == (300.0, 200.0, 3)
    assert (second["gres"], second["nodes"], second["predictions"], second["memory_gb"]) == ("gpu", [1, 1], 0, None)


def test_without_an_agent_the_file_tells_and_is_not_changed(store, tmp_path):
    one = model_store(store)
    for _ in range(30):
        one.observe(ASK, Observation(300.0), one.predict(ASK))
    store.connection.execute("UPDATE learned SET state='damaged'")
    config = config_of({"agent": {"state_dir": str(tmp_path)}})
    looking = Store.read_only(tmp_path / "penstock.db")
    told = from_store(config, looking, Geometry("", "normal", 4, 7200), lambda: 8.0)
    assert told["outlook"]["estimate"] == pytest.approx(300.0) and told["outlook"]["partition"] == "batch"
    assert len(told["geometries"]) == 1
    assert [r["predictions"] for r in told["accuracy"]] == [30, 0, 0], "Slurm was never asked, the queue not watched"
    with pytest.raises(StoreError):
        looking.facts.remember("a", "b")
    looking.close()
    assert store.connection.rows("SELECT DISTINCT state FROM learned")[0]["state"] == "damaged"
    one.observe(Geometry("debug", "", 1, 60), Observation(1.0), None)
    with pytest.raises(UserError, match="batch, debug"):
        from_store(config, store, Geometry("", "", 1, 60), lambda: 8.0)


def test_a_file_of_another_release_is_not_read(tmp_path):
    path = tmp_path / "penstock.db"
    Store(path).close()
    one = Store(path)
    one.connection.execute("PRAGMA user_version=1")
    one.close()
    with pytest.raises(StoreError, match=r"older Penstock .version 1,"):
        Store.read_only(path)


@pytest.mark.parametrize(
    "fields", [{}, {"nodes": 0}, {"nodes": "x"}, {"time_limit": -1}, {"time_limit": None}, {"memory": []}, {"more": 1}]
)
def test_requests_that_are_no_geometry_are_refused(fields):
    full = {"partition": "batch", "qos": "", "nodes": 1, "time_limit": 60.0}
    assert geometry_of(full) == Geometry("batch", "", 1, 60.0)
    with pytest.raises(UserError, match="not a geometry"):
        geometry_of({**full, **fields} if fields else {})
