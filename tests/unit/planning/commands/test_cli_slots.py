"""`penstock slots`, `quote` and `plan` on a queue file, as a user meets them; mistakes included."""

from __future__ import annotations

import json

import pytest

from penstock.cli import main
from penstock_planning.plan.front import ParetoPoint, check_limits, trade_off
from penstock_planning.plan.heft import Schedule
from penstock_planning.plan.workflows import FrontPlan, ScheduleChoice

FIG1 = {
    "procs": 5,
    "horizon": 8,
    "jobs": [
        {"id": name, "procs": procs, "duration": duration, "state": "pending"}
        for name, procs, duration in (("A", 2, 3), ("B", 4, 1), ("C", 1, 2), ("D", 3, 2))
    ],
}
FIG21 = {
    "procs": 5,
    "now": 0,
    "policy": "conservative",
    "jobs": [
        {"id": "A", "procs": 1, "duration": 2, "state": "running", "start": 0, "on": [0]},
        {"id": "B", "procs": 3, "duration": 3, "state": "running", "start": 0, "on": [2, 3, 4]},
        {"id": "R", "procs": 1, "duration": 3, "state": "reserved", "start": 4, "on": [2]},
        {"id": "C", "procs": 2, "duration": 4, "state": "pending"},
        {"id": "D", "procs": 2, "duration": 5, "state": "pending"},
    ],
}


@pytest.fixture
def penstock(tmp_path, monkeypatch, capsys):
    """Runs a command on a queue (`--queue` is added); its exit code, output and errors."""

    def run(command, queue, *options):
        path = tmp_path / "queue.json"
        path.write_text(queue if isinstance(queue, str) else json.dumps(queue))
        monkeypatch.setattr("sys.argv", ["penstock", command, "--queue", str(path), *options])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        got = capsys.readouterr()
        return code, got.out, got.err

    return run


def test_slots_of_figure_1(penstock):
    code, out, err = penstock("slots", FIG1, "--json")
    assert (code, err) == (0, "")
    keys = ("start", "procs", "duration", "extensible")
    assert [tuple(row[k] for k in keys) for row in json.loads(out)["slots"]] == [
        (0, 1, 8, True), (0, 1, 3, False), (2, 1, 1, False), (4, 1, 4, True), (6, 3, 2, True),
    ]  # fmt: skip
    assert set(json.loads(out)["slots"][0]) == {"start", "procs", "duration", "c", "f", "divisible", "extensible"}


def test_a_session_is_not_filtered(penstock):
    code, out, err = penstock("slots", FIG1, "--session", "--nodes", "2")
    assert (code, out) == (2, "") and "--session says all there is" in err


def test_a_queue_without_an_end_says_why_there_are_no_slots(penstock):
    code, out, err = penstock("slots", {"procs": 5, "now": 0, "jobs": []}, "--json")
    assert (code, json.loads(out)["slots"]) == (0, [])
    assert err == 'nothing ends after now: give the file a "horizon"\n'
    assert penstock("slots", {"procs": 5, "now": 0, "horizon": 2})[2] == ""


def test_the_default_horizon_is_the_last_finish(penstock):
    queue = {k: v for k, v in FIG1.items() if k != "horizon"}
    rows = json.loads(penstock("slots", queue, "--json")[1])["slots"]
    assert max(r["start"] + r["duration"] for r in rows) == 6


def test_an_empty_machine(penstock):
    assert json.loads(penstock("slots", {"procs": 3, "horizon": 2}, "--json")[1])["slots"][0]["procs"] == 3
    assert json.loads(penstock("slots", {"procs": 3}, "--json")[1])["slots"] == []
    assert json.loads(penstock("quote", {"procs": 3}, "-N", "2", "-t", "1", "--json")[1])["quotes"] == [
        {"start": 0, "c": 1, "f": 0, "delays": {}}
    ]


def test_which_slots_are_wanted(penstock):
    def starts(*options):
        return [r["start"] for r in json.loads(penstock("slots", FIG1, *options, "--json")[1])["slots"]]

    assert starts("--from", "4") == [0, 4, 6]
    assert starts("--to", "2") == [0, 0]
    assert starts("--nodes", "2") == [6]
    assert starts("--time", "4") == [0, 4, 6]  # what is extensible is long enough


def test_pictures(penstock, tmp_path):
    out = penstock("slots", FIG1, "--gantt")[1]
    assert "0 AAAA" in out and "divisible, extensible" in out
    assert out.endswith("  . free  A=A  B=B  C=C  D=D\n")
    out = penstock("slots", FIG21, "--gantt")[1]  # A runs, C is the first that waits
    assert out.endswith("  . free  A=C  B=D\n")
    pytest.importorskip("matplotlib")
    assert penstock("slots", FIG1, "--picture", str(tmp_path / "plan.svg"))[0] == 0
    assert (tmp_path / "plan.svg").stat().st_size > 1000
    code, _, err = penstock("slots", FIG1, "--picture", str(tmp_path / "plan.doc"))
    assert code == 2 and "--picture" in err


def test_table_3(penstock):
    out = penstock("quote", FIG21, "-N", "2", "-t", "3", "--json")[1]
    assert [(r["start"], r["f"], r["delays"]) for r in json.loads(out)["quotes"]] == [
        (0, None, {}), (2, 6, {"C": 1, "D": 2}), (3, 8, {"C": 1, "D": 3}), (4, 10, {"C": 1, "D": 4}),
        (6, 0, {}), (7, 0, {}), (8, 0, {}),
    ]  # fmt: skip


def test_one_start_or_those_from_one_on(penstock):
    size = ("-N", "2", "-t", "3", "--json")
    assert [r["f"] for r in json.loads(penstock("quote", FIG21, *size, "--at", "3")[1])["quotes"]] == [8]
    rows = json.loads(penstock("quote", FIG21, *size, "--after", "3.5")[1])["quotes"]
    assert [(r["start"], r["f"]) for r in rows] == [(3.5, 9), (4, 10), (6, 0), (7, 0), (8, 0)]
    assert [r["start"] for r in json.loads(penstock("quote", FIG21, *size, "--alpha", "0.53")[1])["quotes"]] == [6]


def test_the_table_says_who_is_delayed(penstock):
    out = penstock("quote", FIG21, "-N", "2", "-t", "3", "--explain")[1]
    assert "cannot be had" in out and "start 2: delays D by 2" in out


def test_decimals_are_exact(penstock):
    jobs = [{"id": n, "procs": 1, "duration": d, "state": "pending"} for n, d in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    rows = json.loads(penstock("slots", {"procs": 1, "jobs": jobs, "horizon": 1}, "--json")[1])["slots"]
    assert [(r["start"], r["duration"]) for r in rows] == [(0.6, 0.4)]


def job(**changes):
    return {"procs": 5, "jobs": [{"id": "x", "procs": 1, "duration": 2, "state": "running"} | changes]}


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "must be a map with the keys procs, now"),
        ("[" * 100_000, "not JSON"),
        ('{"procs": NaN}', "NaN is not a number"),
        ('{"procs": 1, "procs": 2}', "'procs' is there twice"),
        ({}, "the key 'procs' is missing"),
        ({"procs": 0}, "procs: must be a whole number from 1"),
        ({"procs": "5"}, "procs: must be a whole number"),
        ({"procs": True}, "procs: must be a whole number"),
        ({"procs": 5, "node": 1}, "unknown key 'node': known are procs, now"),
        ({"procs": 5, "policy": "fcfs"}, "policy: must be conservative or aggressive"),
        ({"procs": 5, "now": 3, "horizon": 3}, "horizon: must be later than now (3)"),
        ({"procs": 5, "now": "noon"}, "now: must be a number"),
        ({"procs": 5, "now": 1e99}, "now: must be a number from -1e+12 to 1e+12, not 1E+99"),
        ({"procs": 5, "c": -1}, "c: must not be negative"),
        ({"procs": 5, "jobs": {}}, "jobs: must be a list"),
        ({"procs": 5, "jobs": [7]}, "jobs[0]: must be a map with the keys id, procs"),
        (job(id=None), "jobs[0]: the key 'id' is missing"),
        (job(id=[]), "jobs[0].id: must be a text or a whole number, not a list"),
        (job(start=0.5, duration="long"), "jobs[0].duration: must be a number from -1e+12 to 1e+12, not 'long'"),
        (job(name="x"), "jobs[0]: unknown key 'name': known are id, procs"),
        (job(procs=6), "jobs[0].procs: must be a whole number from 1 to 5, not 6"),
        (job(procs=-1), "jobs[0].procs"),
        (job(procs=1.5), "jobs[0].procs"),
        (job(duration=0), "jobs[0].duration: must be longer than 0, not 0"),
        (job(duration=-2.5), "jobs[0].duration: must be longer than 0, not -2.5"),
        (job(duration=None), "jobs[0]: the key 'duration' is missing"),
        (job(duration=1e-12), "at most 9 decimals"),
        (job(state="ended"), "jobs[0].state: must be running, reserved or pending, not 'ended'"),
        (job(state=None), "jobs[0]: the key 'state' is missing"),
        (job(start=1), "jobs[0].start: a running job began at now (0) or before, not 1"),
        (job(start=-2), "jobs[0].duration: ends at 0, which is not after now (0)"),
        (job(state="reserved"), "jobs[0].start: is missing"),
        (job(state="reserved", start=-9), "jobs[0].duration: ends at -7"),
        (job(state="pending", on=[1]), "jobs[0].on: a pending job has no processors yet"),
        (job(on=[5]), "jobs[0].on: must be processors from 0 to 4, not 5"),
        (job(on=[0, 1]), "jobs[0].on: names 2 processors, but procs is 1"),
        (job(on=[1, 1]), "jobs[0].on: names processor 1 twice"),
        (job(on="all"), "jobs[0].on: must be a list"),
        ({"procs": 5, "jobs": [*job()["jobs"], *job()["jobs"]]}, "jobs[1].id: 'x' is the id of jobs[0] already"),
        (
            {"procs": 5, "jobs": [*job(on=[3])["jobs"], *job(id="y", on=[3], state="reserved", start=1)["jobs"]]},
            "jobs[1].on: processor 3 is taken by 'x' at that time",
        ),
        (
            {"procs": 5, "jobs": [*job(procs=4)["jobs"], *job(id="y", procs=2)["jobs"]]},
            "jobs[1].procs: only 1 processors are free from 0 to 2, not 2",
        ),
    ],
)
def test_wrong_queues(penstock, queue, said):
    code, out, err = penstock("slots", queue, "--json")
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1 and "queue.json: " in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--nodes is missing"),
        (("-N", "2"), "--time is missing"),
        (("-N", "6", "-t", "1"), "from 1 to 5, which is all there are, not '6'"),
        (("-N", "0", "-t", "1"), "--nodes must be a whole number"),
        (("-N", "2", "-t", "0"), "-t/--time must be longer than 0"),
        (("-N", "2", "-t", "x"), "-t/--time must be a number"),
        (("-N", "2", "-t", "1", "--at", "-1"), "--at must not lie before now (0), not -1"),
        (("-N", "2", "-t", "1", "--after", "nan"), "--after must be a number"),
        (("-N", "2", "-t", "1", "--at", "1", "--after", "1"), "cannot go together"),
        (("-N", "2", "-t", "1", "--alpha", "2"), "--alpha must be 0 to 1"),
    ],
)
def test_wrong_quotes(penstock, options, said):
    code, out, err = penstock("quote", FIG21, *options)
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1


def test_wrong_slots(penstock):
    assert "--to must be later than --from (3)" in penstock("slots", FIG1, "--from", "3", "--to", "2")[2]
    assert "--nodes must be a whole number" in penstock("slots", FIG1, "--nodes", "0")[2]
    assert "--from must not lie before now" in penstock("slots", FIG1, "--from", "-3")[2]


FLOW = """
name: diamond
stages:
  - {name: T1, nodes: 1, time: 1, run: "true"}
  - {name: T2, nodes: 2, time: 1, run: "true", after: T1}
  - {name: T3, nodes: 1, time: 2, run: "true", after: T1}
  - {name: T4, nodes: 2, time: 1, run: "true", after: [T2, T3]}
"""


@pytest.fixture
def flow(tmp_path):
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    return str(path)


@pytest.mark.parametrize(("alpha", "point"), [("0", (8, 5)), ("1", (7, 6))])
def test_a_plan_as_in_the_dissertation(penstock, flow, alpha, point):
    code, out, err = penstock("plan", FIG1, flow, "--alpha", alpha, "--method", "paper", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    whole = {"takes": "whole slots"}
    assert found["front"] == [{"cost": 7, "makespan": 6} | whole, {"cost": 8, "makespan": 5} | whole]
    assert (found["cost"], found["makespan"]) == point
    stages = {s["name"]: s for s in found["stages"]}
    assert stages["T4"]["end"] == point[1] and len(stages["T4"]["on"]) == 2
    assert found["best_effort"] == {"cost": 7, "makespan": 5}


def test_a_plan_of_a_file_with_commands_of_several_lines_or_with_none(penstock, tmp_path):
    def instance(*commands):
        tasks = [{"id": f"t{i}", "name": f"t{i}", "parents": [f"t{i - 1}"] if i else []} for i in range(2)]
        runs = [{"id": f"t{i}", "runtimeInSeconds": 1.0, **more} for i, more in enumerate(commands)]
        file = {"schemaVersion": "1.5", "workflow": {"specification": {"tasks": tasks}, "execution": {"tasks": runs}}}
        (tmp_path / "w.json").write_text(json.dumps(file))
        return str(tmp_path / "w.json")

    script = {"command": {"program": "cd here\n./run \\\n  -x", "arguments": []}}
    for commands in ((script, script), ({}, {})):
        code, out, err = penstock("plan", {"procs": 4, "now": 0, "jobs": []}, instance(*commands))
        assert (code, err) == (0, "") and "1-t " in out and "2-t " in out


def test_a_plan_takes_slots_in_part_and_says_what_would_be_faster_and_delay_others(penstock, flow):
    found = json.loads(penstock("plan", FIG1, flow, "--alpha", "1", "--json")[1])
    assert found["front"] == [
        {"cost": 7, "makespan": 5, "takes": "free slots"},
        {"cost": 14, "makespan": 4, "takes": "others' slots"},
    ]
    assert (found["cost"], found["makespan"], found["notes"]) == (7, 5, [])
    assert json.loads(penstock("plan", FIG1, flow, "--deadline", "4", "--json")[1])["cost"] == 14


@pytest.mark.parametrize(
    ("words", "cost"), [((), 10), (("--deadline", "9"), 7), (("--deadline", "9", "--alpha", "0.5"), 10)]
)
def test_with_a_deadline_the_cheapest_plan_that_keeps_it_is_chosen(penstock, flow, monkeypatch, words, cost):
    """Three plans: one that is free and late, one that costs a little and is nearly as quick as the last."""

    def planned(_situation, _dag, _method, alpha, last, *_rest, **_more):
        points = [ParetoPoint(7, 8, ()), ParetoPoint(10, 4.2, ()), ParetoPoint(19, 4, ())]
        best = trade_off(check_limits(points, last), alpha)
        plans = tuple(FrontPlan(point.cost, point.makespan, "free slots") for point in points)
        return ScheduleChoice(plans, Schedule(best.makespan, best.cost), None)

    monkeypatch.setattr("penstock_planning.commands.plan.plan_workflow", planned)
    assert json.loads(penstock("plan", FIG1, flow, *words, "--json")[1])["cost"] == cost


def test_of_plans_that_cost_the_same_the_first_to_end_is_chosen():
    assert trade_off([ParetoPoint(0, 9, ()), ParetoPoint(0, 5, ())], 1.0).makespan == 5


def test_other_methods_and_pictures(penstock, flow):
    greedy = json.loads(penstock("plan", FIG1, flow, "--method", "greedy", "--alpha", "0", "--json")[1])
    assert greedy["makespan"] == 4 and greedy["cost"] > 7
    alone = json.loads(penstock("plan", FIG1, flow, "--method", "best-effort", "--json")[1])
    assert (alone["makespan"], alone["cost"]) == (5, 7)
    out = penstock("plan", FIG1, flow, "--gantt")[1]
    assert "Plans that no other" in out and "****" in out


def test_several_workflows_are_planned_together(penstock, flow, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(
        "name: other\nstages: [{name: T1, nodes: 1, time: 1, run: x}, {name: T2, nodes: 1, time: 1, run: x}]"
    )
    both = json.loads(penstock("plan", {"procs": 2}, flow, str(other), "--alpha", "0", "--json")[1])
    stages = {s["name"]: s for s in both["stages"]}
    assert sorted(stages) == [*(f"diamond/T{i}" for i in (1, 2, 3, 4)), "other/T1", "other/T2"]
    assert stages["other/T2"]["start"] >= stages["other/T1"]["end"]
    for a in stages.values():
        for b in stages.values():
            assert a is b or a["end"] <= b["start"] or b["end"] <= a["start"] or not {*a["on"]} & {*b["on"]}
    assert both["cost"] == 9 and both["makespan"] == max(s["end"] for s in stages.values())
    code, _, err = penstock("plan", {"procs": 2}, flow, flow)
    assert code == 2 and "name: 'diamond' is the name of the workflow in" in err


def test_a_stage_gets_the_slot_that_its_run_times_suggest(penstock, tmp_path):
    path = tmp_path / "tail.yaml"
    runs = ", ".join(["2"] * 9 + ["30"])
    path.write_text(f"name: tail\nstages: [{{name: a, nodes: 1, time: 30, took: [{runs}], run: x}}]")
    (stage,) = json.loads(penstock("plan", {"procs": 1}, str(path), "--json")[1])["stages"]
    assert (stage["end"], stage["limit"], stage["overrun"]) == (2, 30, 0.1818)
    out = penstock("plan", {"procs": 1}, str(path))[1]
    assert "a: its slot is for 2 of 30; by what it took before, it takes longer with a probability of 18%" in out


def test_a_decimal_stage(penstock, flow, tmp_path):
    (tmp_path / "flow.yaml").write_text("name: x\nstages: [{name: a, nodes: 1, time: 0.5s, run: x}]")
    assert json.loads(penstock("plan", FIG1, flow, "--json")[1])["makespan"] == 0.5


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--deadline", "3"), 5, "no plan ends in 3: the fastest takes 4"),
        (("--deadline", "4.5", "--method", "greedy", "--budget", "7"), 5, "the cheapest costs 1"),
        (("--budget", "3"), 5, "no plan costs 3 or less: the cheapest costs 7"),
        (("--deadline", "0"), 2, "--deadline must be later than now (0)"),
        (("--deadline", "-1"), 2, "--deadline must not lie before now"),
        (("--budget", "0"), 2, "--budget must be a number above 0"),
        (("--method", "magic"), 2, "--method must be one of best"),
        (("--alpha", "x"), 2, "--alpha must be 0 to 1"),
    ],
)
def test_limits_that_cannot_be_kept_and_wrong_plans(penstock, flow, options, code, said):
    got, out, err = penstock("plan", FIG1, flow, *options)
    assert (got, out) == (code, "")
    assert said in err and err.count("\n") == 1


def test_what_comes_after_the_last_finish_can_be_planned_on(penstock, flow):
    assert json.loads(penstock("plan", {"procs": 2}, flow, "--json")[1])["makespan"] == 5
    full = {"procs": 2, "jobs": [{"id": "x", "procs": 2, "duration": 7, "state": "running"}]}
    assert json.loads(penstock("plan", full, flow, "--json")[1])["makespan"] == 12


def test_a_workflow_that_never_fits(penstock, flow):
    code, _, err = penstock("plan", {"procs": 1, "horizon": 5}, flow)
    assert code == 5 and "task T2 wants 2 processors, there are 1" in err


def test_a_file_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["penstock", "slots", "--queue", str(tmp_path / "none.json")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_a_file_without_an_end(monkeypatch, capsys):
    monkeypatch.setattr("penstock_planning.commands.planning._MAX_BYTES", 10**6)
    monkeypatch.setattr("sys.argv", ["penstock", "slots", "--queue", "/dev/zero"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "--queue: /dev/zero is larger than 1 MB" in capsys.readouterr().err
