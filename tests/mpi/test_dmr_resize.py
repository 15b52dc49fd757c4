"""Real processes, a scripted agent: the solver's result must not depend on how often and how it is resized."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi

ROWS, COLS, SWEEPS = 37, 23, 60
JACOBI = ("-m", "dmr.examples.jacobi")
OPTIONS = (
    f"--rows={ROWS} --cols={COLS} --sweeps={SWEEPS} --check-every=2 --max=8 --factor=1 --report=report.jsonl"
).split()


def serial() -> tuple[np.ndarray, float]:
    """The same iteration on one array, written down independently of the example."""
    field = np.zeros((ROWS + 2, COLS))
    field[0] = 1.0
    # Not flat anywhere: with a start from zeros, lost rows came back as what they were and went unnoticed.
    for i in range(ROWS):
        for j in range(1, COLS - 1):
            field[i + 1, j] = (i * i + 37 * i + 11 * j) % 1009 / 1009
    change = 0.0
    for _ in range(SWEEPS):
        new = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
        change = float(np.abs(new - field[1:-1, 1:-1]).max())
        field[1:-1, 1:-1] = new
    return field[1:-1], change


def same(result: Path) -> bool:
    """Bit for bit, and on a field that still moves: at rest it would forgive lost sweeps."""
    expected, change = serial()
    assert change > 1e-3
    return np.load(result).tobytes() == expected.tobytes()


def events(folder: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    return [(line["event"], line["size"]) for line in lines]


def wrapper(folder: Path, text: str) -> tuple[str, str]:
    """A program that breaks something on purpose and then runs the solver. New ranks start as the wrapper too."""
    (folder / "wrapper.py").write_text(
        textwrap.dedent(text) + "\nfrom dmr.examples.jacobi import main\nif __name__ == '__main__':\n    main()\n"
    )
    return ("wrapper.py",)


@pytest.mark.parametrize("ranks", [1, 3])
def test_fixed_size(mpirun, tmp_path: Path, ranks: int) -> None:
    done = mpirun(ranks, *JACOBI, *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert "dmr" not in done.stderr.lower() and "resized" not in done.stderr
    assert same(tmp_path / "result.npy")


@pytest.mark.parametrize(
    ("start", "sizes", "per_node"),
    [
        pytest.param(2, (4, 2), 1, marks=pytest.mark.long),
        pytest.param(2, (3, 5, 2), 1, marks=pytest.mark.long),
        pytest.param(1, (4, 1), 1, marks=pytest.mark.long),
        (2, (4, 2, 4, 2), 1),  # the same names again and again: nodes that were given back a moment ago
        pytest.param(2, (6, 4), 2, marks=pytest.mark.long),
    ],
)
def test_resizes(
    mpirun, tmp_path: Path, key: credential.Key, start: int, sizes: tuple[int, ...], per_node: int
) -> None:
    with FakeAgent(key, sizes, per_node) as agent:
        done = mpirun(start, *JACOBI, *OPTIONS, agent=agent.address, DMR_RANKS_PER_NODE=str(per_node))
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.npy")
    assert agent.epoch == len(sizes)
    assert [s for event, s in events(tmp_path) if event == "resized"] == list(sizes)
    assert [r.epoch for r in agent.of(wire.Accept)] == list(range(1, len(sizes) + 1))
    for finished in agent.of(wire.Finished):
        assert set(finished.timings) == {"spawn", "move"}
        assert 0 < finished.timings["spawn"] < 30
    # After a resize the application knows its nodes from the agent, in order.
    last = agent.of(wire.Check)[-1]
    assert last.nodes == tuple(f"n{i + 1}" for i in range(sizes[-1] // per_node))
    assert (last.size, last.per_node, last.epoch) == (sizes[-1], per_node, len(sizes))


@pytest.mark.long
def test_new_ranks_are_placed_on_the_nodes_in_order(mpirun, tmp_path: Path, key: credential.Key) -> None:
    program = wrapper(
        tmp_path,
        """
        import os, pathlib, dmr
        from mpi4py import MPI
        if MPI.Comm.Get_parent() != MPI.COMM_NULL:
            name = f"rank{MPI.COMM_WORLD.rank}"
            pathlib.Path(name).write_text(os.environ["PMI_HOSTNAME"])
        """,
    )
    with FakeAgent(key, [6], per_node=2) as agent:
        done = mpirun(2, *program, *OPTIONS, agent=agent.address, DMR_RANKS_PER_NODE="2")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"rank{i}").read_text() for i in range(6)] == ["n1", "n1", "n2", "n2", "n3", "n3"]


@pytest.mark.parametrize("lose", [False, True])
def test_a_lost_block_is_noticed(mpirun, tmp_path: Path, key: credential.Key, lose: bool) -> None:
    """The comparison itself under test: one rank's rows are not moved, and `same` must say so (and only then)."""
    program = wrapper(
        tmp_path,
        """
        import os
        from dmr import arrays
        honest = arrays.ways
        def lossy(route, item):
            gives, gets = honest(route, item)
            # Old rank 1 of 2 and new rank 3 of 4 agree not to exchange their rows; new rank 3 gets none.
            if route.old_rank == 1 and os.environ["LOSE"]:
                del gives[route.new[3]]
            if route.new_rank == 3 and os.environ["LOSE"]:
                del gets[route.old[1]]
            return gives, gets
        arrays.ways = lossy
        from dmr import handover
        receive = handover.Arrival.receive
        def zeroed(self):
            found, values = receive(self)
            if os.environ["LOSE"] and self._transition.bridge.new_rank == 3:
                found["field"][...] = 0
            return found, values
        handover.Arrival.receive = zeroed
        """,
    )
    with FakeAgent(key, [4]) as agent:
        done = mpirun(2, *program, *OPTIONS, agent=agent.address, LOSE="yes" if lose else "")
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 1
    assert same(tmp_path / "result.npy") == (not lose)


def test_spawn_failure_goes_on_with_the_old_size(mpirun, tmp_path: Path, key: credential.Key) -> None:
    program = wrapper(
        tmp_path,
        """
        from mpi4py import MPI
        class Broken(MPI.Intracomm):
            def Spawn(self, *args, **kwargs):
                raise MPI.Exception(MPI.ERR_SPAWN)
        import dmr
        dmr.world = lambda: Broken(MPI.COMM_WORLD)
        """,
    )
    with FakeAgent(key, [4]) as agent:
        done = mpirun(2, *program, *OPTIONS, agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.npy")
    assert events(tmp_path) == [("start", 2), ("end", 2)]
    refusals = agent.of(wire.Refuse)
    assert refusals and refusals[0].epoch == 1 and "MPI_Comm_spawn" in refusals[0].why
    assert "going on as is" in done.stderr


def test_a_program_that_is_gone_is_not_started_again(mpirun, tmp_path: Path, key: credential.Key) -> None:
    program = wrapper(tmp_path, "import pathlib; pathlib.Path('wrapper.py').rename('moved.py')")
    with FakeAgent(key, [4]) as agent:
        done = mpirun(1, *program, *OPTIONS, agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.npy")
    assert not agent.of(wire.Accept)
    assert "is gone" in agent.of(wire.Refuse)[0].why


def test_more_nodes_than_mpi_can_be_told_of(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """16 names of 63 characters are 1,023 with their commas: the most; with one character more the info is refused."""

    def veto(request: wire.Request) -> wire.Reply | None:
        if not isinstance(request, wire.Check):
            return None
        nodes = tuple(f"n{i:02}{'x' * 60}" for i in range(16))
        return wire.CheckReply(action="expand", size=16, epoch=1, nodes=(f"{nodes[0]}x", *nodes[1:]))

    with FakeAgent(key, veto=veto) as agent:
        done = mpirun(2, *JACOBI, *OPTIONS, "--max=16", agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.npy") and events(tmp_path) == [("start", 2), ("end", 2)]
    assert not agent.of(wire.Accept)
    why = "the list of new nodes has 1024 characters, and MPI_Comm_spawn takes less than 1024"
    assert {refusal.why for refusal in agent.of(wire.Refuse)} == {why}


@pytest.mark.parametrize("late", ["check", "accept", "done"])
def test_the_agent_dies(mpirun, tmp_path: Path, key: credential.Key, late: str) -> None:
    """At its third check, instead of answering accept, or instead of hearing done: the application finishes."""

    def veto(request: wire.Request) -> wire.Reply | None:
        if request.op == late and (late != "check" or agent.checks >= 2):
            agent.die()
            raise ConnectionError
        return None

    with FakeAgent(key, [4], veto=veto) as agent:
        done = mpirun(2, *JACOBI, *OPTIONS, agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.npy")
    assert done.stderr.count("no answer from the agent") == 1
    assert events(tmp_path)[-1] == ("end", 4 if late == "done" else 2)


def test_stale_epoch_stops_the_resize(mpirun, tmp_path: Path, key: credential.Key) -> None:
    def veto(request: wire.Request) -> wire.Reply | None:
        return wire.Failure(error="stale-epoch", message="too late") if isinstance(request, wire.Accept) else None

    with FakeAgent(key, [4], veto=veto) as agent:
        done = mpirun(2, *JACOBI, *OPTIONS, agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert agent.of(wire.Accept) and not agent.of(wire.Refuse)
    assert events(tmp_path) == [("start", 2), ("end", 2)]
    assert same(tmp_path / "result.npy")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"action": "expand", "size": 9, "epoch": 1}, "outside"),
        ({"action": "shrink", "size": 4, "epoch": 1}, "shrink from 2 to 4"),
        ({"action": "expand", "size": 4, "epoch": 0}, "already finished"),
        ({"action": "expand", "size": 3, "epoch": 1}, "not reachable"),
    ],
)
def test_absurd_answers_are_not_followed(mpirun, tmp_path: Path, key: credential.Key, answer: dict, why: str) -> None:
    def veto(request: wire.Request) -> wire.Reply | None:
        if not isinstance(request, wire.Check):
            return None
        return wire.CheckReply(**answer, nodes=tuple(f"n{i}" for i in range(answer["size"])))

    with FakeAgent(key, veto=veto) as agent:
        done = mpirun(2, *JACOBI, *OPTIONS, "--factor=2", agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert why in done.stderr
    assert not agent.of(wire.Accept)
    assert len(agent.of(wire.Refuse)) == (0 if answer["epoch"] == 0 else len(agent.of(wire.Check)))


@pytest.mark.parametrize(
    ("inhibitor", "checks"),
    [
        ({"DMR_INHIBITOR_STEPS": "10"}, 3),
        # The second call has a step time; but a few quick steps must not silence it for long: 15 calls are ignored.
        ({"DMR_INHIBITOR_SECONDS": "1000"}, 3),
    ],
)
def test_the_inhibitor_spaces_the_checks(
    mpirun, tmp_path: Path, key: credential.Key, inhibitor: dict[str, str], checks: int
) -> None:
    with FakeAgent(key) as agent:
        done = mpirun(2, *JACOBI, *OPTIONS, agent=agent.address, **inhibitor)
    assert done.returncode == 0, done.stderr
    assert len(agent.requests) == checks  # of 29 calls


def test_wrong_arguments_are_told_to_every_rank(mpirun, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        textwrap.dedent(
            """
            import pathlib
            import dmr
            from mpi4py import MPI
            comm = MPI.COMM_WORLD
            texts = []
            for arguments in [(4, 2), (0, 2), (1, 2, 0), (1, 4, 2, 8), (1.5, 2)]:
                try:
                    dmr.dmr_check_status(comm, *arguments)
                except ValueError as error:
                    texts.append(str(error))
            pathlib.Path(f"texts{comm.rank}").write_text("\\n".join(texts))
            assert not dmr.dmr_check_status(comm, 1, 4).action
            """
        )
    )
    done = mpirun(2, "wrong.py")
    assert done.returncode == 0, done.stderr
    texts = (tmp_path / "texts0").read_text().splitlines()
    assert texts == (tmp_path / "texts1").read_text().splitlines()
    assert texts[0] == "minimum 4 is above maximum 2"
    assert texts[1].startswith("minimum must be") and texts[2].startswith("factor must be")
    assert texts[3] == "preferred 8 is outside 1..4"
    assert texts[4].startswith("minimum must be")


def test_every_kind_of_array_arrives(mpirun, tmp_path: Path, key: credential.Key) -> None:
    (tmp_path / "arrays.py").write_text(
        textwrap.dedent(
            """
            import numpy as np, pathlib
            import dmr
            from mpi4py import MPI
            comm = MPI.COMM_WORLD
            def whole():
                n = 11
                return {
                    "float": np.arange(n * 6.0).reshape(n, 2, 3),
                    "half": np.arange(n, dtype="f2"),
                    "big": np.arange(n, dtype=">i8"),
                    "when": np.arange(n).astype("M8[s]"),
                    "text": np.array([f"row {i}" for i in range(n)]),
                    "record": np.array([(i, i / 7) for i in range(n)], dtype=[("a", "i4"), ("b", "f8")]),
                    "bool": np.arange(n) % 3 == 0,
                    "few": np.arange(2.0),
                    "none": np.zeros((0, 4)),
                    "flat": np.zeros((n, 0)),
                    "fortran": np.asfortranarray(np.arange(n * 4.0).reshape(n, 4)),
                }
            def block(a):
                start, stop = dmr.block_bounds(len(a), comm.size, comm.rank)
                return a[start:stop]
            parent = dmr.inherited()
            if parent is None:
                handler = None
                while not handler:
                    _, _, handler = dmr.dmr_check_status(comm, 1, 8)
                halo, objects, ragged = np.zeros((5 + comm.rank, 1)), np.zeros(4, object), np.zeros((4, comm.rank))
                for wrong in [halo, objects, ragged, np.float64(1)]:
                    try:
                        dmr.redistribute.check(comm, {"wrong": (wrong, dmr.Block())}, 5)
                    except ValueError as error:
                        assert "wrong: " in str(error)
                    else:
                        raise SystemExit("took a wrong block")
            """
        )
        + textwrap.dedent(
            """
                handler.send({k: block(v) for k, v in whole().items()}, step=7, table=np.eye(3), note={"a": [1, 2]})
                handler.finish()
            else:
                arrays, values = parent.receive()
                expected = whole()
                assert list(arrays) == list(expected)
                for name, array in arrays.items():
                    mine = block(expected[name])
                    assert array.dtype == mine.dtype and array.shape == mine.shape, name
                    assert array.tobytes() == mine.tobytes(), name
                assert values["step"] == 7 and (values["table"] == np.eye(3)).all() and values["note"] == {"a": [1, 2]}
                pathlib.Path(f"good{comm.rank}").touch()
            """
        )
    )
    with FakeAgent(key, [5]) as agent:
        done = mpirun(3, "arrays.py", agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 1
    assert sorted(p.name for p in tmp_path.glob("good*")) == [f"good{i}" for i in range(5)]


def test_new_processes_that_nobody_uses_end_with_the_program(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """Its user has forgotten the handler, so that they wait for data that never comes."""
    (tmp_path / "forgets.py").write_text(
        textwrap.dedent(
            """
            import dmr
            from mpi4py import MPI
            parent = dmr.inherited()
            if parent is not None:
                parent.receive()
            action = None
            while action != "expand":
                action, _, handler = dmr.dmr_check_status(MPI.COMM_WORLD, 1, 8)
            del handler
            """
        )
    )
    options = ["-hosts", "n1,n2", "-ppn", "1"]
    with FakeAgent(key, (3,)) as agent:
        done = mpirun(2, "forgets.py", agent=agent.address, launched=True, options=options, time_limit=60)
    assert done.returncode == 0, done.stderr
