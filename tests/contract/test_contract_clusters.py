"""What a backend guarantees of the other clusters of its site: `clusters` and `on` (`penstock.slurm.base`).

`several` is a world whose site has a second cluster of two nodes, `far`, that `world.far` and `world.far_other` look at
through `on`.
"""

import asyncio
import os
import signal

import pytest
from contract_jobs import CANCELLED, COMPLETED, RUNNING, UNKNOWN_JOB, finished, mergeable, running, sleeper

from penstock.api import Allocation
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted, SlurmUnavailable
from penstock.slurm.cli import CliBackend


async def test_every_cluster_is_named(several):
    near = (await several.backend.site()).cluster
    assert near != "far"
    for backend in (several.backend, several.far.backend):
        assert list(await backend.clusters()) == sorted(["far", near])
        assert (await backend.on("far").site()).cluster == "far"
        assert (await backend.on(near).site()).cluster == near


async def test_each_shows_its_own_nodes_and_jobs(several):
    far = await running(several.far, nodes=2)
    near = await several.backend.submit(sleeper(hold=True))
    assert sorted(n.name for n in await several.far.backend.nodes()) == ["n1", "n2"]
    assert len(await several.backend.nodes()) == 8
    (partition,) = await several.far.backend.partitions()
    assert sorted(partition.nodes) == ["n1", "n2"]
    assert [j.id for j in await several.far.backend.jobs() if not j.state.ended] == [far]
    assert [j.id for j in await several.backend.jobs() if not j.state.ended] == [near]
    assert all(step.job == far for step in await several.far.backend.steps(far))
    assert several.far.backend.whoami() == several.backend.whoami()
    theirs = next(j for j in await several.far.other.jobs() if j.id == far)
    assert (theirs.user, theirs.nodes) == (several.backend.whoami(), ("n1", "n2"))


async def test_a_job_of_the_other_cluster_from_start_to_end(several):
    job = await several.far.backend.submit(sleeper(1, exit_code=3, name="far-1", hold=True))
    assert await several.far.backend.find("far-1") == [job]
    assert await several.backend.find("far-1") == []
    await several.far.backend.update(job, time_limit=300.0)
    assert (await several.far.look(job)).time_limit == 300.0
    await several.far.backend.release(job)
    (record,) = await finished(several.far, job)
    assert (record.id, record.exit_code, record.name) == (job, 3, "far-1")
    assert [r.id for r in await several.far.backend.history(name="far-1", since=record.submit - 1)] == [job]
    assert await several.backend.history(name="far-1", since=record.submit - 1) == []


async def test_a_job_of_the_other_cluster_is_cancelled(several):
    job = await running(several.far)
    with pytest.raises(NotPermitted):
        await several.far.other.cancel(job)
    await several.far.backend.cancel(job)
    await several.far.until(job, CANCELLED)
    await several.far.backend.cancel(job)
    with pytest.raises(NotFound):
        await several.far.backend.cancel(UNKNOWN_JOB)


async def test_an_id_that_both_have_means_the_cluster_it_is_asked_of(several):
    """Each cluster counts for itself, so the same id is two jobs."""
    near = far = 0
    while near != far or not near:  # the one that is behind catches up
        if near <= far:
            near = await several.backend.submit(sleeper(hold=True, name="near-2", time_limit=60.0))
        else:
            far = await several.far.backend.submit(sleeper(hold=True, name="far-2", time_limit=120.0))
    await several.far.backend.cancel(far)
    await several.far.until(far, CANCELLED)
    seen = await several.look(near)
    assert (seen.state.ended, seen.time_limit) == (False, 60.0)
    await several.backend.update(near, time_limit=180.0)
    assert (await several.far.look(far)).time_limit == 120.0
    (record,) = await finished(several.far, far)
    assert (record.name, record.state) == ("far-2", CANCELLED)

    async def recorded():
        return [r.name for r in await several.backend.history(ids=[near])] == ["near-2"]

    await several.settle(recorded)


async def test_a_job_of_the_other_cluster_grows_and_shrinks(several):
    await mergeable(several.far)
    job = await running(several.far, nodes=1)
    before = (await several.far.look(job)).nodes
    resizer = await several.far.backend.allocate(Allocation("far-resize", 1, 600.0, expands=job), 10.0)
    await several.far.backend.merge(resizer, job)
    assert (await several.far.look(job)).nodes == ("n1", "n2")
    await several.far.backend.shrink(job, before)
    seen = await several.far.look(job)
    assert (seen.nodes, seen.state) == (before, RUNNING)
    assert await several.far.backend.find("far-resize") == [resizer]
    assert await several.backend.find("far-resize") == []


async def test_sizes_are_those_of_the_cluster_asked(several):
    await several.backend.partitions()
    with pytest.raises(Infeasible):
        await several.far.backend.submit(sleeper(nodes=3))
    job = await several.backend.submit(sleeper(1, nodes=3))
    await several.until(job, COMPLETED)


async def test_a_cluster_that_is_not_there(several):
    for name in ("nosuch", "all", "", "far,far", "-M"):
        with pytest.raises(NotFound):
            await several.backend.on(name).jobs()
    nowhere = several.backend.on
    calls = (
        nowhere("nosuch").site(),
        nowhere("nosuch").nodes(),
        nowhere("nosuch").partitions(),
        nowhere("nosuch").steps(1),
        nowhere("nosuch").find("x"),
        nowhere("nosuch").history(ids=[1]),
        nowhere("nosuch").history(name="x"),
        nowhere("nosuch").submit(sleeper()),
        nowhere("nosuch").allocate(Allocation("x", 1, 60.0), 1.0),
        nowhere("nosuch").merge(1, 2),
        nowhere("nosuch").shrink(1, ["n1"]),
        nowhere("nosuch").cancel(1),
        nowhere("nosuch").release(1),
        nowhere("nosuch").update(1, time_limit=60.0),
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers if not isinstance(answer, NotFound)] == [], answers


async def test_a_site_without_accounting_has_one_cluster(slurm_world, tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    cluster = slurm_world.cluster
    with_accounting = (cluster.folder / "etc" / "slurm.conf").read_text()
    conf = tmp_path / "slurm.conf"
    conf.write_text(with_accounting.replace("accounting_storage/slurmdbd", "accounting_storage/none"))
    backend = CliBackend(prefix=cluster.prefix("alice"), user=cluster.user("alice").name, slurm_conf=str(conf))
    assert list(await backend.clusters()) == [cluster.name]
    assert len(await backend.on(cluster.name).nodes()) == 8


async def test_a_cluster_whose_controller_is_down(slurm_several):
    """One that ended has taken its leave of accounting, one that was killed has not, and is tried."""
    several, far = slurm_several, slurm_several.far
    near = (await several.backend.site()).cluster
    job = await far.backend.submit(sleeper(hold=True))
    impatient = several.backend_of("alice", timeout=2.0).on("far")
    for end in (signal.SIGTERM, signal.SIGKILL):
        if end is signal.SIGTERM:
            far.cluster.stop_controller()
        else:
            os.kill(far.cluster.daemons.state.processes["slurmctld"].pid, end)
        reads = (impatient.jobs(), impatient.nodes(), impatient.site(), impatient.find("x"), impatient.steps(1))
        changes = (impatient.submit(sleeper()), impatient.cancel(job), impatient.update(job, time_limit=60.0))
        answers = await asyncio.gather(*reads, *changes, return_exceptions=True)
        assert all(isinstance(answer, SlurmUnavailable) for answer in answers[: len(reads)]), answers
        assert all(isinstance(answer, NotNow) for answer in answers), answers
        assert list(await several.backend.clusters()) == sorted(["far", near])
        assert not [j for j in await several.backend.jobs() if not j.state.ended]
        far.cluster.start_controller()
    assert [j.id for j in await far.backend.jobs() if not j.state.ended] == [job]
