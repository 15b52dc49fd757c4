"""The base clock of this host's processors."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = ["base_clock"]

_SYSFS = Path("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency")
_NAMED = re.compile(r"^model name\s*:.*@\s*([0-9.]+)\s*GHz", re.MULTILINE)
_NOW = re.compile(r"^cpu MHz\s*:\s*([0-9.]+)", re.MULTILINE)


def base_clock() -> float | None:
    """Hz, from what the kernel or the processor's name says, else what it runs at now; None where nobody says."""
    with suppress(OSError, ValueError):
        return float(_SYSFS.read_text()) * 1e3
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if (named := _NAMED.search(text)) is not None:
            return float(named[1]) * 1e9
        if (now := _NOW.search(text)) is not None:
            return float(now[1]) * 1e6
    with suppress(OSError, NotImplementedError, AttributeError):
        found = psutil.cpu_freq()
        if found is not None and found.current:
            return float(found.current) * 1e6
    return None
