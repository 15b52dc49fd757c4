"""When an idle job is submitted: by past waits, and never for longer than the partition gives."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from penstock.holding.idle import idle_submission

NOW = 1_700_000_000.25
START, HOUR = 1_700_007_200, 3600.0


class Past:
    """A cluster on which jobs of one node have waited so long."""

    def __init__(self, *waits):
        self.waits = waits

    def now(self):
        return NOW

    async def history(self, since):
        return [
            SimpleNamespace(time_limit=HOUR, num_nodes=1, start=since + wait, eligible=since) for wait in self.waits
        ]


def submission(*waits, longest=None, duration=HOUR):
    return asyncio.run(idle_submission(Past(*waits), 1, START, duration, longest))


def test_it_is_submitted_at_once_where_there_is_nothing_to_learn_from():
    found = submission()
    assert (found.at, found.run_time) == (NOW, HOUR + START - NOW)


def test_it_is_not_submitted_if_no_instant_gives_it_any_chance():
    assert submission(*[9 * HOUR] * 20) is None, "golden case G8"


@pytest.mark.parametrize("waits", [(), [60.0] * 20])
def test_it_asks_for_no_more_than_the_partition_gives(waits):
    found = submission(*waits, longest=5400.0)
    assert found.at == START + HOUR - 5400 and found.run_time == 5400
    assert submission(*waits, longest=HOUR) is None, "there is no time to idle"


def test_what_waits_longer_than_the_partition_lets_it_idle_has_no_chance():
    assert submission(*[3600.0] * 20) is not None
    assert submission(*[3600.0] * 20, longest=5400.0) is None
