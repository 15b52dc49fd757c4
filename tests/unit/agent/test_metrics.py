"""What the agent tells Prometheus, and what a site watches it with."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families as parsed

from monitoring import ALERTS, DASHBOARD, EXAMPLE, alerts, names_in, panels
from outside import need_program
from penstock.app import App
from penstock.cli.catalogue import METRICS, PREFIX, table
from penstock.core import figures
from penstock.core.off import Off
from penstock.ipc.audited import PEER
from penstock.ipc.doors import DoorsPart
from penstock.ipc.far import FarDoor
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.limits import RateLimit
from penstock.slurm.cli import CliBackend
from penstock.state.store import Store
from penstock.values.tally import Tally
from penstock.workflow.phases import RunPhase
from penstock_lab.agent_world import World, chain, virtual
from penstock_lab.cluster.layout import reserved_ports
from places import PROJECT

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


def values(world: World) -> dict[str, float]:
    """Every sample of the agent as `name{label="value"}`."""
    lines = generate_latest(world.app.metrics.registry).decode().splitlines()
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def promtool(*words: str, text: str | None = None) -> str:
    """What promtool said; it must not have complained."""
    done = subprocess.run(
        [need_program("promtool", "prometheus"), *words], input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_keep_to_the_conventions_of_prometheus():
    units = {"seconds", "bytes", "info", "timestamp_seconds"}
    for metric in METRICS.values():
        assert re.fullmatch(r"[a-z][a-z_]*", metric.name), metric
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kb|mb|percent)(_|$)", metric.name), metric
        assert metric.kind != "histogram" or metric.name.rsplit("_", 1)[1] in units, metric
        assert metric.text.endswith("."), metric
        assert not {"job", "user", "uid", "account", "workflow", "stage", "node"} & set(metric.labels), metric


@virtual
async def test_an_agent_tells_exactly_what_the_catalogue_says(tmp_path):
    world = World(tmp_path)
    await world.boot()
    backend = CliBackend()
    backend.meter.ended("squeue", "ok", 0.1)
    world.app.metrics.add(partial(figures.of_backend, backend))
    found = {}
    for family in world.app.metrics.registry.collect():
        labels = {k for s in family.samples for k in s.labels} - {"le"}
        name = family.name + "_total" * (family.type == "counter")
        assert name not in found
        found[name.removeprefix(PREFIX)] = (family.type, family.documentation, labels)
    assert found == {m.name: (m.kind, m.text, set(m.labels)) for m in METRICS.values()}


@virtual
async def test_promtool_finds_nothing_to_improve(tmp_path):
    need_program("promtool", "prometheus")
    world = World(tmp_path)
    await world.boot()
    world.app.metrics.add(partial(figures.of_backend, CliBackend()))
    assert promtool("check", "metrics", text=generate_latest(world.app.metrics.registry).decode()) == ""


# -- numbers -----------------------------------------------------------------------------------------------------------


@virtual
async def test_workflows_are_counted(tmp_path):
    world = World(tmp_path, min_job_age=60.0)  # so soon forgotten that children are held at first
    await world.boot()
    before = values(world)
    assert before['penstock_workflows_finished_total{outcome="completed",submitter="agent"}'] == 0
    number = await world.submit(chain(61, 62), "asa")
    await world.until(lambda: world.living())
    during = values(world)
    assert during['penstock_workflows{state="active",submitter="agent"}'] == 1
    assert sum(v for k, v in during.items() if k.startswith("penstock_stages") and 'submitter="agent"' in k) == 2
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    after = values(world)
    assert after['penstock_acts_total{act="submit",outcome="done"}'] == 2
    assert after['penstock_acts_total{act="release",outcome="done"}'] >= 1
    assert after['penstock_workflows_finished_total{outcome="completed",submitter="agent"}'] == 1
    assert after['penstock_workflows{state="active",submitter="agent"}'] == 0
    assert after['penstock_passes_total{verdict="acted"}'] > 10 < after["penstock_looks_total"]
    assert after["penstock_last_pass_timestamp_seconds"] == pytest.approx(world.now, abs=10)
    assert after["penstock_store_rows_written_total"] > before["penstock_store_rows_written_total"]
    assert after["penstock_snapshot_usable"] == 1


@virtual
async def test_starts_that_were_too_early_are_counted(tmp_path):
    asa = {"predictor": "asa-default", "alternatives": [50.0]}
    world = World(tmp_path, {"workflows": {"grace": 10}, "asa": asa})
    await world.boot()
    run = await world.finish(await world.submit(chain(60, 60), "asa-naive"))
    misses = sum(stage.misses for stage in run.stages)
    assert misses > 0
    assert values(world)["penstock_guard_interventions_total"] == misses


@virtual
async def test_resizes_and_messages_are_counted(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=60)
    await world.until(lambda: program.sizes[-1] == 8)
    await world.until(lambda: world.store.resizes.latest())
    seen = values(world)
    assert seen['penstock_resizes_total{kind="expand",outcome="completed"}'] == 1
    assert seen['penstock_nodes_moved_total{kind="expand"}'] == 6
    assert seen["penstock_resize_duration_seconds_count"] == 1
    assert seen['penstock_malleable_jobs{phase="idle"}'] == 1
    world.app.part(DoorsPart).remote = world.door
    assert values(world)['penstock_messages_total{door="remote",outcome="ok"}'] >= 3
    world.app.part(DoorsPart).far = FarDoor(world.door.hear, world.app.part(DoorsPart).verifier)
    world.app.part(DoorsPart).far.refused = 4
    assert values(world)['penstock_messages_total{door="far",outcome="refused"}'] == 4


@virtual
async def test_one_user_who_is_refused_again_and_again_counts_once_at_each_door(tmp_path):
    world = World(tmp_path)
    await world.boot()
    app = world.app
    app.part(DoorsPart).local, app.part(DoorsPart).remote = LocalDoor({}, RateLimit(1, 1e-9)), world.door
    for uid, times in ((1000, 30), (1001, 30), (1002, 1)):
        for _ in range(times):
            await app.part(DoorsPart).local.answer(uid, b"rubbish")
    for host in ("10.0.0.1", "10.0.0.2"):
        PEER.set(host)
        for _ in range(5):
            await app.part(DoorsPart).remote.answer(b"rubbish")
    seen = values(world)
    assert seen['penstock_messages_total{door="local",outcome="refused"}'] == 58
    assert seen['penstock_refused_requesters_total{door="local"}'] == 2
    assert seen['penstock_messages_total{door="remote",outcome="malformed"}'] == 10
    assert seen['penstock_refused_requesters_total{door="remote"}'] == 2


@virtual
async def test_what_keeps_the_agent_from_acting_for_others_is_told(tmp_path):
    world = World(tmp_path)
    await world.boot()
    seen = values(world)
    assert (seen["penstock_audit_unwritable"], seen['penstock_pauses{feature="all"}']) == (0, 0)
    world.app.auditor.trouble = "No space left on device"
    world.app.executor.pause_control.turn_off(Off(0, 1.0))
    seen = values(world)
    assert (seen["penstock_audit_unwritable"], seen['penstock_pauses{feature="all"}']) == (1, 1)


@virtual
async def test_that_nothing_is_done_for_others_is_seen_in_some_metric(tmp_path):
    world = World(tmp_path)
    await world.boot()
    before = values(world)
    world.app.auditor.trouble = "No space left on device"
    after = values(world)
    assert {name for name in after if name.startswith("penstock_") and after[name] != before.get(name)}


@virtual
async def test_resizes_that_an_application_refuses_are_counted_as_abandoned(tmp_path):
    world = World(tmp_path)
    await world.boot()
    await world.malleable(seconds=60, answers="refuse")
    await world.until(lambda: world.store.resizes.latest())
    seen = values(world)
    assert seen['penstock_resizes_total{kind="expand",outcome="abandoned"}'] == 1
    assert seen['penstock_nodes_moved_total{kind="expand"}'] == seen["penstock_resize_duration_seconds_count"] == 0


@virtual
async def test_faults_are_counted_by_part_and_failed_passes_finish_nothing(tmp_path):
    world = World(tmp_path)
    await world.boot()

    async def broken(snapshot):
        raise RuntimeError("a fault")

    world.workflows.reconcile = broken
    await world.app.loop.one_pass()
    before = values(world)
    assert before['penstock_controller_errors_total{part="WorkflowController"}'] == 1
    assert before['penstock_controller_errors_total{part="MalleableController"}'] == 0
    world.store.close()  # as a full disk: the pass cannot be recorded
    running = asyncio.ensure_future(world.app.loop.run())
    try:
        while values(world)['penstock_passes_total{verdict="failed"}'] == 0:
            await asyncio.sleep(0)
    finally:
        running.cancel()
    after = values(world)
    assert after["penstock_store_errors_total"] > before["penstock_store_errors_total"]
    assert after["penstock_last_pass_timestamp_seconds"] == before["penstock_last_pass_timestamp_seconds"]


def test_waits_are_held_against_their_predictions(tmp_path):
    store = Store(tmp_path / "s.db")
    store.learning.add_wait("k", 100.0, 40.0, 0, 1.0, 90.0)
    store.learning.add_wait("k", 10.0, 4000.0, 0, 1.0, 90.0)
    store.learning.add_wait("k", 10.0, 40.0, 1, 1.0, 90.0)  # at most so long: says nothing of the error
    store.learning.add_wait("k", None, 40.0, 0, 1.0)
    assert [t.total for t in store.learning.wait_errors.values()] == [60.0, 3990.0]
    assert dict(store.learning.bounds_held) == {"yes": 1, "no": 1}
    assert store.written == 4 and store.errors == 0
    store.close()
    with pytest.raises(Exception, match="closed"):
        store.learning.add_wait("k", None, 40.0, 0, 1.0)
    assert store.errors == 1


def test_a_tally_counts_up_to_each_bound():
    tally = Tally((1, 2.5))
    for value in (0.5, 1, 2, 99):
        tally.add(value)
    assert tally.buckets() == [("1", 2), ("2.5", 3), ("+Inf", 4)] and tally.total == 102.5


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_ports(1) as (one,):
        yield one


def test_a_running_agent_serves_them(site, port):
    site.configure(metrics={"listen": f"127.0.0.1:{port}"})
    site.start()

    def text() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return answer.read().decode()

    site.until(lambda: 'penstock_messages_total{door="local",outcome="ok"} 0.0' not in text(), "a counted ping")
    site.until(lambda: 'verdict="acted"} 0.0' not in text(), "a pass")
    families = {family.name for family in parsed(text())}
    assert {"penstock_build_info", "penstock_passes", "penstock_messages", "penstock_process_open_fds"} <= families
    site.config.write_text("agent: {interval: never}")
    site.process.send_signal(1)
    site.until(lambda: "penstock_config_last_reload_successful 0.0" in text(), "the refusal")
    site.configure()
    site.process.send_signal(1)
    site.until(lambda: "penstock_config_last_reload_successful 1.0" in text(), "the reload")
    assert site.stop() == 0


# -- alerts and dashboard ----------------------------------------------------------------------------------------------


def test_alerts_and_panels_name_metrics_that_exist():
    queries = [rule["expr"] for rule in alerts().values()] + [query for _panel, query in panels()]
    named = set().union(*(names_in(query) for query in queries))
    assert named <= METRICS.keys(), named - METRICS.keys()
    assert all(names_in(rule["expr"]) or "up{" in rule["expr"] for rule in alerts().values())
    told = METRICS.keys() - {n for n in METRICS if n.startswith("process_")}
    assert told - named <= {"decisions_total", "looks_total", "slurm_budget_wait_seconds_total",
                            "automatic_pauses_total", "connections_refused_total"}, "nobody looks at them"  # fmt: skip


def test_the_dashboard_is_whole():
    board = json.loads(DASHBOARD.read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for one in board["panels"]:
        place = one["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert one["type"] == "row" or one["targets"]


def test_promtool_accepts_the_rules_and_the_example():
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(ALERTS))
    promtool("check", "config", str(EXAMPLE))


PAGE = PROJECT / "docs" / "admin-metrics-and-systemd.md"


def test_the_page_for_administrators_is_complete():
    text = PAGE.read_text()
    (rows,) = re.findall(r"compares it -->\n\n(.*?)\n\n", text, re.DOTALL)
    assert rows == table(), "run `python -m penstock.cli.catalogue` and put what it prints into the page"
    assert re.findall(r"(?m)^\| `(Penstock\w+)` \|", text) == list(alerts())


# A series as promtool writes it (value, then +step x times, one a minute), with which the alert fires after an hour.
STEADY = {
    'up{job="penstock", instance="a"}': "1x60",
    'penstock_snapshot_usable{instance="a"}': "1x60",
    'penstock_slurm_requests_total{instance="a", outcome="ok"}': "0+10x60",
    'penstock_slurm_requests_total{instance="a", outcome="unanswered"}': "0x60",
    'penstock_store_errors_total{instance="a"}': "0x60",
    'penstock_automatic_pause{instance="a"}': "0x60",
    'penstock_config_last_reload_successful{instance="a"}': "1x60",
    'penstock_resizes_total{instance="a", kind="expand", outcome="completed"}': "0+1x60",
    'penstock_resizes_total{instance="a", kind="expand", outcome="abandoned"}': "0+0.1x60",
    'penstock_slurm_requests_refused_total{instance="a", reason="slurmctld"}': "0+1x60",
    'penstock_messages_total{instance="a", door="remote", outcome="refused"}': "0+1x60",
    'penstock_refused_requesters_total{instance="a", door="remote"}': "0x60",
    'penstock_audit_unwritable{instance="a"}': "0x60",
    'penstock_controller_errors_total{instance="a", part="Inbox"}': "0x60",
    'penstock_passes_total{instance="a", verdict="acted"}': "1+1x60",
    'penstock_passes_total{instance="a", verdict="failed"}': "0x60",
    'penstock_last_pass_timestamp_seconds{instance="a"}': "0+60x60",
    'penstock_slurm_request_duration_seconds_bucket{instance="a", command="squeue", le="0.1"}': "0+10x60",
    'penstock_slurm_request_duration_seconds_bucket{instance="a", command="squeue", le="30"}': "0+10x60",
    'penstock_slurm_request_duration_seconds_bucket{instance="a", command="squeue", le="+Inf"}': "0+10x60",
    'penstock_slurm_request_duration_seconds_bucket{instance="a", command="salloc", le="0.1"}': "0x60",
    'penstock_slurm_request_duration_seconds_bucket{instance="a", command="salloc", le="30"}': "0+10x60",
    'penstock_slurm_request_duration_seconds_bucket{instance="a", command="salloc", le="+Inf"}': "0+10x60",
}


@virtual
async def test_an_agent_that_waits_for_slurm_tells_that_it_has_no_picture_and_has_made_no_pass(tmp_path):
    world = World(tmp_path)
    # As `serve` has it while `start` is tried again and again.
    world.app = App(world.config, world.backend, world.clock, Store(world.file))
    seen = values(world)
    await world.app.close()
    assert seen["penstock_snapshot_usable"] == 0
    assert sum(value for name, value in seen.items() if name.startswith("penstock_passes_total")) == 0


# An agent that has started while slurmctld is away, and waits for it.
WAITING = {
    'penstock_last_pass_timestamp_seconds{instance="a"}': "0x60",
    'penstock_passes_total{instance="a", verdict="acted"}': "0x60",
    'penstock_snapshot_usable{instance="a"}': "0x60",
}
# One user who is refused as fast as that user can ask, for an hour, and whose looks would wait too long.
ONE_USER = {
    'penstock_messages_total{instance="a", door="remote", outcome="refused"}': "0+600x60",
    'penstock_refused_requesters_total{instance="a", door="remote"}': "0 1x14 2x14 3x14 4x14",
    'penstock_slurm_requests_refused_total{instance="a", reason="turns"}': "0+60x60",
}
TROUBLE = {
    "PenstockGone": {'up{job="penstock", instance="a"}': "1x30 0x30"},
    "PenstockStuck": {'penstock_last_pass_timestamp_seconds{instance="a"}': "0+60x40 2400x20"},
    "PenstockFaults": {'penstock_controller_errors_total{instance="a", part="Inbox"}': "0x50 1x10"},
    "PenstockBlind": {'penstock_snapshot_usable{instance="a"}': "1x30 0x30"},
    "PenstockSlurmFailing": {'penstock_slurm_requests_total{instance="a", outcome="unanswered"}': "0x10 0+5x50"},
    "PenstockSlurmSlow": {
        'penstock_slurm_request_duration_seconds_bucket{instance="a", command="squeue", le="0.1"}': "0+5x60"
    },
    "PenstockBudgetSpent": {'penstock_slurm_requests_refused_total{instance="a", reason="budget"}': "0+1x60"},
    "PenstockStateFailing": {'penstock_store_errors_total{instance="a"}': "0x50 0+1x10"},
    "PenstockResizesFailing": {
        'penstock_resizes_total{instance="a", kind="expand", outcome="completed"}': "0x60",
    },
    "PenstockPausedItself": {'penstock_automatic_pause{instance="a"}': "0x55 1x5"},
    "PenstockAuditFailing": {'penstock_audit_unwritable{instance="a"}': "0x50 1x10"},
    "PenstockRefusals": {
        'penstock_messages_total{instance="a", door="remote", outcome="refused"}': "0+5x60",
        'penstock_refused_requesters_total{instance="a", door="remote"}': "0x45 5x15",
    },
    "PenstockConfigRefused": {'penstock_config_last_reload_successful{instance="a"}': "1x50 0x10"},
}


def test_each_alert_fires_for_its_trouble_and_none_without(tmp_path):
    assert TROUBLE.keys() == alerts().keys()
    fires(tmp_path, [(None, {}), *TROUBLE.items(), ("PenstockBlind", WAITING)])


def test_one_user_who_is_refused_all_the_time_raises_no_alarm(tmp_path):
    fires(tmp_path, [(None, ONE_USER)])


def fires(tmp_path, told):
    """Each trouble, as what it changes of a steady agent's metrics, fires its alert and no other; None: no alert."""
    cases = []
    for trouble, change in told:
        series = STEADY | change
        expected = [
            {"eval_time": "60m", "alertname": name, "exp_alerts": []} for name in alerts() if name != trouble
        ]  # fmt: skip
        fired = {"eval_time": "60m", "expr": f'count(ALERTS{{alertname="{trouble}", alertstate="firing"}})',
                 "exp_samples": [{"labels": "{}", "value": 1}]}  # fmt: skip
        cases.append(
            {
                "name": trouble or "all is well",
                "interval": "1m",
                "input_series": [{"series": name, "values": value} for name, value in series.items()],
                "alert_rule_test": expected,
                "promql_expr_test": [fired] if trouble else [],
            }
        )
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases}))
    promtool("test", "rules", str(tests))
