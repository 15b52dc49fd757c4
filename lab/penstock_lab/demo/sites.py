"""A cluster and an agent as real processes, started for the demo and gone after it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import PenstockError, SlurmUnavailable
from penstock.slurm.base import Backend
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.parse import expand_hosts, parse_time, parse_version
from penstock.values import merging
from penstock_lab.demo.accounting import Held
from penstock_lab.demo.arena import LiveArena
from penstock_lab.mock.client import MockClient

__all__ = ["Ground", "Site", "accounted", "mock_site", "slurm_site"]

NODES = 8
Accounting = Callable[[Collection[int]], Awaitable[list[Held]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where things run: the agent's arena, the demo user's own view of the cluster, a folder that user can write to,
    the nodes. `agent_log` is None where the agent is not the demo's. `accounting` says who held which node by Slurm's
    own books; None where Slurm is simulated."""

    arena: LiveArena
    own: Backend
    folder: Path
    nodes: tuple[str, ...] = tuple(f"n{i + 1}" for i in range(NODES))
    agent_log: Path | None = None
    accounting: Accounting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Ground):
    """One with an agent of its own. `command` runs a command of Penstock as the demo user with that agent; None where
    Slurm is simulated."""

    agent: subprocess.Popen[Any]
    config: Path
    command: Callable[[Sequence[str]], subprocess.CompletedProcess[str]] | None = None


def agent_settings(
    folder: Path, alternatives: tuple[float, ...] | None, version: tuple[int, ...], **slurm: object
) -> dict[str, Any]:
    """An agent that looks every half second: for a demo on a cluster of one's own, not for a shared one.

    Where Slurm is a `version` on which that is done, Jacobi grows by the merge: the picture then shows one job, and how
    long each part of a resize takes is the paper's.
    """
    way = "merge" if merging.why_not(version) is None else "auto"
    return {
        "agent": {"state_dir": str(folder / "agent"), "interval": 0.5, "idle_interval": 0.5, "seed": 7},
        "slurm": {"min_interval": 0.4, "requests_per_second": 20, "timeout": 20, **slurm},
        "asa": {"alternatives": None if alternatives is None else list(alternatives)},
        "dmr": {"listen": "127.0.0.1:0", "cooldown": 2, "grant_timeout": 15},
        "malleable": {"backend": way},
        "log": {"level": "info"},
    }


@asynccontextmanager
async def mock_site(alternatives: tuple[float, ...] | None = None) -> AsyncIterator[Site]:
    """A simulated Slurm whose jobs really run, and an agent."""
    from penstock_lab.mock import control
    from penstock_lab.mock.model import ClusterConfig

    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    made = ClusterConfig(nodes=NODES)
    cluster = control.start(folder / "slurm", made)
    try:
        settings = agent_settings(folder, alternatives, made.version, backend="mock", mock_socket=str(cluster.socket))
        environment = {**os.environ, **_write(folder, settings)}
        log = folder / "agent.log"
        with log.open("wb") as output:
            agent = subprocess.Popen(_AGENT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            client = MockClient(cluster.socket)
            arena = LiveArena(folder / "agent" / "agent.sock", client, client, pause=0.25)
            await _until_answering(arena, agent, log)
            config = Path(environment["PENSTOCK_CONFIG"])
            yield Site(arena=arena, own=client, folder=folder, agent_log=log, agent=agent, config=config)
        finally:
            _end(agent)
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def slurm_site(
    alternatives: tuple[float, ...] | None = None,
    *,
    accrue_always: bool = True,
    age_counts: bool = False,
    interval: float = 0.5,
    policy: str | None = None,
    way: str | None = None,
    workflows: Mapping[str, object] | None = None,
    enforce: bool = False,
) -> AsyncIterator[Site]:
    """A real Slurm with ordinary users (one, without root), and an agent that runs as one of them.

    `alternatives` and `policy` None are the default ones, `way` is `malleable.backend` where it is not the demo's; the
    agent looks every `interval` seconds. `workflows` is that section of its configuration. `enforce`: Slurm holds users
    to limits and accounts. Several may be up side by side.
    """
    from penstock.slurm.cli import CliBackend
    from penstock_lab.cluster import Cluster, ClusterSpec, down, up

    place = Path(tempfile.mkdtemp(prefix="penstock-demo-", dir="/var/tmp"))
    place.chmod(0o755)
    spec = ClusterSpec(
        nodes=NODES, folder=place / "slurm", accrue_always=accrue_always, age_counts=age_counts, enforce=enforce
    )
    cluster: Cluster = await asyncio.to_thread(up, spec)
    try:
        owner, rival = ("alice", "bob") if "alice" in cluster.users else ("operator", "operator")
        folder = cluster.home(owner) if owner == "alice" else place

        def backend(who: str) -> CliBackend:
            name = cluster.users[who]
            prefix = ["runuser", "-u", name, "--"] if os.geteuid() == 0 else []
            often = RequestBudget(BudgetLimits(burst=100, per_second=20.0, user_submissions_burst=3600))
            conf = cluster.env["SLURM_CONF"]
            return CliBackend(prefix=prefix, user=name, slurm_conf=conf, timeout=20, budget=often)

        settings = agent_settings(folder, alternatives, parse_version(cluster.slurm_version))
        settings["agent"] |= {"interval": interval, "idle_interval": interval}
        settings["slurm"]["min_interval"] = 0.8 * interval
        if way is not None:
            settings["malleable"]["backend"] = way
        if policy is not None:
            settings["dmr"]["policy"] = policy
        if workflows is not None:
            settings["workflows"] = dict(workflows)
        environment = _write(place, settings)
        log = place / "agent.log"
        with log.open("w") as output:
            agent = cluster.popen_as(owner, _AGENT, env=environment, cwd=folder, stdout=output, stderr=output)
        own, others = backend(owner), backend(rival)
        try:
            arena = LiveArena(folder / "agent" / "agent.sock", own, others, pause=0.4)
            await _until_answering(arena, agent, log)
            books = partial(accounted, cluster.env)

            def command(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
                return cluster.run_as(owner, [*_PENSTOCK, *words], env=environment, cwd=folder, timeout=120)

            yield Site(
                arena=arena,
                own=own,
                folder=folder,
                agent_log=log,
                accounting=books,
                agent=agent,
                config=Path(environment["PENSTOCK_CONFIG"]),
                command=command,
            )
        finally:
            _end(agent)
            await own.close()
            await others.close()
    finally:
        await asyncio.to_thread(down, place / "slurm")
        shutil.rmtree(place, ignore_errors=True)


async def accounted(env: Mapping[str, str], jobs: Collection[int]) -> list[Held]:
    """The rows of these jobs, one for each of their sizes, once all have ended. Raises `SlurmUnavailable` when that is
    not so within ten seconds: accounting lags."""
    names = ",".join(map(str, jobs))
    words = ["sacct", "-a", "-D", "-X", "-n", "-P", "-o", "JobIDRaw,Start,End,NodeList", "-j", names]
    around = {**os.environ, **env}
    for _ in range(20):
        done = await asyncio.to_thread(subprocess.run, words, env=around, capture_output=True, timeout=20, check=False)
        rows = [line.split("|") for line in done.stdout.decode().splitlines()]
        if {int(row[0]) for row in rows} >= set(jobs) and "Unknown" not in {row[2] for row in rows}:
            return [
                Held(node, int(job), parse_time(start) or 0.0, parse_time(end) or 0.0)
                for job, start, end, hosts in rows
                if parse_time(start) is not None
                for node in expand_hosts(hosts)
            ]
        await asyncio.sleep(0.5)
    raise SlurmUnavailable("accounting does not know the end of all jobs")


_PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]
_AGENT = [*_PENSTOCK, "agent"]


def _write(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    path = folder / "penstock.yaml"
    path.write_text(yaml.safe_dump(dict(settings), sort_keys=False))
    return {"PENSTOCK_CONFIG": str(path)}


async def _until_answering(arena: LiveArena, agent: subprocess.Popen[Any], log: Path, seconds: float = 30.0) -> None:
    deadline = arena.now() + seconds
    while True:
        try:
            await arena.ask("ping")
            return
        except PenstockError as e:
            if agent.poll() is not None or arena.now() > deadline:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
                raise SlurmUnavailable(f"the agent did not start: {e}\n{tail}") from e
        await asyncio.sleep(0.1)


def _end(agent: subprocess.Popen[Any]) -> None:
    agent.send_signal(signal.SIGTERM)
    try:
        agent.wait(10)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()
