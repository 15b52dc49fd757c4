"""The probe's own logic; what it finds is tested where MPI runs."""

from __future__ import annotations

import pytest

from dmr.probe import _essence, _parted


@pytest.mark.parametrize(
    ("arguments", "own", "others"),
    [
        ([], [], []),
        (["--json", "--limit", "5", "--oversubscribe"], ["--json", "--limit", "5"], ["--oversubscribe"]),
        (["--limit=5", "--", "--json"], ["--limit=5"], ["--json"]),
        (["--srun", "--mpi=pmi2", "--json"], [], ["--srun", "--mpi=pmi2", "--json"]),
        (["--limit"], ["--limit"], []),
    ],
)
def test_whose_arguments(arguments: list[str], own: list[str], others: list[str]) -> None:
    assert _parted(arguments) == (own, others)


@pytest.mark.parametrize(
    ("text", "essence"),
    [
        ("", ""),
        ("-----\n\n  indented\nThere are not enough slots\n-----\n", "There are not enough slots"),
        (
            'Traceback (most recent call last):\n  File "x"\n    call()\nmpi4py.MPI.Exception: no\n',
            "mpi4py.MPI.Exception: no",
        ),
        ("=====\n=   BAD TERMINATION\n", "BAD TERMINATION"),
    ],
)
def test_the_line_that_means_something(text: str, essence: str) -> None:
    assert _essence(text) == essence
