"""Logs and models through the simulated Slurm, and the command over it."""

from __future__ import annotations

import json
import os
import threading
from itertools import pairwise

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import JobState
from penstock.errors import PenstockError, UserError
from penstock_lab.cli.simulate import simulate
from penstock_lab.mock.model import ClusterConfig, Scheduler
from penstock_lab.sim.cluster import Outcome, run
from penstock_lab.sim.clusterlog import check_failures, fates_of, jobs_of, measure
from penstock_lab.sim.replay import replay
from penstock_lab.sim.score import score
from penstock_lab.sim.swf import SwfReader, load
from penstock_lab.sim.swfout import Fate, write_workload
from penstock_lab.sim.trace import Trace
from penstock_lab.sim.workloads import generate

CONFIG = ClusterConfig(nodes=4)


def command(*arguments):
    """`penstock simulate cluster …` in this process: (exit code, output, message)."""
    result = CliRunner().invoke(simulate, ["cluster", *map(str, arguments)], standalone_mode=False)
    if isinstance(result.exception, PenstockError):
        return result.exception.exit_code, result.stdout, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return 0, result.stdout, ""


jobs = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 4), st.integers(0, 8)).map(
        lambda job: (*job[:3], job[1] + job[3])
    ),
    min_size=1,
    max_size=20,
)


def simulated(trace, scheduler):
    config = ClusterConfig(nodes=4, scheduler=Scheduler(scheduler), weight_age=0)
    return [round(outcome.start) for outcome in run(config, jobs_of(trace, 1, requeue=True))]


@settings(deadline=None)
@given(jobs)
def test_in_order_the_simulated_slurm_and_the_counting_simulator_agree(found):
    trace = Trace.of((i, *job) for i, job in enumerate(found, 1))
    assert simulated(trace, "fcfs") == list(replay(trace, 4, "fcfs", "batch"))


@settings(deadline=None)
@given(jobs, st.sampled_from(["easy", "conservative", "replan"]))
def test_under_any_policy_no_node_has_two_jobs_and_the_figures_are_those_of_the_starts(found, scheduler):
    trace = Trace.of((i, *job) for i, job in enumerate(found, 1))
    outcomes = run(ClusterConfig(nodes=4, scheduler=Scheduler(scheduler)), jobs_of(trace, 1, requeue=True))
    held = sorted((node, o.start, o.end) for o in outcomes for node in o.nodes)
    for (node, _, end), (other, start, _) in pairwise(held):
        assert node != other or end <= start
    result = measure(trace, outcomes, 4)
    assert result.states == {"COMPLETED": len(found)}
    assert result.figures == score(trace, [round(o.start) for o in outcomes], 4)


def test_jobs_get_whole_nodes_and_the_requested_time_as_limit():
    trace = Trace.of([(7, 0, 10, 5, 30), (8, 1, 10, 8, 10)])
    first, second = jobs_of(trace, 4, requeue=False)
    assert (first.spec.nodes, first.spec.time_limit, first.duration, first.spec.requeue) == (2, 30, 10, False)
    assert (second.spec.nodes, second.spec.name) == (2, "8")


def test_jobs_wait_for_the_one_before_if_it_was_submitted_before():
    trace = Trace.of([(20, 0, 10, 1, 10), (30, 1, 5, 1, 5), (25, 2, 5, 1, 5)])
    before = {30: 20, 20: 25, 25: 99}  # 20 names one that comes later, 25 one that is not there
    outcomes = run(CONFIG, jobs_of(trace, 1, True, before))
    assert [o.start for o in outcomes] == [0, 10, 2]
    outcomes = run(CONFIG, jobs_of(trace, 1, True, {20: 20, 30: 30}))  # and these name themselves
    assert [o.start for o in outcomes] == [0, 1, 2]


def swf_line(number, submit, run, preceding):
    return f"{number} {submit} 0 {run} 1 -1 -1 1 {2 * run} -1 1 -1 -1 -1 -1 -1 {preceding} -1\n"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([(1, 0, 100, -1), (2, 1, 10, 1)], {2: 1}),
        ([(1, 0, 100, -1), (2, 1, 10, "1.0")], {2: 1}),
        ([(1, 0, 100, -1), (2, 1, 10, -1), (2, 2, 10, 1)], {}),  # the third line is left out
        ([(1, 0, 100, -1), (2, 1, 10, "1e400")], {}),
        ([(1, 0, 100, -1), (2, 1, 10, "1.5")], {}),
    ],
)
def test_what_jobs_wait_for_is_read_with_them(tmp_path, lines, found):
    path = tmp_path / "log.swf"
    path.write_text("".join(swf_line(*line) for line in lines))
    assert load(path, 4, skip_bad=True, dependencies=True).preceding == found
    assert load(path, 4, skip_bad=True).preceding == {}


def test_dependencies_of_a_log_that_comes_through_a_pipe(tmp_path):
    pipe, text = tmp_path / "pipe", swf_line(1, 0, 100, -1) + swf_line(2, 1, 10, 1)
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    code, said, message = command(pipe, "--nodes", 8, "--dependencies", "--json")
    writer.join(10)
    assert code == 0, message
    assert json.loads(said)["mean_wait_s"] == 49.5


def test_measures_and_fates_of_jobs_that_ended_in_every_way():
    trace = Trace.of([(1, 0, 10, 2, 10), (2, 0, 10, 1, 10), (3, 5, 10, 1, 10), (4, 5, 10, 1, 10)])
    outcomes = [
        Outcome(1, 0, 0, 10, ("n1", "n2"), JobState.COMPLETED, 2),
        Outcome(2, 0, 10, 20.4, ("n1",), JobState.TIMEOUT, 0),
        Outcome(3, 5, 5, 9, ("n3",), JobState.NODE_FAIL, 0),
        Outcome(4, 5, None, None, (), JobState.PENDING, 1),
    ]
    result = measure(trace, outcomes, 4)
    assert result.states == {"COMPLETED": 1, "NODE_FAIL": 1, "PENDING": 1, "TIMEOUT": 1}
    assert (result.requeues, result.figures.jobs, result.figures.total_wait) == (3, 3, 10)
    assert (result.figures.makespan, result.figures.utilisation) == (20, (20 + 10 + 4) / 80)
    assert fates_of(trace, outcomes) == [Fate(0, 10, 2, 1), Fate(10, 10, 1, 5), Fate(0, 4, 1, 0), Fate(-1, -1, 1, 5)]
    assert measure(trace, [outcomes[3]] * 4, 4).figures is None


def test_failures_that_would_never_let_a_job_end_are_refused():
    trace = Trace.of([(1, 0, 10, 4, 10), (2, 0, 3600, 8, 3600)])
    check_failures(trace, 2, 3600.0)
    with pytest.raises(UserError, match=r"job 2 .4 nodes, 3600 s. would be hit by 8 failures .* --failures 1h or more"):
        check_failures(trace, 2, 1800.0)


# --- the command


def test_a_log_through_the_command_and_back(tmp_path):
    source, out = tmp_path / "l.swf.gz", tmp_path / "out.swf"
    write_workload(source, generate("lublin", 300, 32, 4, 0.9), 32)
    code, said, _ = command(source, "--nodes", 8, "--cpus-per-node", 4, "--policy", "fcfs", "--out", out, "--json")
    told = json.loads(said)
    assert code == 0
    assert (told["n"], told["states"], told["nodes"], told["estimates"]) == (300, {"COMPLETED": 300}, 8, "user")
    trace = load(source, 32).trace
    nodes = Trace.of(
        (n, s, r, -(-p // 4), e)
        for n, s, r, p, e in zip(trace.ids, trace.submit, trace.run, trace.procs, trace.estimate, strict=True)
    )
    expected = score(nodes, replay(nodes, 8, "fcfs", "batch"), 8)
    assert told["sha256"] == expected.sha256
    assert told["mean_wait_s"] == expected.mean_wait
    assert told["utilisation"] == expected.utilisation
    reader = SwfReader(out)
    rows = [[int(f) for f in record.raw.split()] for record in reader]
    assert sum(row[2] for row in rows) == told["total_wait_s"]
    assert [row[4] for row in rows] == list(trace.procs)
    assert reader.header[-1] == "; Note: simulated by penstock: fcfs, 8 nodes of 4 CPUs, user estimates"
    code, said, _ = command(source, "--nodes", 8, "--cpus-per-node", 4, "--policy", "fcfs")
    assert said.splitlines()[0] == "jobs                   300 COMPLETED"
    assert f"mean wait              {expected.mean_wait:.4f} s" in said


def test_a_model_with_failures_and_dependencies_and_what_ageing_changes(tmp_path):
    out = tmp_path / "out.swf"
    asked = ("--model", "feitelson", "--jobs", 400, "--nodes", 32, "--load", "0.9", "--seed", 3, "--dependencies")
    code, said, _ = command(*asked, "--failures", "40d", "--repair", "2h", "--out", out, "--json")
    told = json.loads(said)
    assert code == 0
    assert told["requeues"] > 0
    assert told["states"] == {"COMPLETED": 400}
    rows = {int(r.raw.split()[0]): [int(f) for f in r.raw.split()] for r in SwfReader(out)}
    chained = [row for row in rows.values() if row[16] > 0]
    assert chained
    for row in chained:  # nobody started before the end of the run before, but for rounding
        before = rows[row[16]]
        assert row[1] + row[2] >= before[1] + before[2] + before[3] - 1
    code, said, _ = command(*asked, "--failures", "40d", "--repair", "2h", "--no-requeue", "--json")
    lost = json.loads(said)
    assert lost["requeues"] == 0
    assert lost["states"]["NODE_FAIL"] > 0
    assert json.loads(command(*asked, "--json")[1])["sha256"] == json.loads(command(*asked, "--json")[1])["sha256"]
    aged = json.loads(command(*asked, "--accrue-always", "--json")[1])
    assert aged["sha256"] != json.loads(command(*asked, "--json")[1])["sha256"]


def test_the_log_that_is_read_is_not_replaced(tmp_path):
    path, link = tmp_path / "l.swf", tmp_path / "link.swf"
    write_workload(path, generate("lublin", 20, 4, 1), 4)
    link.symlink_to(path)
    before = path.read_bytes()
    for out in (path, link):
        code, _, message = command(path, "--nodes", 4, "--out", out)
        assert (code, message) == (2, f"--out would replace {path}, which is read: give it another name")
    assert path.read_bytes() == before


def test_a_log_says_how_large_its_machine_is(tmp_path):
    path = tmp_path / "l.swf"
    write_workload(path, generate("lublin", 20, 10, 1), 10)
    whole = [command(path, "--cpus-per-node", 4, *nodes) for nodes in ((), ("--nodes", 3))]
    assert whole[0] == whole[1] and whole[0][0] == 0
    path.write_text(path.read_text().replace("; Max", "; max"))
    code, _, message = command(path)
    assert (code, message) == (
        2, f"--nodes is missing, and {path} does not say how large its machine is (; MaxProcs:)"
    )  # fmt: skip


def test_what_is_no_file_is_not_replaced(tmp_path):
    path, pipe = tmp_path / "l.swf", tmp_path / "pipe"
    write_workload(path, generate("lublin", 20, 4, 1), 4)
    os.mkfifo(pipe)
    code, _, message = command(path, "--nodes", 4, "--out", pipe)
    assert (code, message) == (2, f"--out {pipe} is there and not a file: give it another name")
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give either a log or --model"),
        (("--model", "lublin"), "--nodes is missing: how many nodes has the cluster?"),
        (("--nodes", "0"), "--nodes must be a whole number from 1"),
        (("--nodes", "4"), "give either a log or --model"),
        (("x.swf", "--nodes", "4", "--model", "lublin"), "give either a log or --model"),
        (("x.swf", "--nodes", "4"), "x.swf: No such file"),
        (("--nodes", "4", "--model", "downey"), "the models are feitelson, lublin"),
        (("--nodes", "4", "--model", "lublin", "--estimates", "user"), "a model has no users to ask"),
        (("x.swf", "--nodes", "4", "--filter", "singh"), "--filter singh needs --estimates actual"),
        (("--nodes", "4", "--model", "lublin", "--policy", "sjf"), "--policy must be one of fcfs, easy"),
        (("--nodes", "4", "--model", "lublin", "--keep-free", "1d/2d"), "--keep-free must be START/DURATION/NODES"),
        (("--nodes", "4", "--model", "lublin", "--keep-free", "1d/soon/2"), "--keep-free must be START/DURATION/NODES"),
        (("--nodes", "4", "--model", "lublin", "--failures", "often"), "--failures must be a duration such as"),
        (("--nodes", "4", "--model", "lublin", "--failures", "1m"), "hardly ever end: use --failures"),
        (("--nodes", "4", "--model", "lublin", "--out", "/nowhere/x"), "/nowhere, where --out should go"),
        (("x.swf", "--nodes", "4", "--load", "0.9"), "--load is for --model; `penstock simulate sweep` takes a log to"),
        (("x.swf", "--nodes", "4", "--jobs", "5000"), "--jobs is for --model; a log is simulated with all its jobs"),
        (("x.swf", "--nodes", "4", "--kinds", "batch"), "--kinds is for --model lublin; --filter chooses among"),
        (("--nodes", "4", "--model", "feitelson", "--kinds", "batch"), "kinds of jobs are for the model lublin"),
        (("--nodes", "4", "--model", "lublin", "--filter", "singh"), "--filter is for logs; --jobs and --kinds say"),
        (("--nodes", "4", "--model", "lublin", "--skip-bad"), "--skip-bad is for logs; a model makes no damaged lines"),
        (("--nodes", "4", "--model", "lublin", "--load", "1e300"), "--load must be greater than 0 and at most 100"),
        (
            ("--nodes", "8", "--model", "lublin", "--jobs", "10", "--keep-free", "1h/2h/99"),
            "--keep-free keeps 99 nodes free 1h after the first submission, the cluster has 8 (--nodes)",
        ),
        (
            ("--nodes", "8", "--model", "lublin", "--jobs", "10", "--keep-free", "1h/2h/5", "--keep-free", "2h/1d/4"),
            "--keep-free keeps 9 nodes free 2h after the first submission, the cluster has 8 (--nodes)",
        ),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    code, _, message = command(*options)
    assert code == 2
    assert says in message
    assert "\n" not in message
