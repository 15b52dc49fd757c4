"""Hardware counters of a command and all its processes: cycles and instructions in user space (perf_event_open(2)).

No program is needed beside the kernel, but its permission is: /proc/sys/kernel/perf_event_paranoid at 2 or below, and a
processor that lends its counters, which many virtual machines do not.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path
from typing import Final

__all__ = ["Counters", "Unavailable"]

_NUMBERS: Final = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241}
_HARDWARE: Final = 0
_EVENTS: Final = {"cycles": 0, "instructions": 1}
_SIZE: Final = 64  # of the first version of struct perf_event_attr
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6


class Unavailable(Exception):
    """Counters cannot be had; `str()` says why."""


class Counters:
    """Counts from when it is made, in this process and in those that it starts from then on, once they have ended.

    Raises `Unavailable`. To be closed.
    """

    def __init__(self) -> None:
        number = _NUMBERS.get(platform.machine())
        if number is None or platform.system() != "Linux":
            raise Unavailable(f"not known how to ask for them on {platform.system()} {platform.machine()}")
        self._files: dict[str, int] = {}
        libc = ctypes.CDLL(None, use_errno=True)
        for name, event in _EVENTS.items():
            flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HV
            attributes = struct.pack("=IIQQQQQ", _HARDWARE, _SIZE, event, 0, 0, 0, flags).ljust(_SIZE, b"\0")
            file = libc.syscall(number, ctypes.c_char_p(attributes), 0, -1, -1, 8)
            if file < 0:
                why = _why(ctypes.get_errno())
                self.close()
                raise Unavailable(why)
            self._files[name] = file

    def read(self) -> dict[str, int]:
        """What was counted so far, by name."""
        return {name: struct.unpack("=Q", os.read(file, 8))[0] for name, file in self._files.items()}

    def close(self) -> None:
        """Give the counters back."""
        while self._files:
            os.close(self._files.popitem()[1])


def _why(number: int) -> str:
    if number in (errno.EACCES, errno.EPERM):
        try:
            level = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
        except OSError:
            level = "not to be read"
        return f"not permitted (kernel.perf_event_paranoid is {level}; 2 or less would permit it)"
    if number in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine lends no hardware counters (virtual ones often do not)"
    return os.strerror(number)
