"""Two hosts on this machine that see one folder: namespaces of network, mounts, names and processes, and sshfs.

Each host has a boot id of its own, and mounts the folder by sshfs from a server of its own: a real network file system,
whose clients know nothing of each other's locks and cannot make sockets. Links and mounts end with the hosts' first
processes.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

import waiting

LIMIT = 150.0
until = functools.partial(waiting.until, seconds=LIMIT)
COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
_SFTP = "/usr/lib/openssh/sftp-server"
_PACKAGES = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "sshfs": "sshfs"}
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# A host's first process. Arguments: its name, what is served, where it is mounted, a file for its boot id, a Python and
# its program. The network comes from outside.
_INIT = """
set -eu
hostname "$1"
mount --make-rprivate /
mount -t proc proc /proc
cat /proc/sys/kernel/random/uuid >"$4"
mount --bind "$4" /proc/sys/kernel/random/boot_id
ip link set lo up
exec "$5" -c "$6" "$2" "$3"
"""
# Joins an sshfs and a server by a pair of sockets, without any ssh, until somebody ends it.
_MOUNT = f"""
import socket, subprocess, sys
here, there = socket.socketpair()
with subprocess.Popen([{_SFTP!r}], stdin=here, stdout=here):
    options = "passive,dir_cache=no,attr_timeout=0,entry_timeout=0"
    words = ["sshfs", "-f", "-o", options, "pipe:" + sys.argv[1], sys.argv[2]]
    with subprocess.Popen(words, stdin=there, stdout=there):
        here.close()
        there.close()
"""


def obstacle() -> str | None:
    """Why there can be no two hosts here."""
    if os.geteuid() != 0:
        return "only root can make namespaces with a network between them"
    for program, package in _PACKAGES.items():
        if shutil.which(program, path=_PATH) is None:
            return f"no {program} here (Debian: apt-get install --no-install-recommends {package})"
    if not Path(_SFTP).exists():
        return "no sftp-server here (Debian: apt-get install --no-install-recommends openssh-sftp-server)"
    return None if Path("/dev/fuse").exists() else "no /dev/fuse here"


class Host:
    """One of them: `run` and `start` are commands of penstock there."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self.name, self.address, self.folder = name, address, folder
        self.config = folder / f"{name}.yaml"
        self.log = folder / f"{name}.log"
        mounted = folder / "shared"
        arguments = [name, str(folder / "served"), str(mounted), str(folder / f"boot.{name}"), sys.executable, _MOUNT]
        spaces = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"]
        with self.log.open("ab") as log:
            self.unshare = subprocess.Popen(
                ["unshare", *spaces, "sh", "-c", _INIT, "sh", *arguments], stdin=subprocess.DEVNULL, stderr=log
            )
        children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children")
        self.pid = int(until(lambda: children.read_text().split(), f"{name}'s first process")[0])
        mounts = Path(f"/proc/{self.pid}/mounts")
        until(lambda: f" {mounted} fuse.sshfs " in mounts.read_text(), lambda: f"sshfs: {self.said()}")

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def _words(self, *arguments: str) -> list[str]:
        enter = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--pid", f"--wdns={self.folder}", "--"]
        return [*enter, *COMMAND, *arguments]

    @property
    def _environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "XDG_"))}
        return {**clean, "PENSTOCK_CONFIG": str(self.config), "COLUMNS": "200", "PATH": _PATH}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return subprocess.run(
            self._words(*arguments),
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._words(*arguments), env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def end(self) -> None:
        """All its processes end with the first one, its mounts and links with them."""
        self.unshare.kill()
        self.unshare.wait(LIMIT)


def inner(process: subprocess.Popen[bytes]) -> int:
    """The process on the host that nsenter has started, by its number outside."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(until(lambda: children.read_text().split(), "the command behind nsenter")[0])


def two_hosts(folder: Path, settings: dict[str, Any]) -> tuple[Host, Host]:
    """host-a (192.0.2.1) and host-b (192.0.2.2), with `folder`/shared in common and these settings."""
    (folder / "served").mkdir()
    (folder / "shared").mkdir()
    hosts: list[Host] = []
    try:
        for name, address in (("host-a", "192.0.2.1"), ("host-b", "192.0.2.2")):
            host = Host(folder, name, address)
            hosts.append(host)
            agent = {**settings.get("agent", {}), "state_dir": str(folder / "shared" / "agent")}
            listening = {"agent": {**agent, "listen": f"{address}:0"}, "dmr": {"listen": f"{address}:0"}}
            host.config.write_text(yaml.safe_dump({**settings, **listening}))
        a, b = hosts
        link = ["link", "add", "name", "eth0", "netns", str(a.pid), "type", "veth", "peer", "name", "eth0"]
        _ip(*link, "netns", str(b.pid))
        for host in hosts:
            inside = ["nsenter", f"--target={host.pid}", "--net", "--", "ip"]
            for words in (["addr", "add", f"{host.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
                subprocess.run([*inside, *words], check=True, timeout=LIMIT, env={**os.environ, "PATH": _PATH})
    except BaseException:
        for host in hosts:
            host.end()
        raise
    return a, b


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=LIMIT, env={**os.environ, "PATH": _PATH})
