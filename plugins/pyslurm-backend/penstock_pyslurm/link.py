"""The agent's end of the process that holds pyslurm: started, asked one thing at a time, killed when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import OutcomeUnknown, SlurmUnavailable
from penstock.slurm.commands import CommandRunner
from penstock.slurm.parse import ParseError, parse_version
from penstock_pyslurm.worker import HEADER

__all__ = ["PyslurmLink", "Unfit", "Versions", "misfit"]

_MODULE = "penstock_pyslurm.worker"
_LAST_WORDS = 2000  # bytes of stderr that are kept


class Unfit(Exception):
    """Pyslurm cannot be used here; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Versions:
    """What the process is made of: pyslurm's own version, and that of the libslurm that it loaded."""

    pyslurm: str
    libslurm: str


def misfit(versions: Versions, site: tuple[int, ...]) -> str | None:
    """Why this pyslurm must not speak to a Slurm of release `site`; None when it may.

    The first two numbers are Slurm's major release: within it neither the library's records nor its messages change.
    """
    release = ".".join(f"{part:02d}" for part in site[:2])
    want = (
        f"install pyslurm {site[0]}.{site[1]}.x (another release of it is another version), or set `slurm.backend: cli`"
    )
    try:
        made_for, loaded = parse_version(versions.pyslurm)[:2], parse_version(versions.libslurm)[:2]
    except ParseError as error:
        return f"pyslurm does not say what it is made for ({error}): {want}"
    if made_for != site[:2]:
        return f"pyslurm {versions.pyslurm} is not made for this site's Slurm {release}: {want}"
    if loaded != site[:2]:
        return f"pyslurm has loaded libslurm {versions.libslurm}, but this site runs Slurm {release}: {want}"
    return None


class PyslurmLink:
    """One process, as one user, which holds one pyslurm."""

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner
        self._process: asyncio.subprocess.Process | None = None
        self._errors: asyncio.Task[bytes] | None = None
        self._turn = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether the process is there to be asked."""
        return self._process is not None and self._process.returncode is None

    async def start(self, limit: float) -> Versions:
        """Start the process. `Unfit` when pyslurm cannot be imported or ends the process, within `limit` seconds."""
        await self.end()
        process = await self._runner.launch([sys.executable, "-P", "-m", _MODULE])
        assert process.stderr is not None
        self._process = process
        self._errors = asyncio.ensure_future(_last_words(process.stderr))
        try:
            async with asyncio.timeout(limit):
                hello = await self._receive(process)
        except TimeoutError:
            await self.end()
            raise SlurmUnavailable(f"pyslurm was not loaded within {limit:g} s") from None
        except (asyncio.IncompleteReadError, OSError, ValueError):
            raise Unfit(f"pyslurm ends when it is loaded: {await self.end() or 'without a word'}") from None
        if "missing" in hello:
            await self.end()
            raise Unfit(f"pyslurm cannot be imported: {hello['missing']}")
        return Versions(hello["pyslurm"], hello["libslurm"])

    async def call(self, name: str, params: Mapping[str, object], *, limit: float, changing: bool) -> Mapping[str, Any]:
        """The process's answer to one request (see `pyslurm_worker`).

        A process that gives none within `limit` seconds is killed: `SlurmUnavailable`, or `OutcomeUnknown` if the
        request might have changed something. A caller who is cancelled does not take the request back.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        try:
            async with asyncio.timeout(limit):
                await self._turn.acquire()
        except TimeoutError:
            raise SlurmUnavailable(f"pyslurm was busy with other requests for {limit:g} s") from None
        left = max(0.0, deadline - loop.time())
        exchange = asyncio.ensure_future(self._exchange(name, params, left, changing))
        exchange.add_done_callback(self._finished)
        return await asyncio.shield(exchange)

    async def end(self) -> str:
        """Kill the process if there is one; its last words."""
        process, self._process = self._process, None
        errors, self._errors = self._errors, None
        if process is None:
            return ""
        await self._runner.dismiss(process)
        words = b""
        if errors is not None:
            with contextlib.suppress(TimeoutError):
                words = await asyncio.wait_for(errors, 1.0)
        return " ".join(words.decode(errors="replace").split())[-300:]

    def _finished(self, exchange: asyncio.Future[Mapping[str, Any]]) -> None:
        self._turn.release()
        if not exchange.cancelled():
            exchange.exception()  # the caller may have gone

    async def _exchange(
        self, name: str, params: Mapping[str, object], limit: float, changing: bool
    ) -> Mapping[str, Any]:
        process = self._process
        if process is None or process.returncode is not None:
            raise SlurmUnavailable("the process that holds pyslurm has ended")
        assert process.stdin is not None
        data = json.dumps({"call": name, "params": params}).encode()
        try:
            async with asyncio.timeout(limit):
                process.stdin.write(len(data).to_bytes(HEADER, "big") + data)
                await process.stdin.drain()
                return await self._receive(process)
        except TimeoutError:
            why = f"gave no answer within {limit:g} s"
        except (asyncio.IncompleteReadError, OSError, ValueError):
            why = "ended"
        words = await self.end()
        text = f"pyslurm's process {why} ({name}){': ' if words else ''}{words}"
        raise OutcomeUnknown(text) if changing else SlurmUnavailable(text)

    async def _receive(self, process: asyncio.subprocess.Process) -> Mapping[str, Any]:
        assert process.stdout is not None
        size = int.from_bytes(await process.stdout.readexactly(HEADER), "big")
        message: Mapping[str, Any] = json.loads(await process.stdout.readexactly(size))
        return message


async def _last_words(stream: asyncio.StreamReader) -> bytes:
    """Read a stream to its end, so that its writer never waits; the last of it."""
    kept = b""
    while chunk := await stream.read(4096):
        kept = (kept + chunk)[-_LAST_WORDS:]
    return kept
