"""Boosted trees: they find what is there, say nothing where nothing is, and survive JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.waits.learners.trees import Trees, fit


def test_they_learn_steps_and_interactions_of_columns():
    rng = np.random.default_rng(1)
    table = rng.uniform(0, 1, (3000, 5))

    def truth(rows):
        return np.where(rows[:, 0] > 0.5, np.where(rows[:, 1] > 0.5, 3.0, 1.0), 0.0)

    trees = fit(table, truth(table) + 0.1 * rng.standard_normal(3000), np.random.default_rng(2))
    fresh = rng.uniform(0, 1, (300, 5))
    errors = np.abs(np.array([trees.predict(row) for row in fresh]) - truth(fresh))
    assert np.median(errors) < 0.2 and errors.mean() < 0.3


def test_it_is_the_median_that_is_learned():
    """One target in five is far off, which moves a mean and no median."""
    rng = np.random.default_rng(3)
    table = rng.uniform(0, 1, (2000, 2))
    target = np.where(rng.random(2000) < 0.2, 100.0, 1.0)
    assert fit(table, target, rng).predict(np.array([0.5, 0.5])) == pytest.approx(1.0, abs=0.2)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_any_table_can_be_fitted_and_the_model_goes_through_json(rows):
    table = np.array([row[:2] for row in rows])
    target = np.array([row[2] for row in rows])
    trees = fit(table, target, np.random.default_rng(0), trees=5, depth=2)
    again = Trees.from_state(json.loads(json.dumps(trees.to_state())), 2)
    for row in table:
        assert math.isfinite(trees.predict(row))
        assert again.predict(row) == pytest.approx(trees.predict(row), abs=1e-3)


@pytest.mark.parametrize(
    "change", [{"columns": [[9]]}, {"columns": []}, {"thresholds": [["x"]]}, {"values": [[1.0]]}, {"base": None}]
)
def test_damaged_trees_are_refused(change):
    state = fit(np.zeros((4, 2)), np.zeros(4), np.random.default_rng(0), trees=1, depth=1).to_state()
    with pytest.raises(ValueError, match="trees state is damaged"):
        Trees.from_state({**state, **change}, 2)
