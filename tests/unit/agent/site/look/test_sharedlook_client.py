"""Who asks a site's view believes it no further than it can be checked."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog
from factories import ManualClock
from view_scene import ME, MINE, NODES, OTHERS, Scene, in_scene

from penstock.api import Node
from penstock.errors import SlurmUnavailable
from penstock.site.look import wire
from penstock.site.look.client import SharedLook
from penstock.site.look.rows import TableError, from_table, to_table


def test_no_service_is_told_once_and_asked_again_each_time(tmp_path):
    async def work():
        clock = ManualClock()
        asker = SharedLook(tmp_path / "none.sock", [0], "c", steady=clock.now)
        silent = SharedLook(tmp_path / "none.sock", [0], "c", steady=clock.now, silent=True)
        quiet = SharedLook(tmp_path / "none.sock", [0], "c", steady=clock.now, quiet=True)
        with structlog.testing.capture_logs() as log:
            for _ in range(3):
                assert await asker.look(clock.now()) is None
                assert await silent.look(clock.now()) is None
                assert await quiet.look(clock.now()) is None
        assert len(log) == 1 and asker.outcomes == {"absent": 3}

    asyncio.run(work())


@pytest.mark.parametrize(
    ("make", "outcome", "why"),
    [
        (lambda s: s.asker(trusted=[ME + 7]), "forged", f"user id {ME}"),
        (lambda s: s.asker(cluster="d"), "elsewhere", "cluster c, not d"),
    ],
)
def test_what_is_not_believed(tmp_path, make, outcome, why):
    async def work(scene):
        asker = make(scene)
        with structlog.testing.capture_logs() as log:
            assert await scene.look(asker) is None
            assert await scene.look(asker) is None  # it is left alone for a while
        assert asker.outcomes == {outcome: 1} and why in asker.why and not asker.using
        assert [one["log_level"] for one in log] == ["warning"]
        scene.clock.at += 31.0
        assert await scene.look(asker) is None and asker.outcomes == {outcome: 2}
        scene.clock.at += 31.0
        assert await scene.look(asker) is None and asker.outcomes == {outcome: 2}  # longer and longer

    in_scene(tmp_path, work)


def test_a_clock_that_differs_is_settled_with_slurm(tmp_path):
    async def work(scene):
        asker = scene.asker()
        assert await asker.look(scene.clock.now() - 100.0) is None
        assert asker.outcomes == {"clock": 1}
        assert await asker.look(scene.clock.now()) is not None

    in_scene(tmp_path, work)


HEAD = wire.LookHead("c", "run", 3, 4990.0, 5000.0, 10.0, 15.0, ())


def _parts(**changes):
    made = {name: wire.packed(kind, []) for name, kind in wire.PARTS.items()}
    return [wire.LookPart(name, part.tag, changes.get(name, len(part.data))) for name, part in made.items()], b"".join(
        part.data for part in made.values()
    )


async def _impostor(path, answer, then=None):
    """A service that says just this to everybody who asks."""

    async def serve(reader, writer):
        await reader.readline()
        writer.write(answer)
        if then is not None:
            await then()
        writer.close()

    return await asyncio.start_unix_server(serve, str(path))


def _answer(**head):
    parts, data = _parts()
    return replace(HEAD, parts=tuple(parts), **head).encode() + data


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"", "broken"),
        (b"nonsense\n", "broken"),
        (b"x" * 100_000, "broken"),
        (b'{"v": 2, "ok": true}\n', "broken"),
        (_answer()[:-20], "broken"),
        (_answer().replace(b'"jobs"', b'"jib"'), "broken"),
        (replace(HEAD, parts=tuple(_parts()[0])).encode() + b"\0" * len(_parts()[1]), "broken"),
        (replace(HEAD, parts=tuple(_parts(jobs=0)[0])).encode(), "broken"),
        (_answer(age=25.0), "old"),
        (_answer(taken_at=4900.0), "old"),
        (_answer(taken_at=5100.0), "old"),
        (_answer(promise=1e6), "old"),
        (_answer(now=9000.0), "clock"),
        (_answer(cluster="other"), "elsewhere"),
        (wire.LookRefusal("busy", "too often").encode(), "busy"),
        (wire.LookRefusal("whatever", "?").encode(), "broken"),
    ],
)
def test_a_service_that_lies_or_breaks_off(tmp_path, answer, outcome):
    async def work():
        clock, path = ManualClock(5000.0), tmp_path / "view.sock"
        async with await _impostor(path, answer):
            asker = SharedLook(path, [ME], "c", timeout=5.0, steady=clock.now)
            assert await asker.look(clock.now()) is None
            assert asker.outcomes == {outcome: 1}, asker.why

    asyncio.run(work())


def test_the_same_answer_is_believed_as_long_as_it_may_last(tmp_path):
    async def work():
        clock, path = ManualClock(5000.0), tmp_path / "view.sock"
        async with await _impostor(path, _answer(age=0.0, taken_at=5000.0)):
            asker = SharedLook(path, [ME], "c", timeout=5.0, steady=clock.now)
            assert await asker.look(5000.0) is not None
            clock.at += 16.0
            assert await asker.look(5000.0) is not None
            clock.at += 2.0
            assert await asker.look(5000.0) is None  # by its words nothing is wrong
            assert asker.outcomes == {"used": 2, "old": 1}

    asyncio.run(work())


def test_an_answer_that_was_long_on_its_way_is_asked_for_once_more(tmp_path):
    """It was young when it was sent: the host is busy, and Slurm is not the one to suffer from that."""

    async def work():
        clock, path, delays = ManualClock(5000.0), tmp_path / "view.sock", [9.0, 0.0, 9.0, 9.0]

        async def answer(_reader, writer):
            now = clock.now()
            if not delays:  # it has waited for the question for too long
                clock.at += 6.0
                delays.append(0.0)
                writer.close()
                return
            writer.write(_answer(age=10.0, taken_at=now - 10.0, now=now, instance=str(now)))
            clock.at += delays.pop(0)
            writer.close()

        async with await asyncio.start_unix_server(answer, str(path)):
            asker = SharedLook(path, [ME], "c", timeout=5.0, steady=clock.now)
            assert await asker.look(clock.now()) is not None
            assert asker.outcomes == {"used": 1}
            assert await asker.look(clock.now()) is None
            assert asker.outcomes == {"used": 1, "late": 1}
            assert await asker.look(clock.now()) is not None, "it is no reason to leave the service"
            assert asker.outcomes == {"used": 2, "late": 1} and not delays

    asyncio.run(work())


def test_a_service_that_hangs_is_left(tmp_path):
    async def work():
        path, gone = tmp_path / "view.sock", asyncio.Event()
        async with await _impostor(path, b'{"v": 1', gone.wait):
            asker = SharedLook(path, [ME], "c", timeout=0.05)
            assert await asker.look(5000.0) is None
            assert asker.outcomes == {"slow": 1}
            gone.set()

    asyncio.run(work())


def test_while_slurm_is_down_nobody_asks_it_beside_the_service_for_some_minutes(tmp_path):
    async def work(scene):
        asker = scene.asker()
        assert await scene.look(asker) is not None
        scene.reader.error = SlurmUnavailable("slurmctld is away", again_in=20.0)
        scene.clock.at += 61.0
        with pytest.raises(SlurmUnavailable, match="by the site's view: slurmctld is away"):
            await scene.look(asker)
        scene.clock.at += 299.0
        with pytest.raises(SlurmUnavailable):
            await scene.look(asker)
        scene.clock.at += 2.0
        assert await scene.look(asker) is None and asker.why.startswith("slurm: for 301 s")
        scene.reader.error = None
        scene.clock.at += 31.0
        assert await scene.look(asker) is not None
        assert asker.outcomes == {"used": 2, "slurm": 3}

    in_scene(tmp_path, work)


def test_a_restarted_service_goes_on(tmp_path):
    async def work():
        async with Scene(tmp_path) as first:
            asker = first.asker()
            assert await first.look(asker) is not None
        assert not first.path.exists()
        assert await first.look(asker) is None and asker.outcomes["absent"] == 1
        async with Scene(tmp_path) as second:
            second.clock.at = first.clock.at = first.clock.at + 5.0
            found = await first.look(asker)
            assert found is not None and found.jobs == {1: MINE, 2: OTHERS} and second.service.sent == 0

    asyncio.run(work())


def test_tables_of_other_releases_are_read(tmp_path):
    table = to_table(Node, NODES)
    assert from_table(Node, table) == NODES
    assert from_table(Node, {**table, "colour": ["red", "blue"]}) == NODES
    assert from_table(Node, {k: v for k, v in table.items() if k != "gres"}) == NODES
    for wrong, why in (
        ({k: v for k, v in table.items() if k != "name"}, "no column name"),
        ({**table, "name": ["n1"]}, "differ in length"),
        ({**table, "cpus": ["2", 2]}, "column cpus.*str"),
        ({**table, "partitions": [["a"], "b"]}, "column partitions"),
        ([], "is none"),
        ({}, "differ in length"),
    ):
        with pytest.raises(TableError, match=why):
            from_table(Node, wrong)
