"""Whose process is at the other end of a TCP connection of this host, as the kernel tells.

TCP carries no credentials, but the other end's socket is in the kernel's own books where it is on the same host. They
are asked for that one socket by netlink (sock_diag, 30 µs); where a sandbox has no netlink, the table in /proc is read,
which takes 10 ms on a host with much memory, however few connections there are.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.host.logins import uid_of
from penstock.host.logs import get_logger

__all__ = ["first_peers", "host_of", "owner_of", "peer_of"]

_log = get_logger(__name__)
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9
_MAPPED: Final = bytes(10) + b"\xff\xff"  # of an address of IPv6 that stands for one of IPv4
_LISTEN: Final = 10
_OF_A_HOST: Final = 64  # leading bits of an IPv6 address that one host cannot choose
# linux/sock_diag.h, linux/inet_diag.h, linux/netlink.h
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEAD: Final = struct.Struct("=IHHII")
_QUESTION: Final = struct.Struct("=BBBxI")
_ENDS: Final = struct.Struct("!HH16s16s")
_ANY: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # interface, cookie
_ANSWER: Final = struct.Struct("=BB50x12xII")  # family, state, ..., uid, inode
_ERROR: Final = 2
_NO_SUCH: Final = -2
_PATIENCE: Final = 1.0

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class _End(NamedTuple):
    address: IP
    port: int


class _Row(NamedTuple):
    """What the kernel knows of a socket; without an inode its process has closed it, and the uid says nothing."""

    state: int
    uid: int
    inode: int


def peer_of(connection: socket.socket) -> str:
    """Who is at the other end, for counting connections: "uid N" where it is a process of this host; else, where the
    kernel does not tell, "this host"; the address of another host, of IPv6 its network.

    Raises:
        OSError: it has gone.
    """
    uid = owner_of(connection)
    return host_of(connection) if uid is None else f"uid {uid}"


def host_of(connection: socket.socket) -> str:
    """The host at the other end: "this host" for all of loopback; of IPv6 the network, as a host has all addresses
    of one. Raises OSError where it has gone."""
    return _host(_end(connection.getpeername()).address)


def owner_of(connection: socket.socket) -> int | None:
    """The uid of the process at the other end; None where it is on another host, or the kernel does not tell.

    Raises:
        OSError: it has gone: what the kernel has of a socket that its process has closed names no owner, or root.
    """
    peer, here = _end(connection.getpeername()), _end(connection.getsockname())
    try:
        row = _by_netlink(peer, here)
    except OSError:
        if not peer.address.is_loopback or not _TABLES[0].exists():
            return None
        # The kernel may leave a row out when others go while it is read.
        row = _by_table(peer, here) or _by_table(peer, here)
    if row is not None and row.inode and row.state != _LISTEN:
        return row.uid
    if row is None and not peer.address.is_loopback:
        return None
    raise ConnectionAbortedError("the other end is closed")


def first_peers(names: Iterable[str] = ()) -> frozenset[str]:
    """The peers that come first at a door (`gate`): root, the process's own user, and these accounts of this host and
    addresses of others. A name that no account has is left out, and the log says so."""
    peers = {"uid 0", f"uid {os.geteuid()}"}
    for name in names:
        try:
            peers.add(_host(ipaddress.ip_address(name)))
        except ValueError:
            if (uid := uid_of(name)) is None:
                _log.warning("an account that is to come first is not known on this host", account=name)
            else:
                peers.add(f"uid {uid}")
    return frozenset(peers)


def _host(address: IP) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return "this host"
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, _OF_A_HOST), strict=False))


def _end(name: tuple[object, ...]) -> _End:
    address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return _End(address, int(str(name[1])))


def _by_netlink(peer: _End, here: _End) -> _Row | None:
    """None: there is no such socket. Raises OSError where the kernel is not to be asked."""
    family = socket.AF_INET if peer.address.version == 4 else socket.AF_INET6
    ends = _ENDS.pack(peer.port, here.port, peer.address.packed, here.address.packed)
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + _ANY
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_PATIENCE)
        kernel.send(_HEAD.pack(_HEAD.size + len(question), _BY_FAMILY, _REQUEST, 1, 0) + question)
        said = kernel.recv(4096)
    if len(said) < _HEAD.size + 4:
        raise OSError("a short answer")
    if _HEAD.unpack_from(said)[1] == _ERROR:
        (number,) = struct.unpack_from("=i", said, _HEAD.size)
        if number == _NO_SUCH:
            return None
        raise OSError(-number, "sock_diag")
    if len(said) < _HEAD.size + _ANSWER.size:
        raise OSError("a short answer")
    _family, state, uid, inode = _ANSWER.unpack_from(said, _HEAD.size)
    return _Row(state, uid, inode)


def _by_table(peer: _End, here: _End) -> _Row | None:
    ends = set(zip(_written(peer), _written(here), strict=True))
    for path in _TABLES:
        with contextlib.suppress(FileNotFoundError):  # a host without IPv6
            for line in path.read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()
                if len(columns) > _INODE and (columns[_LOCAL], columns[_REMOTE]) in ends:
                    return _Row(int(columns[_STATE], 16), int(columns[_UID]), int(columns[_INODE]))
    return None


def _written(end: _End) -> tuple[str, ...]:
    """As the tables have it: an address of IPv4 also as one of IPv6, for a program which uses its sockets for both."""
    packed = end.address.packed
    forms = (packed, _MAPPED + packed) if len(packed) == 4 else (packed,)
    return tuple(f"{''.join(map(_word, _fours(form)))}:{end.port:04X}" for form in forms)


def _fours(raw: bytes) -> list[bytes]:
    return [raw[start : start + 4] for start in range(0, len(raw), 4)]


def _word(raw: bytes) -> str:
    """Four bytes as the kernel prints them, which is as a number of this machine."""
    return f"{int.from_bytes(raw, sys.byteorder):08X}"
