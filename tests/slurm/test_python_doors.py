"""Python's tools on a pool: the examples of their pages, with the real tools, on nodes of a real Slurm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pool import SlurmPool

from environments import environment
from penstock_lab.cluster import Cluster
from places import PROJECT

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(900)]

READY = os.environ.get("PENSTOCK_TEST_DOORS", "")
"""A virtual environment with Penstock and the tools that the cluster's users can read, instead of a new one."""
PACKAGES = (
    "dask-jobqueue==0.9.0",
    "dask[array]",
    "joblib==1.6.0",
    "parsl==2026.10.26",
    "psij-python==0.9.11",
    "scikit-learn==1.9.1",
)
LIMIT = 300.0


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """A Python that has Penstock and the tools, as their users install them."""
    ours = (str(PROJECT / "dmr"), f"{PROJECT}[pool]", *(str(PROJECT / "plugins" / name) for name in ("fronts", "pool")))
    with environment("doors", PACKAGES, ours, READY) as programs:
        yield str(programs / "python")


@pytest.fixture
def pool(cluster: Cluster, python: str) -> Iterator[SlurmPool]:
    """Two nodes of two cores each, with what the tools need."""
    it = SlurmPool(cluster, command=[python, "-m", "penstock"])
    try:
        it.start()
        it.allocate(2, 30)
        it.until(lambda: len(it.json("status")["members"]) == 2)
        yield it
    finally:
        it.down()


def examples(page: str) -> list[str]:
    """The programs on that page of docs/tools, in their order."""
    text = (PROJECT / "docs" / "tools" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run(pool: SlurmPool, program: str, **more: str) -> str:
    """What it prints, run as Alice."""
    file = pool.place / "program.py"
    file.write_text(program)
    path = f"{Path(pool.program[0]).parent}:{pool.cluster.user_env(pool.who)['PATH']}"
    env = {**pool.environment, "PATH": path, **more}
    done = pool.cluster.run_as(pool.who, [pool.program[0], str(file)], env=env, cwd=pool.place, timeout=LIMIT)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:] + pool.said()
    return str(done.stdout)


def test_dask_joblib_and_scikit_learn(pool: SlurmPool):
    array, search, processes = examples("dask.md")
    assert run(pool, array).split() == ["2.0"]
    said = run(pool, search + "print(len(search.cv_results_['mean_test_score']), search.best_score_ > 0.9)\n")
    assert "{'C':" in said and said.split()[-2:] == ["6", "True"]
    assert not any(pool.json("status")["tasks"].values()), "those were Dask's own"
    assert eval(run(pool, processes)) == [sum(i * seed for i in range(1000)) for seed in range(4)]
    assert pool.json("status")["tasks"]["complete"] >= 1


def test_dask_finds_every_core_and_uses_both_nodes(pool: SlurmPool):
    program = (
        "import os, time\nfrom penstock.tools.dask import client\n"
        "def where(i):\n    time.sleep(1)\n    return os.environ['SLURMD_NODENAME']\n"
        "with client() as dask:\n"
        "    print(sum(dask.ncores().values()), *sorted(set(dask.gather(dask.map(where, range(16))))))\n"
    )
    threads, *nodes = run(pool, program).split()
    assert (threads, len(nodes)) == ("4", 2)


def test_joblib_takes_less_time_on_a_pool(pool: SlurmPool):
    """In one run: here on two processes, and on the pool's four cores through either backend."""
    program = (
        "import time, joblib, penstock.tools.joblib\nfrom penstock.tools.dask import client\n"
        "def once(backend, n):\n"
        "    begun = time.monotonic()\n"
        "    with joblib.parallel_config(backend, n_jobs=n):\n"
        "        joblib.Parallel()(joblib.delayed(time.sleep)(1) for _ in range(60))\n"
        "    return time.monotonic() - begun\n"
        "with client():\n    dask = once('dask', -1)\n"
        "print(once('loky', 2), dask, once('penstock', -1))\n"
    )
    here, dask, processes = map(float, run(pool, program).split())
    print(f"60 calls of a second: two processes here {here:.1f} s, Dask {dask:.1f} s, processes {processes:.1f} s")
    assert dask < 0.8 * here
    assert processes < here


def test_a_call_that_fails_ends_joblibs_others(pool: SlurmPool):
    program = (
        "import time, joblib, penstock.tools.joblib\n"
        "def one(n):\n    time.sleep(100 if n else 0)\n    return 1 / n\n"
        "with joblib.parallel_config('penstock'):\n"
        "    try:\n        joblib.Parallel()(joblib.delayed(one)(n) for n in range(4))\n"
        "    except ZeroDivisionError as e:\n        print(e)\n"
    )
    assert run(pool, program) == "division by zero\n"
    pool.until(lambda: not pool.json("status")["tasks"]["running"] + pool.json("status")["tasks"]["waiting"])


def test_parsl(pool: SlurmPool):
    (on_a_pool, _ahead) = examples("parsl-pool.md")
    more = (
        "\n@parsl.bash_app\n"
        "def whose(stdout='whose.out'):\n    return 'echo $SLURMD_NODENAME; exit 3'\n"
        "with parsl.load(config):\n"
        "    for wrong in (fails(), cube(1, parsl_resource_specification={'core': 1}), whose()):\n"
        "        print(type(wrong.exception()).__name__)\n"
        "    print(cube(3, parsl_resource_specification={'cores': 2, 'time': '1m'}).result())\n"
    )
    fails = "@parsl.python_app\ndef fails():\n    raise KeyError('x')\n"
    fails += "@parsl.python_app\ndef cube(x, parsl_resource_specification={}):\n    return x**3\n"
    program = on_a_pool + "config = Config(executors=[PenstockExecutor('main')])\nparsl.clear()\n" + fails + more
    said = run(pool, program).splitlines()
    assert said == ["[0, 1, 4, 9]", "KeyError", "UserError", "BashExitFailure", "27"]
    assert (pool.place / "whose.out").read_text() in ("n1\n", "n2\n")
    assert pool.json("status")["tasks"]["complete"] == 7, "Parsl returns what an app has raised"


def test_psij(pool: SlurmPool):
    (program,) = examples("psij.md")
    program = program.replace('get_instance("slurm")', 'get_instance("penstock")')
    assert "COMPLETED" in run(pool, program)
    more = (
        "job = Job(JobSpec(executable='/bin/sh', arguments=['-c', 'exit 3'], attributes=attributes))\n"
        "executor.submit(job)\nprint(job.native_id, job.wait().exit_code)\n"
        "job = Job(JobSpec(executable='/bin/sleep', arguments=['300'], attributes=attributes))\n"
        "executor.submit(job)\njob.cancel()\nprint(job.wait().state)\n"
    )
    said = run(pool, program.replace('"batch"', '"penstock"') + more).splitlines()
    assert "COMPLETED" in said[0]
    number, code = said[1].split()
    assert int(number) > 2**32, "a task of the pool"
    assert (code, said[2]) == ("3", "CANCELED")


@pytest.mark.parametrize("pages", [["dask-jobqueue.md"], ["parsl.md", "parsl-pool.md"]])
def test_examples_that_submit_jobs_of_their_own(pool: SlurmPool, pages: list[str]):
    """Without an agent: the rules do as they do then."""
    first, *_on_a_pool, last = [program for page in pages for program in examples(page)]
    for program in (first, last):
        said = run(pool, program.replace('"1GB"', '"500MB"'))
        assert said.splitlines()[-1] in ("[0, 1, 4, 9]", "(0, 1, 4, 9)")
