"""This host's clock and the controller's need not agree; Slurm's times are the controller's."""

import asyncio
import time

import pytest

from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import Finished
from penstock.slurm.records import clock_from_config


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("Configuration data as of 1795249390\nA = b\n", 1795249390.0),
        ("\nConfiguration data as of 1795249390", 1795249390.0),
        ("Configuration data as of some day\n", None),
        ("A = b\n", None),
        ("", None),
    ],
)
def test_the_first_line_tells_the_time(text, clock):
    assert clock_from_config(text) == clock


@pytest.mark.parametrize(("off", "corrected"), [(0.0, False), (-0.5, False), (90.0, True), (-3600.0, True)])
def test_a_clock_that_differs_is_corrected_and_said(off, corrected, caplog):
    backend = CliBackend()

    async def answer(argv, **_):
        assert list(argv) == ["scontrol", "show", "config"]
        lines = f"Configuration data as of {int(time.time() + off)}\nSLURM_VERSION = 22.05.8\nClusterName = c\n"
        more = "SelectType = select/linear\nPriorityType = priority/basic\nMinJobAge = 300 sec\n"
        return Finished(0, lines + more, "")

    backend._runner.run = answer
    asyncio.run(backend.site())
    assert backend.now() == pytest.approx(time.time() + (off if corrected else 0), abs=1.5)
    assert bool(caplog.records) == corrected
