from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from dmr import credential, wire
from dmr.client import Client

GOOD = wire.CheckReply(action="none", size=2, epoch=0)


def check() -> wire.Check:
    return wire.Check(job=1, epoch=0, size=2, minimum=1, maximum=8)


class Server:
    """One reply per line, made by `reply(line, connection)`; None closes the connection."""

    def __init__(self, reply: Callable[[bytes], bytes | None]) -> None:
        self.reply = reply
        self.connections: list[socket.socket] = []
        self.lines: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            for line in connection.makefile("rb"):
                self.lines.append(line)
                answer = self.reply(line)
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(answer)
        except OSError:
            pass

    def drop(self) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.drop()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # or one who waits for a connection still gets it
        self.listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[bytes], bytes | None]], Server]]:
    servers: list[Server] = []

    def start(reply: Callable[[bytes], bytes | None]) -> Server:
        servers.append(Server(reply))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def client(address: tuple[str, int], **options: object) -> Client:
    return Client(address, **{"timeout": 0.5, "sign": lambda digest: "key:x", **options})


def test_the_connection_is_kept_and_reopened(serve) -> None:
    server = serve(lambda line: wire.encode(GOOD))
    c = client(server.address)
    assert [c.request(check()) for _ in range(3)] == [GOOD] * 3
    assert len(server.connections) == 1
    server.drop()
    time.sleep(0.05)
    assert c.request(check()) == GOOD
    assert len(server.connections) == 2
    assert len({wire.decode_request(line).request.id for line in server.lines}) == 4


def drip(line: bytes) -> bytes:
    time.sleep(3)
    return b""


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda line: None, id="closes"),
        pytest.param(lambda line: b"hello\n", id="garbage"),
        pytest.param(lambda line: b"\xff" * 100_000 + b"\n", id="endless"),
        pytest.param(lambda line: b'{"v":1,"ok":true,"action":"explode"}\n', id="wrong"),
        pytest.param(lambda line: wire.encode(GOOD) * 2, id="two replies at once"),
        pytest.param(lambda line: wire.encode(GOOD)[:-5], id="half a reply"),
        pytest.param(lambda line: b"", id="silence"),
        pytest.param(drip, id="late"),
    ],
)
def test_every_failure_is_no_action_in_time(serve, caplog: pytest.LogCaptureFixture, reply) -> None:
    server = serve(reply)
    c = client(server.address)
    began = time.monotonic()
    with caplog.at_level(logging.INFO, "dmr"):
        assert c.request(check()) is None
        assert time.monotonic() - began < 2.5
        again = time.monotonic()
        assert all(c.request(check()) is None for _ in range(1000))
        assert time.monotonic() - again < 0.3
    assert len(caplog.records) == 1


def test_a_hanging_signature_is_late_too(serve) -> None:
    server = serve(lambda line: wire.encode(GOOD))
    began = time.monotonic()
    assert client(server.address, sign=lambda digest: time.sleep(5) or "").request(check()) is None
    assert time.monotonic() - began < 2.5


def test_no_credential_is_a_failure(serve, caplog: pytest.LogCaptureFixture) -> None:
    def sign(digest: str) -> str:
        raise credential.CredentialError("munged does not answer at its socket")

    server = serve(lambda line: wire.encode(GOOD))
    assert client(server.address, sign=sign).request(check()) is None
    assert "munged does not answer" in caplog.text


def test_back_off_doubles_up_to_a_minute_and_ends_with_success(serve, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = unused.getsockname()
    now = [1000.0]
    c = client(address, clock=lambda: now[0])
    tries = []
    failed = c._failed
    c._failed = lambda why: (tries.append(now[0]), failed(why))  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO, "dmr"):
        for _ in range(4000):
            assert c.request(check()) is None
            now[0] += 0.1
        gaps = [round(b - a) for a, b in pairwise(tries)]
        assert gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
        c._addresses = (serve(lambda line: wire.encode(GOOD)).address,)
        assert c.request(check()) is None
        assert c.request(check(), urgent=True) == GOOD
        assert c.request(check()) == GOOD
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize(("error", "healthy"), [("busy", True), ("stale-epoch", True), ("not-permitted", False)])
def test_refusals(serve, caplog: pytest.LogCaptureFixture, error: str, healthy: bool) -> None:
    server = serve(lambda line: wire.encode(wire.Failure(error=error, message="why")))
    c = client(server.address)
    assert c.request(check()) == wire.Failure(error=error, message="why")
    assert (c.request(check()) is not None) is healthy
    assert len(caplog.records) == (not healthy)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("", None),
        ("login1", None),
        ("login1:", None),
        (":80", None),
        ("login1:0", None),
        ("login1:99999", None),
        ("login1:²", None),
        ("login1:7070", ("login1", 7070)),
        ("[::1]:7070", ("::1", 7070)),
    ],
)
def test_the_address(monkeypatch: pytest.MonkeyPatch, value: str, address: object) -> None:
    monkeypatch.setenv("DMR_AGENT", value)
    c = Client.from_environment()
    assert (c and c._address) == address


@pytest.mark.parametrize("value", ["x", "nan", "inf", "-1", "0", "3601", "1e10"])
def test_a_wrong_time_limit_becomes_the_default(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DMR_AGENT", "a:1")
    monkeypatch.setenv("DMR_TIMEOUT", value)
    assert Client.from_environment()._timeout == 2.0


def test_a_request_may_be_fetched_later(serve) -> None:
    go = threading.Event()
    server = serve(lambda line: go.wait(5) and wire.encode(GOOD))
    c = client(server.address, timeout=5.0)
    pending = c.start(check())
    assert not pending.ready()
    began = time.monotonic()
    go.set()
    while not pending.ready() and time.monotonic() - began < 5:
        time.sleep(0.001)
    assert c.finish(pending) == GOOD
    assert c.request(check()) == GOOD
    assert len(server.connections) == 1


def test_a_request_beside_one_under_way_has_a_connection_of_its_own(serve) -> None:
    first = threading.Event()
    lines = []

    def reply(line: bytes) -> bytes:
        lines.append(line)
        if len(lines) == 1:
            first.wait(5)
        return wire.encode(GOOD)

    server = serve(reply)
    c = client(server.address, timeout=5.0)
    pending = c.start(check())
    while not lines:
        time.sleep(0.001)
    assert c.request(check()) == GOOD
    first.set()
    assert c.finish(pending) == GOOD
    assert c.request(check()) == GOOD
    assert len(server.connections) == 2


def test_nothing_is_started_within_the_back_off(serve) -> None:
    server = serve(lambda line: None)
    c = client(server.address)
    assert c.finish(c.start(check())) is None
    assert c.start(check()) is None
    assert c.start(check(), urgent=True) is not None


def test_where_the_agent_may_be_on_several_hosts_the_next_is_asked_at_once(serve, caplog) -> None:
    now = [0.0]
    first, second = serve(lambda line: wire.encode(GOOD)), serve(lambda line: wire.encode(GOOD))
    gone = socket.create_server(("127.0.0.1", 0))
    nowhere = gone.getsockname()
    gone.close()
    c = client(first.address, others=(nowhere, second.address), clock=lambda: now[0])
    assert c.request(check()) == GOOD
    first.close()
    with caplog.at_level(logging.INFO, "dmr"):
        # A check that fails is no action; the one after the next finds the other agent, without any wait.
        assert [c.request(check()) for _ in range(4)] == [None, None, GOOD, GOOD]
    assert len(second.connections) == 1
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert len(said) == 2 and "answers again" in said[1] and str(second.address[1]) in said[1]
    # Nobody at all: after each round it waits, and ever longer.
    second.close()
    asked = []
    for _ in range(1000):
        before = c._turn
        c.request(check())
        if c._turn != before:
            asked.append(now[0])
        now[0] += 0.25
    assert len(asked) <= 33 and asked[3] - asked[0] <= 2.5, asked
    assert asked[-1] - asked[-4] >= 60.0, "a round in a minute"


def test_an_agent_that_says_no_is_not_left_for_another_host(serve) -> None:
    busy = serve(lambda line: wire.encode(wire.Failure(error="unavailable")))
    other = serve(lambda line: wire.encode(GOOD))
    c = client(busy.address, others=(other.address,))
    assert isinstance(c.request(check(), urgent=True), wire.Failure)
    assert isinstance(c.request(check(), urgent=True), wire.Failure)
    assert not other.connections


@pytest.mark.parametrize(
    ("value", "others"),
    [
        ("", ()),
        ("login2:7070", (("login2", 7070),)),
        ("login1:7070,login2:7070,,[::1]:7070", (("login2", 7070), ("::1", 7070))),
        ("login2,login3:7070", (("login3", 7070),)),
        (",".join(f"h{i}:1" for i in range(20)), tuple((f"h{i}", 1) for i in range(7))),
    ],
)
def test_the_other_addresses(monkeypatch: pytest.MonkeyPatch, value: str, others: object) -> None:
    monkeypatch.setenv("DMR_AGENT", "login1:7070")
    monkeypatch.setenv("DMR_AGENT_OTHERS", value)
    c = Client.from_environment()
    assert c is not None and c._addresses == (("login1", 7070), *others)
