"""Snakemake on a pool of processes on this host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_pool.client import ask
from penstock_pool.folder import PoolFolder
from places import PROJECT
from snakemakes import programs
from waiting import until

sys.path.insert(0, str(PROJECT / "plugins" / "snakemake-executor"))
LIMIT = 120.0


class SnakePool:
    """A pool, and folders in which Snakemake is run; everything it starts is gone after `down`."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self.folder = folder
        self.bin = bin
        self.pool = PoolFolder("main", folder / "pools" / "main")
        self.work = folder / "work"
        self.work.mkdir()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PENSTOCK_"))}
        self.environment["PENSTOCK_POOL__FOLDER"] = str(folder / "pools")
        self.environment["TMPDIR"] = str(folder)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, cores: int = 4) -> None:
        self.begin(sys.executable, "-m", "penstock", "pool", "start")
        self.until((self.pool.path / "address.json").exists)
        self.join(cores)

    def join(self, cores: int) -> subprocess.Popen[str]:
        before = len(self.status()["members"])
        begun = self.begin(sys.executable, "-m", "penstock", "pool", "join", "--here", "--cores", str(cores))
        self.until(lambda: len(self.status()["members"]) > before)
        return begun

    def begin(self, *words: str, folder: Path | None = None) -> subprocess.Popen[str]:
        with (self.folder / "processes.log").open("a") as log:
            begun = subprocess.Popen(
                words, env=self.environment, cwd=folder or self.folder, stdout=log, stderr=log, text=True
            )
        self.started.append(begun)
        return begun

    def words(self, *more: str, executor: str = "penstock") -> list[str]:
        return [str(self.bin / "snakemake"), "-j", "20", "--latency-wait", "2", "--executor", executor, *more]

    def snakemake(self, *more: str, executor: str = "penstock", **extra: str) -> subprocess.CompletedProcess[str]:
        """Run it in `work`."""
        return subprocess.run(
            self.words(*more, executor=executor),
            env={**self.environment, **extra},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )

    def make(self, *more: str, **extra: str) -> str:
        done = self.snakemake(*more, **extra)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def write(self, text: str, name: str = "Snakefile") -> None:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str) -> str:
        return (self.work / name).read_text()

    def status(self) -> Any:
        return ask(self.pool, "status")

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(self.pool, "tasks", {})
        return found

    def until(self, probe: Callable[[], Any]) -> Any:
        log = self.folder / "processes.log"
        return until(probe, lambda: log.read_text() if log.exists() else "nothing was said", LIMIT, 0.05)

    def idle(self) -> None:
        """Nothing of it waits or runs any more."""
        assert all(task["phase"] in ("complete", "failed", "cancelled") for task in self.tasks())

    def down(self) -> None:
        for begun in reversed(self.started):
            if begun.poll() is None:
                begun.send_signal(signal.SIGTERM)
                try:
                    begun.wait(20)
                except subprocess.TimeoutExpired:
                    begun.kill()
                    begun.wait()


@pytest.fixture(scope="session")
def snakemake_bin() -> Iterator[Path]:
    with programs() as found:
        yield found


@pytest.fixture
def snakes(tmp_path: Path, snakemake_bin: Path) -> Iterator[SnakePool]:
    it = SnakePool(tmp_path, snakemake_bin)
    it.start()
    yield it
    it.down()


def inner_runs(said: str) -> int:
    """How many jobs a second Snakemake ran, by what `--verbose` says."""
    return said.count("a second Snakemake runs job")
