"""Listening at an address of the configuration, and what it means that this cannot be done."""

from __future__ import annotations

import errno
import socket
from typing import Final

from penstock.errors import ConfigError, NotNow

__all__ = ["bare", "cannot_listen"]

# asyncio (3.12) gives no number where none of a name's addresses is this host's. The resolver's are below zero.
_MAY_PASS: Final = (None, errno.EADDRINUSE, errno.EADDRNOTAVAIL, socket.EAI_AGAIN)


def bare(host: str) -> str:
    """The host of HOST:PORT as the resolver takes it: an IPv6 address without its brackets."""
    return host.removeprefix("[").removesuffix("]")


def cannot_listen(key: str, address: str, error: OSError | ValueError) -> ConfigError | NotNow:
    """The error for a key whose address cannot be listened at.

    Who has the port may let it go, and an interface or a name server may come up later; the rest will go on failing.
    """
    text = f"`{key}`: cannot listen at {address}: {getattr(error, 'strerror', None) or error}"
    return NotNow(text) if isinstance(error, OSError) and error.errno in _MAY_PASS else ConfigError(text)
