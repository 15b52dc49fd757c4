"""Real processes move every kind of state between every kind of distribution; see dmr_moves.py for what is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

PROGRAM = str(Path(__file__).parent / "dmr_moves.py")
CASES = (
    "pairs",
    "small_limit",
    "rectangles",
    "csr_matrices",
    "objects",
    "orders",
    "gpu",
    "memory",
    "errors",
    "arrays_of_indices",
    "random_owners",
)
LONG = ("arrays_of_indices", "csr_matrices", "memory", "orders", "pairs", "random_owners")


def moves(mpirun, *cases: str, time_limit: float = 150.0) -> None:
    # Eight processes that wait by turning in circles would keep two cores from those that work.
    done = mpirun(8, PROGRAM, *cases, MPIR_CVAR_POLLS_BEFORE_YIELD="1", time_limit=time_limit)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(cases)


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.long] if c in LONG else []) for c in CASES])
def test_everything_arrives_where_it_belongs(mpirun, case: str) -> None:
    moves(mpirun, case)


@pytest.mark.long
def test_what_arrives_after_all_was_given_up_harms_nothing(mpirun, tmp_path: Path) -> None:
    """Old ranks that stay go on with other data: MPI may still write what was under way, but not into that."""
    done = mpirun(3, str(Path(PROGRAM).with_name("dmr_lost.py")), time_limit=60)
    # The first that ends without MPI_Finalize may take the others along; that is not looked at.
    changed = tmp_path / "changed"
    assert changed.exists() and changed.read_text() == "[0, 0, 0, 0]", done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_pair_of_distributions(mpirun) -> None:
    moves(mpirun, "all", time_limit=800)
