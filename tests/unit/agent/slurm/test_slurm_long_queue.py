"""A queue of 100,000 jobs: read whole, beside the loop, in memory that can be afforded."""

import asyncio

from penstock.slurm import records
from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import CommandResult

JOBS = 100_000
VALUES = {
    "UserID": "1001", "UserName": "alice", "Account": "physics", "Partition": "batch", "QOS": "normal",
    "State": "PENDING", "Reason": "Priority", "SubmitTime": "1700000000", "EligibleTime": "1700000000",
    "StartTime": "N/A", "EndTime": "N/A", "TimeLimit": "1-00:00:00", "NumNodes": "4", "NumCPUs": "8",
    "NodeList": "", "PriorityLong": "4294901757", "Dependency": "(null)", "BatchHost": "n/a",
}  # fmt: skip


def answer(mark):
    row = [VALUES.get(field, "0") for field in records.JOB_FIELDS[1:]]
    rest = mark.join(row) + mark + "\n"
    heading = mark.join(field.upper() for field in records.JOB_FIELDS) + mark + "\n"
    return heading + "".join(f"{number}{mark}{rest}" for number in range(1, JOBS + 1))


def test_a_queue_of_100_000_jobs():
    backend = CliBackend()
    asked = []

    async def run(argv, extra=None, **_):
        asked.append(argv[0])
        return CommandResult(0, answer(extra["SQUEUE_FORMAT2"].split(":", 1)[1].split(",")[0]), "")

    backend._runner.run = run

    async def look_while_the_loop_lives():
        look, beats = asyncio.ensure_future(backend.jobs()), 0
        while not look.done():
            await asyncio.sleep(0.01)
            beats += 1
        return await look, beats

    jobs, beats = asyncio.run(look_while_the_loop_lives())
    assert beats > 5, "the queue is read beside the loop"
    assert asked == ["squeue"]
    assert [job.id for job in jobs] == list(range(1, JOBS + 1))
    assert {job.time_limit for job in jobs} == {86400.0}
    assert len({id(job.user) for job in jobs}) == 1, "texts that repeat are kept once"
