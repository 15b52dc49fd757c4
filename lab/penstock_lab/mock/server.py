"""The simulated Slurm as a process of its own, so that agents can come and go while the cluster lives on.

    python -m penstock_lab.mock.server --dir DIR --nodes 8

It listens at DIR/mock.sock; who asks is what the kernel says of the peer (SO_PEERCRED). One connection carries one
request. Started by root it runs jobs as their users, else only as itself. Below DIR: `mock.sock`, `mock.pid`,
`server.log` (when started by `control.start`), `work/` (where jobs run that name no folder), `jobs/`, `bin/`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import pwd
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import Infeasible, NotPermitted, PenstockError, SlurmUnavailable
from penstock.host.logins import login
from penstock_lab.mock.backend import MockBackend
from penstock_lab.mock.clock import Driver
from penstock_lab.mock.codec import CALLS, decode, decode_params, encode, encode_error
from penstock_lab.mock.engine import Engine, made_up_uid
from penstock_lab.mock.faults import FaultKind, Faults
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.realtime import RealTimeDriver

__all__ = ["LINE_LIMIT", "PID_FILE", "SOCKET", "Server", "main", "peer_of"]

SOCKET = "mock.sock"
PID_FILE = "mock.pid"
LINE_LIMIT = 16 * 2**20
log = logging.getLogger(__name__)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process id and user id at the other end of a Unix socket."""
    size = struct.calcsize("3i")
    pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


class Server:
    """Answers requests for one cluster below `folder`. `run` lasts until `stop` or SIGTERM."""

    def __init__(self, folder: Path, config: ClusterConfig, *, path: str = "", kill_wait: float = 2.0) -> None:
        self._folder = folder.resolve()
        self._config = config
        self._path = path
        self._kill_wait = kill_wait
        self._faults = Faults()
        self._uids: dict[str, int] = {}
        self._stopping = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._drivers: list[RealTimeDriver] = []
        self._root: MockBackend | None = None

    async def run(self) -> None:
        """Serve until told to stop, then kill all jobs and remove the socket and the pid file."""
        path = self._folder / SOCKET
        # The end of a job is known only when its processes end, hence no durations.
        site: dict[str, tuple[Engine, Driver]] = {}
        for config in (self._config, *self._config.siblings):
            folder = self._folder / "clusters" / config.cluster if site else self._folder
            folder.mkdir(parents=True, exist_ok=True)
            engine = Engine(config, time.time(), duration=None, uid_of=self._uid_of)
            driver = RealTimeDriver(engine, folder, path=self._path, kill_wait=self._kill_wait)
            self._drivers.append(driver)
            site[config.cluster] = engine, driver
        engine, first = site[self._config.cluster]
        self._root = MockBackend(engine, "root", first, site=site)
        for each in self._drivers:
            each.settle()  # sets the alarm for failures, if any are to come
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._connected, path, limit=LINE_LIMIT)
        path.chmod(0o666)
        (self._folder / PID_FILE).write_text(f"{os.getpid()}\n")
        try:
            await self._stopping.wait()
        finally:
            server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            for driver in self._drivers:
                await driver.close()
            for name in (SOCKET, PID_FILE):
                (self._folder / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stopping.set()

    def _uid_of(self, user: str) -> int:
        return self._uids[user]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            line = await reader.readline()
            if line:
                answer = await self._answer(line, writer.get_extra_info("socket"), reader)
                if answer is not None:
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the peer has gone, or has sent a line without end
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(
        self, line: bytes, connection: socket.socket, reader: asyncio.StreamReader
    ) -> Mapping[str, Any] | None:
        """The answer to a request; None for silence."""
        try:
            try:
                message = json.loads(line)
                method, params = str(message["method"]), dict(message.get("params", {}))
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise Infeasible(f"not a request: {e}") from None
            uid, user = self._identify(connection, message.get("as"))
            fault = self._faults.take(method, time.time()) if method in CALLS else None
            if fault is not None and fault.kind is FaultKind.ERROR:
                raise fault.error or SlurmUnavailable(f"{method}: a fault was ordered")
            if fault is not None and fault.kind is FaultKind.HANG:
                await reader.read()  # until the peer gives up
                return None
            try:
                assert self._root is not None
                cluster = self._root if message.get("cluster") is None else self._root.on(str(message["cluster"]))
                result = await self._call(uid, cluster.as_user(user), method, params, reader)
                if fault is not None and fault.kind is FaultKind.REPEAT:
                    result = await self._call(uid, cluster.as_user(user), method, params, reader)
            except (ValueError, TypeError) as e:
                raise Infeasible(f"{method}: {e}") from None
            if fault is not None and fault.kind is FaultKind.LOST_ANSWER:
                return None
            if fault is not None and fault.kind is FaultKind.LATE:
                await asyncio.sleep(fault.delay)
        except PenstockError as e:
            return {"error": encode_error(e)}
        return {"result": encode(result)}

    def _identify(self, connection: socket.socket, wanted: object) -> tuple[int, str]:
        """Who asks: the peer, or whom root (and the user whose cluster it is) says to act for.

        If the server is not root, other users exist in name only: their jobs run as the server's own user.
        """
        _pid, uid = peer_of(connection)
        if wanted is None:
            if os.geteuid() not in (0, uid):
                raise NotPermitted(f"this cluster is {login(os.geteuid())}'s and cannot run jobs of others")
            self._uids[login(uid)] = uid
            return uid, login(uid)
        if uid not in (0, os.geteuid()):
            raise NotPermitted(f"{login(uid)} may not act for others")
        user = str(wanted)
        try:
            self._uids[user] = pwd.getpwnam(user).pw_uid
        except KeyError:
            if os.geteuid() == 0:
                raise Infeasible(f"no such user: {user}") from None
            self._uids[user] = made_up_uid(user)
        return self._uids[user], user

    async def _call(
        self, uid: int, backend: MockBackend, method: str, params: dict[str, Any], reader: asyncio.StreamReader
    ) -> object:
        if method not in CALLS:
            return self._administer(uid, backend, method, params)
        call = getattr(backend, method)(**decode_params(method, params))
        if method != "allocate":
            return await call
        work = asyncio.ensure_future(call)
        farewell = asyncio.ensure_future(reader.readline())
        await asyncio.wait({work, farewell}, return_when=asyncio.FIRST_COMPLETED)
        if farewell.done() and not work.done() and farewell.result():
            work.cancel()  # a client that says so takes its request back; one that just vanishes leaves it, as salloc
        try:
            return await work
        finally:
            farewell.cancel()

    def _administer(self, uid: int, backend: MockBackend, method: str, params: dict[str, Any]) -> object:
        """What tests and the demo may do to the cluster: root and the user whose cluster it is."""
        if uid not in (0, os.geteuid()):
            raise NotPermitted(f"{method} is for root and {login(os.geteuid())}")
        engine = backend.engine
        actions: dict[str, Callable[..., object]] = {
            "fault": self._faults.order,
            "away": lambda seconds: self._faults.away(time.time() + seconds),
            "fail_node": engine.fail_node,
            "drain_node": engine.drain_node,
            "resume_node": engine.resume_node,
            "stop": self.stop,
            "status": lambda: {"pid": os.getpid(), "config": engine.config, "jobs": len(engine.jobs)},
        }
        if method not in actions:
            raise Infeasible(f"no such method: {method}")
        result = actions[method](**params)
        backend.driver.settle()
        return result


def main(arguments: list[str] | None = None) -> None:
    """The command line; `--config` is a ClusterConfig as JSON, which the other options change."""
    parser = argparse.ArgumentParser(description="A simulated Slurm that runs its jobs on this host.")
    parser.add_argument("--dir", type=Path, required=True, help="folder of the cluster (made if need be)")
    parser.add_argument("--config", type=Path, help="the cluster as JSON")
    parser.add_argument("--nodes", type=int, help="how many nodes")
    parser.add_argument("--accrue-always", action="store_true", help="dependent jobs age while they wait")
    parser.add_argument("--contain", action="store_true", help="every job has an extern step: no merging")
    parser.add_argument("--no-expansion", action="store_true", help="permit_job_expansion is off")
    parser.add_argument("--operator", action="append", default=[], help="a user with AdminLevel=Operator")
    parser.add_argument("--path", default="", help="put in front of the jobs' PATH (the bin of a venv)")
    parser.add_argument("--kill-wait", type=float, default=2.0, help="seconds between SIGTERM and SIGKILL")
    options = parser.parse_args(arguments)
    data = json.loads(options.config.read_text()) if options.config else {}
    if options.nodes is not None:
        data["nodes"] = options.nodes
    for name, value in (("accrue_always", options.accrue_always), ("contain", options.contain)):
        data[name] = value or data.get(name, False)
    if options.no_expansion:
        data["permit_job_expansion"] = False
    data["operators"] = [*data.get("operators", []), *options.operator]
    config: ClusterConfig = decode(ClusterConfig, data)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options.dir.mkdir(parents=True, exist_ok=True)

    async def serve() -> None:
        await Server(options.dir, config, path=options.path, kill_wait=options.kill_wait).run()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
