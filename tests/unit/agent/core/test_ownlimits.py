"""What an owner may have: each limit by itself, which of several counts, and what holds for all of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import HolderKind, Limit, LimitHolder, Owner, OwnerLimits, Partition
from penstock.core.ownlimits import Extension, Growth, Joining, RunningUse, Shape, after, held, obstacle, owner_of
from penstock_lab.testing import make_job

ENFORCED = frozenset({"associations", "limits", "qos"})
OWNER = Owner("alice", "physics", "batch", "normal")
JOB = RunningUse({"node": 2.0, "cpu": 8.0, "mem": 4096.0}, elapsed=60.0, time_limit=600.0)


def place(**more) -> Partition:
    return Partition(
        "batch", ("n1",), True, True, **{"max_time": None, "default_time": None, "max_nodes": None, **more}
    )


def qos(*limits, name="normal", **more) -> LimitHolder:
    return LimitHolder(HolderKind.QOS, f"QOS {name}", limits, **more)


def association(*limits, name="user alice of account physics") -> LimitHolder:
    return LimitHolder(HolderKind.ASSOCIATION, name, limits)


def known(*holders, partition=None, **more) -> OwnerLimits:
    of = {kind: tuple(h for h in holders if h.kind is kind) for kind in HolderKind}
    values = {"qos": of[HolderKind.QOS], "associations": of[HolderKind.ASSOCIATION], "associated": True}
    return OwnerLimits(OWNER, place() if partition is None else partition, **{**values, **more})


def code(limits, wish, job=JOB, enforced=ENFORCED) -> str:
    found = obstacle(limits, job, wish, enforced)
    return "" if found is None else found.code


# Each limit, the largest growth (nodes, seconds) that fits under it and the least one that does not.
GROWTHS = [
    (Limit("MaxTRESPerJob", 4, "node"), (2, 60.0), (3, 60.0), "max-tres-per-job"),
    (Limit("MaxTRESPerJob", 19, "cpu"), (2, 60.0), (3, 60.0), "max-tres-per-job"),
    (Limit("MaxTRESPerJob", 8192, "mem"), (2, 60.0), (3, 60.0), "max-tres-per-job"),
    (Limit("MaxTRESPerNode", 4, "cpu"), (9, 60.0), None, ""),
    (Limit("MaxTRESPerNode", 3, "cpu"), None, (1, 60.0), "max-tres-per-node"),
    (Limit("MaxTRESPerUser", 8, "node", 5), (3, 60.0), (4, 60.0), "max-tres-per-user"),
    (Limit("MaxTRESPerAccount", 8, "node", 5), (3, 60.0), (4, 60.0), "max-tres-per-account"),
    (Limit("GrpTRES", 8, "node", 5), (3, 60.0), (4, 60.0), "grp-tres"),
    (Limit("GrpTRES", 12, "gres/gpu", 12), (9, 60.0), None, ""),  # the job has none
    (Limit("GrpTRESMins", 1000, "node", 990), (1, 600.0), (2, 600.0), "grp-tres-mins"),
    (Limit("GrpTRESRunMins", 1000, "cpu", 960), (1, 600.0), (1, 660.0), "grp-tres-run-mins"),
    (Limit("MaxTRESRunMinsPerUser", 30, "node", 10), (2, 600.0), (3, 600.0), "max-tres-run-mins-per-user"),
    (Limit("MaxTRESMinsPerJob", 40, "node"), (2, 540.0), (3, 540.0), "max-tres-mins-per-job"),
    (Limit("MaxWall", 600), (1, 540.0), (1, 602.0), "max-wall"),
    (Limit("GrpWall", 6000, used=5400.0), (1, 600.0), (1, 601.0), "grp-wall"),
    (Limit("GrpJobs", 5, used=4), (9, 60.0), None, ""),
    (Limit("GrpJobs", 5, used=5), None, (1, 60.0), "grp-jobs"),
    (Limit("GrpSubmitJobs", 5, used=5), None, (1, 60.0), "grp-submit-jobs"),
]
JOBS = [
    (Limit("MaxJobsPerUser", 5, used=5), "max-jobs-per-user"),
    (Limit("MaxSubmitJobsPerAccount", 5, used=5), "max-submit-jobs-per-account"),
    (Limit("MaxJobs", 5, used=5), "max-jobs"),
]


@pytest.mark.parametrize(("limit", "fits", "too_much", "why"), GROWTHS, ids=lambda value: getattr(value, "name", None))
@pytest.mark.parametrize("holder", [qos, association])
def test_a_growth_up_to_a_limit_and_beyond_it(holder, limit, fits, too_much, why):
    if fits is not None:
        assert code(known(holder(limit)), Growth(*fits)) == ""
    if too_much is not None:
        found = obstacle(known(holder(limit)), JOB, Growth(*too_much), ENFORCED)
        assert found is not None and found.code == why
        assert holder(limit).name in found.text and limit.name in found.text and "requested" in found.text


@pytest.mark.parametrize(("limit", "why"), JOBS, ids=lambda value: getattr(value, "name", None))
def test_a_companion_is_one_job_more_and_merged_nodes_are_none(limit, why):
    assert code(known(qos(limit)), Growth(1, 60.0)) == why
    assert code(known(qos(limit)), Growth(1, 60.0, jobs=0)) == ""
    assert code(known(qos(replace(limit, used=4.0))), Growth(1, 60.0)) == ""


EXTENSIONS = [
    (Limit("MaxWall", 1200), 1200.0, 1201.0, "max-wall"),
    (Limit("GrpWall", 6000, used=4860.0), 1200.0, 1260.0, "grp-wall"),
    (Limit("MaxTRESMinsPerJob", 40, "node"), 1200.0, 1260.0, "max-tres-mins-per-job"),
    (Limit("GrpTRESMins", 1000, "node", 980), 1200.0, 1260.0, "grp-tres-mins"),
    (Limit("GrpTRESRunMins", 1000, "cpu", 920), 1200.0, 1260.0, "grp-tres-run-mins"),
]


@pytest.mark.parametrize(("limit", "fits", "too_long", "why"), EXTENSIONS, ids=lambda v: getattr(v, "name", None))
def test_a_time_limit_up_to_a_limit_and_beyond_it(limit, fits, too_long, why):
    assert code(known(qos(limit)), Extension(fits)) == ""
    assert code(known(qos(limit)), Extension(too_long)) == why


def test_a_time_limit_is_none_of_what_counts_nodes_or_jobs():
    full = [Limit("MaxTRESPerUser", 2, "node", 2), Limit("GrpTRES", 2, "node", 2), Limit("MaxJobs", 1, used=1)]
    assert code(known(qos(*full, Limit("MaxTRESPerJob", 1, "node"))), Extension(1200.0)) == ""


def test_limits_of_the_partition_hold_wherever_nothing_is_enforced():
    small, short = known(partition=place(max_nodes=4)), known(partition=place(max_time=900.0))
    for enforced in (frozenset(), ENFORCED):
        assert code(small, Growth(2, 60.0), enforced=enforced) == ""
        assert code(small, Growth(3, 60.0), enforced=enforced) == "partition-max-nodes"
        assert code(short, Extension(900.0), enforced=enforced) == ""
        assert code(short, Extension(960.0), enforced=enforced) == "partition-max-time"
        assert code(short, Growth(1, 900.0), enforced=enforced) == "partition-max-time"
    free = qos(flags=frozenset({"PartitionTimeLimit", "PartitionMaxNodes"}))
    assert code(known(free, partition=place(max_nodes=4, max_time=900.0)), Growth(9, 3600.0)) == ""


def test_where_nobody_is_held_to_limits_they_do_not_count():
    strict = known(qos(Limit("MaxTRESPerUser", 2, "node", 2)), unknown="hidden", associated=False)
    assert code(strict, Growth(1, 60.0), enforced=frozenset()) == ""
    assert code(replace(strict, associated=True), Growth(1, 60.0), enforced=frozenset({"associations"})) == ""
    assert code(strict, Growth(1, 60.0), enforced=frozenset({"associations"})) == "no-association"
    assert code(strict, Growth(1, 60.0), enforced=frozenset({"safe"})) == "no-association"


def test_of_two_qos_and_the_associations_the_first_that_sets_a_limit_counts():
    def nodes(count):
        return Limit("MaxTRESPerJob", count, "node")

    first, second, own = qos(nodes(5), name="part"), qos(nodes(3)), association(nodes(2))
    assert code(known(first, second, own), Growth(3, 60.0)) == ""
    assert code(known(first, second, own), Growth(4, 60.0)) == "max-tres-per-job"
    assert code(known(second, first, own), Growth(2, 60.0)) == "max-tres-per-job"
    assert code(known(qos(Limit("MaxTRESPerJob", 99, "cpu")), second), Growth(2, 60.0)) == "max-tres-per-job"
    assert code(known(qos(), own), Growth(1, 60.0)) == "max-tres-per-job"


def test_group_limits_hold_on_every_level_and_others_on_the_users_own_alone():
    above = association(Limit("GrpTRES", 9, "node", 9), name="account science")
    assert code(known(association(), association(), above), Growth(1, 60.0)) == "grp-tres"
    passed_on = association(Limit("MaxTRESPerJob", 2, "node"), Limit("MaxWall", 60), name="account physics")
    assert code(known(association(), passed_on), Growth(1, 60.0)) == ""
    assert code(known(qos(Limit("GrpTRES", 99, "node", 9)), association(), above), Growth(1, 60.0)) == ""


def test_the_limit_factor_of_a_qos_multiplies_limits_of_associations():
    group, each = association(Limit("GrpTRES", 4, "node", 4)), association(Limit("MaxTRESPerNode", 2, "cpu"))
    assert code(known(qos(factor=2.0), group), Growth(4, 60.0)) == ""
    assert code(known(qos(factor=2.0), group), Growth(5, 60.0)) == "grp-tres"
    assert code(known(qos(factor=0.5), association(Limit("GrpTRES", 5, "node", 1))), Growth(2, 60.0)) == "grp-tres"
    assert code(known(qos(factor=9.0), each), Growth(1, 60.0)) == "max-tres-per-node"


def test_a_usage_factor_makes_minutes_more_and_never_fewer():
    limit = Limit("GrpTRESMins", 100, "node", 90)
    assert code(known(qos(limit, usage=1.0)), Growth(1, 600.0)) == ""
    assert code(known(qos(limit, usage=2.0)), Growth(1, 600.0)) == "grp-tres-mins"
    assert code(known(qos(limit, usage=0.0)), Growth(2, 600.0)) == "grp-tres-mins"


def test_what_is_not_known_is_not_unlimited():
    assert code(known(unknown="the accounts above are not shown"), Growth(1, 60.0)) == "limits-unknown"
    assert code(known(qos(Limit("GrpTRES", 9, "node"))), Growth(1, 60.0)) == "limits-unknown"
    assert code(known(qos(Limit("GrpTRES", 9, "gres/gpu", 1))), Growth(1, 60.0), replace(JOB, whole=False)) == (
        "limits-unknown"
    )
    assert code(replace(known(), partition=None, unknown="there is no partition 'x'"), Growth(1, 60.0)) == (
        "limits-unknown"
    )
    found = obstacle(known(unknown="PrivateData hides them"), JOB, Growth(1, 60.0), ENFORCED)
    assert found is not None and "PrivateData hides them" in found.text


def test_what_is_known_to_be_too_much_is_said_before_what_is_not_known():
    limits = known(qos(Limit("MaxTRESPerJob", 2, "node")), unknown="hidden")
    assert code(limits, Growth(1, 60.0)) == "max-tres-per-job"


def test_nothing_more_is_always_allowed():
    strict = known(qos(Limit("MaxWall", 1)), partition=place(max_nodes=1, max_time=1.0), unknown="hidden")
    for wish in (Growth(0, 60.0), Extension(600.0), Extension(300.0)):
        assert code(strict, wish) == ""
    assert code(strict, Extension(9e9), replace(JOB, time_limit=None)) == ""  # it is unlimited


def test_a_job_and_its_companions_are_one():
    job = make_job(7, "n1", "n2", num_cpus=8, start=100.0, time_limit=600.0)
    companion = make_job(8, "n3", num_cpus=4, start=130.0)
    charges = {7: {"node": 2.0, "cpu": 8.0, "gres/gpu": 4.0}, 8: {"node": 1.0, "cpu": 4.0, "gres/gpu": 2.0}}
    whole = held(job, [companion], charges, 160.0)
    assert whole == RunningUse({"node": 3.0, "cpu": 12.0, "gres/gpu": 6.0}, 60.0, 600.0)
    assert code(known(qos(Limit("MaxTRESPerJob", 3, "node"))), Growth(1, 60.0), whole) == "max-tres-per-job"
    assert not held(job, [companion], {7: charges[7]}, 160.0).whole
    assert not held(job, [], None, 160.0).whole
    assert owner_of(job) == Owner(job.user, job.account, job.partition, job.qos)


def test_what_one_growth_takes_is_gone_for_the_next():
    other, user = replace(OWNER, user="bob"), Limit("MaxTRESPerUser", 4, "node", 2)
    account = association(Limit("GrpTRES", 6, "node", 4), name="account physics")
    mine, theirs = known(qos(user), association(), account), known(qos(user), association(name="bob"), account)
    both = [mine, replace(theirs, owner=other)]
    spent = after(both, OWNER, JOB, Growth(1, 60.0))
    assert code(spent[0], Growth(1, 60.0)) == "" and code(spent[1], Growth(1, 60.0)) == ""
    spent = after(spent, OWNER, JOB, Growth(1, 60.0))
    assert code(spent[0], Growth(1, 60.0)) == "max-tres-per-user"
    assert code(spent[1], Growth(1, 60.0)) == "grp-tres"
    assert after(both, replace(OWNER, user="carol"), JOB, Growth(1, 60.0)) == both


# -- for all of them -------------------------------------------------------------------------------------------------

NAMES = ["MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES", "MaxTRESPerAccount", "GrpTRESMins", "GrpTRESRunMins"]
NAMES += ["MaxTRESMinsPerJob", "MaxTRESPerNode"]
TRES_LIMITS = st.builds(
    Limit,
    st.sampled_from(NAMES),
    st.integers(0, 2000).map(float),
    st.sampled_from(["node", "cpu", "mem", "gres/gpu"]),
    st.none() | st.integers(0, 50).map(float),
)
OTHER_LIMITS = st.builds(
    Limit,
    st.sampled_from(["MaxWall", "GrpWall", "GrpJobs", "MaxJobs"]),
    st.integers(0, 100_000).map(float),
    used=st.none() | st.integers(0, 50).map(float),
)
LIMITS = st.lists(TRES_LIMITS | OTHER_LIMITS, max_size=4, unique_by=lambda limit: (limit.name, limit.tres)).map(tuple)
FACTORS = st.sampled_from([1.0, 1.0, 0.5, 2.0])
QOS = st.builds(qos, name=st.sampled_from(["a", "b"]), factor=FACTORS, usage=FACTORS).flatmap(
    lambda holder: LIMITS.map(lambda limits: replace(holder, limits=limits))
)
ASSOCIATIONS = LIMITS.map(lambda limits: association(*limits))
PLACES = st.builds(
    place, max_nodes=st.none() | st.integers(1, 50), max_time=st.none() | st.integers(60, 9000).map(float)
)
KNOWN = st.builds(
    lambda q, a, p, unknown: known(*q, *a, partition=p, unknown=unknown),
    st.lists(QOS, max_size=2),
    st.lists(ASSOCIATIONS, max_size=3),
    PLACES,
    st.sampled_from(["", "", "", "hidden"]),
)
HELD = st.builds(
    lambda nodes, cpus, gpus, elapsed, more: RunningUse(
        {"node": float(nodes), "cpu": float(nodes * cpus), "gres/gpu": float(nodes * gpus)}, elapsed, elapsed + more
    ),
    st.integers(1, 20),
    st.integers(1, 8),
    st.integers(0, 4),
    st.floats(0, 5000),
    st.floats(1, 5000),
)


@given(KNOWN, HELD, st.integers(0, 40), st.integers(0, 40), st.floats(0, 9000), st.floats(0, 9000))
def test_a_smaller_growth_is_allowed_where_a_larger_one_is(limits, job, nodes, fewer, seconds, shorter):
    if obstacle(limits, job, Growth(nodes, seconds), ENFORCED) is not None:
        return
    assert obstacle(limits, job, Growth(min(nodes, fewer), min(seconds, shorter)), ENFORCED) is None


@given(KNOWN, HELD, st.floats(0, 20_000), st.floats(0, 20_000))
def test_a_shorter_time_limit_is_allowed_where_a_longer_one_is(limits, job, longer, shorter):
    if obstacle(limits, job, Extension(longer), ENFORCED) is not None:
        return
    assert obstacle(limits, job, Extension(min(longer, shorter)), ENFORCED) is None


def first(limits, name, tres=""):
    """The limits of this name that count, found by another way than the program's: LimitFactor is left out."""
    for holder in limits.qos:
        for limit in holder.limits:
            if (limit.name, limit.tres) == (name, tres):
                return [limit]
    chain = limits.associations if name.startswith("Grp") else limits.associations[:1]
    return [one for holder in chain for one in holder.limits if (one.name, one.tres) == (name, tres)]


@given(KNOWN, HELD, st.integers(1, 40), st.floats(0, 9000))
def test_no_growth_is_allowed_that_is_a_node_or_a_minute_above_a_limit(limits, job, nodes, seconds):
    limits = replace(limits, qos=tuple(replace(holder, factor=1.0) for holder in limits.qos))
    if obstacle(limits, job, Growth(nodes, seconds), ENFORCED) is not None:
        return
    total, time = job.tres["node"] + nodes, job.elapsed + seconds
    assert not limits.unknown
    assert limits.partition.max_nodes is None or total <= limits.partition.max_nodes
    assert limits.partition.max_time is None or time < limits.partition.max_time + 60.0
    assert all(total <= limit.value for limit in first(limits, "MaxTRESPerJob", "node"))
    assert all(time < limit.value + 60.0 for limit in first(limits, "MaxWall"))
    for name in ("MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"):
        for limit in first(limits, name, "node"):
            assert limit.used is not None and limit.used + nodes <= limit.value
    for limit in first(limits, "GrpTRESRunMins", "node"):
        assert seconds == 0.0 or limit.used is not None
        assert (limit.used or 0.0) + nodes * seconds / 60.0 <= limit.value or seconds == 0.0


@given(KNOWN, HELD, st.floats(1, 20_000))
def test_no_time_limit_is_allowed_that_is_a_minute_above_a_limit(limits, job, more):
    kept = 60.0 * -(-(job.time_limit + more) // 60.0)  # Slurm keeps whole minutes
    if obstacle(limits, job, Extension(job.time_limit + more), ENFORCED) is not None:
        return
    assert limits.partition.max_time is None or kept <= limits.partition.max_time + 1.0
    assert all(kept <= limit.value + 1.0 for limit in first(limits, "MaxWall"))


@given(KNOWN, HELD, st.integers(1, 20), st.integers(1, 20), st.floats(0, 900))
def test_two_growths_one_after_the_other_have_no_more_than_one_of_both(limits, job, one, other, seconds):
    grown = after([limits], OWNER, job, Growth(one, seconds))[0]
    if obstacle(limits, job, Growth(one, seconds), ENFORCED) is not None:
        return
    if obstacle(grown, job, Growth(other, seconds), ENFORCED) is not None:
        return
    for name in ("MaxTRESPerUser", "GrpTRES"):
        for limit in first(limits, name, "node"):
            factor = max((holder.factor for holder in limits.qos), default=1.0)
            assert limit.used is not None and limit.used + one + other <= limit.value * max(factor, 1.0)


# -- jobs that wait for another size -----------------------------------------------------------------------------------

WAITING = RunningUse({"node": 2.0, "cpu": 8.0}, elapsed=0.0, time_limit=600.0)
SHAPES = [
    (Limit("MaxWall", 600), Shape(8, 600.0), Shape(1, 661.0), "max-wall"),
    (Limit("MaxTRESPerJob", 3, "node"), Shape(3, 60.0), Shape(4, 60.0), "max-tres-per-job"),
    (Limit("MaxTRESPerJob", 15, "cpu"), Shape(3, 60.0), Shape(4, 60.0), "max-tres-per-job"),
    (Limit("MaxTRESMinsPerJob", 40, "node"), Shape(4, 600.0), Shape(5, 600.0), "max-tres-mins-per-job"),
    # What others use is not held against it: it may wait for that.
    (Limit("MaxTRESPerUser", 4, "node", 4), Shape(4, 60.0), Shape(5, 60.0), "max-tres-per-user"),
    (Limit("GrpTRES", 4, "node", 4), Shape(4, 60.0), Shape(5, 60.0), "grp-tres"),
    (Limit("GrpTRESRunMins", 40, "node", 40), Shape(4, 600.0), Shape(5, 600.0), "grp-tres-run-mins"),
    (Limit("MaxJobs", 5, used=5), Shape(99, 60.0), None, ""),
]


@pytest.mark.parametrize(("limit", "fits", "too_much", "why"), SHAPES, ids=lambda value: getattr(value, "name", None))
@pytest.mark.parametrize("holder", [qos, association])
def test_a_size_that_slurm_will_judge_has_to_be_possible(holder, limit, fits, too_much, why):
    assert code(known(holder(limit)), fits, WAITING) == ""
    if too_much is not None:
        assert code(known(holder(limit)), too_much, WAITING) == why


@pytest.mark.parametrize("name", ["GrpTRES", "MaxTRESPerUser", "MaxTRESPerAccount"])
@pytest.mark.parametrize("tres", ["node", "cpu"])
def test_no_size_is_set_by_an_operator_where_slurm_would_forget_a_limit(name, tres):
    limited = known(qos(Limit(name, 1000, tres, 0)))
    assert code(limited, Shape(1, 60.0), WAITING) == ""
    assert code(limited, Shape(1, 60.0, judged=False), WAITING) == "shared-limit"


def test_an_operator_s_size_is_held_to_the_limits_that_slurm_keeps():
    minutes = known(qos(Limit("GrpTRESMins", 1000, "node", 990)))
    assert code(minutes, Shape(1, 60.0, judged=False), WAITING) == ""
    assert code(known(qos(Limit("GrpWall", 1e6, used=0))), Shape(1, 60.0, judged=False), WAITING) == "shared-limit"
    assert code(known(qos(Limit("MaxWall", 600))), Shape(1, 660.0, judged=False), WAITING) == "max-wall"


def test_a_size_below_the_partition_s_least_is_none():
    assert code(known(partition=place(min_nodes=2)), Shape(1, 60.0), WAITING) == "partition-min-nodes"
    assert code(known(partition=place(max_nodes=2)), Shape(3, 60.0), WAITING) == "partition-max-nodes"
    assert code(known(partition=place(max_time=600.0)), Shape(2, 660.0), WAITING) == "partition-max-time"


def test_nodes_that_an_owner_holds_already_count_only_for_the_job_that_gets_them():
    full = Limit("MaxTRESPerUser", 4, "node", 4)
    assert code(known(qos(full)), Joining(2)) == ""
    assert code(known(qos(Limit("MaxTRESPerJob", 3, "node"))), Joining(2)) == "max-tres-per-job"
    assert code(known(partition=place(max_nodes=3)), Joining(2)) == "partition-max-nodes"
    assert code(known(qos(Limit("MaxWall", 60))), Joining(2)) == "", "its time is what it was"
