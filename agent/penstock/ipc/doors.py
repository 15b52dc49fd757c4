"""The agent's doors: a Unix socket for commands of this host, TCP for programs and for commands of other hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import ClassVar

from penstock.audit.record import Door
from penstock.config import Config
from penstock.core.families import Family
from penstock.core.parts import Operation, Part, Site
from penstock.errors import ConfigError
from penstock.host.listening import bare, cannot_listen
from penstock.host.logs import get_logger
from penstock.host.owners import first_peers
from penstock.ipc import figures
from penstock.ipc.address import advertised_host, name_for, other_addresses
from penstock.ipc.audited import RequestAudit
from penstock.ipc.auth import Verifier, make_key
from penstock.ipc.far import FarDoor
from penstock.ipc.handlers import LocalDoor, ProgramDesk, RemoteDoor
from penstock.ipc.limits import RateLimit
from penstock.ipc.server import Server

__all__ = ["DoorsPart"]

_log = get_logger(__name__)
# What is answered to a user's commands, and to a user's front programs.
_FACTORS = (1, 10)
_ANYWHERE = "0.0.0.0:0"


class DoorsPart(Part):
    """Shut until `open`. `audit` keeps what was asked for, `programs` decides on
    what they say. Where the state folder is shared
    by several hosts, `advertise` tells them where this one listens."""

    name: ClassVar[str] = "doors"

    def __init__(
        self,
        site: Site,
        programs: ProgramDesk,
        audit: RequestAudit,
        advertise: Callable[[str], None] | None,
    ) -> None:
        self._site, self._programs, self._audit, self._advertise = site, programs, audit, advertise
        self._limits = [RateLimit(1, 1) for _ in _FACTORS]
        self.server: Server | None = None
        self.local: LocalDoor | None = None
        self.remote: RemoteDoor | None = None
        self.far: FarDoor | None = None
        self.verifier: Verifier | None = None

    async def open(self, operations: Mapping[str, Operation], reachable: Callable[[Mapping[str, str]], None]) -> None:
        """Listen. `reachable` is told of the variables by which programs find the agent, before a command is
        answered. Raises ConfigError where it cannot listen."""
        site, config = self._site, self._site.config()
        key_path = config.agent.state_dir / "dmr.key"
        munge_socket = str(config.dmr.munge_socket) if config.dmr.munge_socket else None
        self.verifier = verifier = Verifier(make_key(key_path), munge_socket)
        self._set_limits(config)
        of_command, of_front = self._limits
        self.remote = RemoteDoor(self._programs, verifier, site.clock, self._audit)
        self.local = LocalDoor(operations, of_command, self._audit, of_front)
        self.server = server = Server(self.local.answer, self.remote.hear, first_peers(config.limits.first))
        bound = await self._listen(server, config.dmr.listen)
        environment = {"DMR_AGENT": f"{advertised_host(config)}:{bound}", "DMR_PYTHON": sys.executable}
        if others := other_addresses(config, bound):
            environment["DMR_AGENT_OTHERS"] = others
        if munge_socket is not None:
            environment["DMR_MUNGE_SOCKET"] = munge_socket
        if config.agent.serve == "own":
            environment["DMR_KEY_FILE"] = str(key_path)
        # Whoever submits a job as soon as commands are answered hears of the address above.
        reachable(environment)
        if self._advertise is not None:
            await self._open_far(server, self.local, verifier, self._advertise)
        try:
            await server.listen_unix(config.socket_path)
        except ConfigError as e:
            # Some network file systems have no sockets; the commands of this host then come by the other door, too.
            if self._advertise is None or config.agent.socket is not None:
                raise
            _log.warning("no socket for commands of this host, which will be answered over TCP", why=str(e))

    async def _listen(self, server: Server, at: str) -> int:
        """Listen for programs; the port. Running ones know it: after a restart the agent must be where it was."""
        store = self._site.store
        host, _, port = at.rpartition(":")
        wanted = int(port) or int(store.facts.get("dmr.port") or 0)
        for number in [wanted] if int(port) or not wanted else [wanted, 0]:  # 0: the system chooses
            try:
                bound = await server.listen_tcp(bare(host), number)
            except (OSError, ValueError) as e:  # a name that cannot be one is a ValueError
                failure = e
                _log.warning("cannot listen for applications", host=host, port=number, why=str(e))
                continue
            store.facts.remember("dmr.port", str(bound))
            return bound
        raise cannot_listen("dmr.listen", f"{host}:{wanted}", failure) from failure

    async def _open_far(
        self, server: Server, local: LocalDoor, verifier: Verifier, advertise: Callable[[str], None]
    ) -> None:
        """Answer commands of other hosts, and let the lease say where."""
        config = self._site.config()
        host, _, port = (config.agent.listen or _ANYWHERE).rpartition(":")
        try:
            self.far = FarDoor(local.answer_far, verifier, partial(self._audit.turned_away, Door.FAR, None))
            bound = await server.listen_far(bare(host), int(port), self.far)
        except (OSError, ValueError) as e:
            raise cannot_listen("agent.listen", f"{host}:{port}", e) from e
        advertise(f"{name_for(host, config)}:{bound}")

    def _set_limits(self, config: Config) -> None:
        for limit, factor in zip(self._limits, _FACTORS, strict=True):
            limit.configure(config.agent, factor)

    def families(self) -> Iterable[Family]:
        """See `Part`."""
        return figures.families(self.server, self.local, self.remote, self.far)

    def reconfigured(self, config: Config) -> None:
        """See `Part`."""
        self._set_limits(config)
        if self.server is not None:
            self.server.put_first(first_peers(config.limits.first))

    async def close(self) -> None:
        """See `Part`."""
        if self.server is not None:
            await self.server.close()
        if self.verifier is not None:
            self.verifier.close()
