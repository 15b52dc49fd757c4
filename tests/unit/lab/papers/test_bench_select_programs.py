"""Errors of predicted run times of real programs: what is judged, by runs that are made up; and one real run."""

import os

import pytest

from penstock_lab.papers import select_programs
from penstock_lab.papers.select_programs import SETTINGS, WORK, Run, judged


def made_up(factors, rounds=4):
    """CPU time is 1 ms a piece; wall time is what a perfect machine took, times a factor of the setting."""
    for number in range(rounds):
        for program, short in WORK.items():
            for name, setting in SETTINGS.items():
                for work in (short, 3 * short):
                    seconds = 1e-3 * work / setting.workers / setting.part * factors[name]
                    yield Run(program, name, number, work, seconds, 1e-3 * work)


def test_a_machine_as_the_model_has_it_is_predicted_without_error():
    rows, ranked = judged(list(made_up(dict.fromkeys(SETTINGS, 1.0))))
    assert all(row.before.value == pytest.approx(0.0, abs=1e-9) for row in rows)
    assert len(rows) == 9 and rows[0].runs == 3 and ranked == {"before": 1.0, "after": 1.0}


def test_the_correction_learns_what_is_constant_from_short_runs():
    rows, ranked = judged(list(made_up({"one core": 1.0, "two cores": 3.0, "half a core": 1.0}, rounds=12)))
    off = {row.setting: row for row in rows if row.program == "memory"}
    assert off["two cores"].before.value == pytest.approx(100 * (1 - 1 / 3))
    assert off["two cores"].after.value < 15 < off["two cores"].before.value
    assert ranked["before"] == pytest.approx(2 / 3) and ranked["after"] > 0.9


def test_a_program_really_runs():
    run = select_programs._run("compute", "one core", SETTINGS["one core"], 0, 2, [min(os.sched_getaffinity(0))])
    assert run.seconds > 0 and 0 < run.cpu < 5
