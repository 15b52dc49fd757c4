"""What is idle, used and late in the pairs of elastic jobs."""

from __future__ import annotations

import sys

import pytest
import yaml

from penstock.resize.recipes.model import read_elastic
from penstock_lab.bench.elastic_programs import PROGRAMS
from penstock_lab.bench.elastic_slurm import ElasticWindow, Held, Measured, clipped, gaps, lateness, one_round, report


def test_stretches_that_nothing_covers() -> None:
    assert gaps([], 10.0, 20.0) == [10.0]
    assert gaps([(0.0, 30.0)], 10.0, 20.0) == []
    assert gaps([(12.0, 14.0), (13.0, 15.0), (18.0, 40.0)], 10.0, 20.0) == [2.0, 3.0]
    assert clipped([(0.0, 12.0), (19.0, 30.0), (40.0, 50.0)], 10.0, 20.0) == 3.0


def test_late_is_who_starts_after_the_earliest_start_that_was_expected() -> None:
    rows = [Held(1, "bob", 100.0, 200.0, ("n1",)), Held(2, "bob", 50.0, 60.0, ("n2",))]
    assert lateness({1: [130.0, 90.0], 2: [70.0], 3: [10.0], 4: []}, rows) == (10.0, 0.0)


def test_what_a_farm_was_lent_and_used() -> None:
    rows = [
        Held(1, "alice", 0.0, 2000.0, ("n1",)),
        Held(2, "alice", 100.0, 200.0, ("n2", "n3")),
        Held(3, "bob", 300.0, 2000.0, ("n2",)),
    ]
    ran = {"n1": [(0.0, 1000.0)], "n2": [(104.0, 190.0)], "n3": [(106.0, 196.0)]}
    measured = Measured(50.0, 900.0, rows, 1, (), ran, 2)
    assert measured.base == "n1" and measured.joins() == [4.0, 6.0]
    assert (measured.lent(), measured.used()) == (200.0, 176.0)
    assert sum(measured.idle()) == 7 * 900.0 - 200.0 - 650.0


def test_the_table_says_whether_the_goal_is_reached() -> None:
    window = ElasticWindow("real Slurm", 1, 0, 100.0, 5.0, 90.0, 95.0, 4.0, 3, (0.0, 12.0), ())
    assert ElasticWindow.read(window.told()) == window
    lines = list(report([window]))
    assert "0.900" in lines[1] and lines[1].endswith("reached")
    assert "2 waited" in lines[-2] and "none waited" in lines[-1]
    assert next(iter(report([window, window]))).startswith("farm: 2 pairs")


def test_a_goal_is_missed_where_its_interval_excludes_it() -> None:
    window = ElasticWindow("real Slurm", 1, 0, 100.0, 5.0, 10.0, 95.0, 4.0, 3, (), ())
    assert list(report([window]))[1].endswith("missed")


@pytest.mark.parametrize("use", PROGRAMS)
def test_each_program_is_an_elastic_job_that_takes_nodes_for_a_while(use, tmp_path):
    program = PROGRAMS[use]
    program.write(tmp_path, 3)
    told = {"min": 1, "max": 8, "use": use, "interval": 1, **program.says(sys.executable, 3)}
    plan = read_elastic(yaml.safe_dump({"name": use, "time": "1h", "elastic": told}), "w.yaml", sys.executable).plan
    assert plan.leaves_within is not None
    for script in tmp_path.glob("*.py"):
        compile(script.read_text(), use, "exec")


def test_a_python_without_the_program_is_named(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(SystemExit, match="has no torch: name one"):
        one_round(1, "torchrun", str(tmp_path / "python"), 1.0)
