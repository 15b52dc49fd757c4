"""The Slurm and the agent that are here already, for a demo by one of their users."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from penstock.api import Job
from penstock.config import Config
from penstock.errors import PenstockError, UserError
from penstock.host.homes import home
from penstock.ipc.client import ask_agent
from penstock.slurm.base import Backend
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock.workflow.model import Workflow
from penstock_lab.demo.arena import LiveArena
from penstock_lab.demo.sites import Ground, accounted

__all__ = ["FEWEST", "present_site"]

FEWEST: Final = 6
"""Nodes that the demo needs: a job on two, its like on two to four, and others that want them."""


class _PresentArena(LiveArena):
    """With an agent that is another user's, as a site's is: jobs of workflows are submitted by the user's own command,
    and the picture of the queue is what Slurm shows the user."""

    def __init__(self, config: Config, own: Backend, folder: Path) -> None:
        super().__init__(config.socket_path, own, own, pause=1.0)
        self._folder = folder
        self._numbers = itertools.count(1)

    async def submit(self, workflow: Workflow, strategy: str) -> int:
        """By `penstock submit`, which wants a name for each that runs."""
        name = f"{workflow.name}-{os.getpid()}-{next(self._numbers)}"
        stages = [
            {
                "name": s.name,
                "nodes": s.nodes,
                "time": f"{s.time_limit:g}s",
                "expect": f"{s.run_time:g}s",
                "run": s.command,
            }
            | ({"after": [*s.after]} if s.after else {})
            for s in workflow.order
        ]
        file = self._folder / "workflow.yaml"
        file.write_text(json.dumps({"name": name, "shell": "strict", "stages": stages}))
        words = [sys.executable, "-m", "penstock", "submit", "--json", "--strategy", strategy, file.name]
        done = await asyncio.to_thread(
            subprocess.run, words, cwd=self._folder, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0:
            raise PenstockError(f"penstock submit: {done.stderr.strip()}")
        return int(json.loads(done.stdout)["run"])

    async def look(self) -> tuple[float, Sequence[Job]]:
        """One request to Slurm."""
        return self.now(), await self.mine.jobs()


@asynccontextmanager
async def present_site(config: Config) -> AsyncIterator[Ground]:
    """All jobs are the caller's, the rivals too; what they write goes to a folder in the caller's home, which the nodes
    must see, and which goes away in the end.

    Raises `AgentUnavailable` where no agent answers, `UserError` where the cluster is too small.
    """
    await asyncio.to_thread(ask_agent, config, "ping")
    often = RequestBudget(BudgetLimits(burst=100, per_second=20.0, user_submissions_burst=3600))
    own = CliBackend(timeout=20, budget=often)
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-", dir=home()))
    try:
        names = tuple(sorted({node.name for node in await own.nodes()}, key=lambda name: (len(name), name)))
        if len(names) < FEWEST:
            raise UserError(f"--backend site: the demo needs {FEWEST} nodes, and this cluster has {len(names)}")
        arena = _PresentArena(config, own, folder)
        yield Ground(arena=arena, own=own, folder=folder, nodes=names, accounting=partial(accounted, os.environ))
    finally:
        await own.close()
        shutil.rmtree(folder, ignore_errors=True)
