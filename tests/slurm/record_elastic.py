"""Records what tests/unit/dmr replays: what elastic jobs of real tools are told, and what their supervisor then does.

`python tests/slurm/record_elastic.py [TOOL...]` writes tests/fixtures/elastic/TOOL.json.gz, each from one job on real
Slurm with PrologFlags=Contain. PENSTOCK_TORCH and PENSTOCK_RAY are virtual environments with torch and Ray.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from elastic_jobs import PYTHON, Elastic, rival
from malleable import Agent, an_agent, until

from penstock.resize.recipes.model import read_elastic
from penstock_lab.cluster import ClusterSpec, up

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "elastic"
COMMANDS = ("start", "join", "leave", "ready", "ready_line", "notify", "again", "checkpoint", "finished")
"""Of a plan; what they say matters to the hands alone."""

RECORDER = f"""#!{PYTHON}
import dataclasses, json, sys
from dmr.elastic import __main__ as program

out = open("recorded.jsonl", "w")

def told(thing):
    return {{"is": type(thing).__name__, **dataclasses.asdict(thing)}}

def recording(kind):
    class Recorded(kind):
        def __init__(self, plan, base, job):
            super().__init__(plan, base, job)
            self.zero = None
            self.note({{"kind": kind.__name__, "plan": dataclasses.asdict(plan), "base": list(base), "job": job}})

        def note(self, line):
            out.write(json.dumps(line) + "\\n")
            out.flush()

        def begin(self, now):
            self.zero = now
            done = super().begin(now)
            self.note([0.0, None, [told(one) for one in done]])
            return done

        def on(self, event, now):
            done = super().on(event, now)
            if done or type(event).__name__ != "TimePassed":
                self.note([now - self.zero, told(event), [told(one) for one in done]])
            return done

    return Recorded

program.Group, program.Resuming = recording(program.Group), recording(program.Resuming)
sys.exit(program.main(["--plan", "plan.json"]))
"""

FARM = {"min": 1, "max": 4, "use": "farm", "tasks": "tasks.txt", "slots": 1, "grace": "10s", "settle": 0.5}
DASK = """
from distributed import Client

def work(n):
    import time
    time.sleep(0.5)
    return n * n

client = Client()
squares = client.map(work, range(240), pure=False, retries=0)
assert sum(client.gather(squares)) == sum(n * n for n in range(240))
"""
RAY = """
import time
import ray

ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def work(n):
    time.sleep(0.5)
    return n * n

assert sum(ray.get([work.remote(n) for n in range(400)])) == sum(n * n for n in range(400))
"""


def elastic_of(tool: str, home: Path) -> dict[str, Any]:
    """The job's entry, with its files in place."""
    if tool == "farm":
        (home / "tasks.txt").write_text("sleep 1\n" * 160)
        return FARM
    if tool == "dask":
        (home / "analyse.py").write_text(DASK)
        return {"min": 1, "max": 4, "use": "dask", "run": f"{PYTHON} analyse.py", "slots": 1, "python": PYTHON}
    if tool == "ray":
        python = f"{os.environ['PENSTOCK_RAY']}/bin/python"
        (home / "rays.py").write_text(RAY)
        # Of three that start at once on a host of two cores, Ray gives one up after 30 s.
        return {"min": 1, "max": 2, "use": "ray", "run": f"{python} rays.py", "slots": 1, "python": python}
    if tool == "torchrun":
        python = f"{os.environ['PENSTOCK_TORCH']}/bin/python"
        (home / "trains.py").write_text((HERE / "elastic_trains.py").read_text())
        shutil.rmtree(home / "training", ignore_errors=True)
        (home / "training").mkdir()
        (home / "training").chmod(0o777)
        return {"min": 1, "max": 4, "use": "torchrun", "run": "trains.py training 200 0.3", "python": python}
    (home / "saves.py").write_text((HERE / "elastic_saves.py").read_text())
    mpiexec = Path(PYTHON).parent / "mpiexec"
    run = f"rm -f up; exec {mpiexec} -n $PENSTOCK_ELASTIC_NODES -ppn 1 {PYTHON} saves.py state.npz result 500 0.1"
    entry = {"min": 1, "max": 4, "use": "restart", "run": run, "signal": "USR1", "checkpoint": "state.npz"}
    return {**entry, "ready": "[ -e up ]"}


def submitted(agent: Agent, tool: str) -> tuple[Elastic, int]:
    """The job, and its largest size."""
    home = agent.cluster.home(agent.who)
    entry = {**elastic_of(tool, home), "interval": 0.5}
    plan = read_elastic(yaml.safe_dump({"elastic": entry}), tool, PYTHON).plan
    (home / "plan.json").write_text(json.dumps({k: v for k, v in dataclasses.asdict(plan).items() if v is not None}))
    words = ["sbatch", "--parsable", "-N1", "-t30", "--exclusive", "-o", "elastic-%j.log", "--no-requeue"]
    done = agent.cluster.run_as(agent.who, words, input=RECORDER, env=agent.ask("env"), check=True)
    return Elastic.of(agent, int(done.stdout)), plan.maximum


def resized(job: Elastic, fewer: int) -> None:
    """It grows, gives nodes to a rival, grows again, and uses fewer by its own wish."""

    def resizes(what: str) -> Callable[[], bool]:
        before = job.said().count(f"elastic: {what} ")
        return lambda: job.said().count(f"elastic: {what} ") > before or job.ended()

    job.until_said("elastic: grown ", 240)
    shrinks = resizes("shrunk")
    rival(job.cluster, 7, 10)
    until("it gives nodes back", shrinks, 240)
    until("it grows again", resizes("grown"), 240)
    want = job.home / f"elastic-{job.id}" / "want"
    shrinks = resizes("shrunk")
    want.write_text(f"{fewer}\n")
    want.chmod(0o666)
    until("it needs fewer", shrinks, 240)
    want.unlink()


def kept(lines: list[str]) -> dict[str, Any]:
    """What is replayed of a record: nothing of the machine that it was made on."""
    head, *steps = map(json.loads, lines)
    plan = {name: name if name in COMMANDS and value else value for name, value in head["plan"].items()}
    return {**head, "plan": plan, "steps": [[round(at, 6), event, done] for at, event, done in steps]}


def main(tools: list[str]) -> None:
    FIXTURES.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pst-record-", dir="/var/tmp"))
    folder.chmod(0o755)
    cluster = up(ClusterSpec(nodes=8, folder=folder, contain=True))
    try:
        with an_agent(cluster, dmr={"policy": "throughput"}) as agent:
            agent.start()
            for tool in tools:
                began = time.monotonic()
                job, most = submitted(agent, tool)
                try:
                    resized(job, most // 2)
                    until("it is done", job.ended, 600)
                except AssertionError:
                    print(job.said())
                    raise
                assert job.state() == "COMPLETED", job.said()[-3000:]
                found = kept((job.home / "recorded.jsonl").read_text().splitlines())
                path = FIXTURES / f"{tool}.json.gz"
                path.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
                print(tool, len(found["steps"]), "steps in", round(time.monotonic() - began), "s", flush=True)
    finally:
        cluster.down()


if __name__ == "__main__":
    main(sys.argv[1:] or ["farm", "dask", "ray", "torchrun", "restart"])
