"""Whom a pass serves: each user as far as the budget goes, nobody never, and who has little in every pass."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.pace import Pace, Timed, at_once
from penstock.values.fair import LookupClaim, Rounds, deal, work_of

WORKS = st.lists(st.integers(1, 40), min_size=1, max_size=30)
BUDGET = 50


def claims(works, user="many", first=0):
    return [LookupClaim((user, first + i), user, work) for i, work in enumerate(works)]


@given(WORKS, st.integers(0, 12))
def test_every_run_is_served_within_a_bounded_number_of_passes_whatever_joins(works, new):
    """With new ones in every pass, which are served in their turn, too."""
    rounds, passes = Rounds(), 0
    made = claims(works)
    waiting = {claim.key for claim in made}
    bound = 2 * math.ceil(sum(works) / BUDGET) + 1
    while waiting:
        chosen, _left = rounds.choose(made, BUDGET)
        assert chosen, "a pass serves somebody"
        waiting -= set(chosen)
        passes += 1
        made += claims([40] * new, "many", 1000 * passes)
        assert passes <= bound


@given(WORKS, st.integers(1, BUDGET), st.integers(1, 20))
def test_who_has_one_small_run_is_served_in_every_pass(works, small, passes):
    rounds = Rounds()
    made = [*claims(works), *claims([small], "one")]
    for _ in range(passes):
        chosen, _left = rounds.choose(made, BUDGET)
        assert ("one", 0) in chosen
        assert chosen.index(("one", 0)) <= 1, "the users take turns"


@given(WORKS, st.integers(1, 12))
def test_nobody_has_more_than_the_budget_and_what_is_left_is_said(works, passes):
    rounds, cost = Rounds(), {("many", i): work for i, work in enumerate(works)}
    for _ in range(passes):
        chosen, left = rounds.choose(claims(works), BUDGET)
        assert len(chosen) == 1 or sum(cost[key] for key in chosen) <= BUDGET
        assert left is (len(chosen) < len(works))
        assert len(set(chosen)) == len(chosen)


def test_of_what_needs_nothing_there_is_nothing_left():
    rounds = Rounds()
    made = [LookupClaim(i, "u", 30, needed=i == 3) for i in range(4)]
    assert rounds.choose(made, BUDGET) == ([3], False)
    assert rounds.choose([LookupClaim(i, "u", 10, needed=False) for i in range(4)], BUDGET) == ([0, 1, 2, 3], False)
    assert Rounds().choose([], BUDGET) == ([], False)


def test_what_costs_more_than_the_budget_is_served_alone_and_is_not_overtaken():
    rounds = Rounds()
    made = [LookupClaim("big", "u", 500), LookupClaim("small", "u", 1), LookupClaim("next", "u", 1)]
    assert rounds.choose(made, BUDGET) == (["big"], True)
    assert rounds.choose(made, BUDGET) == (["small", "next"], True)
    assert rounds.choose(made, BUDGET) == (["big"], True)


@given(
    st.dictionaries(st.text(max_size=3), st.lists(st.integers(), max_size=20, unique=True), max_size=9),
    st.integers(0, 40),
)
def test_what_is_dealt_is_shared_alike(piles, most):
    dealt = deal({user: [(user, item) for item in pile] for user, pile in piles.items()}, most)
    total = sum(map(len, piles.values()))
    assert len(dealt) == min(most, total)
    shares = {user: [item for whose, item in dealt if whose == user] for user in piles}
    for user, pile in piles.items():
        assert shares[user] == pile[: len(shares[user])], "in their order"
        if len(shares[user]) < len(pile):
            assert all(len(other) <= len(shares[user]) + 1 for other in shares.values())


def test_eight_dependencies_cost_as_much_as_a_stage():
    assert work_of(1000, 94_950) == 12_868


def test_long_work_in_parts_lets_others_have_their_turn():
    heard = []

    def parts():
        for i in range(10):
            heard.append(i)
            yield 3
        return "done"

    async def other():
        for _ in range(8):
            heard.append("other")
            await asyncio.sleep(0)

    async def run():
        asyncio.get_running_loop().create_task(other())
        return await Pace(10).walk(parts())

    assert asyncio.run(run()) == at_once(parts()) == "done"
    assert heard[:12] == [0, 1, 2, 3, *["other"] * 8]


def test_of_a_coroutine_only_its_own_time_counts():
    async def work(turns):
        for _ in range(turns):
            sum(range(50_000))
            await asyncio.sleep(0)
        raise KeyError("its own")

    async def beside():
        while True:
            sum(range(1_000_000))
            await asyncio.sleep(0)

    async def run():
        other = asyncio.get_running_loop().create_task(beside())
        timed = Timed(work(20))
        with pytest.raises(KeyError, match="its own"):
            await timed
        other.cancel()
        return timed.seconds

    async def cancelled():
        timed = Timed(asyncio.sleep(60))
        task = asyncio.ensure_future(asyncio.wait_for(timed_of(timed), 0.01))
        with pytest.raises(TimeoutError):
            await task

    async def timed_of(timed):
        return await timed

    began = time.thread_time()
    own = asyncio.run(run())
    assert 0 < own < (time.thread_time() - began) / 2, "that of the other is twenty times as much"
    asyncio.run(cancelled())
