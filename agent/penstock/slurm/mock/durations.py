"""How long a script takes in virtual time, read from the script: a simulation has to know what will happen."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.api import JobSpec

__all__ = ["Duration", "from_script"]

# Seconds of run time and the exit code; the engine asks once, when the job starts.
Duration = Callable[[JobSpec], tuple[float, int]]

_DIRECTIVE = re.compile(r"^#MOCK\s+(.*)$", re.MULTILINE)
_SLEEP = re.compile(r"^\s*(?:exec\s+)?sleep\s+([0-9.]+)\s*$", re.MULTILINE)
_EXIT = re.compile(r"^\s*exit\s+(\d+)\s*$", re.MULTILINE)


def from_script(spec: JobSpec) -> tuple[float, int]:
    """`#MOCK duration=SECONDS exit=CODE` if the script has it, else the sum of its `sleep N` lines, else one second.

    The exit code is the directive's, else that of the script's last line of the form `exit N`, else 0.
    """
    settings = dict(
        pair.split("=", 1) for line in _DIRECTIVE.findall(spec.script) for pair in line.split() if "=" in pair
    )
    sleeps = _SLEEP.findall(spec.script)
    exits = _EXIT.findall(spec.script)
    seconds = float(settings.get("duration", sum(map(float, sleeps)) if sleeps else 1.0))
    return seconds, int(settings.get("exit", exits[-1] if exits else 0))
