"""The service over a real socket, on a Slurm that is made up and by clocks that are moved by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from inspect import isfunction

import pytest
from view_scene import CLOSED, ME, MINE, NODES, OTHERS, PARTITION, RESERVATION, in_scene

from penstock.api import License
from penstock.errors import ConfigError, NotNow, NotPermitted, SlurmUnavailable
from penstock.site.look import wire
from penstock.slurm.base import Changer
from penstock.slurm.privacy import Privacy, Viewer
from penstock.slurm.queries import CliQueries
from penstock_lab.testing import make_job
from penstock_site_view.service import ViewService


def test_one_look_serves_all_and_is_never_older_than_promised(tmp_path):
    async def work(scene):
        askers = [scene.asker() for _ in range(12)]
        found = await asyncio.gather(*map(scene.look, askers))
        first = found[0]
        assert all(one == first for one in found)
        assert first.jobs == {1: MINE, 2: OTHERS} and list(first.nodes.values()) == NODES
        assert first.partitions == {"batch": PARTITION} and first.reservations == (RESERVATION,)
        assert first.licenses == (License("matlab", 4, 1),) and first.taken_at == 5000.0 and first.usable
        assert scene.reader.asked.count("jobs") == 1
        scene.clock.at += 14.0
        assert (await scene.look(askers[0])).taken_at == 5000.0
        assert scene.reader.asked.count("jobs") == 1
        scene.clock.at += 1.0
        scene.reader.queue = [MINE]
        newer = await scene.look(askers[0])
        assert newer.taken_at == 5015.0 and newer.jobs == {1: MINE}
        assert scene.reader.asked.count("jobs") == 2 and scene.reader.asked.count("partitions") == 1
        assert askers[0].using and askers[0].promise == 15.0 and askers[0].outcomes == {"used": 3}

    in_scene(tmp_path, work)


def test_the_longer_a_look_takes_the_earlier_the_next_one_is_taken(tmp_path):
    async def work(scene):
        scene.reader.takes = 0.5  # for each of five requests, and for two of the later looks
        assert await scene.look(scene.asker()) is not None
        for _ in range(20):
            scene.clock.at += 1.0
            head, _parts = await scene.looks.for_viewer(Viewer(ME, "me"), {})
            assert head.age <= 15.0
        assert scene.reader.asked.count("jobs") == 3

    in_scene(tmp_path, work)


def test_what_has_not_changed_is_not_sent_again(tmp_path):
    async def work(scene):
        asker = scene.asker()
        first = await scene.look(asker)
        sent = scene.service.sent
        scene.clock.at += 20.0
        second = await scene.look(asker)
        assert scene.service.sent == sent > 0
        assert second.taken_at > first.taken_at and second.jobs == first.jobs and second.nodes == first.nodes

    in_scene(tmp_path, work)


def test_a_user_is_shown_no_more_than_slurm_would_show(tmp_path):
    async def work(scene):
        alice = Viewer(ME + 1000, "alice")
        scene.reader.queue = [make_job(1, uid=alice.uid), make_job(2, uid=alice.uid + 1, user="bob")]

        async def seen(name):
            _head, parts = await scene.looks.for_viewer(alice, {})
            return wire.unpacked(name, dict(zip(wire.PARTS, parts, strict=True))[name])

        assert [job.id for job in await seen("jobs")] == [1]
        assert await seen("reservations") == [] and len(await seen("nodes")) == 2
        scene.reader.rule = replace(CLOSED, private=frozenset())
        assert [job.id for job in await seen("jobs")] == [1]
        scene.clock.at += 61.0  # the rule is a minute old at most
        assert [job.id for job in await seen("jobs")] == [1, 2]
        scene.reader.rule = CLOSED
        scene.clock.at += 61.0
        assert [job.id for job in await seen("jobs")] == [1]

    in_scene(tmp_path, work, CLOSED)


def test_where_slurm_refuses_everything_the_asker_hears_it_from_slurm(tmp_path):
    async def work(scene):
        scene.reader.rule = replace(scene.reader.rule, privileged=frozenset({"view"}))
        with pytest.raises(NotPermitted, match="PrivateData hides nodes from user alice"):
            await scene.looks.for_viewer(Viewer(ME + 1000, "alice"), {})

    in_scene(tmp_path, work, Privacy("c", frozenset({"nodes"})))


def test_a_service_that_is_no_operator_shows_nothing(tmp_path):
    async def work(scene):
        asker = scene.asker()
        assert await scene.look(asker) is None
        assert asker.outcomes == {"private": 1} and "AdminLevel=Operator" in asker.why
        assert "jobs" not in scene.reader.asked

    in_scene(tmp_path, work, replace(CLOSED, privileged=frozenset({"root"})))


def test_a_look_that_takes_too_long_is_not_handed_out(tmp_path):
    async def work(scene):
        scene.reader.takes = 10.0
        with pytest.raises(SlurmUnavailable, match="takes 50 s"):
            await scene.look(scene.asker())

    in_scene(tmp_path, work)


def test_one_user_cannot_take_it_all(tmp_path):
    async def work(scene):
        asker = scene.asker()
        for _ in range(60):
            assert await scene.look(asker) is not None
        assert await scene.look(asker) is None
        assert scene.service.answers == {"answered": 60, "busy": 1}
        idle = [await asyncio.open_unix_connection(str(scene.path)) for _ in range(20)]
        for _ in range(200):
            if scene.service.turned_away >= 4:
                break
            await asyncio.sleep(0.01)
        assert scene.service.turned_away == 4
        for _reader, writer in idle:
            writer.close()

    in_scene(tmp_path, work)


def test_where_it_cannot_listen(tmp_path):
    async def work(scene):
        with pytest.raises(NotNow, match="already listens"):
            ViewService(scene.looks).listen(scene.path)
        file = tmp_path / "file"
        file.write_text("")
        with pytest.raises(ConfigError, match="is no socket"):
            ViewService(scene.looks).listen(file)
        with pytest.raises((ConfigError, NotNow), match="cannot listen"):
            ViewService(scene.looks).listen(tmp_path / "nowhere" / "view.sock")

    in_scene(tmp_path, work)


def test_it_cannot_reach_what_changes_slurm():
    """Not by what it loads, and not by what it holds."""
    script = "import sys, penstock_site_view.run, penstock_site_view.commands.site_view; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    acting = {"penstock.core.executor", "penstock.slurm.cli", "penstock.slurm.submission", "penstock_pyslurm.backend"}
    assert "penstock.slurm.queries" in loaded and not acting & set(loaded)
    changes = {name for name, value in vars(Changer).items() if isfunction(value) and not name.startswith("_")} - {"on"}
    assert {"submit", "cancel", "update"} <= changes
    assert not {name for name in changes if hasattr(CliQueries, name)}
