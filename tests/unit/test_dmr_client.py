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
from dmr.session import Session, node_list

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
        assert time.monotonic() - began < 1.5
        again = time.monotonic()
        assert all(c.request(check()) is None for _ in range(1000))
        assert time.monotonic() - again < 0.3
    assert len(caplog.records) == 1


def test_a_hanging_signature_is_late_too(serve) -> None:
    server = serve(lambda line: wire.encode(GOOD))
    began = time.monotonic()
    assert client(server.address, sign=lambda digest: time.sleep(5) or "").request(check()) is None
    assert time.monotonic() - began < 1.5


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
        c._address = serve(lambda line: wire.encode(GOOD)).address
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


@pytest.mark.parametrize("value", ["x", "nan", "inf", "-1", "0"])
def test_a_wrong_time_limit_becomes_the_default(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DMR_AGENT", "a:1")
    monkeypatch.setenv("DMR_TIMEOUT", value)
    assert Client.from_environment()._timeout == 2.0


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ""),
        ({"epoch": 3}, "already finished"),
        ({"epoch": 2}, "already finished"),
        ({"size": 16}, "outside"),
        ({"size": 3}, "not reachable"),
        ({"action": "shrink"}, "shrink from 2 to 4"),
        ({"size": 2}, "expand from 2 to 2"),
    ],
)
def test_answers_are_doubted(monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], wrong: str) -> None:
    """Only a resize that fits what was asked is passed on; another is refused, or ignored when its epoch is old."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    values = {"action": "expand", "size": 4, "epoch": 4} | changes
    reply = wire.CheckReply(**values, nodes=tuple(f"n{i}" for i in range(values["size"])))

    sent: list[wire.Request] = []

    class Agent:
        def request(self, request: wire.Request, *, urgent: bool = False) -> wire.Reply:
            sent.append(request)
            return reply if request.op == "check" else wire.Done()

    session = Session()
    session.epoch, session.client = 3, Agent()  # type: ignore[assignment]
    verdict = session.decide(2, 1, 8, 2, None)
    assert verdict.reply == (None if wrong else reply)
    refusals = [r for r in sent if isinstance(r, wire.Refuse)]
    assert [wrong in r.why for r in refusals] == [True] * (bool(wrong) and reply.epoch > 3)


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        ("2:6", (2, 6, None, 2)),
        ("2:6:4", (2, 6, 4, 2)),
        ("2:6:4:3", (2, 6, 4, 3)),
        ("", (1, 8, 5, 2)),
        ("2", (1, 8, 5, 2)),
        ("a:b", (1, 8, 5, 2)),
    ],
)
def test_the_environment_may_set_other_limits(monkeypatch: pytest.MonkeyPatch, sizes: str, asked: tuple) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("DMR_SIZES", sizes)
    sent: list[wire.Check] = []

    class Agent:
        def request(self, request: wire.Check) -> None:
            sent.append(request)

    session = Session()
    session.client = Agent()  # type: ignore[assignment]
    session.decide(2, 1, 8, 2, 5)
    assert (sent[0].minimum, sent[0].maximum, sent[0].preferred, sent[0].factor) == asked


@pytest.mark.parametrize(
    ("names", "per_node", "nodes"),
    [
        (["a", "b"], 1, ("a", "b")),
        (["a", "a", "b", "b"], 2, ("a", "b")),
        (["a", "b", "a", "b"], 2, ()),
        (["a", "a"], 1, ()),
        (["a", "a", "b"], 2, ()),
        (["a", "b", "a"], 1, ()),
        (["", ""], 1, ()),
        (["a", ""], 1, ()),
    ],
)
def test_nodes_are_named_only_when_sure(names: list[str], per_node: int, nodes: tuple[str, ...]) -> None:
    assert node_list(names, per_node) == nodes
