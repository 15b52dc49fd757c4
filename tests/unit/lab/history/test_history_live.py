"""Accounting asked now, with a sacct that does as it is told."""

from __future__ import annotations

import sys

import pytest
from dumps import NOON, heading, record

from penstock.errors import SlurmUnavailable, UserError
from penstock_lab.history.history import History
from penstock_lab.history.importing import Live, Options, import_history
from penstock_lab.history.rows import Reason

DAY = 86400


@pytest.fixture
def sacct(tmp_path, monkeypatch):
    """Makes a sacct of some lines of Python, in which `argv` are its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def made(body: str) -> None:
        program = folder / "sacct"
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\nargv = sys.argv\n{body}\n")
        program.chmod(0o755)

    return made


def ask(tmp_path, begin=NOON, days=3, patience=60.0):
    span = Live(begin, begin + days * DAY, DAY, patience)
    report = import_history([span], tmp_path / "live.history", Options())
    return History(tmp_path / "live.history"), report


def test_each_slice_is_asked_for_once_and_each_job_counted_in_the_one_in_which_it_ended(tmp_path, sacct):
    long = record("MARK", JobIDRaw=1, Start=NOON + 60, End=NOON + 2 * DAY + 5)
    short = record("MARK", JobIDRaw=2, Start=NOON + 60, End=NOON + 90)
    runs = record("MARK", JobIDRaw=3, Start=NOON + 60, End="Unknown", State="RUNNING")
    text = heading("MARK") + long + short + runs
    sacct(
        f"open({str(tmp_path / 'asked')!r}, 'a').write(' '.join(argv[-6:-1]) + os.environ['TZ'] + chr(10))\n"
        "mark = next(word[12:] for word in argv if word.startswith('--delimiter='))\n"
        f"sys.stdout.write({text!r}.replace('MARK', mark))"
    )
    found, report = ask(tmp_path)
    assert sorted(found.column("id").tolist()) == [1, 2]
    assert {why: left.count for why, left in report.left.items()} == {Reason.NOT_ENDED: 1}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3 and "-S 2025-01-15T12:00:00 -E 2025-01-16T12:00:00" in asked[0]
    assert asked[2].endswith("-E 2025-01-18T12:00:00UTC")


def test_the_sizes_of_a_job_may_end_in_several_slices(tmp_path, sacct):
    first = record("MARK", State="RESIZING", NNodes=4, End=NOON + DAY - 5)
    last = record("MARK", Submit=NOON + DAY - 5, Start=NOON + 60, End=NOON + DAY + 5, NNodes=1)
    text = heading("MARK") + first + last
    sacct(
        "mark = next(word[12:] for word in argv if word.startswith('--delimiter='))\n"
        f"sys.stdout.write({text!r}.replace('MARK', mark))"
    )
    found, report = ask(tmp_path)
    assert found.column("end").tolist() == [DAY + 5] and found.column("nodes").tolist() == [4] and not report.left


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("sys.exit('slurmdbd: down')", SlurmUnavailable, "sacct failed for 2025-01-15T12:00:00 to .*: slurmdbd: down"),
        ("time.sleep(60)", SlurmUnavailable, "took longer than 0.5 s .*: take a shorter --slice"),
        ("print('Good morning')", UserError, "no heading of sacct"),
    ],
)
def test_a_sacct_that_fails_leaves_nothing(tmp_path, sacct, body, error, said):
    sacct(body)
    with pytest.raises(error, match=said):
        ask(tmp_path, patience=0.5 if "sleep" in body else 60.0)
    assert not [path for path in tmp_path.iterdir() if "history" in path.name]


def test_a_machine_without_sacct(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"sacct cannot be run here: .*; give a dump instead"):
        ask(tmp_path)
