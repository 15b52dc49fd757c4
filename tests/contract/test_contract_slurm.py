"""What only a real Slurm can be asked: hostile names, broken controllers, hanging commands, things left behind."""

import asyncio
import os
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from penstock.api import Allocation, JobSpec, JobState, ReservationSpec
from penstock.errors import Infeasible, NotNow, SlurmUnavailable

pytestmark = pytest.mark.slurm

FORGED = "x\n77\x1froot\x1fRUNNING\x1fn[1-8]\n|77|0|root|@@|RUNNING|\n"


def held(**more):
    return JobSpec("job", "#!/bin/sh\ntrue\n", 1, 60.0, hold=True, output="/dev/null", workdir="/tmp", **more)


async def test_a_forged_name_is_never_a_row(real_world):
    cluster = real_world.cluster
    before = {j.id for j in await real_world.backend.jobs()}
    command = ["sbatch", "--parsable", "-H", "-N1", "-t1", "-J", FORGED, "--comment", FORGED, "--wrap", "true"]
    named = cluster.run_as("bob", command, check=True, cwd=None)
    # Root has no association here, so nothing checks the account that it names.
    billed = cluster.run_as("root", [*command, "-A", FORGED], check=True)
    jobs = {int(done.stdout) for done in (named, billed)}
    after = await real_world.backend.jobs()
    assert {j.id for j in after} - before == jobs
    assert {j.user for j in after if j.id in jobs} == {"pst-bob", "root"}
    assert all(j.state is JobState.PENDING and j.nodes == () for j in after if j.id in jobs)

    records = {}

    async def recorded():
        records.update({r.id: r for r in await real_world.backend.history(ids=jobs)})
        return set(records) == jobs

    await real_world.settle(recorded)
    assert {r.user for r in records.values()} == {"pst-bob", "root"}
    assert {r.state for r in records.values()} == {JobState.PENDING}


async def test_values_of_the_environment_arrive_as_they_are(real_world):
    values = {
        "PLAIN": "1",
        "COMMAS": "a,b=c,ALL,NONE",
        "LINES": "one\ntwo\n\nthree",
        "QUOTES": "\"$HOME\" 'x' \\ `id` é",
        "EMPTY": "",
        "SBATCH_EXCLUSIVE": "user",
        "LD_LIBRARY_PATH": "/nowhere",
    }
    out = real_world.cluster.home("alice") / "environment"
    script = f"#!/bin/sh\nexec /usr/bin/env -0 > {out}\n"
    spec = JobSpec("env", script, 1, 60.0, environment=values, output="/dev/null", workdir=str(out.parent))
    job = await real_world.backend.submit(spec)
    await real_world.until(job, JobState.COMPLETED)
    seen = dict(item.split("=", 1) for item in out.read_text().split("\0") if item)
    assert {key: seen.get(key) for key in values} == values
    assert (seen["SLURM_JOB_NAME"], seen["USER"], seen["PWD"]) == ("env", "pst-alice", str(out.parent))
    assert seen["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert not {"PYTEST_CURRENT_TEST", "LC_ALL", "SLURM_TIME_FORMAT"} & seen.keys()
    for bad in ({"A B": "1"}, {"A": "x\0y"}, {"1A": "x"}, {"A=B": "c"}):
        with pytest.raises(Infeasible):
            await real_world.backend.submit(JobSpec("env", script, 1, 60.0, environment=bad))


async def test_names_that_penstock_never_gives(real_world):
    for name in ("a,b", "", "a b", "a\nb", "--help", "é", "x" * 300):
        if name == "--help":
            continue  # harmless: it is always the value of an option
        with pytest.raises(Infeasible):
            await real_world.backend.find(name)
        with pytest.raises(Infeasible):
            await real_world.backend.submit(JobSpec(name, "#!/bin/sh\n", 1, 60.0))
        with pytest.raises(Infeasible):
            await real_world.backend.allocate(Allocation(name, 1, 60.0), 1.0)
    assert await real_world.backend.find("--help") == []


async def test_a_controller_that_is_down(real_world):
    backend = real_world.backend
    job = await backend.submit(held())
    real_world.cluster.stop_controller()
    started = time.monotonic()
    reads = (backend.jobs(), backend.nodes(), backend.partitions(), backend.site(), backend.find("x"), backend.steps(1))
    for error in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(error, SlurmUnavailable)
    changes = (backend.submit(held()), backend.release(job), backend.cancel(job), backend.update(job, time_limit=60.0))
    answers = await asyncio.gather(*changes, backend.allocate(Allocation("a", 1, 60.0), 1.0), return_exceptions=True)
    assert all(isinstance(error, NotNow) for error in answers), answers
    assert isinstance(answers[0], SlurmUnavailable)  # nothing was submitted, and that is known
    assert time.monotonic() - started < 60
    real_world.cluster.start_controller()

    async def back():
        try:
            return [j.id for j in await backend.jobs() if not j.state.ended] == [job]
        except SlurmUnavailable:
            return False

    await real_world.settle(back)


async def test_scontrol_leaves_no_files(slurm_world, monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_JOBID", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("SQUEUE_STATES", "FAILED")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    tmp_path.chmod(0o777)
    backend = slurm_world.backend_of("alice")
    job = await backend.submit(JobSpec("r", "#!/bin/sh\nsleep 60\n", 2, 120.0, output="/dev/null", workdir="/tmp"))
    seen = await slurm_world.until(job, JobState.RUNNING)
    await backend.shrink(job, seen.nodes[:1])
    assert len((await slurm_world.look(job)).nodes) == 1
    assert not list(tmp_path.iterdir())
    assert (backend.requests["scontrol update"], backend.requests["sbatch"]) == (1, 1)
    assert backend.seconds["sbatch"] > 0


def stub(folder, command, body):
    path = folder / command
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def around(folder, command, body):
    """A site's wrapper around one of Slurm's commands."""
    for place in (folder, *folder.parents[:2]):
        place.chmod(place.stat().st_mode | 0o055)
    stub(folder, command, body.replace("REAL", f'/usr/bin/{command} "$@"'))


async def test_banners_around_the_answers(slurm_world, tmp_path):
    plain = slurm_world.backend
    greeting = "echo Welcome to the cluster; echo load=1.5 7 users; REAL; code=$?; echo Bye; exit $code"
    for command in ("squeue", "scontrol", "sbatch", "sacct"):
        around(tmp_path, command, greeting)
    wrapped = slurm_world.backend_of("alice", environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert list(await wrapped.jobs()) == list(await plain.jobs())
    job = await wrapped.submit(held())
    await slurm_world.backend_of("operator").reserve(
        ReservationSpec("banner", time.time() + 600, 60.0, 1, users=("root",))
    )
    for look in ("jobs", "nodes", "partitions", "site", "reservations", "licenses"):
        assert await getattr(wrapped, look)() == await getattr(plain, look)()
    assert job in await wrapped.find("job") and await wrapped.steps(job) == []
    assert (await wrapped.estimate(held())).num_cpus == 2

    async def recorded():
        return [record.id for record in await wrapped.history(ids=[job])] == [job]

    await slurm_world.settle(recorded)
    await wrapped.hold(job)
    await wrapped.cancel(job)


@pytest.mark.parametrize("body", ["echo Welcome", "REAL | head -c -30", "REAL | tr -d @", "REAL; echo 12"])
async def test_half_an_answer_is_none(slurm_world, tmp_path, body):
    around(tmp_path, "squeue", body)
    await slurm_world.backend.submit(held())
    backend = slurm_world.backend_of("alice", environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    for read in (backend.jobs(), backend.find("x"), backend.steps(1)):
        with pytest.raises(SlurmUnavailable, match=r"heading|fields"):
            await read


async def test_what_only_real_slurm_refuses(slurm_world, tmp_path):
    """Users and accounts that are not there; and an estimate that depends on what is reserved or down."""
    admin = slurm_world.backend_of("operator")
    for who in ({"users": ("pst-nobody-here",)}, {"accounts": ("nowhere",)}, {"users": ("root,bin",)}):
        with pytest.raises(Infeasible):
            await admin.reserve(ReservationSpec("pst-r", time.time() + 600, 60.0, 1, **who))
    for message in ("Requested node configuration is not available", "Requested nodes are busy"):
        around(tmp_path, "sbatch", f"echo 'allocation failure: {message}' >&2; exit 1")
        backend = slurm_world.backend_of("alice", environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        with pytest.raises(NotNow, match=message):
            await backend.estimate(held())


async def test_a_command_that_hangs_is_killed_with_its_children(slurm_world, tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    mark = f"31{os.getpid()}"
    stub(tmp_path, "squeue", f"trap '' TERM INT; sleep {mark} & sleep {mark}")
    path = f"{tmp_path}:/usr/bin:/bin"
    backend = slurm_world.backend_of("alice", environment={"PATH": path}, timeout=0.5)
    started = time.monotonic()
    with pytest.raises(SlurmUnavailable, match=r"squeue gave no answer within 0\.5 s"):
        await backend.jobs()
    assert time.monotonic() - started < 15

    async def gone():
        return not [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]

    await slurm_world.settle(gone, deadline=15)
    await backend.close()


async def test_an_allocation_granted_with_the_last_breath_is_kept(slurm_world, tmp_path):
    """salloc is granted its nodes and told to stop at the same time."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    stub(tmp_path, "salloc", 'trap "exit 1" TERM\n/usr/bin/salloc "$@"\nsleep 60 &\nwait')
    backend = slurm_world.backend_of("alice", environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    job = await backend.allocate(Allocation("late", 1, 60.0), 10.0)
    assert (await slurm_world.look(job)).running
    assert await backend.find("late") == [job]


@pytest.mark.parametrize("free", [False, True])
async def test_a_request_whose_salloc_died_is_withdrawn_or_kept(slurm_world, tmp_path, free):
    """What salloc cannot do any more is done for it: nothing waits in the queue for nodes that nobody expects."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    real = 'setsid /usr/bin/salloc "$@" </dev/null >/dev/null 2>&1 &'
    stub(tmp_path, "salloc", f'{real}\ntrap "exit 1" TERM\nsleep 60 &\nwait')
    if not free:
        spec = JobSpec("all", "#!/bin/sh\nsleep 60\n", 8, 120.0, output="/dev/null", workdir="/tmp")
        await slurm_world.until(await slurm_world.backend.submit(spec), JobState.RUNNING)
    backend = slurm_world.backend_of("alice", environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    if free:
        job = await backend.allocate(Allocation("orphan", 1, 60.0), 10.0)
        assert (await slurm_world.look(job)).running
    else:
        with pytest.raises(NotNow):
            await backend.allocate(Allocation("orphan", 1, 60.0), 10.0)
        (job,) = await backend.find("orphan")
        assert (await slurm_world.look(job)).state.ended


async def test_a_signal_reaches_the_script_and_none_of_its_programs(real_world):
    folder = Path(tempfile.mkdtemp(prefix="pst-c-"))
    folder.chmod(0o777)
    said = folder / "said"
    script = f"""#!/bin/bash
trap 'echo script >> {said}' USR1
(trap 'echo program >> {said}' USR1; while sleep 0.2; do :; done) &
echo ready >> {said}
while sleep 0.2; do :; done
"""
    backend = real_world.backend
    job = await backend.submit(JobSpec("trap", script, 1, 600.0, output="/dev/null", workdir="/tmp"))

    async def listens():
        return said.exists()

    await real_world.settle(listens)
    await backend.signal(job, signal.SIGUSR1)

    async def heard():
        return "script" in said.read_text()

    await real_world.settle(heard)
    assert said.read_text().split() == ["ready", "script"]
    await backend.cancel(job)
    shutil.rmtree(folder)
