"""This host's clock and the controller's need not agree; Slurm's times are the controller's."""

import asyncio
import contextlib
import functools
import time

import pytest

from penstock.errors import SlurmUnavailable
from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import CommandResult
from penstock.slurm.site_settings import clock_from_config


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


@pytest.mark.parametrize(
    ("off", "corrected"), [(0.0, ""), (-0.5, ""), (90.0, "90 s behind"), (-3600.0, "3600 s ahead")]
)
def test_a_clock_that_differs_is_corrected_and_said(off, corrected, caplog):
    site = Site(off)
    asyncio.run(site.backend.site())
    assert site.backend.now() == pytest.approx(time.time() + (off if corrected else 0), abs=1.5)
    assert len(caplog.records) == bool(corrected)
    assert corrected in caplog.text


# -- an agent that runs for long ---------------------------------------------------------------------------------------


class Site:
    """A controller whose clock is `off` from this host's, of which some time may pass and the clock be set."""

    def __init__(self, off=0.0, monkeypatch=None):
        self.off, self.passed, self.set_by = off, 0.0, 0.0
        self.asked = 0
        self.backend = CliBackend()
        self.backend._runner.run = self._answer
        if monkeypatch is not None:
            wall, since = time.time(), functools.cache(time.clock_gettime)  # they stand still but for what is said
            self.true = lambda: wall + self.off + self.passed
            monkeypatch.setattr(time, "time", lambda: wall + self.passed + self.set_by)
            monkeypatch.setattr(time, "clock_gettime", lambda which: since(which) + self.passed)
        else:
            self.true = lambda: time.time() + self.off

    async def _answer(self, argv, **_):
        if list(argv) != ["scontrol", "show", "config"]:
            return CommandResult(0, "", "")
        self.asked += 1
        lines = f"Configuration data as of {int(self.true())}\nSLURM_VERSION = 22.05.8\nClusterName = c\n"
        more = "SelectType = select/linear\nPriorityType = priority/basic\nMinJobAge = 300 sec\n"
        return CommandResult(0, lines + more, "")

    def look(self):
        async def one():
            with contextlib.suppress(SlurmUnavailable):  # there is no heading in an empty answer
                await self.backend.jobs()

        asyncio.run(one())

    @property
    def wrong_by(self):
        return abs(self.backend.now() - self.true())


@pytest.mark.parametrize("off", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_is_set_later_is_not_corrected_by_what_it_was_wrong_by(monkeypatch, off, step):
    site = Site(off, monkeypatch)
    asyncio.run(site.backend.site())
    site.set_by = step
    assert site.wrong_by < 1.5, "at once, and not from the next look on"
    site.look()
    assert site.wrong_by < 1.5
    assert site.asked == 2
    site.look()
    assert site.asked == 2, "asked again where something has changed only"


def test_put_right_it_is_believed_to_the_split_second_again(monkeypatch):
    site = Site(3600.0, monkeypatch)
    asyncio.run(site.backend.site())
    site.set_by = 3600.0
    site.look()
    assert site.backend.now() == pytest.approx(time.time(), abs=1e-5)


def test_the_clocks_are_compared_every_few_minutes(monkeypatch):
    site = Site(0.0, monkeypatch)
    asyncio.run(site.backend.site())
    site.off = 600.0  # nothing on this host tells that the controller's has been set
    site.look()
    assert site.asked == 1
    site.passed = 301.0
    site.look()
    assert site.asked == 2
    assert site.wrong_by < 1.5


def test_a_correction_does_not_jump_about_with_each_comparison(monkeypatch):
    site = Site(600.3, monkeypatch)
    asyncio.run(site.backend.site())
    known = site.backend.now() - time.time()
    for site.passed in (301.6, 603.1, 904.9):
        site.look()
        assert site.backend.now() - time.time() == pytest.approx(known, abs=1e-5)
    assert site.asked == 4


def test_a_slow_answer_does_not_undo_what_a_quick_one_has_told(monkeypatch):
    site = Site(10.0, monkeypatch)
    asyncio.run(site.backend.site())
    clock = site.backend._clock
    clock.compare(site.true(), 20.0)
    assert site.wrong_by < 1.5
