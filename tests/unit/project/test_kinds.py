"""`scripts/test.sh` looks for the tests of a marker in some folders only: no test may have one elsewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def folders(kind: str) -> list[Path]:
    """The folders that a kind of tests is looked for in."""
    script = (ROOT / "scripts" / "test.sh").read_text()
    (words,) = re.findall(rf'run "{kind}" ((?:(?!-m |--).)*)', script)
    found = []
    for word in words.split():
        head, brace, inner = word.partition("{")
        found += [ROOT / (head + each) for each in inner.rstrip("}").split(",")] if brace else [ROOT / word]
    assert all(folder.is_dir() for folder in found)
    return found


@pytest.mark.parametrize(("marker", "kind"), [("mpi", "MPI tests"), ("release", "other Slurm releases")])
def test_the_tests_of_a_marker_lie_where_they_are_looked_for(marker: str, kind: str) -> None:
    marked = [p for p in (ROOT / "tests").rglob("*.py") if f"pytest.mark.{marker}" in p.read_text()]
    marked = [p for p in marked if p not in (Path(__file__), ROOT / "tests" / "conftest.py")]
    assert len(marked) > 5
    assert [p for p in marked if not any(p.is_relative_to(folder) for folder in folders(kind))] == []
