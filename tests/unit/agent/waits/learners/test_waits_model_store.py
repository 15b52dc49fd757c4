"""Learners in the store: one a geometry, by name, and what cannot be used is kept aside and said once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from penstock.api import Geometry
from penstock.state.store import Store
from penstock.values.waits import Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.base import BOUND
from penstock.waits.learners.geometry import key_of
from penstock.waits.learners.learners import PREDICTORS, make
from penstock.waits.learners.model_store import ModelStore

SMALL, LARGE = Geometry("batch", "normal", 1, 600), Geometry("batch", "normal", 256, 600)
MIDDLE = Geometry("batch", "normal", 2, 600)
KEY = key_of(SMALL)
FIRST_GUESS = make("share-mix", LIVE_ALTERNATIVES).distribution().point


@pytest.fixture
def store():
    opened = Store(":memory:")
    yield opened
    opened.close()


def model_store(store, said=None, name="share-mix", alternatives=LIVE_ALTERNATIVES, **more):
    told = [] if said is None else said
    return ModelStore(
        store.learning,
        lambda: 7.0,
        partial(make, name, alternatives),
        say=lambda key, why: told.append((key, why)),
        seed=1,
        **more,
    )


@pytest.mark.parametrize("name", PREDICTORS)
def test_what_is_learned_is_there_after_a_restart_and_for_its_geometry_only(store, name):
    first = model_store(store, name=name)
    for _ in range(300):
        first.observe(SMALL, Observation(30.0), first.predict(SMALL))
    again = model_store(store, name=name)
    assert again.predict(SMALL).seconds == 30.0
    assert again.learner(LARGE).to_state() == make(name, LIVE_ALTERNATIVES).to_state()
    assert [w["wait"] for w in store.learning.waits(KEY, limit=2)] == [30.0, 30.0]
    assert store.learning.waits(key_of(LARGE)) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 99}', '{"version": 1}'])
def test_a_state_that_cannot_be_used_is_kept_aside_and_said_once(store, text):
    said = []
    one = model_store(store, said)
    one.observe(SMALL, Observation(30.0), None)
    store.connection.execute("UPDATE learned SET state=?", (text,))
    for _ in range(3):
        one.predict(SMALL)
    one.observe(SMALL, Observation(40.0), None)
    assert one.predict(SMALL).seconds == 40.0
    assert [key for key, _ in said] == [f"share-mix {KEY}"]
    assert one.predict(SMALL).said[BOUND] >= 40.0
    aside = store.connection.rows("SELECT state FROM learned WHERE key=?", f"aside 7 share-mix {KEY}")
    assert [row["state"] for row in aside] == [text]


def test_other_alternatives_begin_afresh_and_other_predictors_keep_apart(store):
    said = []
    model_store(store).observe(SMALL, Observation(30.0), None)
    model_store(store, name="last").observe(SMALL, Observation(90.0), None)
    assert model_store(store, said, alternatives=(1.0, 2.0)).learner(SMALL).alternatives == (1.0, 2.0)
    assert len(said) == 1 and "alternatives" in said[0][1]
    assert model_store(store, name="last").predict(SMALL).seconds == 90.0


def test_hints_reach_the_learner_and_nothing_leaves_no_trace(store):
    one = model_store(store, hints=lambda geometry: {"queue": 100.0 * geometry.nodes})
    assert one.predict(LARGE).said["queue"] == 25_600.0
    one.observe(SMALL, Observation.nothing(), one.predict(SMALL))
    assert store.learning.waits() == [] and store.learning.learned(f"share-mix {KEY}") is None
    one.observe(SMALL, Observation.more_than(50.0), one.predict(SMALL))
    assert [w["censored"] for w in store.learning.waits()] == [2]


def test_a_fresh_geometry_begins_with_the_waits_of_those_like_it(store):
    one = model_store(store)
    for _ in range(40):
        one.observe(SMALL, Observation(400.0), one.predict(SMALL))
    assert one.predict(MIDDLE).seconds == 400.0
    assert one.predict(LARGE).seconds == FIRST_GUESS, "256 nodes are too far from one"
    for _ in range(5):
        one.observe(MIDDLE, Observation(9000.0), one.predict(MIDDLE))
    assert one.predict(MIDDLE).seconds > 4000, "what was borrowed weighs less than what is its own"
    assert one.predict(SMALL).seconds == 400.0
    assert model_store(store, name="median").predict(SMALL).seconds == 400.0, (
        "another predictor begins with the same waits"
    )


def test_waits_from_accounting_are_what_learners_begin_with(store):
    one = model_store(store)
    one.predict(SMALL)
    assert one.import_waits((SMALL, 60.0 + i, 1.0) for i in range(30)) == 30
    assert 60 <= one.predict(SMALL).seconds <= 90
    assert {w["estimate"] for w in store.learning.waits()} == {None}


def test_its_own_waits_come_last_and_so_weigh_most(store):
    one = model_store(store, name="last")
    one.import_waits([(SMALL, 30.0, 1.0), (MIDDLE, 9000.0, 2.0)])
    assert one.predict(SMALL).seconds == 30.0
    assert one.predict(MIDDLE).seconds == 9000.0


def test_what_is_undone_in_the_store_is_not_learned(store):
    one = model_store(store, name="last")
    one.observe(SMALL, Observation(30.0), None)
    with pytest.raises(RuntimeError), store.together():
        one.observe(SMALL, Observation(90.0), None)
        raise RuntimeError
    assert one.predict(SMALL).seconds == 30.0


def test_bounds_are_kept_beside_the_waits(store):
    one = model_store(store)
    for _ in range(40):
        one.observe(SMALL, Observation(30.0), one.predict(SMALL))
    assert one.predict(SMALL).said[BOUND] == pytest.approx(30.0)
    assert store.learning.waits()[-1]["bound"] == pytest.approx(30.0)


def test_all_classes_of_a_cluster_have_bounds_and_trust_in_common(store):
    one = model_store(store, hints=lambda geometry: {"queue": 100.0 * geometry.nodes})
    for _ in range(60):
        one.observe(SMALL, Observation(120.0), one.predict(SMALL))
    far = one.predict(LARGE)
    assert far.said[BOUND] == pytest.approx(far.seconds * 1.2, rel=0.01)
    assert one.around(LARGE, far).quantile(0.75) == pytest.approx(far.seconds * 1.2, rel=0.01)
    fresh = make("share-mix", LIVE_ALTERNATIVES).weights()
    assert one.learner(LARGE).weights() == one.learner(SMALL).weights() != fresh
    again = model_store(store, hints=lambda geometry: {"queue": 100.0 * geometry.nodes})
    assert again.predict(LARGE).said[BOUND] == far.said[BOUND]
    elsewhere = model_store(store, complete=lambda g: replace(g, cluster="c2"))
    assert len(elsewhere.common(SMALL).bounds) == 0


def test_what_is_common_begins_with_the_waits_that_are_kept_already(store):
    """Of a release that had nothing in common, and of accounting."""
    for i in range(60):
        store.learning.add_wait(KEY, 100.0, 150.0, 0, float(i))
    one = model_store(store)
    assert one.common(SMALL).bounds.bound(100.0) == pytest.approx(150, rel=1e-3)
    one.import_waits((MIDDLE, 400.0 + i, 1.0) for i in range(30))
    assert len(one.common(SMALL).bounds) == 60 + 29
    one.observe(SMALL, Observation(30.0), None)
    assert store.learning.learned("share-mix common ") is None, "of a wait that nobody predicted it learns nothing"


def test_a_damaged_common_state_is_kept_aside_and_said_once(store):
    said = []
    one = model_store(store, said)
    for _ in range(30):
        one.observe(SMALL, Observation(30.0), one.predict(SMALL))
    store.learning.save_learned("share-mix common ", {"version": 9}, 1.0)
    again = model_store(store, said)
    assert again.predict(SMALL).said[BOUND] == pytest.approx(30.0)
    assert [key for key, _ in said] == ["share-mix common "]
    assert store.learning.learned("aside 7 share-mix common ") == {"version": 9}


def test_users_share_where_the_site_says_so(store):
    alice, bob = replace(SMALL, user="alice"), replace(SMALL, user="bob")
    assert model_store(store).key(alice) != model_store(store).key(bob)
    assert model_store(store, per_user=False).key(alice) == model_store(store, per_user=False).key(bob)
    assert model_store(store, complete=lambda g: replace(g, cluster="c1")).key(SMALL).startswith("c1/")


def test_a_wrong_setting_fails_at_once(store):
    with pytest.raises(ValueError, match="predictor"):
        model_store(store, name="oracle")


def test_who_was_asked_too_early_learns_from_those_like_it_all_the_same(store):
    one = model_store(store)
    assert one.predict(MIDDLE).seconds == FIRST_GUESS, "nobody knows anything yet"
    for _ in range(40):
        one.observe(SMALL, Observation(9000.0), one.predict(SMALL))
    assert one.predict(MIDDLE).seconds == model_store(store).predict(MIDDLE).seconds == 9000.0, "as after a restart"
