"""What the plug-in for Snakemake decides without Snakemake: names, needs, what comes next, how a task starts."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snakemake_executor_plugin_penstock.ahead import Ahead, JobAhead
from snakemake_executor_plugin_penstock.foresight import Foresight
from snakemake_executor_plugin_penstock.graph import UnknownGraph, foreseen, told_as, upcoming
from snakemake_executor_plugin_penstock.ledger import SubmissionLedger, job_key, read_ledger
from snakemake_executor_plugin_penstock.naming import POOL, SLURM, ExternalName, fingerprint, name_from
from snakemake_executor_plugin_penstock.needs import JobNeeds, needs_of, open_resources, sbatch_options, unknown
from snakemake_executor_plugin_penstock.script import start_script, task_argv, too_long

HEX = st.text("0123456789abcdef", min_size=1, max_size=16)
NAMES = st.builds(ExternalName, st.sampled_from([POOL, SLURM]), HEX, HEX, st.integers(0, 10**6))
# No line of a file name's own, and nothing that an argument list or a variable cannot have.
TEXTS = st.text(st.characters(blacklist_characters="\0\r\n", blacklist_categories=("Cs",)), max_size=20)


class TestNames:
    @given(NAMES)
    def test_a_name_is_read_as_it_was_written(self, name):
        assert name_from(str(name)) == name

    @given(st.one_of(st.none(), st.text(max_size=60)))
    def test_what_is_none_of_ours_is_no_name(self, text):
        assert name_from(text) is None or str(name_from(text)) == text

    def test_a_fingerprint_is_of_each_word_and_each_input(self):
        marks = {
            fingerprint(["a", "b"], []),
            fingerprint(["ab"], []),
            fingerprint(["a", "b"], [("x", 1, 2)]),
            fingerprint(["a", "b"], [("x", 2, 2)]),
            fingerprint(["a", "b"], [("x", 1, 3)]),
        }
        assert len(marks) == 5


class TestLedger:
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), NAMES)), max_size=20))
    def test_what_was_begun_and_has_not_ended_is_left(self, acts):
        lines, wanted = [], {}
        for key, name in acts:
            lines.append(f"- {key}\n" if name is None else f"+ {key} {name}\n")
            wanted.pop(key, None)
            if name is not None:
                wanted[key] = name
        assert read_ledger(lines) == wanted

    @given(st.lists(st.text(max_size=30), max_size=10))
    def test_any_file_can_be_read(self, lines):
        read_ledger(lines)

    def test_a_line_that_was_cut_off_is_none(self, tmp_path):
        name = ExternalName(POOL, "ab", "cd", 1)
        ledger = SubmissionLedger(tmp_path / "own" / "submitted")
        ledger.begun({"k": name, "other": name})
        ledger.ended(["other"])
        path = tmp_path / "own" / "submitted"
        path.write_text(path.read_text() + "+ third pool:snakem")
        assert SubmissionLedger(path).left == {"k": name}
        ledger.close()
        assert not path.parent.exists()

    def test_it_does_not_grow_for_ever(self, tmp_path):
        path = tmp_path / "submitted"
        ledger = SubmissionLedger(path)
        for number in range(200):
            ledger.begun({"k": ExternalName(POOL, "ab", "cd", number)})
        assert SubmissionLedger(path).left == {"k": ExternalName(POOL, "ab", "cd", 199)}
        assert len(path.read_text().splitlines()) == 1

    def test_a_job_is_known_by_its_outputs_in_any_order(self):
        assert job_key("r", ["a", "b"], "") == job_key("r", ["b", "a"], "")
        assert (
            len({job_key("r", ["a"], ""), job_key("s", ["a"], ""), job_key("r", ["b"], ""), job_key("r", ["a"], "w")})
            == 4
        )


class TestNeeds:
    @pytest.mark.parametrize(
        ("resources", "threads", "wanted"),
        [
            ({}, 1, JobNeeds(1.0, None, 0, None)),
            ({"mem_mb": 500, "runtime": 2}, 4, JobNeeds(4.0, 500_000_000, 0, 120.0)),
            ({"mem_mb_per_cpu": 100}, 4, JobNeeds(4.0, 400_000_000, 0, None)),
            ({"cpus_per_task": 8}, 2, JobNeeds(8.0, None, 0, None)),
            ({"gpu": 2}, 1, JobNeeds(1.0, None, 2, None)),
            ({"gres": "gpu:3"}, 1, JobNeeds(1.0, None, 3, None)),
            ({"gres": "gpu"}, 1, JobNeeds(1.0, None, 1, None)),
            ({"gres": "gpu:1,gpu:2"}, 1, JobNeeds(1.0, None, 3, None)),
            ({"gres": "none"}, 1, JobNeeds(1.0, None, 0, None)),
            ({"gpu": 2, "cpus_per_gpu": 4}, 3, JobNeeds(8.0, None, 2, None)),
            ({"gpu": 0, "gpu_model": "a100"}, 1, JobNeeds(1.0, None, 0, None)),
            ({"slurm_extra": "--mail-type=END --nice=100 -Q --reservation=x"}, 1, JobNeeds(1.0, None, 0, None)),
            ({"nodes": 2}, 1, JobNeeds(1.0, None, 0, None, of_slurm=True)),
            ({"mpi": "mpiexec", "tasks": 4}, 1, JobNeeds(1.0, None, 0, None, of_slurm=True)),
            ({"mem_mb": "<TBD>", "runtime": "<TBD>"}, 1, JobNeeds(1.0, None, 0, None)),
        ],
    )
    def test_of_a_task(self, resources, threads, wanted):
        assert needs_of(resources, threads) == wanted

    @pytest.mark.parametrize(
        ("resources", "gpus"),
        [
            ({"gpu": 2, "gpu_model": "a100"}, 2),
            ({"gpu_model": "a100"}, 1),
            ({"gres": "gpu:a100:2,nvme:100"}, 2),
            ({"gres": "gpu:a100"}, 1),
            ({"gres": "gpu:1g.5gb:2"}, 2),
            ({"gres": "gpu:a100:1,gpu:h100:2"}, 3),
            ({"gres": "tape:3"}, 0),
            ({"gres": "shard:4"}, 0),
            ({"gres": "lustre:4G"}, 0),
            ({"gres": "gpu:1:2:3"}, 0),
            ({"gres": "nvme", "gpu": 2}, 2),
            ({"gpu": 1, "tasks_per_gpu": 1}, 1),
            ({"constraint": "skylake"}, 0),
            ({"slurm_extra": "--gpus-per-node=a100:1"}, 0),
            ({"slurm_extra": "-wn1"}, 0),
            ({"slurm_extra": "--exclude=n1"}, 0),
            ({"slurm_extra": "--exclusive"}, 0),
            ({"slurm_extra": "-L matlab"}, 0),
            ({"slurm_extra": "--begin=now+1hour"}, 0),
            ({"slurm_extra": "'"}, 0),
        ],
    )
    def test_what_no_member_of_a_pool_is_known_to_have_is_a_job_of_slurm(self, resources, gpus):
        needs = needs_of(resources, 1)
        assert needs.of_slurm and needs.gpus == gpus

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["gpu", "nvme", "shard", "lic_x"]),
                st.sampled_from(["", "a100", "1g.5gb", "tesla-v100"]),
                st.one_of(st.none(), st.integers(0, 99)),
                st.sampled_from(["", "", "K", "g"]),
            ),
            min_size=1, max_size=4,
        )
    )  # fmt: skip
    def test_gres_is_read_as_slurms_manual_writes_it(self, wishes):
        """name[[:type]:count], count with K, M, G, T or P of 1024 each; none said is one."""
        words, wanted, plain = [], 0, True
        for name, kind, number, unit in wishes:
            words.append(":".join([name, *filter(None, [kind]), *([] if number is None else [f"{number}{unit}"])]))
            count = 1 if number is None else number * {"": 1, "K": 1024, "g": 1024**3}[unit]
            wanted += count if name == "gpu" else 0
            plain &= not count or (name == "gpu" and not kind)
        needs = needs_of({"gres": ",".join(words)}, 1)
        assert (needs.gpus, needs.of_slurm) == (wanted, not plain)

    def test_a_second_snakemake_takes_memory_too(self):
        assert needs_of({"mem_mb": 5}, 1, inner=True).memory == 305_000_000
        assert needs_of({}, 1, inner=True).memory is None

    def test_of_a_job_of_slurm(self):
        resources = {
            "slurm_partition": "big",
            "slurm_account": "us",
            "nodes": 2,
            "mem_mb": 100,
            "runtime": 5,
            "slurm_extra": "'--exclude=n 1' --nice",
        }
        wanted = ["--partition=big", "--account=us", "--nodes=2", "--time=5", "--mem=100"]
        assert sbatch_options(resources, 3) == [*wanted, "--cpus-per-task=3", "--exclude=n 1", "--nice"]
        assert sbatch_options({}, 1) == ["--ntasks=1", "--cpus-per-task=1"]
        assert "--ntasks=4" in sbatch_options({"nodes": 2, "tasks": 4}, 1)
        assert "--ntasks-per-node=2" in sbatch_options({"tasks_per_node": 2}, 1)
        assert "--gpus=2" in sbatch_options({"gpu": 2}, 1)

    @pytest.mark.parametrize(
        ("resources", "words"),
        [
            ({"gpu": 2, "gpu_model": "a100"}, ["--ntasks=1", "--gpus=a100:2", "--cpus-per-task=3"]),
            ({"gpu_model": "a100"}, ["--ntasks=1", "--gpus=a100:1", "--cpus-per-task=3"]),
            ({"gpu": 0, "gpu_model": "a100"}, ["--ntasks=1", "--cpus-per-task=3"]),
            ({"gres": "gpu:a100:2,nvme:100"}, ["--gres=gpu:a100:2,nvme:100", "--ntasks=1", "--cpus-per-task=3"]),
            ({"gres": "nvme:5", "gpu": 2}, ["--gres=nvme:5", "--ntasks=1", "--gpus=2", "--cpus-per-task=3"]),
            ({"gpu": 2, "cpus_per_gpu": 4}, ["--ntasks=1", "--gpus=2", "--cpus-per-gpu=4"]),
            ({"gpu": 2, "tasks_per_gpu": 2}, ["--ntasks-per-gpu=2", "--gpus=2", "--cpus-per-task=3"]),
            ({"cpus_per_task": -1}, ["--ntasks=1"]),
            ({"runtime": 1.5}, ["--time=2", "--ntasks=1", "--cpus-per-task=3"]),
        ],
    )
    def test_nothing_that_is_asked_for_is_dropped(self, resources, words):
        assert sbatch_options(resources, 3) == words

    @pytest.mark.parametrize(
        ("resources", "said"),
        [
            ({"slurm_extra": "--comment=project7"}, "slurm_extra may not have --comment: the executor says it itself"),
            ({"slurm_extra": "--comm project7"}, "--comment"),
            ({"slurm_extra": "-o my.log"}, "--output"),
            ({"slurm_extra": "-Qomy.log"}, "--output"),
            ({"slurm_extra": "-J name"}, "--job-name"),
            ({"slurm_extra": "-e err"}, "--error"),
            ({"slurm_extra": "--nice -d afterok:1"}, "--dependency"),
            ({"slurm_extra": "-a 1-3"}, "--array"),
            ({"slurm_extra": "-W"}, "--wait"),
            ({"slurm_extra": "-N2"}, "say the resource nodes instead"),
            ({"slurm_extra": "-C skylake"}, "say the resource constraint instead"),
            ({"slurm_extra": "--partition=x"}, "say the resource slurm_partition instead"),
            ({"slurm_extra": "project7"}, "'project7' is no option of sbatch"),
            ({"slurm_extra": "--nice '"}, "No closing quotation"),
            ({"gpu_model": "a100:2"}, "gpu_model='a100:2': must be a type of the site's GPUs"),
            ({"gpu_model": "a100", "gres": "gpu:2"}, "both ask for GPUs"),
        ],
    )
    def test_what_it_may_not_have_is_said(self, resources, said):
        with pytest.raises(ValueError, match=re.escape(said)):
            sbatch_options(resources, 1)

    def test_a_bound_stands_for_what_is_not_known_yet(self):
        late = {"mem_mb": "<TBD>", "runtime": "<TBD>", "ahead_mem_mb": 300}
        assert unknown(late) == ["mem_mb", "runtime"]
        assert unknown(open_resources(late)) == ["runtime"]
        assert open_resources(late)["mem_mb"] == 300
        assert open_resources({"mem_mb": 5, "ahead_mem_mb": 300})["mem_mb"] == 5


class Graph:
    """`graph(c="a b")`: the job c needs a and b."""

    def __init__(self, **parents: str) -> None:
        names = {n for name, text in parents.items() for n in (name, *text.split())}
        self.jobs = {
            name: SimpleNamespace(
                name=name, is_local=False, is_checkpoint=False, resources={}, threads=1, is_group=lambda: False,
                rule=SimpleNamespace(group=None, norun=False),
            )
            for name in sorted(names)
        }  # fmt: skip
        self.ended: set[str] = set()
        self.jobs = {name: _Job(job) for name, job in self.jobs.items()}
        self.dependencies = {job: {} for job in self.jobs.values()}
        self.depending = {job: {} for job in self.jobs.values()}
        for name, text in parents.items():
            for parent in text.split():
                self.dependencies[self.jobs[name]][self.jobs[parent]] = {parent}
                self.depending[self.jobs[parent]][self.jobs[name]] = {parent}

    def needrun_jobs(self):
        return [job for name, job in self.jobs.items() if name not in self.ended]

    def needrun(self, job):
        return True

    def finished(self, job):
        return job.name in self.ended


class _Job:
    """As Snakemake's, it can be the key of a dict."""

    def __init__(self, fields: SimpleNamespace) -> None:
        self.__dict__.update(fields.__dict__)


def names(found):
    return [job.name for job in found]


class TestGraph:
    def test_parents_come_before_their_children(self):
        graph = Graph(d="b c", b="a", c="a")
        assert names(upcoming(graph))[0] == "a" and names(upcoming(graph))[-1] == "d"
        graph.ended = {"a", "b"}
        assert names(upcoming(graph)) == ["c", "d"]

    def test_another_graph_is_said(self):
        with pytest.raises(UnknownGraph, match="depending"):
            upcoming(SimpleNamespace(needrun_jobs=list, finished=bool, needrun=bool, dependencies={}))
        broken = Graph(b="a")
        broken.dependencies = None
        with pytest.raises(UnknownGraph):
            upcoming(broken)

    def test_when_what_may_start(self):
        graph = Graph(b="a", c="a", d="b c")
        length = {"a": 10.0, "b": 20.0, "c": None, "d": 5.0}
        jobs = foreseen(
            upcoming(graph), lambda j: j.name == "a", lambda j: length[j.name], lambda j: (1.0, None), unknown=60.0
        )
        told = told_as(jobs)
        found = {(one["after"], one["seconds"], one["count"]) for one in told}
        assert found == {(10.0, 20.0, 1), (10.0, None, 1), (70.0, 5.0, 1)}
        assert told[-1]["after"] == 70.0, "the soonest come first"

    @given(st.integers(1, 200), st.floats(0, 1e6))
    def test_jobs_that_are_alike_are_told_together(self, count, seconds):
        graph = Graph(**{f"j{i}": "root" for i in range(count)})
        jobs = foreseen(upcoming(graph), lambda j: j.name == "root", lambda j: seconds, lambda j: (2.0, 5), unknown=1.0)
        (told,) = told_as(jobs)
        assert told["count"] == count and told["cores"] == 2.0 and told["memory"] == 5
        assert told["after"] == max(seconds, 1.0)


class Listener:
    """A pool that is told what comes; `old`: its scheduler knows no such request."""

    def __init__(self, old: bool = False) -> None:
        self.told: list[list[dict]] = []
        self.old = old

    def foresee(self, source, tasks, seconds):
        self.told.append(list(tasks))
        return not self.old


class TestForesight:
    def tell(self, foresight, pool, graph, *running):
        needs = lambda job: JobNeeds(1.0, None, 0, 300.0)  # noqa: E731
        foresight.tell(pool, graph, {graph.jobs[name] for name in running}, needs)

    def test_what_comes_is_told_by_what_was_learned_and_taken_back(self, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr("snakemake_executor_plugin_penstock.foresight.time.monotonic", lambda: now[0])
        pool, graph, foresight = Listener(), Graph(b="a", c="b"), Foresight("s")
        foresight.ran("a", 20.0)
        foresight.ran("a", 40.0)
        self.tell(foresight, pool, graph, "a")
        assert [(one["after"], one["seconds"]) for one in pool.told[-1]] == [(30.0, 300.0), (330.0, 300.0)]
        self.tell(foresight, pool, graph, "a")
        assert len(pool.told) == 1, "not at each turn"
        now[0] += 451
        foresight.again(pool)
        assert [one["after"] for one in pool.told[-1]] == [1.0, 1.0]
        foresight.forget(pool)
        assert pool.told[-1] == []
        foresight.forget(pool)
        assert len(pool.told) == 3

    def test_a_function_that_fails_before_its_input_is_there_spoils_nothing(self):
        def needs(job):
            if job.name == "b":
                raise FileNotFoundError("b")
            return JobNeeds(1.0, None, 0, 300.0)

        pool, graph = Listener(), Graph(b="a", c="b")
        Foresight("s").tell(pool, graph, {graph.jobs["a"]}, needs)
        assert [(one["after"], one["seconds"]) for one in pool.told[-1]] == [(360.0, 300.0)]

    def test_an_older_scheduler_is_told_nothing_more(self):
        pool, graph, foresight = Listener(old=True), Graph(b="a"), Foresight("s")
        self.tell(foresight, pool, graph, "a")
        foresight.again(pool)
        foresight.forget(pool)
        assert len(pool.told) == 1


class TestAhead:
    def each(self, ahead, graph, running, wanted=lambda job: True):
        made = []

        def submit(job, resources, after):
            made.append((job.name, list(after)))
            return JobAhead(ExternalName(SLURM, "ab", "cd", len(made)), str(100 + len(made)), JobNeeds(1.0, 5, 0, 60.0))

        ahead.each(graph, {graph.jobs[name]: number for name, number in running.items()}, wanted, submit)
        return made

    def test_so_many_levels_each_behind_those_before(self):
        graph = Graph(b="a", c="b", d="c")
        assert self.each(Ahead(2), graph, {"a": "1"}) == [("b", ["1"]), ("c", ["101"])]
        assert self.each(Ahead(0), graph, {"a": "1"}) == []

    def test_all_that_it_needs_has_to_be_in_the_queue(self):
        graph = Graph(c="a b", d="c")
        assert self.each(Ahead(2), graph, {"a": "1"}) == []
        assert self.each(Ahead(2), graph, {"a": "1", "b": "2"}) == [("c", ["1", "2"]), ("d", ["101"])]
        graph.ended = {"b"}
        assert self.each(Ahead(1), graph, {"a": "1"}) == [("c", ["1"])]

    @pytest.mark.parametrize("change", ["checkpoint", "group", "local", "bound", "not of slurm"])
    def test_what_may_be_another_by_then_is_not(self, change):
        graph = Graph(b="a", c="b")
        job, wanted = graph.jobs["b"], lambda job: True
        if change == "checkpoint":
            graph.jobs["a"].is_checkpoint = True
        elif change == "group":
            job.rule.group = "g"
        elif change == "local":
            job.is_local = True
        elif change == "bound":
            job.resources = {"mem_mb": "<TBD>"}
        else:
            wanted = lambda job: job.name != "b"  # noqa: E731
        assert self.each(Ahead(2), graph, {"a": "1"}, wanted) == []

    def test_behind_one_that_failed_all_are_forgotten(self):
        graph = Graph(b="a", c="b", e="d")
        ahead = Ahead(2)
        self.each(ahead, graph, {"a": "1", "d": "2"})
        assert names(ahead.drop(graph, graph.jobs["a"])) == ["b", "c"]
        assert ahead.take(graph.jobs["b"]) is None and ahead.take(graph.jobs["e"]) is not None
        assert ahead.all() == []

    @pytest.mark.parametrize(
        ("needs", "enough"),
        [
            (JobNeeds(1.0, 5, 0, 60.0), True),
            (JobNeeds(1.0, None, 0, None), True),
            (JobNeeds(1.0, 6, 0, 60.0), False),
            (JobNeeds(2.0, 5, 0, 60.0), False),
            (JobNeeds(1.0, 5, 1, 60.0), False),
            (JobNeeds(1.0, 5, 0, 61.0), False),
        ],
    )
    def test_whether_it_is_enough_after_all(self, needs, enough):
        asked = JobAhead(ExternalName(SLURM, "ab", "cd", 1), "1", JobNeeds(1.0, 5, 0, 60.0))
        assert asked.enough(needs) == enough


def started(tmp_path: Path, environ: dict[str, str], command: list[str], **more) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "start.sh"
    script.write_text(start_script(environ, 0o027), encoding="utf-8", errors="surrogateescape")
    outside = more.pop("outside", {})
    argv = task_argv(str(script), command, **more)
    env = {"PATH": os.environ["PATH"], **outside}
    return subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)


class TestStart:
    @given(st.dictionaries(st.text(string.ascii_letters, max_size=8).map("OWN_{}".format), TEXTS, max_size=4))
    def test_the_environment_is_the_submitters(self, tmp_path_factory, environ):
        words = [sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"]
        done = started(tmp_path_factory.mktemp("start"), {**environ, "PATH": os.environ["PATH"]}, words)
        assert {name: json.loads(done.stdout).get(name) for name in environ} == environ, done.stderr

    def test_but_for_what_is_the_nodes(self, tmp_path):
        environ = {
            "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "7", "PENSTOCK_TASK": "3", "PWD": "/x", "KEPT": "k\nl",
            "BASH_FUNC_hello%%": "() {  echo \"hello $1\"\n}", "no name": "x", "PATH": os.environ["PATH"],
        }  # fmt: skip
        outside = {"SLURM_JOB_ID": "2", "CUDA_VISIBLE_DEVICES": "0", "PENSTOCK_TASK": "4"}
        words = ["bash", "-c", 'hello you; echo "$KEPT"; echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES $PENSTOCK_TASK']
        done = started(tmp_path, environ, words, outside=outside)
        assert (done.stdout, done.stderr) == ("hello you\nk\nl\n2 0 4\n", "")

    @pytest.mark.parametrize(
        ("outside", "environ", "wanted"),
        [
            ({"TMPDIR": "HERE/node"}, {"TMPDIR": "HERE/own"}, "HERE/node"),
            ({"TMP": "HERE/node"}, {}, "HERE/node"),
            ({}, {"TMPDIR": "HERE/own"}, "HERE/own"),
            ({"TMPDIR": "/nosuch"}, {"TMPDIR": "/nosuch"}, "/tmp"),
            ({}, {}, "/tmp"),
        ],
    )
    def test_temporary_files_lie_where_the_node_says_else_the_submitter(self, tmp_path, outside, environ, wanted):
        for name in ("node", "own"):
            (tmp_path / name).mkdir()
        here = [{k: v.replace("HERE", str(tmp_path)) for k, v in one.items()} for one in (outside, environ)]
        done = started(tmp_path, here[1], ["sh", "-c", "echo $TMPDIR $TMP $TEMP $TEMPDIR"], outside=here[0])
        assert done.stdout.split() == [wanted.replace("HERE", str(tmp_path))] * 4

    def test_new_files_have_the_submitters_mode(self, tmp_path):
        assert started(tmp_path, {}, ["sh", "-c", "umask"]).stdout == "0027\n"

    def test_variables_of_the_job_come_last(self, tmp_path):
        done = started(tmp_path, {"X": "1"}, ["sh", "-c", "echo $X $0 $#", "a b"], environment={"X": "2 '3"})
        assert done.stdout == "2 '3 a b 0\n"

    @given(st.lists(TEXTS.filter(bool), max_size=4))
    def test_words_come_through_as_they_are(self, tmp_path_factory, words):
        done = started(tmp_path_factory.mktemp("start"), {}, ["printf", "%s\\n", "first", *words])
        assert done.stdout.split("\n")[:-1] == ["first", *words]

    def test_an_input_that_never_comes_is_said(self, tmp_path):
        (tmp_path / "there").touch()
        done = started(tmp_path, {}, ["echo", "ran"], latency=0, inputs=["there", "it's gone"])
        assert done.returncode == 1 and done.stdout == ""
        assert "the input it's gone is not there on" in done.stderr

    @pytest.mark.parametrize(("attempt", "left"), [("1", ["a b", "dir"]), ("2", [])])
    def test_another_attempt_finds_no_half_output(self, tmp_path, attempt, left):
        (tmp_path / "dir").mkdir()
        (tmp_path / "dir" / "x").touch()
        (tmp_path / "a b").touch()
        more = {"files": ["a b"], "folders": ["dir"], "outside": {"PENSTOCK_ATTEMPT": attempt}}
        done = started(tmp_path, {}, ["ls"], **more)
        assert done.stdout.splitlines() == sorted([*left, "start.sh"])

    def test_too_many_names_are_said(self):
        assert too_long(["x" * 20_000, "y" * 10_000]) and not too_long(["x" * 20_000])
