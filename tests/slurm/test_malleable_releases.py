"""A real MPI job grows and shrinks on other releases of Slurm: by the merge, and by a companion under Contain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from malleable import Agent, Jacobi, assert_nothing_left, mergeable, until

from penstock_lab.cluster import Cluster, ClusterSpec, up

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.mpi,
    pytest.mark.release,
    pytest.mark.long,
    pytest.mark.timeout(900, func_only=True),
]


@pytest.fixture(scope="module", params=[(r, c) for r in ("trixie", "sid") for c in (False, True)], ids=str)
def another(
    request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None], new_folder: Callable[[str], Path]
) -> Iterator[Cluster]:
    release, contain = request.param
    need_slurm(release)
    it = up(ClusterSpec(nodes=8, folder=new_folder(f"m{release}{contain:d}"), release=release, contain=contain))
    yield it
    it.down()


@pytest.mark.parametrize("way", ["companion", "merge"])
def test_grows_shrinks_for_a_waiting_job_and_grows_again(another: Cluster, way: str) -> None:
    if way == "merge":
        if another.spec.contain:
            pytest.skip("under PrologFlags=Contain nothing can be merged")
        mergeable(another)
    agent = Agent(another, malleable={"backend": "auto" if way == "companion" else way})
    try:
        agent.start()
        jacobi = Jacobi(agent, pause=0.15)
        until("it has grown", lambda: agent.resizes("expand", jacobi.id), 200)
        assert jacobi.nodes() == (2 if way == "companion" else 4)
        wide = ["sbatch", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 3"]
        another.run_as("bob", wide, check=True)
        until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id), 200)
        jacobi.assert_exact()
        assert jacobi.sizes()[:3] == [2, 4, 2]
        assert_nothing_left(another)
    finally:
        agent.stop()
        print(agent.log.read_text()[-6000:])
