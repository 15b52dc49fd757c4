"""What status, top and explain print on a terminal of 80 columns, to the letter."""

from __future__ import annotations

import json
import time

import pytest
import yaml
from click.testing import CliRunner
from stored_states import owners_run

from penstock.cli import cli
from penstock.config import load
from penstock.core.picture import jobs_besides
from penstock.errors import NotPermitted
from penstock.report.commands import explain as explaining
from penstock.resize.commands.remembered import remembered_elastic
from penstock.sbatch.remembered import Remembered
from penstock.workflow.commands import runs
from penstock.workflow.documents import run_to_dict
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.requests import with_reasons
from penstock.workflow.state import Own, StageRun
from penstock_lab.testing import make_job, make_snapshot

AT = 1_790_000_000.0
UID = 1101
RUN = owners_run(
    7,
    (
        StageRun("align", (), StagePhase.DONE, job=30, submitted=AT, start=AT + 62, end=AT + 400, estimate=1247.0),
        StageRun("call", (0,), StagePhase.FAILED, job=31, submitted=AT + 1, start=AT + 405, end=AT + 410,
                 failure="job 31 ended FAILED (exit code 3), and no retries are left of the two that its file allows"),
        StageRun("plot-of-everything", (1,), StagePhase.QUEUED, job=32, submitted=AT + 2, own=Own()),
    ),
    UID,
    name="mosaic",
    submitted_at=AT,
    phase=RunPhase.FAILING,
    why="call: job 31 ended FAILED",
)  # fmt: skip
JOBS = [
    make_job(32, uid=UID, reason="DependencyNeverSatisfied", submit=AT + 2),
    make_job(36, "n1", "n2", uid=UID, start=AT + 300, submit=AT + 290),
    make_job(38, uid=UID, num_nodes=1, reason="Resources", submit=AT + 350),
    make_job(40, uid=UID, num_nodes=1, reason="DependencyNeverSatisfied", submit=AT + 360),
    make_job(42, "n3", uid=UID, start=AT + 390, submit=AT + 380, array_job=41, array_task=2),
    make_job(43, "n4", uid=UID + 1, start=AT),
    make_job(51, "n5", uid=UID, start=AT + 400, submit=AT + 399),
]
MALLEABLE = {
    "job": 50, "phase": "idle",
    "offer": {"size": 2, "minimum": 1, "maximum": 4},
    "target": 0, "nodes": ["n6"], "companions": [{"job": 51, "nodes": ["n5"]}],
    "note": "the agent gave the nodes back because a job in the queue can start on them", "uid": UID,
}  # fmt: skip


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Runs a command against an agent that answers with the above, and gives its exit code, stdout and stderr."""
    config = tmp_path / "penstock.yaml"
    config.write_text(yaml.safe_dump({"agent": {"state_dir": str(tmp_path / "state")}}))
    monkeypatch.setenv("PENSTOCK_CONFIG", str(config))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    snapshot = make_snapshot(JOBS, at=AT + 420)
    flows = [with_reasons(run_to_dict(RUN), snapshot)]
    answer = {
        "now": AT + 420,
        "problems": [],
        "paused_until": 0.0,
        "workflows": flows,
        "malleable": [MALLEABLE],
        "moldable": [],
        "jobs": jobs_besides(snapshot, UID, {30, 31, 32, 50, 51}),
        "resizes": [],
    }
    decisions = {
        "workflow 7/call": [{"at": AT + 1, "verb": "submit", "subject": "workflow 7/call", "reasons": [["x", "now"]]}],
        "patience": [
            {"at": AT + 2, "verb": "nothing", "subject": "patience/14", "reasons": [["x", "still 3"]], "details": {}}
        ],
        "job 50": [{"at": AT + 9, "verb": "resize", "subject": "job 50", "reasons": [["x", "two nodes are idle"]]}],
    }

    def ask(_config, op, arguments=None, **_more):
        if op == "status":
            return answer
        if arguments["subject"] in ("job 43", "secret"):  # another's
            raise NotPermitted("only the agent's own user, root, or an operator of Slurm may ask for this")
        return decisions.get(arguments["subject"], [])

    monkeypatch.setattr(runs, "ask_or_read", ask)
    monkeypatch.setattr(explaining, "ask_or_read", ask)
    remembered_elastic(load()).add(Remembered(38, "survey", "survey", AT + 350))
    monkeypatch.setattr("penstock.sbatch.remembered.FORGET", 1e12)

    def run(*words, code=0):
        done = CliRunner().invoke(cli, words)
        assert (done.exit_code if code == 0 else done.exception.exit_code) == code, done.output
        return "\n".join(line.rstrip() for line in done.output.splitlines()) if code == 0 else str(done.exception)

    yield run
    monkeypatch.undo()
    time.tzset()


FLOW = """\
workflow 7 mosaic (asa): failing - call: job 31 ended FAILED
stage               phase         job  submit    start     end       waited
align               done          30   14:13:20  14:14:22  14:20:00  62s
call                failed        31   14:13:21  14:20:05  14:20:10  5s
plot-of-everything  never starts  32   14:13:22
  call: job 31 ended FAILED (exit code 3), and no retries are left of the two
  that its file allows
  plot-of-everything: a job that it depends on has not ended as it must
  (DependencyNeverSatisfied): `penstock retry` repeats that, `cancel` ends it
  all
"""
MALLEABLE_JOBS = """\
malleable jobs
job  phase  ranks  target  companions  note
50   idle   2              51          the agent gave the nodes back because a
                                       job in the queue can start on them
"""
OTHERS = """\
other jobs in the queue
job                 state         nodes  start     why
36                  running       2      14:18:20  has not asked the agent so
                                                   far
41_2                running       1      14:19:50  has not asked the agent so
                                                   far
38 survey, elastic  pending       1                Resources
40                  never starts  1                a job that it depends on has
                                                   not ended as it must
                                                   (DependencyNeverSatisfied):
                                                   scancel it"""


def test_status(said):
    """No predicted wait, no word broken; MPI and elastic jobs that are not malleable yet; what can never start."""
    assert said("status") == FLOW + MALLEABLE_JOBS + OTHERS
    assert said("status", "mosaic") + "\n" == FLOW + MALLEABLE_JOBS
    stages = json.loads(said("status", "--json"))["workflows"][0]["stages"]
    assert [stage.get("reason") for stage in stages] == [None, None, "DependencyNeverSatisfied"]


def test_top(said):
    first, _, rest = said("top").partition("\n")
    assert first == "penstock  14:20:20  workflows 1  running 0  waiting 0"
    assert rest + "\n" == FLOW + MALLEABLE_JOBS


def test_explain_a_job(said):
    of_stage = "job 31 is stage call of workflow 7 (mosaic)\n14:13:21  workflow 7/call  submit: now"
    assert said("explain", "31") == of_stage
    companion = "job 51 holds nodes for job 50\n14:13:29  job 50  resize: two nodes are idle"
    assert said("explain", "51") == companion
    assert said("explain", "41_2") == "Nothing was decided about job 42."
    assert said("explain", "36") == "Nothing was decided about job 36."
    assert said("explain", "38") == "Nothing was decided about job 38."


def test_explain_what_a_part_has_decided(said):
    """A part that is installed beside the core: its name, or NAME/..., is the subject as it stands."""
    assert said("explain", "patience") == "14:13:22  patience/14  nothing: still 3"
    assert json.loads(said("explain", "patience", "--json"))["subject"] == "patience"


@pytest.mark.parametrize("number", ["43", "99", "99_1", "41_3"])
def test_of_a_job_that_is_not_there_or_anothers_nothing_is_known(said, number):
    """One who is no operator is not told which of both it is."""
    told = said("explain", number, code=5)
    assert told == (
        f"nothing is known of job {number}: it is none of yours in the queue, and nothing was decided about it"
    )


@pytest.mark.parametrize(
    ("subject", "code", "told"),
    [
        ("w8", 5, "nothing is known of workflow 8"),
        ("w8/call", 5, "nothing is known of workflow 8/call"),
        ("w7/none", 5, "workflow 7 has no stage 'none' (stages: align, call, plot-of-everything)"),
        ("hold:9", 5, "nothing is known of hold 9"),
        ("bag:9", 5, "nothing is known of bag 9"),
        ("pool:none", 5, "nothing is known of pool none"),
        ("secret", 2, "SUBJECT must be a job number such as 1234, w3 for workflow 3"),
        ("nothing", 2, "SUBJECT must be a job number such as 1234, w3 for workflow 3"),
    ],
)
def test_what_is_not_there_ends_with_5(said, subject, code, told):
    assert said("explain", subject, code=code).startswith(told)
