"""Finds out what Slurm says: a dozen requests at most, each with a time limit.

Every backend is asked through the calls that the agent makes, so what is understood here is understood there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeVar

from penstock.admin.doctor.facts import QueueSize, RestSpoken
from penstock.api import JobSpec, Owner, OwnerLimits, Partition, SiteConfig, plural
from penstock.config import Config
from penstock.core.backends import make_backend, pyslurm_extension, rest_extension
from penstock.core.findings import Trouble
from penstock.errors import PenstockError
from penstock.host.logins import login
from penstock.site.viewing import shared_look
from penstock.slurm.base import NotOffered, Reader
from penstock.slurm.budget import Metered
from penstock.slurm.commands import PROGRAMS
from penstock.slurm.queries import CliQueries

__all__ = ["ask_slurm", "tried"]

T = TypeVar("T")

_RECENTLY: Final = 3600.0  # how far back accounting is read, to see that it answers


def tried(call: Callable[[], T]) -> T | Trouble:
    """What the call finds, or why it does not work."""
    try:
        return call()
    except (PenstockError, OSError) as error:
        return Trouble(str(error))


async def ask_slurm(config: Config, limit: float) -> dict[str, object]:
    """What Slurm says. Where it does not answer at all, it is not asked again."""
    without = config.slurm.backend in ("mock", "rest")
    missing = () if without else tuple(name for name in PROGRAMS if shutil.which(name) is None)
    # By the commands even where pyslurm is wanted: it is a check of its own, and must not end the others.
    backend_name = config.slurm.backend if without else "cli"
    config = replace(
        config, slurm=replace(config.slurm, backend=backend_name, timeout=min(limit, config.slurm.timeout))
    )
    try:
        backend = make_backend(config)
    except PenstockError as error:
        return _unasked(Trouble(str(error)), missing)
    try:
        site = await _answered(backend.site(), limit)
        if isinstance(site, Trouble):
            return {
                **_unasked(site, missing, await _pyslurm(config, backend, None, limit)),
                "rest": await _rest(config, backend, limit),
                "requests": _requests(backend),
            }
        partitions = await _answered(_partitions(backend), limit)
        accounts = await _answered(_memberships(backend, site), limit)
        found: dict[str, object] = {
            "user": backend.whoami(),
            "programs_missing": missing,
            "site": site,
            "queue": await _answered(_queue(backend), limit),
            "partitions": partitions,
            "submission": await _answered(_submission(backend), limit),
            "accounts": accounts if isinstance(accounts, Trouble) else tuple(accounts),
            "limits": await _answered(_limits(backend, site, accounts, partitions), limit),
            "known_accounts": await _known(config, backend, site, "accounts", limit),
            "known_qos": await _known(config, backend, site, "qos", limit),
            "history": await _answered(_history(backend, site), limit),
            "clusters": await _answered(_clusters(backend), limit),
            "skew": backend.now() - time.time(),
            "view": await _answered(_view(config, backend, site), limit),
            "pyslurm": await _pyslurm(config, backend, site, limit),
            "rest": await _rest(config, backend, limit),
        }
        found["requests"] = _requests(backend)
        return found
    finally:
        await backend.close()


def _requests(backend: Reader) -> dict[str, int]:
    return dict(backend.meter.requests) if isinstance(backend, Metered) else {}


def _unasked(why: Trouble, missing: tuple[str, ...], pyslurm: object = None) -> dict[str, object]:
    not_asked = Trouble("not asked, as slurmctld did not answer", asked=False)
    names = ("queue", "partitions", "submission", "accounts", "limits", "history", "clusters")
    return {
        "user": login(os.geteuid()),
        "programs_missing": missing,
        "site": why,
        **dict.fromkeys(names, not_asked),
        "skew": 0.0,
        "pyslurm": pyslurm,
    }


async def _answered(call: Awaitable[T], limit: float) -> T | Trouble:
    """The answer within the time limit; the backend has one of its own for each command, and may run several."""
    try:
        async with asyncio.timeout(3 * limit):
            return await call
    except TimeoutError:
        return Trouble(f"no answer within {3 * limit:g} s")
    except (PenstockError, OSError) as error:
        return Trouble(str(error))


async def _queue(backend: Reader) -> QueueSize:
    jobs, nodes = await backend.jobs(), await backend.nodes()
    return QueueSize(len(jobs), len(nodes), sum(node.usable for node in nodes))


async def _partitions(backend: Reader) -> tuple[Partition, ...]:
    return tuple(await backend.partitions())


async def _submission(backend: Reader) -> str:
    """Slurm's estimate for a small job; nothing is submitted."""
    spec = JobSpec(name="penstock-doctor", script="#!/bin/sh\ntrue\n", nodes=1, time_limit=60.0)
    try:
        estimate = await backend.estimate(spec)
    except NotOffered as why:
        return f"at a time that cannot be asked for ({why})"
    wait = max(0.0, estimate.start - backend.now())
    return f"in {wait:.0f} s in partition {estimate.partition}" if wait > 1 else f"now in {estimate.partition}"


async def _memberships(backend: Reader, site: SiteConfig) -> Mapping[str, str]:
    return await backend.memberships(site.cluster) if isinstance(backend, CliQueries) else {"default": "normal"}


async def _limits(
    backend: Reader, site: SiteConfig, accounts: Mapping[str, str] | Trouble, partitions: Sequence[Partition] | Trouble
) -> tuple[OwnerLimits, ...]:
    """What the user may have under each account in the default partition, where Slurm holds users to limits."""
    if not {"limits", "safe"} & site.enforced or isinstance(accounts, Trouble) or isinstance(partitions, Trouble):
        return ()
    place = next((partition.name for partition in partitions if partition.default), "")
    user = backend.whoami()
    return tuple(await backend.limits([Owner(user, account, place, qos) for account, qos in accounts.items()]))


async def _known(
    config: Config, backend: Reader, site: SiteConfig, kind: Literal["accounts", "qos"], limit: float
) -> frozenset[str] | None:
    """All accounts, or QOS, that accounting has, where a rule of `limits.allow` names one and all are shown."""
    hidden = kind == "accounts" and "accounts" in site.private and not site.operator
    named = any(getattr(rule, kind) for rule in config.limits.rules or ())
    if not named or hidden or not site.accounting or not isinstance(backend, CliQueries):
        return None
    found = await _answered(backend.defined(kind), limit)
    return None if isinstance(found, Trouble) else found


async def _history(backend: Reader, site: SiteConfig) -> int:
    return len(await backend.history(since=backend.now() - _RECENTLY)) if site.accounting else 0


async def _clusters(backend: Reader) -> tuple[str, ...]:
    return tuple(await backend.clusters())


async def _view(config: Config, backend: Reader, site: SiteConfig) -> str | Trouble | None:
    shared = shared_look(config, site.cluster, quiet=True)
    if shared is None or (config.slurm.view == "auto" and not shared.path.exists()):
        return None
    seen = await shared.look(backend.now())
    if seen is None:
        return Trouble(f"{shared.path}: {shared.why}")
    age = max(0.0, backend.now() - seen.taken_at)
    jobs = plural(len(seen.jobs), "job")
    return f"{shared.path}: a look {age:.0f} s old, never older than {shared.promise:.0f} s; {jobs}"


async def _rest(config: Config, backend: Reader, limit: float) -> RestSpoken | Trouble | None:
    """How slurmrestd is spoken to; None: Slurm is reached in another way."""
    extension = rest_extension() if config.slurm.backend == "rest" else None
    told = None if extension is None else await _answered(extension.spoken(backend), limit)
    return told if told is None or isinstance(told, Trouble) else RestSpoken(*told)


async def _pyslurm(config: Config, backend: Reader, site: SiteConfig | None, limit: float) -> str | Trouble | None:
    extension = tried(pyslurm_extension)
    if isinstance(extension, Trouble):
        return extension
    if extension is None or not isinstance(backend, CliQueries) or config.slurm.backend == "rest":
        return None
    return await _answered(extension.version(backend.runner, None if site is None else site.version, limit), limit)
