"""slurmrestd beside a cluster: as one of its users at a Unix socket, or with tokens at a port of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import PenstockError
from penstock_lab.cluster.cluster import Cluster
from penstock_lab.cluster.files import LOCALHOST
from penstock_lab.cluster.layout import reserved_ports

__all__ = ["RestServer", "serving", "start"]

_LIMIT = 20.0
_PORTER = "bob"  # whom the server at a port runs as; he may be nobody, as tokens say who asks


class RestServer:
    """A slurmrestd that runs; `url` is what `rest.url` says of it."""

    def __init__(self, url: str, process: subprocess.Popen[str], log: Path) -> None:
        self.url, self.process, self.log = url, process, log

    def stop(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


def start(cluster: Cluster, who: str, *, tokens: bool = False, versions: str | None = None) -> RestServer:
    """Start one: as `who` and for whoever reaches the socket as that user or root, or with `tokens` at a port, for whom
    they say. `versions`: the data versions that it is to offer ("v0.0.41,v0.0.42"); default: all that it has.

    PenstockError with the end of its log when it does not serve.
    """
    home = cluster.home(_PORTER if tokens else who)
    log = cluster.folder / "log" / f"slurmrestd-{'tokens' if tokens else who}.log"
    more = ["-d", versions] if versions else []
    with reserved_ports(1) as ports:
        if tokens:
            where, url, environment = (
                f"{LOCALHOST}:{ports[0]}",
                f"http://{LOCALHOST}:{ports[0]}",
                {"SLURM_JWT": "daemon"},
            )
            auth = "rest_auth/jwt"
        else:
            path = home / "restd.sock"
            path.unlink(missing_ok=True)
            where, url, environment, auth = f"unix:{path}", f"unix:{path}", {}, "rest_auth/local"
        with log.open("w") as output:
            argv = ["slurmrestd", "-a", auth, *more, where]
            runs = cluster.popen_as(
                _PORTER if tokens else who, argv, env=environment, cwd=home, stdout=output, stderr=output
            )
    server = RestServer(url, runs, log)
    deadline = time.monotonic() + _LIMIT
    while not _serves(url):
        if runs.poll() is not None or time.monotonic() > deadline:
            server.stop()
            raise PenstockError(f"slurmrestd does not serve; the end of {log}:\n{log.read_text()[-1000:]}")
        time.sleep(0.05)
    return server


@contextmanager
def serving(cluster: Cluster, who: str, *, tokens: bool = False, versions: str | None = None) -> Iterator[RestServer]:
    """As `start`; it is ended at the end."""
    server = start(cluster, who, tokens=tokens, versions=versions)
    try:
        yield server
    finally:
        server.stop()


def _serves(url: str) -> bool:
    path = url.removeprefix("unix:")
    port = int(url.rpartition(":")[2]) if path == url else 0
    with socket.socket(socket.AF_INET if port else socket.AF_UNIX) as client:
        client.settimeout(2)
        try:
            client.connect((LOCALHOST, port) if port else path)
        except OSError:
            return False
    return True
