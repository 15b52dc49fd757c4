"""What is said of the end of a soak's MPI program, and its field without MPI."""

from __future__ import annotations

import numpy as np
import pytest

from penstock_lab.soak.solver import End, Risk, Solver, ended, lost_by, serial

ROWS, COLS, SWEEPS = 12, 8, 40


def solver(state: str, lost: str = "", sweeps: int = SWEEPS) -> Solver:
    return Solver("solver1", 7, (ROWS, COLS), sweeps, 0.0, 9.0, state, lost)


def test_the_bits_of_an_undisturbed_run_are_exact():
    field, _ = serial(ROWS, COLS, SWEEPS)
    assert ended(solver("COMPLETED"), field) == (End.EXACT, [])


@pytest.mark.parametrize("row", [0, ROWS - 1])
def test_one_bit_is_seen(row):
    field = serial(ROWS, COLS, SWEEPS)[0].copy()
    field[row, 3] = np.nextafter(field[row, 3], 1.0)
    end, wrong = ended(solver("COMPLETED"), field)
    assert end is End.WRONG and wrong == [f"solver1 (job 7) has wrong bits, in rows [{row}]"]


@pytest.mark.parametrize("found", [None, np.zeros((ROWS - 1, COLS))])
def test_a_result_that_is_missing_or_of_another_shape_is_wrong(found):
    assert ended(solver("COMPLETED"), found)[0] is End.WRONG


def test_a_program_whose_node_was_killed_may_end_but_not_with_wrong_bits():
    assert ended(solver("FAILED", "n3 was killed"), None) == (End.LOST, [])
    assert ended(solver("COMPLETED", "n3 was killed"), np.zeros((ROWS, COLS)))[0] is End.WRONG


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED"])
def test_a_program_that_ends_for_no_reason_is_wrong(state):
    end, wrong = ended(solver(state), None)
    assert end is End.WRONG and state in wrong[0]


def test_a_converged_field_proves_nothing():
    field, change = serial(ROWS, COLS, 2000)
    assert change < 1e-6
    assert ended(solver("COMPLETED", sweeps=2000), field)[0] is End.WRONG


def test_only_a_growth_taken_up_while_its_nodes_went_excuses_an_end():
    risks = [Risk("n3", 10.0, 12.0), Risk("n4", 30.0, 38.0)]
    assert lost_by(risks, [5.0, 11.0]) == "n3"
    assert lost_by(risks, [37.9]) == "n4"
    assert lost_by(risks, [5.0, 9.9, 12.1, 29.0, 38.1]) == ""
    assert lost_by([], [11.0]) == lost_by(risks, []) == ""
