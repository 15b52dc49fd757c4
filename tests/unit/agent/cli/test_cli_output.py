"""What others have written reaches a terminal as text and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from penstock.console.output import in_local_time, plain, table


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


def test_sentences_have_their_instants_in_local_time(monkeypatch):
    """A time of day without a date is the nearest to when the sentence was written: 23:59 an hour after midnight is
    yesterday's, which counts where the clocks are changed in between."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        at = datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp()  # half an hour before summer time
        text = "completed 23:59:59Z, due at 01:10:00Z, calm until 2026-04-02 12:30Z; 99:00:00Z and 12:00 are left"
        assert in_local_time(text, at) == (
            "completed 00:59:59, due at 03:10:00, calm until 2026-04-02 14:30; 99:00:00Z and 12:00 are left"
        )
    finally:
        monkeypatch.undo()
        time.tzset()
