"""What the agent consists of: parts that are all treated alike, and the manual's own example of one."""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from penstock import app
from penstock.app import PARTS, App
from penstock.config import config_of
from penstock.core import installed, parts
from penstock.core.events import Event
from penstock.core.installed import installed_parts
from penstock.core.parts import Part, Site
from penstock.errors import ConfigError, NotPermitted
from penstock.host.distributions import beside, loaded
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.testing import make_job, make_snapshot


def made(settings=None):
    backend = virtual_cluster(start=1e9)
    one = App(config_of(settings or {}), backend, backend.clock, Store(":memory:"))
    asyncio.run(one.start())
    return one


def test_the_list_is_what_an_agent_has_each_with_a_name_of_its_own():
    one = made()
    assert tuple(type(part) for part in one.parts) == (*PARTS[:-1], *installed_parts(), PARTS[-1])
    assert all(part.name for part in one.parts)
    assert len({part.name for part in one.parts}) == len(one.parts)


def test_no_two_parts_answer_to_one_name():
    one = made()
    names = Counter(name for part in one.parts for name in part.operations())
    assert {name for name, count in names.items() if count > 1} == set()
    assert names.keys() < one.operations.keys()


def test_an_operation_that_is_anothers_is_refused(monkeypatch):
    taken = type("Taken", (Part,), {"name": "taken", "operations": lambda _self: {"submit": None}})
    monkeypatch.setattr(app, "installed_parts", lambda: (taken,))
    with pytest.raises(ConfigError, match="the part taken takes the operation 'submit', which is another's"):
        made()


def test_a_part_cannot_take_the_name_of_one_that_comes_with_penstock(monkeypatch):
    taken = type("Taken", (Part,), {"name": "workflows"})
    monkeypatch.setattr(installed, "installed_parts", lambda: (taken,))
    with pytest.raises(ConfigError, match="a part of Penstock itself is named 'workflows': take another name"):
        app.check(config_of({}))


def test_what_happens_is_told_to_every_part(monkeypatch):
    heard = []
    listener = type("Listener", (Part,), {"name": "listener", "told": lambda _self, event: heard.append(event)})
    monkeypatch.setattr(app, "installed_parts", lambda: (listener,))
    event = Event("stage-failed reserved f/a hold 1", "stage-failed", 1.0, "a has failed", "...", 1, "ann")
    made()._site.tell(event)
    assert heard == [event]


def test_what_parts_are_given_fits_on_a_screen():
    """Who needs more of the agent than this is no part of it."""
    assert len(fields(Site)) <= 12


def example():
    """The part that the manual shows, as it stands there."""
    text = inspect.getdoc(Part).partition("    class Queue(Part):")
    found = dict(vars(parts))
    exec(textwrap.dedent(text[1].strip(" ") and "class Queue(Part):" + text[2].replace("\n    ", "\n")), found)
    return found["Queue"]


def test_the_manuals_example_is_a_whole_part(monkeypatch):
    queue = example()
    monkeypatch.setattr(
        App, "_made", lambda _self, site, _predictions, _of=App._made: (*_of(_self, site, _predictions), queue(site))
    )
    one = made()
    one.observer._last = make_snapshot([make_job(7, uid=1), make_job(8, uid=1), make_job(9, "n1", uid=1)])
    assert asyncio.run(one.operations["waiting"](0, {})) == 2
    with pytest.raises(NotPermitted):
        asyncio.run(one.operations["waiting"](54321, {}))
    assert app.PARTS == PARTS


def test_a_wrong_configuration_is_refused_by_the_part_whose_it_is(monkeypatch):
    asked = []
    every = (*PARTS, *installed_parts())
    for kind in every:
        monkeypatch.setattr(kind, "check", staticmethod(lambda _config, _kind=kind: asked.append(_kind)))
    app.check(config_of({}))
    assert tuple(asked) == every


# How much of `Site` each part reads. Four is what a part should do with; these numbers may only get smaller.
READS = {
    "doors": 3,
    "fronts": 3,
    "malleable": 11,
    "messages": 3,
    "moldable": 8,
    "off": 6,
    "pools": 6,
    "slots": 5,
    "waits": 5,
    "workflows": 10,
}


def read_of_site(part: Part) -> set[str]:
    """The names that the modules of its folder read of a `Site`; commands have none."""
    given = {field.name for field in fields(Site)} | {"owner_of_job"}
    home = Path(inspect.getfile(type(part))).parent
    trees = [ast.parse(path.read_text()) for path in home.rglob("*.py") if "commands" not in path.parts]
    reads = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in reads if node.attr in given and ast.unparse(node.value) in ("site", "self._site")}


def test_what_each_part_reads_of_the_agent_gets_less():
    ours = {*PARTS, *(loaded(one.part) for one in beside() if one.own and one.part)}  # somebody's own may be installed
    found = {part.name: len(read_of_site(part)) for part in made().parts if type(part) in ours}
    assert found == READS, "read less of the agent, or lower the number"
