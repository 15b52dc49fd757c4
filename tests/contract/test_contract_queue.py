"""What a backend guarantees of jobs in the queue: estimates, hold, requeue, update, dependencies, hostile names."""

import signal
from datetime import datetime, timedelta

import pytest
from contract_jobs import CANCELLED, COMPLETED, NODES, PENDING, RUNNING, UNKNOWN_JOB, running, sleeper

from penstock.api import FAR, Allocation, JobSpec
from penstock.errors import Infeasible, NotFound, NotPermitted

LONG_ON_SLURM = ["mock", pytest.param(None, id="slurm", marks=[pytest.mark.slurm, pytest.mark.long])]
FORGED = "x\n77\x1froot\x1fRUNNING\x1fn[1-8]"


# -- estimates ---------------------------------------------------------------------------------------------------


async def test_estimates_of_a_start(world):
    backend = world.backend
    (partition,) = await backend.partitions()
    soon = await backend.estimate(sleeper(nodes=2, name="never"))
    now = backend.now()
    assert soon.start <= now + 65  # some releases name the end of the minute after a change in the queue
    assert (len(set(soon.nodes)), soon.num_cpus, soon.partition) == (2, 4, partition.name)
    assert set(soon.nodes) <= set(NODES)
    assert (await backend.estimate(sleeper(begin="now+3600"))).start == pytest.approx(now + 3600, abs=60)
    for spec in (
        sleeper(nodes=9),
        sleeper(partition="nowhere"),
        sleeper(reservation="pst-none"),
        sleeper(licenses="matlab:5"),
        JobSpec("job", "no shebang", 1, 60.0),
    ):
        with pytest.raises(Infeasible):
            await backend.estimate(spec)
    assert await backend.find("never") == []

    end = (await world.look(await running(world, nodes=8, time_limit=1200.0))).end
    assert (await backend.estimate(sleeper())).start == pytest.approx(end, abs=65)
    waiting = await backend.submit(sleeper())

    async def planned():
        return (await world.look(waiting)).start is not None

    await world.settle(planned)
    assert (await world.look(waiting)).start == pytest.approx(end, abs=65)


async def test_fair_shares_by_account(world):
    shares = await world.backend.shares()
    assert all(account and 0 <= factor <= 1 for account, factor in shares.items())


# -- certain nodes -----------------------------------------------------------------------------------------------


async def test_a_job_waits_for_a_certain_node_and_is_eligible_meanwhile(world):
    backend = world.backend
    holder = await running(world, nodes=2, time_limit=1200.0)
    first, second = (await world.look(holder)).nodes
    end = (await world.look(holder)).end
    assert (await backend.estimate(sleeper(nodelist=(second,)))).start == pytest.approx(end, abs=65)
    with pytest.raises(Infeasible):
        await backend.estimate(sleeper(nodelist=(second,), exclude=(second,)))
    job = await backend.submit(sleeper(600, nodes=2, nodelist=(second,)))

    async def planned():
        return (await world.look(job)).start is not None

    await world.settle(planned)
    seen = await world.look(job)
    assert seen.pending and seen.eligible is not None, "six nodes are free, but not that one"
    assert seen.start == pytest.approx((await world.look(holder)).end, abs=65)
    not_there = (first, second, *[name for name in NODES if name not in (first, second)][:2])
    elsewhere = await backend.submit(sleeper(600, nodes=2, exclude=not_there))
    assert set((await world.until(elsewhere, RUNNING)).nodes).isdisjoint(not_there)
    await backend.update(job, nodelist=())
    assert second not in (await world.until(job, RUNNING)).nodes
    other = await backend.submit(sleeper(600, nodelist=(second,)))
    await backend.cancel(holder)
    assert (await world.until(other, RUNNING)).nodes == (second,)
    with pytest.raises(Infeasible):
        await backend.update(other, nodelist=(first,))
    with pytest.raises(Infeasible):
        await backend.submit(sleeper(nodelist=("nowhere",)))


# -- changing ----------------------------------------------------------------------------------------------------


async def test_hold(world):
    backend = world.backend
    runs = await running(world)
    ended = await backend.submit(sleeper(1))
    job = await backend.submit(sleeper(nodes=8))
    await backend.hold(job)
    await backend.hold(job)
    seen = await world.look(job)
    assert (seen.state, seen.priority) == (PENDING, 0)
    with pytest.raises(NotPermitted):
        await world.other.hold(job)
    await backend.release(job)

    async def eligible():
        return (await world.look(job)).eligible is not None

    await world.settle(eligible)
    assert (await world.look(job)).priority > 0
    await world.admin.hold(job)
    with pytest.raises(NotPermitted):
        await backend.release(job)
    await world.admin.release(job)
    assert (await world.look(job)).priority > 0
    before = await world.look(runs)
    await world.until(ended, COMPLETED)
    for number, error in ((runs, Infeasible), (ended, Infeasible), (UNKNOWN_JOB, NotFound)):
        with pytest.raises(error):
            await backend.hold(number)
    assert await world.look(runs) == before


async def test_whose_hold_it_is(world):
    backend = world.backend
    job = await backend.submit(sleeper(hold=True))
    with pytest.raises(Infeasible):
        await world.admin.update(job, priority=777_777)
    assert (await world.look(job)).priority == 0
    await world.admin.hold(job)
    with pytest.raises(NotPermitted):
        await backend.release(job)
    await backend.hold(job)
    await backend.update(job, priority=0)
    with pytest.raises(NotPermitted):
        await backend.release(job)
    assert (await world.look(job)).priority == 0


async def test_a_begin_time_is_brought_forward_without_touching_a_hold(world):
    """By the owner and by an operator; what holds was put on before, by either."""
    backend = world.backend
    blocker = await running(world, nodes=8)
    free = await backend.submit(sleeper(1, begin=FAR))
    tied = await backend.submit(sleeper(1, begin=FAR, dependency=f"afterok:{blocker}"))
    array = await backend.submit(sleeper(1, begin=FAR, array="1-3"))
    for job in (free, tied, array):
        seen = await world.look(job)
        assert (seen.pending, seen.put_off, seen.held) == (True, True, False)
    await world.admin.hold(free)
    await backend.hold(tied)
    await world.admin.hold(array)
    seen = await world.look(free)
    assert (seen.put_off, seen.held, seen.reason) == (True, True, "JobHeldAdmin")
    with pytest.raises(NotPermitted):
        await world.other.update(free, begin="now", reset_age=True)
    await backend.update(free, begin="now", reset_age=True)
    await world.admin.update(tied, begin="now", reset_age=True)
    await world.admin.update(array, begin="now", reset_age=True)
    for job, reason in ((free, "JobHeldAdmin"), (tied, "JobHeldUser"), (array, "JobHeldAdmin")):
        seen = await world.look(job)
        assert (seen.pending, seen.put_off, seen.held, seen.reason) == (True, False, True, reason)
    await backend.cancel(blocker)
    await world.advance(2)
    assert all([(await world.look(job)).held for job in (free, tied, array)])
    await world.admin.release(free)
    await world.admin.release(array)
    await world.until(free, COMPLETED)
    with pytest.raises(Infeasible):
        await backend.update(await running(world), reset_age=True)


async def test_what_lets_a_job_go_of_an_operator_lets_go_an_administrators_hold(world):
    """The reason why nothing is kept back by a hold that somebody else releases."""
    job = await world.backend.submit(sleeper(1, hold=True))
    await world.admin.hold(job)
    assert (await world.look(job)).reason == "JobHeldAdmin"
    await world.admin.release(job)
    await world.until(job, COMPLETED)


async def test_accounting_lists_no_job_that_was_never_eligible(world):
    backend = world.backend
    since = backend.now() - 60
    held = await backend.submit(sleeper(hold=True, name="held"))
    late = await backend.submit(sleeper(begin="now+3600", name="held"))
    ran = await backend.submit(sleeper(1, name="held"))
    await world.until(ran, COMPLETED)

    async def listed():
        return [r.id for r in await backend.history(name="held", since=since)]

    async def recorded():
        return ran in await listed() and len(await backend.history(ids=[held, late])) == 2

    await world.settle(recorded)
    assert await listed() == [ran]
    await backend.cancel(held)
    await world.advance(2)
    assert await listed() == [ran]


async def test_requeue(world):
    backend = world.backend
    job = await running(world, requeue=True)
    final = await running(world)
    ended = await backend.submit(sleeper(1, requeue=True))
    bare = await backend.allocate(Allocation("bare", 1, 600.0), 10.0)
    held = await backend.submit(sleeper(hold=True))
    await world.until(ended, COMPLETED)
    for number, error in ((final, Infeasible), (held, Infeasible), (bare, Infeasible), (UNKNOWN_JOB, NotFound)):
        with pytest.raises(error):
            await backend.requeue(number)
    with pytest.raises(NotPermitted):
        await world.other.requeue(job)
    assert (await world.look(job)).running and (await world.look(final)).running
    asked = backend.now()
    for number in (job, ended):
        await backend.requeue(number)
        seen = await world.until(number, PENDING)
        assert (seen.restarts, seen.nodes) == (1, ())
        assert seen.eligible >= asked + 100  # until the credential of its first run is void
        await backend.requeue(number)
        assert (await world.look(number)).restarts == 1
    assert (await world.look(final)).restarts == 0


async def test_what_can_be_changed_of_a_waiting_job(world):
    backend = world.backend
    blocker = await running(world, nodes=8)
    job = await backend.submit(sleeper(1, nodes=2))
    await backend.update(job, begin="now+3600")
    seen = await world.look(job)
    assert seen.pending and seen.eligible == pytest.approx(backend.now() + 3600, abs=10)
    await backend.update(job, begin="now")
    assert (await world.look(job)).eligible <= backend.now() + 1
    await backend.update(job, time_limit=1200.0)  # a job that waits may be made longer by its user
    await world.admin.update(job, priority=777_777)
    assert ((await world.look(job)).priority, (await world.look(job)).time_limit) == (777_777, 1200.0)
    await backend.update(job, priority=5)
    assert (await world.look(job)).priority == 5
    with pytest.raises(NotPermitted):
        await backend.update(job, priority=6_000_000)
    await backend.update(job, dependency=f"afterany:{blocker}")

    async def not_eligible():
        return (await world.look(job)).eligible is None

    await world.settle(not_eligible)
    for change in ({"dependency": f"afterok:{job}"}, {"dependency": "after:what"}, {"begin": "whenever"}):
        with pytest.raises(Infeasible):
            await backend.update(job, **change)
    assert f"afterany:{blocker}" in (await world.look(job)).dependency
    child = await backend.submit(sleeper(1, dependency=f"afterok:{job}"))
    with pytest.raises(Infeasible):
        await backend.update(job, dependency=f"afterok:{child}")  # a circle
    await backend.update(job, dependency="")
    assert (await world.look(job)).dependency == ""


async def test_a_waiting_job_may_ask_for_another_number_of_nodes(world):
    backend = world.backend
    blocker = await running(world, nodes=8)
    job = await backend.submit(sleeper(300, nodes=1))
    range_ = await backend.submit(sleeper(300, nodes=6, min_nodes=2))
    fewer = await backend.submit(sleeper(300, nodes=4, cpus="2"))
    before = await world.look(job)
    await backend.update(job, nodes=3, time_limit=7200.0)
    seen = await world.look(job)
    assert (seen.num_nodes, seen.least_nodes, seen.time_limit) == (3, 3, 7200.0)
    assert (seen.submit, seen.eligible) == (before.submit, before.eligible)
    await backend.update(range_, nodes=2)
    await backend.update(fewer, nodes=3)
    assert ((await world.look(range_)).num_nodes, (await world.look(range_)).least_nodes) == (2, 2)
    with pytest.raises(NotPermitted):
        await world.other.update(job, nodes=2)
    with pytest.raises(NotFound):
        await backend.update(UNKNOWN_JOB, nodes=2)
    with pytest.raises(Infeasible):
        await backend.update(blocker, nodes=2)
    for many in (0, 9):
        with pytest.raises(Infeasible):
            await backend.update(job, nodes=many)
    assert (await world.look(job)).num_nodes == 3
    await backend.update(job, nodes=2, time_limit=600.0)
    await backend.cancel(blocker)
    for number, count in ((job, 2), (range_, 2), (fewer, 3)):
        assert len((await world.until(number, RUNNING)).nodes) == count
    with pytest.raises(Infeasible):
        await backend.update(job, nodes=3)


async def test_a_job_that_was_put_back_starts_with_another_number_of_nodes(world):
    backend = world.backend
    job = await running(world, nodes=4, requeue=True)
    await backend.requeue(job)
    await world.until(job, PENDING)
    await backend.update(job, nodes=2, time_limit=1200.0)
    # Not at once: on a node that holds the credential of its first run for revoked Slurm would end it.
    await backend.update(job, begin="now+5")
    seen = await world.until(job, RUNNING)
    assert (len(seen.nodes), seen.time_limit, seen.restarts) == (2, 1200.0, 1)


async def test_who_takes_a_signal(world):
    backend = world.backend
    waiting = await backend.submit(sleeper(hold=True))
    job = await running(world)
    bare = await backend.allocate(Allocation("bare", 1, 600.0), 10.0)
    for number, error in ((waiting, Infeasible), (bare, Infeasible), (UNKNOWN_JOB, NotFound)):
        with pytest.raises(error):
            await backend.signal(number, signal.SIGUSR1)
    with pytest.raises(NotPermitted):
        await world.other.signal(job, signal.SIGUSR1)
    await backend.signal(job, signal.SIGWINCH)  # which nobody minds
    assert (await world.look(job)).running


async def test_what_can_be_changed_of_a_running_job(world):
    backend = world.backend
    job = await running(world, time_limit=1200.0)
    held = await backend.submit(sleeper(hold=True))
    await backend.update(job, time_limit=600.0)
    with pytest.raises(NotPermitted):
        await backend.update(job, time_limit=900.0)
    for change in ({"dependency": f"afterok:{held}"}, {"begin": "now+60"}):
        with pytest.raises(Infeasible):
            await backend.update(job, **change)
    seen = await world.look(job)
    assert (seen.state, seen.time_limit, seen.end) == (RUNNING, 600.0, pytest.approx(seen.start + 600, abs=1))
    await world.admin.update(job, time_limit=1800.0)
    assert (await world.look(job)).time_limit == 1800.0


async def test_forms_of_a_begin_time(world):
    backend = world.backend
    midnight = datetime.fromtimestamp(backend.now()).replace(hour=0, minute=0, second=0, microsecond=0)
    for text, expected in (
        ("now+1minute", backend.now() + 60),
        ("now+1hour", backend.now() + 3600),
        ("now+2days", backend.now() + 2 * 86400),
        ("now+1week", backend.now() + 7 * 86400),
        ("tomorrow", (midnight + timedelta(days=1)).timestamp()),
        ("midnight", (midnight + timedelta(days=1)).timestamp()),
    ):
        job = await backend.submit(sleeper(begin=text))

        async def known(number=job):
            return (await world.look(number)).eligible is not None

        await world.settle(known)
        assert (await world.look(job)).eligible == pytest.approx(expected, abs=30), text


# -- dependencies ------------------------------------------------------------------------------------------------


async def test_forms_of_dependencies(world):
    backend = world.backend
    parent = await running(world)
    never = await backend.submit(sleeper(hold=True))

    async def child(dependency):
        return await backend.submit(sleeper(1, dependency=dependency))

    after = await child(f"after:{parent}")
    kept = {
        await child(f"afterok:{parent}"): "afterok",
        await child(f"afterany:{parent},afterok:{never}"): "afterok",
        await child(f"after:{parent}+30"): f"after:{parent}+30",
        await child(f"afterok:{parent}?afterok:{never}"): "afterok",
    }
    freed = [
        await child(f"afterany:{parent}"),
        await child(f"afternotok:{parent}"),
        await child(f"afterany:{never}?afternotok:{parent}"),
        await child(f"afterany:{parent}:{after}"),
    ]
    await world.until(after, COMPLETED)  # it began when its parent had
    for job in (*kept, *freed):
        seen = await world.look(job)
        assert seen.pending and seen.eligible is None and str(parent) in seen.dependency
    await backend.cancel(parent)
    for job in freed:
        await world.until(job, COMPLETED)
    for job, word in kept.items():
        seen = await world.look(job)
        assert seen.pending and seen.eligible is None and word in seen.dependency


@pytest.mark.parametrize("world", LONG_ON_SLURM, indirect=True)
async def test_after_counts_minutes_from_the_start(world):
    parent = await running(world)
    child = await world.backend.submit(sleeper(1, dependency=f"after:{parent}+1"))
    begun = (await world.look(parent)).start
    seen = await world.until(child, COMPLETED, deadline=120)
    assert seen.start >= begun + 60 and (await world.look(parent)).running


# -- hostile -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [FORGED, "caf\udce9\udcff", "\x1b[2J\t|" + "y" * 900], ids=["rows", "latin-1", "long"])
async def test_no_name_makes_or_breaks_rows(world, name):
    mine = await world.backend.submit(sleeper(hold=True))
    job = await world.plant(name)
    seen = {j.id: j for j in await world.backend.jobs() if not j.state.ended}
    assert set(seen) == {mine} | ({job} if job is not None else set())
    assert seen[mine].user == world.backend.whoami()
    assert all(j.state is PENDING and j.nodes == () and j.priority == 0 for j in seen.values())
    if job is not None:
        assert (seen[job].user, seen[job].num_nodes) == (world.other.whoami(), 1)
        await world.other.cancel(job)
        await world.until(job, CANCELLED)


async def test_what_no_node_has_is_refused_and_other_options_reach_slurm(world):
    for asked in ({"constraint": "nosuch"}, {"gres": "gpu:1"}):
        with pytest.raises(Infeasible):
            await world.backend.submit(sleeper(**asked))
    job = await world.backend.submit(sleeper(hold=True, ntasks="1", cpus="1", options=("--nice=7", "--time=1")))
    assert (await world.look(job)).time_limit == 600.0, "what a field says counts before the options"
