"""Expected starts on a small log: what is seen of it at an instant, what limits promise, and the chapter."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from penstock_lab.papers import provision_world, starts
from penstock_lab.papers.provision_world import SiteLog
from penstock_lab.papers.starts import Replayed, expectations

PROCS = 8


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """400 jobs of three users, each of whom uses a share of the limits of their own; the machine is nearly full."""
    rng, at, lines = random.Random(3), 0, [f"; MaxProcs: {PROCS}"]
    for number in range(1, 401):
        at += rng.randint(0, 500)
        user = rng.randint(1, 3)
        limit, nodes = 60 * rng.randint(5, 60), rng.randint(1, 5)
        run = max(1, round(limit * user / 4))
        lines.append(f"{number} {at} 0 {run} {nodes} -1 -1 {nodes} {limit} -1 1 {user} 1 -1 1 -1 -1 -1")
    path = tmp_path_factory.mktemp("logs") / "tiny.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_at_a_submission_only_what_had_happened_is_seen(log):
    seen = Replayed(log, PROCS)
    which = seen.waiting()
    assert len(which) > 60
    for i in which:
        now, present, past = seen.submits[i], seen.present(i), seen.past(i)
        assert present.free[0] + sum(job.cells[0] for job in present.running) == PROCS
        assert all(job.start < now for job in present.running)
        assert len(present.running) + len(present.waiting) <= i
        assert all(job.submit <= now for job in past.jobs)
        ended = sum(seen.end(j) <= now for j in range(len(seen.jobs)))
        assert len(past.used) == ended and set(past.by_user) <= {"1", "2", "3"}


def test_the_likely_start_is_nearer_than_what_limits_promise(log):
    seen = Replayed(log, PROCS)
    which = seen.waiting()[20:60:3]
    found = list(expectations(seen, which))
    assert [e.start for e in found] == [seen.starts[i] for i in which]
    assert all(a.submit <= b.submit for a, b in pairwise(found))
    assert all(e.band.low <= e.band.likely <= e.band.high for e in found)
    promised = sum(abs(e.guaranteed - e.start) for e in found)
    assert sum(abs(e.band.likely - e.start) for e in found) < 0.5 * promised
    assert sum(e.band.low - 1 <= e.start <= e.band.high + 1 for e in found) >= 0.5 * len(found)


def test_the_chapter(log, monkeypatch):
    for module in (starts, provision_world):
        monkeypatch.setattr(module, "SITES", {"tiny": SiteLog("tiny", PROCS, 1, 1)})
    monkeypatch.setattr(starts, "traces", lambda: [log])
    said = []
    chapter = starts.starts(None, said.append, 2)
    (row,) = chapter.rows
    assert (row["site"], row["jobs"]) == ("tiny", 8) and said == ["starts: tiny"]
    assert row["likely"] < row["by_limits"] and 0 <= row["cover_drawn"] <= 1
    assert len(chapter.goals) == 3 and len(chapter.tables[0].rows) == 1
