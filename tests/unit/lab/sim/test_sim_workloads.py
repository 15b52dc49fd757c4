"""The workload models: what their authors say of them has to be seen in what is generated.

The tolerances are six standard errors of the number of samples, so that a seed that fails means something.
"""

from __future__ import annotations

from math import exp, log2, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock_lab.sim.estimates import parse_estimates
from penstock_lab.sim.workloads import KINDS, MODELS, generate
from penstock_lab.sim.workloads.feitelson import MEANS, UNIT, first_stage, repetitions, size_weights
from penstock_lab.sim.workloads.gamma import gamma_cdf
from penstock_lab.sim.workloads.lublin import BATCH, INTERACTIVE, UNTYPED, daily_cycle

N = 40_000
ONE = {"batch": BATCH, "interactive": INTERACTIVE, "untyped": UNTYPED}


def columns(workload):
    t = workload.trace
    return [np.array(c) for c in (t.ids, t.submit, t.run, t.procs, t.estimate)]


def close_share(hits, expected):
    """A share of `hits` (booleans) agrees with a probability."""
    return abs(np.mean(hits) - expected) <= 6 * sqrt(max(expected * (1 - expected), 1e-4) / len(hits))


def close_mean(values, expected):
    return abs(np.mean(values) - expected) <= 6 * np.std(values) / sqrt(len(values))


# --- the gamma distribution


@pytest.mark.parametrize(
    ("x", "n", "scale"), [(0.5, 1, 1.0), (3.0, 4, 0.7), (12.0, 7, 2.5), (200.0, 3, 9.0), (1e4, 2, 1)]
)
def test_gamma_cdf_of_whole_shapes_is_the_poisson_sum(x, n, scale):
    z = x / scale
    term, total = 1.0, 1.0
    for k in range(1, n):
        term *= z / k
        total += term
    assert gamma_cdf(x, n, scale) == pytest.approx(1 - exp(-z) * total, abs=1e-12)


def test_gamma_cdf_at_the_ends():
    assert gamma_cdf(0, 2.5, 1) == 0
    assert gamma_cdf(-1, 2.5, 1) == 0
    assert gamma_cdf(12, 639.1, 0.0156) == pytest.approx(1, abs=1e-6)
    assert gamma_cdf(1e9, 2.5, 1) == 1


# --- Lublin


def log2_cdf(kind, procs, x):
    """P(two-stage uniform <= x)."""
    low, med, high = kind.bounds(procs)
    first = np.clip((x - low) / (med - low), 0, 1)
    second = np.clip((x - med) / (high - med), 0, 1)
    return kind.prob * first + (1 - kind.prob) * second


def size_probability(kind, procs, size):
    """Straight from the definition."""
    rounded = log2_cdf(kind, procs, log2(size + 0.5)) - log2_cdf(kind, procs, log2(size - 0.5)) if size > 1 else 0
    p = (1 - kind.serial - kind.power) * rounded
    if size == 1:
        p += kind.serial
    elif size & (size - 1) == 0:
        k = log2(size)
        p += kind.power * (log2_cdf(kind, procs, k + 0.5) - log2_cdf(kind, procs, k - 0.5))
    return p


@pytest.mark.parametrize("kinds", sorted(ONE))
def test_lublin_sizes_have_the_probabilities_of_the_definition(kinds):
    procs = columns(generate("lublin", N, 128, 5, kinds=kinds))[3]
    expected = [size_probability(ONE[kinds], 128, n) for n in range(1, 129)]
    assert sum(expected) == pytest.approx(1, abs=0.01)
    for n in (1, 2, 3, 4, 8, 16, 17, 32, 64):
        assert close_share(procs == n, expected[n - 1]), n
    powers = sum(p for n, p in enumerate(expected, 1) if n & (n - 1) == 0)
    assert close_share(procs & (procs - 1) == 0, powers)
    assert powers > ONE[kinds].power
    assert procs.max() <= 128


@pytest.mark.parametrize("kinds", sorted(ONE))
def test_lublin_run_times_have_the_mean_of_the_truncated_hyper_gamma(kinds):
    kind = ONE[kinds]
    _, _, run, procs, _ = columns(generate("lublin", N, 128, 6, kinds=kinds))
    logs = np.log(run[procs == 1] + 0.5)  # whole seconds: those dropped are half of one in the mean
    p = kind.pa + kind.pb
    inside, moment = 0.0, 0.0
    for weight, (a, b) in zip((p, 1 - p), kind.runs, strict=True):
        inside += weight * gamma_cdf(12, a, b)
        moment += weight * a * b * gamma_cdf(12, a + 1, b)
    # run times of less than a second or so are what rounding moves
    assert abs(np.mean(logs) - moment / inside) <= 6 * np.std(logs) / sqrt(len(logs)) + 0.02
    assert run.max() <= exp(12)


def test_lublin_larger_jobs_run_longer():
    _, _, run, procs, _ = columns(generate("lublin", N, 128, 7, kinds="batch"))
    small, large = np.log(run[procs <= 2]), np.log(run[procs >= 64])
    assert np.mean(large) - np.mean(small) > 6 * (np.std(small) / sqrt(len(small)) + np.std(large) / sqrt(len(large)))


@pytest.mark.parametrize("kinds", sorted(ONE))
def test_lublin_arrivals_follow_the_daily_cycle_and_the_mean_gap(kinds):
    kind = ONE[kinds]
    cycle = daily_cycle(kind)
    assert cycle.mean() == pytest.approx(1)
    assert cycle.argmax() in range(20, 34)  # busiest between 10:00 and 17:00
    assert cycle.min() < 0.5
    assert cycle.argmin() in range(8, 12)  # and quietest around 05:00, where the cyclic day begins
    submit = columns(generate("lublin", N, 128, 8, kinds=kinds))[1]
    whole_days = submit[: np.searchsorted(submit, submit[-1] // 86400 * 86400)]
    shares = np.bincount(whole_days % 86400 // 1800, minlength=48) / len(whole_days)
    assert np.abs(shares - cycle / 48).max() < 0.01
    # Gaps of even days are log-gamma: E exp(G) for G ~ gamma(a, b), cut at 13, is a gamma of another scale.
    a, b = kind.gaps[0] * kind.rush, kind.gaps[1]
    mean = (1 - b) ** -a * gamma_cdf(13, a, b / (1 - b)) / gamma_cdf(13, a, b)
    assert submit[-1] / N == pytest.approx(mean, rel=0.15)  # heavy tail: the standard error is some 3 %


def test_lublin_has_both_queues_and_each_its_own_arrivals():
    both = generate("lublin", N, 128, 9)
    assert both.queues == ("interactive", "batch")
    counts = np.bincount(both.queue)
    assert counts.sum() == N
    # From the mean gaps of the two classes, some 670 s and 3,900 s.
    assert 0.8 < counts[0] / N < 0.9
    assert generate("lublin", 10, 128, 9, kinds="untyped").queues == ("all",)


@pytest.mark.parametrize("procs", [1, 2, 3, 5, 16, 338, 430, 5000])
@pytest.mark.parametrize("kinds", sorted(KINDS))
def test_lublin_on_other_machines(procs, kinds):
    size = columns(generate("lublin", 3000, procs, 1, kinds=kinds))[3]
    assert size.min() == 1
    assert size.max() <= procs
    if procs >= 430:  # the largest sizes are of the order of the machine, and interactive jobs a third of it
        assert size.max() > procs / 4


# --- Feitelson


def test_feitelson_sizes_and_run_times_are_those_of_the_definition():
    w = generate("feitelson", N, 128, 3)
    _, _, run, procs, _ = columns(w)
    first = w.preceding == 0  # runs of one program are alike; only the first is a draw
    weights = size_weights(128)
    assert weights.sum() == pytest.approx(1)
    for n in (1, 2, 3, 4, 7, 8, 16, 32, 64, 100):
        assert close_share(procs[first] == n, weights[n - 1]), n
    powers = sum(weights[n - 1] for n in (1, 2, 4, 8, 16, 32, 64, 128))
    assert close_share((procs & (procs - 1) == 0)[first], powers)
    assert 0.7 < powers < 0.8
    assert weights[3] > 1.5 * weights[2]  # 4 is more popular than 3
    for n in (1, 2, 32):
        p = float(first_stage(np.int64(n), 128))
        assert close_mean(run[first & (procs == n)], UNIT * (p * MEANS[0] + (1 - p) * MEANS[1]))
    assert run[first].std() / run[first].mean() > 1.3  # hyperexponential


def test_feitelson_programs_run_again_when_they_have_ended():
    w = generate("feitelson", N, 128, 4)
    ids, submit, run, procs, _ = columns(w)
    again = w.preceding > 0
    before = w.preceding[again] - 1
    assert (ids == np.arange(1, N + 1)).all()
    assert (w.executable[again] == w.executable[before]).all()
    assert (procs[again] == procs[before]).all()
    assert (run[again] == run[before]).all()
    # Seconds are whole: the fraction of the first submission is dropped in each.
    assert (np.abs(submit[again] - submit[before] - run[before]) <= 1).all()
    runs = np.bincount(w.executable)[1:-1]
    for k in (1, 2, 3):
        assert close_share(runs == k, repetitions()[k - 1]), k
    assert repetitions()[0] / repetitions()[1] == pytest.approx(2**2.5)


def test_feitelson_programs_arrive_as_a_poisson_process():
    w = generate("feitelson", N, 128, 5)
    gaps = np.diff(columns(w)[1][w.preceding == 0])
    assert close_mean(gaps, 1200)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1, abs=0.05)


# --- both


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_gives_the_same_jobs_and_another_seed_others(model):
    a, b, c = (columns(generate(model, 500, 64, seed, 0.7)) for seed in (1, 1, 2))
    assert all((x == y).all() for x, y in zip(a, b, strict=True))
    assert (a[2] != c[2]).any()


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(MODELS), st.integers(1, 300), st.integers(1, 2000), st.integers(0, 2**63), st.floats(0.01, 3.0))
def test_any_workload_can_be_replayed_and_has_the_load_that_was_asked_for(model, jobs, procs, seed, load):
    w = generate(model, jobs, procs, seed, load)
    w.trace.check(procs)
    ids, submit, run, size, estimate = columns(w)
    assert list(ids) == list(range(1, jobs + 1))
    assert (estimate == run).all()
    assert len(w.queue) == len(w.executable) == len(w.preceding) == jobs
    span = float((run * size).sum()) / (procs * load)
    assert submit[w.preceding == 0][-1] == pytest.approx(span, abs=1.01, rel=1e-9)
    assert w.load(procs) is None or w.load(procs) == pytest.approx(load, rel=2 / span)


@pytest.mark.parametrize("model", MODELS)
def test_a_load_changes_only_when_jobs_are_submitted(model):
    def jobs(load):
        w = generate(model, 2000, 128, 3, load)
        _, _, run, procs, _ = columns(w)
        return sorted(zip(run, procs, w.queue, strict=True))

    assert jobs(None) == jobs(0.5) == jobs(1.2)


def test_lublin_keeps_its_day_at_any_load():
    for load in (0.3, 1.5):
        submit = columns(generate("lublin", N, 128, 8, load, kinds="untyped"))[1]
        hours = np.bincount(submit % 86400 // 3600, minlength=24)
        assert hours[12:16].mean() > 4 * hours[3:6].mean()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lublin", 0, 8, 1), "1 to 20000000 jobs, not 0"),
        (("lublin", 5, 0, 1), "1 to 1000000 processors"),
        (("feitelson", 5, 8, 1, 0.0), "a load is greater than 0"),
        (("feitelson", 5, 8, 1, float("nan")), "a load is greater than 0"),
        (("downey", 5, 8, 1), "the models are feitelson, lublin, not 'downey'"),
    ],
)
def test_what_cannot_be_generated_is_one_message(arguments, says):
    with pytest.raises(UserError, match=says):
        generate(*arguments)


# --- estimates


@given(st.sampled_from(["actual", "times:1", "times:2.5", "f:0", "f:4"]), st.integers(0, 2**40))
def test_estimates_are_never_below_the_run_time(text, seed):
    trace = generate("lublin", 50, 16, 1).trace
    rule = parse_estimates(text)
    made = np.array(rule.of(trace, seed))
    run = np.array(trace.run)
    assert (made >= run).all()
    assert (made <= run * max(rule.factor + (rule.rule == "f"), 1) + 1).all()
    assert str(rule) == text
    assert list(made) == list(rule.of(trace, seed))


def test_estimates_of_each_kind():
    trace = generate("lublin", 4000, 16, 1).trace
    run = np.array(trace.run)
    assert list(parse_estimates("times:3").of(trace, 1)) == [3 * r for r in run]
    assert parse_estimates("user").of(trace, 1) is trace.estimate
    ratio = (np.array(parse_estimates("f:4").of(trace, 1)) / run)[run > 100]
    assert close_mean(ratio, 3.0) or abs(np.mean(ratio) - 3) < 0.1
    assert ratio.max() > 4.9
    assert parse_estimates("f:4").random
    assert not parse_estimates("times:4").random


@pytest.mark.parametrize(
    "text", ["", "exact", "times", "times:", "times:0.5", "f:-1", "f:nan", "f:inf", "user:2", "f:2000"]
)
def test_estimates_that_are_none(text):
    with pytest.raises(UserError, match="estimates are actual, user, times:F or f:F"):
        parse_estimates(text)
