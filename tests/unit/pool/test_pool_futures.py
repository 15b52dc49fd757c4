"""`PoolExecutor` does what users of `concurrent.futures` may expect of an executor: what Python's own are tested for,
and where it differs, as its page says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Executor,
    Future,
    as_completed,
    wait,
)
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from test_pool_live import LIMIT, Live

from penstock.errors import PenstockError
from penstock_pool.callfiles import MemberTraceback
from penstock_pool.futures import PoolExecutor


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One pool for all of these."""
    it = Live(tmp_path_factory.mktemp("pool"))
    it.start()
    it.join(4)
    yield it
    it.down()


@pytest.fixture
def place(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def executor(place: Path) -> Iterator[PoolExecutor]:
    with PoolExecutor(task={"cores": 0.5}) as it:
        yield it
        it.shutdown(cancel_futures=True)  # what has no gate to go through


# Sent as they are: a module of tests is not there on a member.


def gated(value: object, gate: str) -> object:
    """`value`, once there is a file of that name."""
    import time
    from pathlib import Path

    while not Path(gate).exists():
        time.sleep(0.02)
    return value


def pick(*args: object, **kwargs: object) -> tuple[object, ...]:
    return (*args, *sorted(kwargs.items()))


def process_of(_: object) -> int:
    import os

    return os.getpid()


def divide(a: float, b: float) -> float:
    return a / b


@pytest.fixture(autouse=True)
def sent_by_value() -> Iterator[None]:
    import cloudpickle

    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)
    yield
    cloudpickle.unregister_pickle_by_value(here)


# -- submit ------------------------------------------------------------------------------------------------------------


def test_it_is_an_executor(executor: PoolExecutor):
    assert isinstance(executor, Executor)
    future = executor.submit(pow, 2, 8)
    assert isinstance(future, Future)
    assert future.result(LIMIT) == 256
    assert (future.done(), future.cancelled(), future.exception()) == (True, False, None)


def test_arguments_by_any_name(executor: PoolExecutor):
    future = executor.submit(pick, 1, self=2, fn=3, task=4)
    assert future.result(LIMIT) == (1, ("fn", 3), ("self", 2), ("task", 4))
    with pytest.raises(TypeError):
        executor.submit()
    with pytest.raises(TypeError):
        executor.submit(fn=pick)


def test_each_call_has_a_process_of_its_own(executor: PoolExecutor):
    mine, others = os.getpid(), [executor.submit(os.getpid) for _ in range(2)]
    assert len({mine, *(one.result(LIMIT) for one in others)}) == 3


def test_what_cannot_be_sent_is_said_at_once(executor: PoolExecutor):
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(len, sys.stdout.buffer if hasattr(sys.stdout, "buffer") else (x for x in ()))
    assert executor.submit(int, "7").result(LIMIT) == 7


def test_what_cannot_be_sent_back_is_said(executor: PoolExecutor):
    with pytest.raises(Exception, match="pickle"):
        executor.submit(eval, "(x for x in ())").result(LIMIT)


def test_an_exception_is_raised_where_the_result_is_asked_for(executor: PoolExecutor):
    future = executor.submit(divide, 1, 0)
    with pytest.raises(ZeroDivisionError):
        future.result(LIMIT)
    assert isinstance(future.exception(), ZeroDivisionError)


def test_it_says_where_on_the_member_it_was_raised(executor: PoolExecutor):
    error = executor.submit(divide, 1, 0).exception(LIMIT)
    assert isinstance(error, ZeroDivisionError)
    assert isinstance(error.__cause__, MemberTraceback)
    assert ", in divide" in error.__cause__.tb


def test_what_ends_a_program_is_raised_where_the_result_is_asked_for(executor: PoolExecutor):
    ended = executor.submit(sys.exit, 3).exception(LIMIT)
    assert isinstance(ended, SystemExit)
    assert ended.code == 3


def test_a_result_that_is_false_is_one(executor: PoolExecutor):
    assert list(executor.map(pick, [])) == []
    assert [executor.submit(kind).result(LIMIT) for kind in (bool, str, dict)] == [False, "", {}]


def test_a_process_that_dies_breaks_its_own_call_alone(executor: PoolExecutor):
    dead, well = executor.submit(os._exit, 7), executor.submit(int, "7")
    with pytest.raises(PenstockError, match="exit code 7"):
        dead.result(LIMIT)
    assert well.result(LIMIT) == 7


# -- map ---------------------------------------------------------------------------------------------------------------


def test_map_keeps_the_order_and_stops_at_the_shortest(executor: PoolExecutor, place: Path):
    late = executor.map(gated, [0, 1, 2], ["gate-0", "gate-1", "gate-2", "never"])
    for number in (2, 1, 0):
        (place / f"gate-{number}").touch()
    assert list(late) == [0, 1, 2]
    assert list(executor.map(pow, [2, 3], [3, 2], chunksize=2)) == [8, 9]
    assert list(executor.map(pow, [], [])) == []


def test_map_makes_one_task_of_a_chunk(executor: PoolExecutor):
    own = list(executor.map(process_of, range(5), chunksize=3))
    assert (len(set(own[:3])), len(set(own[3:])), len(set(own))) == (1, 1, 2)
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(process_of, range(5), chunksize=0)


def test_map_raises_in_its_turn(executor: PoolExecutor):
    found = executor.map(divide, [4, 4, 4], [2, 0, 1])
    assert next(found) == 2
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_map_gives_up_after_its_timeout(executor: PoolExecutor, place: Path):
    (place / "there").touch()
    found = executor.map(gated, [0, 1], ["there", "gate-1"], timeout=5)
    assert next(found) == 0
    with pytest.raises(TimeoutError):
        next(found)


# -- wait and as_completed ---------------------------------------------------------------------------------------------


def test_wait_for_the_first_the_first_failure_and_all(executor: PoolExecutor, place: Path):
    late = executor.submit(gated, 1, "gate-1")
    soon = executor.submit(int, "7")
    assert wait([late, soon], LIMIT, FIRST_COMPLETED) == ({soon}, {late})
    assert wait([late, soon], 0.1, ALL_COMPLETED) == ({soon}, {late})
    bad = executor.submit(divide, 1, 0)
    assert wait([late, bad], LIMIT, FIRST_EXCEPTION) == ({bad}, {late})
    (place / "gate-1").touch()
    assert wait([late, soon, bad], LIMIT) == ({late, soon, bad}, set())


def test_as_completed_yields_each_once_as_it_ends(executor: PoolExecutor, place: Path):
    first, second = executor.submit(gated, 1, "gate-1"), executor.submit(gated, 2, "gate-2")
    ended = as_completed([first, second, first], LIMIT)
    (place / "gate-2").touch()
    assert next(ended) is second
    (place / "gate-1").touch()
    assert list(ended) == [first]
    late = executor.submit(gated, 3, "gate-3")
    with pytest.raises(TimeoutError):
        list(as_completed([late, second], 0.1))


def test_a_result_is_waited_for_no_longer_than_said(executor: PoolExecutor):
    with pytest.raises(TimeoutError):
        executor.submit(gated, 1, "gate-1").result(0.1)


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_once_in_their_order(executor: PoolExecutor, place: Path):
    future = executor.submit(gated, 1, "gate-1")
    told: list[tuple[str, Future]] = []
    future.add_done_callback(lambda it: told.append(("a", it)))
    future.add_done_callback(lambda it: 1 / 0)  # is logged, and hinders nobody
    future.add_done_callback(lambda it: told.append(("b", it)))
    (place / "gate-1").touch()
    assert future.result(LIMIT) == 1
    executor.submit(int).result(LIMIT)
    future.add_done_callback(lambda it: told.append(("late", it)))
    assert told == [("a", future), ("b", future), ("late", future)]


# -- cancel ------------------------------------------------------------------------------------------------------------


def test_what_is_cancelled_has_no_result_and_what_has_ended_cannot_be(executor: PoolExecutor, live: Live, place: Path):
    future = executor.submit(gated, 1, "gate-1")
    live.until(lambda: live.status()["tasks"]["running"] == 1)
    told: list[Future] = []
    future.add_done_callback(told.append)
    assert future.cancel() and future.cancel(), "also while it runs: its process is ended"
    assert (future.cancelled(), future.done(), told) == (True, True, [future])
    with pytest.raises(CancelledError):
        future.result(LIMIT)
    live.until(lambda: live.status()["tasks"]["running"] == 0)
    ended = executor.submit(int)
    ended.result(LIMIT)
    assert not ended.cancel() and not ended.cancelled()


# -- the end -----------------------------------------------------------------------------------------------------------


def test_shutdown_waits_and_takes_no_more(place: Path):
    executor = PoolExecutor()
    futures = [executor.submit(time.sleep, 0.2) for _ in range(6)]
    executor.shutdown()
    assert all(future.done() and future.exception() is None for future in futures)
    executor.shutdown()
    for late in (lambda: executor.submit(int), lambda: list(executor.map(int, ["1"]))):
        with pytest.raises(RuntimeError, match="after shutdown"):
            late()


def test_shutdown_that_does_not_wait_leaves_the_calls_their_ends(place: Path):
    executor = PoolExecutor()
    future = executor.submit(gated, 1, "gate-1")
    executor.shutdown(wait=False)
    assert not future.done()
    (place / "gate-1").touch()
    assert future.result(LIMIT) == 1


def test_shutdown_can_cancel(place: Path, live: Live):
    executor = PoolExecutor()
    futures = [executor.submit(gated, n, "never") for n in range(9)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    live.until(lambda: not live.status()["tasks"]["running"] + live.status()["tasks"]["waiting"])


def test_an_error_within_the_context_still_waits_for_the_calls(place: Path):
    with pytest.raises(KeyError), PoolExecutor() as executor:
        future = executor.submit(int, "7")
        raise KeyError
    assert future.done()


def test_a_program_that_ends_without_shutdown_waits_for_its_calls(place: Path, live: Live):
    program = (
        "import atexit\n"
        "from penstock_pool.futures import PoolExecutor\n"
        "pool = PoolExecutor()\n"
        "future = pool.submit(int, '7')\n"
        "future.add_done_callback(lambda it: print(it.result(), flush=True))\n"
        "def late():\n"
        "    try:\n        pool.submit(int)\n"
        "    except RuntimeError as e:\n        print(e)\n"
        "atexit.register(late)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=live.environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.returncode, done.stdout) == (0, "7\ncannot schedule new futures after shutdown\n"), done.stderr
