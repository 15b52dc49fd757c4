"""The units of systemd that run Penstock: which one an agent runs under, and stopping and starting it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.values.documents import show

__all__ = ["SYSTEM", "USER", "Unit", "installed", "known_unit", "running_as", "start", "stop"]

_LIMIT: Final = 90.0
_UNIT: Final = re.compile(r"(system|user) (penstock[A-Za-z0-9@_.-]{0,60}\.service) (enabled|disabled)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of the `system` or of a `user`'s manager; `enabled`: it starts by itself."""

    manager: str
    name: str
    enabled: bool = False

    def __str__(self) -> str:
        return f"{self.manager} {self.name} {'enabled' if self.enabled else 'disabled'}"

    @classmethod
    def read(cls, text: str) -> Unit:
        """What `str` gave. Raises ValueError; for what is no unit of Penstock's, too, as root will start it."""
        found = _UNIT.fullmatch(text)
        if found is None:
            raise ValueError(f"not a unit of Penstock: {show(text)}")
        return cls(found[1], found[2], found[3] == "enabled")

    def command(self, *words: str) -> list[str]:
        """systemctl's words for it."""
        return ["systemctl", *(["--user"] if self.manager == "user" else []), *words, self.name]

    @property
    def mine(self) -> bool:
        """Whether the caller may be expected to be allowed to stop it."""
        return (os.geteuid() == 0) is (self.manager == "system")


SYSTEM: Final = Unit("system", "penstock.service")
USER: Final = Unit("user", "penstock-user.service")


def known_unit(text: object) -> bool:
    """Whether this is a unit as `str` writes it."""
    try:
        Unit.read(str(text))
    except ValueError:
        return False
    return True


def running_as(pid: int, proc: Path = Path("/proc")) -> Unit | None:
    """The unit that a process of this host belongs to; None where it was started by hand."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        # "0::/system.slice/penstock.service", below "user@1000.service" for a user's
        parts = line.rpartition(":")[2].split("/")
        services = [part for part in parts if part.endswith(".service")]
        if not services or not known_unit(f"system {services[-1]} enabled"):
            continue
        user = any(part.startswith("user@") for part in parts)
        return _as_it_is(Unit("user" if user else "system", services[-1]))
    return None


def installed(unit: Unit) -> Unit | None:
    """The unit if it starts by itself, or runs; None where it does neither, or there is no systemd."""
    if not _there(unit):
        return None
    found = _as_it_is(unit)
    active = _asks(unit.command("is-active")) in ("active", "activating", "reloading")
    return found if found.enabled or active else None


def _as_it_is(unit: Unit) -> Unit:
    enabled = _there(unit) and _asks(unit.command("is-enabled")) == "enabled"
    return Unit(unit.manager, unit.name, enabled)


def _there(unit: Unit) -> bool:
    if shutil.which("systemctl") is None:
        return False
    if unit.manager == "system":
        return Path("/run/systemd/system").is_dir()
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return bool(folder) and Path(folder, "systemd").is_dir()


def _asks(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def stop(unit: Unit) -> str:
    """Stop it, and keep it from starting by itself; what went wrong, empty: nothing did."""
    return _does(unit, "disable", "--now")


def start(unit: Unit) -> str:
    """Start it, and let it start by itself if it did; what went wrong, empty: nothing did."""
    return _does(unit, *(("enable", "--now") if unit.enabled else ("start",)))


def _does(unit: Unit, *words: str) -> str:
    if not _there(unit):
        return "no systemd answers here"
    command = unit.command("--no-ask-password", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{' '.join(command)}: {e}"
    return "" if done.returncode == 0 else (done.stderr.strip() or f"systemctl ended with {done.returncode}")
