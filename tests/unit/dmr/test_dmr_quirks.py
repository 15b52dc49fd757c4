from __future__ import annotations

from pathlib import Path

import pytest

from dmr import launch, quirks

MPICH = "MPICH Version:      5.0.2\nMPICH Release date: ..."
HYDRA = {"PMI_HOSTNAME": "n1"}
SLURM = {**HYDRA, "SLURM_JOB_ID": "1"}
LAUNCHED = {"DMR_LAUNCHER": "n1:5"}
ALL = ("merge", "replace", "restart")


@pytest.mark.parametrize(
    ("version", "environ", "methods", "why"),
    [
        (MPICH, HYDRA, ALL[:2], None),
        (MPICH, {**SLURM, **LAUNCHED}, ALL, None),
        (MPICH, {**SLURM, "HYDRA_LAUNCHER": "fork"}, ALL[:2], None),
        (MPICH, SLURM, (), "dmr.launch"),
        (MPICH, {}, (), "not started by MPICH's mpiexec"),
        (MPICH, LAUNCHED, ("restart",), None),  # by srun
        (MPICH, {**SLURM, **LAUNCHED, "DMR_METHOD": "restart"}, ("restart",), None),
        (MPICH, {**SLURM, **LAUNCHED, "DMR_METHOD": "magic"}, (), "DMR_METHOD=magic does not work here"),
        (MPICH, {**HYDRA, "DMR_METHOD": "restart"}, (), "DMR_METHOD=restart does not work here"),
        ("MPICH Version:\t3.4.2", HYDRA, (), "before 4.1"),
        ("MPICH Version:\t4.1", HYDRA, ALL[:2], None),
        ("Open MPI v5.0.6, package: Debian OpenMPI", HYDRA, (), "Open MPI cannot reach"),
        ("Open MPI v5.0.6, package: Debian OpenMPI", LAUNCHED, ("restart",), None),
        ("Intel(R) MPI Library 2021.13 for Linux* OS", HYDRA, (), "Intel MPI"),
        ("MPI VERSION    : CRAY MPICH version 8.1.28.29", HYDRA, (), "Cray"),
        ("MVAPICH Version      :\t4.0", HYDRA, (), "MVAPICH"),
        ("Something else 1.0", HYDRA, (), "unknown MPI library"),
        ("Something else 1.0", LAUNCHED, ("restart",), None),
        ("", HYDRA, (), "unknown MPI library"),
    ],
)
def test_methods(version: str, environ: dict[str, str], methods: tuple[str, ...], why: str | None) -> None:
    assert quirks.methods(version, environ) == methods
    found = quirks.obstacle(version, environ)
    assert found is None if why is None else found is not None and why in found


def test_hosts() -> None:
    assert quirks.hosts_value(["n4", "n5"], 1) == "n4,n5"
    assert quirks.hosts_value(["n4", "n5"], 2) == "n4:2,n5:2"


def test_launch_takes_the_stale_node_list_away() -> None:
    before = {"SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS_PER_NODE": "2", "HOME": "/h"}
    arguments, environment = launch.prepare(["-n", "4", "python", "a.py"], before, ["n1", "n2"])
    assert arguments == ["-launcher", "slurm", "-hosts", "n1,n2", "-n", "4", "python", "a.py"]
    assert environment == {"SLURM_OVERLAP": "1", "HOME": "/h"}


@pytest.mark.parametrize(
    ("squeue", "expected"),
    [
        ("echo n1,n3", ["n1", "n3"]),  # resized before
        ("echo m1,m2", ["n1", "n2"]),  # another Slurm's job of this number
        ("echo", ["n1", "n2"]),
        ("exit 1", ["n1", "n2"]),
        ("echo 'n[1-3]'", ["n1", "n2", "n3"]),
    ],
)
def test_launch_finds_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str, expected: list) -> None:
    for name, text in {"squeue": squeue, "scontrol": "printf 'n1\\nn2\\nn3\\n'"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    environ = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n1,n2", "SLURMD_NODENAME": "n1"}
    assert launch.nodes(environ) == expected


@pytest.mark.parametrize(
    ("device", "environ", "quickly"),
    [
        ("ch4:ucx ofi", {}, True),
        ("ch4:ucx", {}, True),
        ("ch4:ucx ofi", {"MPIR_CVAR_CH4_NETMOD": "ofi"}, False),
        ("ch4:ofi", {}, False),
        ("ch3:nemesis", {}, False),
    ],
)
def test_rows_are_gathered_by_libraries_that_do_it_quickly(device: str, environ: dict[str, str], quickly: bool) -> None:
    told = f"MPICH Version:      5.0.2\nMPICH Device:       {device}\nMPICH configure:    --with-device=ch4:ucx"
    assert quirks.gathers_quickly(told, environ) is quickly
    assert not quirks.gathers_quickly("Open MPI v5.0.6, package: Debian OpenMPI", environ)
