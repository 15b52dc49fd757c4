"""Finds out the facts: what Slurm says (`slurm_reader.py`), and a look at this host."""

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
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

from dmr import credential, launch, quirks
from penstock.admin.doctor.facts import Agent, AgentAddress, Mpi, PartSeen, Probe, Services, SiteFacts
from penstock.admin.doctor.slurm_reader import ask_slurm, tried
from penstock.config import Config, config_of, find, load
from penstock.core.extensions import POLICIES
from penstock.core.findings import Finding, Folder, Trouble
from penstock.core.folders import folder_at
from penstock.core.installed import each_part
from penstock.core.off import off_in
from penstock.errors import AgentUnavailable, ConfigError, NotPermitted, PenstockError, StoreError
from penstock.host.listening import bare
from penstock.host.logins import login
from penstock.ipc.address import advertised_host
from penstock.ipc.client import ask_agent
from penstock.kernel.library import WHY_NOT
from penstock.state.leadership import is_shared
from penstock.state.lease.files import published
from penstock.state.ownership import is_readable, own_folder, state_path
from penstock.state.reading import describe
from penstock.state.store import TICKED, Store

__all__ = ["read_facts"]

T = TypeVar("T")

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
    known = asyncio.run(ask_slurm(config, limit))
    known["seconds"] = time.monotonic() - started
    state_folder = config.agent.state_dir
    parts = tried(lambda: _parts(config, limit))
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
        state=_within(limit, lambda: describe(state_path(config))),
        policy=_trouble(lambda: POLICIES.make(config.dmr.policy)),
        munge=_within(limit, lambda: _munge(config)),
        key=_within(limit, lambda: _key(state_folder / "dmr.key")),
        address=_within(limit, lambda: _address(config)),
        mpi=_mpi(limit),
        probe=_probe() if with_mpi else None,
        services=_services(limit),
        parts=parts if isinstance(parts, Trouble) else parts[0],
        kernel=WHY_NOT,
        part_findings=() if isinstance(parts, Trouble) else parts[1],
        **known,  # type: ignore[arg-type]
    )


def _defaults() -> Config:
    try:
        return Config()
    except ConfigError:  # there is no home for the state either
        return config_of({"agent": {"state_dir": _NOWHERE}})


def _or(found: T | Trouble, otherwise: T) -> T:
    """What was found; `otherwise` where that did not work."""
    return otherwise if isinstance(found, Trouble) else found


def _within(limit: float, call: Callable[[], T]) -> T | Trouble:
    """As `tried`, in a thread that nobody waits for any longer: file servers, name servers and munged may hang."""
    found: list[T | Trouble] = []
    thread = threading.Thread(target=lambda: found.append(tried(call)), daemon=True)
    thread.start()
    thread.join(limit)
    return found[0] if found else Trouble(f"no answer within {limit:g} s")


def _parts(config: Config, limit: float) -> tuple[tuple[PartSeen, ...], tuple[Finding, ...]]:
    """The parts, and what they find of what is theirs: one that is refused, or fails, is asked no further."""

    def within(call: Callable[[], T]) -> T | Trouble:
        return _within(limit, call)

    from penstock.app import PARTS  # slow to load

    parts: list[PartSeen] = []
    found: list[Finding] = []
    for one, part in each_part(PARTS):
        why, unasked = (part, "") if isinstance(part, str) else ("", "")
        try:
            made = () if isinstance(part, str) else part.checks(config, within)
            found.extend(replace(each, outside=not one.own) for each in made)
        except Exception as error:
            unasked = f"its checks have failed: {error!r}"
        parts.append(PartSeen(one.name, one.version, str(one.file), why, unasked))
    return tuple(parts), tuple(found)


def _trouble(call: Callable[[], object]) -> Trouble | None:
    found = tried(call)
    return found if isinstance(found, Trouble) else None


def _agent(config: Config, limit: float) -> Agent:
    try:
        ask_agent(config, "ping", timeout=limit)
    except AgentUnavailable as error:
        ticked, off = _stored(state_path(config))
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
