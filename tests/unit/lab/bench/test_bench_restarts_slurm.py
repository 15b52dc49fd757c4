"""What is told of the pairs in which one agent is killed every minute."""

from __future__ import annotations

from dataclasses import replace

from penstock_lab.bench.restarts_slurm import RestartsWindow, Side, other_sizes, report

ALIVE = Side((0.0, 2.0, 10.0), (1.5,), 3, 12, ())
KILLED = Side((0.0, 3.0, 12.0), (1.5, 2.0), 3, 10, ())
WINDOW = RestartsWindow("real Slurm", 1, 0, 4.0, KILLED, ALIVE)


def test_a_window_is_read_as_it_was_told() -> None:
    assert RestartsWindow.read(WINDOW.told()) == WINDOW


def test_the_goal_is_one_interval_and_the_longest_start_beyond_the_other() -> None:
    *_, goal = report([WINDOW])
    assert goal.endswith("9 + 2 + 2.0 s: held")
    *_, goal = report([replace(WINDOW, killed=replace(KILLED, waits=(0.0, 3.0, 20.0)))])
    assert goal.endswith("MISSED")
    *_, wrong, goal = report([replace(WINDOW, alive=replace(ALIVE, wrong=("a rival never got its nodes",)))])
    assert "never got its nodes" in wrong and goal.endswith("MISSED")


def test_sizes_are_those_of_the_resizes_in_the_agents_state() -> None:
    assert other_sizes("a", [1, 4, 1], [(1, 4), (4, 1)]) == []
    assert len(other_sizes("a", [1, 4], [(1, 4), (4, 1)])) == 1
    assert len(other_sizes("a", [1, 8], [(1, 8)])) == 1
