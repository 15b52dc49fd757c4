"""What PSI/J's executor makes of squeue's rows, with the real PSI/J."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from environments import environment
from places import PROJECT

PACKAGES = ("psij-python==0.9.11",)
READY = os.environ.get("PENSTOCK_TEST_PSIJ", "")
READER = """
import json, sys
from penstock.tools.psij import PenstockJobExecutor
reader = PenstockJobExecutor.__new__(PenstockJobExecutor)  # no front programs are made
for line in sys.stdin:
    found = reader.parse_status_output(0, json.loads(line))
    print(json.dumps({number: [one.state.name, one.message] for number, one in found.items()}), flush=True)
"""
HEAD = "JOBID               ST                  REASON              "
# job_state_string_compact of Slurm 22.05 to 26.05, and one that there is not.
STATES = [
    *("PD", "R", "S", "CD", "CA", "F", "TO", "NF", "PR", "BF", "DL", "OOM", "CG", "CF", "RS", "RQ", "RF", "RH", "SE"),
    *("ST", "RV", "SI", "SO", "RD", "LF", "PO", "EX", "XX"),
]

Reader = Callable[[str], dict[str, list[str | None]]]


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    """What it reads from what squeue prints, by job."""
    with environment("psij", PACKAGES, (), READY) as programs:
        begun = subprocess.Popen(
            [str(programs / "python"), "-c", READER],
            env={**os.environ, "PYTHONPATH": str(PROJECT / "agent")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert begun.stdin is not None and begun.stdout is not None

        def ask(out: str) -> dict[str, list[str | None]]:
            print(json.dumps(out), file=begun.stdin, flush=True)
            return dict(json.loads(begun.stdout.readline()))

        with begun:
            yield ask
            begun.stdin.close()


def row(number: str, state: str, reason: str) -> str:
    """As `squeue -O` writes it: columns of twenty."""
    return "".join(f"{word[:20]:<20}" for word in (number, state, reason))


def test_a_reason_of_several_words_hides_no_job(read):
    rows = [
        row("11", "PD", "(ReqNodeNotAvail, UnavailableNodes:n[1-3])"),
        row("12", "PD", "Nodes required for job are DOWN, DRAINED"),
        row("13", "R", "None"),
        row("14", "F", "NonZeroExitCode"),
        row("15", "OOM", "OutOfMemory"),
        row("16", "F", "RaisedSignal:9(Killed)"),
        row("17_3", "PO", "None"),
        row("18", "CD", ""),
    ]
    found = read("\n".join([HEAD, *rows, ""]))
    states = {number: state for number, (state, _said) in found.items()}
    assert states == {
        "11": "QUEUED",
        "12": "QUEUED",
        "13": "ACTIVE",
        "14": "FAILED",
        "15": "FAILED",
        "16": "FAILED",
        "17_3": "QUEUED",
        "18": "COMPLETED",
    }
    assert found["14"][1] == "The job terminated with a non-zero exit code."
    assert (found["15"][1], found["16"][1]) == ("OutOfMemory", "RaisedSignal:9(Kille")
    assert read(HEAD) == read("") == {}


REASONS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(1, 10**9), st.tuples(st.sampled_from(STATES), REASONS), max_size=6))
def test_each_row_is_a_job_whatever_its_reason(read, jobs):
    rows = [row(str(number), state, reason) for number, (state, reason) in jobs.items()]
    found = read("\n".join([HEAD, *rows, ""]))
    assert found.keys() == {str(number) for number in jobs}
    ended = {"F", "TO", "NF", "PR", "BF", "DL", "OOM"}
    assert {int(n) for n, (state, _) in found.items() if state == "FAILED"} == {
        n for n, j in jobs.items() if j[0] in ended
    }
