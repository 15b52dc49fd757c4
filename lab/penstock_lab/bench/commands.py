"""What it costs to start a command, against the start of Python itself in the same run.

    python -m penstock_lab.bench.commands [--rounds 9] [--fronts]

Each round starts bare Python (`python -c pass`) and each command once, in turn, in an empty folder where an agent of a
few lines answers that there is nothing. Compared is processor time; printed are the median of the rounds, the least and
the greatest ratio of a round, and the peak of memory. What is imported is compiled before the first round, as pip and
Debian's packages do it.

`--fronts` compares elapsed time with raw Slurm's commands instead, on the Slurm of this shell, with the agent that
the configuration names: squeue and its front program, sbatch, its front program and `penstock sbatch`. It submits three
jobs a round, which end at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["main"]

BARE: Final = (sys.executable, "-c", "pass")
PENSTOCK: Final = (sys.executable, "-m", "penstock")
GOALS: Final[Mapping[str, float]] = {"status": 7.0, "waits": 8.0, "submit --help": 8.0, "--help": 7.0}
MOST_MB: Final = 25.0
NOTHING: Final[Mapping[str, Any]] = {
    "status": {"now": 0.0, "problems": [], "workflows": [], "malleable": [], "moldable": [], "jobs": []},
    "waits": {"outlook": None, "geometries": []},
}
JOB: Final = ("--wrap", "true", "-o", "/dev/null")


@dataclass(frozen=True, slots=True)
class Start:
    cpu: float
    seconds: float
    mb: float


def started(words: Sequence[str], environ: Mapping[str, str]) -> Start:
    """One run of a command, which has to end well."""
    began = time.perf_counter()
    nothing = os.posix_spawn(
        words[0],
        list(words),
        environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
    )
    _pid, status, used = os.wait4(nothing, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return Start(used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1024)


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[None]:
    """Answers at the socket of an agent with this state folder that there is nothing."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "agent.sock"))
        door.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _peer = door.accept()
                except OSError:
                    return
                with connection, connection.makefile("rwb") as stream:
                    op = json.loads(stream.readline())["op"]
                    stream.write(json.dumps({"ok": True, "result": NOTHING[op]}).encode() + b"\n")

        threading.Thread(target=serve, daemon=True).start()
        yield
        door.shutdown(socket.SHUT_RDWR)


def rounds(commands: Mapping[str, Sequence[str]], environ: Mapping[str, str], count: int) -> dict[str, list[Start]]:
    """So many runs of each, in turn, after one that is not counted."""
    found: dict[str, list[Start]] = {name: [] for name in commands}
    for i in range(count + 1):
        for name, words in commands.items():
            start = started(words, environ)
            if i:
                found[name].append(start)
    return found


def starts(count: int) -> bool:
    """Print the ratios; whether all goals are met."""
    with tempfile.TemporaryDirectory() as name, agent(Path(name)):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "PYTHON"))}
        environ = {**kept, "HOME": name, "PENSTOCK_AGENT__STATE_DIR": name, "PYTHONPYCACHEPREFIX": f"{name}/compiled"}
        found = rounds({"bare": BARE, **{command: (*PENSTOCK, *command.split()) for command in GOALS}}, environ, count)
    bare = found.pop("bare")
    print(f"bare Python: {1e3 * statistics.median(each.cpu for each in bare):.1f} ms of a core")
    good = True
    for command, each in found.items():
        ratio = statistics.median(one.cpu for one in each) / statistics.median(one.cpu for one in bare)
        ratios = [one.cpu / reference.cpu for one, reference in zip(each, bare, strict=True)]
        mb = max(one.mb for one in each)
        print(
            f"{command:<14} {ratio:.1f} times ({min(ratios):.1f} to {max(ratios):.1f}), goal: at most "
            f"{GOALS[command]:g}; peak {mb:.0f} MB"
        )
        good = good and ratio <= GOALS[command] and mb <= MOST_MB
    return good


def fronts(count: int) -> bool:
    """Print the differences from raw Slurm's commands; whether all goals are met."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    folder = subprocess.run([*PENSTOCK, "shim", "--path"], capture_output=True, text=True, check=True).stdout.strip()
    squeue, sbatch = (shutil.which(name) for name in ("squeue", "sbatch"))
    if squeue is None or sbatch is None:
        raise SystemExit("there is no Slurm here")
    # Apart: after each submission the agent would look at the queue anew.
    found = rounds({"squeue": (squeue,), "front squeue": (f"{folder}/squeue",)}, environ, count) | rounds(
        {
            "sbatch": (sbatch, *JOB),
            "front sbatch": (f"{folder}/sbatch", *JOB),
            "penstock sbatch": (*PENSTOCK, "sbatch", *JOB),
        },
        environ,
        count,
    )
    middle = {name: statistics.median(one.seconds for one in each) for name, each in found.items()}
    for name, each in found.items():
        span = sorted(1e3 * one.seconds for one in each)
        print(f"{name:<16} {1e3 * middle[name]:.1f} ms ({span[0]:.1f} to {span[-1]:.1f})")
    ratio = middle["front squeue"] / middle["squeue"]
    more = {name: 1e3 * (middle[name] - middle["sbatch"]) for name in ("front sbatch", "penstock sbatch")}
    print(f"front squeue: {ratio:.2f} times squeue, goal: at most 1.8")
    print(f"front sbatch: {more['front sbatch']:+.0f} ms, goal: at most +30 ms")
    print(f"penstock sbatch: {more['penstock sbatch']:+.0f} ms, goal: at most +50 ms")
    return ratio <= 1.8 and more["front sbatch"] <= 30 and more["penstock sbatch"] <= 50


def main() -> int:
    """1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--fronts", action="store_true", help="compare with raw Slurm's commands, on a Slurm")
    options = parser.parse_args()
    good = fronts(options.rounds) if options.fronts else starts(options.rounds)
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
