"""Workflow files: what is read, and that every mistake gives one line that names the place."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.api import Partition
from penstock.errors import UserError
from penstock.values.durations import duration_text, parse_duration
from penstock.workflow.files.checks import check_against, check_units, elsewhere, partitions_of
from penstock.workflow.files.formats import load_workflow, parse_workflow
from penstock.workflow.model import Stage, Workflow, workflow_from_dict, workflow_to_dict
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import Outlook

GOOD = """
name: mosaic
partition: batch
environment: {THREADS: 4, MODE: fast}
stages:
  - name: project
    nodes: 4
    time: 30m
    expect: 12m
    run: srun ./project
  - name: merge
    nodes: 1
    time: 600
    run: |
      cd out
      ./merge
  - name: view
    after: [merge]
    nodes: 2
    time: 00:10:00
    expect: 90s
    run: ./view
"""


def read(text, **changes):
    document = yaml.safe_load(GOOD)
    document.update(changes)
    return parse_workflow(yaml.safe_dump(document))


def wrong(text):
    with pytest.raises(UserError) as caught:
        parse_workflow(text)
    message = str(caught.value)
    assert message.startswith("workflow.yaml: ")
    assert "\n" not in message and len(message) < 600
    return message.removeprefix("workflow.yaml: ")


def stage_wrong(**changes):
    stage = {"name": "a", "nodes": 1, "time": "1h", "run": "x", **changes}
    return wrong(yaml.safe_dump({"name": "w", "stages": [stage]}))


def test_a_good_file():
    workflow = parse_workflow(GOOD.encode())
    assert workflow.name == "mosaic" and workflow.partition == "batch" and workflow.account is None
    assert [s.name for s in workflow.stages] == ["project", "merge", "view"]
    assert [s.after for s in workflow.stages] == [(), ("project",), ("merge",)]
    assert [s.time_limit for s in workflow.stages] == [1800, 600, 600]
    assert [s.run_time for s in workflow.stages] == [720, 600, 90], "expect is the limit where it is left out"
    assert workflow.stages[1].command == "cd out\n./merge\n"
    assert workflow.environment == {"THREADS": "4", "MODE": "fast"}
    assert workflow_from_dict(workflow_to_dict(workflow)) == workflow


def test_stages_may_stand_in_any_order():
    text = (
        "name: w\nstages:\n- {name: b, after: a, nodes: 1, time: 1h, run: x}\n"
        "- {name: a, after: [], nodes: 1, time: 1h, run: x}"
    )
    workflow = parse_workflow(text)
    assert [s.name for s in workflow.order] == ["a", "b"]


def test_a_workflow_may_branch_but_is_then_no_chain():
    text = (
        "name: w\nstages:\n- {name: a, nodes: 1, time: 1h, run: x}\n- {name: b, nodes: 1, time: 1h, run: x}\n"
        "- {name: c, after: a, nodes: 1, time: 1h, run: x}\n- {name: d, after: [b, c], nodes: 1, time: 1h, run: x}"
    )
    workflow = parse_workflow(text)
    assert [s.name for s in workflow.order] == ["a", "b", "c", "d"]


def test_scalars_are_those_of_yaml_1_2():
    workflow = parse_workflow("name: no\nqos: on\nstages: [{name: 1, nodes: 010, time: 1:30:00, run: yes}]")
    assert (workflow.name, workflow.qos) == ("no", "on")
    stage = workflow.stages[0]
    assert (stage.name, stage.nodes, stage.time_limit, stage.command) == ("1", 10, 5400, "yes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a map with the keys name, "),
        ("- a", "must be a map with the keys"),
        ("nmae: x\nstages: []", "unknown key 'nmae': did you mean 'name'?"),
        ("name: x\nzzz: 1", "unknown key 'zzz': known are name, partition"),
        ("name: x", "the key 'stages' is missing"),
        ("name: x\nstages:", "the key 'stages' is missing"),
        ("name: x\nstages: []", "stages: must have at least one stage"),
        ("name: x\nstages: 3", "stages: must be a list, not 3"),
        ("name: x\nstages: [3]", "stages[0]: must be a map with the keys name, nodes"),
        ("name: 'a b'\nstages: []", "name: must be 1 to 40 of A-Z a-z 0-9 _ . -, not 'a b'"),
        ("name: x\nname: y", "line 2, column 1: is not valid YAML: the key 'name' is there twice"),
        ("name: [", "line 1, column 8: is not valid YAML"),
        ("name: x\n\tstages: []", "line 2, column 1: is not valid YAML"),
        ("name: !!python/object:os.system x", "line 1, column 7: is not valid YAML"),
        ("a: !!int x", "is not valid YAML"),
        ("[" * 900, "line 1, column 51: is not valid YAML: brackets are nested too deeply"),
        ("- " * 5000, "is not a workflow: it is nested too deeply"),
        ("a: \0", "is not valid YAML"),
        ("x" * 1_000_001, "is larger than 1000 kB"),
        ("name: x\npartition: 3\nstages: [{name: a, nodes: 1, time: 1h, run: x}]", "partition: must be a text"),
        (
            "name: x\nenvironment: {1a: b}\nstages: [{name: a, nodes: 1, time: 1h, run: x}]",
            "environment: must be the name of a variable, not '1a'",
        ),
        ("name: x\nenvironment: {a: [b]}\nstages: [{name: a, nodes: 1, time: 1h, run: x}]", "environment.a: must be"),
        ("name: x\nworkdir: ''\nstages: [{name: a, nodes: 1, time: 1h, run: x}]", "workdir: must be a text"),
    ],
)
def test_mistakes_in_the_file(text, message):
    assert message in wrong(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "stages[0].nodes: must be a whole number from 1 to 10000000, not 0"),
        ({"nodes": 10**20}, "stages[0].nodes: must be a whole number from 1 to 10000000, not 1"),
        ({"nodes": "four"}, "stages[0].nodes: must be a whole number from 1 to 10000000, not 'four'"),
        ({"nodes": 1.5}, "stages[0].nodes: must be a whole number from 1 to 10000000, not 1.5"),
        ({"nodes": True}, "stages[0].nodes: must be a whole number from 1 to 10000000, not true"),
        ({"nodes": [4]}, "stages[0].nodes: must be a whole number from 1 to 10000000, not a list"),
        ({"nodes": None}, "stages[0]: the key 'nodes' is missing"),
        ({"node": 3}, "stages[0]: unknown key 'node': did you mean 'nodes'?"),
        ({"time": "soon"}, "stages[0].time: must be a duration such as 90 (seconds)"),
        ({"time": 0}, "stages[0].time: must be a duration"),
        ({"time": -5}, "stages[0].time: must be a duration"),
        ({"time": float("nan")}, "stages[0].time: must be a duration"),
        ({"time": float("inf")}, "stages[0].time: must be a duration"),
        ({"expect": "2h"}, "stages[0].expect: must not be longer than time (3600 s), not 7200 s"),
        ({"took": "2h"}, "stages[0].took[0]: must be longer than 0 s and not longer than time (3600 s), not 7200 s"),
        ({"took": [60, "soon"]}, "stages[0].took[1]: must be a duration"),
        ({"took": {}}, "stages[0].took: must be a duration"),
        ({"took": [60] * 1001}, "stages[0].took: must be at most 1000, not 1001"),
        ({"run": ""}, "stages[0].run: must be a shell command, not ''"),
        ({"run": 7}, "stages[0].run: must be a shell command, not 7"),
        ({"name": "a/b"}, "stages[0].name: must be 1 to 40 of"),
        ({"name": "x" * 41}, "stages[0].name: must be 1 to 40 of"),
        ({"name": "a\n"}, "stages[0].name: must be 1 to 40 of"),
        ({"after": "b"}, "stages[0].after: there is no stage 'b' (stages: a)"),
        ({"after": "a"}, "stages[0].after: the stages form a cycle: a -> a"),
        ({"after": ["b", True]}, "stages[0].after[1]: must be 1 to 40"),
        ({"after": {"b": 1}}, "stages[0].after: must be 1 to 40"),
    ],
)
def test_mistakes_in_a_stage(changes, message):
    assert message in stage_wrong(**changes)


def test_mistakes_between_stages():
    stage = "nodes: 1, time: 1h, run: x"
    assert "stages[1].name: 'a' is the name of stages[0] already" in wrong(
        f"name: w\nstages: [{{name: a, {stage}}}, {{name: a, {stage}}}]"
    )
    cycle = wrong(f"name: w\nstages: [{{name: a, after: c, {stage}}}, {{name: b, {stage}}}, {{name: c, {stage}}}]")
    assert "the stages form a cycle: a -> b -> c -> a" in cycle
    assert "stages[1].after: names a stage twice" in wrong(
        f"name: w\nstages: [{{name: a, {stage}}}, {{name: b, after: [a, a], {stage}}}]"
    )


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.yaml: cannot be read: No such file"):
        load_workflow(tmp_path / "nowhere.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        load_workflow(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        load_workflow("a\0b")
    path = tmp_path / "w.yaml"
    path.write_bytes(b"name: x\nworkdir: /data/\xe9\n")
    with pytest.raises(UserError, match="line 2: must be UTF-8 text"):
        load_workflow(path)
    path.write_text("﻿" + GOOD, "utf-8")
    assert load_workflow(path).source == str(path)


def test_a_bomb_of_aliases_is_refused_at_once():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "its aliases written out" in wrong("\n".join(lines))
    assert "stages[0].name: must be 1 to 40 of A-Z a-z 0-9 _ . -, not a list" in wrong(
        "\n".join(["name: w", "stages:", "- name: &x [q]", "  nodes: 1", "  time: 1h", "  run: [*x, *x]"])
    )


# -- durations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90), (1.5, 1.5), ("90", 90), ("90s", 90), ("30m", 1800), ("30min", 1800), ("2h", 7200), ("1d", 86400),
        ("1h30m", 5400), ("1h 30m", 5400), ("1.5h", 5400), (" 2H ", 7200), ("00:30:00", 1800), ("30:00", 1800),
        ("1-02:00:00", 93600), ("1-2", 93600), ("1-02:30", 95400), ("100:00:00", 360000),
        ("", None), ("-1", None), ("1:99", None), ("1:2:3:4", None), ("h", None), ("m5", None), ("5m1h", None),
        ("0", None), (0, None), (True, None), (None, None), ([1], None), ("1e3", None), ("٣m", None), (10**400, None),
        ("9" * 5000, None), (float("nan"), None),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@given(st.integers(1, 10**8))
def test_durations_are_printed_as_they_are_read(seconds):
    assert parse_duration(duration_text(seconds)) == seconds


# -- anything at all -----------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates(), st.binary(max_size=5),
    st.sampled_from(["a", "b", "1h", "30m", "1-02:00:00", "batch", "x: y", "<<", "&a", "*a"]),
)  # fmt: skip
keys = st.one_of(
    st.sampled_from(["name", "stages", "nodes", "time", "expect", "run", "after", "partition", "environment"]), scalars
)
values = st.recursive(
    scalars, lambda v: st.one_of(st.lists(v, max_size=4), st.dictionaries(keys, v, max_size=6)), max_leaves=20
)
stages = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.sampled_from(["a", "b", "c"]), values),
        "nodes": st.one_of(st.integers(-1, 9), values),
        "time": st.one_of(st.sampled_from(["1h", "2h", 60]), values),
        "expect": st.one_of(st.sampled_from(["1h", "2h", 60]), values),
        "run": st.one_of(st.just("x"), values),
        "after": st.one_of(st.sampled_from(["a", "b", ["a"], []]), values),
    },
)
documents = st.one_of(
    values,
    st.fixed_dictionaries({"name": st.one_of(st.just("w"), values), "stages": st.lists(stages, max_size=4)}),
    st.fixed_dictionaries({"name": st.just("w"), "stages": values, "environment": values}),
)


def only_user_errors(data):
    try:
        assert isinstance(parse_workflow(data), Workflow)
    except UserError as error:
        assert "\n" not in str(error)


@given(documents)
@settings(max_examples=400)
def test_any_document_is_read_or_refused(document):
    only_user_errors(yaml.safe_dump(document, allow_unicode=True))


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
@example("!!timestamp x")
@example("!!bool x")
@example("!!float ''")
@example("!!int ''")
@example("!!binary é")
@example("? [a, b]\n: c")
@example("&a [*a]")
@example("&a {*a : 1}")
@example("name: &n [*n]\nstages: []")
@example("a: 1" + "1" * 5000)
@example("name: w\nstages: [{name: a, nodes: 1" + "0" * 4000 + ", time: 1h, run: x}]")
@example("!!set {a, b}")
@example("stages: !!pairs [a: b]\nname: w")
@example("%YAML 9.9\n---\na")
@example("a\n---\nb")
@settings(max_examples=400)
def test_any_bytes_are_read_or_refused(data):
    only_user_errors(data)


@given(st.text(alphabet="nametgs: -[]{}&*!|>'\"\n\t#1ha,?%<", max_size=120))
@settings(max_examples=400)
def test_anything_that_looks_like_yaml_is_read_or_refused(text):
    only_user_errors(text)


@given(st.integers(0, len(GOOD) - 1), st.text(max_size=3), st.integers(0, 5))
@settings(max_examples=400)
def test_a_good_file_with_a_slip_is_read_or_refused(place, insertion, removed):
    only_user_errors(GOOD[:place] + insertion + GOOD[place + removed :])


# -- against the cluster -------------------------------------------------------------------------------------


def partition(name, nodes=4, default=False, max_time=None, max_nodes=None):
    return Partition(name, tuple(f"n{i}" for i in range(nodes)), True, default, max_time, None, max_nodes)


def against(workflow, *partitions, default=None, strategy="perstage"):
    found = check_against(workflow, {p.name: p for p in partitions}, default)
    plan = strategy_named(strategy).plan(workflow, Outlook(lambda _geometry: 0.0))
    check_units(workflow, place_units(workflow, plan.cut), found, strategy)
    return found


def test_what_the_cluster_can_run():
    workflow = parse_workflow(GOOD)
    assert against(workflow, partition("batch")).name == "batch"
    nowhere = read(GOOD, partition=None)
    assert against(nowhere, partition("a"), partition("b", default=True)).name == "b"
    assert against(nowhere, partition("a"), partition("b", default=True), default="a").name == "a"


def test_in_several_partitions():
    """A job may start in any of those it names, so one that would start it is enough."""
    short, wide = partition("short", 2, max_time=700), partition("wide", 8)
    flow = read(GOOD, partition="short,wide")
    found = against(flow, short, wide)
    assert (found.name, found.max_time, len(found.nodes)) == ("short,wide", None, 8)
    assert partitions_of(flow, "batch") == ["short", "wide"] and elsewhere(flow) == "partition: short,wide"
    merge, stages = read(GOOD, partition="wide"), yaml.safe_load(GOOD)["stages"]
    assert elsewhere(merge) is None
    stages[1]["partition"] = "short"
    flow = read(GOOD, partition="wide", stages=stages)
    assert partitions_of(flow, "batch") == ["wide", "short"] and elsewhere(flow) == "stages[1].partition: short"
    assert against(flow, short, wide).max_time == 700, "what several stages as one job can reckon with"
    assert against(flow, short, partition("wide", 8, max_time=3000)).max_time == 700
    stages[1]["partition"] = "shrt,wide"
    with pytest.raises(UserError, match=r"stages\[1\].partition: the cluster has no partition 'shrt' .*'short'"):
        against(read(GOOD, partition="wide", stages=stages), short, wide)
    stages[0]["partition"] = "short"
    with pytest.raises(UserError, match=r"stages\[0\].nodes: must be at most 2, .* partition 'short'"):
        against(read(GOOD, partition="wide", stages=stages), short, wide)
    everywhere = [{**stage, "partition": "wide"} for stage in stages]
    assert against(read(GOOD, partition=None, stages=everywhere), wide).name == "wide", "no default is needed"


@pytest.mark.parametrize(
    ("partitions", "strategy", "message"),
    [
        ([partition("bath")], "asa", "partition: the cluster has no partition 'batch' (did you mean 'bath'?)"),
        ([], "asa", "partition: the cluster has no partition 'batch'; it has: none"),
        ([partition("batch", 3)], "asa", "stages[0].nodes: must be at most 3, the most that partition 'batch' gives"),
        ([partition("batch", 9, max_nodes=2)], "asa", "stages[0].nodes: must be at most 2"),
        ([partition("batch", max_time=1000)], "asa", "stages[0].time: must be at most 16m40s, the limit of partition"),
        ([partition("batch", max_time=2000)], "bigjob", "stages: as one job they need 50m, partition 'batch' allows"),
    ],
)
def test_what_it_cannot(partitions, strategy, message):
    with pytest.raises(UserError) as caught:
        against(parse_workflow(GOOD, "w.yaml"), *partitions, strategy=strategy)
    assert str(caught.value).startswith(f"w.yaml: {message}")


def test_without_a_default_partition():
    with pytest.raises(UserError, match=r"workflow.yaml: partition: is missing, and the cluster has no default"):
        against(read(GOOD, partition=None), partition("a"))


def test_what_a_stage_took_before_is_what_it_is_expected_to_take():
    a = "{name: a, nodes: 1, time: 1h, took: [10m, 20m], run: x}"
    text = f"name: w\nstages: [{a}, {{name: b, nodes: 1, time: 60, took: 7, run: x}}]"
    first, second = parse_workflow(text).stages
    assert (first.took, first.run_time, first.guessed) == ((600, 1200), 900, False)
    assert second.took == (7,)
    again = workflow_from_dict(json.loads(json.dumps(workflow_to_dict(parse_workflow(text)))))
    assert again == parse_workflow(text)


def test_what_stages_produce_is_what_the_next_ones_need():
    text = """
    name: f
    stages:
      - {name: a, nodes: 1, time: 1m, run: x, produces: 3 GB}
      - {name: b, nodes: 1, time: 1m, run: x, after: []}
      - {name: c, nodes: 1, time: 1m, run: x, after: [b, a], produces: 512 MiB}
      - {name: d, nodes: 1, time: 1m, run: x}
    """
    flow = parse_workflow(text)
    assert [s.inputs for s in flow.stages] == [(), (), (0.0, 3e9), (512 * 2.0**20,)]
    assert workflow_from_dict(json.loads(json.dumps(workflow_to_dict(flow)))) == flow
    with pytest.raises(
        UserError, match=r"stages\[2\].produces: must be bytes such as 3e9, 3 GB or 512 MiB, not 'much'"
    ):
        parse_workflow(text.replace("512 MiB", "much"))
    with pytest.raises(UserError, match=r"stages\[0\].inputs: must be as many"):
        Workflow("f", (Stage("a", 1, 60, 60, "x", inputs=(1.0,)),))
