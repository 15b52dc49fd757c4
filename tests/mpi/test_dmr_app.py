"""The two-line way, with real processes and a scripted agent."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi


def program(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(textwrap.dedent(text))
    return "program.py"


def told(folder: Path) -> list[list]:
    """What the processes wrote, in order of writing."""
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


TELL = """
import json
def tell(*what):
    with open("told.jsonl", "a") as file:
        file.write(json.dumps(what) + "\\n")
"""


def test_the_state_goes_on_in_new_processes(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """Arrays, objects and what is registered late; no step is lost or done twice; the old processes leave quietly."""
    script = program(
        tmp_path,
        TELL
        + """
import numpy as np
import dmr

made = []
def first():
    made.append(True)
    return np.arange(*dmr.block_bounds(10, app.comm.size, app.comm.rank), dtype=float)

app = dmr.App(1, 8)
rank = app.comm.rank
app.register("x", first, dmr.Block())
app.register("steps", [])
app.register("heavy", {"table": np.eye(2)})
assert bool(made) is not app.resumed
try:
    app.register("x", first)
except ValueError as error:
    assert "registered already" in str(error), error
try:
    app["y"]
except KeyError as error:
    assert "'y' is not registered; registered: x, steps, heavy" in str(error), error
changes = []
try:
    for step in app.steps(20):
        changes.append(app.changed)
        if step == 3:
            app.register("late", np.float32(2.5))
        start, stop = dmr.block_bounds(10, app.comm.size, app.comm.rank)
        assert app["x"].tolist() == [i + step for i in range(start, stop)], (step, app["x"])
        app["x"] = app["x"] + 1.0
        app["steps"] = app["steps"] + [step]
        assert step <= 3 or app["late"] == 2.5
        assert (app["heavy"]["table"] == np.eye(2)).all()
except dmr.Replaced:
    tell("left", app.comm.size, rank)
    raise
finally:
    if rank == 0:
        tell("changes", app.comm.size, changes)
try:
    app.steps(3)
except RuntimeError as error:
    assert "one loop" in str(error)
else:
    raise SystemExit("a second loop")
tell("end", app.comm.size, rank, app["steps"] == list(range(20)))
""",
    )
    with FakeAgent(key, (4, 3), patience=3) as agent:
        done = mpirun(2, script, agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and agent.epoch == 2
    lines = told(tmp_path)
    assert sorted(line for line in lines if line[0] == "left") == [["left", 2, 0], ["left", 2, 1]] + [
        ["left", 4, rank] for rank in range(4)
    ]
    assert sorted(line for line in lines if line[0] == "end") == [["end", 3, rank, True] for rank in range(3)]
    # Only the first step of a process is one after a change.
    for _, _, changes in (line for line in lines if line[0] == "changes"):
        assert changes == [True] + [False] * (len(changes) - 1)
    assert [c.steps_left for c in agent.of(wire.Check)] == list(range(19, 0, -1))


@pytest.mark.long
def test_resizes_without_a_step_between_them(mpirun, tmp_path: Path, key: credential.Key) -> None:
    script = program(
        tmp_path,
        TELL
        + """
import dmr
app = dmr.App()
app.register("sum", 0)
for step in app.steps():
    app["sum"] += step
    if step == 5:
        break
if app.comm.rank == 0:
    tell(app["sum"], app.comm.size)
""",
    )
    with FakeAgent(key, (3, 2, 1, 2), patience=0) as agent:
        done = mpirun(1, script, agent=agent.address)
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 4
    assert told(tmp_path) == [[15, 2]]
    assert all(check.steps_left is None for check in agent.of(wire.Check))


@pytest.mark.parametrize(
    ("registered", "why"),
    [
        ("app.register('t', float(app.comm.rank))", "t differs between ranks 0 and 1"),
        ("app.register('x', np.zeros((3, 2)), dmr.Block())", ""),
        ("app.register('x', np.zeros((app.comm.rank, 2)), dmr.Block())", "x: rank 0"),
        ("app.register('x', np.zeros(3 + app.comm.rank))", "x differs between ranks"),
        ("app.register('t', {} if app.comm.rank else None)", "t differs between ranks 0 and 1"),
        ("app.comm.rank or app.register('t', 1)", "t: rank 1 does not pass it"),
        ("app.register('f', open('program.py'))", "f: does not pickle"),
        ("app.register('phase', enum.IntEnum('Local', 'FIRST').FIRST)", "phase: does not pickle"),
        ("app.register('t', float(app.comm.rank), dmr.Replicated())", ""),
    ],
)
@pytest.mark.few(4)
def test_what_cannot_move_stays_where_it_is(
    mpirun, tmp_path: Path, key: credential.Key, registered: str, why: str
) -> None:
    """The agent hears of it before anything is started, and the program goes on."""
    script = program(
        tmp_path,
        f"""
import enum
import numpy as np
import dmr
app = dmr.App(1, 8)
{registered}
for step in app.steps(5):
    pass
if app.comm.rank == 0:
    print("size", app.comm.size)
""",
    )

    def rigid(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Check) and request.maximum == 2:
            return wire.CheckReply(action="none", size=2, epoch=0)
        return None

    with FakeAgent(key, (3,), patience=1, veto=rigid) as agent:
        done = mpirun(2, script, agent=agent.address)
    assert done.returncode == 0, done.stderr
    if not why:
        assert "size 3" in done.stdout
        return
    assert "size 2" in done.stdout
    assert len(agent.of(wire.Accept)) == ("pickle" in why)  # only there it takes the move itself to find out
    assert why in agent.of(wire.Refuse)[0].why and done.stderr.count(why) == 1
    # From then on the agent knows, and offers no more.
    assert [(c.minimum, c.maximum) for c in agent.of(wire.Check)] == [(1, 8)] * 2 + [(2, 2)] * 2
    assert len(agent.of(wire.Refuse)) == 1


ONE_WAY = """
class OneWay(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} {other}")  # a pickle calls it with one argument
"""


@pytest.mark.parametrize("method", ["replace", "merge", "restart"])
@pytest.mark.parametrize(
    "registered", ["'errors', {'e': OneWay(1, 2)}", "'errors', [1, OneWay(1, 2) if app.comm.rank else 1], dmr.Cyclic()"]
)
@pytest.mark.few(3)
def test_what_pickles_but_cannot_be_made_again_stays(
    mpirun, tmp_path: Path, key: credential.Key, method: str, registered: str
) -> None:
    """All ranks, old and new, hear which value it is; the program goes on, and tries it no more."""
    script = program(
        tmp_path,
        ONE_WAY
        + f"""
import dmr
app = dmr.App(1, 8, method="{method}")
app.register({registered})
for step in app.steps(5):
    pass
print("size", app.comm.size, flush=True)
""",
    )

    def rigid(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Check) and request.maximum == 2:
            return wire.CheckReply(action="none", size=2, epoch=0)
        return None

    options = ["-hosts", "n1,n2", "-ppn", "1"]
    with FakeAgent(key, (3,), patience=1, veto=rigid) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=options, time_limit=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("size 2\n") == 2, done.stdout + done.stderr
    (refused,) = agent.of(wire.Refuse)
    assert "errors: " in refused.why and "made again from its pickle: TypeError" in refused.why
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob(".dmr-checkpoint*"))


FINDS_THEM_GONE = """
from dmr import passage
moves = passage.Transition.move
def gone(self, parts=None):
    try:
        return moves(self, parts)
    except ValueError:
        if self.bridge.old_rank == 1:
            raise passage.Lost("the new processes have ended") from None
        raise
passage.Transition.move = gone
"""


@pytest.mark.parametrize("method", ["replace", "merge"])
@pytest.mark.parametrize("by", ["app", "handler"])
@pytest.mark.few(2)
def test_ranks_that_have_seen_different_things_agree(
    mpirun, tmp_path: Path, key: credential.Key, method: str, by: str
) -> None:
    """The data cannot move, the new processes end, and a rank that still waits for its last message finds them dead."""
    loop = {
        "app": f"""
import dmr
app = dmr.App(1, 8, method="{method}")
app.register("errors", {{"e": OneWay(1, 2)}})
for step in app.steps(5):
    pass
print("size", app.comm.size, flush=True)
""",
        "handler": """
import dmr
from mpi4py import MPI
comm = MPI.COMM_WORLD
parent = dmr.inherited()
if parent is not None:
    parent.receive()
for step in range(4):
    _, _, handler = dmr.dmr_check_status(comm, 1, 8)
    if handler:
        handler.send(errors={"e": OneWay(1, 2)})
        for again in range(2):
            try:
                handler.finish()
            except dmr.Lost as lost:
                assert "made again from its pickle" in str(lost)
print("size", comm.size, flush=True)
""",
    }
    script = program(tmp_path, ONE_WAY + FINDS_THEM_GONE + loop[by])

    def once(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Check) and agent.of(wire.Refuse):
            return wire.CheckReply(action="none", size=2, epoch=0)
        return None

    options = ["-hosts", "n1,n2", "-ppn", "1"]
    with FakeAgent(key, (3,), patience=1, veto=once) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=options, time_limit=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("size 2\n") == 2, done.stdout + done.stderr
    (refused,) = agent.of(wire.Refuse)
    assert "made again from its pickle: TypeError" in refused.why
    assert "BAD TERMINATION" not in done.stdout
    if by == "app":  # for all ranks it is the values that cannot be resized
        assert [(c.minimum, c.maximum) for c in agent.of(wire.Check)][-1] == (2, 2)


def test_announcements(mpirun, tmp_path: Path, key: credential.Key) -> None:
    script = program(
        tmp_path,
        """
import time
import dmr
app = dmr.App(1, 8)
app.announce(8, 60)
for wrong in ((0, 1), (2, -1), (2, float("nan")), (1.5, 1)):
    try:
        dmr.announce(*wrong)
    except ValueError:
        pass
    else:
        raise SystemExit(f"took {wrong}")
for step in app.steps(30):
    dmr.announce(4, 1.5)
    time.sleep(0.01)
""",
    )

    def veto(request: wire.Request) -> wire.Reply | None:
        if isinstance(request, wire.Announce) and request.size == 4:
            return wire.Failure(error="unavailable", message="no announcements here")
        return None

    with FakeAgent(key, veto=veto) as agent:
        done = mpirun(2, script, agent=agent.address)
    assert done.returncode == 0, done.stderr
    announced = [(a.size, a.in_seconds) for a in agent.of(wire.Announce)]
    assert announced[0] == (8, 60.0) and set(announced[1:]) == {(4, 1.5)}
    # Said when it begins to fail, not each time: again only after the agent has answered something.
    assert 1 <= done.stderr.count("no announcements here") <= 1 + len(agent.of(wire.Check))


def test_the_program_leaves_its_directory(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """Paths in the environment are those of the start wherever it goes: here the key's and the checkpoint's."""
    path = program(
        tmp_path,
        """
        import os
        import dmr
        app = dmr.App(1, 8, method="restart")
        app.register("n", 0)
        os.chdir("/")
        for step in app.steps(10):
            app["n"] += 1
        if app.comm.rank == 0:
            print("ended", app.comm.size, app["n"], flush=True)
        """,
    )
    relative = {"DMR_KEY_FILE": "key", "DMR_CHECKPOINT_DIR": "saved"}
    options = ["-hosts", "n1,n2", "-ppn", "1"]
    with FakeAgent(key, [3]) as agent:
        done = mpirun(2, path, agent=agent.address, launched=True, options=options, **relative)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ended 3 10\n" and agent.epoch == 1, done.stderr


@pytest.mark.parametrize("method", ["replace", "merge", "restart", "replace without launcher"])
@pytest.mark.few(2)
def test_any_argument_arrives(mpirun, tmp_path: Path, key: credential.Key, method: str) -> None:
    """MPI_Comm_spawn alone cannot pass on all of them; the launcher can."""
    script = program(
        tmp_path,
        TELL
        + f"""
import sys
import dmr
app = dmr.App(1, 8, method="{method.split()[0]}")
app.register("n", 0)
for step in app.steps(5):
    app["n"] += 1
tell(app.comm.size, *sys.argv[1:])
""",
    )
    launched, given = method != "replace without launcher", ["", "two\nlines", "", "a 'b' \"c\" \\ $d", ""]
    with FakeAgent(key, (3,), patience=1) as agent:
        done = mpirun(
            2, script, *given, agent=agent.address, launched=launched, options=["-hosts", "n1,n2", "-ppn", "1"]
        )
    assert done.returncode == 0, done.stderr
    if launched:
        assert told(tmp_path) == [[3, *given]] * 3
    else:
        assert told(tmp_path) == [[2, *given]] * 2
        assert "an argument of the program is empty or holds a newline" in agent.of(wire.Refuse)[0].why


def test_an_error_of_the_program_ends_it(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """In new processes, too, and its exit code is the launcher's."""
    script = program(
        tmp_path,
        """
import dmr
app = dmr.App(1, 8)
for step in app.steps(10):
    if step == 4:
        raise ZeroDivisionError(f"in step {step} on {app.comm.size}")
""",
    )
    with FakeAgent(key, (3,), patience=1) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode != 0
    assert "in step 4 on 3" in done.stderr


FAILS_ALONE = {
    "app": """
import dmr
app = dmr.App(1, 8, method="{method}")
for step in app.steps(10**9):
    if step == 4 and app.comm.rank == app.comm.size - 1:
        raise ZeroDivisionError(f"in step {{step}} on {{app.comm.size}}")
    app.comm.Barrier()
""",
    "check": """
import dmr
from mpi4py import MPI
parent = dmr.inherited()
if parent and MPI.COMM_WORLD.rank == 0:
    raise ZeroDivisionError("in step 4 on 3")
if parent:
    parent.receive()
for step in range(10**9):
    if dmr.dmr_check_status(MPI.COMM_WORLD, 1, 8).handler and MPI.COMM_WORLD.rank:
        raise ZeroDivisionError("in step 4 on 2")
""",
}


@pytest.mark.parametrize(
    ("by", "method", "sizes", "at"),
    [
        ("app", "replace", (), 2),
        ("app", "replace", (3,), 3),
        ("app", "merge", (3,), 3),
        ("app", "restart", (3,), 3),
        ("check", "", (3,), 2),
    ],
)
def test_an_error_on_one_rank_ends_all(
    mpirun, tmp_path: Path, key: credential.Key, by: str, method: str, sizes: tuple[int, ...], at: int
) -> None:
    """The others wait for it in their next message, with all their nodes: before a resize, in it, and after it."""
    script = program(tmp_path, FAILS_ALONE[by].format(method=method))
    options = ["-hosts", "n1,n2", "-ppn", "1"]
    with FakeAgent(key, sizes, patience=1) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=options, time_limit=60)
    assert done.returncode not in (0, 85), done.stderr
    assert f"ZeroDivisionError: in step 4 on {at}" in done.stderr


@pytest.mark.parametrize("method", ["replace", "merge", "restart"])
@pytest.mark.few(1)
def test_what_was_wanted_is_wanted_of_new_processes_too(
    mpirun, tmp_path: Path, key: credential.Key, method: str
) -> None:
    """Two phases that can use different sizes: all ranks ask for the same after a growth in the second one."""
    script = program(
        tmp_path,
        f"""
import dmr
app = dmr.App(1, 2, method="{method}")
for step in app.steps(12):
    if step == 2:
        app.want(minimum=3, maximum=8, preferred=4)
print("size", app.comm.size, flush=True)
""",
    )
    with FakeAgent(key, (4,), patience=4) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("size 4\n") == 4, done.stdout + done.stderr
    checks = [(c.size, c.minimum, c.maximum, c.preferred) for c in agent.of(wire.Check)]
    assert checks[:2] == [(2, 1, 2, None)] * 2
    assert set(checks[2:]) == {(2, 3, 8, 4), (4, 3, 8, 4)}


def test_processes_that_stay(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """By "merge" a process leaves its loop only with its node; what it held before may not be written any more."""
    script = program(
        tmp_path,
        TELL
        + """
import os
import numpy as np
import dmr

app = dmr.App(1, 8, method="merge")
mine = app.comm.size  # in a world that joins others: its own, until it is in the loop
mine_of_ten = dmr.block_bounds(10, app.comm.size, app.comm.rank)
app.register("x", np.arange(*mine_of_ten, dtype=float), dmr.Block())
app.register("objects", [str(i) for i in range(*mine_of_ten)], dmr.Block())
app.register("pid", os.getpid(), dmr.Replicated())
changes = 0
try:
    for step in app.steps(12):
        start, stop = dmr.block_bounds(10, app.comm.size, app.comm.rank)
        if app.changed and changes:
            try:
                old += 1.0
            except ValueError as error:
                assert "read-only" in str(error)
            else:
                raise SystemExit("the old block could be written")
        changes += app.changed
        old = app["x"]
        assert app["x"].tolist() == [i + step for i in range(start, stop)], (step, app["x"])
        assert app["objects"] == [str(i) for i in range(start, stop)]
        app["x"] += 1.0
        assert app.comm.allreduce(1) == app.comm.size
finally:
    tell(app.resumed, changes, app.comm.size, mine)
""",
    )
    with FakeAgent(key, (4, 2, 3), patience=1) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 3 and {c.method for c in agent.of(wire.Check)} == {"merge"}
    assert all(c.companion for c in agent.of(wire.Check))
    # The two that were started as one world stayed all the time; n3 and n4 came and went; n3 came again.
    assert sorted(told(tmp_path)) == sorted([[False, 4, 3, 2]] * 2 + [[True, 1, 1, 1]] * 2 + [[True, 1, 3, 1]])


@pytest.mark.parametrize("method", ["replace", "merge"])
def test_migration_keeps_the_size_and_changes_the_nodes(
    mpirun, tmp_path: Path, key: credential.Key, method: str
) -> None:
    """The DMR paper's listings 1 and 2. Who is there already is left alone."""
    script = program(
        tmp_path,
        TELL
        + f"""
import os
import numpy as np
import dmr
app = dmr.App(2, 2, factor=2, method="{method}")
app.register("x", lambda: np.arange(*dmr.block_bounds(9, app.comm.size, app.comm.rank)), dmr.Block())
for step in app.steps(8):
    app["x"] = app["x"] + 1
start, stop = dmr.block_bounds(9, app.comm.size, app.comm.rank)
assert app["x"].tolist() == [i + 8 for i in range(start, stop)]
tell(app.comm.rank, os.environ["PMI_HOSTNAME"])
""",
    )

    def elsewhere(request: wire.Request) -> wire.Reply | None:
        if not isinstance(request, wire.Check):
            return wire.Done()
        nodes, epoch = ("n1", "n3"), max(1, request.epoch)
        return wire.CheckReply(action="migrate", size=2, epoch=epoch, nodes=nodes)

    with FakeAgent(key, veto=elsewhere) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stderr
    assert sorted(told(tmp_path)) == [[0, "n1"], [1, "n3"]]
    (finished,) = agent.of(wire.Finished)
    assert (finished.size, finished.nodes) == (2, ("n1", "n3"))


def test_without_an_agent(mpirun, tmp_path: Path) -> None:
    """No agent, and one that is not there: the program runs as ever, and says so once at most."""
    script = program(
        tmp_path,
        """
import dmr
app = dmr.App(2, 8)
app.register("n", 0)
for step in app.steps(1000):
    app["n"] += 1
assert app["n"] == 1000 and list(dmr.App(2, 8).steps(0)) == []
""",
    )
    done = mpirun(2, script)
    assert (done.returncode, done.stderr) == (0, "")
    done = mpirun(2, script, agent="127.0.0.1:1")
    assert done.returncode == 0
    assert done.stderr.count("going on as is") == 1 and "Traceback" not in done.stderr


DEATHS = {
    "before it knows what comes": "passage.Transition.move = lambda *a, **k: os.kill(os.getpid(), 9)",
    "while data moves": "arrays.exchange = lambda *a, **k: os.kill(os.getpid(), 9)",
    "when it has all": "passage.Transition.complete = lambda *a, **k: os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("method", ["replace", pytest.param("merge", marks=pytest.mark.long)])
@pytest.mark.few(2)
def test_a_new_process_dies_and_the_old_ones_go_on(
    mpirun, tmp_path: Path, key: credential.Key, death: str, method: str
) -> None:
    """With all data, and the next resize works."""
    script = program(
        tmp_path,
        f"""
import os
import numpy as np
import dmr
from dmr import arrays, passage
from mpi4py import MPI

if os.environ.get("DMR_TICKET") and MPI.COMM_WORLD.rank == 0 and not os.path.exists("died"):
    open("died", "w").close()
    {DEATHS[death]}
app = dmr.App(1, 8, method="{method}")
app.register("x", lambda: np.arange(*dmr.block_bounds(1000, app.comm.size, app.comm.rank), dtype=float), dmr.Block())
for step in app.steps(8):
    app["x"] += 1.0
start, stop = dmr.block_bounds(1000, app.comm.size, app.comm.rank)
assert app["x"].tolist() == [i + 8 for i in range(start, stop)]
if app.comm.rank == 0:
    print("size", app.comm.size)
""",
    )
    with FakeAgent(key, (4,), patience=1) as agent:
        done = mpirun(2, script, agent=agent.address, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists() and len(agent.of(wire.Refuse)) == 1, done.stderr
    assert agent.epoch == 1 and "size 4" in done.stdout, done.stderr
