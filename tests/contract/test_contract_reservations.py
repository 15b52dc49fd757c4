"""What a backend guarantees of reservations and licences (`penstock.slurm.base`)."""

import pytest
from contract_jobs import COMPLETED, NODES, RUNNING, running, sleeper

from penstock.api import License, Reservation, ReservationSpec
from penstock.errors import Infeasible, NotNow, NotPermitted


def wanted(world, name="pst-r1", start=3600.0, duration=600.0, nodes=2, **more):
    more.setdefault("users", (world.backend.whoami(),))
    return ReservationSpec(name, world.backend.now() + start, duration, nodes, **more)


async def test_a_reservation_is_made_seen_and_deleted(world):
    assert list(await world.backend.reservations()) == []
    (partition,) = await world.backend.partitions()
    spec = wanted(world, duration=61.0, users=(world.backend.whoami(), world.other.whoami()))
    made = await world.admin.reserve(spec)
    assert made.start == pytest.approx(spec.start, abs=1) and made.end == made.start + 120  # whole minutes, rounded up
    assert len(made.nodes) == 2 and set(made.nodes) <= set(NODES)
    who = frozenset({world.backend.whoami(), world.other.whoami()})
    begin, end = made.start, made.end
    assert made == Reservation("pst-r1", begin, end, made.nodes, who, frozenset(), frozenset(), False, partition.name)
    assert list(await world.other.reservations()) == [made]
    with pytest.raises(Infeasible):
        await world.admin.reserve(spec)
    with pytest.raises(NotPermitted):
        await world.backend.unreserve("pst-r1")
    assert list(await world.backend.reservations()) == [made]
    await world.admin.unreserve("pst-r1")
    await world.admin.unreserve("pst-r1")
    assert list(await world.backend.reservations()) == []


async def test_what_cannot_be_reserved(world):
    with pytest.raises(NotPermitted):
        await world.backend.reserve(wanted(world))
    for spec in (
        wanted(world, nodes=9),
        wanted(world, nodes=0),
        wanted(world, duration=0.0),
        wanted(world, users=()),
        wanted(world, partition="nowhere"),
        wanted(world, start=-86400.0),
        wanted(world, flags=("NONSENSE",)),
    ):
        with pytest.raises(Infeasible):
            await world.admin.reserve(spec)
    assert list(await world.backend.reservations()) == []


async def test_running_jobs_and_reservations_keep_nodes_from_a_reservation(world):
    job = await running(world, nodes=7)
    waiting = await world.backend.submit(sleeper(nodes=8))
    with pytest.raises(NotNow) as caught:
        await world.admin.reserve(wanted(world, start=0.0))
    assert not isinstance(caught.value, Infeasible)
    later = await world.admin.reserve(wanted(world, nodes=6))  # when the job's time limit is over
    with pytest.raises(NotNow):
        await world.admin.reserve(wanted(world, "pst-r2", nodes=3))
    beside = await world.admin.reserve(wanted(world, "pst-r2"))
    assert not set(beside.nodes) & set(later.nodes)
    assert (await world.look(job)).running and (await world.look(waiting)).pending


async def test_jobs_in_a_reservation(world):
    made = await world.admin.reserve(wanted(world, start=0.0, flags=("PURGE_COMP=10",)))
    assert made.active and len(made.flags) == 1
    await world.admin.reserve(wanted(world, "pst-r2"))
    with pytest.raises(NotPermitted):
        await world.other.submit(sleeper(reservation="pst-r1"))
    with pytest.raises(Infeasible):
        await world.backend.submit(sleeper(reservation="pst-none"))
    outside = await world.other.submit(sleeper(nodes=7))
    early = await world.backend.submit(sleeper(reservation="pst-r2"))
    job = await running(world, nodes=2, reservation="pst-r1", time_limit=1200.0)
    seen = await world.look(job)
    assert seen.end == pytest.approx(seen.start + 1200, abs=1), "not the reservation's end, which will end it"
    assert set(seen.nodes) == set(made.nodes) and seen.reservation == "pst-r1"
    assert (await world.look(outside)).pending and (await world.look(outside)).reservation == ""

    async def waits():
        return (await world.look(early)).reason == "Reservation"

    await world.settle(waits)
    assert (await world.look(early)).reservation == "pst-r2"
    for name in ("pst-r1", "pst-r2"):
        with pytest.raises(NotNow):
            await world.admin.unreserve(name)
    for spent in (job, early):
        await world.backend.cancel(spent)

    async def deleted():
        try:
            await world.admin.unreserve("pst-r1")
            await world.admin.unreserve("pst-r2")
        except NotNow:
            return False
        return True

    await world.settle(deleted)
    await world.until(outside, RUNNING)


async def test_a_waiting_job_is_put_into_a_reservation_and_out_of_it(world):
    backend = world.backend
    blocker = await running(world, nodes=8)
    job = await backend.submit(sleeper(1))
    child = await backend.submit(sleeper(1, dependency=f"afterok:{job}"))
    first = await world.admin.reserve(wanted(world, "pst-r1", start=3600.0))
    await world.admin.reserve(wanted(world, "pst-r2", start=4800.0, users=(world.other.whoami(),)))
    await backend.update(job, reservation=first.name)
    assert (await world.look(job)).reservation == "pst-r1"
    with pytest.raises(NotPermitted):
        await backend.update(job, reservation="pst-r2")  # which is somebody else's
    with pytest.raises(Infeasible):
        await backend.update(job, reservation="pst-r3")
    with pytest.raises(NotPermitted):
        await world.other.update(job, reservation="pst-r2")
    with pytest.raises(Infeasible):
        await backend.update(blocker, reservation=first.name)
    await backend.update(child, reservation=first.name)  # one that depends on another, too
    assert (await world.look(child)).reservation == "pst-r1"
    with pytest.raises(NotNow):
        await world.admin.unreserve("pst-r1")
    for number in (job, child):
        await backend.update(number, reservation="")
        assert (await world.look(number)).reservation == ""
    await world.admin.unreserve("pst-r1")
    await backend.cancel(blocker)
    await world.until(job, COMPLETED)


async def test_a_reservation_is_moved_with_the_jobs_that_wait_for_it(world):
    blocker = await running(world, nodes=2)
    made = await world.admin.reserve(wanted(world, "pst-r1", start=3600.0))
    other = await world.admin.reserve(wanted(world, "pst-r2", start=7200.0, users=(world.other.whoami(),)))
    job = await world.backend.submit(sleeper(1, nodes=2, reservation="pst-r1"))
    start = made.start - 300
    moved = await world.admin.move_reservation("pst-r1", start, 600.0, made.nodes)  # it overlaps with itself
    assert (moved.start, moved.end, set(moved.nodes)) == (start, start + 600, set(made.nodes))
    busy = (await world.look(blocker)).nodes
    for when, where in ((other.start, other.nodes), (world.backend.now() + 60, busy)):
        with pytest.raises(NotNow):
            await world.admin.move_reservation("pst-r1", when, 600.0, where)
    assert moved in await world.backend.reservations(), "as it was"
    with pytest.raises(NotPermitted):
        await world.backend.move_reservation("pst-r1", start, 600.0, made.nodes)
    with pytest.raises(Infeasible):
        await world.admin.move_reservation("pst-r3", start, 600.0, made.nodes)
    assert (await world.look(job)).reservation == "pst-r1" and (await world.look(job)).pending
    free = [node for node in NODES if node not in busy][:2]
    soon = await world.admin.move_reservation("pst-r1", world.backend.now() + 2, 600.0, free)
    assert set(soon.nodes) == set(free)
    seen = await world.until(job, COMPLETED)
    assert set(seen.nodes) == set(free) and seen.start >= soon.start - 1
    with pytest.raises(Infeasible):
        await world.admin.move_reservation("pst-r1", start, 600.0, made.nodes)  # it has begun
    await world.backend.cancel(blocker)
    await world.admin.unreserve("pst-r2")


async def test_a_flex_job_may_be_wider_than_its_reservation_and_begin_before_it(world):
    await world.admin.reserve(wanted(world, flags=("FLEX",)))
    job = await running(world, nodes=4, reservation="pst-r1", time_limit=7200.0)
    assert len((await world.look(job)).nodes) == 4
    await world.backend.cancel(job)
    with pytest.raises(Infeasible):
        await world.backend.submit(sleeper(nodes=9, reservation="pst-r1"))


async def test_licenses_are_counted_and_waited_for(world):
    assert list(await world.backend.licenses()) == [License("matlab", 4, 0, 0)]
    job = await running(world, licenses="matlab:3", comment="three of them")
    assert list(await world.other.licenses()) == [License("matlab", 4, 3, 0)]
    second = await world.backend.submit(sleeper(licenses="matlab:2"))

    async def waits():
        return (await world.look(second)).reason == "Licenses"

    await world.settle(waits)
    for licenses in ("matlab:5", "unheard-of:1"):
        with pytest.raises(Infeasible):
            await world.backend.submit(sleeper(licenses=licenses))
    await world.backend.cancel(job)
    await world.until(second, RUNNING)
    assert list(await world.backend.licenses()) == [License("matlab", 4, 2, 0)]
