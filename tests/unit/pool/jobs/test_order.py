"""What sbatch is asked for, as tasks of a pool."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pool.jobenv import job_environment
from penstock_pool.jobs.order import (
    JobRequest,
    NotForPools,
    SbatchError,
    export_of,
    read_dependency,
    read_order,
    script_content,
)
from penstock_pool.model import PoolTask
from penstock_pool.terms import FIRST_JOB, AfterJob, JobTerms

SCRIPT = "#!/bin/bash\n#SBATCH -J named -t 10\n#SBATCH --mem=2G --cpus-per-task 2\n\ntrue\n"


def asked(*words: str, script: str | None = SCRIPT, **environ: str) -> JobRequest:
    content = None if script is None else script.encode()
    return JobRequest(words, content, environ, "/here", 0o022, "penstock:ab", "login", "/fronts")


def tasks(*words: str, script: str | None = SCRIPT, **environ: str) -> list[PoolTask]:
    return read_order(asked(*words, script=script, **environ), FIRST_JOB, "s", "e", 1000.0)


def one(*words: str, script: str | None = SCRIPT, **environ: str) -> tuple[PoolTask, JobTerms]:
    (task,) = tasks(*words, script=script, **environ)
    assert task.job is not None
    return task, task.job


class TestOptions:
    def test_a_script_with_its_lines(self):
        task, terms = one("-p", "penstock", "run.sh", "a b", "--x")
        assert task.argv == ("run.sh", "a b", "--x")
        assert (task.cores, task.memory, task.seconds, task.retries) == (2.0, 2 * 2**30, 600.0, 0)
        assert (task.name, task.workdir) == ("penstock:ab", "/here")
        assert (terms.name, terms.limit, terms.cpus, terms.partition) == ("named", 600.0, 2, "penstock")

    def test_the_command_line_wins_over_variables_and_these_over_the_script(self):
        assert one("run.sh")[1].name == "named"
        assert one("run.sh", SBATCH_JOB_NAME="mine")[1].name == "mine"
        assert one("-J", "last", "run.sh", SBATCH_JOB_NAME="mine")[1].name == "last"
        assert one("run.sh", SBATCH_TIMELIMIT="1-0")[1].limit == 86400.0

    def test_variables_that_sbatch_reads_and_no_others(self):
        found = one("run.sh", SBATCH_DEPENDENCY="afterok:7", SBATCH_CHDIR="/elsewhere", SBATCH_LICENSES="x")
        assert (found[0].workdir, found[1].after) == ("/here", ())
        for variable, option in (("SBATCH_CORE_SPEC", "core-spec"), ("SBATCH_CONTAINER", "container")):
            with pytest.raises(NotForPools, match=f"cannot have --{option}"):
                one("run.sh", **{variable: "1"})

    def test_wrapped(self):
        task, terms = one("--wrap=echo 'x y'", script=None)
        assert (task.argv, terms.name, terms.command) == (("wrap",), "wrap", "")
        assert script_content(asked("--wrap=echo 'x y'", script=None)).startswith(b"#!/bin/sh\n")
        assert script_content(asked("--wrap=echo 'x y'", script=None)).endswith(b"\necho 'x y'\n")

    @pytest.mark.parametrize(
        ("words", "cores", "memory", "gpus"),
        [
            (["-n3", "-c2"], 6, 2048, 0),
            (["-N1", "--ntasks-per-node=4"], 8, 2048, 0),
            (["--mem-per-cpu=100"], 2, 2048, 0),  # the script's --mem is there all the same
            (["--mem=300M", "--gres=gpu:a100:2"], 2, 300, 2),
            (["--mem=0", "-G", "1"], 2, None, 1),
            (["-n2", "--gpus-per-task=1", "--mem=1T"], 4, 2**20, 2),
            (["--gres=gpu", "--mem=1G"], 2, 1024, 1),
        ],
    )
    def test_what_it_needs(self, words, cores, memory, gpus):
        task, _ = one(*words, "run.sh")
        assert (task.cores, task.memory, task.gpus) == (cores, None if memory is None else memory * 2**20, gpus)

    @pytest.mark.parametrize(
        ("text", "limit"), [("0", None), ("UNLIMITED", None), ("1:30", 120.0), ("2:00:00", 7200.0), ("1-0", 86400.0)]
    )
    def test_limits_are_whole_minutes(self, text, limit):
        assert one("-t", text, "run.sh")[1].limit == limit

    def test_signals(self):
        assert one("--signal=B:USR1@30", "run.sh")[1].signal == 10
        terms = one("--signal=SIGUSR2", "run.sh")[1]
        assert (terms.signal, terms.before, terms.batch) == (12, 60.0, False)
        assert one("--signal=RB:9@5", "run.sh")[1].batch

    def test_begin(self):
        assert one("--begin=now+2hours", "run.sh")[1].begin == 1000.0 + 7200
        assert one("-b", "2031-02-03T04:05", "run.sh")[1].begin == datetime(2031, 2, 3, 4, 5).timestamp()
        assert one("--begin=now", "run.sh")[1].begin == 1000.0
        assert one("--begin=teatime", "run.sh")[1].begin % 3600 == 0
        for text in ("tomorow", ""):
            with pytest.raises(SbatchError, match="Invalid --begin specification"):
                one(f"--begin={text}", "run.sh")

    def test_what_slurm_does_besides_is_said_or_has_no_meaning(self):
        words = [
            "-H",
            "--no-requeue",
            "-A",
            "acc",
            "--qos=q",
            "--comment=c d",
            "--open-mode=append",
            "--nice",
            "-D",
            "sub",
        ]
        task, terms = one(*words, "--ntasks-per-core=1", "-o", "o", "-e", "e", "-i", "i", "run.sh")
        assert (terms.held, terms.requeue, terms.append) == (True, False, True)
        assert (terms.account, terms.qos, terms.comment) == ("acc", "q", "c d")
        assert (terms.stdout, terms.stderr, terms.stdin, task.workdir) == ("o", "e", "i", "/here/sub")

    def test_export(self):
        assert export_of(asked("run.sh")) is None
        assert export_of(asked("--export=NONE", "run.sh")) == "NONE"
        assert export_of(asked("run.sh", SBATCH_EXPORT="A,B")) == "A,B"

    def test_arrays(self):
        made = tasks("-a", "2-8:3,20%4", "run.sh")
        places = [task.job.array for task in made if task.job is not None]
        assert [place.index for place in places if place] == [2, 5, 8, 20]
        assert [task.name for task in made] == [f"penstock:ab.{i}" for i in range(4)]
        last = places[-1]
        assert last is not None
        assert (last.position, last.least, last.largest, last.count, last.most) == (3, 2, 20, 4, 4)


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["-N2"], "--nodes=2"),
            (["--constraint=x"], "--constraint"),
            (["-w", "n1"], "--nodelist"),
            (["--gres=license:1"], "--gres=license:1"),
            (["--mail-type=END"], "mail"),
            (["-J", "a", ":", "-J", "b"], "components"),
            (["--exclusive"], "--exclusive"),
        ],
    )
    def test_what_a_pool_cannot_keep_to(self, words, text):
        with pytest.raises(NotForPools, match=text):
            tasks(*words, "run.sh")

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["-t", "soon"], "Invalid --time specification"),
            (["--mem=much"], "Invalid --mem specification"),
            (["-n", "0"], 'Invalid numeric value "0" for --ntasks.'),
            (["-a", "5-3"], "Invalid job array specification"),
            (["-a", "0-99999"], "Invalid job array specification"),
            (["--signal=SIGNOT"], "Invalid --signal specification"),
            (["-d", "afterok:"], "Job dependency problem"),
            (["-d", "afterburstbuffer:4"], "Job dependency problem"),
        ],
    )
    def test_what_sbatch_refuses(self, words, text):
        with pytest.raises(SbatchError, match=text):
            tasks(*words, "run.sh")

    @pytest.mark.parametrize(
        ("script", "text"),
        [("", "empty"), ("echo\n", "does not look like a batch script"), ("#!/bin/sh\r\n", "DOS line breaks")],
    )
    def test_scripts_that_are_none(self, script, text):
        with pytest.raises(SbatchError, match=text):
            script_content(asked("run.sh", script=script))


class TestDependency:
    @pytest.mark.parametrize(
        ("text", "conditions", "enough"),
        [
            ("", (), False),
            ("afterok:5000000001:12", (AfterJob("afterok", 5000000001), AfterJob("afterok", 12)), False),
            ("afterany:7_3,after:8+5", (AfterJob("afterany", 7, 3), AfterJob("after", 8, delay=300.0)), False),
            ("afterok:1?afternotok:2", (AfterJob("afterok", 1), AfterJob("afternotok", 2)), True),
            ("singleton", (AfterJob("singleton"),), False),
            ("12:13", (AfterJob("afterany", 12), AfterJob("afterany", 13)), False),
            ("aftercorr:9_*", (AfterJob("aftercorr", 9),), False),
        ],
    )
    def test_conditions(self, text, conditions, enough):
        assert read_dependency(text) == (conditions, enough)

    @given(st.text("afterok:0123456789_+,?* singleton", max_size=30))
    def test_any_text_is_read_or_refused(self, text):
        try:
            found, _ = read_dependency(text)
        except ValueError:
            return
        assert all(one.job is not None or one.kind == "singleton" for one in found)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["-c2"], {"SLURM_CPUS_PER_TASK": "2"}),
        (["-n2"], {"SLURM_NTASKS": "2", "SLURM_NPROCS": "2"}),
        (["--ntasks-per-node=2"], {"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "SLURM_NTASKS_PER_NODE": "2"}),
        (["-n2", "-c3", "--mem-per-cpu=50"], {"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "SLURM_CPUS_PER_TASK": "3",
                                              "SLURM_MEM_PER_CPU": "50"}),
        (["--mem=1G"], {"SLURM_MEM_PER_NODE": "1024"}),
        (["--gpus=2"], {"SLURM_GPUS_ON_NODE": "2"}),
    ],
)  # fmt: skip
def test_only_what_was_asked_for_is_in_the_environment(words: list[str], expected: dict[str, str]):
    task, _ = one(*words, "--wrap=true", script=None)
    told = job_environment(task, 7, {}, node="n1", attempt=1, user=(7, 8, "alice"), cluster="site")
    names = ("NTASKS", "NTASKS_PER_NODE", "NPROCS", "CPUS_PER_TASK", "MEM_PER_CPU", "MEM_PER_NODE", "GPUS_ON_NODE")
    assert {name: told[name] for name in (f"SLURM_{name}" for name in names) if name in told} == expected
