"""What a task costs: the scheduler of a pool beside bare `distributed` and HyperQueue, and how fast a client submits.

    python -m penstock_lab.bench.pool_cost [--tasks 100000] [--only pool --only client ...] [--json]

No Slurm and no root. A scheduler is a process of its own, as users start it; its members share another process, and
their tasks end as soon as they are started (`--seconds`: so much later), because a process for each would take far more
CPU than what is measured here. The link to the scheduler is the real one. What is told:

    pool         `--tasks` tasks of a pool, handed in by one client 1,000 at a time, at most `--open` of them unended
    jobs         the same tasks as jobs of the pool's, as sbatch makes them
    paced        the same for tasks that last about a second, a tenth as many: each end comes alone; and
                 in bare `distributed`
    client       calls of a PoolExecutor, and tasks over one connection, one a request
    distributed  the same tasks as calls of a function that does nothing, over the same TLS, and without
    hyperqueue   /bin/true by HyperQueue's server, without a journal; its members share its process but not its threads

Memory and log are told as they were at the start, and at most until a tenth, until half, and until the end. The pool
keeps `--keep` ended tasks, a tenth of all. Goals are in lab/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from penstock_pool import link
from penstock_pool.client import PoolLine
from penstock_pool.executor import Ended
from penstock_pool.folder import PoolFolder
from penstock_pool.futures import PoolExecutor
from penstock_pool.holding import HeldTasks, Terms
from penstock_pool.model import AttemptOutcome, Capacity, PoolTask
from penstock_pool.service import Service
from penstock_pool.terms import FIRST_JOB
from penstock_pool.upkeep import SHORT

PARTS: Final = ("pool", "jobs", "paced", "paced distributed", "client", "distributed", "hyperqueue")
GOAL_MS, GOAL_RATIO, GOAL_SUBMITTED = 0.3, 1.3, 1000.0
GOAL_GROWTH = 1.3  # of memory and log from the half to the end
BATCH: Final = 1000
MARKS: Final = (0.1, 0.5, 1.0)
TASK: Final = {"command": ["/bin/true"], "workdir": "/tmp", "time": 1}
JOB: Final = TASK | {"job": {"first": FIRST_JOB, "name": "bench", "script": "0" * 32, "environment": "0" * 32}}
ROLE: Final = "PENSTOCK_BENCH_ROLE"


# -- members whose tasks end by themselves -----------------------------------------------------------------------------


class _Nothing(HeldTasks):
    """Tasks of a member without a process."""

    def __init__(self, folder: PoolFolder, terms: Terms, scratch: Path, seconds: float) -> None:
        super().__init__(folder, terms, "stub", scratch, lambda: False)
        self._seconds = seconds

    def start(self, task: int, attempt: int, what: PoolTask) -> None:
        self._has[task, attempt] = None
        lasts = _lasts(task, self._seconds)
        self._loop.call_later(lasts, self._settle, Ended(task, attempt, AttemptOutcome.COMPLETE, 0, ""))


async def _members(folder: PoolFolder, count: int, cores: int, seconds: float, scratch: Path) -> None:
    link.prepare()
    address = folder.address()
    assert address is not None
    host = await link.knock(address.url, 10.0)
    stop, serving = asyncio.Event(), []
    for number in range(count):
        terms = Terms(Capacity(float(cores)), f"{number}", None, None, 60.0, 0)
        service = Service(folder, terms, f"n{number}", _Nothing(folder, terms, scratch, seconds), None, stop)
        serving.append(asyncio.create_task(service.serve(address.url, host, scratch)))
    await asyncio.gather(*serving)


# -- bare distributed --------------------------------------------------------------------------------------------------


async def _dask_scheduler(folder: PoolFolder, tls: bool, file: Path) -> None:
    from distributed import Scheduler

    security = link.security(folder) if tls else None
    async with Scheduler(protocol="tls" if tls else "tcp", host="127.0.0.1", port=0, security=security,
                         dashboard=False, dashboard_address=link.NO_DOOR) as scheduler:  # fmt: skip
        file.write_text(scheduler.address)
        await scheduler.finished()


async def _dask_workers(folder: PoolFolder, url: str, count: int, cores: int, scratch: Path) -> None:
    from distributed import Worker

    security = link.security(folder) if url.startswith("tls") else None
    workers = [
        Worker(url, nthreads=cores, security=security, memory_limit=0, local_directory=str(scratch),
               dashboard=False, dashboard_address=link.NO_DOOR)
        for _ in range(count)
    ]  # fmt: skip
    await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


def _do_nothing(_number: int) -> None:
    return None


def _lasts(number: int, seconds: float) -> float:
    """How long a task lasts: half to one and a half times as long, apart from each other."""
    return seconds * (0.5 + number * 0.618 % 1)


def _sleep(number: int, seconds: float) -> None:
    time.sleep(_lasts(number, seconds))


# -- processes ---------------------------------------------------------------------------------------------------------


class Place:
    """A folder of this run, with what is started in it: all gone after `down`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp"))
        self.folder = PoolFolder("main", self.path / "pools" / "main")
        self.folder.make()
        self.environment = {**os.environ, "PENSTOCK_POOL__FOLDER": str(self.path / "pools"), **settings}
        self._begun: list[subprocess.Popen[bytes]] = []

    def begin(self, words: list[str]) -> psutil.Process:
        with (self.path / "processes.log").open("ab") as log:
            begun = subprocess.Popen(words, env=self.environment, cwd=self.path, stdout=log, stderr=log)
        self._begun.append(begun)
        return psutil.Process(begun.pid)

    def role(self, name: str, **more: object) -> psutil.Process:
        """This module in a process of its own, as something else."""
        self.environment[ROLE] = json.dumps(
            {"role": name, "folder": str(self.folder.path), "scratch": str(self.path), **more}
        )
        return self.begin([sys.executable, "-m", "penstock_lab.bench.pool_cost"])

    def until(self, probe: Callable[[], Any], limit: float = 120.0) -> Any:
        end = time.monotonic() + limit
        while not (found := probe()):
            if time.monotonic() > end or any(one.poll() is not None for one in self._begun):
                raise SystemExit((self.path / "processes.log").read_text()[-4000:] or "it took too long")
            time.sleep(0.05)
        return found

    def end(self) -> None:
        """End what was begun."""
        for begun in reversed(self._begun):
            begun.terminate()
            try:
                begun.wait(30)
            except subprocess.TimeoutExpired:
                begun.kill()
                begun.wait()
        self._begun.clear()

    def down(self) -> None:
        self.end()
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def _place(**settings: str) -> Iterator[Place]:
    place = Place(settings)
    try:
        yield place
    finally:
        place.down()


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Watch:
    """The CPU time (s) of a scheduler's process, and its memory and log (MB) at most until some moments."""

    def __init__(self, process: psutil.Process, log: Path | None) -> None:
        self._process = process
        self._log = log
        self.began, self._cpu = time.monotonic(), _used(process)
        self.marks: dict[str, dict[str, float]] = {}
        self._most: dict[str, float] = {}
        self.look()
        self.mark(0.0)

    def look(self) -> None:
        self._most["memory_mb"] = max(self._most.get("memory_mb", 0.0), self._process.memory_info().rss / 1e6)
        if self._log is not None and self._log.exists():
            self._most["log_mb"] = max(self._most.get("log_mb", 0.0), self._log.stat().st_size / 1e6)

    def mark(self, share: float) -> None:
        self.look()
        self.marks[f"{share:.0%}"], self._most = self._most, {}

    def row(self, tasks: int) -> dict[str, Any]:
        cpu, wall = _used(self._process) - self._cpu, time.monotonic() - self.began
        return {"tasks": tasks, "seconds": wall, "ms_per_task": 1000 * cpu / tasks, "marks": self.marks}


# -- parts -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _pool(options: argparse.Namespace, seconds: float) -> Iterator[tuple[Place, psutil.Process]]:
    with _place(PENSTOCK_POOL__KEEP_TASKS=str(options.keep or options.tasks // 10)) as place:
        words = [sys.executable, "-m", "penstock", "pool", "start"]
        profiled = [] if options.profile is None else ["-m", "cProfile", "-o", str(options.profile.resolve())]
        scheduler = place.begin([words[0], *profiled, *words[1:]])
        place.until(place.folder.address)
        place.role("members", count=options.members, cores=options.cores, seconds=seconds)
        place.until(lambda: len(asyncio.run(_asked(place, "status"))["members"]) == options.members)
        yield place, scheduler


async def _asked(place: Place, what: str, **body: object) -> Any:
    async with PoolLine(place.folder, 30.0) as line:
        return await line.ask(what, body)


def in_pool(options: argparse.Namespace, tasks: int, seconds: float, task: Mapping[str, Any] = TASK) -> dict[str, Any]:
    with _pool(options, seconds) as (place, scheduler):
        watch = Watch(scheduler, place.folder.journal)

        async def feed() -> None:
            given = done = 0
            marks = list(MARKS)
            async with PoolLine(place.folder) as line, PoolLine(place.folder) as other:
                seen = await line.ask("ends", {"from": None, "life": "", "seconds": 0})
                while done < tasks:
                    while given < tasks and given - done <= options.open - BATCH:
                        count = min(BATCH, tasks - given)
                        await other.ask("submit", {"tasks": [task] * count})
                        given += count
                    seen = await line.ask("ends", {"from": seen["next"], "life": seen["life"], "seconds": 10})
                    done += len(seen["tasks"])
                    watch.look()
                    while marks and done >= marks[0] * tasks:
                        watch.mark(marks.pop(0))

        asyncio.run(feed())
        row = watch.row(tasks)
        asyncio.run(_asked(place, "stop"))
        scheduler.wait(60)
        return row


def by_client(options: argparse.Namespace, calls: int) -> dict[str, Any]:
    """How many a second a client submits: until the scheduler has them."""
    with _pool(options, 0.0) as (place, _scheduler):
        os.environ["PENSTOCK_POOL__FOLDER"] = place.environment["PENSTOCK_POOL__FOLDER"]

        async def there(count: int) -> None:
            async with PoolLine(place.folder) as line:
                while sum((await line.ask("status", {}))["tasks"].values()) < count:
                    await asyncio.sleep(0.02)

        with PoolExecutor("main") as pool:
            began, used = time.monotonic(), time.process_time()
            futures = [pool.submit(_do_nothing, number) for number in range(calls)]
            given = time.monotonic() - began
            asyncio.run(there(calls))
            taken = time.monotonic() - began
            for future in futures:
                future.exception()  # its member has run nothing, so it has no result
            ended = time.monotonic() - began
            used = time.process_time() - used

        async def singly(count: int) -> float:
            async with PoolLine(place.folder) as line:
                began = time.monotonic()
                for _ in range(count):
                    await line.ask("submit", {"tasks": [TASK]})
                return time.monotonic() - began

        single = max(calls // 10, 100)
        alone = asyncio.run(singly(single))
        return {
            "calls": calls,
            "submitted_per_s": calls / taken,
            "submit_returns_per_s": calls / given,
            "ended_per_s": calls / ended,
            "ms_of_client_per_call": 1000 * used / calls,
            "one_a_request_per_s": single / alone,
        }


def in_distributed(options: argparse.Namespace, tasks: int, tls: bool, seconds: float = 0.0) -> dict[str, Any]:
    import dask.config
    from distributed import Client, wait

    # What our own client has set for this process would refuse a connection without TLS.
    with dask.config.set({"distributed.comm.require-encryption": None}), _place() as place:
        file = place.path / "address"
        scheduler = place.role("dask scheduler", tls=tls, file=str(file))
        url = place.until(lambda: file.exists() and file.read_text())
        place.role("dask workers", url=url, count=options.members, cores=options.cores)
        security = link.security(place.folder) if tls else None
        with Client(url, security=security) as client:
            client.wait_for_workers(options.members, timeout=60)
            watch = Watch(scheduler, None)
            open_, given = [], 0
            marks = list(MARKS)
            while given < tasks:
                count = min(BATCH, tasks - given)
                task = partial(_sleep, seconds=seconds) if seconds else _do_nothing
                open_.append(client.map(task, range(given, given + count), pure=False))
                given += count
                while len(open_) * BATCH > options.open - BATCH:
                    wait(open_.pop(0))
                while marks and given >= marks[0] * tasks:
                    watch.mark(marks.pop(0))
            while open_:
                wait(open_.pop(0))
            return watch.row(tasks)


def in_hyperqueue(options: argparse.Namespace, tasks: int) -> dict[str, Any]:
    try:
        import hyperqueue  # noqa: F401
    except ImportError as error:  # it does not name all that it needs
        missing = f"{error.name} is not installed" if error.name else str(error)
        return {"skipped": f"{missing}: pip install hyperqueue==0.27.0 tqdm"}
    with _place() as place:
        file = place.path / "told.json"
        process = place.role("hyperqueue", tasks=tasks, count=options.members, cores=options.cores, file=str(file))
        found: dict[str, Any] = json.loads(place.until(lambda: file.exists() and file.read_text(), 3600.0))
        process.wait(60)
        return found


def _threads() -> dict[int, float]:
    """CPU time (s) by thread of this process."""
    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}


def _hyperqueue(tasks: int, count: int, cores: int, file: Path) -> None:
    from hyperqueue import Job
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    before = set(_threads())
    with LocalCluster() as cluster:
        time.sleep(1.0)
        server = set(_threads()) - before  # what comes later is of members and of the client
        for _ in range(count):
            cluster.start_worker(WorkerConfig(cores=cores))
        client = cluster.client()
        used = _threads()
        began, watch = time.monotonic(), Watch(psutil.Process(), None)
        given = 0
        while given < tasks:
            job = Job()
            for _ in range(min(BATCH * 5, tasks - given)):
                job.program(["/bin/true"], stdout=None, stderr=None)
                given += 1
            client.wait_for_jobs([client.submit(job)])
            watch.mark(given / tasks)
        after = _threads()
        row = {
            "tasks": tasks,
            "seconds": time.monotonic() - began,
            "ms_per_task": 1000 * sum(after[one] - used.get(one, 0.0) for one in server if one in after) / tasks,
        }
        file.with_suffix(".new").write_text(json.dumps(row))
        file.with_suffix(".new").replace(file)


# -- the whole ---------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    tenth = max(options.tasks // 10, 1)
    parts: dict[str, Callable[[], dict[str, dict[str, Any]]]] = {
        "pool": lambda: {"pool": in_pool(options, options.tasks, options.seconds)},
        "jobs": lambda: {"pool, jobs": in_pool(options, options.tasks // 5, options.seconds, JOB)},
        "paced": lambda: {"pool, tasks of a second": in_pool(options, tenth, 1.0)},
        "paced distributed": lambda: {
            "bare distributed, tasks of a second": in_distributed(options, tenth, tls=False, seconds=1.0)
        },
        "client": lambda: {"client": by_client(options, tenth)},
        "distributed": lambda: {
            "bare distributed, TLS": in_distributed(options, options.tasks, tls=True),
            "bare distributed": in_distributed(options, options.tasks, tls=False),
        },
        "hyperqueue": lambda: {"HyperQueue": in_hyperqueue(options, tenth)},
    }
    for part in options.only or PARTS:
        rows |= parts[part]()
    return rows


def verdicts(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Which goals were reached, of those that were measured."""
    found = {}
    pool, bare = rows.get("pool"), rows.get("bare distributed")
    if pool is not None:
        most = max(GOAL_MS, GOAL_RATIO * bare["ms_per_task"]) if bare is not None else GOAL_MS
        found[f"at most {most:.2f} ms a task"] = pool["ms_per_task"] <= most
        half, end = pool["marks"]["50%"], pool["marks"]["100%"]
        found["memory flat"] = end["memory_mb"] <= GOAL_GROWTH * half["memory_mb"]
        # A log that is shorter is not made shorter: with few tasks it is still growing up to there.
        found["log flat"] = end["log_mb"] <= GOAL_GROWTH * max(half["log_mb"], SHORT / 1e6)
    if "client" in rows:
        found[f"at least {GOAL_SUBMITTED:.0f} submissions a second"] = (
            rows["client"]["submitted_per_s"] >= GOAL_SUBMITTED
        )
    return found


def _show(rows: Mapping[str, Mapping[str, Any]], reached: Mapping[str, bool]) -> None:
    console = Console(width=120)
    table = Table("scheduler", "tasks", "seconds", "CPU ms a task", "memory MB 0/10/50/100 %", "log MB", box=None)
    for name, row in rows.items():
        if "ms_per_task" not in row:
            continue
        marks = row.get("marks", {}).values()
        memory = "/".join(f"{mark['memory_mb']:.0f}" for mark in marks)
        log = "/".join(f"{mark['log_mb']:.1f}" for mark in marks if "log_mb" in mark)
        table.add_row(name, f"{row['tasks']:,}", f"{row['seconds']:.1f}", f"{row['ms_per_task']:.3f}", memory, log)
    console.print(table)
    for name, row in rows.items():
        if "skipped" in row:
            console.print(f"{name}: left out: {row['skipped']}")
    if (client := rows.get("client")) is not None:
        console.print(
            f"a client submits {client['submitted_per_s']:,.0f} calls a second ({client['calls']:,} of a PoolExecutor, "
            f"until the scheduler has them), with {client['ms_of_client_per_call']:.2f} ms of its own CPU for each and "
            f"its result; {client['one_a_request_per_s']:,.0f} tasks a second one a request"
        )
    missed = [name for name, good in reached.items() if not good]
    console.print(f"load {os.getloadavg()[0]:.1f}; goals missed: {', '.join(missed) or 'none'}")


def _play(said: Mapping[str, Any]) -> None:
    folder, scratch = PoolFolder("main", Path(said["folder"])), Path(said["scratch"])
    match said["role"]:
        case "members":
            asyncio.run(_members(folder, said["count"], said["cores"], said["seconds"], scratch))
        case "dask scheduler":
            asyncio.run(_dask_scheduler(folder, said["tls"], Path(said["file"])))
        case "dask workers":
            asyncio.run(_dask_workers(folder, said["url"], said["count"], said["cores"], scratch))
        case "hyperqueue":
            _hyperqueue(said["tasks"], said["count"], said["cores"], Path(said["file"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--cores", type=int, default=25, help="of each member")
    parser.add_argument("--seconds", type=float, default=0.0, help="that a task of part `pool` lasts")
    parser.add_argument("--open", type=int, default=10_000, help="tasks that have not ended at any time")
    parser.add_argument("--keep", type=int, help="ended tasks that the pool keeps (a tenth of all)")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    parser.add_argument("--profile", type=Path, help="run the pool's scheduler under cProfile, and write this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options)
    reached = verdicts(rows)
    if options.json:
        print(json.dumps({"rows": rows, "goals": reached, "load": os.getloadavg()[0]}, indent=2))
    else:
        _show(rows, reached)
    sys.exit(not all(reached.values()))


if __name__ == "__main__":
    if ROLE in os.environ:
        _play(json.loads(os.environ[ROLE]))
    else:
        main()
