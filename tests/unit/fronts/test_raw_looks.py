"""How looks are asked for: as Slurm's own text, byte for byte, and never half of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import SlurmUnavailable
from penstock.slurm.commands import CommandRunner
from penstock.slurm.raw_looks import RawLooks
from penstock_fronts.rows import parse_table


def looks(folder: Path, name: str, script: str) -> RawLooks:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return RawLooks(CommandRunner(environment={"PATH": f"{folder}:/usr/bin:/bin"}), timeout=20)


def test_a_look_keeps_bytes_that_are_no_text(tmp_path):
    # Writes its format with each field of a row in the place of its letter.
    script = r"""[ "$*" = "-t all -a" ] && [ "$SLURM_TIME_FORMAT" = standard ] || exit 9
echo "$SQUEUE_FORMAT" | sed 's/%i/JOBID/; s/%j/NAME/'; echo "$SQUEUE_FORMAT" | sed 's/%i/7/; s/%j/\xff|/'"""
    look = asyncio.run(looks(tmp_path, "squeue", script).squeue("ij", "-a"))
    table = parse_table(look.text, look.separator, "ij")
    assert (dict(table.header), [dict(row) for row in table.rows]) == (
        {"i": "JOBID", "j": "NAME"},
        [{"i": "7", "j": "\udcff|"}],
    )


def test_no_two_looks_have_the_same_separator(tmp_path):
    made = looks(tmp_path, "sacct", 'echo "$2"')
    first, second = (asyncio.run(made.sacct("-X")) for _ in range(2))
    assert first.text == f"--delimiter={first.separator}\n"
    assert first.separator != second.separator


@pytest.mark.parametrize("script", ["exit 1", "echo half; echo 'slurm_load_jobs error' >&2", "exec false"])
def test_what_failed_is_no_look(tmp_path, script):
    with pytest.raises(SlurmUnavailable):
        asyncio.run(looks(tmp_path, "scontrol", script).scontrol("show", "job"))
