"""Who sees everything, and may pause everybody: root, the agent's user, and whom Slurm says is an operator."""

from __future__ import annotations

import asyncio
import os

from penstock.core import callers as module
from penstock.core.callers import Callers
from penstock.errors import SlurmUnavailable

ALICE, OPER = 1000, 1001


class Site:
    """A clock, and accounting that may not answer; user ids are called by their names."""

    def __init__(self, monkeypatch, *names, serves=lambda _uid: True):
        self.time, self.names, self.asked = 0.0, names, 0
        monkeypatch.setattr(module, "login", {ALICE: "alice", OPER: "oper"}.__getitem__)
        self.known = Callers(self.operators, self, serves)

    def now(self):
        return self.time

    async def operators(self):
        self.asked += 1
        if self.names is None:
            raise SlurmUnavailable("no accounting at this moment")
        return frozenset(self.names)

    def include(self, uid):
        return asyncio.run(self.known.above(uid))


def test_root_and_the_agents_user_need_no_question(monkeypatch):
    site = Site(monkeypatch)
    assert site.include(0) and site.include(os.geteuid())
    assert site.asked == 0


def test_slurm_says_who_is_an_operator_and_is_asked_again_after_a_while(monkeypatch):
    site = Site(monkeypatch, "oper")
    assert (site.include(OPER), site.include(ALICE), site.asked) == (True, False, 1)
    site.names, site.time = ("alice",), 599.0
    assert (site.include(OPER), site.include(ALICE), site.asked) == (True, False, 1)
    site.time = 600.0
    assert (site.include(OPER), site.include(ALICE), site.asked) == (False, True, 2)


def test_nobody_is_one_while_slurm_does_not_say(monkeypatch):
    site = Site(monkeypatch, "oper")
    assert site.include(OPER)
    site.names, site.time = None, 600.0
    assert not site.include(OPER)
    assert not site.include(OPER)
    assert site.asked == 2
    site.names, site.time = ("oper",), 630.0
    assert site.include(OPER)


def test_operators_stay_operators_while_slurm_is_asked_again(monkeypatch):
    site = Site(monkeypatch, "oper")
    assert site.include(OPER)
    site.time = 600.0
    meanwhile = []

    async def slowly():
        meanwhile.append(await site.known.above(OPER))
        return frozenset({"oper"})

    monkeypatch.setattr(site.known, "_ask", slowly)
    assert site.include(OPER)
    assert meanwhile == [True]


def test_an_agent_of_ones_own_asks_nothing_for_others(monkeypatch):
    site = Site(monkeypatch, "oper", serves=lambda _uid: False)
    assert not site.include(OPER)
    assert site.asked == 0
