"""An agent whose state is on a disk that fills up: it holds, says so, answers on, and goes on when there is room."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import AgentSite
from penstock.ipc.client import ask

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
