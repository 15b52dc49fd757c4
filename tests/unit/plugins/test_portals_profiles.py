"""A hub's profiles: which are ones, what their jobs ask for, the form with their waits, and what was chosen."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter

import pytest

from penstock_portals.asking import AgentSilent
from penstock_portals.profiles import checked, chosen, form_html, pending_text, request_of, wish_of
from penstock_portals.shared import SharedAnswers

REQUESTS = ("gres", "memory", "nprocs", "partition", "runtime")
SMALL = {"name": "small", "title": "2 CPUs for an hour", "partition": "batch", "runtime": "1h", "nprocs": "2"}
GPU = {"name": "gpu", "partition": "gpu", "runtime": "4:00:00", "memory": "8G", "gres": "gpu:1"}
ANSWER = {"age": 3.0, "stale_after": 30.0, "problems": []}


def test_what_a_profile_asks_for():
    small, gpu = checked([{**SMALL, "nprocs": 2}, GPU], REQUESTS)
    assert request_of(small) == {"partition": "batch", "runtime": "1:00:00", "nprocs": "2"}
    assert wish_of(request_of(small)) == {"partition": "batch", "time_limit": 3600, "cpus": 2}
    assert wish_of(request_of(gpu)) == {"partition": "gpu", "time_limit": 14400, "memory": 8192, "gres": "gpu:1"}
    assert wish_of({"runtime": "", "nprocs": "many", "memory": ""}) == {}


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        ([{"title": "nameless"}], "profile 1: must have a name that no other profile has"),
        ([SMALL, SMALL], "profile small: must have a name that no other"),
        ([{**SMALL, "cores": "2"}], "there is no 'cores' (there are: name, title, gres, memory, nprocs"),
        ([{**SMALL, "runtime": "long"}], "runtime must be a time limit such as"),
        ([{**SMALL, "gres": "gpu:1\n#SBATCH --uid=0"}], "on one line each"),
    ],
)
def test_what_is_no_profile_is_said(profiles, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        checked(profiles, REQUESTS)


def test_only_a_profile_can_be_chosen_also_by_who_speaks_to_the_api():
    assert chosen([SMALL, GPU], {}) is SMALL
    assert chosen([SMALL, GPU], {"profile": "gpu"}) is GPU
    with pytest.raises(ValueError, match="profile: must be one of small, gpu"):
        chosen([SMALL, GPU], {"profile": "huge"})
    with pytest.raises(ValueError, match="'partition' cannot be chosen, only `profile` can"):
        chosen([SMALL, GPU], {"profile": "gpu", "partition": "x\n#SBATCH --nodes=99"})


def test_the_form_says_each_wait_and_escapes_what_is_configured():
    odd = {"name": 'a"b', "title": "<script>alert(1)</script>"}
    jobs = [{"p50": 5.0, "p95": 20.0}, {"p50": 600.0, "p95": 3600.0}, {"error": "no such partition"}]
    text = form_html([SMALL, GPU, odd], {**ANSWER, "jobs": jobs}, 300.0)
    assert "2 CPUs for an hour</label> <span" in text and "expected wait: starts at once</span>" in text
    assert "expected wait: about 10 min (up to 1 h); the hub gives up after 5 min" in text
    assert "cannot start as it is configured" in text and "less than a minute ago" in text
    assert "<script>" not in text and 'value="a&quot;b"' in text
    assert text.count('type="radio"') == 3 and text.count(" checked") == 1


def test_without_an_agent_the_form_is_the_same_but_for_the_waits():
    text = form_html([SMALL, GPU], None, 300.0)
    assert text.count('type="radio"') == 2 and "wait" not in text
    assert form_html([SMALL, GPU], {**ANSWER, "jobs": []}, 300.0).count('type="radio"') == 2


@pytest.mark.parametrize(
    ("waited", "expected", "turn", "text"),
    [
        (3, None, None, "In the queue."),
        (3, {"error": "?"}, {"place": None}, "In the queue."),
        (
            130,
            {"p50": 600.0, "p95": 3000.0},
            {"place": 3, "of": 12, "partition": "gpu"},
            "In the queue for 2 min. Place 3 of 12 in partition gpu. "
            "Expected when it was submitted: about 10 min (up to 1 h).",
        ),
        (400, {"p50": 60.0, "p95": 300.0}, None, "longer than 19 of 20 such jobs"),
    ],
)
def test_what_is_said_while_it_waits(waited, expected, turn, text):
    assert text in pending_text(waited, expected, turn)


class Asked:
    """Answers when it may, and counts."""

    def __init__(self, error=None):
        self.requests: Counter[str] = Counter()
        self.may = threading.Event()
        self.error = error

    def __call__(self, path, request, patience):
        self.requests[request["op"]] += 1
        assert self.may.wait(10)
        if self.error:
            raise self.error
        return {"jobs": request.get("jobs")}


def test_a_thousand_who_look_at_once_ask_once():
    clock, asked = [0.0], Asked()

    async def run():
        answers = SharedAnswers(asked, lambda: clock[0])
        waiting = [asyncio.ensure_future(answers.expect("s", [{"nodes": 1}], 1.0)) for _ in range(1000)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # who goes away takes the answer from nobody
        asked.may.set()
        found = await asyncio.gather(*waiting[1:])
        assert all(one == {"jobs": [{"nodes": 1}]} for one in found)
        clock[0] = 4.9
        await answers.expect("s", [{"nodes": 1}], 1.0)
        assert asked.requests == {"expect": 1}
        clock[0] = 5.1
        await answers.expect("s", [{"nodes": 1}], 1.0)
        await answers.turn("s", 7, 1.0)
        assert asked.requests == {"expect": 2, "turn": 1}

    asyncio.run(run())


def test_that_nobody_answers_is_found_out_once():
    asked = Asked(AgentSilent("none"))
    asked.may.set()

    async def run():
        answers = SharedAnswers(asked, lambda: 0.0)
        for _ in range(20):
            with pytest.raises(AgentSilent):
                await answers.expect("s", [], 1.0)

    asyncio.run(run())
    assert asked.requests == {"expect": 1}
