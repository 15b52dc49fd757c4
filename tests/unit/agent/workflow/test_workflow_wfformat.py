"""WfFormat: levels become stages, tasks run packed in them, and what is wrong is said before anything is submitted."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.workflow.files.formats import load_workflow, parse_workflow
from penstock.workflow.files.wfformat import Packing, PoolCommands
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.runner import Runner
from penstock.workflow.submit.expectations import expected_by
from penstock.workflow.tasks import WorkflowTask, packed_command, packed_time, pool_command


def task(name, *parents, **more):
    return {"id": name, "name": name.split("_")[0], "parents": list(parents), "children": [], **more}


def ran(name, seconds=10.0, **more):
    return {"id": name, "runtimeInSeconds": seconds, "command": {"program": "echo", "arguments": [name]}, **more}


def document(tasks=None, runs=None, version="1.5"):
    middle = [f"work_{i}" for i in range(4)]
    tasks = tasks or [task("split_1"), *(task(name, "split_1") for name in middle), task("join_1", *middle)]
    runs = [ran(t["id"]) for t in tasks] if runs is None else runs
    return {
        "name": "mosaic of M 17",
        "schemaVersion": version,
        "workflow": {"specification": {"tasks": tasks, "files": []}, "execution": {"tasks": runs}},
    }


def read(doc, **packing):
    return parse_workflow(json.dumps(doc), "w.json", Packing(**packing))


def wrong(doc, **packing):
    with pytest.raises(UserError) as caught:
        read(doc, **packing)
    message = str(caught.value)
    assert message.startswith("w.json: ") and "\n" not in message
    return message.removeprefix("w.json: ")


@pytest.mark.parametrize("version", ["1.5", "1.6"])
def test_levels_become_stages(version):
    flow = read(document(version=version), nodes=2, cores=2)
    assert flow.name == "mosaic-of-M-17"
    assert [(s.name, s.nodes, s.run_time, s.after) for s in flow.order] == [
        ("1-split", 1, 10, ()),
        ("2-work", 2, 10, ("1-split",)),
        ("3-join", 1, 10, ("2-work",)),
    ]
    assert [s.time_limit for s in flow.order] == [60, 60, 60], "three times as long, but a minute at least"
    narrow = read(document(), nodes=1, cores=2).order[1]
    assert (narrow.nodes, narrow.run_time) == (1, 20), "four tasks on two cores"
    assert read(document(), time=500.0).order[0].time_limit == 500


def test_stages_may_be_named_by_the_file_and_children_count_as_parents():
    tasks = [task("a", children=["b", "c"]), task("b", stage="mine"), task("c", "b", stage="mine"), task("d", "c")]
    flow = read(document(tasks))
    assert [(s.name, s.after) for s in flow.order] == [("1-a", ()), ("mine", ("1-a",)), ("4-d", ("mine",))]


def test_wide_tasks_share_a_node_less():
    runs = [ran("split_1"), *(ran(f"work_{i}", coreCount=2) for i in range(4)), ran("join_1")]
    assert [s.nodes for s in read(document(runs=runs), nodes=9, cores=4).order] == [1, 2, 1]


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        (document(version="1.3"), "schemaVersion: must be 1.5 or 1.6, not '1.3'"),
        ({**document(), "workflow": {}}, "workflow.specification: must be a map"),
        (document([task("a"), task("a")]), "workflow.specification.tasks[1].id: 'a' is there twice"),
        (document([task("a"), task("b", "x")]), "workflow.specification.tasks[1].parents: there is no task 'x'"),
        (document([task("a", "c"), task("b", "a"), task("c", "b")]), "workflow.specification.tasks: form a cycle: "),
        (document([task("a", "a")]), "workflow.specification.tasks: form a cycle: a -> a"),
        (document(runs=[]), "task 'split_1': has no command (workflow.execution.tasks[].command.program)"),
        (document(runs=[ran("split_1", -1.0)]), "task 'split_1': runtimeInSeconds: must be seconds of at least 0"),
        (document(runs=[ran("split_1", coreCount="x")]), "task 'split_1': coreCount: must be above 0, not 'x'"),
        (document([task("a", stage="b c")]), "task 'a': stage: must be 1 to 40 of"),
        (document([task("a", stage="x"), task("b", "a"), task("c", "b", stage="x")]), "stages[0].after: the stages"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(doc, message):
    assert wrong(doc).startswith(message)


def test_a_file_without_run_times_needs_a_limit():
    runs = [ran(t, 0.0) for t in ("split_1", *(f"work_{i}" for i in range(4)), "join_1")]
    assert wrong(document(runs=runs)).startswith("stage 1-split: the file says that all its tasks take 0 s")
    unsaid = [{key: value for key, value in run.items() if key != "runtimeInSeconds"} for run in runs]
    assert wrong(document(runs=unsaid)).startswith("stage 1-split: the file gives no run time of its tasks")
    stage = read(document(runs=runs), time=600.0).order[0]
    assert (stage.run_time, stage.guessed) == (600, True)
    some = read(document(runs=[*runs[:-1], ran("join_1", 5.0)])).order[0]
    assert (some.time_limit, some.guessed) == (60, False), "0.0 beside other run times is a short one"


def test_another_command_for_every_task():
    flow = read(document(), command="sleep {runtime} # {id}")
    assert "sleep 10 # work_0" in flow.order[1].command
    assert "only {id}, {name}," in wrong(document(), command="x {nope}")
    assert "must be a shell command" in wrong(document(), command="a\0b")


SCRIPT = "printf 'a\\n' \\\n   > sheet.txt\n\nwc -l < sheet.txt > 'its lines'.txt"


def scripted(**more):
    """Two tasks, the first of which has a command of several lines and the second one that is all in `program`."""
    runs = [
        {**ran("CHECK_1", 30.0), "command": {"program": SCRIPT, "arguments": []}},
        {**ran("COUNT_1", 40.0), "command": {"program": "cat *.txt >all", "arguments": []}, **more},
    ]
    return document([task("CHECK_1"), task("COUNT_1", "CHECK_1")], runs)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_command_of_several_lines_is_a_command(tmp_path, nodes):
    first, second = read(scripted(), nodes=nodes, cores=1).order
    (tmp_path / "srun").write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n"$@"\n')
    (tmp_path / "srun").chmod(0o755)
    for stage in (first, second):
        done = bash(stage.command, tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "its lines.txt").read_text() == "1\n"
    assert (tmp_path / "all").read_text() == "1\na\n"


def test_a_line_that_fails_ends_a_command_of_several_lines(tmp_path):
    (stage,) = read(document([task("a")], [ran("a", command={"program": "false\ntouch ran", "arguments": []})])).order
    assert bash(stage.command, tmp_path).returncode != 0
    assert not (tmp_path / "ran").exists()


def test_a_pool_gets_a_command_of_several_lines_as_it_is():
    commands = PoolCommands("pool stage", "pool join")
    (stage, _) = read(scripted(), pool=commands).order
    (row,) = [json.loads(line) for line in stage.command.split("\n") if line.startswith("{")]
    assert row["command"] == ["bash", "-c", f"set -e\n{SCRIPT}"]


def test_a_plan_needs_no_commands():
    runs = [{"id": name, "runtimeInSeconds": 10.0} for name in ("a", "b")]
    doc = document([task("a"), task("b", "a")], runs)
    assert "has no command" in wrong(doc)
    assert [stage.run_time for stage in read(doc, runs=False).order] == [10.0, 10.0]


def test_broken_json_and_yaml_with_braces(tmp_path):
    path = tmp_path / "w.json"
    path.write_text('{"schemaVersion": "1.5", "workflow": ')
    with pytest.raises(UserError, match=r"w.json: is not valid JSON: Expecting value: line 1"):
        load_workflow(path)
    path.write_text("{name: w, stages: [{name: a, nodes: 1, time: 60, run: x}]}")
    assert load_workflow(path).stages[0].name == "a"
    path.write_text('{"name": "w", "stages": [{"name": "a", "nodes": 1, "time": 60, "run": "x"}]}')
    assert load_workflow(path).stages[0].command == "x"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "parents", "children", "tasks", "stage", "command"]), inner)
    ),
    max_leaves=12,
)


@given(json_values, json_values)
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_the_file_there_is_no_traceback(tasks, runs):
    body = {"specification": {"tasks": tasks}, "execution": {"tasks": runs}}
    for doc in ({"schemaVersion": "1.5", "workflow": body}, {"schemaVersion": "1.5", "workflow": tasks}):
        try:
            parse_workflow(json.dumps(doc), packing=Packing(time=60.0, command="x"))
        except UserError as error:
            assert "\n" not in str(error)


@pytest.mark.long
def test_a_hundred_thousand_tasks_are_read_in_reasonable_time():
    tasks = [task("split_0")]
    tasks += [task(f"work_{i}", "split_0" if i < 25_000 else f"work_{i - 25_000}") for i in range(100_000)]
    runs = [ran(t["id"], 1.0 + i % 7) for i, t in enumerate(tasks)]
    text = json.dumps(document(tasks, runs))
    begin = time.monotonic()
    flow = parse_workflow(text, packing=Packing(16, 28))
    assert [s.nodes for s in flow.order] == [1, 16, 16, 16, 16]
    assert max(len(s.command) for s in flow.stages) < 1_000_000, "long lists travel compressed"
    assert time.monotonic() - begin < 60


# -- tasks in an allocation --------------------------------------------------------------------------------------------


def bash(command, cwd, **environment):
    return subprocess.run(
        ["bash"], input=f"set -eo pipefail\n{command}\necho after", text=True, capture_output=True, cwd=cwd,
        env={"PATH": os.environ["PATH"], "SLURM_PROCID": "0", **environment}, timeout=60,
    )  # fmt: skip


def test_a_local_pool_runs_every_task_once_and_side_by_side(tmp_path):
    tasks = [WorkflowTask(f"echo 'it'\"'\"'s {i}' >>out; cat", 1.0) for i in range(7)]
    done = bash(packed_command(tasks, 1, 3), tmp_path)
    assert (done.returncode, done.stdout) == (0, "after\n"), done.stderr
    assert sorted((tmp_path / "out").read_text().splitlines()) == [f"it's {i}" for i in range(7)]
    begin = time.monotonic()
    assert bash(packed_command([WorkflowTask("sleep 1", 1.0)] * 8, 1, 8), tmp_path).returncode == 0
    assert time.monotonic() - begin < 6, "not one after the other"


def test_a_task_that_fails_fails_the_stage_after_the_others(tmp_path):
    tasks = [WorkflowTask("exit 3", 9.0), WorkflowTask("touch ran", 1.0)]
    done = bash(packed_command(tasks, 1, 1), tmp_path)
    assert done.returncode != 0 and "after" not in done.stdout
    assert (tmp_path / "ran").exists() and done.stderr == "penstock: failed with 3: exit 3\n"


@pytest.mark.parametrize("count", [5, 3000])
def test_srun_gets_the_list_and_each_worker_takes_its_part(tmp_path, count):
    """srun as it is: every task of the step reads the whole input. 3000 tasks travel compressed."""
    srun = tmp_path / "srun"
    srun.write_text(
        '#!/bin/bash\necho "$@" >>args\n'
        "while [[ $1 == --* ]]; do case $1 in --ntasks=*) n=${1#*=};; esac; shift; done\n"
        'cat >input; for ((i = 0; i < n; i++)); do SLURM_PROCID=$i "$@" <input & done; wait\n'
    )
    srun.chmod(0o755)
    tasks = [
        WorkflowTask(f"echo {i} a-long-name-of-a-file-{i} >>out.$SLURM_PROCID", float(1 + i % 3), 2)
        for i in range(count)
    ]
    command = packed_command(tasks, 2, 4)
    assert ("gunzip" in command) == (count > 1000)
    done = bash(command, tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert "--nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=2" in (tmp_path / "args").read_text()
    lines = [line.split()[0] for i in range(4) for line in (tmp_path / f"out.{i}").read_text().splitlines()]
    assert sorted(map(int, lines)) == list(range(count))


def test_how_long_packed_tasks_take():
    assert (
        packed_time(
            [WorkflowTask("x", 4.0), WorkflowTask("x", 3.0), WorkflowTask("x", 3.0), WorkflowTask("x", 2.0)], 1, 2
        )
        == 6.0
    )
    assert packed_time([WorkflowTask("x", 4.0, 2)] * 4, 1, 4) == 8.0


# -- learned run times, scripts, retries -------------------------------------------------------------------------------


def test_an_unknown_run_time_is_the_mean_of_earlier_ones():
    flow = Workflow("w", (Stage("a", 2, 600, 600, "x", guessed=True), Stage("b", 1, 600, 50, "x")))
    runs = []
    for took in (100.0, 140.0, 5000.0):
        run = Runner(accrues=False).start(1, flow, "perstage", 0.0, partition="p")
        done = replace(run.stage("a"), phase=StagePhase.DONE, start=10.0, end=10.0 + took)
        runs.append(run.with_stage(done))
    assert [s.run_time for s in expected_by(flow, runs[:2]).stages] == [120, 50]
    assert expected_by(flow, runs).stages[0].run_time == 600, "never above its limit"
    other = replace(flow, name="another")
    assert expected_by(other, runs) == other
    wider = replace(flow, stages=(replace(flow.stages[0], nodes=4), flow.stages[1]))
    assert expected_by(wider, runs) == wider


def test_scripts_are_looked_for_beside_the_file(tmp_path):
    path, script = tmp_path / "w.yaml", tmp_path / "it's.sh"
    path.write_text('name: w\nstages: [{name: a, nodes: 1, time: 60, script: "it\'s.sh", retries: 2}]')

    def said():
        with pytest.raises(UserError) as caught:
            load_workflow(path)
        return str(caught.value).removeprefix(f"{path}: stages[0].script: {script} ")

    assert said() == "cannot be read: No such file or directory"
    script.write_text("echo no first line")
    assert said() == "is no script: its first line must start with #!"
    script.write_text("#!/bin/sh\necho ran\n")
    for mode in (0o644, 0o755):  # sbatch runs both
        script.chmod(mode)
        stage = load_workflow(path).stages[0]
        assert stage.retries == 2 and bash(stage.command, tmp_path).stdout == "ran\nafter\n"


def test_with_a_pool_a_stage_hands_its_tasks_over_by_name(tmp_path):
    many = [WorkflowTask(f"echo '{i}' \"$HOME\"", 2.0, 1, f"t{i}") for i in range(2000)]
    for tasks in (many[:3], many):
        done = bash(pool_command(tasks, "cat"), tmp_path)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert [row["name"] for row in rows] == [task.name for task in tasks]
        assert rows[2] == {"name": "t2", "command": ["bash", "-c", tasks[2].command], "cores": 1, "time": 2.0}
    assert bash(pool_command(many[:1], "(cat >/dev/null; exit 3)"), tmp_path).returncode == 3


def test_the_bytes_between_stages_are_those_of_the_files_that_go_there():
    doc = document(
        [
            task("split_1", outputFiles=["p0", "p1", "log"], inputFiles=["raw"]),
            task("work_0", "split_1", inputFiles=["p0", "p1"], outputFiles=["r0"]),
            task("work_1", "split_1", inputFiles=["p1"], outputFiles=["r1"]),
            task("join_1", "work_0", "work_1", inputFiles=["r0", "r1", "p0", "gone"]),
        ]
    )
    sizes = {"raw": 1e9, "p0": 100, "p1": 30, "log": 7, "r0": 5, "r1": None}
    doc["workflow"]["specification"]["files"] = [{"id": k, "sizeInBytes": v} for k, v in sizes.items()]
    split, work, join = read(doc).order
    assert (split.inputs, work.inputs, join.inputs) == ((), (130.0,), (5.0,))  # p1 goes once; nobody has said r1's size
    doc["workflow"]["specification"]["files"][1]["sizeInBytes"] = "big"
    assert wrong(doc).startswith("workflow.specification.files[1].sizeInBytes: must be bytes")
