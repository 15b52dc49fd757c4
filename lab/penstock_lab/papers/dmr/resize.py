"""What a resize costs on real Slurm, phase by phase, beside MPI and Slurm alone in the same run (DMR paper, figure 3).

A program with a gigabyte of data asks for one size after the other. An expansion is decided, granted, merged, told (at
the program's next check), then processes are spawned, data moves, and the rest until the agent hears of the end is its
commit; after a shrink the nodes still have to be returned. "Raw" are the same nodes through Slurm's commands, and the
same bytes through MPI's calls.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from penstock.api import Allocation, JobSpec
from penstock.errors import PenstockError
from penstock_lab.demo.sites import Site, slurm_site
from penstock_lab.papers.report import Goal

__all__ = ["Resize", "goals", "measure", "rows"]

SIZES: Final = (1, 2, 4, 8, 4, 2, 1)
BYTES: Final = 1_000_000_000
_STEP: Final = 0.05  # seconds between two checks of the program
_GROWING: Final = (("decide", "asked", "decided"), ("grant", "decided", "granted"), ("merge", "granted", "merged"))
_TOLD: Final = {"expand": ("tell", "merged", "accepted"), "shrink": ("tell", "decided", "accepted")}

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Resize:
    """From `old` to `new` nodes: medians in seconds, by phase, and `raw` by what was done. `rounds` were measured."""

    old: int
    new: int
    rounds: int
    phases: Mapping[str, float]
    raw: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """ "expand" or "shrink"."""
        return "expand" if self.new > self.old else "shrink"

    @property
    def total(self) -> float:
        """Seconds from the request to the end of it all."""
        return sum(self.phases.values())


def phases(kind: str, asked: float, marks: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each phase of one resize, from when the program asked and the agent's marks of it (epoch s)."""
    at = {"asked": asked, **marks}
    parts = [*(_GROWING if kind == "expand" else _GROWING[:1]), _TOLD[kind]]
    found = {name: at[end] - at[begin] for name, begin, end in parts}
    found |= {"spawn": at["app_spawn"], "move": at["app_move"]}
    found["commit"] = max(at["done"] - at["accepted"] - at["app_spawn"] - at["app_move"], 0.0)
    if kind == "shrink":
        found["return"] = at["released"] - at["done"]
    return found


async def measure(rounds: int, tell: Tell) -> list[Resize]:
    """Medians over so many rounds of all sizes. Raises PenstockError, also where no Slurm can be had."""
    pairs = list(pairwise(SIZES))
    async with slurm_site((1.0, 10.0, 60.0), policy="wide") as site:
        tell("Slurm's commands")
        slurm = await _raw_slurm(site, rounds)
        tell("MPI's calls")
        mpi = {pair: await _raw_mpi(site, *pair, rounds) for pair in pairs}
        tell("the program")
        found = await _program(site, rounds)
    return [
        Resize(*pair, len(found[pair]), _medians(found[pair]), {**_medians(slurm[pair]), **_medians(mpi[pair])})
        for pair in pairs
    ]


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


Measured = dict[tuple[int, int], list[Mapping[str, float]]]


async def _raw_slurm(site: Site, rounds: int) -> Measured:
    """A sleeping job gets the nodes and gives them back."""
    script = "#!/bin/bash\nsleep 3600\n"
    job = await site.own.submit(_spec(site, "raw-slurm", script, SIZES[0]))
    kept = await _until(lambda: _running(site, job), "the start of a job")
    held: list[tuple[str, ...]] = [kept]
    found: Measured = {pair: [] for pair in pairwise(SIZES)}
    for number in range(rounds):
        for old, new in pairwise(SIZES):
            began = time.perf_counter()
            if new > old:
                name = f"raw-{number}-{new}"
                resizer = await site.own.allocate(Allocation(name, new - old, 600.0, expands=job), 15.0)
                granted = time.perf_counter()
                await site.own.merge(resizer, job)
                took = time.perf_counter() - began
                found[old, new].append({"raw grant": granted - began, "raw merge": took - (granted - began)})
                held.append(await _until(partial(_running, site, job, new), "the merged nodes"))
            else:
                held.pop()
                await site.own.shrink(job, held[-1])
                found[old, new].append({"raw return": time.perf_counter() - began})
    await site.own.cancel(job)
    return found


async def _raw_mpi(site: Site, old: int, new: int, rounds: int) -> list[Mapping[str, float]]:
    """A job starts as many processes as are new, and moves the bytes from as many as were there to as many others."""
    out = site.folder / f"raw-{old}-{new}.out"
    mpiexec = [str(Path(sys.executable).parent / "mpiexec"), "-n"]
    start = [*mpiexec, str(new), "-ppn", "1", sys.executable, "-c", "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"]
    move = [*mpiexec, str(old + new), sys.executable, "-m", "penstock_lab.papers.dmr.raw_mpi", str(old), str(BYTES)]
    # More processes than cores: who waits must not keep a core from who works.
    script = f"""#!/bin/bash
export MPIR_CVAR_POLLS_BEFORE_YIELD=1
for round in $(seq {rounds}); do
    began=$(date +%s%N)
    {shlex.join(start)}
    echo '{{"spawn": '$(($(date +%s%N) - began))e-9'}}'
done
exec {shlex.join(move)} {rounds}
"""
    job = await site.own.submit(_spec(site, out.stem, script, max(old, new), output=out))
    await _until(lambda: _ended(site, job), f"the end of {out.stem}", 600.0)
    found = [json.loads(line) for line in _read(out).splitlines() if line.startswith("{")]
    spawns, moves = ([line[key] for line in found if key in line] for key in ("spawn", "move"))
    if not len(spawns) == len(moves) == rounds:
        raise PenstockError(f"MPI from {old} to {new} processes: {_read(out)[-500:]}")
    return [{"raw spawn": spawn, "raw move": move} for spawn, move in zip(spawns, moves, strict=True)]


async def _program(site: Site, rounds: int) -> Measured:
    """Flexible Sleep asks for the sizes; what the agent and itself noted."""
    out, notes = site.folder / "sleep.out", site.folder / "sleep.notes"
    command = [sys.executable, "-m", "dmr.launch", "-n", str(SIZES[0]), "-ppn", "1", sys.executable]
    command += ["-m", "dmr.examples.flexible_sleep", "--steps", "1000000", "--seconds", "0"]
    command += ["--step-seconds", str(_STEP), "--megabytes", str(BYTES // 1_000_000), "--report", str(notes)]
    command += ["--sizes", ",".join(str(size) for size in SIZES[1:] * rounds)]
    spec = _spec(site, "sleep", f"#!/bin/bash\nexec {shlex.join(command)}\n", SIZES[0], output=out)
    job = await site.own.submit(replace(spec, environment=await site.arena.ask("env")))
    await _until(lambda: _ended(site, job), "the end of the program", 120.0 + 90.0 * rounds)
    asked = [note["time"] for note in map(json.loads, _read(notes).splitlines()) if note["event"] == "asks"]
    done = [r for r in (await site.arena.ask("status"))["resizes"] if r["job"] == job and r["outcome"] == "completed"]
    done.sort(key=lambda r: r["marks"]["decided"])
    if not len(done) == len(asked) == (len(SIZES) - 1) * rounds:
        raise PenstockError(f"{len(done)} of {(len(SIZES) - 1) * rounds} resizes: {_read(out)[-500:]}")
    found: Measured = {pair: [] for pair in pairwise(SIZES)}
    for number, (at, resize) in enumerate(zip(asked, done, strict=True)):
        pair = list(pairwise(SIZES))[number % (len(SIZES) - 1)]
        found[pair].append(phases(resize["kind"], at, resize["marks"]))
    return found


def _spec(site: Site, name: str, script: str, nodes: int, output: Path = Path("/dev/null")) -> JobSpec:
    return JobSpec(name, script, nodes, 3600.0, workdir=str(site.folder), output=str(output))


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


async def _running(site: Site, job: int, nodes: int = 1) -> tuple[str, ...] | None:
    found = next((j.nodes for j in await site.own.jobs() if j.id == job and j.running), ())
    return found if len(found) >= nodes else None


async def _ended(site: Site, job: int) -> bool:
    return all(j.state.ended for j in await site.own.jobs() if j.id == job)


async def _until(look: Callable[[], Awaitable[Any]], what: str, seconds: float = 60.0) -> Any:  # noqa: ANN401
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := await look():
            return found
        await asyncio.sleep(0.2)
    raise PenstockError(f"waited {seconds:g} s in vain for {what}")


def rows(found: Sequence[Resize]) -> list[dict[str, Any]]:
    """As JSON-able rows; seconds."""
    return [{"old": r.old, "new": r.new, "rounds": r.rounds, **r.phases, "total": r.total, **r.raw} for r in found]


def goals(found: Sequence[Resize]) -> list[Goal]:
    """Slurm's part of an expansion over the raw commands', and the moving over one raw Alltoallv."""
    wanted = []
    for r in found:
        where = f"{r.old} to {r.new} nodes"
        if r.kind == "expand":
            given, raw = r.phases["grant"] + r.phases["merge"], r.raw["raw grant"] + r.raw["raw merge"]
            wanted.append(Goal(where, "granted and merged, over Slurm's commands alone", given / raw, 1.3))
            wanted.append(Goal(where, "granted and merged, s", given, 0.423))
        wanted.append(Goal(where, "moving 1 GB, over one Alltoallv", r.phases["move"] / r.raw["raw move"], 1.25))
    return wanted
