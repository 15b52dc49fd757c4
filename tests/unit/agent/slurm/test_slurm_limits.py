"""What Slurm's releases say of limits, read: their own answers, made-up ones, and garbage."""

import asyncio
import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import LimitHolder, Owner, Partition
from penstock.errors import Infeasible, SlurmUnavailable
from penstock.slurm.limit_queries import read_limits
from penstock.slurm.limits import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    associations_from_rows,
    associations_from_text,
    qos_from_rows,
    qos_from_text,
)
from penstock.slurm.parse import ParseError, parse_amount, parse_tres
from places import FIXTURES

PLACE = FIXTURES / "slurm"
RELEASES = ("22.05", "24.11", "26.05")
ALICE = Owner("pst-alice", "penstock", "batch", "normal")


def said(release: str, what: str, private: bool = False) -> str:
    return (PLACE / release / f"limits_{what}{'_private' if private else ''}.txt").read_text()


def partition(name: str = "batch", own_qos: str = "") -> Partition:
    return Partition(name, ("n1",), True, True, None, None, None, own_qos=own_qos)


def ask(*owners, shown, table="", rows="", own_qos="", asked=None):
    """`read_limits` with these answers; an exception in place of a text is raised."""

    def answering(answers):
        async def answer(*argv):
            if asked is not None:
                asked.append(argv)
            text = next(text for word, text in answers.items() if word in argv)
            if isinstance(text, Exception):
                raise text
            return text

        return answer

    async def partitions():
        return [partition(own_qos=own_qos)]

    async def cluster():
        return "sc"

    accounting = answering({"qos": table, "associations": rows})
    return asyncio.run(read_limits(owners, answering({"assoc_mgr": shown}), accounting, partitions, cluster))


def of_release(release, *owners, private=False, **more):
    answers = {"shown": said(release, "assoc_mgr", private), "table": said(release, "qos", private)}
    return ask(*owners, **{**answers, "rows": said(release, "assoc", private), **more})


def table_of(holder: LimitHolder):
    return {f"{one.name} {one.tres}".strip(): (one.value, one.used) for one in holder.limits}


QOS = {
    "MaxWall": (93780.0, None),
    "MaxTRESPerJob node": (3.0, None),
    "MaxTRESPerJob cpu": (6.0, None),
    "MaxTRESPerNode cpu": (2.0, None),
    "MaxTRESMinsPerJob node": (77.0, None),
    "GrpTRES node": (8.0, 3.0),
    "GrpTRES mem": (10240.0, 0.0),
    "GrpWall": (6000.0, 0.0),
    "GrpTRESMins cpu": (1000.0, 60.0),  # what those that run may yet use
    "GrpTRESRunMins node": (5500.0, 30.0),
    "GrpJobs": (44.0, 2.0),
    "GrpSubmitJobs": (45.0, 2.0),
    "MaxJobsPerUser": (7.0, 1.0),
    "MaxSubmitJobsPerUser": (9.0, 1.0),
    "MaxTRESPerUser node": (4.0, 2.0),
    "MaxTRESPerAccount node": (6.0, 3.0),
    "MaxJobsPerAccount": (20.0, 2.0),
    "MaxSubmitJobsPerAccount": (30.0, 2.0),
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_qos_and_associations_of_each_release(release):
    (known,) = of_release(release, ALICE)
    assert not known.unknown and known.associated
    (qos,) = known.qos
    assert table_of(qos) == QOS
    assert qos.flags == {"DenyOnLimit", "OverPartQOS"} and (qos.factor, qos.usage) == (3.0, 2.0)
    own, account, root = known.associations
    assert own.name == "user pst-alice of account penstock"
    assert table_of(own) == {
        "MaxWall": (540.0, None),
        "MaxTRESPerJob node": (5.0, None),
        "MaxTRESPerNode cpu": (4.0, None),
        "MaxTRESMinsPerJob cpu": (1100.0, None),
        "MaxJobs": (4.0, 1.0),
        "GrpTRES cpu": (9.0, 4.0),
        "GrpWall": (3000.0, 0.0),
    }
    assert account.name == "account penstock" and table_of(account)["GrpTRES node"] == (7.0, 3.0)
    assert root.name == "account root" and not root.limits


@pytest.mark.parametrize("release", RELEASES)
def test_an_association_with_a_partition_and_accounts_above_accounts(release):
    (known,) = of_release(release, Owner("pst-alice", "physics", "batch", "wide"))
    assert [holder.name for holder in known.associations] == [
        "user pst-alice of account physics in partition batch",
        "account physics",
        "account penstock",
        "account root",
    ]
    assert table_of(known.qos[0]) == {"MaxTRESPerJob node": (2.0, None)}


@pytest.mark.parametrize("release", RELEASES)
def test_where_associations_are_hidden_accounting_says_them_and_nobody_their_use(release):
    (known,) = of_release(release, ALICE, private=True)
    own, account, _root = known.associations
    assert table_of(own)["GrpTRES cpu"] == (9.0, 4.0)  # one's own is shown
    assert table_of(account)["GrpTRES node"] == (7.0, None)
    assert not known.unknown
    (known,) = of_release(release, ALICE, private=True, rows=SlurmUnavailable("no slurmdbd"))
    assert "accounts above" in known.unknown and "no slurmdbd" in known.unknown
    (known,) = of_release(release, Owner("pst-bob", "penstock", "batch", "normal"), private=True)
    own, *_ = known.associations
    assert known.associated and own.name == "user pst-bob of account penstock"


@pytest.mark.parametrize("release", RELEASES)
def test_the_qos_of_the_partition_goes_first_unless_the_jobs_is_over_it(release):
    wide, over = Owner("pst-alice", "penstock", "batch", "wide"), ALICE
    (known,) = of_release(release, wide, own_qos="normal")
    assert [holder.name for holder in known.qos] == ["QOS normal", "QOS wide"]
    (known,) = of_release(release, over, own_qos="wide")
    assert [holder.name for holder in known.qos] == ["QOS normal", "QOS wide"]
    (known,) = of_release(release, over, own_qos="normal")
    assert [holder.name for holder in known.qos] == ["QOS normal"]


@pytest.mark.parametrize("release", RELEASES)
def test_without_accounting_flags_and_limits_per_user_are_not_known(release):
    (known,) = of_release(release, ALICE, table=SlurmUnavailable("no slurmdbd"))
    assert "QOS normal" in known.unknown and "no slurmdbd" in known.unknown
    assert known.qos[0].unknown
    assert table_of(known.qos[0])["MaxTRESPerUser node"] == (4.0, 2.0)  # of whom slurmctld names


def test_limits_per_user_of_a_qos_that_nobody_uses_come_from_accounting_and_are_unused():
    shown = said("24.11", "assoc_mgr").replace("pst-alice(995)={", "pst-carol(1000)={")
    (known,) = of_release("24.11", ALICE, shown=shown)
    assert table_of(known.qos[0])["MaxTRESPerUser node"] == (4.0, 0.0)


def test_a_limit_that_slurmctld_no_longer_has_is_gone_whatever_accounting_says():
    shown = said("24.11", "assoc_mgr").replace("node=4(2)", "node=N(2)").replace("MaxWallPJ=1563", "MaxWallPJ=")
    (known,) = of_release("24.11", ALICE, shown=shown)
    assert not {"MaxTRESPerUser node", "MaxWall"} & set(table_of(known.qos[0]))


def test_who_has_no_association_is_told_from_who_may_have_one():
    other = Owner("pst-alice", "chemistry", "batch", "normal")
    (known,) = of_release("24.11", other)
    assert known.associated is False and "no association of user pst-alice with account chemistry" in known.unknown
    (known,) = of_release("24.11", other, rows=Infeasible("this cluster has no accounting"))
    assert known.associated is None and "no accounting" in known.unknown


def test_many_owners_take_as_many_requests_as_one():
    asked = []
    owners = [ALICE, Owner("pst-alice", "physics", "batch", "wide"), Owner("pst-bob", "penstock", "batch", "normal")]
    found = of_release("24.11", *owners * 40, asked=asked)
    assert [known.owner for known in found] == owners * 40
    assert len(asked) <= 3


def test_a_name_that_would_be_two_is_not_asked_for():
    asked = []
    (known,) = of_release("24.11", Owner("a,b", "penstock", "batch", "normal,wide"), asked=asked)
    assert known.unknown
    assert not any("a,b" in word or "normal,wide" in word for argv in asked for word in argv)


def test_an_answer_that_is_none():
    for shown in ("", "scontrol: something else\n"):
        with pytest.raises(SlurmUnavailable):
            of_release("24.11", ALICE, shown=shown)
    shown = said("24.11", "assoc_mgr").replace("node=7(3)", "node=seven(3)")
    with pytest.raises(SlurmUnavailable, match="seven"):
        of_release("24.11", ALICE, shown=shown)
    (known,) = of_release("24.11", ALICE, table="normal|half a row\n")
    assert "fields" in known.unknown


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("field", [" NewField=7(2)", " GrpTRESNew=gres/new=1(0)", " Note=a b=c {}"])
def test_a_field_of_a_later_release_changes_nothing(release, field):
    shown = said(release, "assoc_mgr").replace(" MinPrioThresh=", f"{field} MinPrioThresh=")
    assert of_release(release, ALICE, shown=shown) == of_release(release, ALICE)


# -- made up ---------------------------------------------------------------------------------------------------------

TRES = st.sampled_from(["cpu", "node", "mem", "gres/gpu", "gres/gpu:a100", "billing", "license/matlab@db"])
COUNTS = st.dictionaries(TRES, st.tuples(st.none() | st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1)


@given(COUNTS)
def test_counts_of_tres_are_read_as_they_were_written(counts):
    text = ",".join(f"{tres}={'N' if value is None else value}({used})" for tres, (value, used) in counts.items())
    line = f"ClusterName=c Account=a UserName= Partition= ParentAccount= GrpTRES={text} MaxWallPJ="
    (found,) = associations_from_text(line)
    limited = {tres: both for tres, both in counts.items() if both[0] is not None}
    assert {one.tres: (one.value, one.used) for one in found.limits.values()} == limited


@given(st.dictionaries(TRES, st.integers(0, 10**9), min_size=1))
def test_what_jobs_are_charged_is_read_as_it_was_written(amounts):
    assert parse_tres(",".join(f"{name}={amount}" for name, amount in amounts.items())) == amounts


def test_memory_is_in_megabytes():
    assert parse_tres("cpu=1K,mem=1.50G,node=2") == {"cpu": 1024.0, "mem": 1536.0, "node": 2.0}
    assert (parse_amount("2T", "mem"), parse_amount("512K", "mem")) == (2 * 1024.0**2, 0.5)
    assert parse_tres("") == {}


@given(st.text(alphabet=string.printable))
def test_garbage_is_refused_or_says_nothing(text):
    for read in (
        associations_from_text,
        qos_from_text,
        qos_from_rows,
        lambda text: associations_from_rows(text, "c"),
        parse_tres,
        lambda text: associations_from_text(f"ClusterName=c Account=a UserName={text}"),
        lambda text: associations_from_text(
            f"ClusterName=c Account=a UserName= Partition= ParentAccount= GrpTRES={text}"
        ),
        lambda text: qos_from_text(f"QOS=normal(1) MaxWallPJ={text} Account Limits={text} User Limits={text}"),
        lambda text: qos_from_rows("|".join([text, *[""] * (len(QOS_FIELDS) - 1)])),
        lambda text: associations_from_rows("|".join(["c", *[text] * (len(ASSOCIATION_FIELDS) - 1)]), "c"),
    ):
        with contextlib.suppress(ParseError):
            read(text)
