"""Programs of other projects that tests need, and what happens where they are missing."""

from __future__ import annotations

import os
import shutil

import pytest


def need_program(name: str, package: str) -> str:
    """The program's path; skips the test where it is missing, and fails it in CI."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        reason = f"no {name} here (Debian: apt-get install --no-install-recommends {package})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
