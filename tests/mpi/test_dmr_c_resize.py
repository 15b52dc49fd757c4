"""The Jacobi solver in C, under sanitizers, with a scripted agent: the same bits however often it is resized."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent
from jacobi_bits import BECOME, OPTIONS, SANITIZER, events, same

from dmr import credential, wire
from dmr_c_build import SANITIZED, SOURCES, built

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture(scope="session")
def program() -> str:
    return str(built("all") / "jacobi")


@pytest.fixture(scope="session")
def by_abi() -> str:
    """The same, built with a header that allows for long names of ports."""
    return str(built("all", compiler="mpicc_abi") / "jacobi")


@pytest.fixture
def run(mpirun, program: str):
    def run(ranks: int, *more: str, program: str = program, **keywords: str) -> subprocess.CompletedProcess[str]:
        done = mpirun(ranks, *BECOME, program, *OPTIONS, *more, **{**SANITIZER, **keywords})
        assert "ERROR: AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
        return done

    return run


def test_without_an_agent(run, tmp_path: Path) -> None:
    done = run(2)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert same(tmp_path / "result.bin")
    assert events(tmp_path) == [("start", 2), ("end", 2)]


@pytest.mark.parametrize(
    ("start", "sizes", "per_node", "more"),
    [
        (2, (4, 2), 2, ()),
        (2, (3, 1, 2), 1, ("--background",)),
        pytest.param(1, (4, 1, 4, 1), 1, (), marks=pytest.mark.long),
        pytest.param(2, (6, 4), 2, (), marks=pytest.mark.long),
    ],
)
def test_resizes(
    run,
    tmp_path: Path,
    key: credential.Key,
    start: int,
    sizes: tuple[int, ...],
    per_node: int,
    more: tuple[str, ...],
) -> None:
    # In the background the question needs time on its way: the sweeps must not be over before.
    pause = ("--sweep-seconds=0.05",) if more else ()
    with FakeAgent(key, sizes, per_node, patience=1) as agent:
        done = run(start, *more, *pause, agent=agent.address, DMR_RANKS_PER_NODE=str(per_node), DMR_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.bin")
    assert agent.epoch == len(sizes), done.stderr
    assert [s for event, s in events(tmp_path) if event == "resized"] == list(sizes)
    assert [r.epoch for r in agent.of(wire.Accept)] == list(range(1, len(sizes) + 1))
    for finished in agent.of(wire.Finished):
        assert set(finished.timings) == {"spawn", "move"} and 0 < finished.timings["spawn"] < 60
    last = agent.of(wire.Check)[-1]
    assert last.nodes == tuple(f"n{i + 1}" for i in range(sizes[-1] // per_node))
    assert (last.size, last.per_node, last.epoch) == (sizes[-1], per_node, len(sizes))


@pytest.mark.parametrize(
    ("sizes", "per_node", "held"),
    [
        ((4, 2), 1, {}),
        ((4, 2, 3), 1, {"n3": 77, "n4": 77}),
        pytest.param((6, 8, 4, 2), 2, {"n2": 77, "n3": 77, "n4": 78}, marks=pytest.mark.long),
        pytest.param((5, 3, 5), 1, {"n3": 0, "n4": 77, "n5": 77}, marks=pytest.mark.long),
    ],
)
def test_resizes_under_the_launcher(
    run, by_abi: str, tmp_path: Path, key: credential.Key, sizes: tuple[int, ...], per_node: int, held: dict[str, int]
) -> None:
    """New processes are worlds of their own: one for each job that holds nodes."""

    def from_jobs(request: wire.Request) -> wire.Reply | None:
        reply = agent._answer(request)
        if not isinstance(reply, wire.CheckReply):
            return reply
        new = [node for node in reply.nodes if node not in request.nodes]
        return replace(reply, companion=held.get(new[0], 0) if new else 0)

    options = ["-hosts", "n1,n2", "-ppn", str(per_node)]
    with FakeAgent(key, sizes, per_node, patience=1, veto=from_jobs) as agent:
        more = {"program": by_abi, "launched": True, "options": options, "DMR_RANKS_PER_NODE": str(per_node)}
        done = run(2 * per_node, agent=agent.address, DMR_TIMEOUT="20", **more)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.bin")
    assert [s for event, s in events(tmp_path) if event == "resized"] == list(sizes), done.stderr
    checks = agent.of(wire.Check)
    assert all(check.companion and check.requests_nodes for check in checks)
    last = checks[-1]
    assert last.nodes == tuple(f"n{i + 1}" for i in range(sizes[-1] // per_node))
    assert (last.size, last.epoch) == (sizes[-1], len(sizes)) and not agent.of(wire.Refuse)


ONE_EACH = {"launched": True, "options": ["-hosts", "n1,n2", "-ppn", "1"]}


def test_a_header_that_is_too_small_for_ports(run, tmp_path: Path, key: credential.Key) -> None:
    """By UCX a port's name is longer than MPICH's header allows: MPI starts them all then, on own nodes alone."""
    with FakeAgent(key, (4,), patience=1) as agent:
        done = run(2, agent=agent.address, DMR_TIMEOUT="20", MPIR_CVAR_CH4_NETMOD="ucx", **ONE_EACH)
    assert done.returncode == 0 and done.stderr.count("built with mpicc_abi it may") == 1, done.stderr
    assert same(tmp_path / "result.bin") and agent.epoch == 1
    assert not any(check.companion for check in agent.of(wire.Check))


# New rank 0 ends in place of the program, the first time.
DIES = """
import os, sys
if os.environ.get("DMR_TICKET") and os.environ.get("PMI_RANK") == "0" and not os.path.exists("died"):
    open("died", "w").close()
    os._exit(3)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_new_process_dies(mpirun, by_abi: str, tmp_path: Path, key: credential.Key) -> None:
    """The program goes on with all its data, and takes up the next offer."""
    more = {"DMR_TIMEOUT": "20", "DMR_START_TIMEOUT": "20", **ONE_EACH, **SANITIZER}
    with FakeAgent(key, (4,), patience=1) as agent:
        done = mpirun(2, "-c", DIES, by_abi, *OPTIONS, agent=agent.address, **more)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists() and same(tmp_path / "result.bin")
    assert "going on as is" in done.stderr and len(agent.of(wire.Refuse)) == 1
    assert [s for event, s in events(tmp_path) if event == "resized"] == [4]


def test_nodes_that_the_launcher_asks_for(run, by_abi: str, tmp_path: Path, key: credential.Key) -> None:
    """What the agent cannot ask Slurm for, the launcher does, once however often it is told."""
    asked = tmp_path / "bin" / "salloc"
    asked.parent.mkdir()
    asked.write_text('#!/bin/sh\necho "$@" >>asked\necho "salloc: Granted job allocation 77" >&2\n')
    asked.chmod(0o755)
    wanted = wire.NodeRequest(name="penstock-42-abc", node_count=2, time_limit=600.0, patience=30.0, partition="main")
    foreign = replace(wanted, name="penstock-41-abc")

    def ask(request: wire.Request) -> wire.Reply | None:
        if not isinstance(request, wire.Check):
            return None
        node_request = foreign if agent.checks == 0 else wanted
        agent.checks += 1
        return wire.CheckReply(action="none", size=request.size, epoch=0, node_request=node_request)

    path = f"{asked.parent}:{os.environ['PATH']}"
    with FakeAgent(key, veto=ask) as agent:
        more = {"program": by_abi, "PATH": path, **ONE_EACH}
        done = run(2, "--sweep-seconds=0.05", agent=agent.address, DMR_TIMEOUT="20", **more)
    assert done.returncode == 0 and same(tmp_path / "result.bin"), done.stderr
    (line,) = (tmp_path / "asked").read_text().splitlines()
    assert line.startswith("--no-shell --job-name=penstock-42-abc --nodes=2 --time=10 --partition=main")
    assert "a request for job 41" in done.stderr


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"action": "expand", "size": 9, "epoch": 1}, "outside"),
        ({"action": "shrink", "size": 4, "epoch": 1}, "shrink from 1 to 4"),
        ({"action": "expand", "size": 3, "epoch": 1}, "not reachable"),
        ({"action": "expand", "size": 2, "epoch": 1, "companion": 7}, "another job"),
        ({"action": "expand", "size": 2, "epoch": 0}, "already finished"),
    ],
)
def test_absurd_answers_are_not_followed(run, tmp_path: Path, key: credential.Key, answer: dict, why: str) -> None:
    def veto(request: wire.Request) -> wire.Reply | None:
        if not isinstance(request, wire.Check):
            return None
        return wire.CheckReply(**answer, nodes=tuple(f"n{i}" for i in range(answer["size"])))

    with FakeAgent(key, veto=veto) as agent:
        done = run(1, "--factor=2", agent=agent.address, DMR_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert why in done.stderr
    assert same(tmp_path / "result.bin") and not agent.of(wire.Accept)
    assert len(agent.of(wire.Refuse)) == (0 if answer["epoch"] == 0 else len(agent.of(wire.Check)))


@pytest.mark.parametrize("late", ["check", "accept"])
def test_the_agent_dies(run, tmp_path: Path, key: credential.Key, late: str) -> None:
    def veto(request: wire.Request) -> wire.Reply | None:
        if request.op == late and (late != "check" or agent.checks >= 2):
            agent.die()
            raise ConnectionError
        return None

    with FakeAgent(key, [4], patience=3, veto=veto) as agent:
        done = run(1, agent=agent.address, DMR_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.bin") and events(tmp_path) == [("start", 1), ("end", 1)]
    assert done.stderr.count("no answer from the agent") == 1


def test_a_stale_epoch_stops_the_resize(run, tmp_path: Path, key: credential.Key) -> None:
    def veto(request: wire.Request) -> wire.Reply | None:
        return wire.Failure(error="stale-epoch", message="too late") if isinstance(request, wire.Accept) else None

    with FakeAgent(key, [4], veto=veto) as agent:
        done = run(1, agent=agent.address, DMR_TIMEOUT="20")
    assert done.returncode == 0 and "too late" in done.stderr
    assert agent.of(wire.Accept) and not agent.of(wire.Refuse)
    assert same(tmp_path / "result.bin") and events(tmp_path) == [("start", 1), ("end", 1)]


def test_a_program_that_is_gone_is_not_started_again(mpirun, tmp_path: Path, key: credential.Key, program: str) -> None:
    copy = tmp_path / "mine"
    # The library beside it is found by the original's path.
    copy.write_bytes(Path(program).read_bytes())
    copy.chmod(0o755)

    def veto(request: wire.Request) -> wire.Reply | None:
        copy.unlink(missing_ok=True)
        return None

    environment = {**SANITIZER, "LD_LIBRARY_PATH": str(Path(program).parent), "DMR_TIMEOUT": "20"}
    with FakeAgent(key, [4], veto=veto) as agent:
        done = mpirun(1, *BECOME, str(copy), *OPTIONS, agent=agent.address, **environment)
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.bin") and not agent.of(wire.Accept)
    assert "is gone" in agent.of(wire.Refuse)[0].why


def test_more_nodes_than_mpi_can_be_told_of(run, tmp_path: Path, key: credential.Key) -> None:
    """16 names of 63 characters are 1,023 with their commas: the most; with one character more the info is refused."""

    def veto(request: wire.Request) -> wire.Reply | None:
        nodes = tuple(f"n{i:02}{'x' * 60}" for i in range(16))
        grown = wire.CheckReply(action="expand", size=16, epoch=1, nodes=(f"{nodes[0]}x", *nodes[1:]))
        return grown if isinstance(request, wire.Check) else None

    with FakeAgent(key, veto=veto) as agent:
        done = run(2, "--max=16", agent=agent.address, DMR_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "result.bin") and events(tmp_path) == [("start", 2), ("end", 2)]
    assert not agent.of(wire.Accept)
    why = "the list of new nodes has 1024 characters, and MPI_Comm_spawn takes less than 1024"
    assert {refusal.why for refusal in agent.of(wire.Refuse)} == {why}


def test_the_inhibitor_spaces_the_checks(run, key: credential.Key) -> None:
    with FakeAgent(key) as agent:
        done = run(1, agent=agent.address, DMR_INHIBITOR_STEPS="5", DMR_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert len(agent.of(wire.Check)) == 3  # of 14 calls: the 1st, 6th and 11th


def test_sizes_from_outside(run, key: credential.Key) -> None:
    with FakeAgent(key) as agent:
        run(1, agent=agent.address, DMR_SIZES="1:6:5:2", DMR_TIMEOUT="20")
    first = agent.of(wire.Check)[0]
    assert (first.minimum, first.maximum, first.preferred, first.factor) == (1, 6, 4, 2)  # 4: what 5 comes down to


def test_wrong_options_end_the_program(run) -> None:
    done = run(1, "--min=5", "--max=4")
    assert done.returncode != 0 and "minimum 5 is above maximum 4" in done.stderr


CALLS = r"""
#include <dmr.h>
#include <stdio.h>
#include <string.h>

static const char *step;

static void expect(int good)
{
    if (!good) {
        fprintf(stderr, "WRONG: %s (%s)\n", step, dmr_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int count, char **words)
{
    enum { ROWS = 11, WIDTH = 3 };
    int rank, size, new_size;
    int64_t start, end;
    char block[ROWS * WIDTH], text[6] = "";
    dmr_handler *handler;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    dmr_block_bounds(ROWS, size, rank, &start, &end);
    if ((handler = dmr_inherited(MPI_COMM_WORLD))) {
        step = "sides and lengths";
        expect(dmr_size_before(handler) == 2 && dmr_send(handler, text, 1) == DMR_ERROR);
        expect(dmr_receive(handler, text, 5) == DMR_ERROR && strstr(dmr_error(), "between 5 and 6"));
        expect(dmr_receive(handler, text, 6) == DMR_ERROR && strstr(dmr_error(), "the function called"));
        expect(dmr_receive_blocks(handler, block, ROWS, WIDTH + 1) == DMR_ERROR);
        step = "what moves";
        expect(dmr_receive(handler, text, 6) == 0 && strcmp(text, "hello") == 0);
        expect(dmr_receive(handler, text, 0) == 0 && dmr_receive_blocks(handler, block, 0, 8) == 0);
        expect(dmr_receive_blocks(handler, block, ROWS, 0) == 0);
        expect(dmr_receive_blocks(handler, block, ROWS, WIDTH) == 0);
        for (int64_t i = start * WIDTH; i < end * WIDTH; i++)
            expect(block[i - start * WIDTH] == (char)i);
        dmr_finish(handler);
        if (rank == 0)
            puts("all well");
        MPI_Finalize();
        return 0;
    }
    step = "arguments";
    expect(dmr_check_status(MPI_COMM_WORLD, 4, 2, 1, 0, &new_size, &handler) == DMR_ERROR && !handler);
    expect(strcmp(dmr_error(), "minimum 4 is above maximum 2") == 0);
    expect(dmr_check_status(MPI_COMM_WORLD, 0, 2, 1, 0, &new_size, &handler) == DMR_ERROR);
    expect(dmr_check_status(MPI_COMM_WORLD, 1, 2, 0, 0, &new_size, &handler) == DMR_ERROR);
    expect(dmr_check_status(MPI_COMM_WORLD, 1, 2, 1, 3, &new_size, &handler) == DMR_ERROR);
    expect(dmr_check_status(MPI_COMM_WORLD, 1, 2 + rank, 1, 0, &new_size, &handler) == DMR_ERROR);
    expect(strstr(dmr_error(), "maximum must be the same on all ranks: it is between 2 and 3") != NULL);
    expect((rank ? dmr_check_status : dmr_icheck_status)(MPI_COMM_WORLD, 1, 2, 1, 0, &new_size, &handler) == DMR_ERROR);
    step = "a resize";
    expect(dmr_check_status(MPI_COMM_WORLD, 1, 4, 1, 0, &new_size, &handler) == DMR_EXPAND && handler && new_size == 3);
    expect(dmr_receive(handler, text, 1) == DMR_ERROR);
    expect(dmr_send(handler, "hello", 6) == DMR_ERROR);
    expect(dmr_send_blocks(handler, block, ROWS, WIDTH) == DMR_ERROR);
    expect(dmr_send_blocks(handler, block, ROWS, WIDTH) == DMR_ERROR);
    for (int64_t i = start * WIDTH; i < end * WIDTH; i++)
        block[i - start * WIDTH] = (char)i;
    expect(dmr_send(handler, "hello", 6) == 0 && dmr_send(handler, NULL, 0) == 0);
    expect(dmr_send_blocks(handler, block, 0, 8) == 0 && dmr_send_blocks(handler, block, ROWS, 0) == 0);
    expect(dmr_send_blocks(handler, block, ROWS, WIDTH) == 0);
    dmr_finish(handler);
    MPI_Finalize();
    return 0;
}
"""


def test_every_call(mpirun, tmp_path: Path, key: credential.Key, program: str) -> None:
    """Wrong arguments, sides and lengths are told to all; what was refused moves nothing and can be repeated."""
    folder = Path(program).parent
    (tmp_path / "calls.c").write_text(CALLS)
    compiler = [str(Path(sys.executable).parent / "mpicc"), "-Wall", "-Wextra", "-Werror", *SANITIZED.split()]
    words = [f"-I{SOURCES}", "calls.c", "-o", "calls", f"-L{folder}", f"-Wl,-rpath,{folder}", "-ldmr"]
    subprocess.run([*compiler, *words], cwd=tmp_path, check=True, timeout=100)
    with FakeAgent(key, [3], patience=0) as agent:
        done = mpirun(2, *BECOME, "./calls", agent=agent.address, **SANITIZER, DMR_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert "all well" in done.stdout and "AddressSanitizer" not in done.stderr
