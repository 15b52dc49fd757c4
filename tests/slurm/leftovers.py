"""What a killed `penstock cluster` command leaves behind for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import NotNow

Given = TypeVar("Given")


def once_free(act: Callable[[], Given], limit: float = 30.0) -> Given:
    """What `act` gives once nobody holds the folder: a child that the killed one had just begun to start may still."""
    deadline = time.monotonic() + limit
    while True:
        try:
            return act()
        except NotNow:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
