"""Reservations and maintenance that stand in the way of a job that is to keep its nodes for longer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import Node, Reservation
from penstock.core.reserved import leaving, reserved
from penstock_lab.testing import make_job

DAY = 86400.0
JOB = make_job(1, "n1", "n2", start=0.0)
MAINTENANCE = Reservation("m", 1000.0, 2000.0, ("n2", "n3"), frozenset({"root"}), frozenset(), frozenset(), False)


def why(reservation, until, nodes=("n1", "n2"), job=JOB, now=0.0):
    found = reserved([reservation], job, nodes, until, now)
    return "" if found is None else found.code


@given(start=st.floats(0, 1e6), length=st.floats(1, 1e6), until=st.floats(0, 1e6), now=st.floats(0, 1e6))
def test_a_job_may_stay_until_the_reservation_begins_and_once_it_is_over(start, length, until, now):
    one = replace(MAINTENANCE, start=start, end=start + length)
    assert (why(one, until, now=now) == "reserved") is (start < until and now < start + length)


def test_only_reservations_of_its_own_nodes_count():
    assert why(MAINTENANCE, 1500.0, nodes=("n1",)) == ""
    assert why(replace(MAINTENANCE, nodes=()), 1500.0) == "", "of licences alone"


def test_the_reservation_that_it_runs_in_ends_for_it_unless_jobs_may_outlast_it():
    own = replace(JOB, reservation="m")
    assert why(MAINTENANCE, 2000.0, job=own) == ""
    assert why(MAINTENANCE, 2001.0, job=own) == "reservation-end"
    assert why(replace(MAINTENANCE, flags=frozenset({"FLEX"})), 2001.0, job=own) == ""


@pytest.mark.parametrize(
    ("flag", "every"), [("HOURLY", 3600.0), ("DAILY", DAY), ("WEEKDAY", DAY), ("WEEKEND", DAY), ("WEEKLY", 7 * DAY)]
)
def test_one_that_comes_again_stands_in_the_way_of_its_next_time(flag, every):
    again = replace(MAINTENANCE, flags=frozenset({flag}))
    assert why(again, 1000.0 + every, now=2000.0) == ""
    assert why(again, 1001.0 + every, now=2000.0) == "reserved"
    assert why(MAINTENANCE, 1e9, now=2000.0) == "", "one that does not"


@pytest.mark.parametrize("state", ["DRAINING", "ALLOCATED+DRAIN", "MIXED+REBOOT_REQUESTED", "MAINT", "DOWN"])
def test_a_node_that_is_to_be_taken_away_is_not_kept_for_longer(state):
    nodes = {"n1": Node("n1", "ALLOCATED", 4, True), "n2": Node("n2", state, 4, True)}
    found = leaving(nodes, ["n1", "n2"])
    assert found is not None and (found.code, state in found.text) == ("node-leaving", True)
    assert leaving(nodes, ["n1"]) is None


def test_a_node_that_cannot_be_looked_at_is_not_taken_for_free():
    found = leaving({}, ["n1"])
    assert found is not None and found.code == "limits-unknown"
