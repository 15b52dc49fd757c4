"""The contract of `limits` and `charges`, on worlds that hold their users to limits (`conftest._ENFORCING`)."""

import pytest

from penstock.api import Job, JobSpec, JobState, Limit, LimitHolder, Owner, OwnerLimits
from penstock.core.ownlimits import Extension, Growth, held, obstacle, owner_of
from penstock.errors import Infeasible

FOREVER = "#!/bin/sh\nsleep 600\n"


def spec(nodes, seconds=600.0, **more):
    return JobSpec("job", FOREVER, nodes, seconds, output="/dev/null", workdir="/tmp", **more)


def owner(backend, partition="batch", account="penstock", qos="normal"):
    return Owner(backend.whoami(), account, partition, qos)


async def of(backend, *owners) -> list[OwnerLimits]:
    return list(await backend.limits(list(owners)))


def limit(holder: LimitHolder, name: str, tres: str = "node") -> Limit:
    return next(one for one in holder.limits if (one.name, one.tres) == (name, tres))


def values(holder: LimitHolder) -> dict[str, float]:
    return {one.name: one.value for one in holder.limits}


async def start(world, backend, nodes) -> Job:
    return await world.until(await backend.submit(spec(nodes)), JobState.RUNNING)


def counted(world) -> None:
    """Skips the test where nobody says what is in use."""
    if not getattr(world, "counts", True):
        pytest.skip("NO REST: slurmrestd does not say what is in use of limits")


async def why_pending(world, job: int) -> str:
    said = []

    async def told():
        said[:] = [(await world.look(job)).reason]
        return said[0] not in ("None", "", "Priority")

    await world.settle(told)
    return said[0]


async def test_limits_of_qos_and_associations_in_the_order_that_counts(enforcing):
    assert "limits" in (await enforcing.backend.site()).enforced
    (known,) = await of(enforcing.backend, owner(enforcing.backend))
    assert known.owner == owner(enforcing.backend)
    assert known.associated is True and not known.unknown
    (qos,) = known.qos
    assert qos.name == "QOS normal" and not qos.unknown
    assert values(qos) == {"MaxWall": 3600.0, "MaxTRESPerJob": 3.0, "MaxTRESPerUser": 4.0}
    assert limit(qos, "MaxTRESPerUser").used == (0.0 if getattr(enforcing, "counts", True) else None)
    assert limit(qos, "MaxTRESPerJob").used is None
    own, account, root = known.associations
    assert values(own) == {"MaxTRESPerJob": 7.0}
    assert limit(account, "GrpTRES").value == 6.0
    assert limit(account, "GrpTRES").used == (0.0 if getattr(enforcing, "counts", True) else None)
    assert values(root) == {"GrpTRES": 100.0}
    assert known.partition is not None and known.partition.max_nodes is None


async def test_the_qos_of_a_partition_goes_before_that_of_the_job(enforcing):
    (known,) = await of(enforcing.backend, owner(enforcing.backend, "limited"))
    assert [holder.name for holder in known.qos] == ["QOS part", "QOS normal"]
    assert values(known.qos[0]) == {"MaxTRESPerJob": 2.0}
    assert known.partition.own_qos == "part"
    assert (known.partition.max_nodes, known.partition.max_time) == (5, 7200.0)


async def test_several_owners_are_answered_in_their_order(enforcing):
    asked = [owner(enforcing.other), owner(enforcing.backend, "limited"), owner(enforcing.backend)]
    assert [known.owner for known in await of(enforcing.admin, *asked)] == asked
    assert await of(enforcing.backend) == []


async def test_who_has_no_association_is_told_from_who_has(enforcing):
    mine, none = await of(enforcing.admin, owner(enforcing.backend), owner(enforcing.backend, account="root"))
    assert mine.associated is True
    assert none.associated is False and "no association" in none.unknown


async def test_a_partition_that_is_not_there(enforcing):
    (known,) = await of(enforcing.backend, owner(enforcing.backend, "nowhere"))
    assert known.partition is None and "nowhere" in known.unknown


async def test_what_is_used_is_counted_by_user_and_by_group(enforcing):
    counted(enforcing)
    job = await start(enforcing, enforcing.backend, 2)

    async def used():
        mine, others = await of(enforcing.admin, owner(enforcing.backend), owner(enforcing.other))
        per_user = [limit(known.qos[0], "MaxTRESPerUser").used for known in (mine, others)]
        groups = [limit(known.associations[1], "GrpTRES").used for known in (mine, others)]
        return per_user, groups

    assert await used() == ([2.0, 0.0], [2.0, 2.0])
    charged = await enforcing.backend.charges([job.id, 999_999])
    assert set(charged) == {job.id}
    assert charged[job.id]["node"] == 2.0 and charged[job.id]["cpu"] == job.num_cpus
    assert await enforcing.backend.charges([]) == {}
    await enforcing.backend.cancel(job.id)

    async def nothing():
        return await used() == ([0.0, 0.0], [0.0, 0.0])

    await enforcing.settle(nothing)


async def judged(world, job, wish):
    (known,) = await of(world.backend, owner_of(job))
    now = held(job, (), await world.backend.charges([job.id]), world.backend.now())
    reason = obstacle(known, now, wish, (await world.backend.site()).enforced)
    return None if reason is None else reason.code


async def test_more_than_a_job_may_have_is_refused_by_slurm_and_by_the_check(enforcing):
    counted(enforcing)
    job = await start(enforcing, enforcing.backend, 2)
    assert await judged(enforcing, job, Growth(1, 60.0)) is None
    assert await judged(enforcing, job, Growth(2, 60.0)) == "max-tres-per-job"
    assert await judged(enforcing, job, Extension(3600.0)) is None
    assert await judged(enforcing, job, Extension(3601.0)) == "max-wall"
    await enforcing.backend.cancel(job.id)
    wide = await enforcing.backend.submit(spec(4))
    assert await why_pending(enforcing, wide) in ("QOSMaxNodePerJobLimit", "MaxNodePerJobLimit")
    long = await enforcing.backend.submit(spec(1, 3660.0))
    assert "MaxWall" in await why_pending(enforcing, long)


async def test_more_than_a_user_may_have_is_refused_by_slurm_and_by_the_check(enforcing):
    counted(enforcing)
    first = await start(enforcing, enforcing.backend, 2)
    second = await start(enforcing, enforcing.backend, 1)
    assert await judged(enforcing, second, Growth(1, 60.0)) is None
    assert await judged(enforcing, second, Growth(2, 60.0)) == "max-tres-per-user"
    waits = await enforcing.backend.submit(spec(2))
    assert await why_pending(enforcing, waits) == "QOSMaxNodePerUserLimit"
    await enforcing.backend.cancel(first.id)
    await enforcing.until(waits, JobState.RUNNING)


async def test_more_than_a_group_may_have_is_refused_by_slurm_and_by_the_check(enforcing):
    counted(enforcing)
    job = await start(enforcing, enforcing.backend, 2)
    await start(enforcing, enforcing.other, 3)
    assert await judged(enforcing, job, Growth(1, 60.0)) is None
    await start(enforcing, enforcing.backend, 1)
    assert await judged(enforcing, job, Growth(1, 60.0)) == "grp-tres"
    waits = await enforcing.backend.submit(spec(1))
    assert await why_pending(enforcing, waits) == "AssocGrpNodeLimit"


async def test_only_who_has_an_association_may_submit(enforcing):
    with pytest.raises(Infeasible, match="Invalid account"):
        await enforcing.backend.submit(spec(1, account="root"))
