"""Whether a node is usable, by the words of Slurm's own library: what sinfo says of it is the reference.

Recorded with tests/fixtures/slurm/record_node_words.py.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import Node
from penstock.slurm.states import parse_node_state

RECORDED = Path(__file__).parents[3] / "fixtures/slurm"
LIBRARY = next(iter(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so")), None)

# From "NODE STATE CODES" of sinfo(1).
GIVES_JOBS_NODES = {"ALLOCATED", "ALLOCATED+", "BLOCKED", "COMPLETING", "IDLE", "MIXED", "MIXED-", "PLANNED"}
POWER = "~#!%"  # powered off, being powered up, pending power down, being powered down
MAY_SLEEP = {"ALLOCATED", "COMPLETING", "IDLE", "MIXED"}
# What sinfo leaves out beside another word: a reservation's node that runs a job, one without slurmd, and one whose
# performance counters are in use.
LEFT_OUT = {"RESERVED", "EXTERNAL", "PERFCTRS"}

NOT_THERE = {"UNKNOWN", "FUTURE"}  # of these sinfo leaves out the base beside COMPLETING


def lines():
    for file in sorted(RECORDED.glob("*/node_words.txt")):
        yield from (line.split() for line in file.read_text().splitlines())


def check(whole: str, long: str, short: str) -> None:
    asleep = long[-1] in POWER and long[:-1] in MAY_SLEEP
    base, *flags = whole.split("+")
    word_says = asleep or long in GIVES_JOBS_NODES
    usable = word_says and LEFT_OUT.isdisjoint(flags) and base not in NOT_THERE
    state = parse_node_state(whole)
    assert state.usable == usable, (whole, long)
    assert not asleep or Node("n1", str(state), 1, state.usable).asleep, (whole, long)
    assert str(parse_node_state("+".join(reversed(whole.split("+"))))) == str(state), "the order says nothing"
    assert state.base == base and state.flags == set(flags), whole
    for word in (long, short):
        if base not in NOT_THERE:
            assert parse_node_state(word.lower()).usable == word_says, (whole, word)


def test_every_recorded_state():
    count = 0
    for line in lines():
        if line[0].partition("+")[0] not in ("ERROR", "INVALID", "?"):
            check(*line)
            count += 1
    assert count > 2000


def test_every_word_is_known(caplog):
    for line in lines():
        for word in line:
            if "?" not in word and word != "INVALID":
                parse_node_state(word)
    assert not [r.getMessage() for r in caplog.records if "node state" in r.getMessage()]


@pytest.mark.skipif(LIBRARY is None, reason="no Slurm is installed")
@given(base=st.sampled_from([1, 2, 3, 5, 6]), flags=st.sets(st.integers(4, 31)))
def test_any_combination_of_the_installed_slurm(base, flags):
    library = ctypes.CDLL(str(LIBRARY))
    bits = base | sum(1 << flag for flag in flags)
    words = []
    for kind in ("_complete", "", "_compact"):
        call = getattr(library, f"slurm_node_state_string{kind}")
        call.argtypes, call.restype = [ctypes.c_uint32], ctypes.c_char_p
        words.append(call(bits).decode())
    if "?" not in words[0]:
        check(*words)


@pytest.mark.parametrize("text", ["IDLE+COMPLETING", "MIXED+COMPLETING", "IDLE+CLOUD+COMPLETING"])
def test_a_node_whose_epilog_runs_is_not_down(text):
    state = parse_node_state(text)
    assert state.usable and state.base == text.partition("+")[0] and "COMPLETING" in state.flags


@pytest.mark.parametrize(
    "text", ["IDLE+POWERED_DOWN", "IDLE+CLOUD+POWERED_DOWN", "IDLE+POWERING_DOWN", "IDLE+CLOUD+POWERING_UP", "idle~"]
)
def test_a_node_that_power_saving_has_suspended_is_not_down(text):
    assert parse_node_state(text).usable
