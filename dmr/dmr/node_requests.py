"""What the launcher asks of Slurm for the agent, where that is another user: jobs that hold the nodes of a growth.

Only the application's own user can start processes in such a job, so it has to be that user's. The agent says its
name, its size and for how long (`dmr.wire.NodeRequest`), never what to run. It finds the job by its name, and ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import signal
from collections.abc import Mapping
from typing import Final

from dmr.wire import NodeRequest

__all__ = ["NodeRequests", "command"]

logger = logging.getLogger("dmr.launch")

_GRANTED: Final = re.compile(r"^salloc: Granted job allocation ([0-9]+)", re.MULTILINE)
_NAMED: Final = ("partition", "account", "qos", "gres", "constraint")
_GRACE: Final = 5.0
_CANCEL: Final = 10.0
# Of the job in which the launcher runs; the new one is to be asked for as from a shell.
_OF_THE_JOB: Final = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "PMI_", "PMIX_")


def command(request: NodeRequest) -> list[str]:
    """The request for nodes without a script."""
    minutes = max(1, math.ceil(request.time_limit / 60))
    argv = ["salloc", "--no-shell", f"--job-name={request.name}", f"--nodes={request.node_count}", f"--time={minutes}"]
    argv += [f"--{name}={value}" for name in _NAMED if (value := getattr(request, name))]
    if request.last:  # a request of the highest priority, if only tied for it, would be granted as it comes in
        argv += ["--nice=2147483645", "--begin=now+1"]
    return [*argv, "--exclusive"] if request.exclusive else argv


class NodeRequests:
    """Each is run once. What was granted is cancelled at the end, if the agent has not done so before."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        kept = {k: v for k, v in environ.items() if k == "SLURM_CONF" or not k.startswith(_OF_THE_JOB)}
        self._environ = kept
        self._running: dict[str, asyncio.Task[None]] = {}
        self._granted: dict[str, str] = {}  # numbers by the names, which are unique

    def run(self, request: NodeRequest) -> None:
        """Begin it, unless it was begun before."""
        if request.name not in self._running:
            self._running[request.name] = asyncio.ensure_future(self._ask(request))

    async def close(self) -> None:
        """Withdraw what waits, and cancel what was granted."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        for name, number in self._granted.items():
            # By both: after a crash of slurmctld the number may be another job's of the same user.
            await self._finish(["scancel", f"--name={name}", number], _CANCEL)

    async def _ask(self, request: NodeRequest) -> None:
        said = await self._finish(command(request), request.patience)
        if found := _GRANTED.search(said):
            self._granted[request.name] = found[1]
        else:
            last = said.strip().splitlines()[-1:] or ["no answer"]
            logger.warning("Slurm did not give %d nodes for growth: %s", request.node_count, last[0])

    async def _finish(self, argv: list[str], limit: float) -> str:
        """What it wrote to stderr, ended softly when its time is over: salloc withdraws its request then."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *argv,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                process_group=0,
            )
        )
        try:
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # Cancelled while it starts, asyncio would kill it, and Slurm would grant what it has asked for.
                process, limit = await starting, 0.0
        except OSError as error:
            return f"{argv[0]}: {error}"
        reading = asyncio.ensure_future(process.communicate())
        for number in (signal.SIGTERM, signal.SIGKILL, None):
            try:
                _, said = await asyncio.wait_for(asyncio.shield(reading), limit)
                return said.decode(errors="replace")
            except (TimeoutError, asyncio.CancelledError):
                limit = _GRACE
                if number is not None:
                    with contextlib.suppress(ProcessLookupError):
                        process.send_signal(number)
        return f"{argv[0]}: no answer"
