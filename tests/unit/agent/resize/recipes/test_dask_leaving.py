"""The recipe `dask` with the real Dask: what a worker runs that is told to leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from penstock.resize.recipes.recipes import RECIPES, RecipeWish
from waiting import until

PROGRAM = """
import os, sys, time
from distributed import Client, get_worker

def work(n):
    with open("begun", "a") as file:
        print(n, get_worker().name, file=file)
    time.sleep(float(sys.argv[1]) if n < 2 else 0.1)
    return n

client = Client()
client.wait_for_workers(2)
first = [client.submit(work, n, workers=[name], allow_other_workers=True) for n, name in enumerate(["stays", "goes"])]
rest = [client.submit(work, n) for n in range(2, 12)]
total = sum(client.gather(first + rest))
print(total, file=open("total", "w"))
"""


class Site:
    """The recipe's commands on this host."""

    def __init__(self, folder: Path, task: float) -> None:
        self.folder = folder
        (folder / "program.py").write_text(PROGRAM.replace("float(sys.argv[1])", str(task)))
        python = sys.executable
        wish = RecipeWish(1, 2, run=f"{python} program.py", python=python, slots=1)
        self.plan = {key: str(value) for key, value in RECIPES["dask"].make(wish).items()}
        self.begun: list[subprocess.Popen[bytes]] = []
        self.env = {**os.environ, "PENSTOCK_ELASTIC_HEAD": "127.0.0.1", "PENSTOCK_ELASTIC_PORT": str(free_port())}
        self.program = self.run("start")
        until(lambda: "Scheduler at" in self.said(), self.said, 60)
        for name in ("stays", "goes"):
            self.run("join", PENSTOCK_HOST=name)

    def run(self, key: str, **more: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{key}.log").open("ab") as log:
            begun = subprocess.Popen(
                ["bash", "-c", self.plan[key]], env={**self.env, **more}, cwd=self.folder, stdout=log, stderr=log
            )
        self.begun.append(begun)
        return begun

    def said(self) -> str:
        return "\n".join(file.read_text() for file in self.folder.glob("*.log"))

    def lines(self) -> list[str]:
        file = self.folder / "begun"
        return file.read_text().splitlines() if file.exists() else []

    def leave(self, seconds: float) -> float:
        """How long it took."""
        until(lambda: "1 goes" in self.lines(), self.said, 60)
        begun = time.monotonic()
        more = {"PENSTOCK_RESIZE_HOSTS": "goes", "PENSTOCK_RESIZE_SECONDS": f"{seconds:g}"}
        assert self.run("leave", **more).wait(60) == 0, self.said()
        return time.monotonic() - begun

    def end(self) -> list[int]:
        """Which tasks were run, when all are done."""
        assert self.program.wait(90) == 0, self.said()
        assert (self.folder / "total").read_text() == f"{sum(range(12))}\n"
        return sorted(int(line.split()[0]) for line in self.lines())

    def down(self) -> None:
        for one in reversed(self.begun):
            if one.poll() is None:
                one.kill()
            one.wait()


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    it = Site(tmp_path, request.param)
    yield it
    it.down()


@pytest.mark.parametrize("site", [8.0], indirect=True)
def test_a_worker_that_leaves_ends_the_task_that_it_runs(site):
    site.leave(60)
    assert site.end() == list(range(12)), "each ran once"


@pytest.mark.long
@pytest.mark.parametrize("site", [30.0], indirect=True)
def test_a_task_that_runs_for_longer_than_the_grace_is_run_elsewhere(site):
    assert site.leave(12) < 25, "it leaves in time"
    assert site.end() == [0, 1, *range(1, 12)]
