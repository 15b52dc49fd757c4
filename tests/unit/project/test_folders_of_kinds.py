"""`scripts/test.sh` leaves folders out where it looks for the tests of a marker: none of them may be there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def left_out(kind: str) -> list[Path]:
    """The folders that are not looked into for a kind of tests."""
    script = (ROOT / "scripts" / "test.sh").read_text()
    (words,) = re.findall(rf'run "{kind}" tests --ignore=tests/{{([^}}]*)}}', script)
    folders = [ROOT / "tests" / word for word in words.split(",")]
    assert all(folder.is_dir() for folder in folders)
    return folders


@pytest.mark.parametrize(("marker", "kind"), [("mpi", "MPI tests"), ("release", "other Slurm releases")])
def test_no_test_of_a_marker_is_where_nobody_looks_for_it(marker: str, kind: str) -> None:
    marked = [p for p in (ROOT / "tests").rglob("*.py") if f"pytest.mark.{marker}" in p.read_text()]
    assert len(marked) > 5
    assert [p for p in marked if any(p.is_relative_to(folder) for folder in left_out(kind))] == []
