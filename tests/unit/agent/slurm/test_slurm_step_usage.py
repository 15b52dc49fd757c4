"""What rows of sacct with steps say of memory: units, tasks of a node, steps at once, and what is not known."""

from __future__ import annotations

import pytest

from penstock.slurm.parse import ParseError
from penstock.slurm.step_usage import STEP_FIELDS, JobMemory, memory_of, step_rows

MIB = 2.0**20


def job(number, tres="billing=2,cpu=2,mem=1000M,node=2"):
    return [str(number), "100", "200", "2", "", "", "", tres]


def step(name, largest, start=100, end=200, nodes=1, tasks=1, total=""):
    words = f"cpu=00:00:01,energy=0,mem={total},pages=0,vmem=9" if total else ""
    return [name, str(start), str(end), str(nodes), str(tasks), largest, words, ""]


def used(*steps):
    return memory_of([job(7), *steps])[7].used


def test_what_was_asked_for_is_of_a_node():
    assert memory_of([job(7)]) == {7: JobMemory(500 * MIB, None)}
    assert memory_of([job(7, "cpu=1,mem=4G,node=1")])[7].asked == 4096 * MIB
    assert [memory_of([job(7, tres)])[7].asked for tres in ("", "cpu=2,node=1", "mem=0,node=1")] == [None] * 3


def test_a_node_has_its_share_of_the_tasks():
    assert used(step("7.batch", "10960896")) == 10960896
    assert used(step("7.0", "1000", nodes=2, tasks=5)) == 3000
    assert used(step("7.0", "1000", nodes=2, tasks=5, total="2400")) == 2400, "no node has more than all"
    assert used(step("7.0", "1000", tasks=2, total="10")) == 1000, "nor less than its largest task"
    assert used(step("7.0", "3K")) == 3072 and used(step("7.0", "1.5M")) == 1.5 * MIB


def test_steps_that_run_at_once_are_added():
    batch = step("7.batch", "10")
    assert used(batch, step("7.0", "100", 100, 150), step("7.1", "200", 150, 200)) == 210, "one after the other"
    assert used(batch, step("7.0", "100", 100, 151), step("7.1", "200", 150, 200)) == 310
    assert used(batch, step("7.extern", "")) == 10, "in that nothing of the job's own runs"


@pytest.mark.parametrize("largest", ["", "0"])
def test_a_step_of_which_nothing_is_said_leaves_the_job_unknown(largest):
    assert used(step("7.batch", "10"), step("7.0", largest)) is None


def test_rows_are_whole():
    mark = "<>"
    line = "".join(cell + mark for cell in job(7))
    assert step_rows(f"{mark.join(STEP_FIELDS)}{mark}\n{line}\n", mark) == [job(7)]
    with pytest.raises(ParseError, match="not a row"):
        step_rows(f"heading\n{line}x{mark}\n", mark)
    for wrong in ([["x", *job(7)[1:]]], [job(7), step("7.0", "-5")], [job(7), step("7.0", "5X")]):
        with pytest.raises(ParseError):
            memory_of(wrong)
