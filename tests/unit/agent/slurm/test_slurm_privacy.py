"""Who sees what under PrivateData: a table. `tests/slurm/test_site_view.py` compares it with real Slurm."""

from __future__ import annotations

import pytest

from penstock.api import Reservation
from penstock.slurm.privacy import Privacy, Viewer, coordinators_from_text, privacy_from_config
from penstock_lab.testing import make_job

ALICE, BOB, ROOT = Viewer(1001, "alice"), Viewer(1002, "bob"), Viewer(0, "root")
BOSS, LEADER, SLURM = Viewer(1003, "boss"), Viewer(1004, "leader"), Viewer(64030, "slurm")
JOBS = [
    make_job(1, uid=1001, user="alice", account="physics"),
    make_job(2, uid=1002, user="bob", account="physics"),
    make_job(3, uid=1002, user="bob", account="chemistry"),
    make_job(4, uid=1005, user="dave", account=""),
]
PEOPLE = {
    "privileged": frozenset({"root", "slurm", "boss"}),
    "coordinators": {"leader": frozenset({"physics", "sub"})},
}


def reservation(name, users=(), accounts=()):
    return Reservation(name, 0.0, 1.0, ("n1",), frozenset(users), frozenset(accounts), frozenset(), True)


RESERVATIONS = [
    reservation("hers", ["alice"]),
    reservation("theirs", ["bob", "alice"], ["physics"]),
    reservation("his", ["bob"]),
    reservation("group", [], ["physics"]),
    reservation("without", ["-alice"]),
]


@pytest.mark.parametrize(
    ("private", "labels", "viewer", "seen"),
    [
        ((), False, ALICE, [1, 2, 3, 4]),
        (("jobs",), False, ALICE, [1]),
        (("jobs",), False, BOB, [2, 3]),
        (("jobs",), False, LEADER, [1, 2]),
        (("jobs",), True, LEADER, []),
        (("jobs",), True, ALICE, [1]),
        ((), True, ALICE, [1, 2, 3, 4]),
        (("jobs",), False, BOSS, [1, 2, 3, 4]),
        (("jobs",), True, BOSS, [1, 2, 3, 4]),
        (("jobs",), False, SLURM, [1, 2, 3, 4]),
        (("jobs",), False, ROOT, [1, 2, 3, 4]),
        (("jobs",), False, Viewer(77, "77"), []),
        (("accounts", "usage", "users", "events"), False, ALICE, [1, 2, 3, 4]),
        (("nodes", "partitions", "reservations"), False, ALICE, [1, 2, 3, 4]),
    ],
)
def test_jobs(private, labels, viewer, seen):
    rule = Privacy("c", frozenset(private), labels=labels, **PEOPLE)
    assert [job.id for job in rule.jobs(viewer, JOBS)] == seen
    assert rule.sees_all_jobs(viewer) == (len(seen) == len(JOBS))


@pytest.mark.parametrize(
    ("private", "associations", "viewer", "seen"),
    [
        ((), True, ALICE, ["hers", "theirs", "his", "group", "without"]),
        (("jobs",), True, ALICE, ["hers", "theirs", "his", "group", "without"]),
        (("reservations",), False, ALICE, ["hers", "theirs"]),
        (("reservations",), True, ALICE, ["hers"]),
        (("reservations",), True, BOSS, ["hers", "theirs", "his", "group", "without"]),
        (("reservations",), False, LEADER, []),
    ],
)
def test_reservations(private, associations, viewer, seen):
    rule = Privacy("c", frozenset(private), associations=associations, **PEOPLE)
    assert [r.name for r in rule.reservations(viewer, RESERVATIONS)] == seen


@pytest.mark.parametrize(
    ("private", "viewer", "refused"),
    [
        ((), ALICE, ()),
        (("jobs", "reservations", "usage"), ALICE, ()),
        (("nodes",), ALICE, ("nodes",)),
        (("nodes", "partitions"), LEADER, ("nodes", "partitions")),
        (("nodes", "partitions"), BOSS, ()),
        (("nodes", "partitions"), ROOT, ()),
    ],
)
def test_what_is_refused_as_a_whole(private, viewer, refused):
    assert Privacy("c", frozenset(private), **PEOPLE).refused(viewer) == refused


def test_the_rule_is_read_from_the_configuration():
    text = (
        "Configuration data as of 2026-01-01T00:00:00\nAccountingStorageEnforce = limits,qos\nClusterName = big\n"
        "MCSPlugin = mcs/user\nMCSParameters = ondemand,enforced|privatedata\nPrivateData = jobs,Nodes\n"
        "SlurmUser = slurm(64030)\n"
    )
    rule = privacy_from_config(text)
    assert rule == Privacy(
        "big", frozenset({"jobs", "nodes"}), labels=True, associations=True, privileged=frozenset({"root", "slurm"})
    )
    assert rule.hides
    plain = privacy_from_config("ClusterName = c\nPrivateData = none\nMCSPlugin = mcs/none\nSlurmUser = root(0)\n")
    assert not plain.hides and not plain.labels and not plain.associations
    assert not privacy_from_config("ClusterName = c\nPrivateData = accounts,usage,users,events\n").hides


def test_people_are_read_from_accounting():
    text = "alice|None|\nboss|Operator|\nroot|Administrator|\nleader|None|physics,sub\n"
    oversee, coordinators = coordinators_from_text(text)
    assert oversee == {"boss", "root"}
    assert coordinators == {"leader": {"physics", "sub"}}
    with pytest.raises(ValueError, match="not a user"):
        coordinators_from_text("alice|None\n")
