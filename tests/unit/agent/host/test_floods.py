"""Every door answers, whatever other accounts do at it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from floods import ASKER, KINDS, ONLY_ROOT, OTHERS, answered, flood
from ipc_doors import UID, Door
from view_scene import Scene

from outside import need_program
from penstock.core.metrics import Metrics
from penstock.host import descriptors, owners, scrape
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.server import Server
from penstock.site.look import wire
from penstock_lab.cluster.layout import reserved_ports
from waiting import until

pytestmark = ONLY_ROOT

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOLD = "penstock_build_info"
ALL = 18


@contextlib.contextmanager
def metrics():
    """/metrics of an agent."""
    server = Metrics().serve("127.0.0.1:0")
    try:
        yield f"127.0.0.1:{server.server_port}", server
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def running(opened):
    """`opened`, an asynchronous context manager, in a loop and a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    try:
        there = do(opened.__aenter__())
        try:
            yield there
        finally:
            do(opened.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@pytest.fixture
def folder():
    """Where other accounts may go."""
    place = Path(tempfile.mkdtemp(prefix="penstock-flood-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@contextlib.asynccontextmanager
async def agent_doors(folder):
    """The agent's doors: (path of its socket, HOST:PORT for programs, server)."""
    door = Door()

    async def echo(uid, request):
        return {"said": request["text"]}

    server = Server(LocalDoor({"echo": echo}).answer, door.door.hear, owners.first_peers())
    try:
        port = await server.listen_tcp("127.0.0.1", 0)
        await server.listen_unix(folder / "agent.sock")
        yield folder / "agent.sock", f"127.0.0.1:{port}", server, door
    finally:
        await server.close()


# -- /metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [8, 100])
def test_every_scrape_is_answered_during_an_attack_of_another_account(kind, number):
    with metrics() as (place, _server), flood(kind, place, number, SCRAPE):
        assert answered(place, SCRAPE, TOLD) == ALL


@pytest.mark.parametrize("kind", ["idle", "dribble"])
def test_every_scrape_is_answered_though_more_accounts_attack_than_there_are_shares(kind):
    accounts = range(OTHERS, OTHERS + 6)
    with metrics() as (place, server), flood(kind, place, 10, SCRAPE, accounts):
        assert answered(place, SCRAPE, TOLD) == ALL
        assert len(server.gate) <= server.most
        assert max(server.gate._of_peer.values()) <= server.most // 4


LARGE = b"x" * 12_000_000 + TOLD.encode()


def large(_environ, start_response):
    """More than all buffers between here and a peer that does not read."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [LARGE]


def test_who_reads_no_answer_does_not_keep_a_place_and_who_is_named_does_not_wait_for_it(monkeypatch):
    monkeypatch.setattr(scrape.Scraped, "patience", 3.0)
    accounts = range(OTHERS, OTHERS + 5)
    with metrics() as (place, server):
        server.set_app(large)
        server.first = {f"uid {ASKER}"}
        with flood("deaf", place, 8, SCRAPE, accounts):
            until(lambda: len(server.gate) == server.most, "all places to be taken")
            assert answered(place, SCRAPE, TOLD, number=3) == 3
        until(lambda: len(server.gate) == 0, "those who are gone to be forgotten")


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"GET "])
def test_a_byte_now_and_then_keeps_no_place(monkeypatch, sent):
    monkeypatch.setattr(scrape.Scraped, "patience", 2.0)
    with metrics() as (place, server):
        host, _, port = place.rpartition(":")
        with socket.create_connection((host, int(port)), 60) as slow:
            slow.sendall(sent)
            began = time.monotonic()
            with contextlib.suppress(OSError):  # ended, also in the midst of it
                while time.monotonic() < began + 30:
                    slow.sendall(b"x")
                    if select.select([slow], [], [], 0.3)[0] and slow.recv(1) == b"":
                        break
            assert 1.0 < time.monotonic() - began < 25.0
        until(lambda: len(server.gate) == 0, "its place to be free")


def test_a_service_without_netlink_counts_by_account_as_well(monkeypatch):
    def none(*_ends):
        raise PermissionError

    monkeypatch.setattr(owners, "_by_netlink", none)
    with metrics() as (place, server), flood("idle", place, 10, SCRAPE):
        assert answered(place, SCRAPE, TOLD, number=3) == 3
        assert server.gate._of_peer[f"uid {OTHERS}"] <= server.most // 4


# -- the site's view ---------------------------------------------------------------------------------------------------

LOOK = wire.encode_request({})


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sites_view_answers_during_an_attack(folder, kind):
    # It asks no more often than it may.
    with running(Scene(folder)) as scene, flood(kind, scene.path, 100, LOOK):
        assert answered(scene.path, LOOK, '"jobs"', pause=0.1) == ALL


def test_the_sites_view_is_not_taken_by_many_accounts(folder, monkeypatch):
    monkeypatch.setattr(descriptors, "room", lambda: 64)  # fewer than they come with
    with running(Scene(folder)) as scene, flood("idle", scene.path, 20, LOOK, range(OTHERS, OTHERS + 6)):
        until(lambda: len(scene.service._guests) == 56, "all places to be taken")
        assert answered(scene.path, LOOK, '"jobs"') == ALL
        assert len(scene.service._guests) <= 56


# -- the agent's own ---------------------------------------------------------------------------------------------------

ECHO = b'{"op": "echo", "text": "hello"}\n'


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_is_answered_during_an_attack(folder, kind):
    with running(agent_doors(folder)) as (path, _place, _server, _door), flood(kind, path, 100, ECHO):
        assert answered(path, ECHO, "hello") == ALL


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_programs_are_answered_during_an_attack(folder, kind):
    with running(agent_doors(folder)) as (_path, place, _server, door), flood(kind, place, 600, b'{"op": "x"}\n'):
        said = [answered(place, door.line(door.check()), '"action"', number=1) for _ in range(3)]
        assert said == [1] * 3


def test_who_has_asked_once_and_stays_makes_room_for_others(folder, monkeypatch):
    """Accounts enough to fill the door, each of whose connections has been answered."""
    monkeypatch.setattr(descriptors, "room", lambda: 60)
    with running(agent_doors(folder)) as (path, _place, server, _door):
        guests = server._doors["local"]
        assert guests.gate.bounds.most == 17
        with flood("asked", path, 5, ECHO, range(OTHERS, OTHERS + 6)):
            until(lambda: len(guests) == 17, "all places to be taken")
            assert answered(path, ECHO, "hello", number=5) == 5
            assert answered(path, ECHO, "hello", number=1, uid=os.geteuid()) == 1


def test_one_user_with_a_credential_keeps_no_others_programs_out(folder, monkeypatch):
    """By connections from this host that have all proven whose they are, and stay."""
    monkeypatch.setattr("penstock.ipc.server._MAX_PER_ADDRESS", 10)
    with running(agent_doors(folder)) as (_path, place, server, door):
        guests, kept = server._doors["remote"], []
        host, _, port = place.rpartition(":")
        for _ in range(30):
            one = socket.create_connection((host, int(port)), 60)
            one.sendall(door.line(door.check()))
            assert b"action" in one.recv(65536)
            kept.append(one)
        assert guests.gate._of_peer == {f"uid {UID}": 10}
        assert answered(place, door.line(door.check()), '"action"', number=1) == 1
        for one in kept:
            one.close()


@pytest.mark.long
@pytest.mark.parametrize("number", [8, 100])
def test_a_real_prometheus_sees_the_agent_up_all_the_time(folder, number):
    program = need_program("prometheus", "prometheus")
    with metrics() as (place, _server), flood("idle", place, number, SCRAPE), reserved_ports(1) as (port,):
        jobs = [{"job_name": "penstock", "static_configs": [{"targets": [place]}]}]
        settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
        os.chown(folder, ASKER, ASKER)
        (folder / "p.yml").write_text(json.dumps(settings))
        words = [f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        words += [f"--web.listen-address=127.0.0.1:{port}"]

        def value(query):
            url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            try:
                with urllib.request.urlopen(url, timeout=20) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                return 0.0
            return float(found[0]["value"][1]) if found else 0.0

        with (folder / "log").open("wb") as log, subprocess.Popen(
            [program, *words], stdout=log, stderr=log, user=ASKER, group=ASKER, extra_groups=[], cwd="/"
        ) as prometheus:  # fmt: skip
            try:
                until(lambda: value("count_over_time(up[1h])") >= ALL, (folder / "log").read_text)
                assert value("min_over_time(up[1h])") == 1.0
            finally:
                prometheus.kill()
