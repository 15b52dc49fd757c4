"""`python -m dmr.probe`: what this MPI can do here, found by running it. For site staff, and for bug reports.

    python -m dmr.probe [--json] [--limit SECONDS] [--] [OPTIONS OF MPIEXEC | --srun OPTIONS OF SRUN]

Each check starts small programs under `dmr.launch` and has a time limit. Run it inside a Slurm job of two nodes to see
what works there; elsewhere all processes are on this machine. Nothing is changed, nothing is left.

    start     ranks come up and talk
    spawn     MPI_Comm_spawn, merging, leaving
    ports     the processes of two mpiexec join
    replace, merge, restart     one to two ranks and back, as `dmr.transition` does it

`replace` and `merge` join by ports, as they do in every program under the launcher. The exit code is 0 if one of the
last three works, 1 if not, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dmr import launch, line, quirks

__all__ = ["Check", "main", "probe"]

METHODS = ("merge", "replace", "restart")


@dataclass(frozen=True)
class Check:
    """One check: whether it works, how long it took in seconds, and what was seen if it does not."""

    name: str
    works: bool
    seconds: float
    remark: str = ""


def probe(options: Sequence[str], nodes: Sequence[str], limit: float) -> tuple[str, list[Check]]:
    """The library's name, and all checks. `nodes` are those of the job, or this machine's name."""
    first = _run("start", [["start"]], ["-n", "2", *options], limit)
    if not first.works:
        return "", [first]
    checks = [
        Check("start", True, first.seconds),
        _run("spawn", [["spawn"]], ["-n", "1", *options], limit),
    ]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        port = str(Path(folder) / "port")
        checks.append(_run("ports", [["accept", port], ["connect", port]], ["-n", "1", *options], limit))
    for method in METHODS:
        checks.append(_run(method, [["resize", method, ",".join(nodes)]], ["-n", "1", *options], limit))
    return first.remark, checks


def _run(name: str, parts: Sequence[Sequence[str]], options: Sequence[str], limit: float) -> Check:
    """Starts all parts at once; it works if the last one says so and all end well in time."""
    began = time.monotonic()
    environment = {k: v for k, v in os.environ.items() if k not in (line.ADDRESS, line.SECRET, line.TICKET)}
    environment["DMR_START_TIMEOUT"] = str(max(1.0, limit / 2))
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "dmr.launch", *options, sys.executable, "-m", "dmr.probe_parts", *part],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for part in parts
    ]
    said = trouble = ""
    try:
        for process in reversed(running):
            out, err = process.communicate(timeout=max(0.1, began + limit - time.monotonic()))
            said = said or out
            trouble = trouble or (err if process.returncode else "")
            if process.returncode and not trouble.strip():
                trouble = f"ended with code {process.returncode}"
    except subprocess.TimeoutExpired:
        trouble = f"not done within {limit:g} s"
    finally:
        for process in running:
            _end(process)
    seconds = round(time.monotonic() - began, 2)
    works = [text.removeprefix("works").strip() for text in said.splitlines() if text.startswith("works")]
    if works and not trouble:
        return Check(name, True, seconds, works[-1])
    return Check(name, False, seconds, _essence(trouble) or "it did not say that it works")


def _end(process: subprocess.Popen[str]) -> None:
    """SIGTERM, which the launcher passes on and waits for; after that, whatever is still there of its session."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _essence(text: str) -> str:
    """The first line that means something: libraries frame their errors, and Python shows the way to them."""
    lines = (text.strip(" -=*|\t") for text in text.splitlines() if not text.startswith(("  ", "Traceback")))
    return next((text for text in lines if any(c.isalpha() for c in text)), "")[:200]


def main() -> None:
    """Prints what works."""
    parser = argparse.ArgumentParser(prog="dmr.probe", description="What this MPI can do here, found by running it.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each check (60)")
    own, others = _parted(sys.argv[1:])
    options = parser.parse_args(own)
    if not 0 < options.limit < line.DAY:
        parser.error("--limit must be a positive number of seconds")
    nodes = launch.nodes(os.environ) if "SLURM_JOB_ID" in os.environ else ["localhost"]
    library, checks = probe(others, nodes, options.limit)
    working = [check.name for check in checks if check.works and check.name in METHODS]
    known = quirks.under_launcher(library) if library else ()
    if options.json:
        found = {"library": library, "nodes": nodes, "checks": [asdict(c) for c in checks]}
        print(json.dumps({**found, "methods": working, "table": list(known)}))
    else:
        print(f"{library or 'no MPI'}, on {', '.join(nodes[:2])}")
        for check in checks:
            print(f"  {check.name:8} {'works' if check.works else 'FAILS':6} {check.seconds:6.2f} s  {check.remark}")
        works, used = ", ".join(working) or "nothing", ", ".join(known) or "nothing"
        print(f"resizing works by: {works}; the library will use: {used}")
    sys.exit(0 if working else 1)


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments and mpiexec's, which begin at "--" or at the first that is not ours."""
    own: list[str] = []
    rest = list(arguments)
    while rest and rest[0] != "--":
        if rest[0] in ("--json", "-h", "--help") or rest[0].startswith("--limit="):
            own.append(rest.pop(0))
        elif rest[0] == "--limit":
            own += rest[:2]
            del rest[:2]
        else:
            break
    return own, rest[1:] if rest[:1] == ["--"] else rest


if __name__ == "__main__":
    main()
