"""How Slurm's commands are asked: each request passes one door, and is counted and limited there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from penstock.api import Origin
from penstock.errors import Infeasible, NotFound, NotNow, SlurmUnavailable
from penstock.host.logins import login
from penstock.slurm import site_settings
from penstock.slurm.budget import RequestBudget
from penstock.slurm.clocks import ControllerClock, since_boot
from penstock.slurm.commands import CommandResult, CommandRunner
from penstock.slurm.meter import Meter
from penstock.slurm.parse import ParseError
from penstock.slurm.refusals import classify

__all__ = ["ACCOUNTING_PATIENCE", "NO_ACCOUNTING", "CliAsking", "understood"]

NO_ACCOUNTING = "not running a supported accounting_storage plugin"
"""What a command says of a cluster without accounting."""
ACCOUNTING_PATIENCE = 5.0
"""Seconds that a look waits for accounting, which only adds to it."""

T = TypeVar("T")


class CliAsking:
    """Slurm's commands, run for one user.

    `prefix` is put before every command line, `user` names whom that acts as (default: this process's user).
    `timeout` is the time limit of one command in seconds. Slurm itself tries about 9 s to reach a controller
    that is down, so a shorter limit turns such a refusal of a change into `OutcomeUnknown`.
    `requests` and `seconds` count calls and time per command, `budget` says how often Slurm may be asked.
    """

    def __init__(
        self,
        *,
        name: str = "slurm",
        prefix: Sequence[str] = (),
        user: str | None = None,
        slurm_conf: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        budget: RequestBudget | None = None,
    ) -> None:
        self.name = name
        self._user = user if user is not None else login(os.geteuid())
        self._limit = timeout
        self._runner = CommandRunner(prefix=prefix, slurm_conf=slurm_conf, environment=environment, budget=budget)
        self._cluster: str | None = None  # another than the one that slurm.conf names
        self._clock = ControllerClock()

    @property
    def meter(self) -> Meter:
        """What was asked of Slurm."""
        return self._runner.meter

    @property
    def requests(self) -> Counter[str]:
        """How often each command was run."""
        return self.meter.requests

    @property
    def seconds(self) -> Mapping[str, float]:
        """How long each command took, in total."""
        return self.meter.seconds

    @property
    def budget(self) -> RequestBudget:
        """What every request has to pass."""
        return self._runner.budget

    @property
    def runner(self) -> CommandRunner:
        """What runs the commands."""
        return self._runner

    def now(self) -> float:
        """The controller's time, as far as `site` or a later look has found it to differ from this host's."""
        return self._clock.now()

    def whoami(self) -> str:
        """The user name that requests are made as."""
        return self._user

    async def close(self) -> None:
        """Kill and reap what still runs."""
        await self._runner.close()

    def _addressed(self, argv: Sequence[str]) -> Sequence[str]:
        """The command line with the cluster that it is for; it then leaves a federation's other clusters alone.

        sacctmgr speaks of all clusters anyway. squeue names the cluster in a line of its own before the heading.
        """
        if self._cluster is None or argv[0] == "sacctmgr":
            return argv
        return [argv[0], f"--clusters={self._cluster}", *argv[1:]]

    async def _recorded(self, *argv: str) -> str:
        """What a command prints that slurmdbd answers; `Infeasible` where there is none."""
        done = await self._run(argv, changing=False, limit=min(self._limit, ACCOUNTING_PATIENCE))
        if done.code != 0 and NO_ACCOUNTING in done.stderr:
            raise Infeasible("this cluster has no accounting")
        if done.code != 0:
            raise SlurmUnavailable(str(classify(done.stderr, changing=False)))
        return done.stdout

    async def _read(self, *argv: str, extra: Mapping[str, str] | None = None) -> str:
        done = await self._run(argv, changing=False, extra=extra)
        if done.code != 0:
            error = classify(done.stderr, changing=False)
            # A read has nothing to be final about but the thing not being there.
            raise error if isinstance(error, (NotNow, NotFound)) else SlurmUnavailable(str(error))
        return done.stdout

    async def _run(
        self,
        argv: Sequence[str],
        *,
        changing: bool,
        limit: float | None = None,
        stdin: bytes = b"",
        extra: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        graceful: bool = False,
        origin: Origin | None = None,
    ) -> CommandResult:
        """The door to Slurm: every request passes here and is counted."""
        return await self._runner.run(
            self._addressed(argv),
            service="slurmdbd" if argv[0] in ("sacct", "sacctmgr") else f"slurmctld {self._cluster or ''}".strip(),
            limit=self._limit if limit is None else limit,
            changing=changing,
            stdin=stdin,
            extra=extra,
            pass_fds=pass_fds,
            graceful=graceful,
            origin=origin,
            label=f"scontrol {'show' if 'show' in argv else argv[1]}" if argv[0] == "scontrol" else None,
        )

    async def _config(self) -> str:
        """`scontrol show config`, which begins with the controller's time."""
        started = since_boot()
        text = await self._read("scontrol", "show", "config")
        if (said := site_settings.clock_from_config(text)) is not None:
            self._clock.compare(said, since_boot() - started)
        return text

    async def _check_clock(self) -> None:
        """An agent that runs for months sees clocks put right, and put wrong."""
        if self._clock.doubtful:
            await self._config()


def understood(what: str, parse: Callable[[], T]) -> T:
    """What cannot be read is no answer."""
    try:
        return parse()
    except ParseError as error:
        raise SlurmUnavailable(f"{what}: {error}") from error
