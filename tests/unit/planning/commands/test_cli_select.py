"""`penstock select` on simulated clusters: every byte that it prints, and what it submits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from bag_world import BagWorld
from click.testing import CliRunner

from penstock.config import config_of
from penstock.errors import PenstockError
from penstock.host import logs
from penstock_planning.commands import market
from penstock_planning.commands import select as module

PRINTED = Path(__file__).with_name("select-printed.txt")
"""What each of CASES prints: standard output, then standard error and the error behind `!`. Of a line that ends in
blanks a bar shows the end."""

SITE = """
defaults: {base: 1 GHz, charge: 0.5}
partitions:
  near/main: {base: 2 GHz, capabilities: [{type: gpu, capacity: 1}]}
  far/main: {preempted: 0.5}
clusters:
  far: {bandwidth: 100 MB/s, latency: 2s}
"""
MD = """
name: md
run: "#MOCK duration=500"
time: 20m
input: 1 GB
requirements: [{type: compute, amount: 1e12}]
"""
TWO = """
tasks:
- {name: short, count: 3, run: "#MOCK duration=50", qos: "normal,long", requirements: [{type: compute, amount: 1e11}]}
- {name: wide, nodes: 2, cores: 2, requirements: [{type: compute, amount: 4e11}], run: "#MOCK duration=200"}
"""
NOWHERE = """
tasks:
- {name: odd, requirements: [{type: compute, form: {isa: z80}, amount: 1e9}]}
- {name: vast, nodes: 9, cores: 9, requirements: [{type: compute, amount: 1e9}]}
- {name: fine, requirements: [{type: compute, amount: 1e9}]}
"""
RESOURCES = """
resources:
  - {name: B, correction: 1.5, capabilities: [{type: compute, rate: 1 GHz}, {type: memory, capacity: 8 GB}]}
  - {name: A, tq: {50: 10, 95: 1h}, charge: 2, capabilities: [{type: compute, rate: 3 GHz}]}
"""
FILED = """
tasks:
- {name: one, requirements: [{type: compute, amount: 9e12}, {type: memory, hold: 4 GB}]}
- {name: four, parallel: {cores: 4, serial: 0.05}, requirements: [{type: compute, amount: 9e12}]}
"""
CASES = (
    "md.yaml",
    "md.yaml -n 12 --explain",
    "md.yaml -n 12 --json --quantile 0.9",
    "md.yaml -n 4 --metric cost --best -M near,far --clock max",
    "md.yaml -n 12 --submit",
    "md.yaml -n 3 --submit --json --best",
    "md.yaml --metric energy --submit",
    "md.yaml -M nowhere",
    "md.yaml --resources machines.yaml --submit",
    "two.yaml --submit --explain --site-file site.yaml",
    "two.yaml --submit --json -M near",
    "two.yaml -n 3",
    "nowhere.yaml",
    "nowhere.yaml --json",
    "nowhere.yaml --submit",
    "filed.yaml --resources machines.yaml --explain",
    "filed.yaml --resources machines.yaml --json",
    "filed.yaml --resources machines.yaml --metric energy",
    "nowhere.yaml --resources machines.yaml",
)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Two jobs of others run in `near`, one waits there; the command is called from the folder of its files."""
    logs.configure("error", "text")
    made = BagWorld(tmp_path / "state")
    made.block("near", 900.0, 1800.0, 3)
    made.block("near", 600.0, 1200.0, 4)
    texts = {"site": SITE, "md": MD, "two": TWO, "nowhere": NOWHERE, "machines": RESOURCES, "filed": FILED}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)

    @asynccontextmanager
    async def acting(config, backend):
        yield SimpleNamespace(slurm=backend, executor=made.executor)

    told = {"agent": {"state_dir": tmp_path / "state"}, "select": {"site": tmp_path / "site.yaml"}}
    monkeypatch.setattr(market, "make_backend", lambda config: made.backend)
    monkeypatch.setattr(market, "acting", acting)
    monkeypatch.setattr(module, "load", lambda: config_of(told))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


def printed(case):
    done = CliRunner().invoke(module.select, case.split())
    said = done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, PenstockError), done.exc_info
        said += f"{type(done.exception).__name__}: {done.exception}\n"
    text = done.stdout + "".join(f"! {line}\n" for line in said.splitlines())
    return text.replace(" \n", " |\n")


def expected():
    parts = PRINTED.read_text().split("$ penstock select ")[1:]
    return dict(part.split("\n", 1) for part in parts)


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed(world, case):
    assert printed(case) == expected()[case]


def test_what_is_submitted_bears_where_it_came_from(world, tmp_path):
    printed("md.yaml -n 12 --submit --quantile 0.9 -M near,far --clock max --site-file site.yaml")
    run = world.bags.load(1)
    assert run.settings == {
        "quantile": 0.9,
        "site": str(tmp_path / "site.yaml"),
        "clock": "max",
        "clusters": ["near", "far"],
        "alone": None,
    }
    assert run.bag.options["workdir"] == str(tmp_path) and run.created == world.backend.now()
    printed("md.yaml -n 2 --submit --metric cost")
    assert world.bags.load(2).settings["alone"] == "cost", "only the time to completion is spread"
