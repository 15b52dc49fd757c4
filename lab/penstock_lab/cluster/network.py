"""The network of an isolated cluster: every node has a host name, an address and a network stack of its own.

One process, the holder, makes a mount namespace and in it, as files of a small tmpfs, a network and a UTS namespace for
each node, and one more network namespace with the bridge that joins them: the switch. A link (veth) leads from the
switch to this machine, where slurmctld, slurmdbd, munge and the users are. Nothing else of it can be seen here: the
namespaces, their links and their mounts end with the last process inside, after a crash as well; and the machine's own
packet filter, which often drops what a bridge forwards, does not see what the nodes send each other.

The holder's mount namespace has an /etc/hosts that names the nodes and this machine. All daemons and commands run in
it, or, with another Slurm release, in an enclosure with the same file.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError, UserError
from penstock_lab.cluster.layout import Layout
from penstock_lab.cluster.processes import Process
from penstock_lab.cluster.programs import PATH

__all__ = [
    "NETWORK",
    "Network",
    "Subnet",
    "check_isolation",
    "choose_subnet",
    "free_subnet",
    "holder",
    "hosts_file",
    "link_name",
    "remove_link",
]

NETWORK = "network"  # its holder's name among the daemons

# RFC 2544 sets this range aside for tests of network equipment, so no real network should have it.
_POOL = ipaddress.IPv4Network("198.18.0.0/15")
_PREFIX = 23  # 510 addresses: this machine's, then the nodes'
_PACKAGE_OF = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount"}
_LIMIT = 20.0
_LOOPBACK = "localhost"

# MPI libraries take processes with the same boot id to share memory, and would not cross the network between nodes.
# Each start of a node is a boot; what runs on it is started by its slurmd.
_BOOTED = """
id=$(mktemp)
cat /proc/sys/kernel/random/uuid >"$id"
chmod 444 "$id"
mount --bind "$id" /proc/sys/kernel/random/boot_id
rm "$id"
exec "$@"
"""

# Arguments: an empty folder, the hosts file, this machine's end of the link, its address, the length of the network's
# prefix, the range of all such clusters, then name and address of every node.
# IPv6 is turned off: nothing here has such an address to offer. There is no way to anywhere but this machine and its
# clusters, so that a name server elsewhere is unreachable at once and not after half a minute.
_SCRIPT = """
set -eu
folder=$1 hosts=$2 link=$3 login=$4 bits=$5 range=$6
shift 6
mount -t tmpfs -o mode=755,size=1m penstock "$folder"
cd "$folder"
mkdir net uts
mount --bind "$hosts" /etc/hosts
no_v6='[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
: >net/switch
unshare --net=net/switch -- sh -euc "$no_v6; ip link add name switch up type bridge stp_state 0"
ip link add name "$link" type veth peer name login netns "$folder/net/switch"
nsenter --net=net/switch -- ip link set login master switch up
ip addr add "$login/$bits" dev "$link"
ip link set "$link" up
while [ $# -gt 0 ]; do
    : >"net/$1"
    : >"uts/$1"
    unshare --net="net/$1" --uts="uts/$1" -- sh -euc "$no_v6; hostname \\$1; ip link set lo up" sh "$1"
    nsenter --net=net/switch -- \
        ip link add name "$1" master switch up type veth peer name eth0 netns "$folder/net/$1"
    nsenter --net="net/$1" -- sh -euc '
        ip addr add "$1/$2" dev eth0
        ip link set eth0 up
        ip route add "$3" via "$4"' sh "$2" "$bits" "$range" "$login"
    shift 2
done
: >ready
exec sleep infinity
"""


@dataclass(frozen=True, slots=True)
class Subnet:
    """Addresses of one isolated cluster: `login` is this machine's, the nodes have those that follow."""

    login: str

    def node(self, index: int) -> str:
        """The address of the node with this index, from 0."""
        return str(ipaddress.IPv4Address(self.login) + 1 + index)


@dataclass(frozen=True, slots=True)
class Network:
    """The namespaces that the holder process holds, in its `folder`."""

    holder: Process
    folder: Path

    @property
    def ready(self) -> bool:
        """Whether the holder has made them all."""
        return (self._inside / "ready").exists()

    @property
    def _inside(self) -> Path:
        return Path(f"/proc/{self.holder.pid}/root{self.folder}")

    def _alive(self) -> None:
        if not self.holder.alive:
            raise PenstockError("the cluster's network is gone with its holder; bring the cluster up again")

    def mounts(self) -> list[str]:
        """nsenter's argument that leads to where /etc/hosts names the nodes."""
        self._alive()
        return [f"--mount=/proc/{self.holder.pid}/ns/mnt"]

    def node(self, name: str) -> list[str]:
        """nsenter's arguments that make a process one of this node's."""
        self._alive()
        return [f"--net={self._inside}/net/{name}", f"--uts={self._inside}/uts/{name}"]

    @staticmethod
    def booted() -> list[str]:
        """What to put before a command so that it and its children have a boot id of their own (root only)."""
        return ["unshare", "--mount", "--propagation", "slave", "--", "sh", "-euc", _BOOTED, "sh"]

    def cut(self, node: str) -> None:
        """Nothing reaches the node any more, nor leaves it; its processes live on."""
        self._on_switch("ip", "link", "set", node, "down")

    def slow(self, node: str, rate: float) -> None:
        """The node sends and receives at most `rate` bits per second."""
        words = ("root", "tbf", "rate", f"{max(8, round(rate))}bit", "burst", "32kb", "latency", "400ms")
        self._on_switch("tc", "qdisc", "replace", "dev", node, *words)
        self._on_node(node, "tc", "qdisc", "replace", "dev", "eth0", *words)

    def mend(self, node: str) -> None:
        """The node's network is as it was at first."""
        self._on_switch("ip", "link", "set", node, "up")
        # "replace" by what every link has by default, for "del" fails where nothing is to be deleted.
        self._on_switch("tc", "qdisc", "replace", "dev", node, "root", "pfifo")
        self._on_node(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo")

    def _on_switch(self, *argv: str) -> None:
        self._alive()
        _run(["nsenter", f"--net={self._inside}/net/switch", "--", *argv])

    def _on_node(self, node: str, *argv: str) -> None:
        _run(["nsenter", self.node(node)[0], "--", *argv])


def holder(layout: Layout, subnet: Subnet, nodes: Sequence[str]) -> list[str]:
    """The command line of the process that makes and keeps the network of these nodes."""
    argv = ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", _SCRIPT, "penstock"]
    argv[0] = shutil.which("unshare", path=PATH) or argv[0]
    argv += [str(layout.network), str(layout.hosts), link_name(layout.root)]
    argv += [subnet.login, str(_PREFIX), str(_POOL)]
    return argv + [word for index, name in enumerate(nodes) for word in (name, subnet.node(index))]


def hosts_file(host: str, subnet: Subnet, nodes: Sequence[str], machine: str) -> str:
    """An /etc/hosts with this machine and the nodes by their addresses, then what `machine`, its own file, has besides.

    What that says of the same names is left out: the C library may join all lines of a name. A machine that has no
    other name than localhost keeps its loopback, for programs on every node mean their own by that.
    """
    here = {} if host == _LOOPBACK else {host: subnet.login}
    ours = here | {name: subnet.node(index) for index, name in enumerate(nodes)}
    lines = [f"{address} {name}" for name, address in ours.items()]
    for line in machine.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if names := [name for name in names if name.split(".")[0] not in ours]:
            lines.append(" ".join([address, *names]))
    return "\n".join(lines) + "\n"


def free_subnet(taken: Iterable[str]) -> Subnet:
    """A subnet of the test range that overlaps none of the taken networks ("10.0.0.0/8", "192.0.2.1"), at random.

    What is wider than the whole range is a way to elsewhere, like a VPN's 128.0.0.0/1, and not the range in use.
    """
    networks = (ipaddress.IPv4Network(text, strict=False) for text in taken if text != "default")
    used = [net for net in networks if net.prefixlen >= _POOL.prefixlen]
    free = [net for net in _POOL.subnets(new_prefix=_PREFIX) if not any(net.overlaps(other) for other in used)]
    if not free:
        raise PenstockError(f"--isolated: no free network in {_POOL} on this machine")
    return Subnet(str(random.choice(free)[1]))


def choose_subnet() -> Subnet:
    """One that neither an address nor a route of this machine has yet; hold `users_lock` until the holder is ready."""
    routes = json.loads(_run(["ip", "-j", "-4", "route", "show", "table", "all"]) or "[]")
    links = json.loads(_run(["ip", "-j", "-4", "addr", "show"]) or "[]")
    taken = [route["dst"] for route in routes]
    taken += [f"{a['local']}/{a['prefixlen']}" for link in links for a in link.get("addr_info", ()) if "local" in a]
    return free_subnet(taken)


def link_name(root: Path) -> str:
    """This machine's end of the link to the switch of the cluster in `root`; at most 15 characters, the kernel's limit.

    It follows from the folder alone, so that the link is found whatever was recorded.
    """
    return "pst-" + hashlib.sha256(str(root).encode()).hexdigest()[:10]


def remove_link(root: Path) -> None:
    """Remove the link at once; without this it goes with the last process inside, some moments later."""
    name = link_name(root)
    if os.geteuid() != 0 or name not in {entry for _, entry in socket.if_nameindex()}:
        return
    try:
        _run(["ip", "link", "del", name])
    except PenstockError:
        if name in {entry for _, entry in socket.if_nameindex()}:  # else it went by itself a moment ago
            raise


def check_isolation(host: str, nodes: Sequence[str]) -> None:
    """UserError where this machine, by the name of `host`, lacks programs or rights for isolated nodes, or has the name
    of one of them, which would get what is sent to it; leaves nothing."""
    if host in nodes:
        raise UserError(
            f"--isolated: this machine is called {host}, as a node would be; take fewer nodes or leave it out"
        )
    if missing := [name for name in _PACKAGE_OF if shutil.which(name, path=PATH) is None]:
        packages = " ".join(dict.fromkeys(_PACKAGE_OF[name] for name in missing))
        raise UserError(f"--isolated: missing {', '.join(missing)}; on Debian run: apt-get install {packages}")
    attempt = "ip link add name a type bridge && ip link add name b type veth peer name c && mount -t tmpfs probe /tmp"
    try:
        _run(["unshare", "--net", "--uts", "--mount", "--propagation", "private", "--", "sh", "-c", attempt])
    except PenstockError as error:
        raise UserError(
            f"--isolated: here root may not make networks and mounts of its own, as in many containers ({error})"
        ) from error


def _run(argv: list[str]) -> str:
    program = shutil.which(argv[0], path=PATH) or argv[0]
    done = subprocess.run(
        [program, *argv[1:]],
        env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if done.returncode != 0:
        text = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise PenstockError(f"{' '.join(argv[:3])} failed: {text}")
    return done.stdout
