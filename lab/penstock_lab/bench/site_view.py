"""What a whole site asks of Slurm when its users share one look: requests a minute as `sdiag` counts them.

    python -m penstock_lab.bench.site_view                     # as root, about eight minutes
    python -m penstock_lab.bench.site_view [--users 500] [--guards 5000] [--agents 20] [--seconds 180] [--jobs 300]
                                           [--private jobs] [--no-view] [--json]

A throw-away Slurm with so many jobs in its queue, and beside it on this host: `penstock site-view`; agents as shipped,
each a process of a user of its own, with a workflow that goes on; askers that do what the agents of so many more users
do, a look a minute each over the real socket, each under a user id of its own; and guards, which ask the agents as
`dmr.ended` does over TCP with the user's credential, when they are told to. Nothing is submitted while it is counted.
Told: requests by users a minute, those of root's own `sdiag` left out; what the service used of a core and of memory;
how long askers and guards waited. `--no-view` is the same with agents that look for themselves, and no askers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import pwd
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from dmr import credential, wire
from penstock.errors import PenstockError
from penstock.host.unixdoor import connected
from penstock.ipc.client import ask
from penstock.site.look import client as looking
from penstock.site.look.client import SharedLook
from penstock_lab.cluster import Cluster, ClusterSpec, up

COMMAND: Final = [sys.executable, "-c", "from penstock.cli import main; main()"]
FOLDER: Final = Path("/var/tmp/pst-bench-view")
NAME: Final = "pst-bench"
STRANGERS: Final = 2_000_000  # user ids that nobody has
EVERY: Final = 60.0  # seconds between passes of an agent with something due
FLOW: Final = """name: w
workdir: {home}
stages:
  - {{name: a, nodes: 1, time: 3600, expect: 3000, run: sleep 3000}}
  - {{name: b, nodes: 1, time: 600, expect: 60, run: 'true', after: [a]}}
"""
ASKER: ContextVar[int] = ContextVar("asker")


@dataclass
class Waits:
    """How long answers took (s), and those that did not come."""

    took: list[float] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)

    def told(self) -> dict[str, Any]:
        return {
            "answers": len(self.took),
            "p50_ms": round(1000 * quantile(self.took, 0.5), 1),
            "p99_ms": round(1000 * quantile(self.took, 0.99), 1),
            "missed": dict(self.missed),
        }


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else math.nan


# -- users and their agents --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def people(count: int, cluster: Cluster) -> Iterator[list[pwd.struct_passwd]]:
    """So many users of this host, for as long as this runs."""
    names = [f"{NAME}-{number}" for number in range(1, count + 1)]
    homes = FOLDER.with_name(FOLDER.name + "-homes")
    try:
        for name in names:
            subprocess.run(["useradd", "-N", "-m", "-b", str(homes), "-K", "MAIL_DIR=/nonexistent", name], check=True)
        for name in names:
            cluster.administer("add", "user", name, "account=penstock", f"cluster={cluster.name}")
        yield [pwd.getpwnam(name) for name in names]
    finally:
        for name in names:
            subprocess.run(["userdel", "-r", name], capture_output=True, check=False)
        with contextlib.suppress(OSError):
            homes.rmdir()


class Agent:
    """One user's agent, as shipped."""

    def __init__(self, user: pwd.struct_passwd, cluster: Cluster, slurm: dict[str, Any]) -> None:
        self.user, self.home = user, Path(user.pw_dir)
        self.state = self.home / "state"
        settings = {
            "agent": {"state_dir": str(self.state)},
            "slurm": slurm,
            "dmr": {"listen": "127.0.0.1:0", "advertise": "127.0.0.1", "munge_socket": str(cluster.munge_socket)},
        }
        self.config = self.home / "penstock.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        path = f"{Path(cluster.env['SLURM_CONF']).parent.parent / 'programs'}:/usr/bin:/bin"
        self.environment = {**cluster.env, "PATH": path, "HOME": str(self.home), "PENSTOCK_CONFIG": str(self.config)}
        self.process = self.popen("agent", log=self.home / "log")
        self.job = 0

    def popen(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(
                [*COMMAND, *words],
                env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                user=self.user.pw_uid, group=self.user.pw_gid, extra_groups=[], umask=0o022,
            )  # fmt: skip

    def answers(self) -> bool:
        assert self.process.poll() is None, (self.home / "log").read_text()
        try:
            return bool(ask(self.state / "agent.sock", "ping"))
        except PenstockError:
            return False

    def begin(self) -> None:
        """A workflow whose first stage runs, or waits."""
        file, log = self.home / "w.yaml", self.home / "submitted"
        file.write_text(FLOW.format(home=self.home))
        assert self.popen("submit", str(file), "--strategy", "perstage", log=log).wait(120) == 0, log.read_text()

    def submitted(self) -> bool:
        stages = ask(self.state / "agent.sock", "status")["workflows"][0]["stages"]
        self.job = stages[0]["job"] or 0
        return bool(self.job)

    @property
    def door(self) -> tuple[tuple[str, int], credential.Key]:
        """Where it answers programs, and the user's key."""
        host, _, port = ask(self.state / "agent.sock", "env")["DMR_AGENT"].rpartition(":")
        return (host, int(port)), credential.Key(self.user.pw_uid, (self.state / "dmr.key").read_bytes())


def until(probe: Any, what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.2)


# -- what asks ---------------------------------------------------------------------------------------------------------


def connected_as(path: Path, seconds: float) -> socket.socket:
    """As `connected`, under the asker's user id, by which the other side knows who it is."""
    with ONE_USER:  # an id is the whole process's
        os.seteuid(ASKER.get())
        try:
            return connected(path, seconds)
        finally:
            os.seteuid(0)


ONE_USER: Final = threading.Lock()


async def asker(uid: int, shared: SharedLook, waits: Waits, end: float) -> None:
    """The looks of one more user's agent."""
    ASKER.set(uid)
    await asyncio.sleep(random.uniform(0, EVERY))
    while time.monotonic() < end:
        began = time.perf_counter()
        try:
            found = await shared.look(time.time())
        except PenstockError as e:
            found = None
            waits.missed[str(e)[:60]] += 1
        if found is None:
            waits.missed[shared.why.partition(":")[0]] += 1
        else:
            waits.took.append(time.perf_counter() - began)
            assert time.time() - found.taken_at < shared.promise + 2.0
        await asyncio.sleep(EVERY)


async def guard(
    number: int, agent: Agent, door: tuple[tuple[str, int], credential.Key], waits: Waits, end: float
) -> None:
    """One guard, from its first question on."""
    (host, port), key = door
    await asyncio.sleep(random.uniform(0, 30.0))
    while time.monotonic() < end:
        began, again = time.perf_counter(), 8.0
        try:
            request = wire.Ended(job=number, epoch=0, jobs=(agent.job,))
            line = wire.encode(wire.signed(request, lambda digest: credential.sign_key(digest, key)))
            async with asyncio.timeout(10.0):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(line)
                reply = wire.decode_reply(await reader.readline())
                writer.close()
            if isinstance(reply, wire.Endings):
                waits.took.append(time.perf_counter() - began)
                again = reply.again_in * random.uniform(1.0, 1.25)
            else:
                waits.missed[str(reply)[:60]] += 1
        except (OSError, TimeoutError, wire.WireError) as e:
            waits.missed[type(e).__name__] += 1
        await asyncio.sleep(again)


# -- the whole ---------------------------------------------------------------------------------------------------------


def by_users(cluster: Cluster) -> dict[str, Counter[str]]:
    """What sdiag has counted: requests by type, of all, and by user."""
    text = cluster.run_as("root", ["sdiag"], check=True).stdout
    types, _, users = text.partition("statistics by message type")[2].partition("statistics by user")
    found = {"types": Counter[str](), "users": Counter[str]()}
    for name, part in (("types", types), ("users", users.partition("Pending RPC")[0])):
        for line in part.splitlines():
            words = line.split()
            count = next((word[6:] for word in words if word.startswith("count:")), None)
            if count is not None:
                found[name][words[0]] += int(count)
    return found


def fill(cluster: Cluster, jobs: int) -> None:
    script = f"for i in $(seq {jobs}); do sbatch -Q -N2 -t30 -o /dev/null --wrap 'sleep 600' >/dev/null || exit; done"
    for who in ("alice", "bob"):
        cluster.run_as(who, ["sh", "-c", script.replace(f"{jobs}", f"{jobs // 2}")], timeout=600, check=True)


async def load(agents: list[Agent], path: Path | None, uid: int, options: argparse.Namespace) -> dict[str, Waits]:
    looks, guards = Waits(), Waits()
    end = time.monotonic() + options.seconds
    tasks = []
    looking.connected = connected_as  # type: ignore[attr-defined]
    if path is not None:
        for number in range(options.users):
            shared = SharedLook(path, [uid], "sv", silent=True)
            tasks.append(asyncio.ensure_future(asker(STRANGERS + number, shared, looks, end)))
    doors = [agent.door for agent in agents]
    for number in range(options.guards if agents else 0):
        which = number % len(agents)
        tasks.append(asyncio.ensure_future(guard(900_000 + number, agents[which], doors[which], guards, end)))
    await asyncio.sleep(options.seconds)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    return {"askers": looks, "guards": guards}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    extra = (f"PrivateData={options.private}",) if options.private else ()
    cluster = up(ClusterSpec(nodes=8, name="sv", folder=FOLDER, select="cons_tres", extra=extra))
    view: subprocess.Popen[str] | None = None
    agents: list[Agent] = []
    try:
        operator = cluster.user("operator")
        path = None if options.no_view else cluster.home("operator") / "view.sock"
        if path is not None:
            path.parent.chmod(0o755)
            words = [*COMMAND, "site-view", "--socket", str(path)]
            with (FOLDER / "view.log").open("w") as log:
                view = cluster.popen_as("operator", words, stdout=log, stderr=log)
            until(path.exists, "the view")
        fill(cluster, options.jobs)
        slurm = {"view": "off"} if path is None else {"view": str(path), "view_user": operator.name}
        with people(options.agents, cluster) as users:
            try:
                for user in users:
                    agents.append(Agent(user, cluster, slurm))
                for agent in agents:
                    until(agent.answers, "an agent")
                    agent.begin()
                for agent in agents:
                    until(agent.submitted, "a stage in the queue")
                time.sleep(options.settle)  # what follows a submission is over
                return counted(cluster, view, agents, path, operator.uid, options)
            finally:
                for agent in agents:
                    agent.process.send_signal(signal.SIGTERM)
                for agent in agents:
                    agent.process.wait(60)
                cluster.run_as("root", ["sh", "-c", "scancel -u $(squeue -ho %u | sort -u | paste -sd,)"], check=False)
    finally:
        if view is not None:
            os.killpg(view.pid, signal.SIGTERM)
            view.wait(30)
        cluster.down()


def counted(
    cluster: Cluster,
    view: subprocess.Popen[str] | None,
    agents: list[Agent],
    path: Path | None,
    uid: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    process = None if view is None else psutil.Process(view.pid)
    before, began = by_users(cluster), time.monotonic()
    cpu = None if process is None else sum(process.cpu_times()[:4])
    of_agents = [sum(psutil.Process(agent.process.pid).cpu_times()[:4]) for agent in agents]
    waits = asyncio.run(load(agents, path, uid, options))
    seconds = time.monotonic() - began
    after = by_users(cluster)
    users = {name: after["users"][name] - before["users"][name] for name in after["users"]}
    mine = sum(number for name, number in users.items() if name.startswith(NAME))
    of_view = users.get(cluster.users["operator"], 0)
    types = {name: after["types"][name] - before["types"][name] for name in after["types"]}
    used = [sum(psutil.Process(a.process.pid).cpu_times()[:4]) - b for a, b in zip(agents, of_agents, strict=True)]
    found: dict[str, Any] = {
        "seconds": round(seconds),
        "requests_a_minute": round(60 * (mine + of_view) / seconds, 1),
        "of_them_by_the_view": round(60 * of_view / seconds, 1),
        f"of_them_by_{len(agents)}_agents": round(60 * mine / seconds, 1),
        "types": {name: number for name, number in sorted(types.items()) if number},
        "agents_core_percent_each": round(100 * sum(used) / seconds / max(len(agents), 1), 2),
        **{name: wait.told() for name, wait in waits.items()},
    }
    if process is not None and cpu is not None:
        found["view_core_percent"] = round(100 * (sum(process.cpu_times()[:4]) - cpu) / seconds, 2)
        found["view_rss_mb"] = round(process.memory_info().rss / 1e6, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("users", 500), ("guards", 5000), ("agents", 20), ("jobs", 300)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--settle", type=float, default=60.0)
    parser.add_argument("--private", default="")
    parser.add_argument("--no-view", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("only root can be that many users")
    found = measure(options)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
