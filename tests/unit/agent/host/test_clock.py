"""How long what did not answer is left alone."""

from __future__ import annotations

from penstock.host.clock import Rest


def test_each_rest_is_twice_as_long_as_that_before_up_to_a_minute():
    rest, lengths = Rest(), []
    for now in (0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0):
        rest = rest.longer(now, 0.5)
        lengths.append(rest.until - now)
        assert rest.lasts(now)
    assert lengths == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_what_does_not_answer_for_days_is_asked_for_once_a_minute():
    rest = Rest()
    for minute in range(10_000):
        rest = rest.longer(60.0 * minute, 0.5)
    assert rest.until == 60.0 * 10_000


def test_a_clock_set_back_ends_it():
    rest = Rest().longer(1000.0, 30.0)
    assert (rest.lasts(1029.0), rest.lasts(1030.0), rest.lasts(999.0)) == (True, False, False)
    assert (rest.end(1010.0), rest.end(1030.5), rest.end(10.0)) == (1030.0, 1030.5, 10.0)
