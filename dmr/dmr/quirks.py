"""What the MPI libraries can do, and what they need: found by running them, not by reading their manuals.

Spawning can go wrong in ways that no error code reports: MPICH's hydra ends the whole application when it cannot reach
a node, and waits for ever when srun refuses to start a step or a program ends before it has called MPI_Init. So what is
not known to work is not tried, and `obstacle` says why. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmr.line import ADDRESS as LAUNCHER

__all__ = ["Quirks", "hosts_value", "identify", "methods", "node_name", "obstacle"]


@dataclass(frozen=True)
class Quirks:
    """One MPI library: how `MPI_Get_library_version` begins, from which release it can start processes later.

    `spawns_from` None: never, and `why_not` says why. That it can means: MPI_Comm_spawn onto nodes that came after the
    start, merging, leaving, and joining the processes of another mpiexec by ports.
    """

    vendor: str
    pattern: str
    spawns_from: tuple[int, ...] | None
    why_not: str = ""


# The first row whose pattern is found wins.
_TABLE = (
    Quirks("Open MPI", r"Open MPI v?(\d+)\.(\d+)", None, "Open MPI cannot reach nodes that came after its start"),
    Quirks("Intel MPI", r"Intel\(R\) MPI Library (\d+)\.(\d+)", None, "Intel MPI does not join by ports"),
    Quirks("MVAPICH", r"MVAPICH\S*\s+Version\s*:\s*(\d+)\.(\d+)", None, "MVAPICH was never tried"),
    Quirks("Cray MPICH", r"CRAY MPICH version (\d+)\.(\d+)", None, "Cray MPICH has no hydra launcher"),
    # Before 4.1 the host list of a spawn was lost in several cases (MPICH pull request 5838).
    Quirks("MPICH", r"MPICH Version:\s*(\d+)\.(\d+)", (4, 1), "MPICH before 4.1 loses the host list of a spawn"),
)


def identify(library_version: str) -> tuple[Quirks | None, tuple[int, ...]]:
    """The row for a text of `MPI_Get_library_version` and the release in it; (None, ()) when unknown."""
    for row in _TABLE:
        found = re.search(row.pattern, library_version)
        if found:
            return row, tuple(int(part) for part in found.groups())
    return None, ()


def methods(library_version: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The ways to resize that work in this process, best first; see `dmr.transition`.

    `DMR_METHOD` restricts them to one.
    """
    found = (*(() if _no_spawn(library_version, environ) else ("merge", "replace")),)
    if LAUNCHER in environ:
        found += ("restart",)
    only = environ.get("DMR_METHOD", "")
    return tuple(method for method in found if method == only) if only else found


def obstacle(library_version: str, environ: Mapping[str, str]) -> str | None:
    """Why this process can be resized in no way, or None when there is one."""
    if methods(library_version, environ):
        return None
    why = _no_spawn(library_version, environ)
    if only := environ.get("DMR_METHOD"):
        return f"DMR_METHOD={only} does not work here" + (f": {why}" if why else "")
    return f"{why}; start it with `python -m dmr.launch` in place of mpiexec or srun"


def _no_spawn(library_version: str, environ: Mapping[str, str]) -> str | None:
    """Why this process cannot safely be joined by others, or None when it can."""
    row, release = identify(library_version)
    if row is None:
        return f"unknown MPI library ({library_version.splitlines()[0] if library_version else 'no name'})"
    if row.spawns_from is None or release < row.spawns_from:
        return row.why_not
    if "PMI_HOSTNAME" not in environ:
        # Set by hydra's proxy alone. A process that nothing, or srun itself, started aborts in MPI_Comm_spawn.
        return "the application was not started by MPICH's mpiexec"
    by_slurm = "SLURM_JOB_ID" in environ and environ.get("HYDRA_LAUNCHER", "slurm") == "slurm"
    if by_slurm and LAUNCHER not in environ:
        # srun refuses or waits for ever, and hydra with it: see dmr.launch.
        return "mpiexec alone cannot reach nodes that come later"
    return None


def node_name(environ: Mapping[str, str]) -> str:
    """The node this process runs on as its launcher calls it, or "" when nothing says so."""
    return environ.get("PMI_HOSTNAME") or environ.get("SLURMD_NODENAME") or ""


def hosts_value(nodes: Sequence[str], per_node: int) -> str:
    """The value of hydra's spawn key `hosts`: "n4,n5", or "n4:2,n5:2" for two ranks on each."""
    return ",".join(node if per_node == 1 else f"{node}:{per_node}" for node in nodes)
