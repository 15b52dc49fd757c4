"""May a job stay on its nodes until an instant, as far as reservations and the nodes' maintenance go? Pure.

Slurm starts no job whose time limit reaches into a reservation of its nodes. Of a job that runs it does not look again:
a longer limit goes past the reservation's beginning without a word (run on 22.05.8, tests/behaviour). So the executor
looks before it gives a running job more time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from penstock.api import Job, Node, Reason, Reservation

__all__ = ["leaving", "reserved"]

_EVERY: Final[Mapping[str, float]] = {
    "HOURLY": 3600.0,
    "DAILY": 86400.0,
    # Each day, so that no calendar is needed: two days too many may stand in the way.
    "WEEKDAY": 86400.0,
    "WEEKEND": 86400.0,
    "WEEKLY": 7 * 86400.0,
}
_LEAVES: Final = ("DRAIN", "REBOOT", "MAINT", "DOWN", "FAIL")
"""Words of the states of nodes that an administrator, or Slurm, is about to take away."""


def reserved(
    reservations: Iterable[Reservation], job: Job, nodes: Collection[str], until: float, now: float
) -> Reason | None:
    """The reservation into which `job` would reach if it had these nodes until then (epoch s); None: there is none.

    One that the job runs in ends for it where it ends, unless jobs may outlast it (FLEX).
    """
    for one in reservations:
        if set(nodes).isdisjoint(one.nodes):
            continue
        flags = {flag.partition("=")[0] for flag in one.flags}
        if one.name == job.reservation:
            if until > one.end and "FLEX" not in flags:
                return Reason(
                    "reservation-end", f"the reservation {one.name}, in which it runs, ends at {_time(one.end)}"
                )
            continue
        length = one.end - one.start
        every = next((seconds for flag, seconds in _EVERY.items() if flag in flags), 0.0)
        start = one.start
        if every and start + length <= now:  # the next one that is not over
            start += every * ((now - start - length) // every + 1)
        if start < until and start + length > now:
            return Reason("reserved", f"the reservation {one.name} has its nodes from {_time(start)} on")
    return None


def leaving(nodes: Mapping[str, Node], names: Iterable[str]) -> Reason | None:
    """Which of these nodes is to be taken out of service, or cannot be looked at; None: none."""
    for name in names:
        node = nodes.get(name)
        if node is None:
            return Reason("limits-unknown", f"the state of node {name} is not known")
        if not node.usable or any(word in node.state for word in _LEAVES):
            return Reason("node-leaving", f"node {name} is {node.state}")
    return None


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
