"""What users wrote reaches us as it is, and as nothing else."""

from contract_jobs import UNKNOWN_JOB, sleeper

from penstock.api import JobSpec

COMMENT = 'x\n77\x1froot\x1fRUNNING\x1fn[1-8] "é" \\ {"job_id": 1}'


async def test_texts_are_told_as_they_were_written(world):
    job = await world.backend.submit(sleeper(1, hold=True, name="named", comment=COMMENT))
    theirs = await world.other.submit(JobSpec("other", "#!/bin/sh\n", 1, 60.0, hold=True, workdir="/"))
    seen = await world.backend.texts([job, theirs, UNKNOWN_JOB])
    assert set(seen) == {job, theirs}
    assert (seen[job].job, seen[job].name, seen[job].comment, seen[job].workdir) == (job, "named", COMMENT, "/tmp")
    assert (seen[theirs].name, seen[theirs].comment, seen[theirs].workdir) == ("other", "", "/")
    assert await world.backend.texts([UNKNOWN_JOB]) == {}
    assert await world.backend.texts([]) == {}
    before = {j.id: j for j in await world.backend.jobs()}
    assert before[job].state == before[theirs].state and before[job].user == world.backend.whoami()
    await world.backend.cancel(job)
    await world.other.cancel(theirs)
