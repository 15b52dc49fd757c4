"""The dashboard's pure parts: pictures there and back, who held what, what is expected, what the page gets."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from stored_states import owners_run

from dashboard_scene import MINUTE, NASTY, SLOTS, Scene
from penstock.api import JobState, Partition, Reservation
from penstock.core.picture import jobs_of, picture_from_dict, picture_to_dict
from penstock.errors import NotNow, UserError
from penstock.future.bands import Band, Misses
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.queued import FEW, Likely
from penstock.workflow.documents import run_to_dict
from penstock.workflow.phases import Kept, RunPhase, StagePhase
from penstock.workflow.state import Own, StageRun
from penstock_dashboard.data import cluster_model, decisions_model, natural, spans, waiting_starts, works
from penstock_dashboard.feed import Feed
from penstock_dashboard.flows import workflows_model
from penstock_dashboard.past import KEPT, JobHistory
from penstock_dashboard.planned import PlannedStarts, look_ahead
from penstock_dashboard.sizes import malleable_model, resized_at
from penstock_lab.testing import NODES, make_job, make_snapshot

NOW = 1_000_000.0


def through_json(value):
    return json.loads(json.dumps(value))


# -- pictures ----------------------------------------------------------------------------------------------------------


def a_picture():
    kept = Reservation("r", 5.0, math.inf, ("n1",), frozenset({"erin"}), frozenset(), frozenset({"MAINT"}), True)
    billed = Partition("gpu", ("n1",), True, False, 60.0, None, 3, accounts=frozenset({"a", "b"}), billing={"CPU": 2.0})
    snapshot = make_snapshot([make_job(1, "n1", "n2"), make_job(2, state=JobState.UNKNOWN)], at=NOW, down=["n8"])
    return replace(snapshot, partitions={**snapshot.partitions, "gpu": billed}, reservations=(kept,))


def test_a_picture_is_the_same_at_the_other_end_of_the_door():
    assert picture_from_dict(through_json(picture_to_dict(a_picture())), NOW) == a_picture()


def test_of_anothers_jobs_nothing_is_said():
    jobs = [make_job(1, "n1", uid=1), make_job(2, "n2", "n3", uid=2, user="bob"), make_job(3, uid=1)]
    seen = picture_from_dict(through_json(jobs_of(make_snapshot(jobs), 1)), NOW)
    assert sorted(seen.jobs) == [1, 3]
    assert sorted(seen.nodes) == ["n1"]
    assert "bob" not in json.dumps(jobs_of(make_snapshot(jobs), 1))


def test_what_a_newer_agent_says_besides_is_left_out_and_what_is_missing_is_said():
    said = through_json(picture_to_dict(a_picture()))
    said["jobs"][0]["colour"] = "red"
    assert picture_from_dict(said, NOW) == a_picture()
    del said["jobs"][0]["user"]
    with pytest.raises(ValueError, match="not a picture"):
        picture_from_dict(said, NOW)
    with pytest.raises(ValueError, match="not a picture"):
        picture_from_dict({}, NOW)


# -- the past ----------------------------------------------------------------------------------------------------------


def seen(past, at, *jobs, resized=None):
    past.see(at, {j.id: j for j in jobs}, resized or {})


def stretches(past):
    return [(h.job, h.nodes, h.start, h.end) for h in (*past.over, *past.held)]


def test_a_job_that_is_resized_held_first_some_nodes_and_then_others():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", start=40.0))
    seen(past, 200.0, make_job(1, "n1", "n2", start=40.0))
    assert stretches(past) == [(1, ("n1",), 40.0, 200.0), (1, ("n1", "n2"), 200.0, None)]


def test_a_job_that_the_agent_has_resized_has_its_nodes_since_then():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", start=40.0))
    seen(past, 200.0, make_job(1, "n1", "n2", start=40.0), resized={1: 150.0})
    seen(past, 300.0, make_job(1, "n3", start=40.0), resized={1: 150.0})  # not the agent's doing
    assert stretches(past) == [(1, ("n1",), 40.0, 150.0), (1, ("n1", "n2"), 150.0, 300.0), (1, ("n3",), 300.0, None)]


def test_a_job_ends_when_slurm_says_or_when_it_is_no_longer_seen():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", start=40.0), make_job(2, "n2", start=50.0))
    seen(past, 200.0, make_job(1, "n1", start=40.0, end=150.0, state=JobState.COMPLETED))
    assert stretches(past) == [(1, ("n1",), 40.0, 150.0), (2, ("n2",), 50.0, 200.0)]


def test_a_requeued_job_is_another_stretch_on_the_same_nodes():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", start=40.0))
    seen(past, 200.0, make_job(1, "n1", start=180.0))
    assert stretches(past) == [(1, ("n1",), 40.0, 200.0), (1, ("n1",), 180.0, None)]


def test_a_job_that_one_picture_does_not_have_is_not_drawn_twice():
    past, job = JobHistory(), make_job(1, "n1", start=40.0)
    seen(past, 100.0, job)
    seen(past, 110.0)  # say, to an operator while Slurm does not tell who is one
    seen(past, 120.0, job)
    assert stretches(past) == [(1, ("n1",), 40.0, 110.0), (1, ("n1",), 110.0, None)]


def test_of_a_job_that_was_resized_before_only_its_present_nodes_are_known():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", "n2", start=40.0), resized={1: 70.0})
    assert stretches(past) == [(1, ("n1", "n2"), 70.0, None)]
    assert past.since == 100.0


def test_a_malleable_job_breathes_in_the_picture():
    scene, past = Scene(NOW), JobHistory()
    for minutes in range(30, -1, -1):
        snapshot = scene.before(minutes)
        past.see(snapshot.taken_at, snapshot.jobs, {})
    job = [(len(h.nodes), round((NOW - h.start) / MINUTE)) for h in (*past.over, *past.held) if h.job == 4110]
    assert job == [(2, 31), (4, 24), (8, 17), (2, 10), (4, 5)]
    ended = {h.job: round((NOW - h.end) / MINUTE) for h in past.over if h.job != 4110}
    assert ended == {4095: 24, 4098: 6, 4104: 7}


def test_the_past_does_not_grow_for_ever():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", start=40.0))
    seen(past, 200.0)
    seen(past, 200.0 + KEPT - 1)
    assert len(list(past.over)) == 1
    seen(past, 200.0 + KEPT + 1)
    assert not list(past.over)


# -- the outlook -------------------------------------------------------------------------------------------------------


def test_who_waits_is_expected_where_nodes_become_free_and_what_stays_free_is_a_slot():
    running = make_job(1, *NODES[:6], end=NOW + 600.0)
    waiting = make_job(2, num_nodes=4, time_limit=300.0)
    outlook = look_ahead(make_snapshot([running, waiting], at=NOW), SLOTS)
    (job,) = outlook.jobs
    assert (job.name, job.start, job.end, len(job.nodes)) == ("2", NOW + 600.0, NOW + 900.0, 4)
    ((partition, slots),) = outlook.slots
    assert partition == "batch"
    assert [(s.start, s.end, s.nodes) for s in slots] == [
        (NOW, None, NODES[6:]),
        (NOW + 600.0, None, NODES[4:6]),
        (NOW + 900.0, None, NODES[:4]),
    ]


@pytest.mark.parametrize("partitions", [{}, {"off": Partition("off", NODES, False, True, None, 1.0, None)}])
def test_without_a_partition_nothing_is_expected(partitions):
    outlook = look_ahead(replace(make_snapshot([make_job(2)], at=NOW), partitions=partitions))
    assert (outlook.jobs, outlook.slots) == ((), ())


def test_without_a_part_that_finds_slots_none_are_drawn():
    outlook = look_ahead(make_snapshot([make_job(2)], at=NOW))
    assert [job.name for job in outlook.jobs] == ["2"]
    assert outlook.slots == ()
    assert model(make_snapshot([make_job(2)], at=NOW), outlook=outlook)["slots"] == {}


def test_who_can_never_start_is_told_of():
    outlook = look_ahead(make_snapshot([make_job(2, num_nodes=99)], at=NOW))
    assert not outlook.jobs
    assert "1 pending job can never start on the cluster as it is" in outlook.notes


# -- what the page gets ------------------------------------------------------------------------------------------------


def test_nodes_stand_in_the_order_of_their_numbers():
    names = ["n10", "n2", "n1", "gpu1-2", "gpu1-10", "login"]
    assert sorted(names, key=natural) == ["gpu1-2", "gpu1-10", "login", "n1", "n2", "n10"]
    assert natural("") < natural("n") < natural("n0")


def test_sets_of_nodes_are_runs_of_rows():
    rows = {f"n{i}": i for i in range(10)}
    assert spans(["n3", "n1", "n2", "n7", "gone"], rows) == [[1, 3], [7, 1]]
    assert spans([], rows) == []


def model(snapshot, work=None, outlook=None, likely=None):
    past = JobHistory()
    past.see(snapshot.taken_at, snapshot.jobs, {})
    return cluster_model(snapshot, outlook or PlannedStarts(snapshot.taken_at), past, work or {}, likely)


def test_the_cluster_in_numbers_and_bars():
    array = make_job(3, tasks=5)
    kept = Reservation("r", NOW, math.inf, ("n6",), frozenset(), frozenset({"a"}), frozenset(), True)
    snapshot = make_snapshot([make_job(1, "n1", "n2"), make_job(2), array], at=NOW, down=["n8", "n6"])
    drawn = model(replace(snapshot, reservations=(kept,)), {1: {"label": "w / s", "workflow": 4}})
    assert drawn["counts"] == {"nodes": 8, "busy": 2, "down": 1, "running": 1, "waiting": 6}
    assert [n["state"] for n in drawn["nodes"]] == ["busy", "busy", "idle", "idle", "idle", "reserved", "idle", "down"]
    assert drawn["down"] == [[7, 1]]
    running, reserved = drawn["bars"]
    assert (running["kind"], running["rows"], running["label"], running["workflow"]) == (
        "running",
        [[0, 2]],
        "w / s",
        4,
    )
    assert (reserved["kind"], reserved["end"], reserved["user"]) == ("reserved", None, "a")


def test_a_task_of_an_array_is_known_by_its_array():
    waiting = make_job(7, tasks=2)
    outlook = look_ahead(make_snapshot([waiting], at=NOW))
    bars = [b for b in model(make_snapshot([waiting], at=NOW), outlook=outlook)["bars"] if b["kind"] == "planned"]
    assert [(b["name"], b["job"], b["user"]) for b in bars] == [("7_0", 7, "alice"), ("7_1", 7, "alice")]


def test_who_has_begun_or_is_gone_since_the_plan_was_made_is_expected_no_more():
    scene = Scene(NOW)
    there = scene.snapshot.jobs
    begun = replace(there[4115], state=JobState.RUNNING, nodes=("n15",), start=NOW + 5.0, end=NOW + 905.0)
    jobs = {number: job for number, job in {**there, 4115: begun}.items() if number != 4114}
    drawn = model(replace(scene.snapshot, taken_at=NOW + 60.0, jobs=jobs), outlook=look_ahead(scene.snapshot))
    assert [b["job"] for b in drawn["bars"] if b["kind"] == "planned"] == [4113]
    assert [b["kind"] for b in drawn["bars"] if b["job"] == 4115] == ["running"]


def test_of_very_many_jobs_the_past_is_left_out_and_nothing_that_runs():
    past = JobHistory()
    jobs = {n: make_job(n, "n1", start=NOW - 100.0) for n in range(1, 4101)}
    past.see(NOW, {n: replace(job, id=n + 5000) for n, job in jobs.items()}, {})
    snapshot = make_snapshot(jobs.values(), at=NOW + 60.0)
    past.see(NOW + 60.0, snapshot.jobs, {})
    drawn = cluster_model(snapshot, PlannedStarts(0.0), past, {})["bars"]
    assert sum(b["kind"] == "running" for b in drawn) == 4100
    assert len(drawn) < 4200


def workflows(scene):
    return workflows_model(scene("status", {}), scene.now)


def test_of_a_stage_that_waits_nothing_is_foretold_but_by_the_queue_s_plan():
    scene = Scene(NOW)
    (workflow,) = workflows(scene)
    project, merge, publish = workflow["stages"]
    assert workflow["strategy"] == "auto: asa_after"
    assert (project["expected_start"], project["expected_end"]) == (None, NOW + 11 * MINUTE)
    assert not any("estimate" in stage for stage in workflow["stages"]), "what it is submitted ahead by is no forecast"
    assert (merge["expected_start"], merge["expected_end"], merge["likely"]) == (None, None, None)
    assert (publish["queued"], publish["expected_start"]) == (None, None)
    scene.finish()
    project, merge, _ = workflows(scene)[0]["stages"]
    assert (project["end"], project["expected_end"]) == (NOW, None)
    assert (merge["start"], merge["expected_start"], merge["expected_end"]) == (NOW, None, NOW + 8 * MINUTE)


def test_of_one_job_the_chart_the_queue_and_the_stages_say_one_instant():
    scene = Scene(NOW)
    outlook = look_ahead(scene.snapshot)
    likely = Likely(NOW, {"4113": Band(NOW + 60.0, NOW + 120.0, NOW + 7200.0), "4114": Band(NOW, math.inf, math.inf)})
    starts = waiting_starts(scene.snapshot, outlook, likely)
    stages = workflows_model(scene("status", {}), scene.now, starts)[0]["stages"]
    drawn = model(scene.snapshot, outlook=outlook, likely=likely)
    (bar,) = (b for b in drawn["bars"] if b["name"] == "4113")
    row = next(q for q in drawn["queue"] if q["job"] == 4113)
    assert stages[1]["expected_start"] == bar["start"] == row["start"] == starts["4113"]["start"]
    assert stages[2]["expected_start"] is None
    band = {"low": bar["start"], "likely": bar["start"], "high": bar["start"]}  # it can start now: not later than that
    assert stages[1]["likely"] == band and band.items() <= bar.items() and band.items() <= row.items()
    length = scene.run.units[1].run_time
    assert stages[1]["expected_end"] == max(bar["likely"] + length, scene.now), "by what is likely in the drawn futures"
    other = next(q for q in drawn["queue"] if q["job"] == 4114)
    assert other["likely"] == other["high"] == other["start"], "limits promise it"
    assert "likely" not in starts["4115"]
    assert [q["job"] for q in drawn["queue"]] == sorted((4113, 4114, 4115), key=lambda n: starts[str(n)]["start"])


def test_who_waits_for_something_else_is_in_the_queue_without_a_start():
    jobs = [make_job(2, reason="Dependency", dependency="afterok:1"), make_job(3, tasks=2, time_limit=60.0)]
    snapshot = make_snapshot(jobs, at=NOW)
    first, second = model(snapshot, outlook=look_ahead(snapshot))["queue"]
    assert (first["job"], first["tasks"], first["start"]) == (3, 2, NOW)
    assert (second["job"], second["reason"], second["start"], "likely" in second) == (2, "Dependency", None, False)


def test_the_past_ends_when_slurm_says_that_the_stage_did():
    past = JobHistory()
    seen(past, 100.0, make_job(1, "n1", start=40.0))
    seen(past, 200.0)
    snapshot = make_snapshot(at=200.0)
    (bar,) = cluster_model(snapshot, PlannedStarts(200.0), past, {1: {"label": "w / s", "end": 180.0}})["bars"]
    assert (bar["kind"], bar["end"]) == ("past", 180.0)


def test_a_slot_has_the_price_that_its_own_partition_has():
    nodes = tuple(NODES[:4])
    dear = Partition("dear", nodes, True, False, None, 3600.0, None, billing={"CPU": 3.0})
    snapshot = make_snapshot(at=NOW)
    outlook = look_ahead(replace(snapshot, partitions={**snapshot.partitions, "dear": dear}), SLOTS)
    prices = {name: {slot.price for slot in slots} for name, slots in outlook.slots}
    cpus = snapshot.nodes[NODES[0]].cpus
    assert prices == {"batch": {cpus}, "dear": {3 * cpus}}


def test_a_stage_that_is_late_is_expected_to_end_now_and_not_before():
    scene = Scene(NOW)
    scene.now = NOW + 3600.0
    project, _, _ = workflows(scene)[0]["stages"]
    assert project["expected_end"] == scene.now


def test_a_failed_stage_expects_nothing():
    scene = Scene(NOW)
    first, *others = scene.run.stages
    failed = replace(first, phase=StagePhase.FAILED, end=NOW, failure=NASTY)
    scene.run = replace(scene.run, stages=(failed, *others), phase=RunPhase.FAILED)
    (workflow,) = workflows(scene)
    assert workflow["final"]
    assert workflow["stages"][0]["why"] == NASTY
    assert workflow["stages"][0]["expected_end"] is None


def test_workflows_whose_owner_submitted_the_jobs_are_shown_alike():
    stages = (
        StageRun("a", (), StagePhase.RUNNING, job=11, start=NOW - 100, own=Own(expect=600.0, nodes=2)),
        StageRun("b", (0,), job=12, estimate=60.0, own=Own(kept=Kept.BEGIN, limit=300.0, nodes=1)),
    )
    stages = tuple(replace(stage, submitted=NOW - 900) for stage in stages)
    run = owners_run(3, stages, 1101, "alice", name="mine", submitted_at=NOW - 900)
    (workflow,) = workflows_model({"workflows": [run_to_dict(run)]}, NOW)
    a, b = workflow["stages"]
    assert (a["expected_end"], a["phase"]) == (NOW + 500, "running")
    assert (b["phase"], b["queued"], b["expected_start"], b["expected_end"]) == ("kept", None, None, None)


def test_old_workflows_that_are_over_are_left_out():
    scene = Scene(NOW)
    over = [run_to_dict(replace(scene.run, id=n, phase=RunPhase.COMPLETED)) for n in range(1, 31)]
    status = {"workflows": [*over, run_to_dict(replace(scene.run, id=2))]}
    found = workflows_model(status, NOW)
    assert [w["number"] for w in found if w["final"]] == list(range(30, 20, -1))
    assert [w["number"] for w in found if not w["final"]] == [2]


def test_a_malleable_job_over_time():
    scene = Scene(NOW)
    scene.resizes.insert(1, {"kind": "expand", "old": 4, "new": 8, "outcome": "refused", "at": NOW - 20 * MINUTE})
    job, ended = malleable_model(scene("sizes", {}), NOW)
    minutes_ago = [(round((NOW - at) / MINUTE), size) for at, size in job["points"]]
    assert minutes_ago == [(31, 2), (24, 4), (17, 8), (10, 2), (5, 4)]
    assert job["node_seconds"] == MINUTE * (7 * 2 + 7 * 4 + 7 * 8 + 5 * 2 + 5 * 4)
    assert [r["outcome"] for r in job["resizes"]][1] == "refused"
    assert (ended["ended"], ended["points"]) == (NOW - 20 * MINUTE, [[NOW - 45 * MINUTE, 6]])
    assert resized_at([job, ended]) == {4110: NOW - 5 * MINUTE}


def test_sizes_are_whole_nodes_and_end_with_what_there_is_now():
    said = {
        **Scene(NOW)("sizes", {})[1], "per_node": 4, "size": 8, "minimum": 4, "maximum": 17, "target": 12,
        "resizes": [{"kind": "expand", "old": 4, "new": 16, "outcome": "completed", "at": NOW - 60}],
    }  # fmt: skip
    (job,) = malleable_model([said], NOW)
    assert [n for _, n in job["points"]] == [1, 4, 2]
    assert (job["minimum"], job["maximum"], job["target"], job["size"]) == (1, 5, 3, 2)


def test_jobs_are_called_after_what_the_agent_knows_them_as():
    scene = Scene(NOW)
    said = {**scene("sizes", {})[1], "companions": [4200]}
    known = works(workflows(scene), malleable_model([said], NOW))
    assert known[4107] == {
        "label": "mosaic / project",
        "workflow": 7,
        "expected_end": NOW + 11 * MINUTE,
        "end": None,
    }
    assert known[4110] == {"label": "malleable", "malleable": True}
    assert known[4200]["label"] == "nodes of job 4110"


def test_decisions_are_shown_newest_first():
    scene = Scene(NOW)
    found = decisions_model(scene.decisions)
    assert [d["id"] for d in found] == [6, 5, 4, 3, 2, 1]
    assert found[1]["reasons"] == ["its wait is predicted to be 12 min", "project ends in 11 min"]


# -- the feed ----------------------------------------------------------------------------------------------------------


def shown(feed):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(feed.latest().body, parse_constant=refuse)


def test_the_page_gets_all_of_it_and_the_same_while_nothing_changes():
    scene = Scene(NOW)
    feed = Feed(scene, slots=SLOTS)
    assert shown(feed)["agent"] == {"answers": False, "message": "Starting."}
    feed.look()
    page = shown(feed)
    assert page["agent"]["answers"]
    assert (page["name"], page["whole"], page["format"]) == ("granite", True, 1)
    assert {b["kind"] for b in page["cluster"]["bars"]} == {"running", "planned", "reserved"}
    assert page["cluster"]["slots"]["batch"]
    assert (len(page["workflows"]), len(page["malleable"]), len(page["decisions"])) == (1, 2, 6)
    tag = feed.latest().tag
    feed.look()
    assert feed.latest().tag == tag
    assert [r for op, r in scene.asked if op == "decisions"] == [{"after": 0}, {"after": 6}]
    assert [r["seen"] for op, r in scene.asked if op == "cluster"] == [None, NOW]
    scene.decisions.append(scene._decided(7, 0, "submit", "workflow 7/publish", "due"))
    feed.look()
    assert feed.latest().tag != tag
    assert shown(feed)["decisions"][0]["id"] == 7


def test_the_time_goes_on_while_nothing_else_changes():
    scene, clock = Scene(NOW), [100.0]

    def ask(op, request):
        told = scene(op, request)
        return {**told, "workflows": []} if op == "status" else [] if op == "sizes" else told

    feed = Feed(ask, lambda: clock[0])
    feed.look()
    tag = feed.latest().tag
    scene.now, clock[0] = NOW + 7200.0, 7300.0  # Slurm does not answer, so the picture is an old one
    feed.look()
    clock[0] += 3.0
    assert (feed.latest().tag, feed.latest().now) == (tag, NOW + 7203.0)


def test_an_agent_that_is_gone_is_what_the_page_says_until_it_is_back():
    scene = Scene(NOW)
    feed = Feed(scene)
    feed.look()
    scene.silent = True
    feed.look()
    page = shown(feed)
    assert not page["agent"]["answers"]
    assert "no agent answers" in page["agent"]["message"]
    assert page["workflows"], "what was known stays"
    scene.silent = False
    del scene.decisions[2:]  # another state file: the numbers begin again
    feed.look()
    page = shown(feed)
    assert page["agent"]["answers"]
    assert [d["id"] for d in page["decisions"]] == [2, 1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("not a request of this agent (operations: ping)"), "older than this command"),
        (NotNow("too many requests"), "too many requests"),
        (KeyError("picture"), "another release"),
        (RecursionError(), "another release"),
    ],
)
def test_an_agent_that_cannot_tell_is_no_end_of_the_page(error, said):
    scene = Scene(NOW)

    def ask(op, request):
        if op == "cluster":
            raise error
        return scene(op, request)

    feed = Feed(ask)
    feed.look()
    page = shown(feed)
    assert said in page["agent"]["message"]
    assert page["workflows"], "where `penstock tick` does the work there are workflows without an agent"


def test_a_plan_that_takes_long_is_not_made_often():
    scene, clock = Scene(NOW), [100.0]
    planned = []

    def slow(snapshot, _slots):
        planned.append(snapshot.taken_at)
        clock[0] += 2.0
        return PlannedStarts(snapshot.taken_at)

    feed = Feed(scene, lambda: clock[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock_dashboard.feed.look_ahead", slow)
        feed.look()
        for _ in range(20):
            scene.now += 1.0
            clock[0] += 1.0
            scene.snapshot = replace(scene.snapshot, taken_at=scene.now)
            feed.look()
    assert planned == [NOW, NOW + 18.0]


def test_likely_starts_are_drawn_in_parts_and_shown_when_all_are_there():
    scene, clock = Scene(NOW), [100.0]
    asked = []

    def known(name, snapshot):
        asked.append((name, snapshot.taken_at))
        return QueuePast((0.5,) * ENOUGH), Misses()

    feed = Feed(scene, lambda: clock[0], known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.future.replay._PART", 1)  # many parts, of which a clock that stands still takes one
        feed.look()
        assert shown(feed)["cluster"]["likely"] is None
        for _ in range(40 * 40):
            feed.look()
            if (cluster := shown(feed)["cluster"])["likely"] is not None:
                break
    assert cluster["likely"] == {"at": NOW, "why": ""}
    assert asked == [("granite", NOW)], "not again while nothing is new"
    rows = {row["job"]: row for row in cluster["queue"]}
    assert NOW <= rows[4114]["low"] <= rows[4114]["likely"] <= rows[4114]["high"] <= rows[4114]["start"]


def test_without_a_past_it_is_said_why_likely_starts_are_missing():
    feed = Feed(Scene(NOW), lambda: 100.0)
    feed.look()
    assert shown(feed)["cluster"]["likely"] == {"at": NOW, "why": FEW}


def test_slurm_is_looked_at_anew_only_while_somebody_looks():
    scene, clock = Scene(NOW), [100.0]
    feed = Feed(scene, lambda: clock[0])
    feed.look()
    feed.latest()
    feed.look()
    clock[0] += 60.0
    feed.look()
    assert [r["fresh"] for op, r in scene.asked if op == "cluster"] == [False, True, False]
