"""Figure 5: its waits, how a learner is judged, and that the goals are in sight with a handful of seeds."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.waits.learners.alternatives import ALTERNATIVES
from penstock_lab.papers import fig5


def test_levels_change_four_times_come_from_the_grid_and_never_repeat():
    for seed in range(30):
        true = fig5.waits(seed, 0.0)
        assert len(true) == fig5.ITERATIONS
        assert set(true) <= set(ALTERNATIVES)
        assert np.flatnonzero(np.diff(true)).tolist() == [199, 399, 599, 799]


def test_noise_scatters_waits_around_the_same_levels():
    ratio = np.log(fig5.waits(3, 0.5) / fig5.waits(3, 0.0))
    assert ratio.std() == pytest.approx(0.5, rel=0.1) and abs(ratio.mean()) < 0.05
    assert (fig5.waits(3, 0.5) == fig5.waits(3, 0.5)).all()


def test_the_last_wait_is_wrong_five_times():
    """At the start, where nothing is known, and once after each of the four changes."""
    outcome = fig5.measure("last", 0.0, seeds=4)
    assert outcome.losses == (5.0,) * 4
    assert outcome.curve[0] == 1 and outcome.curve[-1] == 5
    assert outcome.loss == (5.0, 5.0, 5.0)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_shipped_default_is_where_the_issue_wants_it(noise):
    rows = {o.predictor: o.row() for o in fig5.run(3, (noise,), ("share-mix", "median", "asa-default"), processes=1)}
    if noise:
        assert rows["share-mix"]["log10_error"] < rows["median"]["log10_error"]
    else:
        assert rows["share-mix"]["loss_mean"] <= 14
    assert rows["share-mix"]["log10_error"] < rows["asa-default"]["log10_error"] / 3


def test_rows_come_by_noise_in_the_order_asked():
    found = [(o.noise, o.predictor) for o in fig5.run(1, (0.2, 0.0), ("median", "last"), processes=2)]
    assert found == [(0.2, "median"), (0.2, "last"), (0.0, "median"), (0.0, "last")]
