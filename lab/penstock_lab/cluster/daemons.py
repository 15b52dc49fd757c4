"""The daemons of a cluster: their command lines, in which order they start, and when they are ready."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import PenstockError
from penstock_lab.cluster import network, processes
from penstock_lab.cluster.enclosure import ENCLOSURE, Enclosure, enter, holder, shared_paths
from penstock_lab.cluster.files import LOCALHOST
from penstock_lab.cluster.layout import Layout
from penstock_lab.cluster.network import NETWORK, Network
from penstock_lab.cluster.processes import Process
from penstock_lab.cluster.programs import PATH
from penstock_lab.cluster.rootfs import prepare
from penstock_lab.cluster.state import State, load, save
from penstock_lab.cluster.users import Identity, RunAs, identity

__all__ = ["Daemons"]

_LIMIT = 30.0


@dataclass
class Daemons:
    """Starts and stops the daemons of one cluster and records them. Methods that wait raise PenstockError."""

    layout: Layout
    state: State

    def core(self) -> tuple[str, ...]:
        """The daemons besides the nodes' slurmd, in the order in which they start."""
        shared = () if self.state.spec.join else ("munged", "mariadbd", "slurmdbd")
        return (*self.holders(), *shared, "slurmctld")

    def holders(self) -> tuple[str, ...]:
        """Those of them that hold namespaces in which all the others run."""
        spec = self.state.spec
        return (*((NETWORK,) if spec.isolated else ()), *((ENCLOSURE,) if spec.release else ()))

    @property
    def network(self) -> Network:
        """That of isolated nodes."""
        return Network(self.state.processes[NETWORK], self.layout.network)

    @property
    def enclosure(self) -> Enclosure:
        """That of another Slurm release."""
        return Enclosure(self.state.processes[ENCLOSURE])

    def become(self, who: Identity, folder: Path = Path("/"), node: str | None = None) -> tuple[list[str], Path, RunAs]:
        """How a command runs as this user in this folder: what to put before it, then cwd and arguments of subprocess.

        In a cluster that is isolated or of another Slurm release it runs inside, where only what stands before it can
        take it. `node`: as one of the processes of this node.
        """
        spec = self.state.spec
        if not self.holders():
            return [], folder, who.run_as()
        namespaces = self.enclosure.mounts() if spec.release else self.network.mounts()
        booted: list[str] = []
        if spec.isolated and node is not None:
            namespaces += self.network.node(node)
            booted = self.network.booted()
        return enter(namespaces, who, folder, booted), Path("/"), {}

    def refresh(self) -> None:
        """Learn what other commands recorded meanwhile."""
        if (recorded := load(self.layout)) is not None:
            self.state.processes.update(recorded.processes)

    def alive(self, name: str) -> bool:
        """Whether the daemon that is recorded under this name runs."""
        process = self.state.processes.get(name)
        return process is not None and process.alive

    def start(self, name: str) -> Process:
        """Start one daemon and record it at once; does not wait until it is ready."""
        program = name if name in self.core() else "slurmd"
        env = {"PATH": PATH, "LC_ALL": "C.UTF-8", "SLURM_CONF": str(self.layout.slurm_conf)}
        env[processes.MARK] = str(self.layout.root)
        if program == "slurmd":
            env[processes.NODE_MARK] = name
        if program == "slurmdbd":
            # The only way to tell Slurm's plug-in of a database socket that is not the system's.
            env["MYSQL_UNIX_PORT"] = str(self.layout.database_socket)
        argv, cwd, run_as = self._command_line(name, program), Path("/"), RunAs()
        if name not in self.holders():
            prefix, cwd, run_as = self.become(self._identity(program), node=name if program == "slurmd" else None)
            argv = [*prefix, *argv]
        process = processes.start(argv, env, self.layout.log(name), cwd, run_as)
        self.state.processes[name] = process
        save(self.layout, self.state)
        return process

    def _identity(self, program: str) -> Identity:
        # slurmd starts the users' processes, so it stays the caller: root where there are other users.
        return identity() if program == "slurmd" else identity(self.state.slurm_user)

    def _command_line(self, name: str, program: str) -> list[str]:
        spec = self.state.spec
        if name == NETWORK and self.state.subnet is not None:
            return network.holder(self.layout, self.state.subnet, spec.node_names)
        if spec.release is None:
            path = shutil.which(program, path=PATH)
            if path is None:
                raise PenstockError(f"{program} is no longer installed")
            return [path, *self._arguments(name)]
        if program != ENCLOSURE:
            return [program, *self._arguments(name)]
        folders = [self.layout.root, *([] if spec.join is None else [spec.join])]
        hosts = self.layout.hosts if spec.isolated else None
        return holder(prepare(spec.release), self.layout.mount_point, [*folders, *shared_paths()], hosts)

    def _arguments(self, name: str) -> list[str]:
        at = self.layout
        if name == "munged":
            return [
                "--foreground",
                # Munge refuses a socket that not everybody can reach; a plain user's home is often closed.
                *([] if self.state.owner == 0 else ["--force"]),
                "--num-threads=2",
                f"--key-file={at.munge / 'munge.key'}",
                f"--socket={at.munge_socket}",
                f"--pid-file={at.munge / 'munged.pid'}",
                f"--log-file={at.munge / 'munged.log'}",
                f"--seed-file={at.munge / 'munge.seed'}",
            ]
        if name == "mariadbd":
            return [
                *database_options(at),
                f"--socket={at.database_socket}",
                f"--pid-file={at.database / 'mariadbd.pid'}",
                f"--init-file={at.database_init}",
                "--skip-networking",
                "--innodb-lock-wait-timeout=900",
                "--max-allowed-packet=16M",
            ]
        if name == "slurmctld":
            # -i: one that was killed before it had saved all of its state would refuse to start again.
            return ["-D", "-i"]
        if name == "slurmdbd":
            return ["-D"]
        return ["-D", "-N", name]

    def await_core(self, name: str, limit: float = _LIMIT) -> None:
        """Wait until a daemon of `core` answers."""
        ready: Callable[[], bool] = {
            NETWORK: lambda: self.network.ready,
            ENCLOSURE: lambda: self.enclosure.ready,
            "munged": self.layout.munge_socket.is_socket,
            "mariadbd": lambda: _accepts_unix(str(self.layout.database_socket)),
            "slurmdbd": lambda: _accepts_tcp(self.state.accounting.port),
            "slurmctld": self._controller_answers,
        }[name]
        processes.wait_for(ready, name, self.state.processes[name], self.layout.log(name), limit)

    def await_nodes(self, names: Iterable[str], limit: float = _LIMIT) -> None:
        """Wait until the controller counts on all of these nodes, as they run now."""
        for name in names:
            process = self.state.processes[name]

            def serves(name: str = name, process: Process = process) -> bool:
                node = self._nodes().get(name, {})
                # A node that was killed a moment ago still looks idle; it is back when its new start is known.
                return _start_time(node) >= int(process.started) and _usable(node.get("State", "UNKNOWN"))

            processes.wait_for(serves, name, process, self.layout.log(name), limit)

    def await_known(self, limit: float = _LIMIT) -> None:
        """Wait until a controller that was started again has heard from every node that runs."""
        alive = {name for name in self.state.spec.node_names if self.alive(name)}

        def known() -> bool:
            nodes = self._nodes()
            return bool(nodes) and not any(nodes.get(name, {}).get("State", "").startswith("UNKNOWN") for name in alive)

        name = "slurmctld"
        processes.wait_for(known, name, self.state.processes[name], self.layout.log(name), limit)

    def command(self, argv: list[str], limit: float = 10.0) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands as the caller, who is Slurm's administrator here; it writes times in UTC."""
        env = {"PATH": PATH, "LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_CONF": str(self.layout.slurm_conf)}
        prefix, cwd, run_as = self.become(identity())
        try:
            return subprocess.run(
                [*prefix, *argv],
                env=env,
                capture_output=True,
                text=True,
                timeout=limit,
                stdin=subprocess.DEVNULL,
                cwd=cwd,
                check=False,
                **run_as,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, "", f"no answer within {limit:.0f} s")

    def _controller_answers(self) -> bool:
        # Where there is no controller, this says so at once; every other command tries for nine seconds.
        return self.command(["scontrol", "ping"]).returncode == 0

    def node_states(self) -> dict[str, str]:
        """State of every node in Slurm's words ("IDLE", "DOWN*+DRAIN"); empty if the controller does not answer."""
        return {name: node.get("State", "UNKNOWN") for name, node in self._nodes().items()}

    def _nodes(self) -> dict[str, dict[str, str]]:
        try:
            if not self._controller_answers():
                return {}
            lines = self.command(["scontrol", "-o", "show", "node"]).stdout.splitlines()
        except PenstockError:  # the controller cannot be reached without them
            if all(self.alive(name) for name in self.holders()):
                raise
            return {}
        nodes = (dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines)
        return {node["NodeName"]: node for node in nodes if "NodeName" in node}


def _start_time(node: dict[str, str]) -> int:
    try:
        return int(datetime.fromisoformat(node["SlurmdStartTime"]).replace(tzinfo=UTC).timestamp())
    except (KeyError, ValueError):
        return 0


def _usable(state: str) -> bool:
    return not state.startswith(("DOWN", "UNKNOWN", "FAIL")) and "*" not in state


def database_options(at: Layout) -> list[str]:
    """MariaDB's options that hold while it is made and while it runs: small, and fast rather than durable."""
    return [
        "--no-defaults",
        f"--datadir={at.database}",
        f"--tmpdir={at.database}",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=8M",
        "--innodb-doublewrite=0",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--sync-frm=0",
        "--skip-log-bin",
        "--performance-schema=0",
        "--skip-name-resolve",
    ]


def _accepts_unix(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def _accepts_tcp(port: int) -> bool:
    try:
        socket.create_connection((LOCALHOST, port), timeout=2).close()
    except OSError:
        return False
    return True
