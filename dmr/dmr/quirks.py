"""What the MPI libraries can do, and what they need: found by running them, not by reading their manuals.

Spawning can go wrong in ways that no error code reports: MPICH's hydra ends the whole application when it cannot reach
a node, and waits for ever when srun refuses to start a step or a program ends before it has called MPI_Init. So what is
not known to work is not tried, and `obstacle` says why. Standard library only. `python -m dmr.probe` runs what this
table says. Run on Slurm 22.05.8, mpi4py 4.1.2, under the launcher:

    library             spawn on nodes    spawn on      merge and    ports between   restart   restart under
                        of the start      later nodes   leave        two mpiexec               srun
    MPICH 5.0.2         yes               yes           yes          yes             yes       yes (pmi2)
    Open MPI 4.1.4      yes               no (1)        no (2)       no (3)          yes       not tried (5)
    Open MPI 5.0.11     yes               no (1)        no (2)       no (4)          yes       not tried (5)
    Intel MPI 2021.19   yes               crashes (6)   crashes (6)  no (4)          yes       yes

(1) "requested hosts are not included in the current allocation"; with the key add-host 4.1 aborts and 5.0 refuses. And
its daemons stay on all nodes of the start until the first mpiexec ends, so that none could be given back either.
(2) The second spawn over a merged communicator never returns. (3) Wants a server of names (ompi-server). (4) Never
returns. (5) Debian's srun --mpi=pmix loads libpmix only where libpmix-dev is installed too, and then does not start a
step when several slurmd share a host. (6) With the fabric "shm"; the PyPI package needs a libfabric that PyPI lacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmr.line import ADDRESS as LAUNCHER

__all__ = ["Quirks", "gathers_quickly", "hosts_value", "identify", "methods", "node_name", "obstacle", "under_launcher"]


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
    Quirks(
        "Open MPI",
        r"Open MPI v?(\d+)\.(\d+)",
        None,
        "Open MPI cannot reach nodes that came after its start, nor leave any",
    ),
    Quirks("Intel MPI", r"Intel\(R\) MPI Library (\d+)\.(\d+)", None, "Intel MPI was not seen to join new processes"),
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


def under_launcher(library_version: str) -> tuple[str, ...]:
    """The ways to resize that this library gives a program that `dmr.launch` has started."""
    return methods(library_version, {"PMI_HOSTNAME": "here", LAUNCHER: "here"})


def obstacle(library_version: str, environ: Mapping[str, str]) -> str | None:
    """Why this process can be resized in no way, or None when there is one."""
    if methods(library_version, environ):
        return None
    why = _no_spawn(library_version, environ)
    if only := environ.get("DMR_METHOD"):
        return f"DMR_METHOD={only} does not work here" + (f": {why}" if why else "")
    return f"{why}; start it with `python -m dmr.launch` in place of mpiexec or srun"


def gathers_quickly(library_version: str, environ: Mapping[str, str]) -> bool:
    """Whether the library sends the rows of a rectangle (a derived datatype) at least as quickly as numpy copies them.

    MPICH over UCX does, three times as quickly, in shared memory and by TCP; over libfabric's TCP it took 2.9 times as
    long (5.0.2, 89 MB in 50 messages). Others were not tried.
    """
    found = re.search(r"^MPICH Device:\s*ch4:(\w+)", library_version, re.MULTILINE)
    return found is not None and (environ.get("MPIR_CVAR_CH4_NETMOD") or found[1]) == "ucx"


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
