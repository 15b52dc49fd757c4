"""Where all processes end and are started anew: what can go wrong with saving and loading, with real processes."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi

Run = Callable[..., tuple[subprocess.CompletedProcess[str], FakeAgent]]


@pytest.fixture
def restart(mpirun, tmp_path: Path, key: credential.Key) -> Run:
    """Runs a program of so many ranks, which the agent asks once to be of `size`; the program, and what was asked."""

    def run(ranks: int, size: int, text: str) -> tuple[subprocess.CompletedProcess[str], FakeAgent]:
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        nodes = ",".join(f"n{i + 1}" for i in range(ranks))

        def once(request: wire.Request) -> wire.Reply | None:
            if isinstance(request, wire.Check) and agent.of(wire.Refuse):
                return wire.CheckReply(action="none", size=request.size, epoch=0)
            return None

        with FakeAgent(key, (size,), patience=1, veto=once) as agent:
            done = mpirun(
                ranks,
                "program.py",
                agent=agent.address,
                launched=True,
                options=["-hosts", nodes, "-ppn", "1"],
                time_limit=60,
                DMR_METHOD="restart",
            )
        return done, agent

    return run


def refusals(agent: FakeAgent) -> Sequence[str]:
    return [refuse.why for refuse in agent.of(wire.Refuse)]


LOADING = {
    "dmr.App": """
        app = dmr.App(1, 8)
        block = np.arange(*dmr.block_bounds(10, app.comm.size, app.comm.rank), dtype=float)
        app.register("x", block, dmr.Block())
        for step in app.steps(6):
            app["x"] += 1
        if app.comm.rank == 0:
            print("finished", app.comm.size, app["x"][0])
        """,
    "calls": """
        comm, parent = dmr.world(), dmr.inherited()
        block = np.arange(*dmr.block_bounds(10, comm.size, comm.rank), dtype=float)
        x, step = block, 0
        if parent:
            arrays, values = parent.receive()
            x, step = arrays["x"], values["step"]
        while step < 6:
            x, step = x + 1, step + 1
            action, _, handler = dmr.dmr_check_status(comm, 1, 8)
            if action and step < 6:
                handler.send({"x": x}, step=step)
                handler.finish()
        if comm.rank == 0:
            print("finished", comm.size, x[0])
        """,
}


@pytest.mark.parametrize("program", LOADING)
def test_new_processes_without_memory_for_their_blocks(restart: Run, tmp_path: Path, program: str) -> None:
    """They end with an error, so that the launcher goes back; with 0 it would take the program for finished."""
    done, agent = restart(
        2,
        3,
        """
        import os
        import numpy as np
        import dmr
        from dmr import arrays

        class NoMemory:
            def __getattr__(self, name):
                return getattr(np, name)
            def empty(self, *args):
                raise MemoryError

        if os.environ.get("DMR_RESTARTED") and not os.environ.get("DMR_RESTART_FAILED"):
            arrays.np = NoMemory()
        """
        + LOADING[program],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["finished", "2", "6.0"], done.stderr
    assert done.stderr.count("x: there is no memory for the new block") == 1, done.stderr
    assert "ended with code 1" in refusals(agent)[0]
    assert not list(tmp_path.glob(".dmr-checkpoint*"))


UNEQUAL = """
import os
import numpy as np
import dmr

def cut(n, size):
    # Rank 0 holds all but one for each other rank.
    first = n - (size - 1)
    return [range(first)] + [[first + i] for i in range(size - 1)]
"""
CUT = {
    "dmr.App": """
        app = dmr.App(1, 8)
        comm, mine = app.comm, cut(10, app.comm.size)[app.comm.rank]
        app.register("x", lambda: np.array(mine, dtype=float), dmr.Explicit(mine, cut))
        for step in app.steps(6):
            assert app["x"].tolist() == list(mine), (comm.size, comm.rank, app["x"])
        """,
    "calls": """
        comm, parent = dmr.world(), dmr.inherited()
        mine = cut(10, comm.size)[comm.rank]
        x, step = np.array(mine, dtype=float), 0
        if parent:
            arrays, values = parent.receive()
            x, step = arrays["x"], values["step"]
        for step in range(step + 1, 6):
            assert x.tolist() == list(mine), (comm.size, comm.rank, x)
            action, _, handler = dmr.dmr_check_status(comm, 1, 8)
            if action:
                handler.send({"x": (x, dmr.Explicit(mine, cut))}, step=step)
                handler.finish()
        """,
}


@pytest.mark.parametrize("program", CUT)
@pytest.mark.parametrize(("ranks", "size"), [(2, 3), (3, 2)], ids=["growing", "shrinking"])
@pytest.mark.parametrize("fails", [False, True], ids=["and going on", "and going back"])
@pytest.mark.few(3)
def test_index_sets_are_cut_as_the_program_says(restart: Run, program: str, ranks: int, size: int, fails: bool) -> None:
    """Its function is asked for them by the old ranks, since it cannot be saved."""
    fail = "if os.environ.get('DMR_RESTARTED') and not os.environ.get('DMR_RESTART_FAILED'): os._exit(3)\n"
    done, agent = restart(
        ranks,
        size,
        UNEQUAL + (fail if fails else "") + textwrap.dedent(CUT[program]) + "print('finished', comm.size, flush=True)",
    )
    assert done.returncode == 0, done.stderr
    last = ranks if fails else size
    assert done.stdout.splitlines() == [f"finished {last}"] * last
    assert (agent.epoch, len(refusals(agent))) == (0, 1) if fails else (1, 0)


UNSAVED = {
    "a function": ("'f', {'f': lambda: None}", "f: does not pickle: "),
    "on one rank": ("'jobs', [1, (lambda: None) if app.comm.rank == 1 else 2], dmr.Block()", "jobs: does not pickle: "),
    "of its own error": ("'it', Refusing(), dmr.Replicated()", "it: does not pickle: NotImplementedError: not me"),
}


@pytest.mark.parametrize("case", UNSAVED)
def test_what_cannot_be_saved_stays(restart: Run, tmp_path: Path, case: str) -> None:
    """On all ranks, whichever has it; the agent hears which value it is."""
    registered, why = UNSAVED[case]
    done, agent = restart(
        2,
        3,
        f"""
        import dmr
        class Refusing:
            def __reduce__(self):
                raise NotImplementedError("not me")
        app = dmr.App(1, 8)
        app.register({registered})
        for step in app.steps(5):
            pass
        print("size", app.comm.size, flush=True)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["size 2"] * 2
    assert [text.startswith(why) for text in refusals(agent)] == [True], refusals(agent)
    assert [(c.minimum, c.maximum) for c in agent.of(wire.Check)] == [(1, 8)] * 2 + [(2, 2)] * 2
    assert not list(tmp_path.glob(".dmr-checkpoint*"))
