"""The tables of sbatch's and srun's options beside what each release's `--help` lists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from help_options import help_options
from penstock.slurm.option_table import KINDS, VARIABLES, options_of

RECORDED = Path(__file__).parents[3] / "fixtures/slurm"
TABLES = {"sbatch": options_of("sbatch"), "srun": options_of("srun")}
READ = re.compile(rb"\0(SBATCH_[A-Z0-9_]+|SLURM_CLUSTERS|SLURM_HINT)(?=\0)")
"""The variables that name options, in sbatch itself."""


def recorded(*commands: str):
    for file in sorted(RECORDED.glob("*/options.txt")):
        for line in file.read_text().splitlines():
            command, *words = line.split()
            if command in commands:
                yield pytest.param(command, words, id=f"{command}-{file.parent.name}")


def check(command: str, said: dict[str, str]) -> None:
    kinds, letters = TABLES[command]
    assert len(said) > 80 and not set(said) - set(kinds)
    assert {name: letter for name, letter in said.items() if letter and letters.get(letter) != name} == {}


@pytest.mark.parametrize(("command", "words"), list(recorded("sbatch", "srun")))
def test_every_option_of_a_release_is_known(command, words):
    check(command, {name: letter for name, _, letter in (word.partition("/") for word in words)})


@pytest.mark.parametrize("command", TABLES)
def test_every_option_of_the_installed_slurm_is_known(command, tmp_path):
    if shutil.which(command) is None:
        pytest.skip("no Slurm is installed")
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost\n")
    env = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    check(command, help_options(subprocess.run([command, "--help"], capture_output=True, text=True, env=env).stdout))


def test_variables_are_those_that_some_release_reads():
    releases = [set(one.values[1]) for one in recorded("variables")]
    assert len(releases) == 3 and set(VARIABLES) == set.union(*releases)
    assert set(VARIABLES.values()) <= set(KINDS)


def test_every_variable_that_the_installed_sbatch_reads_is_known():
    program = shutil.which("sbatch")
    if program is None:
        pytest.skip("no Slurm is installed")
    read = {name.decode() for name in READ.findall(Path(program).read_bytes())}
    assert len(read) > 50 and read <= set(VARIABLES)
