"""What libdmr sends and reads is what dmr.wire means, and no bytes whatever make it read or write where it must not.

The library runs under the address and undefined-behaviour sanitizers, in a process of its own: a finding ends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from dmr import credential, line, plan, wire, worlds
from dmr_c_build import built, preload

HARNESS = Path(__file__).with_name("dmr_c_harness.py")
Call = Callable[..., object]


class Harness:
    """The process with the library."""

    def __init__(self, **environment: str) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DMR")}
        self._process = subprocess.Popen(
            [sys.executable, str(HARNESS), str(built("plain") / "libdmrplain.so")],
            env=inherited | preload() | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, function: str, *arguments: object) -> object:
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._process.stdin.write(json.dumps([function, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._process.stderr.read()[-4000:]
        return json.loads(answer)

    def end(self) -> str:
        """What it said on standard error; it must end well."""
        _, said = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, said
        return said


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, credential.Key]:
    path = tmp_path_factory.mktemp("c") / "key"
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(100))
    return path, credential.load_key(path)


@pytest.fixture(scope="module")
def library(key: tuple[Path, credential.Key]) -> Iterator[Call]:
    harness = Harness(DMR_KEY_FILE=str(key[0]))
    yield harness
    assert "ERROR" not in harness.end()


def test_sha256_and_hmac(library: Call) -> None:
    for length in (*range(130), 1000, 5000):
        text = "x" * length
        assert library("sha256", text, None) == hashlib.sha256(text.encode()).hexdigest()
    for length in (0, 1, 63, 64, 65, 200):
        assert library("sha256", "text", "k" * length) == hmac.digest(b"k" * length, b"text", "sha256").hex()


CHECK = {"size": 4, "minimum": 1, "maximum": 8, "factor": 2, "preferred": 0, "per_node": 2, "nodes": ["n1", "n2"]}
SECONDS = (0.0, 0.001, 0.0004, 0.25, 1.0, 12.345678, 99999.999, 1e6 + 0.1, -1.0)


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("check", CHECK),
        ("check", {**CHECK, "preferred": 8, "nodes": []}),
        ("check", {**CHECK, "companion": True}),
        ("check", {**CHECK, "maximum": 2**31 - 1, "nodes": [f"node-{i}.cluster" for i in range(1000)]}),
        ("accept", {}),
        ("refuse", {"why": 'no "space"\\ for\n\tthat: ä \x7f \ud800'}),
        ("refuse", {"why": "x" * 5000}),
        ("refuse", {"why": ""}),
        *(("finished", {"size": 8, "nodes": ["a", "b"], "spawn": s, "move": 2 * s}) for s in SECONDS),
    ],
)
def test_requests_are_those_of_the_protocol(
    library: Call, key: tuple[Path, credential.Key], kind: str, rest: dict[str, object]
) -> None:
    line, problem = library("request", kind, 2**31 - 1, 7, rest)
    assert line is not None, problem
    request, digest = wire.decode_request(line.encode())
    assert credential.verify_key(request.auth, digest, key[1]) == os.getuid()
    assert (request.job, request.epoch) == (2**31 - 1, 7)
    again, _ = library("request", kind, 1, 0, rest)
    assert wire.decode_request(again.encode()).request.id != request.id
    if isinstance(request, wire.Check):
        wanted = {**rest, "preferred": rest["preferred"] or None, "nodes": tuple(rest["nodes"])}
        assert {name: getattr(request, name) for name in wanted} == wanted
        assert request.method == "replace" and request.companion == rest.get("companion", False)
        assert request.requests_nodes == request.companion
    if isinstance(request, wire.Finished):
        assert request.size == 8 and request.nodes == ("a", "b")
        assert request.timings["spawn"] == pytest.approx(max(rest["spawn"], 0), abs=0.0006)
        assert request.timings["move"] == pytest.approx(max(rest["move"], 0), abs=0.0006)
    if isinstance(request, wire.Refuse):
        assert len(request.why) <= wire.MAX_TEXT and request.why[:3] == rest["why"][:3]


def test_a_request_that_is_too_long_is_not_sent(library: Call) -> None:
    nodes = ["n" * 200 + str(i) for i in range(1000)]
    assert library("request", "check", 1, 0, {**CHECK, "nodes": nodes}) == [None, ""]


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [(None, 0o600, "No such file"), (b"x" * 31, 0o600, "shorter than 32"), (b"x" * 32, 0o644, "chmod 600")],
)
def test_a_key_file_that_is_unfit(tmp_path: Path, content: bytes | None, mode: int, why: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    harness = Harness(DMR_KEY_FILE=str(path))
    line, problem = harness("request", "accept", 1, 1, {})
    assert line is None and why in problem and str(path) in problem
    harness.end()


NODES = wire.NodeRequest(name="penstock-7-x", node_count=2, time_limit=60.0, patience=9.5, gres="gpu:a100:2")
GOOD: list[wire.Reply] = [
    wire.Done(),
    wire.Failure(error="stale-epoch", message="too late"),
    wire.CheckReply(action="none", size=4, epoch=0),
    wire.CheckReply(action="expand", size=8, epoch=3, nodes=("n1", "n2"), per_node=4, companion=12, reason="idle"),
    wire.CheckReply(action="shrink", size=2**31 - 1, epoch=2**31 - 1, nodes=("a.b-c_d",), per_node=2**31 - 1),
    wire.CheckReply(action="none", size=1, epoch=1, reason="ä€𝄞" * 100),
    wire.CheckReply(action="none", size=1, epoch=1, node_request=NODES),
]
ODD = [
    b"",
    b"{}",
    b"[]",
    b'{"v":1,"ok":true}',
    b' {"v" : 1 , "ok" : true , "more" : [ { } , [ ] , -1.5e+3 , null , "\\ud834\\udd1e\\n" ] }\r\n',
    b'{"v":1,"ok":true,"v":1}',
    b'{"v":1.0,"ok":true}',
    b'{"v":true,"ok":true}',
    b'{"v":1,"ok":1}',
    b'{"v":01,"ok":true}',
    b'{"v":1,"ok":true,}',
    b'{"v":1,"ok":true} x',
    b'{"v":1,"ok":true',
    b'{"v":1,"ok":true,"x":"\\u12"}',
    b'{"v":1,"ok":true,"x":"\xff"}',
    b'{"v":1,"ok":true,"x":"\xc0\x80"}',
    b'{"v":1,"ok":true,"x":"\xed\xa0\x80"}',
    b'{"v":1,"ok":true,"x":"\x01"}',
    b'{"v":1,"ok":true,"x":NaN}',
    b'{"v":1,"ok":true,"x":' + b"[" * 50000 + b"]" * 10000 + b"}",
    b'{"v":1,"ok":true,"x":' + b"9" * 60000 + b"}",
    b'{"v":1,"ok":false,"error":"busy","message":"a\\u0000b"}',
    b'{"v":1,"ok":false,"error":"odd","message":""}',
    b'{"v":1,"ok":false,"error":"busy"}',
    b'{"v":1,"ok":false,"error":"busy","message":"' + b"x" * 501 + b'"}',
    b'{"v":1,"ok":true,"action":"none","size":4,"epoch":0,"nodes":["n1;rm"],"per_node":1,"companion":0,"reason":""}',
    b'{"v":1,"ok":true,"action":"none","size":4,"epoch":0,"nodes":["n1","n1"],"per_node":1,"companion":0,"reason":""}',
    b'{"v":1,"ok":true,"action":"none","size":4,"epoch":0,"nodes":["\\u006e1"],"per_node":1,"reason":""}',
    b'{"v":1,"ok":true,"action":"expand","size":4,"epoch":1,"nodes":["n1"],"per_node":3,"companion":0,"reason":""}',
    b'{"v":1,"ok":true,"action":"none","size":4294967300,"epoch":0,"nodes":[],"per_node":1,"companion":0,"reason":""}',
    b'{"v":1,"ok":true,"action":"none","size":4,"epoch":-1,"nodes":[],"per_node":1,"companion":0,"reason":""}',
    b'{"v":1,"ok":true,"action":"none","size":4,"epoch":0,"nodes":{},"per_node":1,"companion":0,"reason":""}',
    b'{"v":1,"ok":true,"action":"none","size":4,"epoch":0,"nodes":[],"per_node":1,"reason":"","node_request":null}',
    b'{"v":1,"ok":true,"action":"none","size":0,"epoch":0,"nodes":[],"per_node":1,"companion":0,"reason":""}',
]


def accepted_by_python(line: bytes) -> dict[str, object] | None:
    """What the harness should say of a reply, as dmr.wire reads it; None: refused."""
    try:
        it = wire.decode_reply(line)
    except wire.WireError:
        return None
    said: dict[str, object] = {"kind": "done", "word": "", "text": "", "nodes": []}
    said |= {"size": 0, "epoch": 0, "per_node": 0, "companion": 0}
    if isinstance(it, wire.Failure):
        return {"kind": "failure", "word": it.error, "text": plain(it.message)}
    if isinstance(it, wire.CheckReply):
        said = {"kind": "check", "word": it.action, "text": plain(it.reason), "nodes": list(it.nodes)}
        return said | {name: getattr(it, name) for name in ("size", "epoch", "per_node", "companion")}
    return {"kind": "done"}


def plain(text: str) -> str:
    return "".join(c if c.isascii() else "?" for c in text)


def judge(library: Call, line: bytes) -> bool:
    """Whether the library accepts the line; then it must say the same as dmr.wire."""
    said = library("reply", line.decode("latin-1"))
    if isinstance(said, str):
        return False
    expected = accepted_by_python(line)
    if expected is None:
        # What it takes and Python does not: odd characters beyond ASCII in a text, which it replaces; and a request for
        # nodes, which it hands on as it is: the launcher judges it.
        assert "?" in said["text"] or said["node_request"] is not None, (line, said)
        return True
    assert {name: said[name] for name in expected} == expected, line
    return True


def test_replies_of_the_agent_are_understood(library: Call) -> None:
    for reply in GOOD:
        assert judge(library, wire.encode(reply)), reply
    said = library("reply", wire.encode(GOOD[-1]).decode())
    assert said["node_request"] == asdict(NODES)


@pytest.mark.parametrize("number", range(len(ODD)))
def test_odd_replies(library: Call, number: int) -> None:
    assert judge(library, ODD[number]) == (accepted_by_python(ODD[number]) is not None and number != 5)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_replies(library: Call, seed: int) -> None:
    """Bytes changed, cut out, doubled, and pieces of other replies between: what is still accepted means the same."""
    chance = random.Random(seed)
    lines = [wire.encode(reply) for reply in GOOD] + [line for line in ODD if len(line) < 1000]
    accepted = 0
    for _ in range(1000):
        line = bytearray(chance.choice(lines))
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(line) + 1)
            to = min(len(line), at + chance.choice([0, 1, 1, 2, 3, 12]))
            other = chance.choice(lines)
            start = chance.randrange(len(other) + 1)
            line[at:to] = chance.choice(
                [
                    b"",
                    bytes([chance.randrange(256)]),
                    chance.choice([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\\u0", b"1e9", b"-", b"0"]),
                    bytes(line[at:to]) * 2,
                    other[start : start + chance.randint(1, 10)],
                ]
            )
        accepted += judge(library, bytes(line))
    assert 20 < accepted < 980


def test_node_names(library: Call) -> None:
    for name in ("n1", "a.b", "A-1_2.x", "9", "x" * 255):
        assert library("node", name)
    for name in ("", "-n", ".n", "_n", "n 1", "n:2", "n,m", "ä", "n\n", "x" * 256):
        assert not library("node", name)


def test_sizes(library: Call) -> None:
    chance = random.Random(1)
    for _ in range(400):
        current, per_node = chance.randint(1, 64), chance.choice([1, 1, 2, 3, 4])
        minimum = chance.randint(1, 40)
        maximum = minimum + chance.randint(0, 60)
        factor, preferred = chance.randint(1, 4), chance.choice([0, chance.randint(minimum, maximum)])
        fits = [
            size
            for size in range(minimum, maximum + 1)
            if size % per_node == 0 and plan.reachable(current, size, factor)
        ]
        sizes = list(range(1, 70))
        reached = [size for size in sizes if plan.reachable(current, size, factor)]
        assert library("reachable", current, sizes, factor) == reached
        found = library("nearest", current, per_node, minimum, maximum, factor, preferred)
        below = [size for size in fits if size <= preferred]
        assert found == (0 if not preferred or not fits else below[-1] if below else fits[0])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2:8", [2, 8, 3, 0]),
        ("2:8:4", [2, 8, 3, 4]),
        ("2:8:4:2", [2, 8, 2, 4]),
        *((text, None) for text in ("", "2", "2:", ":8", "8:2", "2:8:", "2:8:9", "2:8:0", "2:8:4:0", "2:8:4:2:1")),
        *((text, None) for text in ("0:8", "+2:8", "2 :8", "2:99999999999", "2:8x", "2:8:4:2x")),
    ],
)
def test_sizes_from_outside(library: Call, text: str, read: list[int] | None) -> None:
    assert library("read_sizes", text, 3) == read


@pytest.mark.parametrize("seed", range(4))
def test_worlds_are_those_of_the_python_library(library: Call, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        nodes = [f"n{i}" for i in range(chance.randint(1, 8))]
        jobs = {node: job for node in nodes if (job := chance.choice([0, 0, 7, 8, 3]))}
        per_node, before = chance.randint(1, 3), chance.randint(0, 9)
        expected = worlds.changes(["w"] * before, [""] * before, nodes, per_node, merge=False, jobs=jobs)
        holders, world_of, places = library("layout", [jobs.get(node, 0) for node in nodes], per_node)
        starts = [[node for node, at in zip(nodes, world_of, strict=True) if at == i] for i in range(len(holders))]
        assert starts == [list(start) for start in expected.starts]
        assert holders == [jobs.get(start[0], 0) for start in expected.starts]
        assert [before + place for place in places] == list(expected.new)


class TestLine:
    """To a launcher: the real server of the line, and what somebody else may answer."""

    SECRET = "s" * 64

    def harness(self, port: int, **more: str) -> Harness:
        # Where nobody listens first: as on nodes where the name of the launcher's host means nothing.
        addresses = f"nowhere.invalid:{port},127.0.0.1:1,127.0.0.1:{port}"
        return Harness(**{line.ADDRESS: addresses, line.SECRET: self.SECRET, **more})

    @pytest.fixture
    def asked(self) -> Iterator[tuple[int, list[dict]]]:
        """The port of a launcher, and what it was asked; job 9 has no nodes for it, and world w2 dies."""
        heard: list[dict] = []

        async def answer(request: dict) -> dict:
            heard.append(request)
            if request["op"] == "start":
                if any(world["job"] == 9 for world in request["worlds"]):
                    raise line.LineError('no "new" processes\\')
                return {"worlds": [[f"w{i}", f'tag#{i}$"\\$'] for i in range(1, len(request["worlds"]) + 1)]}
            if request["op"] == "joined" and "w2" in request["tickets"]:
                raise line.LineError("some of the new processes have ended")
            return {"met": request.get("ticket") != "late"}

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        server = asyncio.run_coroutine_threadsafe(line.serve(self.SECRET, answer), loop).result(20)
        yield server.sockets[0].getsockname()[1], heard
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)

    def test_worlds_are_started_and_joined(self, asked: tuple[int, list[dict]]) -> None:
        port, heard = asked
        harness = self.harness(port, DMR_START_TIMEOUT="33.5")
        assert harness("start", ["n1", "n2", "n3"], [0, 0, 0], 2) == [["w1", 'tag#1$"\\$']]
        said = harness("start", ["n1", "n2", "n3"], [7, 0, 7], 1)
        assert said == [["w1", 'tag#1$"\\$'], ["w2", 'tag#2$"\\$'], "some of the new processes have ended"]
        assert harness("start", ["n1"], [9], 1) == 'no "new" processes\\'
        harness.end()
        first, joined, second, refused, abandoned, third = heard
        assert first["worlds"] == [{"job": 0, "nodes": ["n1", "n2", "n3"]}]
        assert (first["per_node"], first["limit"]) == (2, 33.5)
        assert second["worlds"] == [{"job": 0, "nodes": ["n2"]}, {"job": 7, "nodes": ["n1", "n3"]}]
        assert joined == {"op": "joined", "tickets": ["w1"]} and refused["tickets"] == ["w1", "w2"]
        assert abandoned == {"op": "abandon", "tickets": ["w1", "w2"]} and third["worlds"][0]["job"] == 9

    def test_a_new_world_hears_whether_it_is_met(self, asked: tuple[int, list[dict]]) -> None:
        port, heard = asked
        harness = self.harness(port)
        assert harness("ready", "w7", 'tag#"$') is True and harness("ready", "late", "x") is False
        assert heard[0] == {"op": "ready", "ticket": "w7", "port": 'tag#"$'}
        assert harness("node_request", json.dumps(asdict(NODES))) == ""
        assert heard[2] == {"op": "node-request", "node_request": asdict(NODES)}
        harness.end()

    @pytest.mark.parametrize(
        "words",
        [
            [],
            [b""],
            [b"hello\n"],
            [b'{"nonce": 7}\n'],
            [b'{"nonce": "\xff"}\n'],
            [b'{"nonce": "a"}\n', b""],
            [b'{"nonce": "a"}\n', b'{"body": "{}", "mac": "0"}\n'],
            [b'{"nonce": "a"}\n', b'{"body": "{\\"met\\": true}", "mac": "' + b"0" * 64 + b'"}\n'],
            [b'{"nonce": "a"}\n', b"x" * 300_000],
        ],
    )
    def test_somebody_else_who_answers_is_not_believed(self, words: list[bytes]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                connection, _ = listener.accept()
                listener.close()  # whoever comes after this one is told at once that nobody is there
                with connection, connection.makefile("rb") as asked:
                    for number, each in enumerate(words):
                        if number:
                            asked.readline()
                        connection.sendall(each)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            harness = self.harness(listener.getsockname()[1])
            assert "the launcher does not answer (" in harness("start", ["n1"], [0], 1)
            assert harness("ready", "w1", "x") is False
            thread.join(20)
            harness.end()

    def test_without_a_launcher(self) -> None:
        harness = Harness()
        assert harness("start", ["n1"], [0], 1) == "the launcher does not answer (DMR_LAUNCHER is not set)"
        harness.end()


class TestClient:
    """Against an agent of a few lines, in this process."""

    @pytest.fixture
    def agent(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(30)
            yield listener

    def harness(self, agent: socket.socket, key: tuple[Path, credential.Key], **more: str) -> Harness:
        address = f"127.0.0.1:{agent.getsockname()[1]}"
        return Harness(**{"DMR_AGENT": address, "DMR_KEY_FILE": str(key[0]), "DMR_TIMEOUT": "20", **more})

    def serve(self, agent: socket.socket, answers: list[list[bytes]]) -> threading.Thread:
        """One connection for each list, closed after its answers."""

        def run() -> None:
            for connection_answers in answers:
                connection, _ = agent.accept()
                with connection, connection.makefile("rb") as lines:
                    for answer in connection_answers:
                        wire.decode_request(lines.readline())
                        connection.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def test_a_connection_is_kept_and_made_anew(self, agent: socket.socket, key: tuple[Path, credential.Key]) -> None:
        done = wire.encode(wire.Done())
        thread = self.serve(agent, [[done, wire.encode(GOOD[3])], [done]])
        harness = self.harness(agent, key)
        assert harness("ask", "accept", 1, 1, {}, False)["kind"] == "done"
        assert harness("ask", "check", 1, 1, CHECK, False)["nodes"] == ["n1", "n2"]
        # The agent has closed the connection since, or will have.
        while (said := harness("ask", "accept", 1, 2, {}, True)) is None:
            pass
        assert said["kind"] == "done"
        thread.join(20)
        harness.end()

    @pytest.mark.parametrize("answer", [b"garbage\n", b"x" * 70000, b'{"v":1,"ok":true', b""])
    def test_a_bad_answer_is_none_and_told_once(
        self, agent: socket.socket, key: tuple[Path, credential.Key], answer: bytes
    ) -> None:
        self.serve(agent, [[answer]] * 2)
        harness = self.harness(agent, key)
        assert harness("ask", "accept", 1, 1, {}, False) is None
        assert harness("ask", "accept", 1, 1, {}, False) is None  # at once: it waits before it tries again
        assert harness("ask", "accept", 1, 1, {}, True) is None
        assert harness.end().count("no answer from the agent") == 1

    def test_a_refusal_is_an_answer(self, agent: socket.socket, key: tuple[Path, credential.Key]) -> None:
        self.serve(agent, [[wire.encode(wire.Failure(error="unknown-job", message="none of ours"))]])
        harness = self.harness(agent, key)
        assert harness("ask", "accept", 1, 1, {}, False)["word"] == "unknown-job"
        assert "none of ours" in harness.end()

    def test_a_silent_agent(self, agent: socket.socket, key: tuple[Path, credential.Key]) -> None:
        harness = self.harness(agent, key, DMR_TIMEOUT="0.2")
        assert harness("ask", "accept", 1, 1, {}, False) is None
        assert "in time" in harness.end()

    def test_the_next_of_several_hosts_is_asked_at_once(
        self, agent: socket.socket, key: tuple[Path, credential.Key]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            free = f"127.0.0.1:{unused.getsockname()[1]}"
        others = f"{free},no address,,127.0.0.1:{agent.getsockname()[1]},{','.join(['h:1'] * 20)}"
        thread = self.serve(agent, [[wire.encode(wire.Done())] * 2])
        harness = Harness(DMR_AGENT=free, DMR_AGENT_OTHERS=others, DMR_KEY_FILE=str(key[0]), DMR_TIMEOUT="20")
        asked = [harness("ask", "accept", 1, 1, {}, False) for _ in range(3)]
        assert asked[0] is None and None not in asked[1:], asked
        thread.join(20)
        said = harness.end()
        assert "no address is not host:port; left out" in said and said.count("no answer from the agent") == 1

    def test_nobody_there_and_a_bad_address(self, key: tuple[Path, credential.Key]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            free = f"127.0.0.1:{unused.getsockname()[1]}"
        harness = Harness(DMR_AGENT=free, DMR_KEY_FILE=str(key[0]))
        assert harness("ask", "accept", 1, 1, {}, False) is None
        assert "refused" in harness.end()
        for address in ("nowhere", "host:", ":1", "host:99999", "host:1x", "x" * 300 + ":1"):
            harness = Harness(DMR_AGENT=address)
            assert harness("ask", "accept", 1, 1, {}, False) == "no client"
            assert "not host:port" in harness.end()
