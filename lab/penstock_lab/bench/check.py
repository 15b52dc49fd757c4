"""What a malleable program pays where nothing happens: a call inside the inhibitor, and a step of `dmr.App`.

    python -m penstock_lab.bench.check [--calls 200000] [--rounds 15] [--json]

Beside each stands what the same loop costs without it, measured in turn in the same run. Times are those of one call
on the processor (the machine may be shared), medians over the rounds. The program runs on one process; inside the
inhibitor no message is sent on any number of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable

import dmr
from dmr.api import the_session


def nothing() -> None:
    pass


def calls(function: Callable[..., object], arguments: tuple[object, ...], n: int) -> float:
    began = time.thread_time()
    for _ in range(n):
        function(*arguments)
    return (time.thread_time() - began) / n


def steps(iterator: Callable[[int], object], n: int) -> float:
    began = time.thread_time()
    for _ in iterator(n):  # type: ignore[attr-defined]
        pass
    return (time.thread_time() - began) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    from mpi4py import MPI

    os.environ.pop("DMR_AGENT", None)
    session, comm = the_session(), MPI.COMM_WORLD
    wanted = (comm, 1, 32, 2, 8)
    dmr.dmr_check_status(*wanted)  # the first call finds that there is no agent

    def app_steps(n: int) -> object:
        app = dmr.App(1, 32, 2, 8)
        return app.steps(n)

    rounds: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        session.skip = 10 * options.calls  # as after a real check with a long inhibitor
        for name, seconds in (
            ("a function that does nothing", calls(nothing, (), options.calls)),
            ("dmr_check_status, inhibited", calls(dmr.dmr_check_status, wanted, options.calls)),
            ("dmr_icheck_status, inhibited", calls(dmr.dmr_icheck_status, wanted, options.calls)),
            ("for step in range(n)", steps(range, options.calls)),
            ("for step in app.steps(n), inhibited", steps(app_steps, options.calls)),
        ):
            rounds.setdefault(name, []).append(seconds)
    session.skip = math.inf
    rounds["for step in app.steps(n), no agent"] = [steps(app_steps, options.calls) for _ in range(options.rounds)]

    medians = {name: statistics.median(found) * 1e9 for name, found in rounds.items()}
    reached = all(ns < 1000 for name, ns in medians.items() if "dmr" in name or "app" in name)
    if options.json:
        print(json.dumps({"nanoseconds": medians, "goal": {"below_ns": 1000, "reached": reached}}))
        return
    for name, ns in medians.items():
        print(f"{name:40s} {ns:8.0f} ns   (min {min(rounds[name]) * 1e9:.0f}, max {max(rounds[name]) * 1e9:.0f})")
    print(f"goal: below 1000 ns: {'reached' if reached else 'missed'}")


if __name__ == "__main__":
    main()
