"""`penstock history` as it is typed: what it prints, and mistakes in a line."""

from __future__ import annotations

import json
import os
import shlex
import stat

import pytest
from click.testing import CliRunner
from dumps import dump, record

from penstock.cli import cli
from penstock.errors import UserError
from penstock_lab.history.history import History
from penstock_lab.history.records import Heading
from penstock_lab.history.sacct import FIELDS


def call(*words):
    return CliRunner().invoke(cli, ["history", *map(str, words)])


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.txt").write_text(
        dump(record(), record(JobIDRaw="7.0", Partition=""), record(JobIDRaw=8, State="RUNNING", End="Unknown"))
    )
    return tmp_path / "jobs.txt"


def test_the_line_has_a_mark_that_is_new_each_time_and_that_the_import_understands():
    lines = [call("command", "--since", "2025-01-01", "--until", "2025-02-01").output for _ in range(2)]
    assert lines[0] != lines[1]
    words = shlex.split(lines[0])
    assert words[:3] == ["TZ=UTC", "SLURM_TIME_FORMAT=%s", "sacct"] and words[-4:] == ["|", "gzip", ">", "jobs.txt.gz"]
    assert words[words.index("-S") + 1] == "2025-01-01" and words[words.index("-E") + 1] == "2025-02-01"
    mark = next(word for word in words if word.startswith("--delimiter=")).partition("=")[2]
    heading = Heading.of("".join(field + mark for field in FIELDS) + "\n")
    assert heading is not None and heading.separator == mark and heading.closed and len(heading.fields) == len(FIELDS)


def test_what_is_said_of_an_import_and_of_a_history_later(jobs):
    done = call("import", jobs, "--to", "site.history")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "jobs       1, 0 of which never started, of 3 records",
        "submitted  2025-01-15T12:00:00Z to 2025-01-15T12:00:00Z",
        "machine    2 nodes, 8 CPUs, up to 4 a node",
        "who        1 users, 1 accounts",
        f"left out   1: a step, not a job (the first: {jobs} line 3)",
        f"left out   1: has not ended yet (the first: {jobs} line 4)",
    ]
    assert call("show", "site.history").output == done.output
    told = json.loads(call("show", "site.history", "--json").stdout)
    assert told["left_out"][0] == {"reason": "a step, not a job", "records": 1, "first": f"{jobs} line 3"}


def test_a_machine_that_is_said_is_not_guessed(jobs):
    call("import", jobs, "--to", "site.history", "--nodes", "100", "--cpus-per-node", "64")
    assert History(jobs.parent / "site.history").about["machine"] == {"cpus": 6400, "nodes": 100, "cpus_per_node": 64}
    call("import", jobs, "--to", "site.history", "--nodes", "100")
    assert History(jobs.parent / "site.history").about["machine"] == {"cpus": 400, "nodes": 100, "cpus_per_node": 4}


def test_a_key_is_made_once_and_is_nobody_elses(jobs):
    users = []
    for _ in range(2):
        done = call("import", jobs, "--to", "site.history", "--anonymise", "--key", "key")
        assert done.exit_code == 0, done.output
        users.append(History(jobs.parent / "site.history").names("user"))
    assert users[0] == users[1] and users[0][0].startswith("user-")
    assert stat.S_IMODE(os.stat("key").st_mode) == 0o600  # noqa: PTH116


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jobs.txt"], "--to is missing"),
        (["--to", "x"], "give either SOURCE or --live"),
        (["jobs.txt", "--live", "--to", "x"], "give either SOURCE or --live"),
        (["jobs.txt", "--to", "jobs.txt"], "--to would replace jobs.txt, which is read"),
        (["jobs.txt", "--to", "no/x"], "no, where --to should go, is not a folder"),
        (["none.txt", "--to", "x"], "none.txt: No such file or directory"),
        (["jobs.txt", "--to", "x", "--time-zone", "Mars"], "--time-zone must be a time zone such as Europe/Berlin"),
        (["jobs.txt", "--to", "x", "--since", "2025-01-01"], "--since and --until are for --live"),
        (["--live", "--to", "x", "--since", "then"], "--since must be a time as sacct takes it"),
        (["--live", "--to", "x", "--since", "now"], "--since must be before --until"),
        (["jobs.txt", "--to", "x", "--key", "key"], "--key is for --anonymise"),
        (["jobs.txt", "--to", "x", "--anonymise", "--key", "short"], "--key short has 3 bytes: a key has 16 or more"),
        (["jobs.txt", "--to", "x", "--cluster", "other"], "no job is left to keep: of 3 records"),
    ],
)
def test_a_mistake_is_said_in_a_line_and_makes_nothing(jobs, words, said):
    (jobs.parent / "short").write_text("abc\n")
    before = sorted(jobs.parent.iterdir())
    done = call("import", *words)
    assert isinstance(done.exception, UserError), done.output
    assert said in str(done.exception) and "\n" not in str(done.exception)
    assert sorted(jobs.parent.iterdir()) == before
