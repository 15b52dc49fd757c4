"""What a script has to do in virtual time, read from the script: a simulation has to know what will happen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from penstock.api import JobSpec
from penstock.errors import Infeasible
from penstock_lab.mock.speedup import Work
from penstock_planning.select.speedup import Amdahl, Downey, Speedup, SpeedupTable

__all__ = ["Duration", "from_script"]

Duration = Callable[[JobSpec], Work]
"""The engine asks once, when the job starts; `from_script` already when it is submitted."""

_DIRECTIVE = re.compile(r"^#MOCK\s+(.*)$", re.MULTILINE)
_SLEEP = re.compile(r"^\s*(?:exec\s+)?sleep\s+([0-9.]+)\s*$", re.MULTILINE)
_GUARD = re.compile(r"^#PENSTOCK-GUARD .*?^unset -f penstock_guard$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"^\s*exit\s+(\d{1,9})\s*$", re.MULTILINE | re.ASCII)


def from_script(spec: JobSpec) -> Work:
    """`#MOCK duration=SECONDS exit=CODE` if the script has it, else the sum of its `sleep N` lines, else one second.

    `#MOCK work=SECONDS` is a malleable job instead: so many seconds on one node, less on more nodes, by
    `serial=FRACTION` (Amdahl; 0 if none is named), `speedup=1:1,2:1.9,8:6.5` (a table) or `downey=A,SIGMA`.
    The exit code is the directive's, else that of the script's last line of the form `exit N`, else 0. A guard at the
    script's beginning is not part of its work (`guard.Guards` does what it does).
    `Infeasible` when a directive makes no sense; a line of the shell never is a reason to refuse a script.
    """
    settings = dict(
        pair.split("=", 1) for line in _DIRECTIVE.findall(spec.script) for pair in line.split() if "=" in pair
    )
    script = _GUARD.sub("", spec.script)
    sleeps = _SLEEP.findall(script)
    exits = _EXIT.findall(script)
    try:
        code = int(settings.get("exit", exits[-1] if exits else 0))
        if "work" in settings:
            return Work(float(settings["work"]), code, _speedup(settings))
        return Work(float(settings.get("duration", sum(map(_slept, sleeps)) if sleeps else 1.0)), code)
    except ValueError as e:
        raise Infeasible(f"job {spec.name!r}: #MOCK makes no sense: {e}") from None


def _slept(text: str) -> float:
    """How long `sleep TEXT` takes: no time at all where sleep itself refuses the number."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _speedup(settings: dict[str, str]) -> Speedup:
    if "speedup" in settings:
        pairs = (pair.partition(":") for pair in settings["speedup"].split(","))
        return SpeedupTable(tuple((int(nodes), _finite(speed)) for nodes, _, speed in pairs))
    if "downey" in settings:
        average, _, variance = settings["downey"].partition(",")
        return Downey(_finite(average), _finite(variance or "0"))
    return Amdahl(float(settings.get("serial", 0)))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no speed")
    return value
