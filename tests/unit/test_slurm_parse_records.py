"""Rows of real Slurm as Penstock's values. tests/fixtures/slurm/<release> holds what that release wrote."""

from pathlib import Path

import pytest

from penstock.api import JobState
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted, OutcomeUnknown, SlurmUnavailable
from penstock.slurm import records
from penstock.slurm.parse import ParseError
from penstock.slurm.refusals import classify

RELEASES = sorted((Path(__file__).parents[1] / "fixtures" / "slurm").glob("*.*/"))
MARK = "@00c0ffee00c0ffee@"


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def read(request):
    return lambda name: (request.param / name).read_text()


def jobs(read):
    rows = records.split_rows(read("squeue_jobs.txt"), records.JOB_FIELDS, MARK)
    return {job.id: (job, host) for job, host in (records.job_from_row(row, lambda _: 600.0) for row in rows)}


def test_jobs(read):
    found = jobs(read)
    by_reason = {job.reason: job for job, _ in found.values()}
    running, host = found[1559]
    assert (running.state, running.nodes, running.num_nodes, running.num_cpus) == (JobState.RUNNING, ("n1", "n2"), 2, 4)
    assert (running.uid, running.user, running.account, running.qos) == (5, "games", "acc", "normal")
    assert (running.submit, running.end, running.time_limit, host) == (1795249387.0, 1795249687.0, 300.0, "n1")
    waiting = by_reason["Dependency"]
    assert (waiting.eligible, waiting.start, waiting.time_limit) == (None, None, 93600.0)
    assert waiting.dependency == "afterok:1559(unfulfilled)"
    assert by_reason["BeginTime"].eligible == 1795250387.0
    down = next(job for reason, job in by_reason.items() if reason.startswith("Nodes required for job are DOWN, "))
    assert down.pending and down.eligible is not None and down.start is None
    ended = [job for job, _ in found.values() if job.state.ended]
    assert [job.state for job in ended] == [JobState.COMPLETED]
    # The rest of an array is one record beside its running tasks.
    assert by_reason["JobArrayTaskLimit"].id == 1563 and {1570, 1571} <= set(found)


def test_a_user_s_text_does_not_make_rows(read):
    found = jobs(read)
    assert set(found) == {*range(1559, 1569), 1570, 1571}
    forged = found[1567][0]
    assert (forged.user, forged.account, forged.nodes) == ("man", "x\n77|5|@0123@root", ())


def test_rows_that_are_cut_off_are_no_rows(read):
    text = read("squeue_jobs.txt")
    for broken in (text[:-30], text[10:].replace(MARK, "", 1), text.replace(MARK, "|", 1), text + "x"):
        with pytest.raises(ParseError):
            records.split_rows(broken, records.JOB_FIELDS, MARK)
    assert records.split_rows("", records.JOB_FIELDS, MARK) == []


def test_a_limit_that_is_the_partition_s():
    row = ["1", "5", "u", "a", "p,q", "normal", "PENDING", "None", "10", "10", "N/A", "N/A", "Partition_Limit"]
    row += ["1", "1", "", "1", "(null)", "n/a"]
    asked = []
    job, host = records.job_from_row(row, lambda name: asked.append(name) or 77.0)
    assert (job.time_limit, asked, host, job.dependency) == (77.0, ["p,q"], "", "")


def test_nodes(read):
    nodes = {n.name: n for n in map(records.node_from_line, read("nodes.txt").splitlines())}
    assert len(nodes) == 8
    assert (nodes["n1"].cpus, nodes["n1"].usable, nodes["n1"].partitions) == (2, True, ("batch", "short"))
    assert not nodes["n7"].usable and not nodes["n8"].usable
    assert (nodes["n7"].state, nodes["n8"].state) == ("DOWN", "IDLE+DRAIN")


def test_partitions(read):
    batch, short = map(records.partition_from_line, read("partitions.txt").splitlines())
    assert (batch.name, batch.default, batch.up, batch.max_nodes) == ("batch", True, True, None)
    assert (batch.max_time, batch.default_time, len(batch.nodes)) == (86400.0, 600.0, 8)
    assert (short.default, short.max_time, short.default_time, short.max_nodes) == (False, 1800.0, 1800.0, 2)


def test_site(read):
    site = records.site_from_text(read("config.txt"))
    assert (site.version, site.cluster, site.select_type) == ((22, 5, 8), "sc", "select/linear")
    assert site.permits_expansion and not site.accrues_always and "bf_interval=1" in site.scheduler_parameters
    assert (site.prolog_flags, site.priority_flags, site.min_job_age) == (frozenset(), frozenset(), 300.0)
    text = read("config.txt").replace("PrologFlags             = (null)", "PrologFlags = Alloc,Contain")
    assert not records.site_from_text(text).permits_expansion


def test_steps(read):
    rows = records.split_rows(read("squeue_steps.txt"), records.STEP_FIELDS, MARK)
    (step,) = (records.step_from_row(row, 1559) for row in rows)
    assert (step.job, step.id, step.nodes) == (1559, "batch", ("n1",))
    assert records.step_from_row(["1559.TBD", "", "PENDING"], 1559) is None


def test_accounting(read):
    rows = records.split_rows(read("sacct.txt"), records.ACCOUNTING_FIELDS, MARK)
    found = {record.id: (record, nodes) for record, nodes in records.accounting_from_rows(rows)}
    # 1559 and later are in the file, but slurmdbd had not heard their names yet.
    assert set(found) == {23, 24, 35}
    resized, nodes = found[23]
    assert (resized.state, resized.exit_code, resized.submit) == (JobState.CANCELLED, 143, 1795247794.0)
    assert (resized.start, resized.end, len(nodes)) == (1795247795.0, 1795247858.0, 4)
    merged, nodes = found[24]
    assert (merged.state, merged.num_nodes, nodes) == (JobState.COMPLETED, 0, ())
    requeued = found[35][0]  # of two runs the last
    assert (requeued.state, requeued.submit, requeued.time_limit) == (JobState.CANCELLED, 1795247966.0, 5940.0)


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
        ("Invalid user id for job 9", NotPermitted),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmUnavailable),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", SlurmUnavailable),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", OutcomeUnknown),
        ("a text of the year 2040", OutcomeUnknown),
        ("", OutcomeUnknown),
    ],
)
def test_refusals(text, error):
    assert type(classify(text, changing=True)) is error
    assert not isinstance(classify(text, changing=False), OutcomeUnknown)
