"""Worlds come and go, with and without the launcher, and whatever happens to those that are about to join."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

WALKING = str(Path(__file__).parent / "walking.py")
Run = Callable[..., subprocess.CompletedProcess[str]]


def places(done: subprocess.CompletedProcess[str]) -> list[int]:
    """The sizes by the places' numbers: processes of several launchers print them, each in its own time."""
    told = [line.split() for line in done.stdout.split("\n") if line.startswith("place")]
    return [int(size) for _, _number, size, *_ in sorted(told, key=lambda words: int(words[1]))]


def random_walk(length: int, seed: int) -> list[str]:
    """Nodes n1 to n4 in any number and order; n1 is the batch host and stays."""
    rng = random.Random(seed)
    steps: list[str] = []
    while len(steps) < length:
        others = rng.sample(["n2", "n3", "n4"], rng.randint(0, 3))
        at = rng.randint(0, len(others))
        steps.append("1:" + ",".join([*others[:at], "n1", *others[at:]]))
    return steps


@pytest.mark.parametrize(
    ("method", "launched"),
    [
        pytest.param("merge", False, marks=pytest.mark.long),
        ("merge", True),
        pytest.param("replace", True, marks=pytest.mark.long),
    ],
    ids=["merge-spawn", "merge-ports", "replace-ports"],
)
def test_there_and_back(mpirun: Run, launched: bool, method: str) -> None:
    way = ["1:n1,n2,n3", "1:n1,n3", "2:n1,n2", "2:n2,n1,n4", "1:n1"]
    done = mpirun(2, WALKING, method, *way, launched=launched, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [2, 3, 2, 4, 6, 1]


@pytest.mark.parametrize("launched", [pytest.param(False, marks=pytest.mark.long), True], ids=["spawn", "ports"])
def test_merging_twenty_times_in_a_row(mpirun: Run, launched: bool) -> None:
    way = random_walk(20, seed=7)
    done = mpirun(1, WALKING, "merge", *way, launched=launched, options=["-hosts", "n1"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [1, *(len(step.split(",")) for step in way)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("launched", [False, True], ids=["spawn", "ports"])
@pytest.mark.parametrize("method", ["replace", "merge"])
def test_a_hundred_random_resizes(mpirun: Run, launched: bool, method: str) -> None:
    way = random_walk(100, seed=11)
    done = mpirun(1, WALKING, method, *way, launched=launched, options=["-hosts", "n1"], time_limit=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [1, *(len(step.split(",")) for step in way)]


# What happens to a new process before it has joined, or while data moves: in a place of the program `walking`.
DEATHS = {
    "before MPI is up": "import os\nif os.environ.get('DMR_TICKET'): os._exit(3)\n",
    "killed before MPI is up": "import os\nif os.environ.get('DMR_TICKET'): os.kill(os.getpid(), 9)\n",
    "never comes up": "import os, time\nif os.environ.get('DMR_TICKET'): time.sleep(1000)\n",
    "before the port is open": """
import os
from dmr import joining, line
def dies(*a, **k): os.kill(os.getpid(), 9)
if os.environ.get("DMR_TICKET"): line.ask = dies
""",
    "does not accept": """
import time
from dmr import joining
joining._CONNECT_LIMIT = 3
joining._accept = lambda comm, port: time.sleep(1000)
""",
    "after it was accepted": """
import os
from dmr import joining
joining._CONNECT_LIMIT = 3
def dies(comm, port):
    comm.Accept(port)
    os.kill(os.getpid(), 9)
joining._accept = dies
""",
    "when data has moved": """
import os
from dmr import transition
def dies(self, problem=None): os.kill(os.getpid(), 9)
if os.environ.get("DMR_TICKET"): transition.Transition.complete = dies
""",
}


QUICK = ("before MPI is up", "never comes up", "after it was accepted", "when data has moved")


@pytest.mark.parametrize(
    ("death", "method"),
    [pytest.param(death, "merge", marks=[] if death in QUICK else pytest.mark.long) for death in DEATHS]
    + [("when data has moved", "replace")],
)
@pytest.mark.few(3)
def test_a_new_process_dies_and_nothing_has_happened(mpirun: Run, tmp_path: Path, death: str, method: str) -> None:
    program = tmp_path / "broken.py"
    program.write_text(DEATHS[death] + f"exec(compile(open({WALKING!r}).read(), {WALKING!r}, 'exec'))\n")
    done = mpirun(
        2,
        str(program),
        method,
        "1:n1,n2,n3,n4",
        launched=True,
        options=["-hosts", "n1,n2", "-ppn", "1"],
        DMR_START_TIMEOUT="5",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [2, 2]
    assert "stays:" in done.stdout or "lost:" in done.stdout


def test_the_death_of_one_world_ends_all(mpirun: Run, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(
        "import os\nfrom dmr import transition\nfrom mpi4py import MPI\nhonest = transition.Transition.complete\n"
        "def dies(self, problem=None):\n"
        "    comm = honest(self, problem)\n"
        "    if os.environ.get('DMR_TICKET'): os._exit(7)\n"
        "    return comm\n"
        "transition.Transition.complete = dies\n" + f"exec(compile(open({WALKING!r}).read(), {WALKING!r}, 'exec'))\n"
    )
    done = mpirun(1, str(program), "merge", "1:n1,n2", launched=True, options=["-hosts", "n1"])
    assert done.returncode == 7, done.stdout + done.stderr


def test_the_launcher_is_gone(mpirun: Run, tmp_path: Path) -> None:
    done = mpirun(
        1, WALKING, "merge", "1:n1,n2", options=["-hosts", "n1"], DMR_LAUNCHER="127.0.0.1:1", DMR_LAUNCHER_SECRET="x"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [1, 1] and "stays: the launcher does not answer" in done.stdout


def test_the_launcher_ends_as_its_program_does(mpirun: Run) -> None:
    assert mpirun(2, "-c", "raise SystemExit(9)", launched=True).returncode == 9


@pytest.mark.long
def test_restarting_there_and_back(mpirun: Run, tmp_path: Path) -> None:
    way = ["1:n1,n2,n3", "2:n1,n2", "1:n1"]
    done = mpirun(2, WALKING, "restart", *way, launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [2, 3, 4, 1]
    assert not list(tmp_path.glob(".dmr-checkpoint*")), "nothing is left"


# What they do, what is said of it, and how long they are waited for: not at all where they end by themselves.
RESTARTS = {
    "the new ranks fail": ("os._exit(3)", "went back: the new processes ended with code 3", "60"),
    "the new ranks never come up": ("time.sleep(1000)", "went back:", "6"),
}


@pytest.mark.parametrize("way", ["1:n1,n2,n3,n4", "1:n1"], ids=["growing", "shrinking"])
@pytest.mark.parametrize(
    "failure", ["the new ranks fail", pytest.param("the new ranks never come up", marks=pytest.mark.long)]
)
def test_a_failed_restart_goes_back(mpirun: Run, tmp_path: Path, failure: str, way: str) -> None:
    program = tmp_path / "broken.py"
    action, said, patience = RESTARTS[failure]
    program.write_text(
        "import os, time\n"
        f"if os.environ.get('DMR_RESTARTED') and not os.environ.get('DMR_RESTART_FAILED'): {action}\n"
        f"exec(compile(open({WALKING!r}).read(), {WALKING!r}, 'exec'))\n"
    )
    options = ["-hosts", "n1,n2", "-ppn", "1"]
    done = mpirun(2, str(program), "restart", way, launched=True, options=options, DMR_START_TIMEOUT=patience)
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [2, 2] and said in done.stdout
    assert not list(tmp_path.glob(".dmr-checkpoint*"))


def test_the_answer_to_a_restart_is_lost(mpirun: Run, tmp_path: Path) -> None:
    """The ranks go on, so the launcher must not start them again when they have ended."""
    program = tmp_path / "broken.py"
    program.write_text(
        "from dmr import line\nhonest = line.ask\n"
        "def lost(limit, /, **request):\n"
        "    answer = honest(limit, **request)\n"
        "    if request['op'] == 'restart': raise line.LineError('no answer in time')\n"
        "    return answer\n"
        "line.ask = lost\n" + f"exec(compile(open({WALKING!r}).read(), {WALKING!r}, 'exec'))\n"
    )
    done = mpirun(2, str(program), "restart", "1:n1", launched=True, options=["-hosts", "n1,n2", "-ppn", "1"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [2, 2] and "lost: no answer in time" in done.stdout
    assert not done.stderr and not list(tmp_path.glob(".dmr-checkpoint*"))


def test_a_checkpoint_that_others_could_write_is_refused(mpirun: Run, tmp_path: Path) -> None:
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o777)
    done = mpirun(1, WALKING, "restart", "1:n1,n2", launched=True, DMR_CHECKPOINT_DIR=str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert places(done) == [1, 1] and "nobody else may write there" in done.stdout


@pytest.mark.parametrize("method", ["merge", pytest.param("restart", marks=pytest.mark.long)])
def test_new_processes_find_what_the_first_ones_found(mpirun: Run, tmp_path: Path, method: str) -> None:
    """Folder, virtual environment, modules, threads and binding are those of the start."""
    options = ["-hosts", "n1", "-ppn", "2", "-bind-to", "core", "-genv", "OMP_NUM_THREADS", "3"]
    surroundings = {"WALK_SURROUNDINGS": "1", "VIRTUAL_ENV": "/some/venv", "LOADEDMODULES": "gcc/12:openblas"}
    done = mpirun(2, WALKING, method, "2:n1,n2", launched=True, options=options, **surroundings)
    assert done.returncode == 0, done.stdout + done.stderr
    first, later = (json.loads(text.split(maxsplit=2)[2]) for text in done.stdout.splitlines() if text[:4] == "surr")
    assert [seen[1] for seen in first] == [str(tmp_path)] * 2
    assert [seen[3:] for seen in first] == [["/some/venv", "gcc/12:openblas", "3"]] * 2
    # Each world binds its ranks as on a node of its own.
    assert later == sorted(first * 2)
