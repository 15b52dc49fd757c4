"""What Linux tells of connections, on which the doors rely."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

_ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
_OTHER = 65501
# Connects as another account; closes when it is told to.
_CONNECTS = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("there", flush=True)
sys.stdin.readline()
one.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def _row(port: int, to: int) -> list[str] | None:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    found = [r for r in rows if r[1].endswith(f":{port:04X}") and r[2].endswith(f":{to:04X}")]
    return found[0] if found else None


@_ONLY_ROOT
def test_a_closed_connection_has_no_inode_and_its_uid_says_nothing() -> None:
    """The kernel's table of TCP connections names the account of the other end's socket as long as a process has it; of
    one that its process has closed it has the inode 0, and the uid is root's on many kernels.

    Releases seen: Linux 6.18.
    Guess: the uid is that of whoever connected, until the connection is gone.
    Relied on by: penstock.host.owners, which takes such a connection for gone: it would count as root's.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = listening.getsockname()[1]
        words = [sys.executable, "-I", "-c", _CONNECTS, str(here), str(_OTHER)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        ) as there, listening.accept()[0] as one:  # fmt: skip
            assert there.stdin is not None and there.stdout is not None
            assert there.stdout.readline() == "there\n"
            port = one.getpeername()[1]
            row = _row(port, here)
            assert row is not None and (int(row[7]), int(row[9]) > 0) == (_OTHER, True)
            there.stdin.write("\n")
            there.stdin.flush()
            assert there.stdout.readline() == "closed\n"
            row = _row(port, here)
            assert row is None or int(row[9]) == 0
            there.stdin.close()


def test_a_unix_socket_without_room_refuses_who_does_not_wait(tmp_path) -> None:
    """At a Unix socket of which the backlog is full, a connect that may not block fails at once (EAGAIN), and one that
    may block waits as long as SO_SNDTIMEO says.

    Releases seen: Linux 6.18.
    Guess: as with TCP, a connect with a time limit waits for its turn.
    Relied on by: penstock.host.unixdoor.connected.
    """
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(path)
        listening.listen(0)
        first.connect(path)
        with socket.socket(socket.AF_UNIX) as second:
            second.settimeout(5.0)
            with pytest.raises(BlockingIOError):
                second.connect(path)


def test_a_time_limit_of_a_socket_begins_anew_with_each_byte() -> None:
    """A socket's time limit is one for each receive: a peer that sends a byte now and then is never too late.

    Releases seen: Python 3.11.
    Guess: the `timeout` of a handler of http.server bounds the request.
    Relied on by: penstock.host.fewthreads, which ends what is too slow itself.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(2.0)
        dribble = threading.Thread(target=lambda: [(theirs.send(b"x"), time.sleep(0.3)) for _ in range(9)])
        dribble.start()
        began = time.monotonic()
        told = b"".join(ours.recv(1) for _ in range(9))
        dribble.join()
        assert (told, time.monotonic() - began > 2.0) == (9 * b"x", True)
