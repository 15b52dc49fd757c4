from __future__ import annotations

from itertools import pairwise

from dmr.inhibitor import Inhibitor


def drive(inhibitor: Inhibitor, steps: list[float]) -> list[int]:
    """Makes a call after each step of so many seconds; returns which calls (from 0) were real."""
    now, skip, real = 1000.0, 0, []
    for call, seconds in enumerate(steps):
        now += seconds
        if skip:
            skip -= 1
            continue
        real.append(call)
        inhibitor.enter(now)
        now += 0.5  # the agent takes its time, which is no part of a step
        skip = inhibitor.leave(now)
    return real


def test_without_one_every_call_is_real() -> None:
    assert drive(Inhibitor(), [0.1] * 5) == [0, 1, 2, 3, 4]


def test_by_steps() -> None:
    assert drive(Inhibitor(steps=4), [0.1] * 10) == [0, 4, 8]
    assert drive(Inhibitor(steps=1), [0.1] * 3) == [0, 1, 2]


def test_by_time_as_soon_as_a_step_has_been_measured() -> None:
    assert drive(Inhibitor(seconds=1.0), [0.25] * 14) == [0, 1, 5, 9, 13]


def test_it_follows_the_steps() -> None:
    real = drive(Inhibitor(seconds=1.0), [0.5] * 10 + [0.125] * 40)
    assert [b - a for a, b in pairwise(real)][-2:] == [8, 8]


def test_the_longer_of_the_two_counts() -> None:
    assert drive(Inhibitor(seconds=1.0, steps=3), [0.25] * 14) == [0, 3, 7, 11]
    assert drive(Inhibitor(seconds=1.0, steps=6), [0.25] * 14) == [0, 6, 12]


def test_a_few_quick_steps_do_not_silence_it_for_long() -> None:
    """The first steps of a program are often empty; a count made of them alone would last for hours."""
    real = drive(Inhibitor(seconds=10.0), [1e-6] * 3 + [1.0] * 100)
    assert real[:3] == [0, 1, 17] and len(real) > 8


def test_steps_longer_than_the_time_are_all_real() -> None:
    assert drive(Inhibitor(seconds=0.5), [1.0] * 5) == [0, 1, 2, 3, 4]


def test_a_call_to_come_back_soon_is_no_step_backwards() -> None:
    """The asynchronous call polls for its answer between two pauses."""
    inhibitor = Inhibitor(seconds=64.0)
    now, pauses = 0.0, []
    for _ in range(6):
        for soon in (True, False):
            now += 1.0
            inhibitor.enter(now)
            skip = inhibitor.leave(now, soon=soon)
            now += skip
        pauses.append(skip)
    assert pauses == [15, 63, 63, 63, 63, 63]


def test_the_step_time_is_measured_over_what_was_ignored() -> None:
    inhibitor = Inhibitor(steps=4)
    inhibitor.enter(0.0)
    inhibitor.leave(10.0)
    assert inhibitor.step_seconds is None
    inhibitor.enter(18.0)
    assert inhibitor.step_seconds == 2.0
