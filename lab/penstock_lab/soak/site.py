"""A real Slurm of its own for a soak, an agent on it that is killed and started again, and what can go wrong with both.

The agent runs as an ordinary user of the cluster, its state folder is a small file system of its own (a tmpfs), and it
finds bash scripts where Slurm's commands are: they read from a file how often they are to be slow, to fail, to lose
their answer, or to end the agent just before or after what they do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import psutil
import yaml

from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.soak.bounds import Allowed

__all__ = ["ALLOWED", "BOB", "CAPS", "OPERATOR", "OWNER", "Mood", "Site", "agents_settings", "site", "site_on"]

OWNER: Final = "alice"
BOB: Final = "bob"
OPERATOR: Final = "operator"
NODES: Final = 10
_WALL: Final = 45  # minutes: what a workflow in one job may ask for, and no more
_LONGEST: Final = 60  # of the partition
ALLOWED: Final = {
    OWNER: Allowed(nodes=6, job=5, wall=60.0 * _WALL),
    BOB: Allowed(nodes=3, job=5, wall=60.0 * _WALL),
    OPERATOR: Allowed(nodes=6, job=5, wall=60.0 * _WALL),
}
"""What the site's limits leave to each user: those of the QOS, and bob's own association."""
CAPS: Final = {OWNER: 600, BOB: 24, OPERATOR: 200}
"""Most submissions of each user in any hour, over agent and commands, of each kind; bob's is one that his commands
reach. Half of them at once, and half as the hour goes on."""
_COMMAND: Final = (sys.executable, "-c", "from penstock.cli import main; main()")
_DISK: Final = "48m"
_PATIENCE: Final = 120.0  # the machine may have much else to do
_WRAPPED: Final = ("sbatch", "squeue", "scontrol", "scancel", "salloc", "sacct", "sinfo")
_SCRIPT: Final = """\
#!/bin/bash
# The shares of calls, in thousandths: slow, failing, without an answer, and deadly for the agent before and after.
slow=0 fail=0 lost=0 before=0 after=0
{{ read -r slow fail lost before after; }} 2>/dev/null <{mood}
draw=$((RANDOM % 1000))
# A command is what has started this; of the agent it may be a child.
agent() {{ kill -9 "${{SOAK_VICTIM:-$(<{pid})}}"; }}
[[ ${{SOAK_VICTIM:-}} == parent ]] && SOAK_VICTIM=$PPID
if ((draw < slow)); then
    sleep "$((RANDOM % 8)).$((RANDOM % 10))"
elif ((draw < slow + fail)); then
    echo "{name}: error: Unable to contact slurm controller (connect failure)" >&2
    exit 1
elif ((draw < slow + fail + lost)); then
    {real} "$@" >/dev/null 2>&1
    echo "{name}: error: Socket timed out on send/recv operation" >&2
    exit 1
elif ((draw < slow + fail + lost + before)); then
    agent
elif ((draw < slow + fail + lost + before + after)); then
    {real} "$@"
    agent
    exit 0
fi
exec {real} "$@"
"""


@dataclass(frozen=True, slots=True)
class Mood:
    """How many of a thousand calls of Slurm's commands are slow, fail, lose their answer, or end the agent just before
    or just after what they do."""

    slow: int = 0
    fail: int = 0
    lost: int = 0
    before: int = 0
    after: int = 0

    def text(self) -> str:
        """As the commands read it."""
        return f"{self.slow} {self.fail} {self.lost} {self.before} {self.after}\n"


class Site:
    """The cluster and the agent. `lives` counts its starts, `exits` are (instant, code) of those that ended by
    themselves, `environment` is what it finds more in its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.home = cluster.home(OWNER)
        self.state = self.home / "agent"
        self.socket = self.state / "agent.sock"
        self.log = cluster.folder / "agent.log"
        self._bin = cluster.folder / "soak-bin"
        self._mood = cluster.folder / "mood"
        self._pid = self.home / "agent.pid"
        self._settings: dict[str, dict[str, Any]] = {}
        self._ballast = self.state / "ballast"
        self._process: subprocess.Popen[str] | None = None
        self.lives = 0
        self.exits: list[tuple[float, int]] = []
        self.environment: dict[str, str] = {}

    # -- preparing -----------------------------------------------------------------------------------------------------

    def prepare(self, settings: Mapping[str, dict[str, Any]]) -> None:
        """The folder on a disk of its own, the configuration of each user, the commands."""
        user = self.cluster.user(OWNER)
        self.state.mkdir(mode=0o711)
        owner = f"uid={user.uid},gid={user.gid},mode=0711,size={_DISK}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", owner, "penstock-soak", str(self.state)], check=True)
        self._settings = dict(settings)
        self.allow(None)
        self._bin.mkdir(mode=0o755)
        self._pid.write_text("0")
        self.mood(Mood())
        path = self.cluster.user_env(OWNER)["PATH"]
        for name in _WRAPPED:
            real = shutil.which(name, path=path)
            file = self._bin / name
            file.write_text(_SCRIPT.format(name=name, real=real, mood=self._mood, pid=self._pid))
            file.chmod(0o755)

    def limit(self) -> None:
        """Set what `ALLOWED` says."""
        own, most = ALLOWED[OWNER], ALLOWED[BOB].nodes
        wall = [f"MaxWall={_WALL}", f"MaxTRESPerUser=node={own.nodes}", f"MaxTRESPerJob=node={own.job}"]
        self.cluster.administer("modify", "qos", "normal", "set", *wall)
        bob = self.cluster.user(BOB).name
        self.cluster.administer("modify", "user", bob, "set", f"GrpTRES=node={most}")
        self.cluster.administer("modify", "account", "penstock", "set", f"GrpTRES=node={own.nodes + most}")
        change = ["scontrol", "update", "PartitionName=batch", f"MaxTime={_LONGEST}"]
        self.cluster.run_as("root", change, check=True)

    def allow(self, rules: list[dict[str, Any]] | None) -> None:
        """`limits.allow` of all users from now on; the agent's once it is started again."""
        for who, settings in self._settings.items():
            limits = {} if rules is None else {"limits": {"allow": rules}}
            fresh = self.config(who).with_suffix(".new")
            fresh.write_text(yaml.safe_dump(settings | limits))
            fresh.chmod(0o644)
            fresh.replace(self.config(who))

    def config(self, who: str) -> Path:
        """The configuration of this user's commands; `OWNER`'s is the agent's, too."""
        return self.cluster.folder / f"penstock-{who}.yaml"

    def folder(self, who: str) -> Path:
        """Where this user's journal of commands, ledger and bags are."""
        return self.state if who == OWNER else self.cluster.home(who) / "agent"

    def clear(self) -> None:
        """End the agent and take its disk away."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_PATIENCE)
        if os.path.ismount(self.state):
            subprocess.run(["umount", "-l", str(self.state)], check=False)

    # -- the agent -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start its process; it answers some time later."""
        environment = {
            "PENSTOCK_CONFIG": str(self.config(OWNER)),
            "PATH": f"{self._bin}:{self.cluster.user_env(OWNER)['PATH']}",
            **self.environment,
        }
        with self.log.open("a") as output:
            self._process = self.cluster.popen_as(
                OWNER, [*_COMMAND, "agent"], env=environment, cwd=self.home, stdout=output, stderr=output
            )
        self._pid.write_text(str(self._process.pid))
        self.lives += 1

    def kill(self) -> None:
        """SIGKILL; the commands that it has started go on, as they would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_PATIENCE)

    def tend(self) -> bool:
        """Start it again where it has ended; whether it had been killed."""
        if self._process is None or self._process.poll() is None:
            return False
        code = self._process.returncode
        if code != -signal.SIGKILL:
            self.exits.append((time.time(), code))
        self.launch()
        return code == -signal.SIGKILL

    def ask(self, op: str, **arguments: Any) -> Any:
        """One request as root; None where nobody answers, and for what is refused."""
        try:
            return self.request(op, **arguments)
        except PenstockError:
            return None

    def request(self, op: str, **arguments: Any) -> Any:
        """The same; raises what the agent raised, and AgentUnavailable."""
        return ask(self.socket, op, arguments, timeout=30)

    def memory(self) -> float | None:
        """Its bytes of memory."""
        try:
            return None if self._process is None else float(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return None

    def command(self, who: str, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """One command of a user, with the real commands of Slurm."""
        environment = {"PENSTOCK_CONFIG": str(self.config(who)), "DMR_MUNGE_SOCKET": str(self.cluster.munge_socket)}
        return self.cluster.run_as(
            who, words, input=text, env=environment, cwd=self.cluster.home(who), timeout=_PATIENCE
        )

    def penstock(self, who: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One `penstock` command."""
        return self.command(who, *_COMMAND, *words)

    def begin(self, who: str, words: Sequence[str], output: IO[str], errors: IO[str]) -> subprocess.Popen[str]:
        """Start a `penstock` command of a user, for which Slurm is as it is for the agent: slow, failing, deadly."""
        environment = {
            "PENSTOCK_CONFIG": str(self.config(who)),
            "PATH": f"{self._bin}:{self.cluster.user_env(who)['PATH']}",
            "SOAK_VICTIM": "parent",
        }
        return self.cluster.popen_as(
            who, [*_COMMAND, *words], env=environment, cwd=self.cluster.home(who), stdout=output, stderr=errors
        )

    @staticmethod
    def end_group(process: subprocess.Popen[str], number: int) -> None:
        """A signal to a command and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    # -- the weather ---------------------------------------------------------------------------------------------------

    def mood(self, mood: Mood) -> None:
        """From now on."""
        fresh = self._mood.with_suffix(".new")
        fresh.write_text(mood.text())
        fresh.chmod(0o644)
        fresh.replace(self._mood)

    def fill_disk(self) -> None:
        """To the last byte."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def empty_disk(self) -> None:
        """There is room again."""
        self._ballast.unlink(missing_ok=True)

    def kill_controller(self, patience: float = 30.0) -> None:
        """SIGKILL slurmctld right after it has saved its state, and start it again.

        It saves some five seconds after a change, and what it has accepted since is lost with it: no agent can make
        that good, and this is not about slurmctld.
        """
        saved = self.cluster.daemons.layout.saved / "job_state"
        before, deadline = _identity(saved), time.monotonic() + patience
        while _identity(saved) == before and time.monotonic() < deadline:
            time.sleep(0.005)
        self.cluster.kill_controller()
        self.start_controller()

    def restart_controller(self) -> None:
        """In an orderly way."""
        self.cluster.stop_controller()
        self.start_controller()

    def start_controller(self) -> None:
        """Wait until it serves, and for nodes that die meanwhile not for ever."""
        _patiently(self.cluster.start_controller)

    def start_node(self, node: str) -> None:
        """It comes back; waits until the controller counts on it."""
        _patiently(lambda: self.cluster.start_node(node))

    def slurm(self, *words: str) -> str:
        """What a command of Slurm says to root; empty where it fails."""
        try:
            return self.cluster.run_as("root", words, env={"SLURM_TIME_FORMAT": "%s"}, timeout=_PATIENCE).stdout
        except subprocess.TimeoutExpired:
            return ""


def agents_settings(cluster: Cluster) -> dict[str, Any]:
    """The configuration of `OWNER`'s agent, which looks every other second."""
    return {
        "agent": {"state_dir": str(cluster.home(OWNER) / "agent"), "interval": 2, "idle_interval": 2, "seed": 7},
        "slurm": {"min_interval": 1, "requests_per_second": 20, "request_burst": 200, "timeout": 15},
        "dmr": {
            "listen": f"{cluster.address}:0",
            "munge_socket": str(cluster.munge_socket),
            "policy": "wide",
            "cooldown": 3,
            "grant_timeout": 10,
            "accept_timeout": 20,
        },
        "malleable": {"resize_timeout": 60},
        # What is known of the predictor of run times is not looked at: tasks move, if they can be done sooner.
        "select": {"gain": 5, "gain_share": 0.0},
        "log": {"format": "json"},
    }


def _settings(cluster: Cluster) -> dict[str, dict[str, Any]]:
    mine = agents_settings(cluster)
    made = {OWNER: {**mine, "slurm": {**mine["slurm"], **_capped(OWNER)}}}
    for who in (BOB, OPERATOR):  # who have no agent: their commands do all
        slurm = {"requests_per_second": 20, "request_burst": 200, "timeout": 15, **_capped(who)}
        state = str(cluster.home(who) / "agent")
        made[who] = {"agent": {"state_dir": state}, "slurm": slurm, "provision": {"margin": 60}}
    return made


def _capped(who: str) -> dict[str, int]:
    half = CAPS[who] // 2
    return {
        "submissions_per_hour": CAPS[who],
        "user_submissions_burst": half,
        "user_submissions_per_hour": half,
    }


def _patiently(start: Callable[[], object]) -> None:
    """A daemon that is late on a busy machine is waited for again."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            start()
            return
        except PenstockError:
            if time.monotonic() > end:
                raise


def _identity(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return found.st_ino, found.st_mtime_ns


@contextlib.contextmanager
def site(folder: Path, extra: Sequence[str] = ()) -> Iterator[Site]:
    """A cluster in this folder with everything but an agent that runs; nothing is left of it afterwards but logs."""
    with site_on(
        folder, ClusterSpec(nodes=NODES, slurmd_timeout=15, enforce=True, extra=tuple(extra)), _settings
    ) as it:
        it.limit()
        yield it


@contextlib.contextmanager
def site_on(
    folder: Path, spec: ClusterSpec, settings: Callable[[Cluster], Mapping[str, dict[str, Any]]]
) -> Iterator[Site]:
    """The same on a cluster like that, with these settings of each user."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    made = None
    try:
        cluster = up(replace(spec, folder=folder / "slurm"))
        made = Site(cluster)
        made.prepare(settings(cluster))
        yield made
    finally:
        if made is not None:
            made.clear()
            for name in ("agent.log", "log"):
                _keep(made.cluster.folder / name, folder / name)
        _patiently(lambda: down(folder / "slurm"))


def _keep(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("maria*", "munge*"))
    elif source.exists():
        shutil.copy(source, target)
