"""The experiment of resource selection, on a small scale."""

import pytest

from penstock_lab.papers import select_bags, select_errors
from penstock_lab.papers.select_bags import Protocol
from penstock_lab.papers.select_chapters import PAPER, chapters


def test_errors_are_in_the_papers_ranges_and_the_correction_learns():
    rows, right = select_errors.measure()
    last = {row.resource: row for row in rows if row.steps == 100_000}
    for name in ("bridges", "comet", "supermic"):
        assert 156 < last[name].by_base < 172.5 and 81 < last[name].by_max < 112
    assert 7 < last["osg"].by_base < 18 and -14 < last["osg"].by_max < -4
    assert all(abs(row.corrected) < 5 for row in rows if row.steps > 1000)
    assert right["base clock"] == pytest.approx((2 / 3, 1.0)) and right["base clock, corrected"] == (1.0, 1.0)
    assert right["maximum clock"][1] == pytest.approx(2 / 3)


def test_g12_is_what_is_printed_beside():
    for random, model, reduction in PAPER.values():
        assert 1 - model / random == pytest.approx(reduction, abs=1e-4)


@pytest.mark.parametrize("strategy", ["random", "least-loaded", "model", "ours"])
def test_a_bag_under_each_strategy(strategy):
    protocol = Protocol(sizes=(64,), rounds=1, warm=0.05, strategies=(strategy,))
    (found,) = select_bags._simulate(protocol, strategy)
    assert sum(found.shares.values()) == 64
    assert found.times.execution > 4000 and found.times.total < 40_000
    if strategy != "least-loaded":
        assert len(found.shares) == (4 if strategy == "random" else 1)


def test_the_goals_are_judged(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")

    def outcome(strategy, size, number):
        total = {"random": 1000.0, "ours": 100.0}.get(strategy, 300.0)
        return select_bags.Outcome(strategy, size, number, select_bags.Times(0.0, total), {}, {"supermic": 7.0})

    def measure(protocol, tell):
        keys = [(s, n, r) for s in protocol.strategies for n in protocol.sizes for r in range(protocol.rounds)]
        return [outcome(*key) for key in keys]

    monkeypatch.setattr(select_bags, "measure", measure)
    chapter = chapters()["mixed"](tmp_path, print)
    judged = {(g.where, g.what): g.reached for g in chapter.goals}
    assert judged["64 tasks", "TTC of ours over random"] and not judged["64 tasks", "TTC of model over random"]
    assert len(chapter.rows) == len(select_bags.STRATEGIES) * 5 * 4
    assert chapter.pictures == [tmp_path / "bags-mixed.png"] and chapter.pictures[0].stat().st_size > 10_000
    (waits,) = [t for t in chapter.tables if t.title == "Waits of random's jobs, s"]
    assert waits.rows[2] == ["supermic", *["7 ± 0"] * 5] and waits.rows[0][1] == ""
