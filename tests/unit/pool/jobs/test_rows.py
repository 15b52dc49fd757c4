"""Tasks of a pool as Slurm's commands write jobs. The formats are squeue's and sacct's: `penstock_fronts`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from pooled_jobs import array, job

from penstock_fronts.rows import parse_table
from penstock_fronts.squeue_format import LETTERS
from penstock_pool.jobs.rows import FURTHER, JobOwner, record, sacct_table, squeue_table
from penstock_pool.machine import Machine, TaskEntry
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, Use
from penstock_pool.placement import Pack
from penstock_pool.terms import AfterJob
from places import FIXTURES

OWNER = JobOwner(7, "alice", 8, "users", "site")


@pytest.fixture
def machine() -> Machine:
    made = Machine(Pack())
    made.join(PoolMember("a", "n1", "1", Capacity(1.0)), 0.0)
    return made


def entries(it: Machine) -> Iterator[TaskEntry]:
    return iter(it.entries.values())


def shown(it: Machine, letters: str, now: float = 100.0) -> list[tuple[str, ...]]:
    table = squeue_table(entries(it), it.queue, OWNER, now)
    return [tuple(row[letter] for letter in letters) for row in table.rows]


def told(it: Machine, *fields: str, now: float = 100.0) -> list[tuple[str, ...]]:
    table = sacct_table(entries(it), it.queue, OWNER, now)
    return [tuple(row[field] for field in fields) for row in table.rows]


def end(it: Machine, outcome: AttemptOutcome, code: int | None = 0, at: float = 30.0) -> None:
    (number,) = it.stations["a"].running
    it.ended("a", number, it.entries[number].attempt, outcome, code, "", Use(20.0, 1.5, 3 * 2**20), at)


def test_a_job_as_it_goes_on(machine: Machine):
    machine.submit([job(limit=300.0, account="acc", partition="penstock")], 5.0)
    machine.submit([job(held=True)], 5.0)
    assert shown(machine, "itTRMlLN") == [
        ("5000000001", "PD", "PENDING", "(Resources)", "0:00", "5:00", "5:00", ""),
        ("5000000002", "PD", "PENDING", "(Resources)", "0:00", "UNLIMITED", "UNLIMITED", ""),
    ]
    machine.place(10.0)
    assert shown(machine, "tRMLN") == [
        ("R", "n1", "1:30", "3:30", "n1"),
        ("PD", "(JobHeldUser)", "0:00", "UNLIMITED", ""),
    ]
    assert told(machine, "JobID", "State", "Elapsed", "ExitCode") == [
        ("5000000001", "RUNNING", "00:01:30", "0:0"),
        ("5000000001.batch", "RUNNING", "00:01:30", "0:0"),
        ("5000000002", "PENDING", "00:00:00", "0:0"),
    ]
    end(machine, AttemptOutcome.COMPLETE)
    assert shown(machine, "tRMaP")[0] == ("CD", "n1", "0:20", "acc", "penstock")
    assert told(machine, "JobID", "State", "MaxRSS", "TotalCPU")[1] == (
        "5000000001.batch",
        "COMPLETED",
        "3M",
        "00:01.500",
    )


@pytest.mark.parametrize(
    ("outcome", "code", "state", "exit_code", "reason"),
    [
        (AttemptOutcome.FAILED, 3, "FAILED", "3:0", "NonZeroExitCode"),
        (AttemptOutcome.FAILED, -9, "FAILED", "0:9", "NonZeroExitCode"),
        (AttemptOutcome.FAILED, -53, "FAILED", "0:53", "NonZeroExitCode"),
        (AttemptOutcome.TIMEOUT, -15, "TIMEOUT", "0:0", "TimeLimit"),
        (AttemptOutcome.MEMORY, -9, "OUT_OF_MEMORY", "0:125", "OutOfMemory"),
    ],
)
def test_how_it_ended(machine: Machine, outcome, code, state, exit_code, reason):
    machine.submit([job()], 0.0)
    machine.place(10.0)
    end(machine, outcome, code)
    assert shown(machine, "TrR") == [(state, reason, f"({reason})")]
    assert told(machine, "State", "ExitCode")[0] == (state, exit_code)


def test_cancelled_and_lost(machine: Machine):
    machine.submit([job()], 0.0)
    machine.submit([job(requeue=False)], 0.0)
    machine.cancel([1], 1.0)
    machine.place(10.0)
    machine.leave("a", 20.0)
    assert [row[0] for row in shown(machine, "T")] == ["CANCELLED", "NODE_FAIL"]
    assert told(machine, "State", "Start", "NodeList")[0][::2] == ("CANCELLED by 7", "None assigned")


def test_tasks_of_an_array(machine: Machine):
    machine.submit([job()], 0.0)
    machine.submit(array(2), 0.0)
    assert shown(machine, "iFAK")[1:] == [
        ("5000000002_10", "5000000002", "5000000002", "10"),
        ("5000000002_12", "5000000002", "5000000003", "12"),
    ]
    assert told(machine, "JobID", "JobIDRaw")[1:] == [("5000000002_10", "5000000002"), ("5000000002_12", "5000000003")]


def test_what_a_job_waits_for_is_told_as_slurm_tells_it(machine: Machine):
    machine.submit(array(2), 0.0)
    machine.submit([job()], 0.0)
    first, one = 5000000001, 5000000003
    for kind, on, task in (("aftercorr", first, None), ("afterok", first, 12), ("afterok", one, None)):
        machine.submit([job(after=(AfterJob(kind, on, task),))], 0.0)
    assert [text for (text,) in shown(machine, "E")] == [
        "(null)", "(null)", "(null)",
        f"aftercorr:{first}_*(unfulfilled)", f"afterok:{first}_12(unfulfilled)", f"afterok:{one}(unfulfilled)",
    ]  # fmt: skip


def test_each_field_that_squeue_may_be_asked_for_has_a_text(machine: Machine):
    machine.submit([job()], 0.0)
    table = squeue_table(entries(machine), machine.queue, OWNER, 1.0)
    assert set(table.header) == {*LETTERS, *FURTHER} == set(table.rows[0])


def test_a_record_names_its_files(machine: Machine):
    machine.submit([job(stdout="o-%j", comment="c")], 0.0)
    text = record(machine.entries[1], machine.queue, OWNER, 1.0, line=False)
    assert text.startswith("JobId=5000000001 JobName=j\n   UserId=alice(7) GroupId=users(8)")
    assert "\n   StdOut=/home/a/o-5000000001\n" in text
    line = record(machine.entries[1], machine.queue, OWNER, 1.0, line=True)
    assert (line.count("\n"), line[-1]) == (1, "\n")
    assert line.split() == text.split()


def test_the_headings_are_those_of_a_recorded_squeue(machine: Machine):
    recorded = json.loads(gzip.decompress((FIXTURES / "shim" / "22.05.json.gz").read_bytes()))["looks"]["queue"]
    header = parse_table(recorded["text"], recorded["separator"], LETTERS).header
    assert squeue_table(entries(machine), machine.queue, OWNER, 1.0).header == {**header, **FURTHER}
