"""Which requests say what owners may have: four or five for a batch of owners, however many. Part of `queries`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from penstock.api import Owner, OwnerLimits, Partition
from penstock.errors import PenstockError, SlurmUnavailable
from penstock.slurm import limits
from penstock.slurm.parse import ParseError

__all__ = ["QueryRunner", "read_limits"]

# A name goes into a list with commas.
_NAME = re.compile(r"[^\s,=|]{1,200}")
_SHOWN = ("Association Records", "No associations currently cached")


class QueryRunner(Protocol):
    """Runs a command that only looks, and gives what it printed; raises as the backend's calls do."""

    def __call__(self, *argv: str) -> Awaitable[str]:
        """The command line, argument by argument."""
        ...


async def read_limits(
    owners: Sequence[Owner],
    controller: QueryRunner,
    accounting: QueryRunner,
    partitions: Callable[[], Awaitable[Collection[Partition]]],
    cluster: Callable[[], Awaitable[str]],
) -> list[OwnerLimits]:
    """What is known of each owner, in the order given.

    `controller` and `accounting` run commands that slurmctld and slurmdbd answer. `cluster` gives Slurm's name of this
    one; it is asked for only where accounting has to say what slurmctld did not show. `SlurmUnavailable` when slurmctld
    gives no answer; without one from accounting the limits say what is not known.
    """
    if not owners:
        return []
    known = {partition.name: partition for partition in await partitions()}
    places = [known.get(owner.partition) for owner in owners]
    users = _names(owner.user for owner in owners)
    names = _names([*(owner.qos for owner in owners), *(place.own_qos for place in places if place is not None)])
    shown, table = await asyncio.gather(_shown(controller, users, names), _table(accounting))
    seen, qos = shown
    recorded: Sequence[limits.Association] | str = ""
    if not all(limits.whole(owner, seen) for owner in owners):
        recorded = await _recorded(accounting, cluster)
    return [limits.join(owner, place, seen, recorded, qos, table) for owner, place in zip(owners, places, strict=True)]


def _names(given: Iterable[str]) -> list[str]:
    return sorted({name for name in given if _NAME.fullmatch(name)})


async def _shown(
    controller: QueryRunner, users: Sequence[str], qos: Sequence[str]
) -> tuple[list[limits.Association], dict[str, limits.Qos]]:
    """What slurmctld shows of these users, of all accounts above them, and of these QOS."""
    what = ["flags=assoc,qos", f"qos={','.join(qos)}"] if qos else ["flags=assoc"]
    only = [f"users={','.join(users)}"] if users else []
    text = await controller("scontrol", "-o", "show", "assoc_mgr", *only, *what)
    if not any(words in text for words in _SHOWN):
        raise SlurmUnavailable(f"scontrol show assoc_mgr: {text[:80]!r}")
    try:
        return limits.associations_from_text(text), limits.qos_from_text(text)
    except ParseError as error:
        raise SlurmUnavailable(f"scontrol show assoc_mgr: {error}") from error


async def _table(accounting: QueryRunner) -> dict[str, limits.Qos] | str:
    """The QOS as accounting has them, or why it does not say."""
    try:
        text = await accounting("sacctmgr", "-nP", "show", "qos", f"format={','.join(limits.QOS_FIELDS)}")
        return limits.qos_from_rows(text)
    except (PenstockError, ParseError) as error:
        return f"accounting does not say: {error}"


async def _recorded(accounting: QueryRunner, cluster: Callable[[], Awaitable[str]]) -> list[limits.Association] | str:
    """The associations as accounting has them, or why it does not say."""
    try:
        name = await cluster()
        fields = ",".join(limits.ASSOCIATION_FIELDS)
        text = await accounting("sacctmgr", "-nP", "show", "associations", f"cluster={name}", f"format={fields}")
        return limits.associations_from_rows(text, name)
    except (PenstockError, ParseError) as error:
        return f"accounting does not say: {error}"
