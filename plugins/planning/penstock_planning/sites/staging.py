"""Data from one site to another, by the command that the file of sites names; how long it took corrects later plans."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError, UserError
from penstock_planning.sites.file import SiteEntry

__all__ = ["size_of", "stage", "staging_command"]


def staging_command(template: Sequence[str], source: SiteEntry, target: SiteEntry, path: str) -> list[str]:
    """The words of the command, with what stands for {source}, {target} and {path} in them. UserError for others."""
    if not template:
        raise UserError("staging: is missing; a command such as [rsync, -a, '{source}{path}', '{target}{path}']")
    if path.startswith("-"):
        raise UserError(f"{path}: a path must not begin with -, which commands take for an option (./{path})")
    fields = {"source": source.data, "target": target.data, "path": path}
    try:
        return [word.format(**fields) for word in template]
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise UserError(f"staging: only {{source}}, {{target}} and {{path}} can stand in it: {error}") from None


def stage(words: Sequence[str], output: int | None = None) -> float:
    """Run it; the seconds that it took. PenstockError if it fails: it has said why on standard error.

    What it prints goes to the file descriptor `output`, or where ours goes.
    """
    began = time.monotonic()
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, check=False)
    except OSError as error:
        raise UserError(f"staging: {words[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise PenstockError(f"staging failed: {words[0]} ended with {done.returncode}")
    return time.monotonic() - began


def size_of(path: Path) -> float | None:
    """Bytes of a file, or of all files in a folder; None if it is not there."""
    if path.is_file():
        return float(path.stat().st_size)
    if not path.is_dir():
        return None
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            total += (Path(folder) / name).lstat().st_size
    return float(total)
