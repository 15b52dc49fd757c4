"""The page that adds a part: its files are installed as they stand there, and do what it says."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from doc_pages import DOCS, blocks, outside_blocks

from penstock import __version__
from penstock.admin.doctor.slurm_reader import tried
from penstock.app import App, check
from penstock.cli import cli
from penstock.cli.table import _OWN
from penstock.config import config_of
from penstock.core.findings import Level, failed, fine, note, unknown
from penstock.core.installed import installed_parts
from penstock.core.parts import Part
from penstock.errors import NotPermitted
from penstock.host.distributions import beside
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.testing import make_job, make_snapshot

PAGE = DOCS / "parts.md"
NOBODY = 65534


@pytest.fixture
def part(tmp_path, monkeypatch) -> type[Part]:
    """The page's package as pip leaves it, beside nothing else."""
    found = {block.language: block.text for block in blocks(PAGE)}
    project = tomllib.loads(found["toml"])["project"]
    files = {block.text.partition("\n")[0].removeprefix("# "): block.text for block in blocks(PAGE)}
    info = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info/METADATA"
    assert project["dependencies"] == ["penstock==VERSION"]
    whole = {
        "longest/__init__.py": "",
        **{name: text for name, text in files.items() if name.startswith("longest/")},
        "penstock_parts/longest.json": found["json"],
        info: f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Requires-Dist: penstock=={__version__}\n",
    }
    for name, text in whole.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.syspath_prepend(str(tmp_path))
    for cached in (beside, installed_parts):
        cached.cache_clear()
    (kind,) = installed_parts()
    yield kind
    for cached in (beside, installed_parts):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "longest"]:
        del sys.modules[name]


def test_it_is_a_part_of_an_agent(part):
    check(config_of({}))
    backend = virtual_cluster(start=1e9)
    agent = App(config_of({}), backend, backend.clock, Store(":memory:"))
    asyncio.run(agent.start())
    waits = [make_job(7, eligible=900.0), make_job(8, eligible=600.0), make_job(9, "n1")]
    (watch,) = agent.part(part).controllers()
    assert asyncio.run(watch.reconcile(make_snapshot(waits, at=1000.0))) == []
    assert asyncio.run(agent.operations["longest"](0, {})) == {"job": 8, "seconds": 400.0}
    with pytest.raises(NotPermitted):
        asyncio.run(agent.operations["longest"](NOBODY, {}))
    asyncio.run(watch.reconcile(make_snapshot([])))
    assert asyncio.run(agent.operations["longest"](0, {})) is None


@pytest.mark.usefixtures("part")
def test_its_command_is_one_of_penstocks(monkeypatch):
    monkeypatch.setattr("penstock.ipc.client.ask_agent", lambda _config, op: {"job": 8, "seconds": 400.0, "op": op})
    runner = CliRunner()
    assert "longest" in runner.invoke(cli, ["--help"]).output
    assert runner.invoke(cli, ["longest", "--help"]).output.startswith("Usage: cli longest")
    assert runner.invoke(cli, ["longest"]).output == "job 8 has waited 400 s\n"


def test_doctor_makes_its_check(part, monkeypatch):
    def within(call):
        return tried(call)

    (found,) = part.checks(config_of({}), within)
    assert (found.check, found.level) == ("longest", Level.UNKNOWN) and "no agent answers" in found.seen
    monkeypatch.setattr(sys.modules[part.__module__], "ask_agent", lambda _config, _op: {"pid": 1})
    (found,) = part.checks(config_of({"agent": {"serve": "all"}}), within)
    assert (found.check, found.level) == ("longest", Level.OK)
    (found,) = part.checks(config_of({}), within)
    assert found.level is Level.NOTE


def test_what_it_remembers_outlives_the_years():
    (code,) = (block.text for block in blocks(PAGE) if block.language == "python" and "facts" in block.text)
    store, job = Store(":memory:"), make_job(7)
    this = SimpleNamespace(_site=SimpleNamespace(store=store))
    exec(code, {"self": this, "job": job})
    exec(code, {"self": this, "job": replace(job, id=8)})
    store.prune(1e12)
    assert store.facts.get("longest.told") == "8"


def test_it_names_the_headings_under_which_a_command_can_be_shown():
    text = " ".join(outside_blocks(PAGE).split())
    said = re.search(r"Penstock's headings are (.*?): another one", text)
    assert said and re.findall(r"`([^`]+)`", said[1]) == [*_OWN]


def test_it_says_what_a_newcomer_does_not_guess():
    text = " ".join(outside_blocks(PAGE).split())
    for said in ("`Verb.NOTHING`", "`next_wake`", "put the day into the subject", "does not begin with `PENSTOCK_`"):
        assert said in text
    for one in (fine, note, failed, unknown):
        assert f"`{one.__name__}`" in text


def test_the_file_says_what_the_page_says():
    (told,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    assert told["commands"]["longest"][2] == "Say which job has waited longest."
