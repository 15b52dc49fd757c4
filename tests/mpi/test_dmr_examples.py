"""The example programs, resized by a scripted agent: their results are those of a run of fixed size."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential, wire

pytestmark = pytest.mark.mpi

HEAT = ("heat", "--rows=37", "--cols=23", "--steps=24")
NBODY = ("nbody", "--bodies=31", "--steps=24")
CG = ("cg", "--points=24", "--steps=24")
SLEEP = ("flexible_sleep", "--seconds=0.02", "--steps=24", "--megabytes=0.5")
LISTING = ("listing", "--numbers=64", "--steps=24")
COMMON = ("--out=result.npy", "--report=report.jsonl", "--max=8")


def run(mpirun, ranks: int, program: tuple[str, ...], *more: str, **options: str):
    done = mpirun(ranks, "-m", f"dmr.examples.{program[0]}", *program[1:], *COMMON, *more, **options)
    assert done.returncode == 0, done.stderr
    return done


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]


def sizes(folder: Path) -> list[int]:
    return [line["size"] for line in lines(folder) if line["event"] in ("start", "resized", "compute")]


def fixed(mpirun, tmp_path: Path, program: tuple[str, ...], ranks: int = 1) -> np.ndarray:
    run(mpirun, ranks, program)
    result = np.load(tmp_path / "result.npy")
    for name in ("result.npy", "report.jsonl"):
        (tmp_path / name).unlink()
    return result


@pytest.mark.parametrize(
    ("program", "path"),
    [
        pytest.param(HEAT, (3, 6, 4), marks=pytest.mark.long),
        (NBODY, (3, 2, 5)),
        pytest.param(LISTING, (4, 8, 2), marks=pytest.mark.long),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) else "",
)
def test_bit_for_bit(mpirun, tmp_path: Path, key: credential.Key, program: tuple[str, ...], path) -> None:
    expected = fixed(mpirun, tmp_path, program)
    factor = "--factor=2" if program is LISTING else "--factor=1"
    with FakeAgent(key, path) as agent:
        run(mpirun, 2, program, factor, agent=agent.address)
    assert agent.epoch == len(path)
    assert np.load(tmp_path / "result.npy").tobytes() == expected.tobytes()
    if program is LISTING:  # each process that begins a task says so on rank 0
        assert sizes(tmp_path) == [2, *path]
    else:
        assert sizes(tmp_path) == [2, *path]
        checks = agent.of(wire.Check)
        assert all(check.steps_left is not None and 1 <= check.steps_left <= 23 for check in checks)
        assert [c.steps_left for c in checks] == sorted((c.steps_left for c in checks), reverse=True)
        assert any(check.step_seconds for check in checks)


@pytest.mark.parametrize(
    ("program", "method"),
    [
        (HEAT, "merge"),
        (HEAT, "restart"),
        pytest.param(HEAT, "replace", marks=pytest.mark.long),
        pytest.param(NBODY, "merge", marks=pytest.mark.long),
        pytest.param(NBODY, "restart", marks=pytest.mark.long),
        pytest.param(LISTING, "replace", marks=pytest.mark.long),
        pytest.param(LISTING, "restart", marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_by_every_method_with_the_launcher(mpirun, tmp_path: Path, key: credential.Key, program, method: str) -> None:
    expected = fixed(mpirun, tmp_path, program)
    with FakeAgent(key, (4, 2)) as agent:
        launched = {"launched": True, "options": ["-hosts", "n1,n2", "-ppn", "1"]}
        done = mpirun(
            2,
            "-m",
            f"dmr.examples.{program[0]}",
            *program[1:],
            *COMMON,
            "--factor=2",
            agent=agent.address,
            DMR_METHOD=method,
            **launched,
        )
    assert done.returncode == 0, done.stderr
    assert agent.epoch == 2 and {c.method for c in agent.of(wire.Check)} == {method}
    assert np.load(tmp_path / "result.npy").tobytes() == expected.tobytes()


@pytest.mark.long
def test_heat_leaves_no_rank_without_a_place_on_the_plate(mpirun, tmp_path: Path, key: credential.Key) -> None:
    done = mpirun(4, "-m", "dmr.examples.heat", "--rows=1", "--cols=8", "--steps=3", time_limit=30)
    assert done.returncode == 2 and "a plate of 1 x 8 is for 1 rank at most" in done.stderr, done.stderr
    small = ("heat", "--rows=3", "--cols=1", "--steps=12")
    expected = fixed(mpirun, tmp_path, small)
    with FakeAgent(key, [3, 5]) as agent:
        run(mpirun, 1, small, "--factor=1", agent=agent.address, time_limit=60)
    assert agent.epoch == 1 and {check.maximum for check in agent.of(wire.Check)} == {3}
    assert "outside 1..3" in agent.of(wire.Refuse)[0].why
    assert np.load(tmp_path / "result.npy").tobytes() == expected.tobytes()


@pytest.mark.long
def test_conjugate_gradients_but_for_the_rounding(mpirun, tmp_path: Path, key: credential.Key) -> None:
    expected = fixed(mpirun, tmp_path, CG)
    with FakeAgent(key, (4, 3)) as agent:
        run(mpirun, 2, CG, "--factor=1", agent=agent.address)
    assert agent.epoch == 2
    result = np.load(tmp_path / "result.npy")
    assert np.abs(result - expected).max() <= 1e-10 * np.abs(expected).max()
    end = lines(tmp_path)[-1]
    assert end["event"] == "end" and end["residual"] > 1e-6, "a converged solution would hide lost steps"


@pytest.mark.long
def test_flexible_sleep_finds_its_data_in_place(mpirun, tmp_path: Path, key: credential.Key) -> None:
    with FakeAgent(key, (5, 2)) as agent:
        run(mpirun, 3, SLEEP, "--factor=1", agent=agent.address)
    assert agent.epoch == 2
    assert lines(tmp_path)[-1]["lost"] == 0


@pytest.mark.long
def test_flexible_sleep_asks_for_one_size_after_the_other(mpirun, tmp_path: Path, key: credential.Key) -> None:
    with FakeAgent(key, (4, 1, 3)) as agent:
        run(mpirun, 2, SLEEP, "--factor=1", "--sizes=4,1,3", "--steps=100000", agent=agent.address)
    assert agent.epoch == 3
    asked = [line["wanted"] for line in lines(tmp_path) if line["event"] == "asks"]
    assert asked == [4, 1, 3] and lines(tmp_path)[-1]["size"] == 3
    assert {(c.minimum, c.maximum) for c in agent.of(wire.Check) if c.size == 2} == {(4, 4)}


@pytest.mark.long
def test_asking_ahead(mpirun, tmp_path: Path, key: credential.Key) -> None:
    """The answer comes while a step runs; nothing waits for it, and the result is the same."""
    expected = fixed(mpirun, tmp_path, HEAT)
    with FakeAgent(key, (4, 2)) as agent:
        run(mpirun, 2, HEAT, "--factor=1", "--ahead", "--step-seconds=0.02", agent=agent.address)
    assert agent.epoch == 2
    assert np.load(tmp_path / "result.npy").tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("jacobi", (2, 32, 2, 8)),
        ("cg", (2, 32, 2, 8)),
        ("nbody", (1, 16, 2, 1)),
        ("flexible_sleep", (1, 20, 2, None)),
    ],
)
def test_the_papers_parameters(monkeypatch: pytest.MonkeyPatch, program: str, expected: tuple) -> None:
    """Table 1 of the DMR paper; what is said beside --paper counts more."""
    pytest.importorskip("mpi4py")
    import importlib

    from dmr.examples import common

    monkeypatch.setattr(os, "environ", {})
    paper = importlib.import_module(f"dmr.examples.{program}").PAPER
    options = common.parse(common.parser("x", "", 7), paper, ["--paper", "--max=64"])
    assert (options.min, options.factor, options.preferred) == (expected[0], *expected[2:])
    assert options.max == 64 and paper.maximum == expected[1]
    assert options.steps == (10_000 if program in ("jacobi", "cg") else 25)
    assert float(os.environ.get("DMR_INHIBITOR_SECONDS", 0)) == (15 if program in ("jacobi", "cg") else 0)
