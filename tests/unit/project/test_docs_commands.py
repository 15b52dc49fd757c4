"""Every command of Penstock that a page shows runs: one after the other, in the order of the pages, beside an agent on
a simulated Slurm. What a command needs that is not here it says in its own words, and ends as documented.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doc_pages import DOCS, HERE_DOCUMENT, PAGES, blocks, commands_in

from penstock.errors import EXIT_CODES
from penstock_lab.demo.sites import Site, mock_site

pytestmark = [pytest.mark.long, pytest.mark.timeout(600, func_only=True)]

BLOCKS = [block for page in PAGES for block in blocks(page) if block.language in ("sh", "bash", "console")]
SHOWN = list(dict.fromkeys(tuple(words) for block in BLOCKS for words in commands_in(block)))
ELSEWHERE = {
    "agent": "runs until it is ended: the one of this test",
    "bench": "takes minutes to hours: tests/unit/lab/papers",
    "cluster": "brings up a real Slurm: tests/slurm/test_cluster.py",
    "dashboard": "serves until it is ended: tests/unit/dashboard",
    "off": "would end what the others do: tests/unit/agent/shutdown",
    "pool submit --file tasks.jsonl --wait": "waits for nodes: tests/slurm/test_pool.py",
}
NOT_HERE = {
    "audit --since": "no user alice",
    "db backup": "no folder backup",
    "db salvage": "no file of that name",
    "hold cancel": "no hold",
    "logs": "the stage has not begun",
    "plan workflow.yaml --alpha": "the deadline is over",
    "plan workflow.yaml --sites": "none of these sites",
    "pool auto": "no pool yet, or none any more",
    "pool logs": "the task has not begun",
    "pool submit": "no pool any more",
    "profile": "no hardware counters, no program md",
    "retry": "no workflow of that name",
    "sbatch": "no Slurm that sbatch could reach",
    "select": "no profile, and no partition that fits",
    "elastic": "no Slurm that sbatch could reach",
    "explain 4711": "no job of that number",
    "simulate swf": "no log",
    "slots -p batch": "no partition of that name",
    "stage": "no site of that name",
    "status align": "no workflow of that name",
    "submit blast.json": "no such file",
    "submit montage.json": "no such file",
    "tick": "an agent is there",
    "submit later.yaml --tick": "an agent is there",
    "quote": "nodes that nobody here may have for so long",
}
"""Commands that may end otherwise than with 0, and why they do here."""
FLOW = "name: {name}\nstages:\n" + "".join(
    f"- {{{{name: {stage}, nodes: 1, time: 10m, expect: 1s, run: 'true'}}}}\n"
    for stage in ("merge", "check", "publish")
)
FLOWS = ("mosaic", "first", "workflow", "other", "later")
DUMP = "JobIDRaw|User|Partition|State|Submit|Eligible|Start|End|TimelimitRaw|NNodes|JobName\n"


def files(folder: Path) -> None:
    """What the commands read."""
    for block in BLOCKS:
        for name, _, text in HERE_DOCUMENT.findall(block.text):
            (folder / Path(name).name).write_text(text)
    for name in FLOWS:
        (folder / f"{name}.yaml").write_text(FLOW.format(name=name))
    for name in ("align", "call", "plot", "merge", "solver"):
        (folder / f"{name}.sh").write_text("#!/bin/bash\ntrue\n")
    for page, key, name in (
        ("elastic", "elastic:", "survey"),
        ("provision", "sites:", "sites"),
        ("select", "requirements:", "md"),
    ):
        found = (block.text for block in blocks(DOCS / f"{page}.md") if block.language == "yaml")
        (folder / f"{name}.yaml").write_text(next(text for text in found if key in text))
    (folder / "tasks.jsonl").write_text('{"command": ["true"], "time": 1}\n')
    first = 1_736_942_400
    rows = (
        f"{n}|u{n % 7}|batch|COMPLETED|{at}|{at}|{at + 60}|{at + 660}|20|{1 + n % 3}|j{n % 11}\n"
        for n, at in enumerate(range(first, first + 600 * 3000, 600), 1)
    )
    with gzip.open(folder / "jobs.txt.gz", "wt") as dump:
        dump.writelines([DUMP, *rows])


@contextmanager
def a_site() -> Iterator[Site]:
    """A site whose event loop runs in a thread of its own."""
    found: list[Site] = []
    up, over = threading.Event(), threading.Event()

    async def run() -> None:
        async with mock_site() as site:
            found.append(site)
            up.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert up.wait(60), "the site is not there"
        yield found[0]
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[tuple[Path, dict[str, str], Site]]:
    folder = tmp_path_factory.mktemp("commands")
    files(folder)
    with a_site() as site:
        yield folder, {**os.environ, "PENSTOCK_CONFIG": str(site.config), "HOME": str(folder)}, site


def why(words: tuple[str, ...], table: dict[str, str]) -> str:
    """What the table says of a command line that begins so."""
    line = " ".join(words[1:]) + " "
    return next((said for begin, said in table.items() if line.startswith(f"{begin} ")), "")


@pytest.mark.parametrize("words", SHOWN, ids=[" ".join(words)[:60] for words in SHOWN])
def test_a_command_of_a_page_runs(words, place):
    if elsewhere := why(words, ELSEWHERE):
        pytest.skip(elsewhere)
    folder, environment, site = place
    command = [sys.executable, "-c", "from penstock.cli import main; main()"]
    command += [word.replace("/tmp/", "") for word in words[1:]]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    told = f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stdout + done.stderr, told
    assert done.returncode == 0 or (done.returncode in EXIT_CODES and why(words, NOT_HERE)), told
    assert site.agent.poll() is None, site.agent_log.read_text()[-3000:]
