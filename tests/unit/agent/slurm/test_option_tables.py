"""The tables of sbatch's and srun's options beside what each release's `--help` lists."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from help_options import help_options
from penstock.slurm import option_table, srun_table

RECORDED = Path(__file__).parents[3] / "fixtures/slurm"
TABLES = {"sbatch": option_table, "srun": srun_table}


def recorded():
    for file in sorted(RECORDED.glob("*/options.txt")):
        for line in file.read_text().splitlines():
            command, *words = line.split()
            yield pytest.param(command, words, id=f"{command}-{file.parent.name}")


def check(command: str, said: dict[str, str]) -> None:
    table = TABLES[command]
    assert len(said) > 80 and not set(said) - set(table.KINDS)
    assert {name: letter for name, letter in said.items() if letter and table.LETTERS.get(letter) != name} == {}


@pytest.mark.parametrize(("command", "words"), list(recorded()))
def test_every_option_of_a_release_is_known(command, words):
    check(command, {name: letter for name, _, letter in (word.partition("/") for word in words)})


@pytest.mark.parametrize("command", TABLES)
def test_every_option_of_the_installed_slurm_is_known(command, tmp_path):
    if shutil.which(command) is None:
        pytest.skip("no Slurm is installed")
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost\n")
    env = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    check(command, help_options(subprocess.run([command, "--help"], capture_output=True, text=True, env=env).stdout))
