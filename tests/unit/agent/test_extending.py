"""The extension points: the page that describes them, whose examples are run, and a checkout that nobody installed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from doc_pages import DOCS, blocks, outside_blocks

from penstock.api import Offer
from penstock.app import check
from penstock.config import config_of, load
from penstock.core.backends import make_backend
from penstock.core.events import Event
from penstock.core.extensions import BACKENDS, POINTS
from penstock.core.installed import extension_points
from penstock.resize.running.part import make_policy
from penstock.state.store import Store
from penstock.workflow.model import Stage, Workflow
from penstock_lab.agent_world import World, virtual
from penstock_lab.mock import control
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.testing import make_job, make_snapshot
from penstock_messages.extending import CHANNELS
from penstock_messages.messenger import Courier, Messenger
from penstock_planning.commands.select import select
from penstock_planning.extending import pricing_rules
from penstock_planning.plan.live import from_snapshot
from penstock_planning.plan.pricing import quote_all
from penstock_pool.machine import Machine
from penstock_pool.model import Capacity, PoolMember, PoolTask
from penstock_pool.placement import PLACEMENTS
from places import PROJECT

PAGE = DOCS / "extending.md"


@pytest.fixture
def mine(installed) -> dict[str, dict[str, str]]:
    """The page's package, installed as it stands there; its entry points by group."""
    found = list(blocks(PAGE))
    (project,) = (tomllib.loads(block.text)["project"] for block in found if block.language == "toml")
    files = {
        block.text.partition("\n")[0].removeprefix("# "): block.text for block in found if block.language == "python"
    }
    points: dict[str, dict[str, str]] = project["entry-points"]
    installed(points, {"mysite/__init__.py": "", **files})
    return points


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_has_every_extension_point_and_what_comes_with_penstock():
    text = outside_blocks(PAGE)
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| .* \| `([\w.]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    points = {point.noun: point for point in extension_points()}
    assert {noun for noun, *_ in rows} == points.keys()
    for noun, anchor, group, chosen, own in rows:
        point = points[noun]
        assert (anchor, group) == (point.noun, point.group)
        assert chosen == (point.chosen or point.key)
        assert re.findall(r"`([\w-]+)`", own) == [*point.own]
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [noun.capitalize() for noun, *_ in rows]


def test_the_page_has_an_example_of_each_which_is_found(mine):
    points = extension_points()
    assert {*mine} == {point.group for point in points}
    for point in points:
        (name,) = mine[point.group]
        assert point.names() == (*point.own, *sorted({name, *(n for n in point.found() if n not in point.own)}))
        assert point.load(name).__module__ == f"mysite.{point.noun}"


@pytest.mark.usefixtures("mine")
def test_the_pages_configuration_is_taken(tmp_path):
    (found,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    file = tmp_path / "penstock.yaml"
    file.write_text(found)
    config = load(file, {})
    check(config)
    chosen = (config.dmr.policy, config.workflows.strategy, config.pool.placement, config.provision.pricing)
    assert chosen == ("generous", "head-start", "in-order", "night")
    assert [*config.messages.channels] == ["journal"]


# -- its examples ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("mine")
def test_the_policy_grows_a_job_onto_idle_nodes_while_nobody_waits():
    policy, mine, offer = make_policy("generous"), make_job(1, "n1", "n2"), Offer(1, 2, 1, 8, factor=2)
    assert policy.decide(offer, mine, make_snapshot([mine])).size == 8
    assert policy.decide(offer, mine, make_snapshot([mine], down=["n3", "n4", "n5"])).size == 4
    assert policy.decide(offer, mine, make_snapshot([mine, make_job(2)])).size == 2


@pytest.mark.usefixtures("mine", "quick_and_quiet")
@virtual
async def test_the_strategy_submits_a_stage_a_quarter_of_an_hour_before_its_turn(tmp_path):
    world = World(tmp_path)
    await world.boot()
    stages = (Stage("a", 2, 6000.0, 3000.0, "sleep 3000"), Stage("b", 2, 600.0, 5.0, "sleep 5", ("a",)))
    number = await world.submit(Workflow("w", stages), "head-start")
    run = await world.finish(number, 10_000)
    first, second = run.stages
    assert run.phase == "completed"
    assert second.submitted == pytest.approx(first.start + 3000 - 900, abs=15)
    assert second.start >= first.end


@pytest.mark.usefixtures("mine")
def test_the_placement_fills_members_in_the_order_of_submission():
    machine = Machine(PLACEMENTS.make("in-order"))
    for name, cores in (("a", 2.0), ("b", 4.0)):
        machine.join(PoolMember(name, f"node-{name}", "1", Capacity(cores, None, 0), None), 0.0)
    machine.submit([PoolTask(argv=("true",), seconds=s) for s in (1.0, 50.0, 7.0, 90.0)], 0.0)
    assert [(start.id, start.address) for start in machine.place(0.0)] == [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert machine.faults == 0


@pytest.mark.usefixtures("mine")
def test_the_pricing_charges_half_at_night():
    snapshot = make_snapshot(at=12 * 3600.0)
    there = snapshot.partitions["batch"]
    prices = {}
    for name in ("paper", "night"):
        rules = pricing_rules(config_of({"provision": {"pricing": name}}))
        found = from_snapshot(snapshot, there, rules)
        (noon,) = quote_all(found.plan(), 2, 600.0, found.pricing, after=12 * 3600.0)
        (late,) = quote_all(found.plan(), 2, 600.0, found.pricing, after=21 * 3600.0)
        prices[name] = (noon.total, late.total)
    full = prices["paper"][0]
    assert full > 0 and prices == {"paper": (full, full), "night": (full, full / 2)}


@pytest.mark.usefixtures("mine")
def test_the_affinity_prefers_what_needs_least_energy(tmp_path):
    task, resources = tmp_path / "t.yaml", tmp_path / "r.yaml"
    task.write_text("name: md\nrequirements: [{type: compute, form: {isa: x86}, amount: 3e12}]\n")
    able = "capabilities: [{type: compute, form: {isa: x86}, rate: %s GHz}]"
    rates = {"quick": ("400", "3"), "frugal": ("100", "2"), "late": ("100", "2")}
    lines = [
        f"  - {{name: {name}, watts: {watts}, {able % rate}{', tq: 900' if name == 'late' else ''}}}"
        for name, (watts, rate) in rates.items()
    ]
    resources.write_text("resources:\n" + "\n".join(lines) + "\n")
    words = [str(task), "--resources", str(resources), "--json", "--metric", "greenest"]
    done = CliRunner().invoke(select, words, catch_exceptions=False)
    assert [row["resource"] for row in json.loads(done.stdout)["resources"]] == ["frugal", "late", "quick"]


@pytest.mark.usefixtures("mine")
def test_the_backend_counts_what_slurm_is_asked():
    folder = Path(tempfile.mkdtemp(prefix="pe-"))
    cluster = control.start(folder / "slurm", ClusterConfig(nodes=3))
    try:
        slurm = {"backend": "counted", "mock_socket": str(cluster.socket)}
        backend = make_backend(config_of({"slurm": slurm}))

        async def ask() -> None:
            assert len(await backend.nodes()) == 3 and not await backend.jobs()
            await backend.on((await backend.site()).cluster).nodes()
            await backend.close()

        asyncio.run(ask())
        assert type(backend).__name__ == "Counted" and backend.now() > 0
        assert backend.requests == {"nodes": 2, "jobs": 1, "site": 1, "close": 1}
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
    assert "counted" not in BACKENDS.own


@pytest.mark.usefixtures("mine", "quick_and_quiet")
def test_the_channel_writes_events_into_its_file(tmp_path):
    class Clock:
        def now(self) -> float:
            return 1000.0

    file = tmp_path / "events.jsonl"
    channels = {"journal": {"file": str(file), "kinds": ["paused"]}}
    config = config_of({"messages": {"channels": channels}})

    async def run() -> Messenger:
        messenger = Messenger(Store(tmp_path / "s.db"), Clock(), config, Courier())
        messenger.tell(Event("k", "paused", 1000.0, "paused", "x"))
        messenger.tell(Event("l", "stage-failed", 1000.0, "failed", "x"))
        await messenger.flush(30)
        return messenger

    assert asyncio.run(run()).outcomes == {("journal", "sent"): 1}
    assert [json.loads(line)["key"] for line in file.read_text().splitlines()] == ["k"]
    assert "journal" not in CHANNELS.own


# -- without an installation -------------------------------------------------------------------------------------------

_LOAD_ALL = """
import sys
from importlib.metadata import distributions, entry_points
from penstock.core.installed import extension_points
assert not [d.name for d in distributions() if d.name.startswith("penstock")]
for point in extension_points():
    assert not entry_points(group=point.group)
    for name in point.own:
        point.load(name)
    print(point.noun, *point.names())
"""


def test_a_checkout_on_the_path_has_all_that_comes_with_the_core(tmp_path):
    """No distribution of Penstock is installed there, only what it depends on; parts are not looked for on the path."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for folder in (Path(p) for p in sys.path if p.endswith("-packages")):
        for entry in folder.iterdir():
            ours = "penstock" in entry.name.lower() or entry.name == "dmr.py" or entry.suffix == ".pth"
            if not ours and not (libraries / entry.name).exists():
                (libraries / entry.name).symlink_to(entry)
    path = os.pathsep.join([*(str(PROJECT / name) for name in ("agent", "plugins", "dmr")), str(libraries)])
    done = subprocess.run(
        [sys.executable, "-S", "-c", _LOAD_ALL],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [" ".join([point.noun, *point.own]) for point in POINTS]
