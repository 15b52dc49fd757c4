"""Command lines of mpiexec and srun: where the program begins, what is kept, and the same for other nodes."""

from __future__ import annotations

import pytest

from dmr.command import allocation, parse

PROGRAM = ["python", "-m", "app", "-n", "7", "--rows", "4"]


@pytest.mark.parametrize(
    ("kind", "options", "kept", "per_node"),
    [
        ("hydra", "-n 4 -ppn 2", "", 2),
        ("hydra", "-np 4 -bind-to core -genv OMP_NUM_THREADS 2 -ppn 2", "-bind-to core -genv OMP_NUM_THREADS 2", 2),
        ("hydra", "-launcher slurm -hosts n1,n2 -prepend-rank -n 4", "-prepend-rank", 0),
        ("openmpi", "-np 4 --map-by core --mca btl self,tcp -x OMP_NUM_THREADS", None, 0),
        ("openmpi", "-N 2 --oversubscribe --bind-to none", "--oversubscribe --bind-to none", 2),
        ("openmpi", "--npernode 3 -H n1:3,n2:3", "", 3),
        ("srun", "-n4 -N 2 --ntasks-per-node=2 --cpu-bind=cores", "--cpu-bind=cores", 2),
        ("srun", "-n 4 --mpi pmix -c 2 -l --overlap", "--mpi pmix -c 2 -l", 0),
        ("srun", "--ntasks=4 -wn1 --exclusive", "--exclusive", 0),
    ],
)
@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_parsing(kind: str, options: str, kept: str | None, per_node: int, dashes: list[str]) -> None:
    found = parse(kind, "starter", [*options.split(), *dashes, *PROGRAM])
    assert found.program == tuple(PROGRAM)
    assert found.per_node == per_node
    if kept is not None:
        assert found.kept == tuple(kept.split())
    if kind == "openmpi" and kept is None:
        assert found.kept == ("--map-by", "core", "--mca", "btl", "self,tcp", "-x", "OMP_NUM_THREADS")


@pytest.mark.parametrize("arguments", [[], ["-n", "4"], ["-n"], ["--"]])
def test_no_program(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="no program"):
        parse("hydra", "mpiexec", arguments)


@pytest.mark.parametrize("kind", ["hydra", "openmpi"])
@pytest.mark.parametrize("line", ["-n 2 ./a : -n 2 ./b", "-n 2 -- ./a --rows 4 : ./b"])
def test_several_programs_on_one_line(kind: str, line: str) -> None:
    """mpiexec takes the rest for another program, not for arguments of the first."""
    with pytest.raises(ValueError, match=r"one program.* by its rank"):
        parse(kind, "mpiexec", line.split())
    assert parse("srun", "srun", line.split()).program[-1] == "./b"  # there a colon is an argument as any other


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("hydra", "-outfile-pattern out.%r -n 2"),
        ("hydra", "-n 2 --errfile-pattern=err"),
        ("openmpi", "-n 2 --output-filename out"),
        ("openmpi", "-n 2 --output tag,dir=out"),
        ("openmpi", "-n 2 --output file=out"),
    ],
)
def test_files_that_a_later_start_would_empty(kind: str, options: str) -> None:
    with pytest.raises(ValueError, match="would empty its files; redirect the output"):
        parse(kind, "mpiexec", [*options.split(), *PROGRAM])


def test_output_in_no_files_is_kept() -> None:
    assert parse("openmpi", "mpiexec", ["--output", "tag", *PROGRAM]).kept == ("--output", "tag")
    assert parse("hydra", "mpiexec", ["-prepend-pattern", "%r", *PROGRAM]).kept == ("-prepend-pattern", "%r")


@pytest.mark.parametrize("options", ["-o out.%t", "-e err", "-oout", "--output=out", "--error err"])
def test_a_later_srun_appends_to_its_files(options: str) -> None:
    found = parse("srun", "srun", ["-n", "2", "--open-mode=truncate", *options.split(), *PROGRAM])
    assert "--open-mode=append" not in found.first()
    later = found.on(["n3"], 2)
    assert later[-len(PROGRAM) - 1 :] == ["--open-mode=append", *PROGRAM]  # srun goes by the last


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("hydra", "-n 2 -bind-to core", "-hosts n3,n4 -n 4 -ppn 2 -bind-to core"),
        ("openmpi", "-n 2 --bind-to core", "--host n3:2,n4:2 -n 4 --bind-to core"),
        ("srun", "-n 2 --mpi=pmi2", "-w n3,n4 -N 2 -n 4 --ntasks-per-node=2 --mpi=pmi2 --open-mode=append"),
    ],
)
def test_on_other_nodes(kind: str, given: str, expected: str) -> None:
    found = parse(kind, "starter", [*given.split(), *PROGRAM])
    assert found.on(["n3", "n4"], 2) == ["starter", *expected.split(), *PROGRAM]
    by_slurm = ["-launcher", "slurm"] if kind == "hydra" else []
    assert found.on(["n3", "n4"], 2, slurm=True) == ["starter", *by_slurm, *expected.split(), *PROGRAM]


def test_slurms_variables_for_other_nodes() -> None:
    start = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_NTASKS": "8",
        "VIRTUAL_ENV": "/v",
        "LOADEDMODULES": "gcc/12",
        "OMPI_MCA_plm_slurm_args": "--exclusive --nodes=2 --nodelist=n1,n2",
    }
    found = allocation(start, 9, ["n3", "n5", "n6"], 2)
    assert found == {
        "SLURM_JOB_ID": "9",
        "SLURM_JOBID": "9",
        "SLURM_JOB_NODELIST": "n3,n5,n6",
        "SLURM_NODELIST": "n3,n5,n6",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_NNODES": "3",
        "SLURM_TASKS_PER_NODE": "2(x3)",
        "SLURM_JOB_CPUS_PER_NODE": "4(x3)",
        "VIRTUAL_ENV": "/v",
        "LOADEDMODULES": "gcc/12",
        "OMPI_MCA_plm_slurm_args": "--exclusive --nodes=3 --nodelist=n3,n5,n6",
        "PRTE_MCA_prte_plm_slurm_args": "--nodes=3 --nodelist=n3,n5,n6",
    }
    assert start["SLURM_JOB_ID"] == "7"
    unequal = allocation(start | {"SLURM_JOB_CPUS_PER_NODE": "4,8"}, 9, ["n3", "n5"], 2)
    assert "SLURM_JOB_CPUS_PER_NODE" not in unequal, "which of them the new nodes have is not known"
