"""What a stage asks Slurm for: keys of the file, raw options, `#SBATCH` lines, and what becomes of them in one job."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.api import JobState
from penstock.errors import UserError
from penstock.slurm.sbatch_options import restricts_export, spec_words
from penstock.workflow.asks import NO_ASKS, Asks, asks_from_dict, asks_to_dict, in_one_job, why_apart
from penstock.workflow.files.checks import check_units
from penstock.workflow.files.formats import load_workflow, parse_workflow
from penstock.workflow.model import Stage, Workflow, submitted_from, workflow_from_dict, workflow_to_dict
from penstock.workflow.run.instructions import as_one
from penstock.workflow.scripts import job_spec, read_job_name
from penstock.workflow.strategies.auto import Auto
from penstock.workflow.strategies.cuts import place_units, together
from penstock.workflow.strategies.packed import Packed
from penstock.workflow.strategy import Outlook, Rules
from penstock_lab.testing import make_job


def one(*lines: str, run: str = "run: x", top: str = "shell: plain") -> Workflow:
    keys = "".join(f"    {line}\n" for line in lines)
    return parse_workflow(f"name: w\n{top}\nstages:\n  - name: a\n{keys}    {run}\n")


def words(flow: Workflow) -> list[str]:
    found = spec_words(job_spec(flow, flow.stages[0], "7-ab", 1, ()), None)
    return found[: next(place for place, word in enumerate(found) if word.startswith("--job-name="))]


def test_every_key_becomes_an_option_of_sbatch_and_raw_ones_stand_in_front():
    flow = one(
        "nodes: 2", "time: 60", "memory: 16G", "gpus: a100:2", "gres: shard:1", "ntasks: 8", "cpus: 4",
        "constraint: 'a&b'", "output: o-%j", "error: e-%j", "array: 0-9%2", "licenses: 'x:1'",
        "sbatch: [--exclusive, '--mail-type END', -C fast]",
    )  # fmt: skip
    assert words(flow) == [
        "--exclusive", "--mail-type=END", "--mem=16G", "--gpus=a100:2", "--gres=shard:1", "--ntasks=8",
        "--cpus-per-task=4", "--constraint=a&b", "--output=o-%j", "--error=e-%j", "--array=0-9%2", "--licenses=x:1",
    ]  # fmt: skip
    assert workflow_from_dict(workflow_to_dict(flow)) == flow


def test_lines_of_a_script_count_where_the_file_says_nothing_else(tmp_path):
    script = tmp_path / "s.sh"
    script.write_text(
        "#!/usr/bin/env python3\n# a note\n\n#SBATCH -N 3 -t 90 -J mine --requeue\n"
        "#SBATCH --mem 2G -c4 -p main -D sub\n"
        "#SBATCH --comment='a b' # said\nprint()\n#SBATCH --mem=9G\n"
    )
    path = tmp_path / "w.yaml"
    path.write_text("name: w\nstages:\n- {name: a, script: s.sh, cpus: 8, sbatch: --signal=B:USR1@60}\n")
    flow = load_workflow(path)
    (stage,) = flow.stages
    assert (stage.nodes, stage.time_limit, stage.workdir, flow.partition) == (3, 5400, "sub", "main")
    assert stage.asks == Asks(memory="2G", cpus="8", options=("--comment=a b", "--signal=B:USR1@60"))
    assert stage.command == f"/usr/bin/env python3 {script}", "as sbatch it does without the mode"
    assert "shell: plain" in flow.notices[0] and "--job-name, --requeue" in flow.notices[1]
    spec = job_spec(submitted_from(flow, "/from", 0o22), submitted_from(flow, "/from", 0o22).stages[0], "7", 1, ())
    assert (spec.workdir, spec.script.splitlines()[-1]) == ("/from/sub", f"exec {stage.command}")


def test_an_inline_script_is_read_alike():
    flow = one(run="run: |\n      #SBATCH -N1 -t 5\n      #SBATCH --gres=gpu:2\n      work")
    assert (flow.stages[0].time_limit, flow.stages[0].asks.gres) == (300, "gpu:2")
    script = job_spec(flow, flow.stages[0], "7", 1, ()).script.splitlines()
    assert script[:2] == ["#!/bin/bash", ":"], "sbatch itself reads no further: --wait and the like have no effect"
    assert "#SBATCH -N1 -t 5" in script[2:]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--dependency=afterok:1", "use `after`"),
        ("-d afterok:1", "use `after`"),
        ("--begin=now+1", "when a job may begin"),
        ("--hold", "penstock pause"),
        ("-H", "penstock pause"),
        ("--parsable", "read by the agent"),
        ("--wrap=x", "in `run`"),
        ("--wait", "waits itself"),
        ("-J x", "finds a job by the name"),
        ("--no-requeue", "use `retries`"),
        ("-w n1", "asks for nodes by name"),
        ("-M other", "one cluster"),
        ("--time=5", "a key of its own, 'time'"),
        ("-N2", "a key of its own, 'nodes'"),
        ("--chdir=/x", "a key of its own, 'workdir'"),
        ("-Z", "-Z is no option of sbatch"),
        ("script.sh", "is no option of sbatch"),
        ("--mail-user", "needs a value"),
        ("--exclude=n[1-", "--exclude"),
    ],
)
def test_what_would_take_the_job_out_of_the_agents_hand_is_refused(option, why):
    with pytest.raises(UserError) as caught:
        one("nodes: 1", "time: 60", f"sbatch: ['{option}']")
    assert str(caught.value).startswith("workflow.yaml: stages[0].sbatch: ") and why in str(caught.value)
    said = {"workflow": workflow_to_dict(one("nodes: 1", "time: 60"))}["workflow"]
    said["stages"][0]["asks"] = {"options": option.split(maxsplit=1)}
    with pytest.raises(UserError):
        workflow_from_dict(said)


def test_a_line_that_is_wrong_is_named():
    with pytest.raises(UserError, match=r"stages\[0\]\.run: line 2: #SBATCH: --dependency cannot be asked for here"):
        one("nodes: 1", "time: 60", run="run: |\n      #SBATCH --mem=1G\n      #SBATCH -d afterok:1\n      x")
    with pytest.raises(UserError, match=r"stages\[0\]\.run: line 1: #SBATCH cannot be read"):
        one("nodes: 1", "time: 60", run="run: |\n      #SBATCH --comment='x\n      x")
    with pytest.raises(UserError, match=r"stages\[0\]: the key 'nodes' is missing"):
        one("time: 60")
    with pytest.raises(UserError, match=r"#SBATCH --nodes must be one number"):
        one("time: 60", run="run: |\n      #SBATCH -N 2-4\n      x")
    with pytest.raises(UserError, match=r"memory: must be memory per node"):
        one("nodes: 1", "time: 60", "memory: much")


def places(head: str, *stages: str) -> tuple[str | None, list[str]]:
    """The partition of a workflow, and those of its stages' jobs."""
    rows = "\n".join(f"- {{name: s{i}, nodes: 1, time: 60, {stage}}}" for i, stage in enumerate(stages))
    flow = parse_workflow(f"name: w\n{head}\nstages:\n{rows}\n")
    assert workflow_from_dict(workflow_to_dict(flow)) == flow
    return flow.partition, [job_spec(flow, stage, "7", 1, ()).partition for stage in flow.stages]


def test_each_stage_may_have_partitions_of_its_own():
    says_x, nothing = "run: '#SBATCH -p x'", "run: y"
    assert places("", says_x, nothing) == (None, ["x", None])
    assert places("", says_x, says_x) == ("x", ["x", "x"])
    assert places("partition: z", says_x, nothing) == ("z", ["z", "z"]), "what the file says counts before"
    assert places("partition: z", f"{says_x}, partition: 'a,b'", nothing) == ("z", ["a,b", "z"])
    assert places("partition: 'a,b'", "run: y, partition: 'a,b'", "run: y, sbatch: -p gpu") == ("a,b", ["a,b", "gpu"])


def test_an_account_that_not_all_scripts_name_belongs_into_the_file():
    stages = "stages:\n- {name: a, nodes: 1, time: 60, run: '#SBATCH -A x'}\n- {name: b, nodes: 1, time: 60, run: y}\n"
    with pytest.raises(UserError, match=r"stages\[0\]: #SBATCH --account=x, which not all stages say"):
        parse_workflow("name: w\n" + stages)
    assert parse_workflow("name: w\naccount: z\n" + stages).account == "z"


def pair(a: Asks, b: Asks) -> Workflow:
    return Workflow("w", (Stage("a", 1, 60, 30, "x", asks=a), Stage("b", 2, 60, 30, "y", ("a",), asks=b)))


def test_one_job_has_the_most_memory_and_cpus_and_only_what_all_ask_for():
    asked = in_one_job([Asks(memory="900M", cpus="8"), Asks(memory="2G"), NO_ASKS])
    assert asked == Asks(memory="2G", cpus="8")
    assert in_one_job([Asks(memory="2G"), Asks(memory="0")]).memory == "0", "0 is all of a node"
    assert why_apart([("a", Asks(gres="gpu:1")), ("b", Asks(gres="gpu:1"))]) is None
    assert why_apart([("a", Asks(array="1-2"))]) is None
    assert why_apart([("a", Asks(array="1-2")), ("b", Asks(array="1-2"))]).startswith("a is an array")
    for key in ("gpus", "gres", "ntasks", "constraint", "output", "error", "licenses", "exclude", "partition"):
        assert f"differ in '{key}'" in why_apart([("a", NO_ASKS), ("b", Asks(**{key: "1"}))])
    assert "differ in 'sbatch'" in why_apart([("a", NO_ASKS), ("b", Asks(options=("--exclusive",)))])
    flow = pair(NO_ASKS, Asks(output="x"))
    with pytest.raises(UserError, match=r"workflow: stages: a and b differ in 'output', .* use another strategy"):
        place_units(flow, together("bigjob", flow.order))
    (unit,) = place_units(pair(Asks(memory="1G"), Asks(cpus="2")), together("bigjob", flow.order))
    assert unit.asks == Asks(memory="1G", cpus="2")


def test_strategies_keep_apart_what_cannot_be_one_job():
    outlook = Outlook(lambda _geometry: 1000.0, rules=Rules(whole_nodes=True))
    assert len(Packed().plan(pair(NO_ASKS, NO_ASKS), outlook).cut) == 1
    assert len(Packed().plan(pair(NO_ASKS, Asks(licenses="x")), outlook).cut) == 2
    assert Auto().plan(pair(NO_ASKS, Asks(licenses="x")), outlook).by == "handover"
    array = pair(NO_ASKS, Asks(array="0-1"))
    assert Auto().plan(array, outlook).by == "eager", "tasks cannot wait in their scripts"
    partition = SimpleNamespace(max_time=None, name="p")
    with pytest.raises(UserError, match=r"stages\[1\].array: under handover"):
        check_units(array, array.stages, partition, "handover")
    check_units(array, array.stages, partition, "eager")


def bash(flow: Workflow, units=None) -> subprocess.CompletedProcess:
    (unit,) = units or flow.stages
    script = job_spec(flow, unit, "7", 1, ()).script
    return subprocess.run(["bash"], input=script, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(("shell", "said", "code"), [("strict", "", 1), ("plain", "on\n", 0)])
def test_what_a_line_that_fails_means(shell, said, code):
    flow = one("nodes: 1", "time: 60", run="run: |\n      false\n      echo on", top=f"shell: {shell}")
    done = bash(flow)
    assert (done.stdout, done.returncode, flow.notices) == (said, code, ())
    assert parse_workflow("name: w\nstages: [{name: a, nodes: 1, time: 9, run: x}]").shell == "strict"
    with pytest.raises(UserError, match="shell: must be"):
        one("nodes: 1", "time: 60", top="shell: lax")


@pytest.mark.parametrize("first", ["false; exit 3", "set -e; (exit 3); echo no"])
def test_in_one_plain_job_a_stage_that_fails_ends_it(first):
    flow = Workflow("w", (Stage("a", 1, 60, 30, first), Stage("b", 1, 60, 30, "echo b", ("a",))), shell="plain")
    done = bash(flow, place_units(flow, together("bigjob", flow.order)))
    assert (done.returncode, "\nb\n" in done.stdout, "no" in done.stdout) == (3, False, False)
    goes_on = replace(flow, stages=(replace(flow.stages[0], command="false; echo a"), flow.stages[1]))
    done = bash(goes_on, place_units(goes_on, together("bigjob", flow.order)))
    assert (done.returncode, "\nb\n" in done.stdout) == (0, True)


def test_where_slurm_has_begun_elsewhere_the_job_goes_to_its_folder_or_fails(tmp_path):
    flow = replace(one("nodes: 1", "time: 60", run="run: pwd"), workdir=str(tmp_path))
    assert bash(flow).stdout == f"{tmp_path}\n"
    assert bash(replace(flow, workdir=str(tmp_path / "gone"))).returncode != 0


def test_job_names_begin_with_the_stage_and_can_be_read():
    flow = one("nodes: 1", "time: 60")
    made = job_spec(flow, flow.stages[0], "7-c0ffee", 2, ()).name
    assert made == "a.penstock.7-c0ffee.2.w"
    assert read_job_name(made) == ("a", "7-c0ffee", 2, "w")
    assert read_job_name("x.y.penstock.3.1.w.x") == ("x.y", "3", 1, "w.x")
    assert read_job_name("penstock.3.1.w.x") is None and read_job_name("penstock-3-x") is None


@pytest.mark.parametrize(
    ("options", "variables", "restricts"),
    [
        ((), {}, False),
        (("--export=ALL,X=1",), {}, False),
        (("--export=X=1,all",), {}, False),
        (("--export=NONE",), {}, True),
        (("--export=X",), {}, True),
        ((), {"SBATCH_EXPORT": "NONE"}, True),
        (("--export=ALL",), {"SBATCH_EXPORT": "NONE"}, False),
        (("--export-file=x",), {}, True),
    ],
)
def test_when_less_than_all_is_exported(options, variables, restricts):
    assert restricts_export(options, variables) is restricts


def test_documents_of_earlier_releases_ask_for_nothing_and_are_strict():
    old = workflow_to_dict(one("nodes: 1", "time: 60"))
    for key in ("shell", "folder", "umask"):
        del old[key]
    for key in ("asks", "workdir", "script"):
        del old["stages"][0][key]
    read = workflow_from_dict(old)
    assert (read.shell, read.folder, read.stages[0].asks) == ("strict", None, NO_ASKS)
    asked = Asks(memory="1G", options=("--exclusive",))
    assert asks_from_dict(asks_to_dict(asked)) == asked
    for wrong in ({"memory": 1}, {"options": "x"}, {"options": [1]}, {"unknown": "x"}):
        with pytest.raises(TypeError):
            asks_from_dict(wrong)


def row(number: int, state: JobState, **times: float):
    return make_job(number, state=state, array_job=10, **times)


def test_the_tasks_of_an_array_are_one_job():
    done, bad = row(11, JobState.COMPLETED, end=20.0), row(12, JobState.FAILED, end=30.0)
    runs, waits = row(13, JobState.RUNNING, start=5.0), row(10, JobState.PENDING)
    assert as_one([waits, done]).state is JobState.PENDING
    both = as_one([waits, done, runs])
    assert (both.id, both.state, both.start) == (10, JobState.RUNNING, 5.0)
    ended = as_one([done, bad])
    assert (ended.id, ended.state, ended.end) == (10, JobState.FAILED, 30.0)


def test_a_list_of_nodes_may_have_commas_to_spare_as_for_sbatch():
    (stage,) = one("nodes: 1", "time: 60", "sbatch: ['--exclude=n1,n[3-4],']").stages
    assert stage.asks.exclude == "n1,n[3-4],"
