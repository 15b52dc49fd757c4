"""A running cluster as an object: run commands as its users, break and mend its daemons, take it down."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from penstock.errors import PenstockError, UserError
from penstock_lab.cluster import database, processes
from penstock_lab.cluster.daemons import Daemons
from penstock_lab.cluster.enclosure import drop_to
from penstock_lab.cluster.files import LOCALHOST
from penstock_lab.cluster.layout import Layout, believe
from penstock_lab.cluster.network import NETWORK, Network
from penstock_lab.cluster.programs import PATH, path_for
from penstock_lab.cluster.removal import down
from penstock_lab.cluster.spec import ClusterSpec, check_folder, default_folder
from penstock_lab.cluster.state import load
from penstock_lab.cluster.status import Status, look
from penstock_lab.cluster.users import PEOPLE, SLURM_USER, Identity, identity

__all__ = ["Cluster"]

_KEPT = ("LANG", "LC_ALL", "TERM", "TZ")


@dataclass(frozen=True)
class Cluster:
    """One cluster that is up. Get it from `up()` or `Cluster.load()`."""

    daemons: Daemons
    already_up: bool = False

    @classmethod
    def load(cls, folder: Path | None = None) -> Cluster:
        """The cluster in this folder (default: the usual one); UserError where there is none, or another user's."""
        layout = Layout(check_folder(folder or default_folder()))
        believe(layout.root)
        state = load(layout)
        if state is None:
            raise UserError(f"no cluster in {layout.root}; start one with: penstock cluster up --dir {layout.root}")
        return cls(Daemons(layout, state))

    @property
    def folder(self) -> Path:
        """Everything the cluster has lies in here."""
        return self.daemons.layout.root

    @property
    def name(self) -> str:
        """Slurm's ClusterName."""
        return self.daemons.state.name

    @property
    def spec(self) -> ClusterSpec:
        """The options it was started with."""
        return self.daemons.state.spec

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes."""
        return self.spec.node_names

    @property
    def slurm_version(self) -> str:
        """Slurm's release, like "22.05.8"."""
        return self.daemons.state.slurm_version

    @property
    def munge_socket(self) -> Path:
        """The socket of its munged."""
        return self.daemons.state.accounting.munge_socket

    @property
    def address(self) -> str:
        """Where the nodes reach what listens on this machine (an agent)."""
        subnet = self.daemons.state.subnet
        return LOCALHOST if subnet is None else subnet.login

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's commands need so that they speak to this cluster, and its MPI programs to start."""
        env = {"SLURM_CONF": str(self.daemons.layout.slurm_conf)}
        # Where all nodes are this machine, UCX would ask each of its interfaces, and one that goes away meanwhile (a
        # container's, another cluster's) ends the program.
        return env if self.spec.isolated else env | {"UCX_NET_DEVICES": "lo"}

    @property
    def shell_env(self) -> dict[str, str]:
        """What a shell needs for that. Its PATH leads to commands that know which cluster it is, as some tools drop the
        variables in their jobs; with another Slurm release to that one's commands, for root."""
        layout = self.daemons.layout
        first = str(layout.programs if self.spec.release is None else layout.bin)
        usual = os.environ.get("PATH", PATH).split(os.pathsep)
        return {**self.env, "PATH": os.pathsep.join([first, *(folder for folder in usual if folder != first)])}

    def prefix(self, who: str, folder: Path = Path("/tmp")) -> list[str]:  # noqa: S108 (every cluster has it)
        """What root puts before a command so that it runs as a user of the cluster, and in `folder` where the cluster
        has a file system of its own. Signals reach the command itself. For `CliBackend`."""
        found = self.user(who)
        if not self.daemons.holders():
            return drop_to(found) if os.geteuid() == 0 else []
        self.daemons.refresh()
        return self.daemons.become(found, folder)[0]

    @property
    def users(self) -> dict[str, str]:
        """Login name by role: alice, bob, operator; started by a plain user, only "operator", which is that user."""
        return dict(self.daemons.state.users)

    def user(self, who: str) -> Identity:
        """A user by role or login name; also "root" and Slurm's user. UserError if unknown or not to be had."""
        login = self.users.get(who, who)
        if login not in (*self.users.values(), "root", self.daemons.state.slurm_user):
            raise UserError(f"{who!r} is no user of this cluster; it has {', '.join(sorted(self.users))}")
        found = identity(login)
        if os.geteuid() not in (0, found.uid):
            raise UserError(f"only root can run commands as {login}")
        return found

    def home(self, who: str) -> Path:
        """The folder in which the user's commands run unless told otherwise."""
        found = self.user(who)
        if found.name in PEOPLE.values():
            return self.daemons.layout.homes / found.name
        return Path("/") if found.name == SLURM_USER else Path(f"~{found.name}").expanduser()

    def user_env(self, who: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment of a user's command: nothing of the caller's but its language, its terminal, and of its
        PATH what the user can enter."""
        found = self.user(who)
        env = {key: os.environ[key] for key in _KEPT if key in os.environ}
        env |= {
            "PATH": self._path_of(found),
            "HOME": str(self.home(who)),
            "USER": found.name,
            "LOGNAME": found.name,
        }
        return env | {"SHELL": "/bin/bash"} | self.env | dict(more or {})

    def _path_of(self, found: Identity) -> str:
        usual = path_for(found.uid, found.gid)
        ordinary = found.name in self.users.values()
        return f"{self.daemons.layout.programs}:{usual}" if ordinary else usual

    def popen_as(
        self,
        who: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command as a user (role or login), in a session of its own. It ends with the cluster at the latest,
        if the cluster has made that user: what root or the caller runs beside it is not the cluster's to end.

        `env` is added to `user_env`. Text mode. End it with `os.killpg(p.pid, …)`, so that its children end too.
        With another Slurm release it runs inside that one's file system; what is not there ends with code 127.
        """
        prefix, place, run_as = self.daemons.become(self.user(who), cwd or self.home(who))
        return subprocess.Popen(
            [*prefix, *argv],
            env=self.user_env(who, env),
            cwd=place,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            umask=0o022,
            start_new_session=True,
            **run_as,
        )

    def run_as(
        self,
        who: str,
        argv: Sequence[str],
        *,
        timeout: float = 60.0,
        check: bool = False,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a user (role or login) and return its text output.

        After `timeout` seconds it and all it started are killed and subprocess.TimeoutExpired is raised; with
        `check`, subprocess.CalledProcessError on any exit code but 0, with what it wrote to stderr as a note.
        """
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        pipe = subprocess.PIPE
        with self.popen_as(who, argv, env=env, cwd=cwd, stdin=stdin, stdout=pipe, stderr=pipe) as process:
            try:
                out, err = process.communicate(input, timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if check and process.returncode != 0:
            error = subprocess.CalledProcessError(process.returncode, list(argv), out, err)
            error.add_note(f"stdout: {out.strip()}\nstderr: {err.strip()}")
            raise error
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def administer(self, *words: str) -> str:
        """`sacctmgr -i` with these words, as the administrator; returns when the controller knows of it."""
        self.daemons.refresh()
        return database.administer(self.daemons, *words)

    def status(self) -> Status:
        """What runs of it."""
        self.daemons.refresh()
        return look(self.daemons)

    def stop(self, daemon: str) -> None:
        """Stop one daemon in an orderly way: munged, mariadbd, slurmdbd, slurmctld, or a node's by its name."""
        self._known(daemon)
        if (process := self.daemons.state.processes.get(daemon)) is not None:
            processes.stop(process)

    def start(self, daemon: str) -> None:
        """Start a stopped daemon and wait until it serves; nothing happens if it runs."""
        self._known(daemon)
        if self.daemons.alive(daemon):
            return
        if daemon == NETWORK:
            raise PenstockError("the nodes are still in the old network; take the cluster down and bring it up again")
        self.daemons.start(daemon)
        if daemon in self.nodes:
            self.daemons.await_nodes([daemon])
            return
        self.daemons.await_core(daemon)
        if daemon == "slurmctld":
            self.daemons.await_known()

    def _known(self, daemon: str) -> None:
        if daemon not in (*self.daemons.core(), *self.nodes):
            raise UserError(f"{daemon!r} is no daemon of this cluster")
        self.daemons.refresh()

    def stop_controller(self) -> None:
        """Stop slurmctld; it saves its state."""
        self.stop("slurmctld")

    def kill_controller(self) -> None:
        """slurmctld dies as its host would: what it has taken since its last save is lost."""
        pid = self.daemons.state.processes["slurmctld"].pid
        processes.kill_all(lambda: [psutil.Process(pid)] if psutil.pid_exists(pid) else [])

    def start_controller(self) -> None:
        """Start slurmctld again, from its saved state."""
        self.start("slurmctld")

    def kill_node(self, node: str) -> None:
        """A node dies: its slurmd and all job processes on it are killed. Slurm sees it after `slurmd_timeout`."""
        self._known_node(node)
        at = self.daemons.layout
        processes.kill_all(lambda: processes.find(at.root, at.slurm_conf, node=node))

    def start_node(self, node: str) -> None:
        """The node comes back; waits until the controller counts on it."""
        self.start(node)

    def cut_node(self, node: str) -> None:
        """The network of an isolated node is cut: it lives on alone. Slurm sees it after `slurmd_timeout`."""
        self._network_of(node).cut(node)

    def slow_node(self, node: str, rate: float) -> None:
        """An isolated node sends and receives at most `rate` bits per second."""
        self._network_of(node).slow(node, rate)

    def mend_node(self, node: str) -> None:
        """The network of an isolated node works again as at first."""
        self._network_of(node).mend(node)

    def _network_of(self, node: str) -> Network:
        self._known_node(node)
        if not self.spec.isolated:
            raise UserError("the nodes share this machine's network; bring the cluster up with --isolated")
        self.daemons.refresh()
        return self.daemons.network

    def _known_node(self, node: str) -> None:
        if node not in self.nodes:
            raise UserError(f"{node!r} is no node of this cluster")

    def down(self) -> None:
        """End everything and remove every trace; the clusters that joined this one end with it."""
        down(self.folder)
