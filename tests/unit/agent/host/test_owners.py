"""Whose process is at the other end of a TCP connection."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys

import pytest
from floods import ONLY_ROOT, OTHERS

from penstock.host import owners
from penstock.host.owners import first_peers, host_of, owner_of, peer_of
from waiting import until

# Connects and says so; then does what the next line says.
THERE = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("there", flush=True)
for line in sys.stdin:
    {"half": lambda: one.shutdown(socket.SHUT_WR), "close": one.close}[line.strip()]()
    print("done", flush=True)
"""


@pytest.fixture(params=["netlink", "table"])
def way(request, monkeypatch):
    """As in a service with netlink, and in one without."""
    if request.param == "table":

        def none(*_ends):
            raise PermissionError

        monkeypatch.setattr(owners, "_by_netlink", none)
    return request.param


def joined(host="127.0.0.1", family=socket.AF_INET, connects=None):
    """Both ends of a connection, and where it is listened."""
    listening = socket.create_server((host, 0), family=family)
    address = listening.getsockname()[:2]
    one = socket.socket(family if connects is None else socket.AF_INET6)
    one.connect(address if connects is None else (connects, address[1]))
    return one, listening.accept()[0], listening


@pytest.mark.parametrize(
    ("host", "family", "connects"),
    [
        ("127.0.0.1", socket.AF_INET, None),
        ("::1", socket.AF_INET6, None),
        ("127.0.0.1", socket.AF_INET, "::ffff:127.0.0.1"),
    ],
)
def test_the_kernel_says_whose_a_connection_is(way, host, family, connects):
    one, other, listening = joined(host, family, connects)
    with one, other, listening:
        assert owner_of(other) == os.geteuid()
        assert peer_of(other) == f"uid {os.geteuid()}"


@ONLY_ROOT
def test_another_account_is_known_as_long_as_it_has_its_end(way):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = [sys.executable, "-I", "-c", THERE, str(listening.getsockname()[1]), str(OTHERS)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        ) as there, listening.accept()[0] as other:  # fmt: skip

            def tell(word):
                there.stdin.write(word + "\n")
                there.stdin.flush()
                assert there.stdout.readline() == "done\n"

            assert there.stdout.readline() == "there\n"
            assert owner_of(other) == OTHERS
            tell("half")
            assert owner_of(other) == OTHERS, "it still reads"
            tell("close")
            with pytest.raises(OSError, match="closed"):
                owner_of(other)
            there.stdin.close()


def test_one_that_was_reset_has_gone(way):
    one, other, listening = joined()
    with other, listening:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()

        def gone():
            try:
                owner_of(other)
            except OSError:
                return True
            return False

        until(gone, "the kernel to know")


def test_without_any_word_of_the_kernel_it_is_this_host(monkeypatch, tmp_path):
    def none(*_ends):
        raise PermissionError

    monkeypatch.setattr(owners, "_by_netlink", none)
    monkeypatch.setattr(owners, "_TABLES", (tmp_path / "tcp", tmp_path / "tcp6"))
    one, other, listening = joined()
    with one, other, listening:
        assert (owner_of(other), peer_of(other)) == (None, "this host")


class Far:
    """A connection from another host."""

    def __init__(self, *name):
        self._name = name

    def getpeername(self):
        return self._name

    def getsockname(self):
        return ("::1" if ":" in self._name[0] else "127.0.0.1", 1)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1:2:3:4", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (("::1", 1, 0, 0), "this host"),
        (("::ffff:127.0.0.9", 1, 0, 0), "this host"),
    ],
)
def test_a_peer_is_a_host_not_an_address(name, peer):
    assert host_of(Far(*name)) == peer


def test_a_process_of_another_host_is_its_host(way):
    assert peer_of(Far("192.0.2.7", 1)) == "192.0.2.7"


def test_accounts_and_addresses_that_are_named():
    peers = first_peers(["root", "192.0.2.7", "2001:db8::1:2:3:4", "no-such-account"])
    assert peers == {"uid 0", f"uid {os.geteuid()}", "192.0.2.7", "2001:db8::/64"}
