"""Rows of real Slurm as Penstock's values. tests/fixtures/slurm/<release> holds what that release wrote."""

import itertools
import json
import math
import re
from dataclasses import replace

import pytest

from penstock.api import AccountingRecord, JobState
from penstock.errors import Infeasible, NoCluster, NotFound, NotNow, NotPermitted, OutcomeUnknown, SlurmUnavailable
from penstock.slurm import records, site_settings
from penstock.slurm.parse import ParseError
from penstock.slurm.refusals import classify, refused, unanswered
from places import FIXTURES

RELEASES = sorted((FIXTURES / "slurm").glob("*.*/"))
MARK = "@00c0ffee00c0ffee@"


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def read(request):
    return lambda name: (request.param / name).read_text()


def jobs(read):
    rows = records.split_rows(read("squeue_jobs.txt"), records.JOB_FIELDS, MARK)
    return {job.id: job for job in (records.job_from_row(row, lambda _: 600.0) for row in rows)}


@pytest.fixture
def facts(read):
    """What was done when the answers were recorded: numbers of jobs by what they are (see record.py)."""
    return json.loads(read("facts.json"))


def test_jobs(read, facts):
    found = jobs(read)
    assert sorted(found) == facts["listed"]
    running = found[facts["running"]]
    assert (running.state, running.nodes, running.num_nodes, running.num_cpus) == (JobState.RUNNING, ("n1", "n2"), 2, 4)
    assert (running.uid, running.user, running.account, running.qos) == (5, "games", "acc", "normal")
    assert 1795240000 < running.submit <= running.eligible <= running.start <= running.submit + 2
    assert (running.end, running.time_limit, running.batch_host) == (running.start + 300, 300.0, "n1")
    waiting = found[facts["waiting"]]
    assert (waiting.reason, waiting.eligible, waiting.start, waiting.time_limit) == ("Dependency", None, None, 93600.0)
    assert waiting.dependency == f"afterok:{running.id}(unfulfilled)"
    begin = found[facts["begin"]]
    assert (begin.reason, begin.eligible) == ("BeginTime", begin.submit + 1000)
    down = found[facts["down"]]
    assert down.reason.startswith("Nodes required for job are DOWN, ")
    assert down.pending and down.eligible is not None and down.start is None
    held = found[facts["held"]]
    assert (held.reason, held.priority, held.eligible, held.time_limit) == ("JobHeldUser", 0, None, 600.0)
    assert found[facts["too_large"]].reason == "PartitionNodeLimit"
    ended = found[facts["completed"]]
    assert (ended.state, ended.nodes) == (JobState.COMPLETED, ("n3",))
    # The rest of an array is one record beside its running tasks.
    rest, first, second = (found[job] for job in (facts["array"], *facts["tasks"]))
    assert (rest.reason, rest.array_task, rest.tasks) == ("JobArrayTaskLimit", None, 4)
    assert {job.array_job for job in (rest, first, second)} == {facts["array"]}
    assert [(job.state, job.array_task, job.tasks) for job in (first, second)] == [
        (JobState.RUNNING, 0, 1),
        (JobState.RUNNING, 1, 1),
    ]
    assert (found[facts["far"]].tasks, found[facts["far"]].array_task) == (305, None)
    assert (running.array_job, running.array_task, running.tasks, running.restarts) == (None, None, 1, 0)
    again = found[facts["again"]]
    assert (again.state, again.restarts, again.nodes) == (JobState.PENDING, 1, ())
    assert again.eligible >= again.submit + 100
    assert (found[facts["reserved"]].reservation, running.reservation) == ("now", "")


def test_the_fewest_nodes_of_a_job_that_takes_a_range(read, facts):
    found = jobs(read)
    for name in ("ranged", "ranged_tasks"):
        assert (found[facts[name]].num_nodes, found[facts[name]].least_nodes) == (6, 2), name
    tasks = found[facts["only_tasks"]]
    assert tasks.num_nodes == tasks.least_nodes == 4, "seven tasks on nodes of two do not fit on one"
    assert found[facts["running"]].min_nodes is None and found[facts["waiting"]].min_nodes is None


def test_a_user_s_text_does_not_make_rows(read, facts):
    forged = jobs(read)[facts["forged"]]
    assert (forged.user, forged.account, forged.nodes) == ("man", "x\n77|5|@0123@root", ())


def test_rows_that_are_cut_off_are_no_rows(read):
    text = read("squeue_jobs.txt")
    heading, _, body = text.partition("\n")
    tails = (text + "1", text + "Bye\n12", text[:-1] + "x", body, "", "Welcome\n", "1\n")
    for broken in (text[:-30], text[10:].replace(MARK, "", 1), text.replace(MARK, "|", 1), *tails):
        with pytest.raises(ParseError):
            records.split_rows(broken, records.JOB_FIELDS, MARK)
    assert records.split_rows(heading + "\n", records.JOB_FIELDS, MARK) == []


def test_what_a_wrapper_prints_around_the_rows_is_skipped(read):
    text = read("squeue_jobs.txt")
    rows = records.split_rows(text, records.JOB_FIELDS, MARK)
    for banner in ("Welcome\n", "1 job\nJOBID USER\n\n", "77|root\n"):
        assert records.split_rows(banner + text, records.JOB_FIELDS, MARK) == rows
    for farewell in ("Bye\n", "x", "\n\n", "see https://1/\nor 2\n"):
        assert records.split_rows(text + farewell, records.JOB_FIELDS, MARK) == rows


def test_reservations(read):
    lines = records.lines_of(read("reservations.txt"), "ReservationName", "No reservations in the system")
    now, later, ever = map(records.reservation_from_line, lines)
    assert (now.name, now.nodes, now.active, now.end - now.start) == ("now", ("n3",), True, 120.0)
    assert (now.users, now.accounts) == ({"games", "man"}, frozenset())
    assert now.flags == {"FLEX", "SPEC_NODES", "PURGE_COMP=00:10:00"}
    assert (later.active, later.accounts, later.users, later.partition) == (False, {"penstock"}, frozenset(), "batch")
    assert (len(later.nodes), later.end - later.start) == (2, 365 * 86400.0)
    assert (ever.end, ever.nodes, ever.users, ever.partition) == (math.inf, (), {"-man"}, "")
    none = read("reservations_none.txt")
    assert records.lines_of("Hello\n" + none, "ReservationName", "No reservations in the system") == []
    with pytest.raises(ParseError):
        records.lines_of("Hello\n", "ReservationName", "No reservations in the system")
    with pytest.raises(ParseError):
        records.reservation_from_line("ReservationName=x StartTime=1 EndTime=2")


def test_licenses(read):
    lines = records.lines_of(read("licenses.txt"), "LicenseName", "No licenses configured in Slurm")
    matlab, stata = map(records.license_from_line, lines)
    assert (matlab.name, matlab.total, matlab.used, matlab.reserved) == ("matlab", 4, 3, 0)
    assert (stata.name, stata.total, stata.used, stata.reserved) == ("stata", 10, 0, 2)
    with pytest.raises(ParseError):
        records.license_from_line("LicenseName=x Total=many Used=0")


def test_estimates(read):
    for text in (read("estimate.txt"), "sbatch: lua: be nice\n" + read("estimate.txt")):
        found = records.estimate_from_text(text)
        assert (found.nodes, found.num_cpus, found.partition) == (("n5", "n6"), 4, "batch")
        assert 1795261000 < found.start < 1795400000
    elsewhere = read("estimate.txt").replace(" using", " on cluster c using").replace(" a on", " on")
    assert records.estimate_from_text(elsewhere).nodes == ("n5", "n6")
    assert type(classify(read("estimate_refused.txt"), changing=False)) is Infeasible
    with pytest.raises(ParseError):
        records.estimate_from_text(read("estimate_refused.txt"))


def test_a_limit_that_is_the_partition_s():
    row = ["1", "5", "u", "a", "p,q", "normal", "PENDING", "None", "10", "10", "N/A", "N/A", "Partition_Limit"]
    row += ["1", "1", "", "1", "(null)", "n/a", "1", "N/A", "0", "(null)", "N/A", "0"]
    asked = []
    job = records.job_from_row(row, lambda name: asked.append(name) or 77.0)
    assert (job.time_limit, asked, job.batch_host, job.dependency) == (77.0, ["p,q"], "", "")


def test_nodes(read):
    nodes = {n.name: n for n in map(records.node_from_line, read("nodes.txt").splitlines())}
    assert len(nodes) == 8
    assert (nodes["n1"].cpus, nodes["n1"].usable, nodes["n1"].partitions) == (2, True, ("batch", "short"))
    assert not nodes["n7"].usable and not nodes["n8"].usable
    assert nodes["n7"].state in ("DOWN", "DOWN+NOT_RESPONDING") and nodes["n8"].state == "IDLE+DRAIN"


def test_partitions(read):
    batch, short = map(records.partition_from_line, read("partitions.txt").splitlines())
    assert (batch.name, batch.default, batch.up, batch.max_nodes) == ("batch", True, True, None)
    assert (batch.max_time, batch.default_time, len(batch.nodes)) == (86400.0, 600.0, 8)
    assert (short.default, short.max_time, short.default_time, short.max_nodes) == (False, 1800.0, 1800.0, 2)


def test_site(read, facts):
    site = site_settings.site_from_text(read("config.txt"))
    assert ".".join(f"{part:02}" if i < 2 else str(part) for i, part in enumerate(site.version)) == facts["version"]
    assert (site.cluster, site.select_type) == ("sc", "select/linear")
    assert site.permits_expansion and not site.accrues_always and "bf_interval=1" in site.scheduler_parameters
    assert (site.prolog_flags, site.priority_flags, site.min_job_age) == (frozenset(), frozenset(), 300.0)
    text = re.sub(r"(?m)^PrologFlags .*$", "PrologFlags = Alloc,Contain", read("config.txt"))
    assert not site_settings.site_from_text(text).permits_expansion


def test_steps(read, facts):
    rows = records.split_rows(read("squeue_steps.txt"), records.STEP_FIELDS, MARK)
    (step,) = (records.step_from_row(row, facts["running"]) for row in rows)
    assert (step.job, step.id, step.nodes) == (facts["running"], "batch", ("n1",))
    assert records.step_from_row([f"{facts['running']}.TBD", "", "PENDING"], facts["running"]) is None


def test_accounting(read, facts):
    rows = records.split_rows(read("sacct.txt"), records.ACCOUNTING_FIELDS, MARK)
    found = {record.id: (record, nodes) for record, nodes in records.accounting_from_rows(rows)}
    assert set(found) == {facts["resized"], facts["merged"], facts["requeued"]}

    def cells(job, column):
        return [row[records.ACCOUNTING_FIELDS.index(column)] for row in rows if row[0] == str(facts[job])]

    resized, nodes = found[facts["resized"]]
    assert resized.state is JobState.CANCELLED and resized.exit_code in (0, 143)
    assert cells("resized", "State")[0] == "RESIZING"
    assert (resized.submit, resized.start) == (
        float(cells("resized", "Submit")[0]),
        float(cells("resized", "Start")[0]),
    )
    assert (resized.end, len(nodes)) == (float(cells("resized", "End")[-1]), resized.num_nodes)
    merged, nodes = found[facts["merged"]]
    assert merged.state in (JobState.COMPLETED, JobState.RESIZING) and (merged.num_nodes, nodes) == (0, ())
    requeued = found[facts["requeued"]][0]  # of two runs the last
    assert (requeued.state, requeued.time_limit) == (JobState.CANCELLED, 5940.0)
    assert requeued.submit == float(cells("requeued", "Submit")[-1]) > float(cells("requeued", "Submit")[0])


def test_accounting_in_any_order(read):
    rows = records.split_rows(read("sacct.txt"), records.ACCOUNTING_FIELDS, MARK)
    told = records.accounting_from_rows(rows)
    for order in itertools.permutations(rows):
        assert records.accounting_from_rows(order) == told


def test_what_accounting_has_not_heard_yet_is_no_record():
    text = next(path / "sacct_early.txt" for path in RELEASES if path.name == "22.05").read_text()
    rows = records.split_rows(text, records.ACCOUNTING_FIELDS, MARK)
    assert len(rows) == 10
    assert [record.id for record, _ in records.accounting_from_rows(rows)] == [23, 24, 35]


def test_tolerated_refusals():
    pending, no_error = "Job is pending execution", "7_1-3: No error"
    finished = "7_4: Job has already finished"
    assert refused(f"{no_error}\n7_5: {pending}\n{finished}\n", [pending]) == ""
    assert refused(f"{finished}\n7_5: {pending}\n", [pending]) == finished
    assert refused(f"{no_error}\n7_5: Access/permission denied\n", [pending]) == "7_5: Access/permission denied"


OVER_A_LIMIT = (
    "sbatch: error: Batch job submission failed: "
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", Infeasible),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", Infeasible),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            Infeasible,
        ),
        ("sbatch: error: Batch job submission failed: Job dependency problem", Infeasible),
        ("Job step already exists for job 4", Infeasible),
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Job violates accounting/QOS policy", NotNow),
        (
            "sbatch: error: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            Infeasible,
        ),
        ("Job update not available right now, the DB index is being set, try again in a bit for job 3", NotNow),
        ("scancel: error: Kill job error on job id 9: Invalid job id specified", NotFound),
        ("scancel: error: Kill job error on job id 9: Access/permission denied", NotPermitted),
        (
            "squeue: error: No cluster 'x' known by database.\nsqueue: error: 'x' can't be reached now, or it is an "
            "invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.",
            NoCluster,
        ),
        ("sbatch: error: 'far' can't be reached now, or it is an invalid entry for --cluster.", SlurmUnavailable),
        ("Invalid user id for job 9", NotPermitted),
        ("sbatch: error: Batch job submission failed: Access denied to requested reservation", NotPermitted),
        ("Error creating the reservation: Requested nodes are busy", NotNow),
        ("Error creating the reservation: Duplicate reservation name", Infeasible),
        ("delete_reservation ReservationName=r: Requested reservation is in use", NotNow),
        ("scontrol: error: Error parsing flags WHAT.  No reservation created.", Infeasible),
        ("Requested operation is presently disabled for job 28", Infeasible),
        ("Only batch jobs are accepted or processed for job 33", Infeasible),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmUnavailable),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", SlurmUnavailable),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", OutcomeUnknown),
        ("a text of the year 2040", OutcomeUnknown),
        ("", OutcomeUnknown),
        # What a job_submit plug-in refuses (22.05, 24.11), and cli_filter.
        ("sbatch: error: Batch job submission failed: Unspecified error", Infeasible),
        (
            "sbatch: error: the munge key: try again, connection refused\n"
            "sbatch: error: Batch job submission failed: Unspecified error",
            Infeasible,
        ),
        ("sbatch: error: socket timed out\nallocation failure: Unspecified error", Infeasible),
        ("salloc: error: try again\nsalloc: error: Job submit/allocate failed: Unspecified error", Infeasible),
        ("scontrol: error: no change, try again\nUnspecified error for job 3", Infeasible),
        ("Unspecified error for job 3", Infeasible),
        ("sbatch: error: lua: munge: try again\nsbatch: error: cli_filter plugin terminated with error", Infeasible),
        # With a code of Slurm's, that counts.
        (
            "sbatch: error: invalid for now\n"
            "sbatch: error: Batch job submission failed: Slurm temporarily unable to accept job, sleeping and retrying",
            SlurmUnavailable,
        ),
        (
            "sbatch: error: AssocMaxSubmitJobLimit\n" + OVER_A_LIMIT,
            NotNow,
        ),
        (
            "sbatch: error: your limit is not submitjobs but time\n" + OVER_A_LIMIT,
            Infeasible,
        ),
        (
            "sbatch: error: it was submitted, denied\n"
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            SlurmUnavailable,
        ),
    ],
)
def test_refusals(text, error):
    assert type(classify(text, changing=True)) is error
    assert not isinstance(classify(text, changing=False), OutcomeUnknown)


def test_the_words_of_a_plug_in_are_told_and_are_no_outage():
    said = "sbatch: error: no GPU, connection refused\nsbatch: error: Batch job submission failed: Unspecified error\n"
    assert "no GPU, connection refused" in str(classify(said, changing=True))
    assert not unanswered(said)
    assert unanswered(
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    )


def test_fair_shares_of_the_user_alone():
    text = "physics||0.5\nphysics|ann|0.250000\nbio|ann|\nchem|ann|nan\nphysics|ann|0.3\nmaths|bob|0.9\n"
    assert records.shares_from_text(text, "ann") == {"physics": 0.3}
    assert records.shares_from_text("", "ann") == {}
    with pytest.raises(ParseError):
        records.shares_from_text("You are not running priority/multifactor", "ann")


def test_the_tasks_of_an_array_are_one_record():
    assert records.arrays_of("124|123_1\n123|123_2\n130|130\n") == {124: 123, 123: 123}
    task = AccountingRecord(124, "x", "alice", "batch", "", "", JobState.COMPLETED, 0, 5.0, 6.0, 7.0, 20.0, 60.0, 1)
    failed = replace(task, id=125, state=JobState.FAILED, exit_code=3, start=8.0, end=9.0)
    waits = replace(task, id=123, state=JobState.PENDING, start=None, end=None)
    whole = records.of_array(123, [task, failed])
    assert (whole.id, whole.state, whole.exit_code, whole.start, whole.end) == (123, JobState.FAILED, 3, 7.0, 20.0)
    assert (records.of_array(123, [task, failed, waits]).state, records.of_array(123, [task, waits]).end) == (
        JobState.PENDING,
        None,
    )
