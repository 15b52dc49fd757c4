"""Loads what `compiling` made, once, at import."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from penstock.kernel.compiling import BUILT

__all__ = ["KERNEL", "OFF", "WHY_NOT"]

_ABI: Final = 2
OFF: Final = "PENSTOCK_KERNEL"
"""Set to "python" in the environment, the reference serves."""


def _load(path: Path) -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get(OFF) == "python":
        return None, f"{OFF}=python is in the environment"
    if not path.exists():
        return None, "Penstock was installed without it: there was no C compiler"
    try:
        library = ctypes.CDLL(str(path))
        library.kernel_abi.restype = ctypes.c_int64
        if (abi := library.kernel_abi()) != _ABI:
            return None, f"{path} is of another release ({abi}, not {_ABI})"
    except (OSError, AttributeError) as e:
        return None, f"{path} cannot be loaded: {e}"
    return library, ""


KERNEL, WHY_NOT = _load(Path(__file__).with_name(BUILT))
"""The library, or None and why the reference serves instead."""
