"""The looks that are handed out: taken when somebody asks and the last one is too old, one at a time, packed once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.api import Job, License, Node, Partition, Reservation
from penstock.errors import NotPermitted, SlurmUnavailable
from penstock.site.look.wire import LookHead, LookPart, PackedPart, packed
from penstock.slurm.look_cache import LookCache, TakenLook
from penstock.slurm.privacy import Privacy, Viewer

__all__ = ["Looks", "SharedReader", "TakenParts"]

_RULE_EVERY: Final = 60.0
_SLOW_EVERY: Final = (
    300.0  # partitions, reservations and licences, which people change; jobs and nodes change by themselves
)
_WAY: Final = 0.5  # seconds from the service to the asker, and a bit
_LEAST: Final = 0.5  # of the promise: no look is taken before that, however long it takes
_LOOK, _RULE = "look", "rule"


class SharedReader(Protocol):
    """What the service needs of a back end: some of what only looks."""

    def now(self) -> float:
        """As `slurm.base.Reader`, and so are the others."""
        ...

    def whoami(self) -> str:
        """The user that it asks as."""
        ...

    async def privacy(self) -> Privacy:
        """What Slurm shows to whom."""
        ...

    async def jobs(self) -> Sequence[Job]:
        """All jobs."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """All nodes."""
        ...

    async def partitions(self) -> Sequence[Partition]:
        """All partitions."""
        ...

    async def reservations(self) -> Sequence[Reservation]:
        """All reservations."""
        ...

    async def licenses(self) -> Sequence[License]:
        """All licences."""
        ...


@dataclass(slots=True)
class TakenParts:
    """What was seen at `taken_at` (the controller's clock). `whole` are the parts as who sees all gets them; those of
    others are made when they ask, under the rule that holds then."""

    number: int
    taken_at: float
    jobs: Sequence[Job]
    reservations: Sequence[Reservation]
    whole: dict[str, PackedPart]
    _own: dict[tuple[str, Viewer], tuple[Privacy, PackedPart]] = field(default_factory=dict)

    def part(self, name: str, rule: Privacy, viewer: Viewer) -> PackedPart:
        """A part as this viewer is shown it."""
        all_jobs, all_reservations = rule.sees_all_jobs(viewer), rule.sees_all_reservations(viewer)
        if (name != "jobs" or all_jobs) and (name != "reservations" or all_reservations):
            return self.whole[name]
        by, part = self._own.get((name, viewer), (None, None))
        if part is None or by != rule:
            if name == "jobs":
                part = packed(Job, rule.jobs(viewer, self.jobs))
            else:
                part = packed(Reservation, rule.reservations(viewer, self.reservations))
            self._own[name, viewer] = rule, part
        return part


class Looks:
    """`promise`: no look is handed out that was begun more than so many seconds ago. `steady` and `sleep` are for
    tests. Nothing is asked of Slurm unless somebody asks."""

    def __init__(
        self,
        reader: SharedReader,
        promise: float,
        *,
        steady: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self.promise = promise
        self._steady = steady
        self.instance = secrets.token_hex(8)
        self.looks: LookCache[TakenParts] = LookCache(promise - _WAY, steady, sleep)
        self._rules: LookCache[Privacy] = LookCache(_RULE_EVERY, steady, sleep)
        self._slow: tuple[list[Partition], list[Reservation], list[License]] = ([], [], [])
        self._slow_at = float("-inf")
        self._numbers = 0

    async def rule(self) -> Privacy:
        """What Slurm shows to whom, at most a minute old. Raises `SlurmUnavailable`, and `NotPermitted` where Slurm
        hides from the service itself what others may see."""
        rule = (await self._rules.get(_RULE, self._reader.privacy)).content
        me = self._reader.whoami()
        if rule.hides and me not in rule.privileged:
            raise NotPermitted(
                f"PrivateData hides jobs from user {me}, who needs AdminLevel=Operator: "
                f"sacctmgr modify user {me} set adminlevel=operator"
            )
        return rule

    async def for_viewer(self, viewer: Viewer, have: dict[str, str]) -> tuple[LookHead, list[bytes]]:
        """The look for this viewer: what is said of it, and the parts that they do not have. Raises as `rule`, and
        `NotPermitted` where Slurm would refuse them a part as a whole."""
        rule = await self.rule()
        if refused := rule.refused(viewer):
            raise NotPermitted(f"PrivateData hides {' and '.join(refused)} from user {viewer.user}")
        taken = await self.looks.get(_LOOK, self._take)
        age = self._steady() - taken.begun
        if age > self.promise:
            raise SlurmUnavailable(f"a look at Slurm takes {age:.0f} s, and {self.promise:.0f} s is how old it may be")
        parts, data = [], []
        for name in taken.content.whole:
            part = taken.content.part(name, rule, viewer)
            known = have.get(name) == part.tag
            parts.append(LookPart(name, part.tag, 0 if known else len(part.data)))
            if not known:
                data.append(part.data)
        return self._head(rule, taken, age, tuple(parts)), data

    def _head(self, rule: Privacy, taken: TakenLook[TakenParts], age: float, parts: tuple[LookPart, ...]) -> LookHead:
        seen = taken.content
        return LookHead(
            rule.cluster, self.instance, seen.number, seen.taken_at, self._reader.now(), age, self.promise, parts
        )

    async def _take(self) -> TakenParts:
        """One look; jobs last, so that one that started meanwhile counts as holding its nodes."""
        at, began, reader = self._reader.now(), self._steady(), self._reader
        if not 0 <= self._steady() - self._slow_at < _SLOW_EVERY:
            partitions, reservations = list(await reader.partitions()), list(await reader.reservations())
            self._slow = (partitions, reservations, list(await reader.licenses()))
            self._slow_at = self._steady()
        nodes = list(await reader.nodes())
        jobs = list(await reader.jobs())
        partitions, reservations, licenses = self._slow
        names = {partition.name for partition in partitions}
        if any(part not in names for job in jobs for part in job.partition.split(",")):
            self._slow_at = float("-inf")  # a partition made since: read them again with the next look
        whole = await asyncio.to_thread(_packed, jobs, nodes, partitions, reservations, licenses)
        self._numbers += 1
        # Whoever comes just before the next one is due waits for that, and has none that is too old.
        took = self._steady() - began
        self.looks.age = max(_LEAST * self.promise, self.promise - _WAY - 2 * took)
        return TakenParts(self._numbers, at, jobs, reservations, whole)


def _packed(
    jobs: list[Job],
    nodes: list[Node],
    partitions: list[Partition],
    reservations: list[Reservation],
    licenses: list[License],
) -> dict[str, PackedPart]:
    return {
        "jobs": packed(Job, jobs),
        "nodes": packed(Node, nodes),
        "partitions": packed(Partition, partitions),
        "reservations": packed(Reservation, reservations),
        "licenses": packed(License, licenses),
    }
