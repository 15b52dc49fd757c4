"""What `penstock doctor` makes of many sites: facts in, findings out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.admin.commands.doctor import answer
from penstock.admin.doctor.facts import (
    Agent,
    AgentAddress,
    Mpi,
    PartSeen,
    Probe,
    QueueSize,
    RestSpoken,
    Services,
    SiteFacts,
)
from penstock.admin.doctor.features import FEATURES, FeatureOutcome, examine
from penstock.admin.doctor.reader import _address, _closed_folder, _within
from penstock.admin.doctor.verdict import verdict
from penstock.api import HolderKind, Limit, LimitHolder, Owner, OwnerLimits, Partition, SiteConfig
from penstock.config import Config, config_of
from penstock.console.output import json_text
from penstock.core.findings import Finding, Folder, Level, Trouble, failed, fine
from penstock.host.filesystems import is_network, mount_of
from places import PROJECT

SITE = SiteConfig(
    version=(24, 11, 5),
    cluster="c",
    select_type="select/linear",
    scheduler_parameters=frozenset({"permit_job_expansion"}),
    prolog_flags=frozenset(),
    priority_type="priority/multifactor",
    priority_flags=frozenset({"ACCRUE_ALWAYS"}),
    min_job_age=300.0,
    priority_weight_age=1000,
    operator=True,
    accounting=True,
)
HOME = Folder("/home/u/.local/state/penstock", True, True, "/home", "nfs4", 0o711, 1000, 10**12)
IDEAL = SiteFacts(
    config=Config(),
    config_path="",
    config_trouble="",
    user="u",
    uid=1000,
    host="login1",
    python="/usr/bin/python3",
    programs_missing=(),
    site=SITE,
    queue=QueueSize(10, 4, 4),
    partitions=(Partition("batch", ("n1", "n2", "n3", "n4"), True, True, None, None, None),),
    submission="now in batch",
    accounts=("physics",),
    history=3,
    clusters=("c",),
    skew=0.0,
    agent=Agent(answers=True),
    folder=replace(HOME, mount="/var", kind="xfs"),
    state="version 3",
    policy=None,
    munge=None,
    key=True,
    address=AgentAddress("login1", ("10.0.0.1",)),
    mpi=Mpi("4.1.2", "MPICH Version: 5.0.2", "/usr/bin/mpiexec", ("merge", "replace", "restart")),
    probe=Probe(("merge", "replace", "restart")),
    pyslurm="24.11.0",
    services=Services(user_manager=True, lingers=True, unit="active", crontab=True),
    parts=(
        PartSeen("penstock-fronts", "1.0", "/opt/penstock/penstock_parts/fronts.json"),
        PartSeen("penstock-messages", "1.0", "/opt/penstock/penstock_parts/messages.json"),
        PartSeen("penstock-pool", "1.0", "/opt/penstock/penstock_parts/pool.json"),
        PartSeen("penstock-planning", "1.0", "/opt/penstock/penstock_parts/planning.json"),
    ),
    part_findings=(
        fine("notify", "mail by /usr/sbin/sendmail"),
        fine("pool-packages", "Dask's distributed and the packages that it needs are installed"),
        fine("pool-folder", "/home is on nfs4 (/home)"),
        fine("request-key", "signed requests are written to /srv/requests"),
    ),
    requests={"squeue": 1, "scontrol show": 2},
    seconds=0.4,
)
EVERYBODY = config_of({"agent": {"serve": "all"}})


def site(**changes):
    return replace(IDEAL, site=replace(SITE, **changes))


def outcomes(facts):
    return {feature.spec.id: feature.outcome for feature in examine(facts).features}


def feature(facts, name):
    (found,) = [feature for feature in examine(facts).features if feature.spec.id == name]
    return found


def level(facts, check):
    return examine(facts).checks[check].level


def test_on_an_ideal_site_everything_works():
    """But that the key has to be where all hosts see it, and the state had better not."""
    facts = replace(IDEAL, folder=HOME)
    found = {name for name, outcome in outcomes(facts).items() if outcome is not FeatureOutcome.WORKS}
    assert found == {"agent", "serve-all"}
    assert feature(facts, "agent").because == feature(facts, "serve-all").because == ("file-system",)
    assert examine(facts).healthy


def test_where_the_kernel_does_not_serve_it_says_why_and_what_to_do():
    assert level(IDEAL, "kernel") is Level.OK
    without = examine(replace(IDEAL, kernel="there was no C compiler")).checks["kernel"]
    assert without.level is Level.NOTE and "pure Python" in without.seen and without.change.startswith("install a C")
    chosen = examine(replace(IDEAL, kernel="PENSTOCK_KERNEL=python is in the environment")).checks["kernel"]
    assert chosen.change == "take PENSTOCK_KERNEL out of it"


def test_a_feature_of_a_part_that_is_not_installed_is_not_told():
    facts = replace(IDEAL, parts=(), part_findings=())
    planning = {"hold-job", "hold-reservation", "hold-request", "select"}
    assert outcomes(IDEAL).keys() - outcomes(facts).keys() == {"notify", "pool", *planning}


def test_what_a_part_does_that_is_not_taken_in_is_unknown():
    kept_out = PartSeen("penstock-pool", "1.0", "/srv/pool.json", "anybody can write it")
    report = examine(replace(IDEAL, parts=(kept_out,), part_findings=()))
    assert feature(replace(IDEAL, parts=(kept_out,), part_findings=()), "pool").outcome is FeatureOutcome.UNKNOWN
    assert report.checks["parts"].level is Level.NO and not report.healthy


def test_parts_are_told_with_their_versions_and_files():
    assert examine(IDEAL).checks["parts"] == fine(
        "parts",
        "penstock-fronts 1.0 (/opt/penstock/penstock_parts/fronts.json), "
        "penstock-messages 1.0 (/opt/penstock/penstock_parts/messages.json), "
        "penstock-pool 1.0 (/opt/penstock/penstock_parts/pool.json), "
        "penstock-planning 1.0 (/opt/penstock/penstock_parts/planning.json)",
    )
    assert examine(replace(IDEAL, parts=())).checks["parts"].seen == "none is installed beside the core"


@pytest.mark.parametrize(
    "parts", [(PartSeen("theirs", "2.0", "/srv/theirs.json", "anybody can write it"),), Trouble("/srv/theirs.json: no")]
)
def test_a_part_that_is_not_taken_in_is_why_no_agent_starts(parts):
    facts = replace(IDEAL, parts=parts)
    assert (
        examine(facts).checks["parts"].level is Level.NO and "/srv/theirs.json" in examine(facts).checks["parts"].seen
    )
    assert feature(facts, "agent").outcome is FeatureOutcome.NO
    assert not examine(facts).healthy


def test_what_a_part_that_is_not_taken_in_would_have_checked_is_unknown():
    planning = PartSeen("penstock-planning", "1.0", "/srv/planning.json", "it cannot be loaded")
    facts = replace(IDEAL, parts=(*IDEAL.parts[:-1], planning), part_findings=IDEAL.part_findings[:3])
    found = examine(facts).checks["request-key"]
    assert (found.level, found.seen) == (Level.UNKNOWN, "not asked: it cannot be loaded")
    assert feature(facts, "hold-request").outcome is FeatureOutcome.UNKNOWN
    assert feature(facts, "pool").outcome is FeatureOutcome.WORKS


@pytest.mark.parametrize("level", Level)
def test_what_a_part_of_the_sites_own_finds_is_told_and_leads_to_no_page(level):
    """No feature of Penstock needs such a check."""
    facts = replace(IDEAL, part_findings=(*IDEAL.part_findings, Finding("theirs", level, "so", outside=True)))
    report = examine(facts)
    assert ("theirs" in report.worth_telling) is (level is not Level.OK)
    assert report.checks["theirs"].docs == "" and report.checks["queue"].docs == "docs/doctor.md#queue"
    assert report.healthy


def test_a_part_whose_checks_fail_is_named_and_the_agent_starts():
    *before, pool, planning = IDEAL.parts
    pool = replace(pool, unasked="RuntimeError('oh')")
    findings = (IDEAL.part_findings[0], *IDEAL.part_findings[3:])
    facts = replace(IDEAL, parts=(*before, pool, planning), part_findings=findings)
    assert examine(facts).checks["parts"].level is Level.NOTE
    assert "penstock-pool: RuntimeError('oh')" in examine(facts).checks["parts"].seen
    assert examine(facts).checks["pool-folder"].seen == "not asked: RuntimeError('oh')"
    assert feature(facts, "agent").outcome is FeatureOutcome.LIMITED


def test_no_slurm_at_all():
    away = Trouble("not asked, as slurmctld did not answer", asked=False)
    facts = replace(
        IDEAL,
        programs_missing=("squeue", "sbatch"),
        site=Trouble("squeue cannot be run"),
        queue=away,
        partitions=away,
        submission=away,
        accounts=away,
        history=away,
        clusters=away,
    )
    report, found = examine(facts), outcomes(facts)
    assert not report.healthy
    assert found["observe"] is FeatureOutcome.NO
    assert found["agent"] is FeatureOutcome.WORKS
    assert feature(facts, "observe").because == ("programs", "controller")
    assert "squeue, sbatch" in report.checks["programs"].seen
    assert report.checks["extern-step"].level is report.checks["queue"].level is Level.UNKNOWN
    assert {"programs", "controller"} <= report.blocking
    assert answer(facts, report).slurm is None


def test_a_slow_controller_leaves_it_open_what_works():
    facts = replace(IDEAL, queue=Trouble("not asked", asked=False))
    assert feature(facts, "observe").outcome is FeatureOutcome.UNKNOWN
    assert not examine(facts).healthy


def test_without_accounting_nothing_is_resized_twice():
    facts = replace(
        site(accounting=False, operator=False),
        accounts=Trouble("this cluster has no accounting"),
        history=0,
    )
    found = outcomes(facts)
    assert found["shrink"] is found["grow-merge"] is found["grow-companion"] is FeatureOutcome.NO
    assert found["workflows"] is found["select"] is FeatureOutcome.LIMITED
    assert level(facts, "association") is Level.OK
    assert "accounting first" in examine(facts).checks["operator"].change
    assert examine(facts).healthy  # what the defaults ask for works


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"prolog_flags": frozenset({"ALLOC", "CONTAIN"})}, "extern-step"),
        ({"prolog_flags": frozenset({"X11"})}, "extern-step"),
        ({"scheduler_parameters": frozenset()}, "job-expansion"),
        ({"scheduler_parameters": frozenset({"permit_job_expansion", "disable_job_shrink"})}, "job-shrink"),
    ],
)
def test_what_forbids_the_merge_leaves_the_companion(changes, check):
    facts = site(**changes)
    found = feature(facts, "grow-merge")
    assert (found.outcome, found.because) == (FeatureOutcome.NO, (check,))
    assert feature(facts, "grow-companion").outcome is not FeatureOutcome.NO
    assert feature(facts, "announce").outcome is not FeatureOutcome.NO
    assert feature(facts, "shrink").outcome is (FeatureOutcome.NO if check == "job-shrink" else FeatureOutcome.LIMITED)
    finding = examine(facts).checks[check]
    assert finding.change
    assert finding.cost
    assert examine(facts).healthy
    insists = config_of({"malleable": {"backend": "merge"}})
    assert not examine(replace(facts, config=insists)).healthy


def test_several_obstacles_are_all_named():
    facts = site(prolog_flags=frozenset({"CONTAIN"}), scheduler_parameters=frozenset())
    assert set(feature(facts, "grow-merge").because) == {"extern-step", "job-expansion"}


def test_gres_matter_where_cores_are_shared():
    facts = site(select_type="select/cons_tres")
    assert "merge-gres" in feature(facts, "grow-merge").because
    assert feature(facts, "grow-merge").outcome is FeatureOutcome.LIMITED


def test_one_agent_for_all_needs_an_operator_and_munge():
    facts = replace(IDEAL, config=EVERYBODY)
    assert examine(facts).healthy
    assert feature(facts, "grow-companion").outcome is not FeatureOutcome.NO
    assert "launcher" in examine(facts).checks["companion"].seen
    plain = replace(facts, site=replace(SITE, operator=False))
    assert feature(plain, "serve-all").because == ("operator",)
    assert not examine(plain).healthy
    mute = replace(facts, munge=Trouble("munged does not answer at its socket"))
    assert feature(mute, "messages").because == ("key",)
    assert not examine(mute).healthy


def test_a_user_of_a_sites_agent_has_what_that_does():
    """And is not told of rights, secrets and folders that are the agent's."""
    config = config_of({"agent": {"serve": "all"}, "messages": {"mail": "sendmail", "webhook": "/hook"}})
    theirs = replace(HOME, path="/var/lib/penstock", owner=990, writable=False)
    mute = Trouble("cannot be read")
    facts = replace(IDEAL, config=config, folder=theirs, own=HOME, state=mute, site=replace(SITE, operator=False))
    report = examine(facts)
    assert report.healthy
    assert {"agent", "workflows", "ahead", "serve-all", "messages", "notify", "hold-job"} <= {
        name for name, outcome in outcomes(facts).items() if outcome in (FeatureOutcome.WORKS, FeatureOutcome.LIMITED)
    }
    assert feature(facts, "hold-reservation").because == ("operator",), "which takes one's own rights"
    assert report.checks["agent"].seen == "the site's agent answers: it keeps state and runs workflows for all users"
    assert f"what belongs to u alone is in {HOME.path}" in report.checks["state-folder"].seen

    down = replace(facts, agent=Agent(answers=False))
    assert feature(down, "workflows").because == feature(down, "agent").because == ("agent",)
    assert "tell the administrators" in examine(down).checks["agent"].change
    assert not examine(down).healthy
    assert feature(down, "hold-job").outcome is FeatureOutcome.WORKS, "for which one's own ledger is enough"
    for own in (mute, replace(HOME, writable=False)):
        homeless = replace(facts, own=own)
        assert feature(homeless, "hold-job").because == ("state-folder",)
        assert "XDG_STATE_HOME" in examine(homeless).checks["state-folder"].change
        assert examine(homeless).healthy


def test_nobody_grows_announced_where_nothing_grows():
    facts = replace(site(scheduler_parameters=frozenset()), submission=Trouble("sbatch: error: no"))
    found = feature(facts, "announce")
    assert found.outcome is FeatureOutcome.NO
    assert set(found.because) == {"job-expansion", "submission"}


def test_a_plain_user_without_munge_signs_with_the_key():
    facts = replace(site(operator=False), munge=Trouble("libmunge.so.2 is not installed"), folder=HOME)
    assert feature(facts, "messages").outcome is FeatureOutcome.WORKS
    assert feature(facts, "hold-reservation").outcome is FeatureOutcome.NO
    assert feature(facts, "hold-job").outcome is FeatureOutcome.WORKS
    local = replace(facts, folder=replace(HOME, kind="ext4"))
    assert feature(local, "messages").because == ("key",)
    assert "DMR_KEY_FILE" not in examine(local).checks["key"].change
    assert "DMR_KEY_FILE" in examine(replace(local, munge=None)).checks["key"].change


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("nfs4", "only one host"), ("lustre", "only one host"), ("tmpfs", "lost when the host restarts")],
)
def test_file_systems_that_are_not_for_the_state(kind, seen):
    facts = replace(IDEAL, folder=replace(HOME, kind=kind, shared=False))
    assert seen in examine(facts).checks["file-system"].seen
    assert feature(facts, "agent").outcome is FeatureOutcome.LIMITED


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        (replace(HOME, writable=False), f"u cannot write to {HOME.path}"),
        (replace(HOME, made=False, writable=False), "where the state folder is to be made"),
        (replace(HOME, owner=0), "belongs to user id 0"),
        (replace(HOME, mode=0o777), "other users can write to"),
        (Trouble("/x: Permission denied"), "Permission denied"),
    ],
)
def test_a_state_folder_that_will_not_do(folder, text):
    facts = replace(IDEAL, folder=folder)
    assert text in examine(facts).checks["state-folder"].seen
    assert feature(facts, "workflows").outcome is FeatureOutcome.NO


@pytest.mark.parametrize(
    ("holder", "seen"), [("", "nobody holds it now"), ("an agent on n1 (pid 7)", "an agent on n1 (pid 7) holds it")]
)
def test_a_folder_that_other_hosts_see_is_held_by_a_lease(holder, seen):
    facts = replace(IDEAL, folder=replace(HOME, kind="nfs4", shared=True, holder=holder))
    assert examine(facts).checks["file-system"].seen.endswith(f"a lease protects the state; {seen}")
    assert feature(facts, "agent").outcome is FeatureOutcome.WORKS


def test_a_full_disk_is_said():
    facts = replace(IDEAL, folder=replace(HOME, free=10 * 2**20))
    assert "10 MB left" in examine(facts).checks["state-folder"].seen


def test_an_old_slurm_and_a_clock_that_is_off():
    facts = replace(site(version=(20, 11, 9)), skew=-400.0)
    assert "older than 22.05" in examine(facts).checks["release"].seen
    assert "400 s ahead of" in examine(facts).checks["clock"].seen
    assert level(site(version=(22, 5, 0)), "release") is Level.OK


@pytest.mark.parametrize(("enforced", "found"), [((), Level.NOTE), (("associations", "limits"), Level.NO)])
def test_a_user_whom_accounting_does_not_know(enforced, found):
    facts = replace(site(enforced=frozenset(enforced)), accounts=())
    assert level(facts, "association") is found
    assert "sacctmgr add user u" in examine(facts).checks["association"].change
    assert examine(facts).healthy is (found is Level.NOTE)


ENFORCED = frozenset({"associations", "limits", "qos"})
SMALL = Partition("batch", ("n1", "n2", "n3", "n4"), True, True, 7200.0, None, 3)


def limited(*limits: Limit, partition: Partition = IDEAL.partitions[0], unknown: str = "", **changes):
    """An enforcing site on which the QOS of the user's jobs has these limits."""
    holder = LimitHolder(HolderKind.QOS, "QOS normal", limits)
    owner = Owner("u", "physics", "batch", "normal")
    known = OwnerLimits(owner, partition, (holder,), associated=True, unknown=unknown)
    return replace(site(enforced=ENFORCED, **changes), limits=(known,))


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (limited(Limit("MaxTRESPerJob", 1, "node")), "QOS normal has MaxTRESPerJob node=1"),
        (limited(Limit("MaxTRESPerUser", 1, "cpu", 7.0)), "QOS normal has MaxTRESPerUser cpu=1"),
        (limited(Limit("MaxJobsPerUser", 1, used=0.0)), "QOS normal has MaxJobsPerUser 1"),
        (limited(partition=replace(SMALL, max_nodes=1)), "partition batch has MaxNodes 1"),
        (limited(unknown="PrivateData hides the accounts above"), "PrivateData hides the accounts above"),
        (limited(Limit("GrpTRES", 9, "node")), "how much is used of QOS normal has GrpTRES node=9"),
    ],
)
def test_limits_under_which_no_job_may_grow(facts, text):
    finding = examine(facts).checks["growth-limits"]
    assert finding.level is Level.NO and text in finding.seen
    assert "sacctmgr modify" in finding.change and finding.cost
    for name in ("grow-merge", "grow-companion"):
        assert (feature(facts, name).outcome, feature(facts, name).because) == (FeatureOutcome.NO, ("growth-limits",))
    assert feature(facts, "announce").outcome is FeatureOutcome.NO
    assert examine(facts).healthy  # nobody has asked for it
    insists = config_of({"malleable": {"backend": "companion"}})
    assert not examine(replace(facts, config=insists)).healthy


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (limited(Limit("MaxTRESPerJob", 4, "node")), "QOS normal has MaxTRESPerJob node=4"),
        (limited(Limit("MaxTRESPerUser", 4, "node", 4.0)), "QOS normal has MaxTRESPerUser node=4"),
        (limited(partition=SMALL), "partition batch has MaxNodes 3"),
        (replace(IDEAL, partitions=(SMALL,)), "batch 3"),
    ],
)
def test_limits_within_which_jobs_grow(facts, text):
    finding = examine(facts).checks["growth-limits"]
    assert finding.level is Level.NOTE and text in finding.seen and finding.change
    assert feature(facts, "grow-companion").outcome is FeatureOutcome.LIMITED
    assert level(limited(Limit("MaxWall", 60)), "growth-limits") is Level.OK


def test_limits_that_nobody_is_held_to_are_no_finding():
    facts = limited(Limit("MaxTRESPerJob", 1, "node"))
    free = replace(facts, site=replace(SITE, enforced=frozenset({"associations"})))
    assert level(free, "growth-limits") is Level.OK


def test_limits_that_could_not_be_read_leave_it_open():
    facts = replace(site(enforced=ENFORCED), limits=Trouble("no answer"))
    assert "no answer" in examine(facts).checks["growth-limits"].seen
    assert feature(facts, "grow-companion").outcome is FeatureOutcome.UNKNOWN


def test_a_time_limit_is_raised_within_the_owners_own_and_by_operators_alone():
    facts = limited(Limit("MaxWall", 3600), operator=True)
    finding = examine(facts).checks["time-limits"]
    assert finding.level is Level.NOTE and "QOS normal has MaxWall 60 min" in finding.seen
    assert "time-limits" in feature(facts, "shrink").because
    assert level(limited(Limit("MaxWall", 3600), operator=False), "time-limits") is Level.OK
    assert (
        "MaxTime of the partition (batch 120 min)"
        in examine(replace(IDEAL, partitions=(SMALL,))).checks["time-limits"].seen
    )


def test_a_resizer_of_the_sites_agent_is_refused_where_associations_are_demanded():
    facts = replace(limited(), config=EVERYBODY, accounts=("root",), user="penstock")
    finding = examine(facts).checks["resizers"]
    assert finding.level is Level.NO and "may use root" in finding.seen and "companion" in finding.change
    assert "resizers" in feature(facts, "grow-merge").because
    assert feature(facts, "grow-companion").outcome is not FeatureOutcome.NO
    assert examine(facts).healthy
    insists = config_of({"agent": {"serve": "all"}, "malleable": {"backend": "merge"}})
    assert not examine(replace(facts, config=insists)).healthy
    assert level(replace(facts, config=Config()), "resizers") is Level.OK  # the agent is the owner
    assert level(replace(facts, config=Config(), accounts=()), "resizers") is Level.NO
    assert level(IDEAL, "resizers") is Level.OK


def first_line(facts) -> str:
    return verdict(facts, examine(facts))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            IDEAL,
            (
                "gain priority by age",
                "by a second job that holds the added nodes or by nodes that are merged into it, and give nodes back",
            ),
        ),
        (site(priority_type="priority/basic"), ("in the order in which they were submitted",)),
        (site(priority_flags=frozenset()), ("a stage waits for nodes",)),
        (site(priority_flags=frozenset(), select_type="select/cons_tres"), ("ahead hardly helps",)),
        (site(prolog_flags=frozenset({"CONTAIN"})), ("can grow by a second job that holds the added nodes, and",)),
        (replace(site(enforced=ENFORCED), accounts=()), ("ahead does not work (see association)",)),
        (limited(Limit("MaxTRESPerJob", 1, "node")), ("give nodes back, but not grow (see growth-limits)",)),
        (site(accounting=False), ("Resizing does not work (see accounting)",)),
        (
            replace(IDEAL, submission=Trouble("not asked", asked=False)),
            ("ahead may or may not help (not known: submission",),
        ),
        (replace(IDEAL, site=Trouble("no answer")), ("nothing is known",)),
    ],
)
def test_the_first_line_says_whether_it_helps(facts, said):
    line = first_line(facts)
    assert line.startswith("For u here: ") and line.endswith(".") and "\n" not in line
    assert all(words in line for words in said), line


def test_a_refused_submission_tells_slurms_own_words():
    facts = replace(IDEAL, submission=Trouble("Invalid account or account/partition combination specified"))
    assert "Invalid account" in examine(facts).checks["submission"].seen
    assert feature(facts, "workflows").because == ("submission",)


def test_a_hidden_queue_limits_whoever_is_no_operator():
    hidden = site(private=frozenset({"jobs", "usage"}), operator=False)
    assert feature(hidden, "observe").because == ("private-data",)
    assert level(site(private=frozenset({"jobs"})), "private-data") is Level.OK


def test_ageing_matters_where_stages_wait_as_dependencies():
    assert level(site(priority_flags=frozenset()), "aging") is Level.OK  # whole nodes: they wait for a node
    shared = site(priority_flags=frozenset(), select_type="select/cons_tres")
    assert feature(shared, "ahead").because == ("aging",)
    assert "`eager`" in examine(shared).checks["aging"].seen


def test_a_wrong_configuration_is_named_and_breaks_what_uses_it():
    facts = replace(IDEAL, config_trouble="/x.yaml: `agent.intervall` is not a known key")
    assert "intervall" in examine(facts).checks["config"].seen
    assert not examine(facts).healthy


def test_pyslurm_counts_only_where_it_is_asked_for():
    facts = replace(IDEAL, pyslurm=Trouble("pyslurm 25.11.2 is not made for this site's Slurm 24.11"))
    assert feature(facts, "pyslurm").outcome is FeatureOutcome.NO
    assert examine(facts).healthy
    assert "pyslurm" not in examine(facts).worth_telling
    assert not examine(replace(facts, config=config_of({"slurm": {"backend": "pyslurm"}}))).healthy


@pytest.mark.parametrize(
    ("mpi", "text"),
    [
        (Trouble("mpi4py is not installed"), "no MPI"),
        (replace(IDEAL.mpi, mpiexec=None), "no mpiexec"),
        (replace(IDEAL.mpi, library="Open MPI v5.0.11", methods=("restart",)), "by restart"),
    ],
)
def test_mpi_limits_resizing_and_nothing_else(mpi, text):
    facts = replace(IDEAL, mpi=mpi)
    assert text in examine(facts).checks["mpi"].seen
    assert feature(facts, "grow-merge").outcome is FeatureOutcome.LIMITED
    assert feature(facts, "workflows").outcome is FeatureOutcome.WORKS


def test_the_probe_says_what_fails_and_need_not_be_run():
    assert level(replace(IDEAL, probe=None), "mpi-probe") is Level.UNKNOWN
    facts = replace(IDEAL, probe=Probe(("restart",), {"spawn": "not done within 60 s"}))
    assert "spawn: not done within 60 s" in examine(facts).checks["mpi-probe"].seen


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (Agent(answers=False, ticked=30.0), "`penstock tick` ran 30 s ago"),
        (Agent(answers=False, ticked=99999.0), "no agent runs"),
        (Agent(answers=False), "no agent runs"),
    ],
)
def test_an_agent_that_does_not_run(agent, text):
    assert text in examine(replace(IDEAL, agent=agent)).checks["agent"].seen


@pytest.mark.parametrize(
    ("services", "scron", "text"),
    [
        (Services(False, None, "", True), False, "from your crontab"),
        (Services(False, None, "", False), True, "from your scrontab"),
        (Services(True, False, "active", True), False, "enable-linger"),
    ],
)
def test_what_can_start_the_agent(services, scron, text):
    facts = replace(site(scron=scron), services=services, agent=Agent(answers=False))
    assert text in examine(facts).checks["service"].change


def test_a_host_that_only_finds_itself():
    facts = replace(IDEAL, address=AgentAddress("login1", ("127.0.1.1",)))
    assert "dmr.advertise" in examine(facts).checks["address"].change


def test_an_address_of_ipv6_is_one_without_its_brackets():
    assert _address(config_of({"dmr": {"listen": "[::1]:0"}})) == AgentAddress("[::1]", ("::1",))


def test_limits_are_told_and_a_partition_that_is_not_there_is_named():
    def told(**limits):
        return examine(replace(IDEAL, config=config_of({"limits": limits}))).checks["limits"]

    assert told().seen.startswith("none")
    fine = told(allow=[{"partitions": ["batch"]}], nodes_per_hour=8, nodes_per_hour_of_user=2)
    assert fine.seen == "8 nodes an hour, 2 nodes an hour for each user, rules of `limits.allow`: 1"
    odd = told(allow=[{"partitions": ["batch", "bach"]}])
    assert odd.level is Level.NOTE and "no partition bach" in odd.seen
    assert told(allow=[]).level is Level.NOTE


def test_users_accounts_and_qos_that_do_not_exist_are_named_where_that_is_known():
    rules = [{"users": ["alice", "alcie"], "accounts": ["physics", "fysics"], "qos": ["long", "lnog"]}]
    config = config_of({"limits": {"allow": rules}})
    facts = replace(IDEAL, config=config)
    assert examine(facts).checks["limits"].level is Level.OK, "nobody could be asked"
    facts = replace(
        facts,
        known_users=frozenset({"alice"}),
        known_accounts=frozenset({"physics", "root"}),
        known_qos=frozenset({"normal", "long"}),
    )
    odd = examine(facts).checks["limits"]
    assert odd.level is Level.NOTE
    assert odd.seen.endswith("there is no user alcie, no account fysics, no QOS lnog, which `limits.allow` names")


def test_a_socket_for_all_in_a_folder_for_one_is_none(tmp_path):
    config = config_of({"agent": {"serve": "all", "state_dir": str(tmp_path / "s")}})
    facts = replace(IDEAL, config=config)
    assert examine(facts).checks["socket"].level is Level.OK
    shut = examine(replace(facts, closed_folder="/srv/penstock"))
    assert shut.checks["socket"].level is Level.NO and "cannot enter /srv/penstock" in shut.checks["socket"].seen
    assert next(f for f in shut.features if f.spec.id == "serve-all").outcome is FeatureOutcome.NO
    own = examine(replace(IDEAL, closed_folder="/srv/own"))
    assert own.checks["socket"].level is Level.OK, "an agent of one's own is nobody else's"


def test_the_folder_that_keeps_others_out_is_found(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            assert _closed_folder(tmp_path / "s") != ""
    place = tmp_path / "open" / "shut" / "open"
    place.mkdir(parents=True)
    outside = _closed_folder(tmp_path / "x")
    assert _closed_folder(place / "agent.sock") == outside
    (tmp_path / "open" / "shut").chmod(0o700)
    assert _closed_folder(place / "agent.sock") == (outside or str(tmp_path / "open" / "shut"))
    assert _closed_folder(tmp_path / "open" / "not" / "there" / "agent.sock") == outside


@pytest.mark.parametrize(
    ("listen", "level"),
    [
        (None, Level.OK),
        ("127.0.0.1:9341", Level.OK),
        ("10.0.0.1:9341", Level.OK),
        ("monitoring.example.org:9341", Level.OK),
        ("0.0.0.0:9341", Level.NOTE),
        ("[::]:9341", Level.NOTE),
    ],
)
def test_metrics_for_everybody_are_told(listen, level):
    config = config_of({"metrics": {"listen": listen}})
    found = examine(replace(IDEAL, config=config)).checks["metrics"]
    assert found.level is level
    if level is Level.NOTE:
        assert "127.0.0.1:9341" in found.change


def test_messages_are_missed_by_those_who_ask_for_them():
    others = [one for one in IDEAL.part_findings if one.check != "notify"]
    broken = replace(IDEAL, part_findings=(failed("notify", "/f: chmod 600", "correct it"), *others))
    assert examine(broken).healthy
    asked = replace(broken, config=config_of({"messages": {"webhook": "/f"}}))
    assert feature(asked, "notify").because == ("notify",)
    assert not examine(asked).healthy


def test_what_parts_find_stands_before_the_limits_but_whether_people_are_told():
    order = [*examine(IDEAL).checks]
    assert order.index("pool-packages") < order.index("limits") < order.index("notify")


def test_every_check_and_feature_is_explained_in_the_docs():
    report = examine(IDEAL)
    page = (PROJECT / "docs" / "doctor.md").read_text()
    anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", page, re.M)}
    assert {finding.docs.partition("#")[2] for finding in report.checks.values()} <= anchors
    assert {feature.spec.docs.partition("#")[2] for feature in report.features} <= anchors
    assert all(f"| `{feature.spec.id}` |" in page for feature in report.features)
    assert {f.docs.partition("#")[0] for f in report.checks.values()} == {"docs/doctor.md"}


def test_features_rest_on_checks_that_are_made():
    made = set(examine(IDEAL).checks)
    named = {check for spec in FEATURES for check in (*spec.needs, *spec.helps)}
    assert named <= made
    assert made - named <= {"clusters", "munge"} | named
    assert len({spec.id for spec in FEATURES}) == len(FEATURES)


def test_the_json_keeps_its_shape():
    told = json.loads(json_text(answer(IDEAL, examine(IDEAL))))
    assert set(told) == {
        *("format", "penstock", "user", "host", "python", "config", "cluster", "slurm", "operator", "requests"),
        *("seconds", "healthy", "verdict", "features", "checks"),
    }
    assert {tuple(sorted(f)) for f in told["features"]} == {
        ("because", "docs", "id", "outcome", "right", "title", "wanted")
    }
    assert {tuple(sorted(c)) for c in told["checks"]} == {("change", "cost", "docs", "id", "level", "seen")}
    assert {f["outcome"] for f in told["features"]} <= {"works", "limited", "no", "unknown"}
    assert {c["level"] for c in told["checks"]} <= {"ok", "note", "no", "unknown"}


MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /home rw - nfs4 server:/home rw
41 22 0:36 / /home rw - nfs4 other:/home rw
42 22 0:37 / /mnt/a\040b rw shared:7 - lustre mgs@tcp:/fs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/home/u/.local", ("/home", "nfs4")),
        ("/homeless", ("/", "ext4")),
        ("/mnt/a b/c", ("/mnt/a b", "lustre")),
        ("/", ("/", "ext4")),
    ],
)
def test_the_file_system_of_a_folder(path, mount):
    assert mount_of(path, MOUNTS) == mount
    assert is_network(mount[1]) is (mount[1] != "ext4")


def test_what_hangs_costs_its_time_limit_only():
    assert _within(0.01, threading.Event().wait) == Trouble("no answer within 0.01 s")
    assert _within(60.0, lambda: 7) == 7
    refused = _within(60.0, lambda: Path("/nowhere/at/all").stat())
    assert isinstance(refused, Trouble)
    assert "/nowhere/at/all" in refused.why


def test_on_a_host_without_slurm_the_command_says_so(tmp_path):
    """Facts of this host, read by the command itself, with a configuration that is wrong besides."""
    (tmp_path / "c.yaml").write_text("agent: {intervall: 5}\n")
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PENSTOCK_CONFIG": str(tmp_path / "c.yaml")}
    environ |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", "doctor", "--json"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    levels = {check["id"]: check["level"] for check in told["checks"]}
    assert (levels["config"], levels["programs"], levels["controller"]) == ("no", "no", "no")
    assert levels["state-folder"] != "unknown"
    assert not told["healthy"]
    assert "Traceback" not in done.stderr


def test_slurmrestd_says_what_cannot_be_done():
    url = {"slurm": {"backend": "rest"}, "rest": {"url": "http://slurm.example.org:6820"}}
    config = config_of(url)
    spoken = RestSpoken("v0.0.42", ())
    assert "v0.0.42" in examine(replace(IDEAL, config=config, rest=spoken)).checks["rest"].seen
    assert "can be read on the way" in examine(replace(IDEAL, config=config, rest=spoken)).checks["rest"].seen
    local = config_of({**url, "rest": {"url": "unix:/run/x"}})
    lacking = examine(replace(IDEAL, config=local, rest=RestSpoken("v0.0.42", ("estimates of a start",)))).checks[
        "rest"
    ]
    assert "not to be had: estimates of a start" in lacking.seen and "rest.commands" in lacking.change
    broken = replace(IDEAL, config=local, rest=Trouble("nothing answers at unix:/run/x"))
    assert feature(broken, "rest").outcome is FeatureOutcome.NO and not examine(broken).healthy
    assert "rest" not in examine(IDEAL).worth_telling
