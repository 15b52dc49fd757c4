"""The checks of who can reach the agent, and who should not: its socket, its metrics. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from penstock.admin.doctor.facts import SiteFacts
from penstock.core.findings import Finding, failed, fine, note

__all__ = ["check_reach"]


def check_reach(facts: SiteFacts) -> Iterator[Finding]:
    """One finding per check."""
    yield _socket(facts)
    yield _metrics(facts)


def _socket(facts: SiteFacts) -> Finding:
    path = facts.config.socket_path
    if facts.config.agent.serve != "all":
        return fine("socket", f"{path}, for this user's commands alone")
    if not facts.closed_folder:
        return fine("socket", f"{path}, which all users can reach")
    return failed(
        "socket",
        f"`agent.serve: all`, but other users cannot enter {facts.closed_folder}: their commands do not reach {path}",
        f"chmod a+x {facts.closed_folder}, or set `agent.socket` to a path that all can enter, such as "
        "/run/penstock/agent.sock",
    )


def _metrics(facts: SiteFacts) -> Finding:
    listen = facts.config.metrics.listen
    if listen is None:
        return fine("metrics", "not served (`metrics.listen`)")
    host, _, port = listen.rpartition(":")
    try:
        everywhere = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        everywhere = not host
    if everywhere:
        return note(
            "metrics",
            f"`metrics.listen: {listen}` is on all networks of this host: whoever reaches it reads how many jobs and "
            "nodes there are, and what the agent does",
            f"set `metrics.listen: 127.0.0.1:{port}` or the address that Prometheus asks, and let a firewall admit "
            "Prometheus alone",
        )
    return fine("metrics", f"served at {listen}")
