"""Snakemake's jobs in a pool: how they fail, end, are taken up again, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.timeout(300, func_only=True)]

EVERYTHING = """
rule all:
    input: "sum", "late", "made"

rule first:
    output: temp("part.{i}")
    shell: "echo {wildcards.i} > {output}; echo {wildcards.i} >> ran"

rule total:
    input: expand("part.{i}", i=range(5))
    output: protected("sum")
    shell: "cat {input} | sort -n > {output}"

checkpoint count:
    output: "count"
    shell: "echo 3 > {output}"

rule one:
    output: "late.{i}"
    group: "late"
    shell: "echo late {wildcards.i} > {output}"

def counted(wildcards):
    with checkpoints.count.get().output[0].open() as file:
        return expand("late.{i}", i=range(int(file.read())))

rule late:
    input: counted
    output: "late"
    shell: "cat {input} > {output}"

rule made:
    input: "sum"
    output: "made"
    threads: 2
    run:
        with open(output[0], "w") as file:
            print(threads, open(input[0]).read().split(), file=file)
"""


@pytest.mark.long
def test_temporary_and_protected_files_checkpoints_and_groups(snakes):
    snakes.write(EVERYTHING)
    said = snakes.make("--verbose")
    assert snakes.read("sum").split() == ["0", "1", "2", "3", "4"]
    assert snakes.read("late").count("late") == 3
    assert snakes.read("made") == "2 ['0', '1', '2', '3', '4']\n"
    assert not list(snakes.work.glob("part.*")), "temporary files are gone"
    assert not (snakes.work / "sum").stat().st_mode & 0o222
    assert snakes.read("ran").split() and len(snakes.read("ran").split()) == 5
    assert "checkpoint count" in said
    snakes.idle()


FAILING = """
rule all:
    input: "out", "other"

rule out:
    output: "out"
    retries: 2
    resources: try_=lambda wc, attempt: attempt
    shell: "echo {resources.try_} >> tries; echo half > {output}; echo oh no >&2; [ {resources.try_} = 3 ]"

rule other:
    output: "other"
    shell: "echo {output} > {output}; false | cat; nosuchcommand"
"""


@pytest.mark.long
def test_a_job_that_fails_is_tried_again_and_said_with_what_it_wrote(snakes):
    snakes.write(FAILING)
    done = snakes.snakemake("--keep-going")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert snakes.read("tries").split() == ["1", "2", "3"]
    assert snakes.read("out") == "half\n"
    assert "oh no" in said and "exit code 1" in said
    # Where Snakemake's own `set -euo pipefail` ends it, the command that is not there is not reached.
    assert "nosuchcommand: command not found" not in said
    assert not (snakes.work / "other").exists(), "what failed leaves nothing"
    snakes.idle()


@pytest.mark.long
def test_a_command_that_is_not_there_is_said(snakes):
    snakes.write('rule one:\n    output: "out"\n    shell: "nosuchcommand > {output}"\n')
    done = snakes.snakemake()
    assert done.returncode == 1
    assert "nosuchcommand: command not found" in done.stdout + done.stderr


@pytest.mark.long
def test_a_function_of_the_users_that_fails_ends_its_job_alone(snakes):
    snakes.write(
        'rule all:\n    input: "a", "b"\n'
        'rule a:\n    output: "a"\n    params: x=lambda wc: 1 / 0\n    shell: "echo {params.x} > {output}"\n'
        'rule b:\n    output: "b"\n    shell: "echo b > {output}"\n'
    )
    done = snakes.snakemake("--keep-going")
    assert done.returncode == 1
    assert "division by zero" in done.stdout + done.stderr
    snakes.idle()


@pytest.mark.long
def test_without_that_pool_it_says_how_to_start_one(snakes):
    snakes.write('rule one:\n    output: "out"\n    shell: "true"\n')
    done = snakes.snakemake("--penstock-pool", "other")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "penstock pool start" in said and "Traceback" not in said, said
    done = snakes.snakemake("--penstock-inner", "never")
    assert "--penstock-inner: 'never' is none of auto, always" in done.stdout + done.stderr


RUNTIMES = """
def text(wildcards, attempt): return "61s" if attempt == 1 else "1m"

rule all:
    input: "a", "b", "c", "d", "e", "f", "g"

rule a:
    output: "a"
    resources: runtime="119s"
    shell: "touch {output}"

use rule a as b with:
    output: "b"
    resources: runtime=text

use rule a as c with:
    output: "c"
    resources: runtime=1.4

use rule a as d with:
    output: "d"
    resources: runtime="1.1h"

use rule a as e with:
    output: "e"
    resources: runtime=lambda wc, attempt: 3 * attempt

use rule a as f with:
    output: "f"

use rule a as g with:
    output: "g"
    resources: runtime="20s"
    group: "g"
"""


def test_a_run_time_is_rounded_up_to_minutes(snakes):
    snakes.write(RUNTIMES)
    snakes.make("--set-resources", "f:runtime=7")
    entries = map(json.loads, snakes.pool.journal.read_text().splitlines())
    times = sorted(entry["task"]["time"] for entry in entries if "task" in entry)
    assert times == [60.0, 120.0, 120.0, 120.0, 180.0, 420.0, 3960.0]


LONG = """
rule all:
    input: expand("out.{i}", i=range(6))

rule one:
    output: "out.{i}"
    shell:
        "echo {wildcards.i} >> ran; echo half > {output}; until [ -e gate ]; do sleep 0.1; done;"
        "echo whole > {output}"
"""


def running(snakes, count: int) -> bool:
    return snakes.status()["tasks"]["running"] >= count


@pytest.mark.long
def test_interrupted_it_leaves_no_task(snakes):
    snakes.write(LONG)
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until(lambda: running(snakes, 4))
    begun.send_signal(signal.SIGINT)
    assert begun.wait(60) == 1
    snakes.idle()
    assert {task["phase"] for task in snakes.tasks()} == {"cancelled"}


@pytest.mark.long
def test_killed_and_started_again_it_takes_up_what_runs(snakes):
    snakes.write(LONG)
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until(lambda: running(snakes, 4))
    begun.kill()
    begun.wait()
    assert running(snakes, 4)
    snakes.make("--unlock")
    # Half of the output is there: Snakemake wants to be told that this is known.
    again = snakes.begin(*snakes.words("--rerun-incomplete"), folder=snakes.work)
    snakes.until(lambda: "goes on where an earlier Snakemake left it" in (snakes.folder / "processes.log").read_text())
    (snakes.work / "gate").touch()
    assert again.wait(60) == 0, (snakes.folder / "processes.log").read_text()
    assert sorted(snakes.read("ran").split()) == list("012345"), "each ran once"
    assert all(snakes.read(f"out.{i}") == "whole\n" for i in range(6))
    snakes.idle()


LOST = """
rule one:
    output: "out"
    shell:
        "echo $PENSTOCK_ATTEMPT >> attempts; echo whole >> {output};"
        "if [ $PENSTOCK_ATTEMPT = 1 ]; then sleep 1000; fi"
"""


@pytest.mark.long
def test_a_node_that_is_lost_leaves_no_half_output(snakes):
    snakes.write(LOST)
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until((snakes.work / "attempts").exists)
    snakes.until(lambda: (snakes.work / "out").exists())
    snakes.started[1].kill()
    snakes.until(lambda: not snakes.status()["members"])
    snakes.join(2)
    assert begun.wait(90) == 0, (snakes.folder / "processes.log").read_text()
    assert snakes.read("attempts").split() == ["1", "2"]
    assert snakes.read("out") == "whole\n"
    snakes.idle()


@pytest.mark.long
def test_a_scheduler_that_is_killed_costs_no_job(snakes):
    snakes.write(LONG)
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until(lambda: running(snakes, 4))
    os.kill(json.loads((snakes.pool.path / "address.json").read_text())["pid"], signal.SIGKILL)
    (snakes.work / "gate").touch()
    snakes.begin(sys.executable, "-m", "penstock", "pool", "start")
    assert begun.wait(90) == 0, (snakes.folder / "processes.log").read_text()
    assert sorted(snakes.read("ran").split()) == list("012345"), "each ran once"


@pytest.mark.long
def test_what_ended_while_no_snakemake_was_there_is_not_run_again(snakes):
    snakes.write(LONG)
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until(lambda: running(snakes, 4))
    begun.kill()
    begun.wait()
    (snakes.work / "gate").touch()
    snakes.until(lambda: snakes.status()["tasks"]["complete"] == 6)
    snakes.make("--unlock")
    snakes.make("--rerun-incomplete")
    assert sorted(snakes.read("ran").split()) == list("012345"), "each ran once"
    assert len(snakes.tasks()) == 6


@pytest.mark.long
def test_what_has_become_another_job_meanwhile_is_ended_and_run_anew(snakes):
    snakes.write(LONG)
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until(lambda: running(snakes, 4))
    begun.kill()
    begun.wait()
    snakes.write(LONG.replace("whole", "other"))
    (snakes.work / "gate").touch()
    snakes.make("--unlock")
    snakes.make("--rerun-incomplete")
    assert all(snakes.read(f"out.{i}") == "other\n" for i in range(6))
    snakes.idle()


@pytest.mark.long
def test_what_no_member_has_time_for_is_said(snakes):
    snakes.begin(
        *(sys.executable, "-m", "penstock", "pool", "submit", "--larger", "--cores", "64", "--time", "9m", "--", "true")
    )
    snakes.until(lambda: snakes.status()["unreachable"])
    snakes.write('rule one:\n    output: "out"\n    shell: "echo x > {output}"\n')
    said = snakes.make()
    assert "1 tasks wait for a member with 64 cores, 9 minutes left (runtime), and none there is has that" in said


@pytest.mark.long
def test_packages_that_are_missing_are_said(snakes):
    blocked = snakes.folder / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import importlib.util as it\nfind = it.find_spec\n"
        "it.find_spec = lambda name, *more: None if name == 'distributed' else find(name, *more)\n"
    )
    snakes.write('rule one:\n    output: "out"\n    shell: "true"\n')
    done = snakes.snakemake(PYTHONPATH=str(blocked))
    assert done.returncode == 1
    assert "a pool needs distributed where Snakemake runs: pip install 'penstock[pool]'" in done.stdout + done.stderr


@pytest.mark.long
def test_a_node_without_snakemake_says_so(snakes):
    python = snakes.folder / "python"
    python.write_text(
        f'#!/bin/sh\n[ -n "$PENSTOCK_TASK" ] && exec /usr/bin/python3 "$@"\nexec {snakes.bin}/python "$@"\n'
    )
    python.chmod(0o755)
    snakes.write('rule one:\n    output: "out"\n    run: pass\n')
    inside = snakes.environment | {"PATH": os.environ["PATH"]}
    words = snakes.words()[1:]
    code = f"import sys; sys.executable = {str(python)!r}; from snakemake.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [str(snakes.bin / "python"), "-c", code, *words], env=inside, cwd=snakes.work, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "No module named snakemake" in done.stdout + done.stderr
    snakes.idle()


@pytest.mark.long
def test_a_pool_without_members_is_said(snakes):
    snakes.started[1].terminate()
    snakes.until(lambda: not snakes.status()["members"])
    snakes.write('rule one:\n    output: "out"\n    shell: "echo x > {output}"\n')
    begun = snakes.begin(*snakes.words(), folder=snakes.work)
    snakes.until(lambda: "it has no members" in (snakes.folder / "processes.log").read_text())
    snakes.join(2)
    assert begun.wait(60) == 0


@pytest.mark.long
def test_a_task_too_large_for_the_pool_is_said(snakes):
    snakes.write('rule one:\n    output: "out"\n    threads: 9\n    shell: "true"\n')
    done = snakes.snakemake("--cores", "20", PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "needs 9 cores; the largest member of the pool has 4 cores" in " ".join((done.stdout + done.stderr).split())


COMMON = """
import snakemake.common.tests
from snakemake_executor_plugin_penstock import ExecutorSettings


class TestInThePool(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self):
        return "penstock"

    def get_executor_settings(self):
        return ExecutorSettings(pool="main", inner=INNER)
"""


@pytest.mark.parametrize("inner", ["auto", pytest.param("always", marks=pytest.mark.long)])
def test_the_common_test_workflows_of_all_executors_pass(snakes, inner):
    snakes.write(COMMON.replace("INNER", repr(inner)), "test_common.py")
    words = [str(snakes.bin / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_common.py"]
    done = subprocess.run(words, env=snakes.environment, cwd=snakes.work, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "2 passed" in done.stdout
    assert snakes.tasks()
    snakes.idle()
