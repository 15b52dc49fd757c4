"""How slurmrestd is asked: the data version that both know, and one door for each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.errors import (
    NotFound,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    PenstockError,
    SlurmUnavailable,
)
from penstock.slurm.budget import SubmissionKind
from penstock.slurm.cli import CliBackend
from penstock.slurm.clocks import since_boot
from penstock.slurm.parse import ParseError
from penstock_rest.errors import RestRefusal, error_of
from penstock_rest.link import RestLink
from penstock_rest.values import items, member, moment
from penstock_rest.versions import KNOWN, DataVersion, unfit

__all__ = ["RestAsking", "Words", "without_accounting"]

_NO_ACCOUNTING = ("accounting_storage", "slurm accounting storage is disabled", "slurmdbd is not configured")

T = TypeVar("T")
Words = str | Sequence[str]


class RestAsking(CliBackend):
    """slurmrestd, asked for one user. The options are those of `CliAsking`, and:

    `link` is the way to it. `commands`: Slurm's commands are there for what slurmrestd cannot do, and act as the same
    user. `settings` are those that `scontrol show config` would tell, where neither can; `default_partition` likewise.
    """

    def __init__(
        self,
        *,
        link: RestLink,
        commands: bool,
        settings: Mapping[str, str] | None = None,
        default_partition: str | None = None,
        **options: Any,  # noqa: ANN401 (theirs)
    ) -> None:
        super().__init__(**options)
        self._link = link
        self._commands = commands
        self._settings = dict(settings or {})
        self._default_partition = default_partition
        self._version: DataVersion | None = None
        self._agreeing = asyncio.Lock()
        self._meta: Mapping[str, Any] = {}

    async def close(self) -> None:
        """Give the connections back, and end whatever commands run."""
        await self._link.close()
        await super().close()

    @property
    def data_version(self) -> str:
        """The data version that was agreed on; empty: none yet."""
        return "" if self._version is None else self._version.name

    async def _agreed(self) -> DataVersion:
        """The newest data version that both know; found out once, and again after a server has forgotten it."""
        async with self._agreeing:
            if self._version is not None:
                return self._version
            offered: list[str] = []
            for version in KNOWN:
                try:
                    answer = await self._ask("ping", "GET", f"/slurm/{version.name}/ping/", "slurmrestd")
                except RestRefusal as refused:
                    if refused.status != 404:
                        raise error_of(refused, changing=False) from None
                    continue
                self._meta = answer.get("meta") or {}
                self._version = version
                return version
            try:
                paths = (await self._ask("openapi", "GET", "/openapi/v3", "slurmrestd")).get("paths")
                offered = list(paths) if isinstance(paths, Mapping) else []
            except (RestRefusal, SlurmUnavailable):
                pass
            raise SlurmUnavailable(f"slurmrestd at {self._link.address}: {unfit(offered)}")

    async def _answer(
        self,
        label: str,
        method: str,
        service: str,
        path: str,
        *,
        changing: bool = False,
        query: Mapping[str, Words] | None = None,
        body: Mapping[str, object] | None = None,
        submits: SubmissionKind | None = None,
        limit: float | None = None,
    ) -> Mapping[str, Any]:
        """What slurmrestd answers under a path of slurmctld's (`slurm`) or accounting's (`slurmdb`) in the data version
        that was agreed on. Raises as all calls of a backend."""
        version = await self._agreed()
        to = "slurmctld" if service == "slurm" else "slurmdbd"
        try:
            return await self._ask(
                label, method, f"/{service}/{version.name}/{path}", to, changing, query, body, submits, limit
            )
        except RestRefusal as refused:
            if refused.status == 404 and "url" in refused.text.lower():
                self._version = None  # another slurmrestd may answer here by now
                raise SlurmUnavailable(f"slurmrestd has no {service}/{version.name}/{path}: {refused.text}") from None
            error = error_of(refused, changing=changing)
            # A read has nothing to be final about but the thing not being there.
            if changing or isinstance(error, NotNow | NotFound | NotPermitted) or without_accounting(error):
                raise error from None
            raise SlurmUnavailable(str(error)) from None

    async def _ask(
        self,
        label: str,
        method: str,
        path: str,
        service: str,
        changing: bool = False,
        query: Mapping[str, Words] | None = None,
        body: Mapping[str, object] | None = None,
        submits: SubmissionKind | None = None,
        limit: float | None = None,
    ) -> Mapping[str, Any]:
        """The door to slurmrestd: every request passes here and is counted."""
        patience = self._limit if limit is None else limit
        ticket = await self.budget.admit(service, changing=changing, patience=patience, submits=submits)
        name, started, outcome = f"rest {label}", time.monotonic(), "ok"
        self.meter.begun(name)
        try:
            return await self._link.ask(method, path, limit=patience, changing=changing, query=query, body=body)
        except RestRefusal:
            outcome = "refused"
            raise
        except (SlurmUnavailable, OutcomeUnknown):
            outcome = "unanswered"
            raise
        except BaseException:
            outcome = "abandoned"
            raise
        finally:
            self.budget.answered(ticket, outcome != "unanswered")
            self.meter.ended(name, outcome, time.monotonic() - started)

    async def _compare_clocks(self) -> None:
        """slurmctld says when it answered the request for its statistics."""
        started = since_boot()
        answer = await self._answer("diag", "GET", "slurm", "diag/")
        if (said := moment(member(answer, "statistics", "req_time"))) is not None:
            self._clock.compare(said, since_boot() - started)

    async def _check_clock(self) -> None:
        if self._clock.doubtful:
            await self._compare_clocks()

    def _items(self, what: str, answer: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        return self._read_as(what, lambda: items(answer, name))

    def _read_as(self, what: str, parse: Callable[[], T]) -> T:
        """What cannot be read is no answer."""
        try:
            return parse()
        except ParseError as error:
            raise SlurmUnavailable(f"slurmrestd {what} ({self.data_version}): {error}") from error


def without_accounting(error: PenstockError) -> bool:
    """Whether it says that the cluster has no accounting."""
    return any(words in str(error).lower() for words in _NO_ACCOUNTING)
