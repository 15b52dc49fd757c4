"""A real Slurm for a measurement, an agent on it, and a workload through both; nothing is left of them afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import yaml

from penstock.errors import PenstockError, UserError
from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.papers.dmr.accounts import FIELDS, Period, Told, complete, periods

__all__ = ["USER", "Agent", "Submission", "agent_on", "answered", "cluster_of", "run"]

USER: Final = "alice"
_AGENT: Final = (sys.executable, "-c", "from penstock.cli import main; main()", "agent")
_ACCOUNTING_LAG: Final = 30.0
_POLL: Final = 1.0


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch job: `at` seconds after the first one, on so many nodes (a range such as "2-8"), for `limit` seconds at
    most. `command` are lines of bash."""

    at: float
    name: str
    nodes: str
    limit: float
    command: str
    malleable: bool


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that runs: what jobs need to find it, its socket and its log."""

    environment: Mapping[str, str]
    socket: Path
    log: Path

    def resizes(self) -> list[dict[str, Any]]:
        """All that it has finished."""
        found: list[dict[str, Any]] = ask(self.socket, "status")["resizes"]
        return found


@contextmanager
def cluster_of(nodes: int) -> Iterator[Cluster]:
    """A real Slurm of so many nodes. UserError where none can be had; SIGTERM ends it as Ctrl-C does."""
    if os.geteuid() != 0:
        raise UserError("--part real starts a Slurm with users of its own, which only root can; use sudo")
    place = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp"))
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        place.chmod(0o755)
        yield up(ClusterSpec(nodes=nodes, folder=place / "slurm"))
    finally:
        down(place / "slurm")
        shutil.rmtree(place, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def agent_on(cluster: Cluster, name: str, settings: Mapping[str, Mapping[str, object]]) -> Iterator[Agent]:
    """An agent of the cluster's user with these settings and a state of its own."""
    folder = cluster.home(USER) / name
    config, log = cluster.folder / f"{name}.yaml", cluster.folder / f"{name}.log"
    dmr = {"listen": f"{cluster.address}:0", **settings.get("dmr", {})}
    made = {**settings, "agent": {**settings["agent"], "state_dir": str(folder)}, "dmr": dmr}
    config.write_text(yaml.safe_dump({section: dict(keys) for section, keys in made.items()}))
    with log.open("w") as output:
        environment = {"PENSTOCK_CONFIG": str(config)}
        process = cluster.popen_as(USER, _AGENT, env=environment, stdout=output, stderr=output)
    try:
        socket = folder / "agent.sock"
        answered(lambda: _env(process, socket, log), "the agent does not answer", 60.0)
        yield Agent(ask(socket, "env"), socket, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _env(process: subprocess.Popen[str], socket: Path, log: Path) -> bool:
    if process.poll() is not None:
        raise PenstockError("the agent ended:\n" + log.read_text(errors="replace")[-2000:])
    try:
        ask(socket, "ping", timeout=5)
    except PenstockError:
        return False
    return True


def answered(condition: Any, what: str, limit: float, every: float = 0.2) -> None:  # noqa: ANN401
    """Wait until the condition holds; PenstockError naming `what` after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise PenstockError(f"{what} after {limit:g} s")
        time.sleep(every)


def run(
    cluster: Cluster, jobs: Sequence[Submission], environment: Mapping[str, str], limit: float, folder: Path
) -> tuple[dict[int, Told], list[Period]]:
    """Submit the jobs, each in its time, and wait until all have ended: what is known of them, by number.

    They run in `folder`, a new one of the cluster's user. PenstockError when they have not ended `limit` seconds after
    the last submission, or when one failed.
    """
    cluster.run_as(USER, ["mkdir", "-p", str(folder)], check=True)
    submitted: dict[int, tuple[Submission, float]] = {}
    first = time.time()
    for job in jobs:
        time.sleep(max(first + job.at - time.time(), 0.0))
        now = time.time()
        submitted[_submit(cluster, job, environment, folder)] = job, now
    answered(lambda: not _queue(cluster), "the workload has not ended", limit, _POLL)
    deadline = time.monotonic() + _ACCOUNTING_LAG
    while not complete(rows := _accounting(cluster, submitted), submitted) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return {number: _told(folder, job, at) for number, (job, at) in submitted.items()}, rows


def _submit(cluster: Cluster, job: Submission, environment: Mapping[str, str], folder: Path) -> int:
    # Bash's own clock: no process more in each job.
    script = f"#!/bin/bash\nset -e\nLC_ALL=C\necho $EPOCHREALTIME >{job.name}.times\n{job.command}\n"
    script += f"echo $EPOCHREALTIME >>{job.name}.times\n"
    minutes = max(round(job.limit / 60), 1)
    options = [f"--job-name={job.name}", f"--nodes={job.nodes}", f"--time={minutes}", f"--output={job.name}.out"]
    command = ["sbatch", "--parsable", "--no-requeue", *options]
    done = cluster.run_as(USER, command, input=script, env=environment, cwd=folder, check=True)
    return int(done.stdout)


def _queue(cluster: Cluster) -> str:
    return cluster.run_as(USER, ["squeue", "--noheader", "--format=%i"], check=True).stdout.strip()


def _accounting(cluster: Cluster, jobs: Mapping[int, object]) -> list[Period]:
    command = ["sacct", "--duplicates", "--allocations", "--noheader", "--parsable2", f"--format={','.join(FIELDS)}"]
    command.append("--jobs=" + ",".join(map(str, jobs)))
    done = cluster.run_as(USER, command, env={"SLURM_TIME_FORMAT": "%s"}, check=True)
    return periods(done.stdout)


def _told(folder: Path, job: Submission, at: float) -> Told:
    try:
        start, end = map(float, (folder / f"{job.name}.times").read_text().split())
    except (OSError, ValueError):
        said = folder / f"{job.name}.out"
        text = said.read_text(errors="replace")[-1000:] if said.exists() else "it never began"
        raise PenstockError(f"job {job.name} failed: {text}") from None
    return Told(job.name, job.malleable, at, start, end)
