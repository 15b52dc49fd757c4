"""The speed-up models: they give back the paper's figures that they were fitted to, and nothing but those."""

from __future__ import annotations

import pytest

from penstock_lab.papers.dmr.models import models
from penstock_lab.papers.dmr.paper import INTERARRIVAL, JOBS, NODES, TABLE_4


def seconds(name, size, kind="fitted"):
    return models(kind)[name].seconds(size)


def shrunk_at_once(name):
    """Seconds and node-seconds of a run on the maximum up to its first check, then on the preferred size."""
    model = models()[name]
    app = model.application
    first = app.period or model.seconds(app.maximum) / app.iterations
    rest = (1 - first / model.seconds(app.maximum)) * model.seconds(app.preferred)
    return first + rest, first * app.maximum + rest * app.preferred


@pytest.mark.parametrize("jobs", JOBS)
def test_mean_execution_times_are_within_a_tenth_of_the_papers(jobs):
    fixed = (2 * seconds("cg", 32) + seconds("nbody", 16)) / 3
    flexible = (2 * shrunk_at_once("cg")[0] + shrunk_at_once("nbody")[0]) / 3
    assert fixed == pytest.approx(TABLE_4[jobs, "fixed"].execution, rel=0.1)
    assert flexible == pytest.approx(TABLE_4[jobs, "flexible"].execution, rel=0.1)


def test_the_work_of_a_job_is_that_of_the_papers_queue():
    fixed = (2 * 32 * seconds("cg", 32) + 16 * seconds("nbody", 16)) / 3
    flexible = (2 * shrunk_at_once("cg")[1] + shrunk_at_once("nbody")[1]) / 3
    for version, ours in (("fixed", fixed), ("flexible", flexible)):
        table = [(n, TABLE_4[n, version]) for n in JOBS]
        theirs = [(2 * row.waiting / n + INTERARRIVAL) * NODES * row.utilisation for n, row in table]
        assert ours == pytest.approx(sum(theirs) / len(theirs), rel=1e-9)


def test_more_nodes_are_faster_and_never_in_more_than_proportion():
    for kind in ("fitted", "linear"):
        for name, model in models(kind).items():
            assert 0 <= model.speedup.serial < 1
            for size in (2, 4, 8, 16, 32):
                assert (
                    seconds(name, size, kind) < seconds(name, size // 2, kind) <= 2.000001 * seconds(name, size, kind)
                )


def test_linear_is_as_fast_at_the_maximum():
    for name, model in models("linear").items():
        assert model.seconds(model.application.maximum) == pytest.approx(
            seconds(name, model.application.maximum), rel=1e-9
        )
        assert model.speedup.at(8) == pytest.approx(8)
