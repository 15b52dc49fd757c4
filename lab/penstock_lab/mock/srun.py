"""The `srun` that jobs of the simulated Slurm find on their PATH: starts tasks of a step on "nodes", all on this host.

Runs as a plain script inside jobs: standard library only, nothing of penstock. It knows the options that MPICH's hydra
and Penstock use (-N, -n, -w/--nodelist, --jobid) and ignores others. Each task has SLURMD_NODENAME, by which the
simulation knows what to kill when the node leaves the job.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

# Options with a value in the next word; all other options stand alone or hold their value after "=".
_VALUED = {"-N", "-n", "-w", "-c", "-t", "-J", "-p", "-o", "-e", "-i", "-m", "--nodes", "--ntasks", "--nodelist"}
_VALUED |= {"--jobid", "--input", "--output", "--error", "--mpi", "--cpu-bind", "--ntasks-per-node", "--distribution"}
_LONG = {"-N": "--nodes", "-n": "--ntasks", "-w": "--nodelist"}


def expand(text: str) -> list[str]:
    """Host names of `n[1-3,7],x`."""
    names: list[str] = []
    for prefix, ranges, suffix in re.findall(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*),?", text):
        if not ranges:
            names += [prefix + suffix] if prefix + suffix else []
            continue
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            names += [f"{prefix}{i:0{len(low)}d}{suffix}" for i in range(int(low), int(high or low) + 1)]
    return names


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options and the command of the tasks."""
    options: dict[str, str] = {}
    index = 0
    while index < len(words) and words[index].startswith("-"):
        word, _, value = words[index].partition("=")
        if not value and word in _VALUED:
            index += 1
            value = words[index]
        elif not word.startswith("--") and len(word) > 2:
            word, value = word[:2], word[2:]
        options[_LONG.get(word, word)] = value
        index += 1
    return options, words[index:]


def new_step(folder: Path) -> int:
    """The next step's number; making a folder is atomic, so that two sruns do not get the same."""
    number = 0
    while True:
        try:
            (folder / str(number)).mkdir()
        except FileExistsError:
            number += 1
        else:
            return number


def main(words: list[str]) -> int:
    """Run the step; its exit code is the largest of its tasks'."""
    options, command = parse(words)
    job = options.get("--jobid") or os.environ.get("SLURM_JOB_ID", "")
    folder = Path(os.environ["PENSTOCK_MOCK_DIR"]) / "jobs" / job
    try:
        allocated = (folder / "nodes").read_text().split()
        mark = (folder / "mark").read_text()
    except OSError:
        print(f"srun: error: Unable to confirm allocation for job {job}: Invalid job id specified", file=sys.stderr)
        return 1
    nodes = expand(options["--nodelist"]) if "--nodelist" in options else allocated
    nodes = nodes[: int(options.get("--nodes", len(nodes)))]
    if not nodes or not set(nodes) <= set(allocated):
        print(f"srun: error: Requested nodes are not in the allocation of job {job}", file=sys.stderr)
        return 1
    tasks = int(options.get("--ntasks", len(nodes)))
    step = new_step(folder / "steps")
    children: list[subprocess.Popen[bytes]] = []
    for task in range(tasks):
        node = task * len(nodes) // tasks if tasks >= len(nodes) else task
        environment = os.environ | {
            "PENSTOCK_MOCK_RUN": mark,
            "SLURM_JOB_ID": job,
            "SLURM_JOBID": job,
            "SLURM_STEP_ID": str(step),
            "SLURM_STEPID": str(step),
            "SLURM_NTASKS": str(tasks),
            "SLURM_PROCID": str(task),
            "SLURM_NODEID": str(node),
            "SLURMD_NODENAME": nodes[node],
        }
        children.append(subprocess.Popen(command, env=environment))

    def forward(number: int, _frame: object) -> None:
        for child in children:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    codes = [child.wait() for child in children]
    return max(128 - code if code < 0 else code for code in codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
