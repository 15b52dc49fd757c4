"""At which name others find the agent."""

from __future__ import annotations

import socket

from penstock.config import Config
from penstock.host.listening import bare

__all__ = ["advertised_host", "name_for", "other_addresses"]


def advertised_host(config: Config) -> str:
    """The name at which applications are told to find the agent."""
    return config.dmr.advertise or name_for(config.dmr.listen.rpartition(":")[0], config)


def other_addresses(config: Config, port: int) -> str:
    """Where applications are told to look when the agent is not there: HOST:PORT with commas between them."""
    own = advertised_host(config)
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in config.dmr.hosts if host != own)


def name_for(host: str, config: Config) -> str:
    """By which name others reach what listens at `host` here."""
    everywhere = bare(host) in ("0.0.0.0", "", "::")  # noqa: S104
    return (config.dmr.advertise or socket.gethostname()) if everywhere else host
