"""A simulated cluster to speak to in plain calls, for the tests of the mock."""

from __future__ import annotations

from penstock.api import Allocation, JobSpec, ReservationSpec
from penstock_lab.mock import views
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig


def spec(seconds=10.0, nodes=1, limit=100.0, exit=0, **more):
    script = f"#!/bin/sh\n#MOCK {more.pop('mock', f'duration={seconds}')} exit={exit}\n"
    return JobSpec(name=more.pop("name", "j"), script=script, nodes=nodes, time_limit=limit, **more)


class World:
    """An engine with its controller, settled after every request of `user`."""

    def __init__(self, **config):
        self.engine = Engine(ClusterConfig(**{"nodes": 4, **config}))
        self.controller = Controller(self.engine)

    def submit(self, *args, user="alice", **kwargs):
        return self.do("submit", spec(*args, **kwargs), user=user)

    def allocate(self, nodes, user="alice", expands=None, limit=100.0):
        return self.do("allocate", Allocation("r", nodes, limit, expands=expands), user=user)

    def reserve(self, name="r", start=0.0, duration=60.0, nodes=2, users=("alice",), **more):
        return self.do("reserve", ReservationSpec(name, start, duration, nodes, users=users, **more), user="root")

    def do(self, name, *args, user="alice", **kwargs):
        answer = getattr(self.controller, name)(user, *args, **kwargs)
        self.to(self.engine.now)
        return answer

    def to(self, time):
        self.engine.advance(time)

    def effects(self):
        return self.engine.take_effects()

    def state(self, job):
        return self.engine.records[job].state

    def view(self, job):
        return next(j for j in views.jobs(self.engine) if j.id == job)

    def tasks(self, array):
        """The state of each task of an array that has a record of its own."""
        rows = [j for j in views.jobs(self.engine) if j.array_job == array and j.array_task is not None]
        return {j.array_task: str(j.state) for j in rows}
