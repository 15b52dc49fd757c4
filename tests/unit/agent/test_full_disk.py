"""An agent whose state is on a disk that fills up: it holds, says so, answers on, and goes on when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import AgentSite
from penstock.api import JobSpec
from penstock.config import load
from penstock.console.acting import acting
from penstock.console.backends import cancel_all
from penstock.core.acts import KnownJob, SubmitJob
from penstock.core.executor import Concern
from penstock.errors import StoreError
from penstock.ipc.client import ask
from penstock_lab.mock import control

FLOW = """
name: full
stages:
  - {name: a, nodes: 1, time: 60, expect: 1, run: "until [ -e %s ]; do sleep 0.1; done"}
  - {name: b, nodes: 2, time: 60, expect: 1, run: "true", after: a}
"""


@pytest.fixture
def small() -> Iterator[AgentSite]:
    """A site whose state folder is a file system of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = Path(tempfile.mkdtemp(prefix="pd-"))
    folder.chmod(0o755)
    state = folder / "agent"
    state.mkdir(mode=0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=711", "tmpfs", str(state)], check=True)
    try:
        it = AgentSite(folder)
        try:
            yield it
        finally:
            it.down()
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)
        shutil.rmtree(folder)


def fill(file: Path) -> None:
    """To the last byte: a block that is begun may take a line more."""
    with file.open("wb", buffering=0) as out:
        for size in (65536, 512, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(b"x" * size)


def status(site: AgentSite) -> dict[str, Any]:
    return ask(site.socket, "status", timeout=30.0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shared", ["no", "yes"])
def test_with_a_full_disk_it_holds_says_so_and_goes_on_when_there_is_room(small, shared):
    small.configure(agent={"shared": shared, "lease": 60})
    small.start()
    (small.folder / "w.yaml").write_text(FLOW % (small.folder / "go"))
    assert small.run("submit", "w.yaml", "--strategy", "perstage").returncode == 0
    small.until(lambda: len(small.names()) == 1, "the first stage")

    filler = small.folder / "agent" / "filler"
    fill(filler)
    (small.folder / "go").touch()
    said = small.until(lambda: [p for p in status(small)["problems"] if "full" in p], "its word")
    assert "the state file" in said[0]
    small.until(lambda: "on hold: the state file" in small.run("status").stderr, "its word on the command line")
    assert "full" in small.said()
    refused = small.run("submit", "w.yaml", "--strategy", "perstage")
    assert refused.returncode == 7, refused
    assert "No space left on device" in refused.stderr
    assert len(small.names()) == 1, "nothing is submitted that could not be written down"

    filler.unlink()
    small.until(lambda: len(small.names()) == 2, "the second stage")
    small.until(lambda: not status(small)["problems"], "no more problems")
    assert "the state can be written again" in small.said()
    small.until(lambda: status(small)["workflows"][0]["phase"] == "completed", "its end")
    assert len(small.names()) == 2, "each once"
    assert small.stop() == 0


ANOTHER = """
name: mine
stages:
  - {name: c, nodes: 1, time: 60, expect: 30, run: "sleep 30"}
  - {name: d, nodes: 1, time: 60, expect: 1, run: "true", after: c}
"""


def alive(site: AgentSite) -> list[int]:
    jobs = control.call(site.cluster.folder, "jobs")
    return [job["id"] for job in jobs if job["state"] in ("PENDING", "RUNNING")]


@pytest.mark.timeout(600)
def test_with_a_full_disk_pause_cancel_and_off_are_served_and_say_that_they_are_not_written(small):
    small.start()
    (small.folder / "w.yaml").write_text(FLOW % (small.folder / "go"))
    (small.folder / "mine.yaml").write_text(ANOTHER)
    assert small.run("submit", "w.yaml", "--strategy", "perstage").returncode == 0
    small.until(lambda: len(small.names()) == 1, "the first stage")
    assert small.run("submit", "mine.yaml", "--strategy", "eager").returncode == 0
    small.until(lambda: len(alive(small)) == 3, "the jobs of the second")
    fill(filler := small.folder / "agent" / "filler")

    paused = small.run("pause", "--feature", "malleable", "--why", "no room")
    assert paused.returncode == 0, paused
    assert "Paused: malleable paused by root: no room" in paused.stdout
    assert "does not outlive the agent" in paused.stderr
    assert any("no room" in p for p in status(small)["problems"])
    assert any("does not outlive the agent" in p for p in status(small)["problems"])

    for name in ("full", "mine"):
        ended = small.run("cancel", name)
        assert ended.returncode == 0, ended
    small.until(lambda: not alive(small), "the end of their jobs")

    lifted = small.run("resume")
    assert lifted.returncode == 0, "what was never written need not be"
    assert small.run("pause").returncode == 0

    off = small.run("off", "--timeout", "1")
    assert "does not outlive the agent" in off.stderr, off
    assert "Penstock was turned off" in off.stdout
    assert small.answers(), "an agent that ended would have forgotten it"
    assert status(small)["off"]["by"] == 0

    filler.unlink()
    small.until(lambda: not any("outlive" in p for p in status(small)["problems"]), "the file to have it all")
    small.stop(signal.SIGKILL)
    small.start()
    told = status(small)
    assert told["off"]["by"] == 0
    assert any("everything paused by root" in p for p in told["problems"])
    assert [w["phase"] for w in told["workflows"]] == ["cancelled", "cancelled"]
    assert small.run("off", "--timeout", "30").returncode == 0
    assert small.process.wait(30) == 0


def test_on_a_full_disk_a_command_cancels_the_jobs_that_are_its_users_own(small):
    async def submitted() -> int:
        spec = JobSpec("x", "#!/bin/sh\nsleep 60\n", 1, 60)
        async with acting(config) as hand:
            return await hand.executor.act(SubmitJob(spec), "job x", {}, Concern("workflows", os.geteuid()))

    small.configure()
    config = load(small.config)
    number = asyncio.run(submitted())
    assert alive(small) == [number]
    fill(small.folder / "agent" / "filler")
    assert asyncio.run(cancel_all(config, [KnownJob(number, os.geteuid())])) == []
    small.until(lambda: not alive(small), "its end")
    with pytest.raises(StoreError):
        asyncio.run(submitted())
