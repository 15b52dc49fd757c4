"""New processes that are started while the program goes on: handed over to when they are up, or given up."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi

OPTIONS = ["-hosts", "n1,n2", "-ppn", "1"]

# It computes until it has been resized `enough` times, or for so many steps; numbers that any lost or repeated step
# would make wrong.
APP = """
import json, os, sys, time
import numpy as np
import dmr
{before}
app = dmr.App(1, 8, factor={factor}, method="{method}")
N = 1000
app.register("x", lambda: np.arange(*dmr.block_bounds(N, app.comm.size, app.comm.rank), dtype=float), dmr.Block())
app.register("sizes", [app.comm.size])
last = None
for step in app.steps({steps}):
    if app.changed and app.comm.size != app["sizes"][-1]:
        app["sizes"] = app["sizes"] + [app.comm.size]
    app["x"] = app["x"] + 1.0
    time.sleep(0.01)
    last = step
    {body}
    if len(app["sizes"]) > {enough}:
        break
start, stop = dmr.block_bounds(N, app.comm.size, app.comm.rank)
assert app["x"].tolist() == [i + last + 1.0 for i in range(start, stop)]
if app.comm.rank == 0:
    print("made", json.dumps([app["sizes"], last + 1]), flush=True)
"""


def program(folder: Path, **values: object) -> str:
    given = {"method": "replace", "factor": 1, "steps": None, "enough": 1, "before": "", "body": "pass"} | values
    (folder / "program.py").write_text(APP.format(**given))
    return "program.py"


def made(output: str) -> list:
    (line,) = (line for line in output.splitlines() if line.startswith("made "))
    return json.loads(line.removeprefix("made "))


@pytest.fixture
def ahead(mpirun, key: credential.Key):
    """Runs a program of two ranks under the launcher and an agent; what it printed, and the steps it had made."""

    def run(script: str, agent: FakeAgent, *, noise: bool = False, **more: object) -> tuple[list[int], int]:
        done = mpirun(
            2, script, agent=agent.address, launched=True, options=OPTIONS, **{"DMR_START_AHEAD": "1", **more}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert noise or ("Traceback" not in done.stderr and "BAD TERMINATION" not in done.stdout + done.stderr)
        line = made(done.stdout)
        sizes, steps = line
        run.stderr = done.stderr
        return sizes, steps

    return run


@pytest.mark.parametrize("method", ["replace", "merge"])
def test_the_program_goes_on_while_they_start(ahead, tmp_path: Path, key: credential.Key, method: str) -> None:
    """There and back: steps are made between the offer and the word that it is taken up, and none is lost."""
    script = program(tmp_path, method=method, factor=2, enough=2, steps=100_000)
    with FakeAgent(key, (4, 2), patience=3) as agent:
        sizes, _ = ahead(script, agent)
    assert sizes == [2, 4, 2] and agent.epoch == 2
    checks = agent.of(wire.Check)
    heard = [c.steps_left for c in checks if not c.starting and c.epoch == 0][-1]
    asked = [c.steps_left for c in checks if c.starting == 1]
    assert asked and heard - asked[0] >= 1, "the agent hears that they are being started, a step later"
    first, *_ = agent.of(wire.Finished)
    assert first.timings["ahead"] > first.timings["spawn"]
    after = next(c.steps_left for c in checks if c.epoch == 1 and not c.starting)
    assert heard - after > 5, "it went on meanwhile"


@pytest.mark.long
def test_asked_in_the_background_too(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """For programs that move their data themselves, by either call."""
    (tmp_path / "own.py").write_text(
        textwrap.dedent(
            """
            import sys, time
            import numpy as np
            import dmr
            from mpi4py import MPI
            parent, step = dmr.inherited(), 0
            if parent:
                arrays, values = parent.receive()
                step, x = values["step"], arrays["x"]
            comm = dmr.world()
            if not parent:
                x = np.arange(*dmr.block_bounds(10, comm.size, comm.rank), dtype=float)
            while step < 2000 and comm.size == 2:
                action, size, handler = getattr(dmr, sys.argv[1])(comm, 1, 8)
                if action:
                    assert (str(action), size, handler.size) == ("expand", 4, 4)
                    handler.send({"x": x}, step=step)
                    handler.finish()
                    sys.exit()
                x, step = x + 1.0, step + 1
                time.sleep(0.01)
            start, stop = dmr.block_bounds(10, comm.size, comm.rank)
            assert x.tolist() == [i + step for i in range(start, stop)]
            print("size", comm.size, flush=True)
            """
        )
    )
    for call in ("dmr_check_status", "dmr_icheck_status"):
        with FakeAgent(key, (4,), patience=1) as agent:
            done = mpirun(2, "own.py", call, agent=agent.address, launched=True, options=OPTIONS, DMR_START_AHEAD="1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("size 4\n") == 4 and agent.epoch == 1
        assert any(c.starting == 1 for c in agent.of(wire.Check))


ENDS = {
    "at its last step": {"steps": 6},
    "by break": {"body": "if step == 5: break"},
}


@pytest.mark.parametrize("method", ["replace", "merge"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.few(2)
def test_a_program_that_ends_first(ahead, tmp_path: Path, key: credential.Key, end: str, method: str) -> None:
    """It ends at once and well, the new processes without a word, and the agent hears that the nodes are not used."""
    script = program(tmp_path, method=method, **ENDS[end])
    with FakeAgent(key, (4,), patience=2) as agent:
        sizes, steps = ahead(script, agent)
    assert (sizes, steps) == ([2], 6)
    assert [(r.epoch, r.why) for r in agent.of(wire.Refuse)] == [(1, "the program has come to its end")]
    assert not agent.of(wire.Accept)


def test_a_program_that_ends_without_a_word(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """One that only calls `dmr_check_status` just stops calling it."""
    (tmp_path / "own.py").write_text(
        "import dmr\nfrom mpi4py import MPI\nif dmr.inherited(): raise SystemExit(9)\n"
        "for _ in range(5): assert not dmr.dmr_check_status(MPI.COMM_WORLD, 1, 8).action\n"
    )
    with FakeAgent(key, (4,), patience=1) as agent:
        done = mpirun(2, "own.py", agent=agent.address, launched=True, options=OPTIONS, DMR_START_AHEAD="1")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert [r.epoch for r in agent.of(wire.Refuse)] == [1]


@pytest.mark.long
def test_the_program_changes_its_mind(ahead, tmp_path: Path, key: credential.Key) -> None:
    """What is coming is not wanted any more: it is given up, and what is offered next is taken up."""
    script = program(tmp_path, body="if step == 5 and app.comm.size == 2: app.want(1, 3)")

    def smaller(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Refuse):
            agent.sizes = (3,)
        return None

    with FakeAgent(key, (4,), patience=2, veto=smaller) as agent:
        sizes, _ = ahead(script, agent)
    assert sizes == [2, 3]
    assert [r.why for r in agent.of(wire.Refuse)] == ["the program does not want 4 processes any more"]
    assert "cannot be resized" not in ahead.stderr, "nothing is wrong"


@pytest.mark.long
def test_the_agent_takes_it_back(ahead, tmp_path: Path, key: credential.Key) -> None:
    """Its answer to the question whether the offer still stands; the program goes on, and takes the next one up."""
    script = program(tmp_path, before="if os.environ.get('DMR_TICKET') and not os.path.exists('late'): time.sleep(2.5)")
    asked: list[wire.Check] = []

    def back(request: wire.Request) -> wire.Reply | None:
        if not isinstance(request, wire.Check) or not request.starting:
            return None
        asked.append(request)
        if len(asked) == 2:
            (tmp_path / "late").touch()
        return wire.CheckReply(action="none", size=2, epoch=1, reason="no longer wanted") if len(asked) == 2 else None

    with FakeAgent(key, (4,), patience=2, veto=back) as agent:
        sizes, _ = ahead(script, agent)
    assert sizes == [2, 4] and len(asked) >= 2
    assert not agent.of(wire.Refuse)


@pytest.mark.long
def test_it_is_off_when_it_is_to_be_taken_up(ahead, tmp_path: Path, key: credential.Key) -> None:
    """The last word is the agent's, at the hand-over."""
    script = program(tmp_path, steps=300)

    def stale(request: wire.Request) -> wire.Reply | None:
        return wire.Failure(error="stale-epoch", message="too late") if isinstance(request, wire.Accept) else None

    with FakeAgent(key, (4,), patience=2, veto=stale) as agent:
        sizes, steps = ahead(script, agent)
    assert (sizes, steps) == ([2], 300) and agent.of(wire.Accept)


def test_the_agent_dies_while_they_start(ahead, tmp_path: Path, key: credential.Key) -> None:
    def dies(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Check) and request.starting:
            agent.die()
            raise ConnectionError
        return None

    with FakeAgent(key, (4,), patience=2, veto=dies) as agent:
        sizes, steps = ahead(program(tmp_path, steps=400), agent)
    assert (sizes, steps) == ([2], 400)


# In a new process, the first time.
DEATHS = {
    "before MPI is up": "os._exit(3)",
    "while it is waited for": "from dmr import joining; joining._met = lambda *a: os._exit(3)",
    # Once the others are on their way to it: MPICH ends those that connect to one that is already gone.
    "when it is met": (
        "from dmr import joining; import time; joining._accept = lambda *a: (time.sleep(0.5), os.kill(os.getpid(), 9))"
    ),
    "while data moves": "from dmr import arrays; arrays.exchange = lambda *a, **k: os.kill(os.getpid(), 9)",
    "when it has all": "from dmr import passage; passage.Transition.complete = lambda *a, **k: os.kill(os.getpid(), 9)",
}
WAITED_FOR = ("before MPI is up", "while it is waited for")  # most of a minute each
FIRST = """
if os.environ.get("DMR_TICKET") and os.environ.get("PMI_RANK") == "0" and not os.path.exists("died"):
    open("died", "w").close()
    {}
from dmr import joining
joining._CONNECT_LIMIT = 5
"""


@pytest.mark.parametrize(
    "death", [pytest.param(one, marks=[pytest.mark.long] if one in WAITED_FOR else []) for one in DEATHS]
)
@pytest.mark.parametrize("method", ["replace", pytest.param("merge", marks=pytest.mark.long)])
@pytest.mark.few(2)
def test_a_new_process_dies(ahead, tmp_path: Path, key: credential.Key, death: str, method: str) -> None:
    """Wherever its start stands: the program goes on with all its data. It takes the next offer up, unless a
    connection broke off: MPICH crashed in the next one."""
    broken = death == "when it is met"
    script = program(
        tmp_path,
        method=method,
        factor=2,
        before=FIRST.format(DEATHS[death]),
        body="if app.comm.allreduce(os.path.exists('over')): break",
    )

    def refused(request: wire.Request) -> wire.Reply | None:
        if len(agent.of(wire.Refuse)) == 4 and broken:
            (tmp_path / "over").touch()
        return None

    with FakeAgent(key, (4,), patience=2, veto=refused) as agent:
        # What dies before MPI knows it is not missed before this limit.
        sizes, _ = ahead(script, agent, noise=True, DMR_START_TIMEOUT="40")
    assert (tmp_path / "died").exists()
    assert sizes == ([2] if broken else [2, 4])
    assert len(agent.of(wire.Refuse)) >= 4 if broken else len(agent.of(wire.Refuse)) == 1


def test_an_error_of_the_program_while_they_start(mpirun, tmp_path: Path, key: credential.Key) -> None:
    script = program(tmp_path, body="if step == 4 and app.comm.rank: raise ZeroDivisionError('in step 4')")
    with FakeAgent(key, (4,), patience=2) as agent:
        done = mpirun(
            2, script, agent=agent.address, launched=True, options=OPTIONS, time_limit=60, DMR_START_AHEAD="1"
        )
    assert done.returncode != 0 and "in step 4" in done.stderr


def test_one_world_for_a_growth(ahead, tmp_path: Path, key: credential.Key) -> None:
    """Where the factor says that its nodes leave together, it is one mpiexec, which stays through other resizes."""
    script = program(
        tmp_path,
        method="merge",
        factor=2,
        enough=3,
        before="mine = open('starts', 'a'); mine.write(os.environ.get('DMR_TICKET', '') + '\\n'); mine.close()",
    )
    with FakeAgent(key, (8, 4, 8), patience=2) as agent:
        sizes, _ = ahead(script, agent)
    assert sizes == [2, 8, 4, 8]
    started = [line for line in (tmp_path / "starts").read_text().split("\n") if line]
    # Two to eight: two nodes that stay at four, and four that leave; then those four again.
    assert sorted(started.count(ticket) for ticket in set(started)) == [2, 4, 4]
