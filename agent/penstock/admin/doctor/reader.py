"""Finds out the facts: a dozen requests to Slurm at most, each with a time limit, and a look at this host.

Every backend is asked through the calls that the agent makes, so what is understood here is understood there.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeVar

from dmr import credential, launch, quirks
from penstock.admin.doctor.facts import (
    Agent,
    AgentAddress,
    Mpi,
    PartSeen,
    Probe,
    QueueSize,
    RestSpoken,
    Services,
    SiteFacts,
)
from penstock.api import JobSpec, Owner, OwnerLimits, Partition, SiteConfig, plural
from penstock.config import Config, config_of, find, load
from penstock.core.backends import make_backend, pyslurm_extension, rest_extension
from penstock.core.extensions import POLICIES
from penstock.core.findings import Finding, Folder, Trouble
from penstock.core.folders import folder_at
from penstock.core.installed import installed_parts
from penstock.core.off import off_in
from penstock.errors import AgentUnavailable, ConfigError, NotPermitted, PenstockError, StoreError, UserError
from penstock.host.distributions import beside
from penstock.host.listening import bare
from penstock.host.logins import login
from penstock.ipc.address import advertised_host
from penstock.ipc.client import ask_agent
from penstock.messages.channels import Undelivered, channels_of, read_secret
from penstock.site.viewing import shared_look
from penstock.slurm.base import NotOffered, Reader
from penstock.slurm.budget import Metered
from penstock.slurm.commands import PROGRAMS
from penstock.slurm.queries import CliQueries
from penstock.state.leadership import is_shared
from penstock.state.lease.files import published
from penstock.state.ownership import is_readable, own_folder
from penstock.state.reading import describe
from penstock.state.store import TICKED, Store

__all__ = ["read_facts"]

T = TypeVar("T")

_RECENTLY: Final = 3600.0  # how far back accounting is read, to see that it answers
_PROBE: Final = 60.0
_NOWHERE: Final = "/nonexistent"
# Does not initialise MPI: that could end this process, or hang in it, where no job is around it.
_ASK_MPI: Final = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(json.dumps([mpi4py.__version__, MPI.Get_library_version()]))
"""


def read_facts(limit: float, *, with_mpi: bool, environ: Mapping[str, str] = os.environ) -> SiteFacts:
    """Everything that can be known; nothing raises. `limit` is the time limit of each request in seconds."""
    trouble, path = "", find(environ)
    try:
        config = load(environ=environ)
    except ConfigError as error:
        config, trouble = _defaults(), str(error)
    started = time.monotonic()
    known = asyncio.run(_ask_slurm(config, limit))
    known["seconds"] = time.monotonic() - started
    state_folder = config.agent.state_dir
    return SiteFacts(
        config=config,
        config_path=str(path or ""),
        config_trouble=trouble,
        uid=os.geteuid(),
        host=socket.gethostname(),
        python=sys.executable,
        agent=_agent(config, limit),
        folder=_within(limit, lambda: _state_folder(config)),
        own=_within(limit, lambda: _own(config)),
        closed_folder=_or(_within(limit, lambda: _closed_folder(config.socket_path)), ""),
        known_users=_or(_within(limit, lambda: _known_users(config)), None),
        state=_within(limit, lambda: describe(state_folder / "penstock.db")),
        policy=_trouble(lambda: POLICIES.make(config.dmr.policy)),
        munge=_within(limit, lambda: _munge(config)),
        key=_within(limit, lambda: _key(state_folder / "dmr.key")),
        address=_within(limit, lambda: _address(config)),
        mpi=_mpi(limit),
        probe=_probe() if with_mpi else None,
        services=_services(limit),
        messages=_within(limit, lambda: _messages(config)),
        parts=_tried(_parts),
        part_findings=_or(_tried(lambda: _part_findings(config, limit)), ()),
        **known,  # type: ignore[arg-type]
    )


def _defaults() -> Config:
    try:
        return Config()
    except ConfigError:  # there is no home for the state either
        return config_of({"agent": {"state_dir": _NOWHERE}})


# -- Slurm -----------------------------------------------------------------------------------------------------------


async def _ask_slurm(config: Config, limit: float) -> dict[str, object]:
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
    extension = _tried(pyslurm_extension)
    if isinstance(extension, Trouble):
        return extension
    if extension is None or not isinstance(backend, CliQueries) or config.slurm.backend == "rest":
        return None
    return await _answered(extension.version(backend.runner, None if site is None else site.version, limit), limit)


# -- this host -------------------------------------------------------------------------------------------------------


def _tried(call: Callable[[], T]) -> T | Trouble:
    try:
        return call()
    except (PenstockError, OSError) as error:
        return Trouble(str(error))


def _or(found: T | Trouble, otherwise: T) -> T:
    """What was found; `otherwise` where that did not work."""
    return otherwise if isinstance(found, Trouble) else found


def _within(limit: float, call: Callable[[], T]) -> T | Trouble:
    """As `_tried`, in a thread that nobody waits for any longer: file servers, name servers and munged may hang."""
    found: list[T | Trouble] = []
    thread = threading.Thread(target=lambda: found.append(_tried(call)), daemon=True)
    thread.start()
    thread.join(limit)
    return found[0] if found else Trouble(f"no answer within {limit:g} s")


def _parts() -> tuple[PartSeen, ...]:
    return tuple(PartSeen(one.name, one.version, str(one.file), one.why_not()) for one in beside() if one.part)


def _part_findings(config: Config, limit: float) -> tuple[Finding, ...]:
    def within(call: Callable[[], T]) -> T | Trouble:
        return _within(limit, call)

    return tuple(finding for part in installed_parts() for finding in part.checks(config, within))


def _messages(config: Config) -> str | None:
    """The ways that messages to people take; None: none. Raises UserError for one that cannot work."""
    settings, ways = config.messages, []
    programs = []
    channels_of(settings)
    try:
        if settings.mail == "smtp":
            ways.append(f"mail by {settings.smtp}")
            if settings.smtp_login is not None:
                read_secret(settings.smtp_login)
        if settings.webhook is not None:
            read_secret(settings.webhook)
            ways.append("a webhook")
    except Undelivered as error:
        raise UserError(str(error)) from error
    if settings.mail == "sendmail":
        programs.append(settings.sendmail[0])
    if settings.command is not None:
        programs.append(settings.command[0])
    for program in programs:
        if shutil.which(program) is None:
            raise UserError(f"{program} cannot be run")
        ways.append(f"{'mail by ' if program == settings.sendmail[0] else ''}{program}")
    ways += [f"the channel {name}" for name in settings.channels]
    return ", ".join(ways) or None


def _trouble(call: Callable[[], object]) -> Trouble | None:
    found = _tried(call)
    return found if isinstance(found, Trouble) else None


def _agent(config: Config, limit: float) -> Agent:
    try:
        ask_agent(config, "ping", timeout=limit)
    except AgentUnavailable as error:
        ticked, off = _stored(config.agent.state_dir / "penstock.db")
        return Agent(answers=False, why=str(error), ticked=ticked, off=off)
    except PenstockError as error:  # it answers, if not to this user
        return Agent(answers=True, why=str(error))
    try:
        return Agent(answers=True, off=str(ask_agent(config, "left", timeout=limit)["text"]))
    except PenstockError:  # one of before there was an off
        return Agent(answers=True)


def _stored(path: Path) -> tuple[float | None, str]:
    """How long ago the last tick was (s), and since when all is off, as the state file has it."""
    try:
        if not is_readable(path):
            return None, ""
        with closing(Store.read_only(path)) as store:
            at, off = store.facts.instant(TICKED), off_in(store)
    except (NotPermitted, StoreError):
        return None, ""
    return (time.time() - at if at else None), str(off or "")


def _closed_folder(path: Path) -> str:
    """The first folder on the way to a path that others than its owner cannot enter; empty: there is none."""
    for folder in reversed(path.parents):
        try:
            if not folder.stat().st_mode & 0o001:
                return str(folder)
        except FileNotFoundError:
            return ""
    return ""


def _known_users(config: Config) -> frozenset[str]:
    """The users of `limits.allow` whom this host knows."""
    named = {name for rule in config.limits.rules or () for name in rule.users or ()}
    return frozenset(name for name in named if _is_user(name))


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _state_folder(config: Config) -> Folder | Trouble:
    folder = folder_at(config.agent.state_dir)
    if isinstance(folder, Trouble) or not is_shared(config):
        return folder
    holder = published(config.agent.state_dir)
    return replace(folder, shared=True, holder="" if holder is None or holder.released else str(holder))


def _own(config: Config) -> Folder | Trouble | None:
    folder = own_folder(config)
    return None if config.agent.serve == "own" or folder == config.agent.state_dir else folder_at(folder)


def _munge(config: Config) -> Trouble | None:
    """A credential there and back."""
    chosen = str(config.dmr.munge_socket) if config.dmr.munge_socket else None
    digest = f"penstock doctor {os.getpid()} {time.time()}"
    try:
        credential.verify_munge(credential.sign_munge(digest, chosen), digest, chosen)
    except credential.CredentialError as error:
        return Trouble(str(error))
    return None


def _key(path: Path) -> bool | Trouble:
    try:
        if not path.exists():
            return False
        credential.load_key(path)
    except (credential.CredentialError, OSError) as error:
        return Trouble(str(error))
    return True


def _address(config: Config) -> AgentAddress | Trouble:
    """The same name that the agent gives to its applications."""
    name = advertised_host(config)
    try:
        found = socket.getaddrinfo(bare(name), None, type=socket.SOCK_STREAM)
    except OSError as error:
        return Trouble(f"{name}: {error.strerror}")
    return AgentAddress(name, tuple(sorted({str(entry[4][0]).partition("%")[0] for entry in found})))


def _mpi(limit: float) -> Mpi | Trouble:
    if find_spec("mpi4py") is None:
        return Trouble("mpi4py is not installed")
    try:
        done = _run([sys.executable, "-c", _ASK_MPI], limit)
        version, library = json.loads(done.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return Trouble(_essence(error))
    name = library.splitlines()[0].split(",")[0] if library else "an unknown library"
    return Mpi(version, name, launch.find_mpiexec(), quirks.under_launcher(library))


def _probe() -> Probe | Trouble:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dmr.probe", "--json", f"--limit={_PROBE:g}"],
            capture_output=True,
            text=True,
            timeout=7 * _PROBE,
            check=False,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Trouble(_essence(error))
    failures = {check["name"]: check["remark"] for check in found["checks"] if not check["works"]}
    return Probe(tuple(found["methods"]), failures)


def _services(limit: float) -> Services:
    user = login(os.geteuid())
    manager = shutil.which("systemctl") is not None and _said(["systemctl", "--user", "show-environment"], limit) != ""
    unit = _said(["systemctl", "--user", "is-active", "penstock-user"], limit, failing=True) if manager else ""
    installed = manager and _said(["systemctl", "--user", "cat", "penstock-user"], limit) != ""
    linger = _said(["loginctl", "show-user", user, "--property=Linger", "--value"], limit)
    lingers = {"yes": True, "no": False}.get(linger)
    return Services(manager, lingers, unit if installed else "", shutil.which("crontab") is not None)


def _said(argv: list[str], limit: float, *, failing: bool = False) -> str:
    """What a command says, "" when it cannot be run, fails or takes too long."""
    try:
        return _run(argv, limit, failing=failing).strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _run(argv: list[str], limit: float, *, failing: bool = False) -> str:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=not failing
    )
    return done.stdout


def _essence(error: Exception) -> str:
    """The last line of what a failed command wrote, which is the error itself; else what the error says."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    written = getattr(error, "stderr", None) or ""
    lines = [line for line in str(written).splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else " ".join(str(error).split())[:300]
