"""The places where Penstock can be extended: those of the core, and those of the parts that are installed."""

from __future__ import annotations

from penstock.core import installed
from penstock.core.extensions import POINTS, ExtensionPoint
from penstock.core.installed import extension_points, installed_parts
from penstock.core.parts import Part


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
