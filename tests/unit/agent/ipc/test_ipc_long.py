"""Long questions, such as `try`: one of a user at a time, in a measure of their own, and behind all short ones."""

from __future__ import annotations

import asyncio
import json
import math
import time

import pytest
from ipc_doors import UID

from penstock.core.pace import Pace
from penstock.errors import NotNow
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.inturn import LongQuestions
from penstock.ipc.limits import RateLimit


def questions(**given):
    return LongQuestions(**{"burst": 60.0, "share": 0.25, "waiting": 2, "patience": 30.0, **given})


def asked(long, uid, now):
    return long.enter(uid, now, lambda: None)


def test_a_users_second_question_begins_when_the_first_has_ended_and_others_do_not_wait():
    long, called = questions(), []
    first = long.enter(1, 0.0, lambda: called.append(1))
    second = long.enter(1, 1.0, lambda: called.append(2))
    third = long.enter(1, 2.0, lambda: called.append(3))
    assert long.begins_in(first, 2.0) == 0.0
    assert long.begins_in(asked(long, 2, 2.0), 2.0) == 0.0, "another user's"
    assert long.begins_in(second, 2.0) > 0.0
    long.leave(first, 5.0, 6.0)
    assert (called, long.begins_in(second, 6.0)) == ([2], 0.0)
    assert long.begins_in(third, 6.0) > 0.0
    long.leave(second, 5.0, 11.0)
    assert (called, long.begins_in(third, 11.0)) == ([2, 3], 0.0)


def test_one_that_goes_while_it_waits_holds_up_nobody():
    long, called = questions(), []
    first, second = asked(long, 1, 0.0), asked(long, 1, 0.0)
    third = long.enter(1, 0.0, lambda: called.append(3))
    long.leave(second, 0.0, 1.0)
    assert not called
    long.leave(first, 0.0, 2.0)
    assert (called, long.begins_in(third, 2.0)) == ([3], 0.0)


def test_so_many_may_wait_and_no_more():
    long = questions()
    turns = [asked(long, 1, 0.0) for _ in range(3)]
    with pytest.raises(
        NotNow, match="too many long questions: one of yours is answered at a time, and 2 may wait"
    ) as e:
        asked(long, 1, 0.0)
    assert e.value.exit_code == 6
    asked(long, 2, 0.0)
    long.leave(turns[0], 0.0, 1.0)
    asked(long, 1, 1.0)


def test_who_has_waited_long_is_told_so():
    long = questions()
    asked(long, 1, 0.0)
    second = asked(long, 1, 10.0)
    assert long.begins_in(second, 15.0) == pytest.approx(25.0)
    with pytest.raises(NotNow, match="waited 30 s for the one before it"):
        long.begins_in(second, 40.0)


def test_all_of_a_users_questions_have_so_much_of_the_processor():
    long, now, used = questions(), 0.0, 0.0
    while now < 10_000.0:
        turn = asked(long, 1, now)
        try:
            if (rest := long.begins_in(turn, now)) == 0.0:
                now, used = now + 5.0, used + 5.0
                long.leave(turn, 5.0, now)
                continue
            now += rest
        except NotNow as e:
            assert "of the agent's processor time" in str(e)
            assert 30.0 < e.again_in < math.inf
            now += e.again_in
        long.leave(turn, 0.0, now)
    assert 0.2 * now < used < 0.27 * now


def test_what_is_asked_for_in_vain_takes_no_memory():
    long = questions()
    for uid in range(5000):
        turn = asked(long, uid, uid * 0.001)
        long.leave(turn, 0.0, uid * 0.001)
    assert not long.waiting


async def taking(parts, seconds):
    """So many parts of work of so many seconds each."""
    pace = Pace(1)
    for _ in range(parts):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        await pace.after(1)


def door_of(order, *, limit=200, each=0.004):
    async def try_(_uid, request):
        order.append(f"begin {request['n']}")
        await taking(100, each)
        order.append(f"end {request['n']}")
        return request["n"]

    async def status(_uid, _request):
        order.append("status")
        await taking(3, 0.0005)
        return "all is well"

    return LocalDoor({"try": try_, "status": status}, RateLimit(limit, 0.001), often=RateLimit(10 * limit, 0.001))


async def answered(door, op, n=0):
    return json.loads(await door.answer(UID, json.dumps({"op": op, "n": n}).encode()))


def test_two_tries_of_a_user_refuse_none_of_their_questions_and_run_one_after_the_other():
    order = []

    async def run():
        door = door_of(order, limit=60)
        tries = [asyncio.ensure_future(answered(door, "try", n)) for n in (1, 2)]
        replies = []
        for _ in range(50):
            await asyncio.sleep(0.01)
            replies.append(await answered(door, "status"))
        return replies, await asyncio.gather(*tries)

    replies, tries = asyncio.run(run())
    assert [one["ok"] for one in replies] == [True] * 50
    assert [one["result"] for one in tries] == [1, 2]
    assert [word for word in order if word != "status"] == ["begin 1", "end 1", "begin 2", "end 2"]
    assert order[1:-1].count("status") > 20, "they were answered meanwhile"


def test_a_long_question_goes_on_when_the_short_one_is_answered():
    """A short question has as many turns as it needs, and not one for each part of the long one."""

    async def run():
        parts = []
        door = LocalDoor({})

        async def long(_uid, _request):
            pace = Pace(1)
            for _ in range(40):
                parts.append("long")
                await pace.after(1)

        async def short(_uid, _request):
            await asyncio.sleep(0)  # the long one is under way
            for _ in range(30):
                parts.append("short")
                await Pace(1).give_way()

        door = LocalDoor({"try": long, "status": short}, RateLimit(9, 1.0))
        await asyncio.gather(answered(door, "try"), answered(door, "status"))
        return parts

    parts = asyncio.run(run())
    first, last = parts.index("short"), len(parts) - 1 - parts[::-1].index("short")
    assert parts[first:last].count("long") <= 1
    assert parts[last:].count("long") > 30


def test_a_short_question_that_waits_for_slurm_holds_up_no_long_one():
    async def run():
        slurm = asyncio.Event()

        async def long(_uid, _request):
            await taking(20, 0.0)
            return "told"

        async def look(_uid, _request):
            await slurm.wait()

        door = LocalDoor({"try": long, "cluster": look}, RateLimit(9, 1.0))
        looking = asyncio.ensure_future(answered(door, "cluster"))
        await asyncio.sleep(0)
        began = time.monotonic()
        assert (await answered(door, "try"))["result"] == "told"
        took = time.monotonic() - began
        slurm.set()
        await looking
        return took

    assert asyncio.run(run()) < 0.5


def test_short_questions_without_end_do_not_starve_a_long_one():
    async def run():
        told = asyncio.Event()

        async def long(_uid, _request):
            await taking(5, 0.0)
            told.set()

        async def endless(_uid, _request):
            while not told.is_set():
                await asyncio.sleep(0)

        door = LocalDoor({"try": long, "status": endless}, RateLimit(9, 1.0))
        await asyncio.wait_for(asyncio.gather(answered(door, "status"), answered(door, "try")), 10)

    asyncio.run(run())


def test_one_try_more_than_may_wait_is_refused_and_the_others_are_answered():
    async def run():
        door = door_of([], each=0.0)
        return await asyncio.gather(*(answered(door, "try", n) for n in range(12)))

    replies = asyncio.run(run())
    refused = [one for one in replies if not one["ok"]]
    assert [one["result"] for one in replies if one["ok"]] == list(range(9))
    assert {one["error"] for one in refused} == {"NotNow"}
    assert all("too many long questions" in one["message"] for one in refused)


def test_a_try_that_is_given_up_while_it_waits_leaves_its_place():
    order = []

    async def run():
        door = door_of(order, each=0.0005)
        first, second, third = (asyncio.ensure_future(answered(door, "try", n)) for n in (1, 2, 3))
        await asyncio.sleep(0.01)
        second.cancel()
        return await asyncio.gather(first, second, third, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert (first["result"], third["result"]) == (1, 3)
    assert isinstance(second, asyncio.CancelledError)
    assert "begin 2" not in order


def test_what_is_long_is_asked_for_as_that_alone():
    """A key that stands twice counts as the last one, which is not what the measure was chosen by."""
    order = []

    async def run():
        return json.loads(await door_of(order).answer(UID, b'{"op": "try", "op": "status"}'))

    assert asyncio.run(run())["message"] == "op: is there twice"
    assert not order
