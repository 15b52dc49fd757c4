"""Moldable jobs in pairs: programs are the same in every way, and the table is worked out from the windows."""

from __future__ import annotations

import json
import math

from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.paired.moldpairs import FOLLOWS, MoldOutcome, MoldWindow, WaysToMold, program_of, report


def test_a_program_is_the_same_whenever_it_is_asked_for():
    program = program_of("sdsc", 1, 7)
    assert program == program_of("sdsc", 1, 7) != program_of("sdsc", 2, 7)
    assert [s.nodes for s in program.shapes] == [4, 8, 16, 32, 64]
    limits = [s.limit for s in program.shapes]
    assert limits == sorted(limits, reverse=True)
    # It ends within the limit on every size.
    assert all(program.seconds / program.work.speed(s.nodes) <= s.limit for s in program.shapes)


def test_every_way_ends_and_the_one_that_follows_shrinks_where_that_ends_sooner():
    def outcome(way):
        engine = Engine(ClusterConfig(nodes=64, accrue_always=True), 0.0)
        ways = WaysToMold(engine, program_of("sdsc", 1, 2))
        ways.block(40, 20 * 3600.0)
        ways.block(24, 19 * 3600.0, 600.0)  # which ends long before its limit
        return getattr(ways, way)()

    once, follows = outcome("once"), outcome("follows")
    assert follows.completion < 0.6 * once.completion
    assert math.isclose(follows.wait, 600.0, abs_tol=300.0)
    assert outcome("range").wait <= follows.wait


def test_the_table_has_a_row_for_each_way_and_the_best_size():
    outcomes = {"4 nodes": MoldOutcome(0.0, 7200.0, 4 * 7200.0), "8 nodes": MoldOutcome(1800.0, 5400.0, 8 * 3600.0)}
    outcomes |= {way: MoldOutcome(0.0, 3600.0, 8 * 3600.0) for way in ("range", "chosen at submission", FOLLOWS)}
    windows = [MoldWindow("sdsc", 1, n, outcomes) for n in range(3)]
    assert [MoldWindow.read(json.loads(json.dumps(w.told()))) for w in windows] == windows
    rows = {line[:28].strip(): line[28:].split() for line in report(windows) if " h " in line}
    assert [rows[name][2] for name in ("size 1 of 5", "size 2 of 5", FOLLOWS)] == ["0.500", "0.667", "1.000"]
    assert rows["best size, known afterwards"][:2] == ["1.50", "h"]
