"""Real processes: records that belong to ranks by what is in them, and ownership that changes while a program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi

PROGRAM = str(Path(__file__).parent / "dmr_owners.py")
CASES = [(case, 8) for case in ("from_and_to_other_kinds", "memory_of_owners", "wrong_owners")]
CASES += [("while_running", ranks) for ranks in (1, 3)]
LONG = [("to_owners", 8), ("while_running", 8)]


@pytest.mark.parametrize(("case", "ranks"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG)])
@pytest.mark.few(3)
def test_records_and_changes_of_ownership(mpirun, case: str, ranks: int) -> None:
    done = mpirun(ranks, PROGRAM, case, MPIR_CVAR_POLLS_BEFORE_YIELD="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{case}: good"]


PARTICLES = """
import numpy as np
import dmr

N = 40
def owner(cells, size):
    return cells % size

app = dmr.App(1, 8, method=None)
size, rank = app.comm.size, app.comm.rank
first = np.zeros(len(range(N)[rank::size]), [("cell", "i8"), ("number", "i8")])
first["number"] = first["cell"] = range(N)[rank::size]
app.register("particles", first, dmr.Keyed(owner, "cell"))
app.register("rows", np.array_split(np.arange(10.0), size)[rank], dmr.Block())
for step in app.steps(16):
    size, rank = app.comm.size, app.comm.rank
    here = app["particles"]
    assert (here["cell"] % size == rank).all(), ("step", step, here["cell"].tolist(), rank, size)
    assert (here["cell"] == here["number"] + step * 3).all()
    assert sorted(sum(app.comm.allgather(here["number"].tolist()), [])) == list(range(N))
    here["cell"] += 3
    app.redistribute("particles")
    if step == 1:
        app.redistribute("rows", dmr.Cyclic())
    dealt = np.array_split(np.arange(10.0), size)[rank] if step < 1 else np.arange(10.0)[rank::size]
    assert app["rows"].tolist() == dealt.tolist(), ("rows", step, app["rows"], rank, size)
print("finished", app.comm.size, flush=True)
"""


@pytest.mark.parametrize("method", ["replace", "merge", pytest.param("restart", marks=pytest.mark.long)])
def test_resizes_keep_to_what_was_said_last(mpirun, tmp_path: Path, key: credential.Key, method: str) -> None:
    """Also new processes, which registered something else, and where records arrive without their owner's function."""
    (tmp_path / "program.py").write_text(PARTICLES.replace("method=None", f"method={method!r}"))
    with FakeAgent(key, (4, 3), patience=3) as agent:
        done = mpirun(
            2, "program.py", agent=agent.address, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"],
            DMR_METHOD=method,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["finished 3"] * 3 and agent.epoch == 2
    assert not agent.of(wire.Refuse)
