"""Looks as Slurm's commands write them, for whoever answers in their place (penstock-fronts). Not understood.

A look names no job of a user on its command line but by number, and its separator is a word made up for that look: what
users write cannot pass for a field. squeue is told it by a variable, which other users cannot read as they can read
command lines.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from penstock.errors import SlurmUnavailable
from penstock.slurm.commands import CommandRunner

__all__ = ["HasRunner", "RawLooks", "RawText"]

_CLEAR = {"SLURM_TIME_FORMAT": "standard"}


@runtime_checkable
class HasRunner(Protocol):
    """A backend that runs Slurm's commands."""

    @property
    def runner(self) -> CommandRunner:
        """What runs them."""
        ...


@dataclass(frozen=True, slots=True)
class RawText:
    """What a command printed; `separator` follows each field (`squeue`, `sacct`)."""

    text: str
    separator: str = ""


class RawLooks:
    """Takes looks by commands of `runner`. Every method raises `SlurmUnavailable` where Slurm did not answer."""

    def __init__(self, runner: CommandRunner, timeout: float = 30.0) -> None:
        self._runner = runner
        self._limit = timeout

    async def squeue(self, letters: str, *options: str) -> RawText:
        """All jobs, with the fields of these letters of `squeue -o`; `options` are squeue's."""
        separator = _word()
        shown = "".join(f"%{letter}{separator}" for letter in letters)
        return await self._read("squeue", ["-t", "all", *options], separator, {"SQUEUE_FORMAT": shown})

    async def sacct(self, *options: str) -> RawText:
        """The rows of accounting that `options` of sacct choose, with all fields."""
        separator = _word()
        argv = ["-p", f"--delimiter={separator}", "-o", "ALL", *options]
        return await self._read("sacct", argv, separator, {}, service="slurmdbd")

    async def steps(self, fields: Sequence[str], user: str, ago: float) -> RawText:
        """These fields of a user's jobs of the last `ago` s and of their steps; times are seconds since the epoch."""
        separator = _word()
        argv = ["-p", f"--delimiter={separator}", "-o", ",".join(fields), "--noconvert", "--local", f"--user={user}"]
        clear = {"SLURM_TIME_FORMAT": "%s"}
        return await self._read("sacct", [*argv, "-S", f"now-{int(ago)}"], separator, clear, service="slurmdbd")

    async def scontrol(self, *words: str) -> RawText:
        """What `scontrol` says to these words."""
        return await self._read("scontrol", words, "", {}, label="scontrol show")

    async def clusters(self) -> frozenset[str]:
        """The clusters that accounting knows; none where there is no accounting."""
        argv = ["sacctmgr", "-n", "-P", "show", "clusters", "format=cluster"]
        done = await self._runner.run(argv, limit=self._limit, changing=False, service="slurmdbd")
        return frozenset(done.stdout.split()) if done.code == 0 else frozenset()

    async def _read(
        self,
        program: str,
        words: Sequence[str],
        separator: str,
        variables: Mapping[str, str],
        *,
        service: str = "slurmctld",
        label: str | None = None,
    ) -> RawText:
        done = await self._runner.run(
            [program, *words],
            limit=self._limit,
            changing=False,
            service=service,
            extra={**_CLEAR, **variables},
            label=label,
            strays="surrogateescape",
        )
        if done.code != 0 or done.stderr:
            raise SlurmUnavailable(f"{program}: {done.stderr.strip()[:200] or f'ended with {done.code}'}")
        return RawText(done.stdout, separator)


def _word() -> str:
    return f"\x1f{secrets.token_hex(8)}\x1f"
