"""Listening at an address of the configuration, and what it means that this cannot be done."""

from __future__ import annotations

from penstock.errors import ConfigError

__all__ = ["bare", "cannot_listen"]


def bare(host: str) -> str:
    """The host of HOST:PORT as the resolver takes it: an IPv6 address without its brackets."""
    return host.removeprefix("[").removesuffix("]")


def cannot_listen(key: str, address: str, error: OSError | ValueError) -> ConfigError:
    """The error for a key whose address cannot be listened at."""
    return ConfigError(f"`{key}`: cannot listen at {address}: {getattr(error, 'strerror', None) or error}")
