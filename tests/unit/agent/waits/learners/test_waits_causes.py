"""Why jobs wait, and what is then left to be learned of their waits."""

from __future__ import annotations

import pytest

from penstock.api import Job, JobState, Node
from penstock.values.waits import Known, Observation
from penstock.waits.learners.causes import Cause, cause_of, hindrance, learnable

REASONS = {
    "None": None,
    "": None,
    "Priority": None,
    "Resources": None,
    "(Resources)": None,
    "Dependency": None,
    "BeginTime": None,
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": None,
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": None,
    "JobHeldUser": Cause.HOLD,
    "JobHeldAdmin": Cause.HOLD,
    "JobHoldMaxRequeue": Cause.HOLD,
    "Licenses": Cause.LICENCE,
    "AssocGrpLicense": Cause.LICENCE,
    "QOSMaxLicensePerUser": Cause.LICENCE,
    "AssocMaxJobsLimit": Cause.LIMIT,
    "AssocGrpCPURunMinutesLimit": Cause.LIMIT,
    "AssociationResourceLimit": Cause.LIMIT,
    "QOSMaxJobsPerUserLimit": Cause.LIMIT,
    "QOSGrpNodeLimit": Cause.LIMIT,
    "MaxJobsPerAccount": Cause.LIMIT,
    "AccountingPolicy": Cause.LIMIT,
    "JobArrayTaskLimit": Cause.LIMIT,
    "PartitionTimeLimit": Cause.LIMIT,
    "Reservation": Cause.RESERVED,
    "ReqNodeNotAvail, Reserved for maintenance": Cause.RESERVED,
    "ReqNodeNotAvail,_Reserved_for_maintenance": Cause.RESERVED,
    "ReqNodeNotAvail, May be reserved for other job": Cause.RESERVED,
    "ReqNodeNotAvail": Cause.NODES,
    "ReqNodeNotAvail, UnavailableNodes:n[1-4]": Cause.NODES,
    "PartitionDown": Cause.NODES,
    "PartitionInactive": Cause.NODES,
    "BurstBufferStageIn": Cause.OTHER,
    "SomethingOf2031": Cause.OTHER,
}


@pytest.mark.parametrize(("reason", "cause"), REASONS.items())
def test_reason_codes(reason, cause):
    assert cause_of(reason) is cause


def job(state="PENDING", reason="Priority", eligible=1000.0, nodes=(), restarts=0):
    return Job(
        id=1, uid=1, user="ann", account="", partition="batch", qos="", state=JobState(state), reason=reason,
        submit=900.0, eligible=eligible, start=None, end=None, time_limit=600.0, num_nodes=1, num_cpus=1, nodes=nodes,
        priority=1, restarts=restarts,
    )  # fmt: skip


def test_a_job_is_hindered_only_while_it_could_wait_for_its_turn():
    assert hindrance(job(reason="Licenses"), {}) is Cause.LICENCE
    assert hindrance(job(), {}) is None
    assert hindrance(job(reason="JobHeldUser", eligible=None), {}) is None, "its wait has not begun"
    assert hindrance(job("RUNNING", reason="Licenses"), {}) is None, "what kept it is over"
    assert hindrance(job(restarts=1), {}) is Cause.REQUEUED


def test_nodes_that_have_to_boot_are_told_from_a_prolog():
    boots, runs = Node("n1", "ALLOCATED+POWERING_UP", 2, False), Node("n2", "ALLOCATED", 2, True)
    nodes = {"n1": boots, "n2": runs}
    assert hindrance(job("CONFIGURING", nodes=("n2", "n1")), nodes) is Cause.NODES
    assert hindrance(job("CONFIGURING", nodes=("n2", "n9")), nodes) is None


def test_what_is_left_to_learn():
    exact, hidden, longer = Observation(9.0), Observation.at_most(9.0), Observation.more_than(9.0)
    assert learnable(exact, None) is exact
    assert learnable(exact, Cause.HOLD) == Observation.at_most(9.0)
    assert learnable(hidden, Cause.LIMIT) == hidden
    assert learnable(longer, Cause.RESERVED).known is Known.NOTHING
    for observation in (exact, hidden, longer):
        assert learnable(observation, Cause.REQUEUED).known is Known.NOTHING
