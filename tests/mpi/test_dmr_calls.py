"""The calls of programs that move their data themselves, with real processes and a scripted agent."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi


def test_ranks_that_differ_are_named_on_every_rank(mpirun, tmp_path: Path, key: credential.Key) -> None:
    (tmp_path / "wrong.py").write_text(
        textwrap.dedent(
            """
            import pathlib
            import dmr
            from mpi4py import MPI
            comm = MPI.COMM_WORLD
            rank = comm.rank
            texts = []
            def attempt(call, *arguments):
                try:
                    call(comm, *arguments)
                except ValueError as error:
                    texts.append(str(error))
            attempt(dmr.dmr_check_status, 1, 8 - (rank == 2))
            attempt(dmr.dmr_check_status, 1, 8, 2, 4 if rank else None)
            attempt(dmr.dmr_check_status, "1" if rank == 1 else 1, 8)
            attempt(dmr.dmr_check_status, 5 if rank == 1 else 1, 4)
            attempt(dmr.dmr_icheck_status if rank == 1 else dmr.dmr_check_status, 1, 8)
            attempt(dmr.dmr_check_status, 1, 8)
            pathlib.Path(f"texts{rank}").write_text("\\n".join(texts))
            """
        )
    )
    with FakeAgent(key) as agent:
        done = mpirun(3, "wrong.py", agent=agent.address)
    assert done.returncode == 0, done.stderr
    texts = [(tmp_path / f"texts{rank}").read_text().splitlines() for rank in range(3)]
    assert (
        texts[0]
        == texts[1]
        == texts[2]
        == [
            "maximum must be the same on all ranks: it is 8 on rank 0 and 7 on rank 2",
            "preferred must be the same on all ranks: it is None on rank 0 and 4 on rank 1",
            "minimum must be the same on all ranks: it is 1 on rank 0 and '1' on rank 1",
            "minimum must be the same on all ranks: it is 1 on rank 0 and 5 on rank 1",
            "the function called must be the same on all ranks: it is 'dmr_check_status' on rank 0 and "
            "'dmr_icheck_status' on rank 1",
        ]
    )
    assert len(agent.of(wire.Check)) == 1  # the agent hears of the sound call alone


def test_tasks_that_cannot_be_handed_on(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """Every mistake is told to all ranks before anything is sent, and the right calls still can be made."""
    (tmp_path / "tasks.py").write_text(
        textwrap.dedent(
            """
            import pathlib, sys
            import numpy as np
            import dmr
            from mpi4py import MPI
            comm = MPI.COMM_WORLD

            def work(array, note):
                array += 1.0  # it can be written to
                pathlib.Path(f"work{comm.rank}").write_text(f"{array.tolist()} {note}")

            parent = dmr.inherited()
            if parent:
                try:
                    parent.receive()
                except RuntimeError as error:
                    assert "call run()" in str(error)
                sys.exit()

            handler = None
            while not handler:
                _, size, handler = dmr.dmr_check_status(comm, 1, 8)
            assert handler.size == size == 3
            assert handler.mapping.onto == ((0, 1) if comm.rank == 0 else (2,))
            """
        ).replace("    sys.exit()", "    parent.run()\n    sys.exit()")
        + textwrap.dedent(
            """
            def refused(text):
                try:
                    handler.finish()
                except ValueError as error:
                    assert text in str(error), error
                else:
                    raise SystemExit(f"took what should be refused: {text}")
            if comm.rank == 1:
                handler.offload(lambda: None, onto=0)
            refused("lambda")
            handler.offload(work, np.zeros(1), "", onto=comm.rank)
            refused("new rank 2 of 3 gets no call")
            handler.offload(work, np.zeros(1), "", onto=1)
            refused("new rank 1 gets two calls")
            handler.offload(work, np.zeros(1), "", onto=3)
            refused("rank 0 hands a call to rank 3 of 3 new ones")
            for target in handler.mapping.onto:
                handler.offload(work, np.arange(3.0) + target, {"from": comm.rank}, onto=target)
            handler.finish()
            """
        )
    )
    with FakeAgent(key, (3,), patience=1) as agent:
        done = mpirun(2, "tasks.py", agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 1
    texts = [(tmp_path / f"work{rank}").read_text() for rank in range(3)]
    assert texts == [f"{[1.0 + r, 2.0 + r, 3.0 + r]} {{'from': {int(r == 2)}}}" for r in range(3)]


def test_an_answer_that_comes_late_is_taken_then(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """Asked ahead: what came for older bounds is refused, and a stale answer changes nothing."""
    (tmp_path / "ahead.py").write_text(
        textwrap.dedent(
            """
            import pathlib, time
            import dmr
            from mpi4py import MPI
            comm = MPI.COMM_WORLD
            parent = dmr.inherited()
            if parent:
                _, values = parent.receive()
                pathlib.Path(f"end{comm.rank}").write_text(str(values["calls"]))
            else:
                longest, calls, handler = 0.0, 0, None
                while not handler:
                    began = time.monotonic()
                    _, _, handler = dmr.dmr_icheck_status(comm, 1, 8 if calls > 30 else 3)
                    longest = max(longest, time.monotonic() - began) if not handler else longest
                    calls += 1
                    time.sleep(0.01)
                handler.send(calls=calls)
                handler.finish()
            """
        )
    )
    with FakeAgent(key, (4,), patience=0) as agent:
        done = mpirun(2, "ahead.py", agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 1
    assert agent.of(wire.Refuse) and all("outside 1..3" in r.why for r in agent.of(wire.Refuse))
    assert len(agent.of(wire.Accept)) == 1
    assert {(tmp_path / f"end{rank}").read_text() for rank in range(4)} != {""}


MISTAKES = {
    "a block that does not fit": """
try:
    handler.send({"x": (np.zeros(comm.rank), dmr.Block())}, step=step)
except ValueError as error:
    assert "x: rank 0 of 2 passes a block of shape (0,)" in str(error), error
else:
    raise SystemExit("took a wrong block")
""",
    "a name for two": """
try:
    handler.send({"x": np.zeros(1)} if comm.rank else {}, x=1)
except ValueError as error:
    assert "x is the name of an array and of a value" in str(error), error
else:
    raise SystemExit("took a name for two")
""",
    "a wrong call": """
handler.offload(max, 1, 2, onto=0)
try:
    handler.finish()
except ValueError as error:
    assert "gets two calls" in str(error), error
else:
    raise SystemExit("took a wrong call")
""",
}


@pytest.mark.parametrize("launched", [True, False], ids=["launched", "spawned"])
@pytest.mark.parametrize(
    ("mistake", "finishes"), [*((mistake, True) for mistake in MISTAKES), (next(iter(MISTAKES)), False)]
)
@pytest.mark.few(3)
def test_who_has_sent_nothing_goes_on(
    mpirun, tmp_path: Path, key: credential.Key, mistake: str, finishes: bool, launched: bool
) -> None:
    """With all its data, whether it calls `finish` or not; nothing goes on from an empty state, and nobody waits."""
    finish = """
try:
    handler.finish()
except dmr.Lost:
    pass
else:
    raise SystemExit("let go of data that it had not sent")
"""
    program = (
        """
import numpy as np
import dmr
comm = dmr.world()
parent = dmr.inherited()
if parent:
    parent.receive()
    raise SystemExit("went on from nothing")
for step in range(6):
    _, _, handler = dmr.dmr_check_status(comm, 1, 8)
    if handler:
"""
        + textwrap.indent(MISTAKES[mistake] + (finish if finishes else ""), " " * 8)
        + """
print("end", comm.size, flush=True)
"""
    )
    (tmp_path / "nothing.py").write_text(program)

    def once(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Check) and agent.of(wire.Refuse):
            return wire.CheckReply(action="none", size=request.size, epoch=0)
        return None

    options = ["-hosts", "n1,n2", "-ppn", "1"] if launched else []
    with FakeAgent(key, (3,), patience=1, veto=once) as agent:
        done = mpirun(2, "nothing.py", agent=agent.address, launched=launched, options=options, time_limit=40)
    assert done.returncode == 0, done.stderr
    # The launcher may end the new mpiexec, which then has words of its own.
    assert done.stdout.count("end 2\n") == 2, done.stdout + done.stderr
    assert (agent.epoch, len(agent.of(wire.Refuse))) == (0, 1)
