"""Signals that would end a program instead of having it save its state are refused when it is submitted."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from penstock.errors import UserError
from penstock.resize.commands.elastic import elastic
from penstock.sbatch.commands.sbatch import sbatch

ELASTIC = """elastic: {min: 1, max: 4, use: restart, signal: %s, run: exec mpiexec.hydra ./md, checkpoint: state}
"""
SCRIPT = """#!/bin/bash
#PENSTOCK moldable=2:8h,8:2h30m checkpoint=%s:state.dat
trap 'kill -USR2 $pid' USR2
mpiexec.hydra ./md & pid=$!
wait
"""


def test_an_elastic_program_under_hydra_is_not_told_by_usr2(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(ELASTIC % "USR2")
    with pytest.raises(UserError) as refused:
        CliRunner().invoke(elastic, [str(file), "--dry-run"], catch_exceptions=False)
    assert str(refused.value) == (
        f"{file}: elastic.signal: start: mpiexec.hydra is that of MPICH or Intel MPI: it ends on USR2, and the program "
        "with it; save on USR1 instead"
    )
    file.write_text(ELASTIC % "USR1")
    assert CliRunner().invoke(elastic, [str(file), "--dry-run"], catch_exceptions=False).exit_code == 0


@pytest.mark.parametrize("wrapped", [False, True])
def test_nor_is_a_moldable_one(tmp_path, wrapped):
    file = tmp_path / "job.sh"
    file.write_text(SCRIPT % "USR2")
    words = [str(file)]
    if wrapped:
        words = ["--penstock-moldable=2:8h,8:2h", "--penstock-checkpoint=USR2:state", "--wrap=exec mpiexec.hydra ./md"]
    with pytest.raises(UserError, match=r"checkpoint: mpiexec\.hydra is that of MPICH or Intel MPI: it ends on USR2"):
        CliRunner().invoke(sbatch, words, catch_exceptions=False)
