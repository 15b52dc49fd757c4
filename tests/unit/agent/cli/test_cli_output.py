"""What others have written reaches a terminal as text and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.cli.output import plain, table


@pytest.mark.parametrize("cell", ["[/b]", "[bold]x", "n[1-2,a]", "[link=http://x]y[/link]", "\\[x]"])
def test_brackets_in_a_cell_are_brackets(capsys, cell):
    table("[Nodes]", ("name",), [(cell,), (None,), (7,)])
    assert cell in capsys.readouterr().out


def test_no_name_of_a_job_moves_the_cursor(capsys):
    table("Jobs", ("name",), [("\x1b[2Jall is well\x07\x9b31m",)])
    shown = capsys.readouterr().out
    assert "all is well" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert plain("é ²\n\t\x1b\r\u202e") == "é ²\n\t���"


@pytest.mark.parametrize(
    "words", [["--help"], ["simulate", "--help"], ["config", "schema"], ["slots", "--queue", "q.json"]]
)
def test_whoever_read_the_output_has_gone(tmp_path, words):
    (tmp_path / "q.json").write_text('{"procs": 2, "horizon": 9}')
    read, write = os.pipe()
    os.close(read)
    try:
        environment = {**os.environ, "PENSTOCK_CONFIG": "/dev/null"}
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
