"""An attacker at a door: connections of another account, which stay, dribble, or come and go."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

OTHERS = 65501
"""The first uid of those who attack: accounts that nothing else here runs as."""
KINDS = ("idle", "half", "dribble", "endless", "deaf", "storm")
"""Says nothing; half a line; a byte of it every now and then; a line without an end; asks and never reads the answer;
connects and closes, as fast as it can. There is also "asked": asks once, reads the answer, and stays."""

ASKER = 65500
"""The uid of an account that asks like others do."""

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

_PROGRAM = r"""
import os, resource, select, socket, sys, time
kind, place, number, uid, request = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5].encode()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
if uid != os.geteuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)

def come():
    if place.startswith("/"):
        one = socket.socket(socket.AF_UNIX)
        where = place
    else:
        host, _, port = place.rpartition(":")
        one = socket.socket()
        if kind == "deaf":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
        where = (host, int(port))
    one.settimeout(5.0)
    one.connect(where)
    one.setblocking(False)
    return one

def say(one, text):
    try:
        one.send(text)
    except BlockingIOError:
        pass

open_ones = []
told = False
while True:
    try:
        if kind == "storm":
            for _ in range(number):
                come().close()
        else:
            # Whoever is sent away comes again at once.
            if kind != "deaf":
                gone = set()
                for start in range(0, len(open_ones), 500):
                    readable = select.select(open_ones[start:start + 500], [], [], 0)[0] if number <= 900 else []
                    for one in readable:
                        try:
                            if not one.recv(65536):
                                gone.add(one)
                        except BlockingIOError:
                            pass
                        except OSError:
                            gone.add(one)
                for one in gone:
                    one.close()
                    open_ones.remove(one)
            else:
                keep = []
                for one in open_ones:
                    try:
                        say(one, request)
                        keep.append(one)
                    except OSError:
                        one.close()
                open_ones = keep
            while len(open_ones) < number:
                one = come()
                open_ones.append(one)
                if kind in ("half", "dribble"):
                    say(one, request[: len(request) // 2])
                elif kind in ("deaf", "asked"):
                    say(one, request)
            for one in list(open_ones):
                if kind == "dribble":
                    say(one, b"x")
                elif kind == "endless":
                    say(one, b"x" * 4096)
    except OSError:
        for one in open_ones:
            try:
                one.send(b"")
            except OSError:
                pass
    if not told:
        print("there", flush=True)
        told = True
    time.sleep(0.001 if kind == "storm" else 0.05)
"""


@contextlib.contextmanager
def flood(
    kind: str, place: str | Path, number: int, request: bytes, accounts: Sequence[int] = (OTHERS,)
) -> Iterator[None]:
    """While this is entered, each of these accounts keeps up an attack of this kind, with so many connections, on a
    socket's path or a HOST:PORT. `request` is one that is answered there, with its newline."""
    words = [sys.executable, "-I", "-c", _PROGRAM, kind, str(place), str(number)]
    several = [
        subprocess.Popen([*words, str(uid), request.decode()], stdout=subprocess.PIPE, cwd="/") for uid in accounts
    ]
    try:
        for one in several:
            assert one.stdout is not None
            assert select.select([one.stdout], [], [], 60)[0], "the attackers do not get there"
            assert one.stdout.readline() == b"there\n"
        yield
    finally:
        for one in several:
            one.kill()
            one.communicate()


_ASK = r"""
import os, socket, struct, sys, time
place, uid, number, pause, request, expected = sys.argv[1], *map(int, sys.argv[2:4]), float(sys.argv[4]), *sys.argv[5:]
if uid != os.geteuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
answered = 0
for _ in range(number):
    said = b""
    try:
        if place.startswith("/"):
            one, where = socket.socket(socket.AF_UNIX), place
        else:
            host, _, port = place.rpartition(":")
            one, where = socket.socket(), (host, int(port))
        with one:
            # As the product's own clients: they wait their turn where a Unix socket's backlog is full.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))
            one.connect(where)
            one.settimeout(10)
            one.sendall(request.encode())
            while expected.encode() not in said and (piece := one.recv(65536)):
                said = said[-1000:] + piece
    except OSError as e:
        print(e, file=sys.stderr)
    answered += expected.encode() in said
    time.sleep(pause)
print(answered)
"""


def answered(
    place: str | Path, request: bytes, expected: str, number: int = 18, uid: int = ASKER, pause: float = 0.05
) -> int:
    """How many of so many requests of this account are answered with what is expected, each within ten seconds."""
    words = [
        sys.executable,
        "-I",
        "-c",
        _ASK,
        str(place),
        str(uid),
        str(number),
        str(pause),
        request.decode(),
        expected,
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd="/", check=True, timeout=300)
    return int(done.stdout)
