"""What "no action" costs: many applications that check over TCP, against the agent's own door and loop.

    python -m penstock_lab.bench.checks [--applications 1000] [--every 5] [--seconds 30] [--credential munge|key]

The agent (a process of its own: door, verifier, controller, store on disk, loop over the simulated Slurm) serves
`--applications` running jobs. The applications (another process) keep a connection each and check every `--every`
seconds, at random moments, telling how many steps are left, as `dmr.Client` does it. Printed: the time from sending a
signed line to having its reply, and the CPU time of the agent's process. `key` signs with the agent's key file; `munge`
asks the munged of this host or of `--munge-socket`, and is what production has. Beside it, in the same run, the same
lines are sent to a server that only echoes: what the machine and asyncio take alone.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from dmr import credential, wire
from penstock.api import JobSpec, Step
from penstock.app import App
from penstock.config import config_of
from penstock.ipc import server
from penstock.state.store import Store
from penstock.workflow.part import WorkflowPart
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig

WARM = 15.0
# The door closes a connection whose first line does not come within ten seconds, and a burst of a thousand connections
# from one process, which signs for all of them, takes that long on a busy machine. A cluster's programs have started
# one after the other.
AT_ONCE = 50
GOALS = {"median ms": 2.0, "p99 ms": 10.0, "agent CPU %": 25.0}


class RealTime:
    """Real time for the simulated cluster, whose jobs do nothing."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def now(self) -> float:
        return time.time()

    def settle(self) -> None:
        self.engine.advance(time.time())
        self.engine.take_effects()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def granted(self, engine: Engine, job: int, patience: float) -> bool:
        return False

    def steps(self, job: int) -> Iterable[Step]:
        return ()


async def agent(options: argparse.Namespace, folder: Path) -> None:
    """Serve until standard input ends; one line of JSON says where, another what it cost."""
    # Standard output is for what is measured.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(30), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    count = options.applications
    # A cluster's programs come from many hosts, each of which may have so many; these all come from this one.
    server._MAX_PER_ADDRESS = max(server._MAX_PER_ADDRESS, 2 * count)
    config = ClusterConfig(nodes=count)
    engine = Engine(config, time.time(), uid_of=lambda _user: os.geteuid())
    backend = virtual_cluster(config).__class__(engine, "me", RealTime(engine))
    for _ in range(count):
        await backend.submit(JobSpec("app", "#!/bin/sh\n#MOCK duration=100000\n", 1, 200_000.0))
    dmr = {"listen": "127.0.0.1:0", "munge_socket": options.munge_socket}
    settings = {"agent": {"state_dir": str(folder), "interval": 10, "idle_interval": 10}, "dmr": dmr}
    app = App(config_of(settings), backend, backend, Store(folder / "penstock.db"))
    await app.start()
    await app.open_doors()
    assert app.loop is not None
    running = asyncio.ensure_future(app.loop.run())
    jobs = [j.id for j in await backend.jobs()]
    port = int(app.part(WorkflowPart).controller.carrier.environment["DMR_AGENT"].rpartition(":")[2])
    print(json.dumps({"port": port, "jobs": jobs, "key": str(folder / "dmr.key")}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while (line := await reader.readline()).strip():
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(
            json.dumps({"cpu": used.ru_utime + used.ru_stime, "wall": time.time(), "word": line.decode()}), flush=True
        )
    app.loop.stop()
    await running
    await app.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The reference: the same sockets, nothing done."""
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()


class Application:
    """One application's rank 0."""

    def __init__(self, job: int, sign: Callable[[str], str], pool: ThreadPoolExecutor) -> None:
        self.job = job
        self._sign = sign
        self._pool = pool
        self.steps = random.randrange(10_000, 20_000)
        self.times: list[float] = []
        self.actions = 0

    async def connect(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    async def check(self) -> None:
        self.steps -= 7
        request = wire.Check(
            job=self.job,
            epoch=0,
            size=1,
            minimum=1,
            maximum=1,
            nodes=(),
            steps_left=self.steps,
            step_seconds=0.7 + random.random() / 100,
        )
        running = asyncio.get_running_loop()
        line = await running.run_in_executor(self._pool, lambda: wire.encode(wire.signed(request, self._sign)))
        began = time.perf_counter()
        self.writer.write(line)
        reply = await self.reader.readline()
        self.times.append(time.perf_counter() - began)
        if b'"op"' not in reply:  # not the echo
            answer = wire.decode_reply(reply)
            assert isinstance(answer, wire.CheckReply), answer
            self.actions += answer.action != "none"

    async def run(self, port: int, every: float, seconds: float, door: asyncio.Semaphore) -> None:
        async with door:
            await self.connect(port)
            await self.check()  # the first one registers the job
        self.times.clear()
        end = time.monotonic() + seconds
        await asyncio.sleep(random.random() * every)
        while time.monotonic() < end:
            began = time.monotonic()
            await self.check()
            await asyncio.sleep(max(0.0, every * random.uniform(0.9, 1.1) - (time.monotonic() - began)))
        self.writer.close()


def told(times: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=100)
    return 1000 * statistics.median(times), 1000 * cuts[98]


async def drive(options: argparse.Namespace) -> int:
    """Start the agent, let all applications check, and say what it took."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--agent", folder, "--applications", str(options.applications)]
        words += ["--munge-socket", options.munge_socket] if options.munge_socket else []
        child = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**22
        )
        told_to, told_by = child.stdin, child.stdout
        assert told_to is not None and told_by is not None

        async def used() -> tuple[float, float]:
            told_to.write(b"used\n")
            found = json.loads(await told_by.readline())
            return found["cpu"], found["wall"]

        where = json.loads(await told_by.readline())
        if options.credential == "munge":
            sign = functools.partial(credential.sign_munge, socket=options.munge_socket)
        else:
            sign = functools.partial(credential.sign_key, key=credential.load_key(where["key"]))
        echoing = await asyncio.start_server(echo, "127.0.0.1", 0, limit=wire.MAX_LINE)
        reference = echoing.sockets[0].getsockname()[1]
        print(f"{options.applications} applications, a check every {options.every:g} s each, {options.credential}")
        rows = []
        with ThreadPoolExecutor(8) as pool:
            for name, port in (("echo alone", reference), ("agent", where["port"])):
                applications = [Application(job, sign, pool) for job in where["jobs"]]
                # First the burst of connections and registrations, and a pass over them: not measured.
                warm, seconds = (WARM, options.seconds) if name == "agent" else (2.0, min(10.0, options.seconds))
                door = asyncio.Semaphore(AT_ONCE)
                tasks = [asyncio.ensure_future(a.run(port, options.every, warm + seconds, door)) for a in applications]
                await asyncio.sleep(warm)
                for each in applications:
                    each.times.clear()
                before = await used()
                await asyncio.gather(*tasks)
                after = await used()
                times = [t for each in applications for t in each.times]
                share = 100 * (after[0] - before[0]) / (after[1] - before[1])
                assert not any(each.actions for each in applications)
                rows.append((name, len(times), *told(times), share))
        told_to.write(b"\n")
        await child.wait()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| server | checks | median ms | p99 ms | agent CPU % of a core |\n|---|---|---|---|---|")
    for name, count, median, p99, share in rows:
        cpu = f"{share:.1f}" if name == "agent" else "-"
        print(f"| {name} | {count} | {median:.2f} | {p99:.1f} | {cpu} |")
    _, _, median, p99, share = rows[-1]
    found = dict(zip(GOALS, (median, p99, share), strict=True))
    for what, goal in GOALS.items():
        print(f"goal: {what} under {goal:g}: {'reached' if found[what] < goal else f'missed ({found[what]:.2f})'}")
    return int(any(found[what] >= goal for what, goal in GOALS.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=1000)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--credential", choices=["munge", "key"], default="key")
    parser.add_argument("--munge-socket")
    parser.add_argument("--agent", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        asyncio.run(agent(options, Path(options.agent)))
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
        sys.exit(asyncio.run(drive(options)))


if __name__ == "__main__":
    main()
