"""The door for commands on other hosts: who asks is proven, who answers too, and nothing in between can be changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import credential
from penstock.config import config_of
from penstock.errors import AgentUnavailable, NotPermitted, UserError
from penstock.ipc import proof
from penstock.ipc.auth import Verifier, make_key
from penstock.ipc.client import ask_agent
from penstock.ipc.far import FarDoor
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.limits import RateLimit
from penstock.ipc.server import Server
from penstock.state.lease import files
from penstock.state.lease.machine import Card, parse

LIMIT = 60.0


class Site:
    """An agent's door at a port, and a state folder in which a lease says so."""

    def __init__(self, folder: Path, munge: str | None = None, limit: RateLimit | None = None) -> None:
        folder.chmod(0o700)
        self.folder, self.munge = folder, munge
        self.config = config_of({"agent": {"state_dir": str(folder)}, "dmr": {"munge_socket": munge} if munge else {}})
        self.key = make_key(folder / "dmr.key")
        self.seen: list[tuple[int, bytes]] = []
        self._limit = limit
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(LIMIT)
        self.advertise(self.port)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()

        async def echo(uid: int, request: Any) -> object:
            self.seen.append((uid, b""))
            return {"uid": uid, "said": request.get("text")}

        async def mine(uid: int, _request: Any) -> object:
            if uid != self.key.uid:
                raise NotPermitted("this agent serves its own user only")
            return "yes"

        local = LocalDoor({"echo": echo, "mine": mine}, self._limit)

        async def nothing(_line: bytes) -> tuple[bytes, bool]:
            return b"", False

        server = Server(local.answer, nothing)
        self.verifier = Verifier(self.key, self.munge)
        self.door = FarDoor(local.answer, self.verifier)
        self.port = await server.listen_far("127.0.0.1", 0, self.door)
        self._ready.set()
        await self._end.wait()
        await server.close()
        self.verifier.close()

    def advertise(self, port: int, uid: int | None = None) -> None:
        card = Card(
            "far", 7, 8, "b", "s", os.geteuid() if uid is None else uid, "agent", 0.0, f"127.0.0.1:{port}", number=1
        )
        files.publish(self.folder, card, 0o644)

    def ask(self, op: str = "echo", **arguments: object) -> Any:
        return ask_agent(self.config, op, arguments, LIMIT)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(LIMIT)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    it = Site(tmp_path)
    yield it
    it.stop()


def talk(port: int, lines: Callable[[str], bytes]) -> list[bytes]:
    """What the door says after its greeting to these lines, which are made from its number."""
    with socket.create_connection(("127.0.0.1", port), LIMIT) as connection, connection.makefile("rb") as stream:
        connection.sendall(lines(proof.nonce_of(stream.readline())))
        return stream.readlines()


def signed(key: credential.Key, theirs: str, request: bytes, ours: str = "1" * 32) -> bytes:
    digest = proof.digest_of(request)
    text = proof.request_text(theirs, ours, digest)
    return proof.ProofHead(digest, credential.sign_key(text, key), ours).encode()


def refused(answer: list[bytes]) -> str:
    head, reply = answer
    assert json.loads(head)["auth"] == "", "a refusal proves nothing"
    said = json.loads(reply)
    assert (said["ok"], said["error"]) == (False, "NotPermitted")
    return str(said["message"])


REQUEST = b'{"op": "echo", "text": "x"}\n'


def test_with_the_owners_key_both_sides_are_proven(site):
    assert site.ask(text="hello" * 100_000) == {"uid": site.key.uid, "said": "hello" * 100_000}
    assert site.ask("mine") == "yes"
    with pytest.raises(UserError, match="operations: echo, mine"):
        site.ask("nonsense")
    assert site.door.refused == 0


def test_a_forged_credential_is_refused(site):
    stranger = credential.Key(site.key.uid, b"x" * 64)
    assert "does not fit" in refused(talk(site.port, lambda n: signed(stranger, n, REQUEST) + REQUEST))
    assert site.seen == []
    (site.folder / "dmr.key").write_text("y" * 64)
    with pytest.raises(NotPermitted, match="refuses the request: the key credential does not fit"):
        site.ask()
    assert site.door.refused == 2


def test_a_request_that_was_heard_fits_no_other_connection(site):
    heard: list[bytes] = []

    def first(number: str) -> bytes:
        heard.append(signed(site.key, number, REQUEST) + REQUEST)
        return heard[0]

    assert json.loads(talk(site.port, first)[1])["ok"]
    assert "does not fit" in refused(talk(site.port, lambda _n: heard[0]))
    assert len(site.seen) == 1


def test_a_request_that_was_altered_is_refused(site):
    other = REQUEST.replace(b"x", b"y")
    assert "not the one that was proven" in refused(talk(site.port, lambda n: signed(site.key, n, REQUEST) + other))
    head = lambda n: json.loads(signed(site.key, n, REQUEST))  # noqa: E731
    swapped = lambda n: json.dumps({**head(n), "digest": proof.digest_of(other)}).encode() + b"\n" + other  # noqa: E731
    assert "does not fit" in refused(talk(site.port, swapped))
    assert site.seen == []


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b'{"digest": 1}\n', b"\xff\n", b'{"nonce":"x","digest":"","auth":""}\n']
)
def test_what_is_no_head_is_refused(site, line):
    assert "not a line of this protocol" in refused(talk(site.port, lambda _n: line))


def test_a_head_that_never_ends_is_cut_off(site):
    assert talk(site.port, lambda _n: b"x" * (proof.MAX_HEAD + 100_000)) == []


@given(
    st.binary(max_size=300)
    | st.dictionaries(
        st.sampled_from(["nonce", "digest", "auth", "penstock"]), st.text() | st.none() | st.integers()
    ).map(lambda said: json.dumps(said).encode())
)
def test_whatever_comes_is_a_line_of_the_protocol_or_refused(line):
    for read in (proof.nonce_of, lambda line: proof.ProofHead.decode(line, request=True)):
        with contextlib.suppress(UserError):
            read(line)
    parse(line)


class Between:
    """Somebody on the way, who changes what the agent says, or answers in its place."""

    def __init__(self, port: int, change: Callable[[list[bytes]], list[bytes]]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._to, self._change = port, change
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        victim, _ = self._listener.accept()
        with victim, socket.create_connection(("127.0.0.1", self._to), LIMIT) as agent:
            theirs, ours = agent.makefile("rb"), victim.makefile("rb")
            victim.sendall(theirs.readline())
            agent.sendall(ours.readline() + ours.readline())
            victim.sendall(b"".join(self._change(theirs.readlines())))
        self._listener.close()


def lied(answer: list[bytes]) -> list[bytes]:
    reply = answer[1].replace(b"true", b"null")
    return [answer[0], reply]


def resigned(answer: list[bytes]) -> list[bytes]:
    """The digest fits, and the credential is of somebody else."""
    reply = b'{"ok": true, "result": "lies"}\n'
    return [proof.ProofHead(proof.digest_of(reply), "key:" + "0" * 64).encode(), reply]


def unsigned(answer: list[bytes]) -> list[bytes]:
    return [proof.ProofHead(proof.digest_of(answer[1]), "").encode(), answer[1]]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lied, AgentUnavailable, "could not prove"),
        (resigned, AgentUnavailable, "could not prove"),
        (unsigned, NotPermitted, "refuses the request"),
        (lambda _answer: [], AgentUnavailable, "cannot be reached"),
        (lambda answer: answer[:1], AgentUnavailable, "could not prove"),
    ],
)
def test_an_answer_that_is_not_the_agents_own_is_not_believed(site, change, error, said):
    between = Between(site.port, change)
    site.advertise(between.port)
    with pytest.raises(error, match=said):
        site.ask()


def test_the_same_limits_as_at_the_socket(tmp_path):
    site = Site(tmp_path, limit=RateLimit(2, 0.001))
    try:
        # Root is exempt, at both doors: let the key be another user's.
        site.verifier._key = site.key = credential.Key(1234, site.key.secret)
        said = [json.loads(talk(site.port, lambda n: signed(site.key, n, REQUEST) + REQUEST)[1]) for _ in range(3)]
        assert [s["ok"] for s in said] == [True, True, False]
        assert "too many requests" in said[2]["message"]
    finally:
        site.stop()


def test_an_agent_that_is_gone_is_named(site):
    site.stop()
    with pytest.raises(
        AgentUnavailable, match=r"an agent on far \(pid 7\) at 127.0.0.1:\d+ uses the state, but cannot"
    ):
        site.ask()


def test_without_a_lease_that_says_where_there_is_no_other_door(site):
    (site.folder / files.LEASE).chmod(0o666)
    with pytest.raises(AgentUnavailable, match="no agent answers at"):
        site.ask()


# -- munge -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def munge() -> Iterator[str]:
    """The socket of a munged."""
    if shutil.which("munged") is None:
        pytest.skip("munged is not installed")
    with tempfile.TemporaryDirectory(prefix="pf-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_bytes(secrets.token_bytes(128))
        names = {"key-file": "key", "socket": "s", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={folder / file}" for option, file in names.items()]
        process = subprocess.Popen(["munged", "--force", "--foreground", *options], stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + LIMIT
            while not (folder / "s").exists():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            yield str(folder / "s")
        finally:
            process.terminate()
            process.wait(LIMIT)


ASK = """
import json, sys
from pathlib import Path
from penstock.config import Config, config_of
from penstock.errors import PenstockError
from penstock.ipc.client import ask_agent
config = config_of({"agent": {"state_dir": sys.argv[1]}, "dmr": {"munge_socket": sys.argv[2]}})
try:
    print(json.dumps(ask_agent(config, sys.argv[3], {"text": "x"})))
except PenstockError as e:
    print(type(e).__name__, e)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_by_munge_another_user_is_that_user_and_no_more(munge):
    with tempfile.TemporaryDirectory(prefix="pf-") as name:
        site = Site(Path(name), munge)
        try:
            site.folder.chmod(0o711)

            def as_nobody(op: str) -> str:
                words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", os.sys.executable, "-c"]
                environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
                done = subprocess.run(
                    [*words, ASK, name, munge, op], capture_output=True, text=True, timeout=LIMIT, env=environment
                )
                assert done.returncode == 0, done.stderr
                return done.stdout.strip()

            assert json.loads(as_nobody("echo")) == {"uid": 65534, "said": "x"}
            assert as_nobody("mine").startswith("NotPermitted this agent serves its own user only")
            (site.folder / "dmr.key").unlink()
            assert site.ask("mine") == "yes", "the owner, where the key cannot be had"
        finally:
            site.stop()


def test_an_agent_of_another_user_is_not_believed(munge, tmp_path, monkeypatch):
    site = Site(tmp_path, munge)
    try:
        # The folder says that its agent runs as somebody else than who answers.
        real = files.published(tmp_path)
        assert real is not None
        other = Card(**{**{f: getattr(real, f) for f in real.__slots__}, "uid": real.uid + 1})
        monkeypatch.setattr("penstock.ipc.remote.published", lambda _folder: other)
        with pytest.raises(AgentUnavailable, match="could not prove that it is that agent: it runs as user id"):
            site.ask()
    finally:
        site.stop()


def test_an_agent_at_an_address_of_ipv6_is_found(site, monkeypatch):
    asked = []

    def connect(address, _timeout):
        asked.append(address)
        raise OSError("enough")

    card = Card("far", 7, 8, "b", "s", os.geteuid(), "agent", 0.0, "[::1]:99", number=1)
    files.publish(site.folder, card, 0o644)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(AgentUnavailable):
        site.ask()
    assert asked == [("::1", 99)]
