"""docs/security.md names every request of both doors, and the limits that it states are those of the program."""

from __future__ import annotations

import asyncio
import re

from dmr import wire
from penstock.app import App
from penstock.config import AgentSection, LimitsSection, config_of
from penstock.host import descriptors, gate, owners
from penstock.ipc import auth, handlers, server
from penstock.ipc.inbox import LATER
from penstock.state.store import Store
from penstock.values.fair import UserShare
from penstock.workflow.run import measure, seen
from penstock.workflow.submit import admission
from penstock_lab.mock.backend import virtual_cluster
from places import PROJECT

PAGE = (PROJECT / "docs" / "security.md").read_text(encoding="utf-8")


def section(title):
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title!r}"
    return found[1]


def requests_in(title):
    return re.findall(r"^\| `([a-z]+)` \| [^|]+ \| [^|]+ \|$", section(title), re.MULTILINE)


def test_every_request_of_the_command_line_is_on_the_page():
    backend = virtual_cluster(start=1e9)
    app = App(config_of({}), backend, backend.clock, Store(":memory:"))

    async def run():
        await app.start()
        known = sorted(app.operations)
        await app.close()
        return known

    assert sorted(requests_in("Requests of the command line (Unix socket)")) == asyncio.run(run())


def test_every_request_of_programs_is_on_the_page():
    assert sorted(requests_in("Requests of MPI programs (TCP)")) == sorted(wire._REQUESTS)


def test_the_requests_that_may_be_left_are_on_the_page():
    said = re.search(r"no agent ran \(([^)]+)\)", PAGE)[1]
    assert tuple(re.findall(r"`([a-z]+)`", said)) == LATER


def test_the_limits_are_those_of_the_program():
    agent, limits = AgentSection(), section("Limits on one user")
    for said in (
        f"`agent.request_burst` {agent.request_burst}",
        f"`agent.requests_per_second` {agent.requests_per_second:g}",
        f"{server._MAX_PER_USER} a user, {server._MAX_PER_ADDRESS} an address",
        f"a /{owners._OF_A_HOST} of IPv6, is one), {server._MAX_CONNECTIONS:,} a door",
        f"{server._LOCAL_LINE >> 20} MB at the socket, {wire.MAX_LINE >> 10} KB over TCP",
        f"{server._MOST_HELD >> 20} MB",
        f"{server._FIRST_LINE:g} s until",
        f"{auth._MAX_DECODING}, each at most {auth._MUNGE_LIMIT:g} s",
    ):
        assert said in limits, said
    assert (server._UNPROVEN, server._IDLE, auth.FRESH) == (60.0, 3600.0, 300.0), "a minute, an hour, five minutes"
    guide = section("Requests of the command line (Unix socket)")
    assert f"{measure.MOST_OPEN:,} open workflows, {admission.MOST_STAGES:,} stages" in guide
    assert f"{admission._MOST_TEXT // 1_000_000} MB of text" in guide
    assert f"{measure.MOST_TEXT // 1_000_000} MB in all" in guide
    assert f"asked for it {seen.UNSEEN_TRIES} times" in guide
    assert (handlers._CHEAP, f"up to {handlers._DEAREST:g}" in limits) == (0.01, True), "10 ms"
    assert f"{server._MAX_ANONYMOUS:,} a door" in limits
    assert (gate.SHARE, "a quarter of a door" in limits) == (4, True)
    assert [descriptors.reserve(n) for n in (64, 1024, 10**6)] == [24, 128, 1024]
    assert server._SHARES == {"local": 1, "far": 1, "remote": 2}, "a quarter or more"


def test_the_limits_page_has_the_defaults():
    page = (PROJECT / "docs" / "limits.md").read_text(encoding="utf-8")
    limits = LimitsSection()
    for key in (
        "stages_of_user",
        "dependencies_of_user",
        "unseen_of_user",
        "work_of_user",
        "changes_of_user",
        "lookups",
    ):
        assert f"  {key}: {getattr(limits, key)}\n" in page
        assert f"| `{key}` |" in page
    assert limits.share == UserShare()
    assert f"(asked {seen.UNSEEN_TRIES} times)" in page
    assert seen.UNSEEN_PAUSE * (2 ** (seen.UNSEEN_TRIES - 1) - 1) == 225, "four minutes"
