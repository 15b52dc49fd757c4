"""What one user who asks for all that is allowed costs the others: their pings, and how long the agent's passes take.

    python -m penstock_lab.bench.fairness            # as root, two minutes
    python -m penstock_lab.bench.fairness [--seconds 40] [--json]

An agent for all users as a process of its own over a simulated Slurm, with its real socket. User A asks it to guide
seven workflows of 1,000 stages, each stage after the 100 before it, with job numbers that Slurm has never heard of, and
goes on to ask as often as it is answered (the same again, `status`, `plan`). User B pings, each time over a connection
of its own. Told: B's pings before it and meanwhile, the agent's passes, the longest time for which the agent's loop
answered nobody (and the processor time it took meanwhile, which says the same on a machine that others use, too), and
how often accounting was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.mock import control
from penstock_lab.mock.model import ClusterConfig

ALICE, BOB = 65533, 65534
FLOWS, STAGES, PARENTS = 7, 1000, 100
UNSEEN: Final = 500_000_000
_fork = get_context("fork")


def flow(number: int, stages: int = STAGES) -> dict[str, Any]:
    """A request that has as many edges as stages can have parents."""
    first = UNSEEN + number * STAGES
    entries = [
        {"name": f"s{i}", "job": first + i, "after": [f"s{j}" for j in range(max(0, i - PARENTS), i)], "hold": True}
        for i in range(stages)
    ]
    return {"workflow": f"w{number}", "strategy": "asa", "stages": entries}


def as_user(uid: int, work: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """The work in a process of that user, and what it sends."""
    here, there = _fork.Pipe()

    def run() -> None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        work(there, *arguments)

    process = _fork.Process(target=run, daemon=True)
    process.start()
    return process, here


def ping(told: Connection, socket: Path, seconds: float) -> None:
    """So many seconds of pings, as many as are answered lastingly: how long each took (s)."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        ask(socket, "ping")
        took.append(time.perf_counter() - began)
        time.sleep(0.055)
    told.send(took)


def attack(told: Connection, socket: Path, seconds: float) -> None:
    """All that is taken, and then what is answered: how each kind of request was answered."""
    answers: dict[str, int] = {}

    def say(op: str, request: Mapping[str, Any] | None = None) -> bool:
        try:
            ask(socket, op, request)
            answer = "done"
        except PenstockError as e:
            answer = f"{type(e).__name__}: {str(e)[:60]}"
        answers[f"{op}: {answer}"] = answers.get(f"{op}: {answer}", 0) + 1
        return answer == "done"

    end = time.monotonic() + seconds
    for number in range(FLOWS):
        if not say("guide", flow(number)):  # smaller ones, until nothing more is taken
            size = STAGES
            while (size := size // 2) and time.monotonic() < end:
                say("guide", flow(number, size))
    number = FLOWS
    while time.monotonic() < end:
        for op, request in (("status", None), ("plan", flow(number)), ("guide", flow(number, 10))):
            say(op, request)
            time.sleep(0.005)
        number += 1
    told.send(answers)


def agent(config: Path, out: Path) -> None:
    """The agent, whose passes, look-ups and the gaps between turns of its event loop are written down at its end."""
    from penstock import app
    from penstock.config import load
    from penstock.core.loop import Loop
    from penstock.host import logs
    from penstock_lab.mock.client import MockClient

    passes: list[float] = []
    gaps: list[tuple[float, float]] = []
    asked: list[int] = []
    one_pass, history = Loop.one_pass, MockClient.history

    async def timed(self: Loop) -> None:
        began = time.perf_counter()
        await one_pass(self)
        passes.append(time.perf_counter() - began)

    async def counted(self: MockClient, **query: Any) -> Any:
        asked.append(len(query.get("ids", ())))
        return await history(self, **query)

    async def watch() -> None:
        while True:
            began, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            gaps.append((time.perf_counter() - began, time.thread_time() - worked))

    async def serve() -> None:
        watching = asyncio.ensure_future(watch())
        await app.serve(settings, config)
        watching.cancel()

    Loop.one_pass, MockClient.history = timed, counted  # type: ignore[method-assign]
    settings = load(config)
    logs.configure("warning", settings.log.format)
    asyncio.run(serve())
    out.write_text(json.dumps({"passes": passes, "gaps": gaps, "asked": asked}))


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else math.nan


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    cluster = control.start(folder / "slurm", ClusterConfig(nodes=4), kill_wait=0.3, timeout=60.0)
    config, out, socket = folder / "penstock.yaml", folder / "told.json", folder / "agent.sock"
    settings = {
        "agent": {"state_dir": str(folder / "state"), "socket": str(socket), "serve": "all", "interval": 1},
        "slurm": {"backend": "mock", "mock_socket": str(cluster.socket), "min_interval": 1},
        "dmr": {"listen": "127.0.0.1:0"},
    }
    config.write_text(yaml.safe_dump(settings))
    words = [sys.executable, __file__, "--agent", str(config), str(out)]
    with (folder / "agent.log").open("w") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        for _ in range(600):
            try:
                ask(socket, "ping")
                break
            except PenstockError:
                assert process.poll() is None, (folder / "agent.log").read_text()
                time.sleep(0.05)
        quiet = pinged(socket, 5.0)
        pinging, answers = as_user(BOB, ping, socket, seconds)
        attacking, said = as_user(ALICE, attack, socket, seconds)
        during = answers.recv()
        told = said.recv()
        for child in (pinging, attacking):
            child.join()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        cluster.stop()
    found = json.loads(out.read_text())
    return {
        "ping, quiet, p50": quantile(quiet, 0.5),
        "ping, quiet, p99": quantile(quiet, 0.99),
        "ping, attacked, p50": quantile(during, 0.5),
        "ping, attacked, p99": quantile(during, 0.99),
        "ping, attacked, longest": max(during),
        "pass, longest": max(found["passes"]),
        "pass, p50": quantile(found["passes"], 0.5),
        "loop, longest gap": max(wall for wall, _cpu in found["gaps"]),
        "loop, longest work": max(cpu for _wall, cpu in found["gaps"]),
        "passes": len(found["passes"]),
        "pings": len(during),
        "accounting asked": len(found["asked"]),
        "jobs asked for at once": max(found["asked"], default=0),
        "answers": told,
    }


def pinged(socket: Path, seconds: float) -> list[float]:
    process, answers = as_user(BOB, ping, socket, seconds)
    took: list[float] = answers.recv()
    process.join()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--agent", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        agent(*options.agent)
        return
    if os.geteuid() != 0:
        parser.error("must be root, to be two users")
    folder = Path(tempfile.mkdtemp(prefix="penstock-fair-"))
    folder.chmod(0o755)
    try:
        found = measure(folder, options.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if isinstance(value, float):
            print(f"{name:26} {1000 * value:8.1f} ms")
        elif isinstance(value, int):
            print(f"{name:26} {value:8d}")
    for answer, count in found["answers"].items():
        print(f"{count:6d} {answer}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
