"""The soak's pauses: none is left when the agent says so, be it by an error that there is nothing to lift."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from penstock.errors import AgentUnavailable, NotFound, PenstockError
from penstock_lab.soak.pauses import SoakPauses


class Agent:
    """A site whose agent loses the answers to what it is told for as long as `deaf`."""

    cluster = SimpleNamespace(user=lambda _name: SimpleNamespace(uid=1001))

    def __init__(self) -> None:
        self.paused = 0
        self.deaf = self.dead = False

    def ask(self, op, **arguments):
        try:
            return self.request(op, **arguments)
        except PenstockError:
            return None

    def request(self, op, **_arguments):
        if self.dead:
            raise AgentUnavailable("no agent")
        if op == "resume" and not self.paused:
            raise NotFound("nothing of that is paused")
        self.paused = self.paused + 1 if op == "pause" else 0
        if self.deaf:
            raise AgentUnavailable("no answer")
        return {"pauses": []}


@pytest.fixture
def agent():
    return Agent()


@pytest.fixture
def pauses(agent):
    return SoakPauses(agent, random.Random(1), Counter(), lambda _text: None)


def test_pauses_are_lifted(agent, pauses):
    pauses.pause()
    assert pauses.on
    assert pauses.resume()
    assert not pauses.on
    assert agent.paused == 0


def test_a_pause_that_never_came_to_be_is_not_asked_for_for_ever(agent, pauses):
    agent.dead = True
    pauses.pause()
    assert not pauses.resume()
    agent.dead = False
    assert pauses.resume()
    assert not pauses.on


def test_nor_is_one_whose_lifting_was_not_answered(agent, pauses):
    pauses.pause()
    agent.deaf = True
    assert not pauses.resume()
    agent.deaf = False
    assert pauses.resume()
    assert not pauses.on
