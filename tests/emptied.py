"""Leaves a real cluster as a test wants to find it."""

from __future__ import annotations

import time

from penstock_lab.cluster import Cluster

__all__ = ["empty"]


def empty(it: Cluster, limit: float = 60.0) -> None:
    """Cancel every job, remove every reservation, and wait until the nodes are idle again."""
    deadline = time.monotonic() + limit
    while it.run_as("root", ["squeue", "-h", "-o", "%i"]).stdout.strip():
        assert time.monotonic() < deadline, it.run_as("root", ["squeue"]).stdout
        it.run_as("root", ["scancel", "--partition=batch"])
        time.sleep(0.1)
    for line in it.run_as("root", ["scontrol", "-o", "show", "reservations"]).stdout.splitlines():
        if line.startswith("ReservationName="):  # "No reservations in the system"
            it.run_as("root", ["scontrol", "delete", line.split()[0]])
    at_rest = {"idle", "planned"}
    while not {s.lower() for s in it.run_as("root", ["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()} <= at_rest:
        assert time.monotonic() < deadline, it.run_as("root", ["sinfo", "-N", "-l"]).stdout
        time.sleep(0.1)
