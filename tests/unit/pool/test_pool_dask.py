"""A pool as a Dask cluster: what its members give to tasks of Dask's own clients."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

pytest.importorskip("distributed")

from test_pool_live import LIMIT, Live, gated, live

from penstock.errors import AgentUnavailable
from penstock.tools.dask import client
from penstock_pool.model import Capacity

__all__ = ["live"]


@pytest.mark.parametrize(
    ("cores", "held", "threads"),
    [(4.0, 0.0, 4), (4.0, 1.5, 2), (4.0, 0.1 + 0.2 + 0.7, 3), (2.0, 3.0, 0), (0.5, 0.0, 1), (0.5, 0.5, 0), (2.7, 0, 2)],
)
def test_a_thread_for_each_core_that_is_left(cores: float, held: float, threads: int):
    assert Capacity(cores).threads(held) == threads


def test_tasks_of_dask_have_the_cores_that_tasks_of_the_pool_do_not_hold(live: Live, monkeypatch):
    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    with pytest.raises(AgentUnavailable, match="there is no pool 'main'"):
        client()
    live.start()
    live.join(3)
    place = live.work

    def mark(number: int) -> int:  # in here, so that it is sent whole
        (place / f"begun-{number}").touch()
        while not (place / f"go-{number}").exists():
            time.sleep(0.05)
        return number

    def begun() -> int:
        return len(list(place.glob("begun-*")))

    def go(*numbers: int) -> None:
        for number in numbers:
            (place / f"go-{number}").touch()

    with client(set_as_default=False) as dask:
        assert sum(dask.ncores().values()) == 3
        first = dask.map(mark, range(3), pure=False)
        live.until(lambda: begun() == 3)
        live.submit([{**gated(live, "gate"), "cores": 2}])
        live.until(lambda: live.status()["tasks"]["waiting"] == 1)
        go(0)
        live.until(lambda: first[0].status == "finished")
        assert live.status()["tasks"]["waiting"] == 1, "two of three cores are Dask's still"
        go(1)
        live.until(lambda: live.status()["tasks"]["running"] == 1)
        live.until(lambda: sum(dask.ncores().values()) == 1)
        go(2)
        assert dask.gather(first) == [0, 1, 2]
        second = dask.map(mark, range(10, 16), pure=False)
        live.until(lambda: begun() == 4)
        live.until(lambda: live.status()["others"] == {"running": 1, "waiting": 5})
        (member,) = live.status()["members"]
        assert (member["busy"], member["running"]) == (3.0, 1)
        assert begun() == 4, "two cores are held"
        (place / "gate").touch()
        live.until(lambda: begun() == 6)  # three of six
        go(*range(10, 16))
        assert dask.gather(second) == list(range(10, 16))
        # All cores held: nothing of Dask's begins.
        (place / "gate").unlink()
        live.submit([gated(live, "gate")] * 3)
        live.until(lambda: live.status()["tasks"]["running"] == 3)
        third = dask.submit(mark, 20, pure=False)
        go(20)
        live.until(lambda: live.status()["others"]["waiting"] == 1)
        assert begun() == 9
        (place / "gate").touch()
        assert third.result(LIMIT) == 20


@pytest.mark.long
def test_a_member_that_joins_later_takes_from_what_waits_on_others(live: Live, monkeypatch):
    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    live.start()
    live.join(1)
    place = live.work

    def mark(number: int) -> int:
        (place / f"begun-{number}").touch()
        while not (place / "go").exists():
            time.sleep(0.05)
        return number

    with client(set_as_default=False) as dask:
        tasks = [dask.submit(mark, number, key=f"mark-{number}") for number in range(6)]
        live.until(lambda: live.status()["others"] == {"running": 1, "waiting": 5})
        live.join(1)
        live.until(lambda: len(list(place.glob("begun-*"))) == 2)
        (place / "go").touch()
        assert dask.gather(tasks) == list(range(6))


@pytest.mark.parametrize("scheduler_has_it", [False, True])
def test_a_function_whose_package_is_missing_fails_and_says_so(live: Live, monkeypatch, scheduler_has_it: bool):
    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    mine = live.work / "mine"
    mine.mkdir()
    (mine / "only_here.py").write_text("def double(x):\n    return 2 * x\n")
    if scheduler_has_it:
        live.environment["PYTHONPATH"] = str(mine)
    live.start()
    live.environment.pop("PYTHONPATH", None)
    live.join(1)
    monkeypatch.syspath_prepend(str(mine))
    monkeypatch.delitem(sys.modules, "only_here", raising=False)
    import only_here

    with client(set_as_default=False) as dask:
        (member,) = live.status()["members"]
        with pytest.raises(Exception) as said:
            dask.submit(only_here.double, 1).result(LIMIT)
        assert dask.submit(int, "7").result(LIMIT) == 7, "nobody else is harmed"
    error = said.value if scheduler_has_it else said.value.__cause__
    assert isinstance(error, ModuleNotFoundError) and "only_here" in str(error)
    assert [m["address"] for m in live.status()["members"]] == [member["address"]]


@pytest.mark.long
def test_other_releases_of_a_library_are_told_of(live: Live):
    """By Dask, which asks each side's Python what is installed."""
    live.start()
    live.join(1)
    other = live.work / "other" / "cloudpickle-3.0.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: cloudpickle\nVersion: 3.0.0\n")
    program = "from penstock.tools.dask import client\nwith client() as dask: print(dask.submit(int, '7').result())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**live.environment, "PYTHONPATH": str(other.parent)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == "7\n"
    assert "Mismatched versions found" in done.stderr
    assert "| cloudpickle | 3.0.0" in done.stderr
