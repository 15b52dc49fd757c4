"""The command line of mpiexec or srun: where its program begins, and the same one for other nodes. Pure text.

Options that place processes are replaced, all others (binding, environment, threads) are kept, so that what is started
later runs as what was started first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dmr.slurm_variables import expanded

__all__ = ["Command", "allocation", "parse"]

# How many values follow an option, where it is not one of the form --name=value; what is not here has none. By name
# without dashes: all three take `-name` and `--name` for the same.
_HYDRA: Final = """n np c ppn perhost grr hosts host hostfile f machinefile machine wdir wd launcher launcher-exec
bootstrap bootstrap-exec bind-to map-by membind rmk iface usize nameserver configfile outfile-pattern errfile-pattern
prepend-pattern order-nodes topolib gpus-per-proc path arch soft umask genvlist envlist s env:2 genv:2"""
_OPEN_MPI: Final = """n np c N npernode npersocket H host hostfile machinefile default-hostfile x wdir wd path prefix
map-by rank-by bind-to cpu-set cpu-list cpus-per-proc cpus-per-rank output output-filename timeout report-uri stdin
tmpdir app rankfile rf personality pernode-timeout display runtime-options am tune dvm dvm-uri mca:2 gmca:2 omca:2
prtemca:2 pmixmca:2"""
_SRUN: Final = """n ntasks N nodes c cpus-per-task w nodelist x exclude t time p partition A account J job-name o output
e error i input mpi m distribution cpu-bind mem-bind ntasks-per-node ntasks-per-core ntasks-per-socket gres gpus G
gpus-per-node gpus-per-task gpu-bind mem mem-per-cpu mem-per-gpu D chdir export jobid B extra-node-info C constraint d
dependency q qos r relative S core-spec W wait threads-per-core hint task-prolog task-epilog prolog epilog comment
cpu-freq licenses L open-mode reservation tmp wckey nice slurmd-debug"""


def _arities(words: str) -> dict[str, int]:
    pairs = (word.partition(":") for word in words.split())
    return {name: int(count or 1) for name, _, count in pairs}


_VALUES: Final = {"hydra": _arities(_HYDRA), "openmpi": _arities(_OPEN_MPI), "srun": _arities(_SRUN)}
_COUNT: Final = {"hydra": ("n", "np"), "openmpi": ("n", "np", "c"), "srun": ("n", "ntasks")}
_PER_NODE: Final = {"hydra": ("ppn", "perhost", "grr"), "openmpi": ("N", "npernode"), "srun": ("ntasks-per-node",)}
_PLACES: Final = {
    "hydra": ("hosts", "host", "hostfile", "f", "machinefile", "machine", "launcher", "bootstrap", "rmk"),
    "openmpi": ("H", "host", "hostfile", "machinefile", "default-hostfile", "npersocket", "pernode"),
    "srun": ("N", "nodes", "w", "nodelist", "jobid", "overlap", "r", "relative", "x", "exclude"),
}
# Options that have the output written to files. Those of a later start would be the same ones, emptied.
_FILES: Final = {"hydra": ("outfile-pattern", "errfile-pattern"), "openmpi": ("output-filename",), "srun": ()}


@dataclass(frozen=True)
class Command:
    """A parsed line: `kind` is "hydra", "openmpi" or "srun", `starter` the program that starts the ranks.

    `kept` are the options that do not place processes, `placing` those that do, `program` what is started. `per_node`
    is 0 where the line does not say so.
    """

    kind: str
    starter: str
    kept: tuple[str, ...]
    placing: tuple[str, ...]
    program: tuple[str, ...]
    per_node: int = 0

    def first(self) -> list[str]:
        """The line as it was given."""
        return [self.starter, *self.placing, *self.kept, *self.program]

    def on(self, nodes: Sequence[str], per_node: int, *, slurm: bool = False) -> list[str]:
        """The line that starts `per_node` ranks on each of `nodes`; `slurm`: hydra is to reach them by srun."""
        size, hosts = str(len(nodes) * per_node), ",".join(nodes)
        after: list[str] = []
        if self.kind == "hydra":
            place = ["-launcher", "slurm"] if slurm else []
            place += ["-hosts", hosts, "-n", size, "-ppn", str(per_node)]
        elif self.kind == "openmpi":
            place = ["--host", ",".join(f"{node}:{per_node}" for node in nodes), "-n", size]
        else:
            place = ["-w", hosts, "-N", str(len(nodes)), "-n", size, f"--ntasks-per-node={per_node}"]
            after = ["--open-mode=append"]  # else it would empty the files of --output and --error
        return [self.starter, *place, *self.kept, *after, *self.program]


def parse(kind: str, starter: str, arguments: Sequence[str]) -> Command:
    """Takes the arguments of mpiexec or srun apart.

    Raises:
        ValueError: no program in them, or several, or an option that cannot be kept for what is started later.
    """
    values, per_node = _VALUES[kind], 0
    replaced = (*_COUNT[kind], *_PER_NODE[kind], *_PLACES[kind])
    kept: list[str] = []
    placing: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        name, given, value = arguments[at].lstrip("-").partition("=")
        after = at + 1 + (0 if given else values.get(name, 0))
        if kind == "srun" and not arguments[at].startswith("--"):
            # The short form `-n4`.
            short = arguments[at][1:]
            if short[:1] in values and len(short) > 1:
                name, value, after, given = short[0], short[1:], at + 1, "="
        if not given and after == at + 2 and after <= len(arguments):
            value = arguments[at + 1]
        if name in _FILES[kind] or (kind == "openmpi" and name == "output" and _to_files(value)):
            raise ValueError(
                f"{arguments[at]}: what is started in a resize would empty its files; redirect the output instead "
                "(> FILE, or --output of the job script)"
            )
        if name in _PER_NODE[kind] and value.isdigit():
            per_node = int(value)
        (placing if name in replaced else kept).extend(arguments[at:after])
        at = after
    program = tuple(arguments[at + 1 :] if arguments[at : at + 1] == ["--"] else arguments[at:])
    if not program:
        raise ValueError("no program to start")
    if kind != "srun" and ":" in program:
        raise ValueError(
            "':' begins another program, but a resize can only start one program on all ranks; start one that chooses "
            "what to do by its rank, or use mpiexec itself"
        )
    return Command(kind, starter, tuple(kept), tuple(placing), program, per_node)


def _to_files(output: str) -> bool:
    """Whether a value of Open MPI 5's --output names a file or a directory."""
    return any(part.lower().startswith(("file=", "filename=", "dir=", "directory=")) for part in output.split(","))


def allocation(environ: Mapping[str, str], job: int, nodes: Sequence[str], per_node: int) -> dict[str, str]:
    """The environment with Slurm's variables as they would be in `job` if it had just these nodes.

    Slurm's own programs and the libraries of Open MPI and Intel believe them, and they are those of the job's start.
    """
    environment = dict(environ)
    count, hosts = str(len(nodes)), ",".join(nodes)
    cpus = set(expanded(environment.pop("SLURM_JOB_CPUS_PER_NODE", "")))
    environment |= {
        "SLURM_JOB_ID": str(job),
        "SLURM_JOBID": str(job),
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_TASKS_PER_NODE": f"{per_node}(x{count})",
    }
    # Open MPI starts its daemons by a bare srun when it takes all nodes it knows, which then takes any of the job.
    for name in ("OMPI_MCA_plm_slurm_args", "PRTE_MCA_prte_plm_slurm_args"):
        others = [part for part in environ.get(name, "").split() if not part.startswith(("--nodes=", "--nodelist="))]
        environment[name] = " ".join([*others, f"--nodes={count}", f"--nodelist={hosts}"])
    if len(cpus) == 1:  # else nodes differ, and which of them these are is not known here
        environment["SLURM_JOB_CPUS_PER_NODE"] = f"{cpus.pop()}(x{count})"
    for name in ("SLURM_NPROCS", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_DISTRIBUTION"):
        environment.pop(name, None)
    return environment
