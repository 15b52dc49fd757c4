"""The driver of real processes where something goes wrong with one job: the others do not notice."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager

import pytest

from penstock.api import JobSpec
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.realtime import RealTimeDriver

DEADLINE = 30.0


def spec(body, **more):
    return JobSpec("j", f"#!/bin/sh\n{body}\n", 1, 60.0, output="/dev/null", **more)


@asynccontextmanager
async def cluster(folder):
    """A cluster in real time whose jobs all are our own."""
    config = ClusterConfig(nodes=4, requeue_delay=0.0)
    engine = Engine(config, time.time(), duration=None, uid_of=lambda _user: os.geteuid())
    driver = RealTimeDriver(engine, folder, kill_wait=0.2)
    try:
        yield engine, driver, Controller(engine)
    finally:
        await driver.close()


async def until(probe):
    end = time.monotonic() + DEADLINE
    while not probe():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def test_a_script_in_latin_1_runs(tmp_path):
    async def run():
        async with cluster(tmp_path) as (engine, driver, controller):
            job = controller.submit("alice", spec("# caf\udce9\nexit 7"))
            driver.settle()
            await until(lambda: engine.records[job].state.ended)
            assert engine.records[job].exit_code == 7

    asyncio.run(run())


def test_a_job_that_cannot_be_prepared_fails_alone(tmp_path):
    async def run():
        async with cluster(tmp_path) as (engine, driver, controller):
            bad = controller.submit("alice", spec("sleep 1", begin="now+0.2"))
            good = controller.submit("alice", spec("exit 3", begin="now+0.2"))
            later = controller.submit("alice", spec("true", begin="now+0.5"))
            (tmp_path / "jobs" / str(bad)).write_text("in the way")
            driver.settle()
            await until(lambda: all(engine.records[j].state.ended for j in (bad, good, later)))
            assert [engine.records[j].state for j in (bad, good, later)] == ["FAILED", "FAILED", "COMPLETED"]
            assert (engine.records[good].exit_code, len(engine.owner)) == (3, 0)

    asyncio.run(run())


def test_the_alarm_is_set_again_whatever_happens(tmp_path):
    async def run():
        async with cluster(tmp_path) as (engine, driver, controller):

            def mishap():
                raise RuntimeError("a bug")

            engine.call_at(engine.now, mishap)
            later = controller.submit("alice", spec("true", begin="now+0.3"))
            with pytest.raises(RuntimeError):
                driver.settle()
            await until(lambda: engine.records[later].state == "COMPLETED")

    asyncio.run(run())


@pytest.mark.parametrize("environment", [{"A=B": "x"}, {"A": "\0"}])
def test_an_environment_that_no_process_can_have_fails_the_job(tmp_path, environment):
    async def run():
        async with cluster(tmp_path) as (engine, driver, controller):
            job = controller.submit("alice", spec("sleep 5", environment=environment))
            driver.settle()
            await until(lambda: engine.records[job].state.ended)
            assert (engine.records[job].state, engine.records[job].exit_code) == ("FAILED", 1)

    asyncio.run(run())


def test_steps_that_the_users_own_variables_make_up_are_none(tmp_path):
    async def run():
        async with cluster(tmp_path) as (_engine, driver, controller):
            mark = tmp_path / "begun"
            job = controller.submit("alice", spec(f"SLURM_STEP_ID=foo sleep 20 & touch {mark}; wait"))
            driver.settle()
            await until(mark.exists)
            assert list(driver.steps(job)) == []

    asyncio.run(run())


def test_a_requeued_and_cancelled_job_leaves_nothing(tmp_path):
    async def run():
        async with cluster(tmp_path) as (engine, driver, controller):
            job = controller.submit("alice", spec("sleep 20", requeue=True))
            driver.settle()
            await until((tmp_path / "jobs" / str(job)).exists)
            controller.requeue("alice", job)
            controller.cancel("alice", job)
            driver.settle()
            await until(lambda: engine.records[job].state.ended)
            assert not (tmp_path / "jobs" / str(job)).exists()

    asyncio.run(run())
