"""Real logs: the walk never looks ahead, and every predictor is judged on the same jobs."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import UserError
from penstock.waits.learners.queue_view import FEATURES
from penstock_lab.papers import logs
from penstock_lab.papers.queue_log import Submitted, read, walk

HEADER = "; Version: 2.2\n; MaxProcs: 16\n"


def line(number, submit, wait, run, procs, limit, user=1, queue=1) -> str:
    return f"{number} {submit} {wait} {run} {procs} -1 -1 {procs} {limit} -1 1 {user} 1 1 {queue} 1 -1 -1\n"


def log(folder: Path, *jobs: tuple[int, ...], header: str = HEADER, name: str = "a.swf") -> Path:
    path = folder / name
    path.write_text(header + "".join(line(i, *job) for i, job in enumerate(jobs, start=1)))
    return path


def numbers(event: Submitted) -> dict[str, float]:
    return dict(zip(FEATURES, event.view.features, strict=True))


def test_a_walk_by_hand(tmp_path):
    """Job 0 runs at once from 0 to 100; job 1 waits 90 s for it; job 2 never runs and goes at 60; job 3 sees the end.

    At 100, an end, a start and a submission fall together: they come in this order.
    """
    path = log(tmp_path, (0, 0, 100, 16, 200), (10, 90, 50, 16, 60), (20, 40, 0, 4, 500), (100, 50, 10, 16, 60))
    jobs, size = read(path)
    assert size == 16 and len(jobs) == 4
    events = list(walk(jobs, size))
    assert [(type(e).__name__, e.job) for e in events] == [
        ("Submitted", 0),
        ("Started", 0),
        ("Submitted", 1),
        ("Submitted", 2),
        ("Started", 1),
        ("Submitted", 3),
    ]
    views = {e.job: e for e in events if isinstance(e, Submitted)}
    assert views[0].view.planned == 0
    assert views[1].view.planned == 190, "by the limit of job 0, not by its real end"
    assert numbers(views[2])["waiting"] == 1 and views[2].view.planned == 180 + 60
    assert numbers(views[3])["waiting"] == 0 and numbers(views[3])["running"] == 1
    assert views[3].view.planned == 60


def test_unusable_records_are_left_out_and_unusable_logs_refused(tmp_path):
    path = log(tmp_path, (0, 0, 10, 4, 60), (1, -1, 10, 4, 60), (2, 0, 10, 32, 60), (3, 0, 10, 4, -1))
    assert len(read(path)[0]) == 1
    with pytest.raises(UserError, match="MaxProcs"):
        read(log(tmp_path, (0, 0, 10, 4, 60), header="", name="b.swf"))
    with pytest.raises(UserError, match="no job"):
        read(log(tmp_path, (0, -1, 10, 4, 60), name="c.swf"))
    with pytest.raises(UserError, match="cannot be read"):
        logs.find(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="no log"):
        logs.find(empty)


def crowded(folder: Path, jobs: int = 800) -> Path:
    """A machine served first come, first served, whose queue comes and goes: waits follow from the queue alone."""
    rng = np.random.default_rng(1)
    now, free_at, found = 0, 0, []
    for i in range(jobs):
        now += int(rng.exponential(40 if i // 100 % 2 else 160))
        start, run = max(now, free_at), int(rng.integers(10, 200))
        free_at = start + run
        found.append((now, start - now, run, 16, 200, int(rng.integers(1, 5))))
    return log(folder, *found, name="crowded.swf")


def test_the_queue_tells_more_than_history_and_all_are_judged_alike(tmp_path):
    rows = logs.measure(crowded(tmp_path))
    everybody = {r.predictor: r for r in rows if r.sizes == "all"}
    assert len({r.jobs for r in everybody.values()}) == 1
    assert everybody["queue"].error.value < min(everybody["last"].error.value, everybody["median"].error.value)
    assert everybody["share-mix"].error.value < everybody["median"].error.value
    assert everybody["share-mix"].pinball.value < everybody["last"].pinball.value
    assert len(everybody["last"].tenths) == 10 and min(everybody["last"].tenths) >= 0
    assert everybody["queue"].within_10 >= everybody["queue"].within_1
    assert logs.beyond(rows, everybody["queue"], "queue") == 0
    assert 0.7 < everybody["share-mix"].coverage.value <= 1, "few jobs, and a queue that keeps changing"
    assert {r.sizes for r in rows} == {"all", "16-31"}
    assert logs.ratio(rows, everybody["median"]) >= 1


@pytest.mark.skipif("PENSTOCK_TRACES" not in os.environ, reason="PENSTOCK_TRACES names no folder with logs")
@pytest.mark.long
def test_the_first_jobs_of_a_real_log(tmp_path):
    for path in logs.find(Path(os.environ["PENSTOCK_TRACES"])):
        with gzip.open(path, "rt") as whole:
            short = tmp_path / path.name.removesuffix(".gz")
            short.write_text("".join(next(whole) for _ in range(1500)))
        rows = {r.predictor: r for r in logs.measure(short) if r.sizes == "all"}
        assert rows["share-mix"].jobs > 1000
        assert rows["share-mix"].error.value < min(rows["last"].error.value, rows["median"].error.value)
