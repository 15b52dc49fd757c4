"""The places where Penstock can be extended: those of the core, and those of the parts that are installed."""

from __future__ import annotations

import re

import pytest

from penstock.app import check
from penstock.config import config_of
from penstock.core import installed
from penstock.core.extensions import POINTS, POLICIES, STRATEGIES, ExtensionPoint
from penstock.core.installed import extension_points, installed_parts
from penstock.core.parts import Part
from penstock.errors import ConfigError
from penstock.workflow.strategies.registry import strategy_named
from penstock_planning.broker.choice import Preference


def test_the_installed_parts_add_theirs_to_those_of_the_core():
    theirs = [point.noun for part in installed_parts() for point in part.extension_points()]
    assert theirs == ["channel", "placement", "pricing", "affinity"]
    assert [point.noun for point in extension_points()] == [*(point.noun for point in POINTS), *theirs]


def test_a_part_that_says_nothing_has_none(monkeypatch):
    monkeypatch.setattr(installed, "installed_parts", lambda: (Part,))
    assert extension_points() == POINTS


def test_no_two_are_of_one_kind():
    points = extension_points()
    assert len({point.noun for point in points}) == len({point.group for point in points}) == len(points)
    assert all(isinstance(point, ExtensionPoint) for point in points)


LACKING = """
class Lacking:
    name = "lacking"

    def __init__(self, *_):
        pass

    def descide(self, offer, job, snapshot):
        "A misspelt name."
"""
LACKS = "the {noun} 'lacking' lacks what it must have: {missing}"


@pytest.fixture
def lacking(installed):
    """An extension of each kind that has nothing of what is asked of it."""
    installed({point.group: {"lacking": "mine:Lacking"} for point in extension_points()}, {"mine.py": LACKING})
    strategy_named.cache_clear()


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize(
    ("settings", "noun", "missing"),
    [
        ({"dmr": {"policy": "lacking"}}, "policy", "`decide`, or `decide_all`"),
        ({"workflows": {"strategy": "lacking"}}, "strategy", "`ahead`, `due`, `plan`, `tie`"),
        ({"pool": {"placement": "lacking"}}, "placement", "`place`"),
        ({"provision": {"pricing": "lacking"}}, "pricing", "`penalty`, `shape`, `unit`, `weight`"),
        ({"slurm": {"backend": "lacking"}}, "backend", "`allocate`, "),
        ({"messages": {"channels": {"lacking": {}}}}, "channel", "`deliver`, `takes`"),
    ],
)
def test_one_that_lacks_a_method_is_a_wrong_configuration(settings, noun, missing):
    ((section, keys),) = settings.items()
    said = f"`{section}.{next(iter(keys))}`: {LACKS.format(noun=noun, missing=missing)}"
    with pytest.raises(ConfigError, match=re.escape(said)):
        check(config_of(settings))


@pytest.mark.usefixtures("lacking")
def test_an_affinity_that_lacks_its_method_is_refused_where_it_is_named():
    with pytest.raises(ConfigError, match=re.escape(LACKS.format(noun="affinity", missing="`metric`, `value`"))):
        Preference.named("lacking")


def test_each_point_says_what_is_asked_of_it_and_what_comes_with_penstock_has_it():
    assert all(point.protocols for point in extension_points())
    for name in POLICIES.own:
        assert POLICIES.make(name)
    for name in STRATEGIES.own:
        assert STRATEGIES.make(name)
