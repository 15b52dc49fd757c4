"""Start, stop and look at a simulated Slurm from ordinary, blocking code: for the demo, the command line and tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import SlurmUnavailable, UserError
from penstock_lab.mock.codec import decode_error, encode
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.server import PID_FILE, SOCKET, peer_of

__all__ = ["Handle", "call", "start", "status", "stop"]

_MAX_SOCKET_PATH = 107  # the kernel's limit
_POLL = 0.02


@dataclass(frozen=True, slots=True)
class Handle:
    """A running cluster below `folder`; `socket` is what `MockClient` wants."""

    folder: Path
    socket: Path
    pid: int

    def fault(self, method: str, kind: str, count: int = 1, delay: float = 0.0) -> None:
        """The next `count` calls of `method` ("*": any) go wrong; kinds: see `FaultKind`."""
        call(self.folder, "fault", method=method, kind=kind, count=count, delay=delay)

    def away(self, seconds: float) -> None:
        """The controller answers nobody for so long; jobs go on running."""
        call(self.folder, "away", seconds=seconds)

    def fail_node(self, name: str) -> None:
        """The node dies with its job."""
        call(self.folder, "fail_node", name=name)

    def drain_node(self, name: str) -> None:
        """The node takes no more jobs."""
        call(self.folder, "drain_node", name=name)

    def resume_node(self, name: str) -> None:
        """The node is back."""
        call(self.folder, "resume_node", name=name)

    def stop(self, timeout: float = 15.0) -> None:
        """End the cluster and all its jobs."""
        stop(self.folder, timeout)


def start(
    folder: Path,
    config: ClusterConfig | None = None,
    *,
    path: str | None = None,
    kill_wait: float = 2.0,
    timeout: float = 15.0,
) -> Handle:
    """Start a cluster below `folder` (made if need be) and wait until it answers.

    Jobs find `path` in front of their PATH, by default the folder of this Python (the venv's bin). Other users need
    to be able to reach the folder. UserError when one runs there already, SlurmUnavailable when it does not come up.
    """
    folder = folder.resolve()
    if len(str(folder / SOCKET)) > _MAX_SOCKET_PATH:
        raise UserError(f"{folder}: too long for a Unix socket")
    if status(folder) is not None:
        raise UserError(f"a simulated Slurm runs in {folder} already")
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "cluster.json"
    settings.write_text(json.dumps(encode(config or ClusterConfig()), indent=2))
    path = str(Path(sys.executable).parent) if path is None else path
    command = [sys.executable, "-m", "penstock_lab.mock.server", "--dir", str(folder), "--config", str(settings)]
    command += ["--path", path, "--kill-wait", str(kill_wait)]
    with (folder / "server.log").open("ab") as output:
        # Not from the caller's folder: a source tree there would hide installed packages.
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and process.poll() is None:
        if status(folder) is not None:
            return Handle(folder, folder / SOCKET, process.pid)
        time.sleep(_POLL)
    process.kill()
    process.wait()
    tail = (folder / "server.log").read_text(errors="replace").splitlines()[-3:]
    raise SlurmUnavailable(f"the simulated Slurm in {folder} did not come up: {' / '.join(tail)}")


def status(folder: Path) -> Handle | None:
    """The cluster that answers in `folder`, or None."""
    socket_path = folder.resolve() / SOCKET
    try:
        with _connect(socket_path, 5.0) as connection:
            return Handle(folder.resolve(), socket_path, peer_of(connection)[0])
    except OSError:
        return None


def stop(folder: Path, timeout: float = 15.0) -> None:
    """End the cluster in `folder` with all its jobs; none there is no error. SlurmUnavailable when it will not end."""
    found = status(folder)
    if found is None:
        for name in (SOCKET, PID_FILE):  # left by one that was killed
            (folder / name).unlink(missing_ok=True)
        return
    os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while (folder / PID_FILE).exists() or _lives(found.pid):
        if time.monotonic() > deadline:
            raise SlurmUnavailable(f"the simulated Slurm in {folder} (process {found.pid}) does not end")
        time.sleep(_POLL)


def call(folder: Path, method: str, /, **params: object) -> Any:  # noqa: ANN401 (JSON)
    """One request to the cluster's administration or Backend; its result as plain JSON values."""
    try:
        with _connect(folder / SOCKET, 10.0) as connection, connection.makefile("rb") as answers:
            connection.sendall(json.dumps({"method": method, "params": encode(params)}).encode() + b"\n")
            line = answers.readline()
        answer = json.loads(line)
    except (OSError, ValueError) as e:
        raise SlurmUnavailable(f"{folder}: {method}: {e}") from None
    if "error" in answer:
        raise decode_error(answer["error"])
    return answer["result"]


def _connect(path: Path, limit: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(limit)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def _lives(pid: int) -> bool:
    """Whether the process runs; if it is a child of ours that has ended, reap it."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
