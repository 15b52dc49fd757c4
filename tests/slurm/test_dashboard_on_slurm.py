"""The dashboard of an agent on real Slurm, as users open it: others' jobs, own stages, decisions, changes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest
from agents import COMMAND, SlurmAgent

from browser import CHECKS, browser
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

WORKFLOW = """
name: secretly
stages:
  - {name: first, nodes: 3, time: 10m, expect: 5m, run: sleep 600}
  - {name: second, nodes: 2, time: 10m, expect: 1m, run: sleep 1}
"""


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[SlurmAgent]:
    it = SlurmAgent(cluster)
    try:
        yield it.start()
    finally:
        it.down()


@contextlib.contextmanager
def dashboard(agent: SlurmAgent, who: str) -> Iterator[str]:
    """The address of a user's own dashboard."""
    process = agent.cluster.popen_as(
        who, [*COMMAND, "dashboard"], env=agent.environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        printed = [process.stdout.readline() for _ in range(2)]
        assert "http://127.0.0.1:" in printed[1], printed
        yield printed[1].strip()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def submit(cluster: Cluster, who: str, *words: str) -> str:
    command = ["sbatch", "--parsable", "-o", "/dev/null", *words, "--wrap", "sleep 600"]
    return cluster.run_as(who, command, check=True, cwd="/").stdout.strip()


def bar(job: str, kind: str) -> str:
    return f"checks.bars().some((bar) => bar.item.kind === '{kind}' && bar.item.name === '{job}')"


def test_the_page_shows_what_slurm_and_the_agent_do(cluster, agent, tmp_path):
    running = submit(cluster, "bob", "-N4", "-t", "20", "-J", "<img src=x onerror=alert(1)>")
    run = agent.submit(WORKFLOW, "asa")
    agent.until(lambda: agent.state(run)["stages"][0]["phase"] == "running", "the first stage to run")
    waiting = submit(cluster, "bob", "-N5", "-t", "30")
    with dashboard(agent, "alice") as url, browser() as tab:
        tab.size(1280, 900)
        tab.open(url)
        tab.js(CHECKS)
        tab.until(bar(running, "running"))
        tab.until(bar(waiting, "planned"))
        # Of who waits the chart and the queue say one instant.
        start = f"checks.bars().find((bar) => bar.item.kind === 'planned' && bar.item.name === '{waiting}')"
        at = tab.until(f"{start}?.ariaLabel.match(/starts by (.*?) by everybody's time limits/)?.[1]")
        rows = "[...document.querySelectorAll('#queue-table tr')]"
        row = tab.js(f"{rows}.find((r) => r.innerText.startsWith('{waiting}')).innerText")
        assert cluster.users["bob"] in row and at in row, (at, row)
        tab.until("document.querySelector('#queue-said').innerText.includes('likely')")  # they take some computing
        assert "SU a node-hour" in tab.until("checks.bars().find((bar) => bar.item.kind === 'slot')?.ariaLabel")
        label = tab.until("checks.bars().find((bar) => bar.item.label === 'secretly / first')?.ariaLabel")
        assert "3 nodes: n" in label
        text = tab.until("document.querySelector('.stages').innerText")
        assert "second" in text
        assert tab.until(
            f"[...document.querySelectorAll('#decided tr')].some((r) => r.innerText.includes('workflow {run}'))"
        )
        assert "7 of 8" in tab.text()
        assert f"Job {running} · {cluster.users['bob']} · 4 nodes" in str(
            tab.js("checks.bars().map((b) => b.ariaLabel)")
        )
        (tmp_path / "slurm.png").write_bytes(tab.picture())

        cluster.run_as("bob", ["scancel", running], check=True)
        tab.until(bar(running, "past"))
        cluster.run_as("bob", ["scancel", waiting], check=True)
        tab.until(f"!{bar(waiting, 'planned')}")
        assert tab.complaints() == []


@pytest.mark.long
def test_somebody_else_sees_what_is_theirs_and_nothing_of_the_rest(cluster, agent):
    agent.submit(WORKFLOW, "perstage")
    own = submit(cluster, "bob", "-N1", "-t", "20")
    with dashboard(agent, "bob") as url, browser() as tab:
        tab.open(url)
        tab.js(CHECKS)
        tab.until(bar(own, "running"), seconds=120)
        assert "Only your own jobs are shown" in tab.text()
        assert tab.js("checks.bars().length") == 1
        text = tab.text()
        assert "No workflows." in text
        assert "secretly" not in tab.js("document.querySelector('main').innerText")
        assert cluster.users["alice"] not in text
