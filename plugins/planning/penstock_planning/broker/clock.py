"""The clocks of this host's processors, in Hz; None where nobody says."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = ["base_clock", "current_clock", "max_clock", "processor"]

_SYSFS = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_CPUINFO = Path("/proc/cpuinfo")
_NAMED = re.compile(r"^model name\s*:.*@\s*([0-9.]+)\s*GHz", re.MULTILINE)
_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_NOW = re.compile(r"^cpu MHz\s*:\s*([0-9.]+)", re.MULTILINE)


def base_clock() -> float | None:
    """What the kernel or the processor's name says, else what it runs at now."""
    named = _NAMED.search(_cpuinfo())
    return _kilohertz("base_frequency") or (float(named[1]) * 1e9 if named is not None else None) or current_clock()


def max_clock() -> float | None:
    """The highest clock."""
    return _kilohertz("cpuinfo_max_freq")


def current_clock() -> float | None:
    """The mean of all processors now."""
    now = [float(mhz) for mhz in _NOW.findall(_cpuinfo())]
    if now:
        return sum(now) / len(now) * 1e6
    with suppress(OSError, NotImplementedError, AttributeError):
        found = psutil.cpu_freq()
        if found is not None and found.current:
            return float(found.current) * 1e6
    return None


def processor() -> str:
    """Its name; empty where the kernel does not say."""
    model = _MODEL.search(_cpuinfo())
    return model[1].strip() if model is not None else ""


def _cpuinfo() -> str:
    with suppress(OSError):
        return _CPUINFO.read_text(encoding="utf-8", errors="replace")
    return ""


def _kilohertz(name: str) -> float | None:
    with suppress(OSError, ValueError):
        return float((_SYSFS / name).read_text()) * 1e3
    return None
