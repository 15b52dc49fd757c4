"""Sweeps: the grid, what is computed and what is not computed again, the table, and the command."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from click.testing import CliRunner

from penstock.errors import PenstockError, UserError
from penstock_lab.cli.simulate import simulate
from penstock_lab.sim.loads import at_load
from penstock_lab.sim.replay import replay
from penstock_lab.sim.score import score
from penstock_lab.sim.sweep import local
from penstock_lab.sim.sweep.array import share_of, submit_array
from penstock_lab.sim.sweep.grid import Grid, read_grid
from penstock_lab.sim.sweep.one import COLUMNS, compute
from penstock_lab.sim.sweep.parts import Parts
from penstock_lab.sim.swf import load
from penstock_lab.sim.swfout import write_workload
from penstock_lab.sim.trace import Trace
from penstock_lab.sim.workloads import generate


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "l.swf"
    made = generate("lublin", 60, 16, 1, 0.9)
    write_workload(path, made, 16)
    return path


def grid(**axes):
    return Grid.of({name.replace("_", "-"): values for name, values in axes.items()}, False, lambda name: f"--{name}")


def run(*arguments):
    """`penstock simulate sweep …` in this process: (exit code, output, message)."""
    result = CliRunner().invoke(simulate, ["sweep", *map(str, arguments)], standalone_mode=False)
    if isinstance(result.exception, PenstockError):
        return result.exception.exit_code, result.stdout, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return 0, result.stdout, ""


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- the grid


def test_every_combination_is_there_once_and_those_of_the_same_jobs_together(log):
    found = grid(
        log=[str(log)], model=["lublin"], procs=["16", "16"], policy=["easy", "replan"], ties=["pyss", "batch"],
        estimates=["user", "actual", "f:2"], seed=["1", "2"], load=["0.5"],
    ).combinations()  # fmt: skip
    assert len(set(found)) == len(found)
    # of the log: two estimates without a seed and one with two; of the model: two seeds with two estimates
    assert len([c for c in found if c.log]) == 2 * 2 * (2 + 2)
    assert len([c for c in found if c.model]) == 2 * 2 * (2 * 2)
    assert {c.estimates for c in found if c.model} == {"actual", "f:2"}
    sources = [(c.log, c.model, c.seed if c.model else None) for c in found]
    assert len(set(sources)) == 1 + sum(a != b for a, b in pairwise(sources))


def test_the_machine_of_a_log_is_that_of_its_header(log, tmp_path):
    assert [c.procs for c in grid(log=[str(log)]).combinations()] == [16]
    assert [c.procs for c in grid(log=[str(log)], procs=["8", "32"]).combinations()] == [8, 32]
    bare = tmp_path / "bare.swf"
    bare.write_text("; nothing\n1 0 7 10 1 -1 -1 1 20 -1 1 5 6 7 2 -1 -1 -1\n")
    with pytest.raises(UserError, match="does not say how many processors its machine has"):
        grid(log=[str(bare)]).combinations()


def test_what_does_not_apply_makes_no_difference():
    found = grid(model=["feitelson", "lublin"], procs=["8"], kinds=["batch", "both"], filter=["strong", "singh"])
    assert [(c.model, c.kinds, c.filter) for c in found.combinations()] == [
        ("feitelson", None, None),
        ("lublin", "batch", None),
        ("lublin", "both", None),
    ]


MANY = [str(i) for i in range(1, 400)]


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({}, "at least one --log or --model"),
        ({"model": ["lublin"]}, "--procs is missing"),
        ({"model": ["downey"]}, "--model must be one of feitelson, lublin, not 'downey'"),
        ({"model": ["lublin"], "procs": ["0"]}, "--procs must be a whole number from 1"),
        ({"model": ["lublin"], "procs": ["9"], "load": ["80%"]}, "--load must be greater than 0 and at most 100"),
        ({"model": ["lublin"], "procs": ["9"], "estimates": ["x"]}, "--estimates must be actual, user, times:F or f:F"),
        ({"model": ["lublin"], "procs": ["9"], "estimates": ["user"]}, "no combination is possible"),
        ({"model": ["lublin"], "procs": MANY, "seed": MANY}, "more than 100000 combinations"),
    ],
)  # fmt: skip
def test_a_grid_that_cannot_be(axes, says):
    with pytest.raises(UserError, match=says):
        grid(**axes).combinations()


def test_a_file_and_options_together(log, tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("log: l.swf\npolicy: [easy, fcfs]\nseed: [1, 2]\nestimates: f:2\nskip-bad: true\n")
    whole = read_grid(file, {}, False)
    assert [(c.log, c.policy, c.seed, c.skip_bad) for c in whole.combinations()] == [
        (str(log), "easy", 1, True),
        (str(log), "fcfs", 1, True),
        (str(log), "easy", 2, True),
        (str(log), "fcfs", 2, True),
    ]
    assert {c.policy for c in read_grid(file, {"policy": ["replan"]}, False).combinations()} == {"replan"}
    copy = tmp_path / "copy.yaml"
    copy.write_text(whole.as_file())
    assert read_grid(copy, {}, False).combinations() == whole.combinations()


def test_what_is_read_is_not_replaced(log, tmp_path):
    table = tmp_path / "l.csv"
    log.rename(table)
    before = table.read_bytes()
    code, _, message = run("--log", table, "--out", table)
    assert (code, message) == (2, f"--out would replace {table}, which is read: give it another name")
    grid = tmp_path / "grid.csv"
    grid.write_text("log: l.csv\n")
    assert run(grid, "--out", grid)[0] == 2
    assert (grid.read_text(), table.read_bytes()) == ("log: l.csv\n", before)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("policies: [easy]", "unknown key 'policies'; the keys are log, model"),
        ("policy: [easy, sjf]", "grid.yaml: policy must be one of fcfs"),
        ("seed: [true]", "grid.yaml: seed must be a whole number"),
        ("log: 5", "grid.yaml: log must be the name of a file"),
        ("skip-bad: 1", "skip-bad must be true or false"),
        ("- easy", "must be a list of keys"),
        ("a: [", "is not valid YAML"),
        ("a: \x00", "is not valid YAML"),
    ],
)
def test_a_file_that_cannot_be(tmp_path, text, says):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(UserError, match=says) as e:
        read_grid(tmp_path / "grid.yaml", {}, False)
    assert "\n" not in str(e.value)
    with pytest.raises(UserError, match="No such file"):
        read_grid(tmp_path / "absent.yaml", {}, False)


def test_a_log_at_another_load():
    trace = Trace.of([(1, 100, 10, 2, 10), (2, 110, 10, 2, 10), (3, 200, 20, 4, 20)])
    moved = at_load(trace, 4, 0.5)
    # 120 processor seconds on 4 processors at half of their time: 60 s from the first to the last
    assert list(moved.submit) == [100, 106, 160]
    assert moved.run == trace.run
    with pytest.raises(UserError, match="not all submitted in the same second"):
        at_load(Trace.of([(1, 5, 10, 2, 10), (2, 5, 10, 2, 10)]), 4, 0.5)


# --- computing


def test_a_combination_is_the_replay_of_its_jobs(log):
    (one,) = grid(log=[str(log)], procs=["16"], policy=["conservative"], ties=["batch"]).combinations()
    row = compute(one)
    trace = load(log, 16).trace
    expected = score(trace, replay(trace, 16, "conservative", "batch"), 16)
    assert row.keys() == COLUMNS.keys()
    assert (row["n"], row["sha256"], row["mean_wait_s"]) == (60, expected.sha256, expected.mean_wait)
    assert (row["makespan_s"], row["utilisation"]) == (expected.makespan, expected.utilisation)
    assert (row["policy"], row["log"], row["model"], row["error"]) == ("conservative", str(log), None, None)


def test_seeds_loads_and_estimates_reach_the_replay():
    axes = {"model": ["lublin"], "procs": ["16"], "model_jobs": ["200"], "load": ["0.9"]}
    digests = [
        compute(one)["sha256"]
        for more in ({}, {"seed": ["2"]}, {"load": ["1.1"]}, {"estimates": ["times:9"]}, {"estimates": ["f:9"]})
        for one in grid(**{**axes, **more}).combinations()
    ]
    assert len(set(digests)) == 5


def test_what_goes_wrong_is_a_row(log, monkeypatch):
    bad = grid(log=["/absent.swf", str(log)], procs=["16"]).combinations()
    assert compute(bad[0])["error"].endswith("/absent.swf: No such file or directory")
    monkeypatch.setattr("penstock_lab.sim.sweep.one.replay", lambda *_: 1 // 0)
    row = compute(bad[1])
    assert row["error"] == "ZeroDivisionError: integer division or modulo by zero"
    assert row.keys() == COLUMNS.keys()


def test_another_version_of_the_log_is_computed_again(log):
    (one,) = grid(log=[str(log)]).combinations()
    before = one.key()
    os.utime(log, ns=(1, 1))
    assert one.key() != before


# --- the command


AXES = ("--model", "lublin", "--model", "feitelson", "--procs", 16, "--model-jobs", 40, "--seed", 1, "--seed", 2)


def test_the_command_writes_the_table_and_computes_nothing_twice(tmp_path, monkeypatch):
    out = tmp_path / "r.csv"
    code, said, _ = run(*AXES, "--out", out)
    assert (code, said.splitlines()) == (0, ["4 combinations, 0 of them computed before", f"4 rows: {out}"])
    rows = table(out)
    assert [(r["model"], r["seed"], r["n"]) for r in rows] == [
        ("lublin", "1", "40"), ("lublin", "2", "40"), ("feitelson", "1", "40"), ("feitelson", "2", "40"),
    ]  # fmt: skip
    assert list(rows[0]) == list(COLUMNS)
    assert len({r["sha256"] for r in rows}) == 4
    first = out.read_bytes()
    monkeypatch.setattr(local, "compute", lambda one: pytest.fail("computed again"))
    code, said, _ = run(*AXES, "--out", out)
    assert said.startswith("4 combinations, 4 of them computed before")
    assert out.read_bytes() == first
    monkeypatch.undo()
    code, said, _ = run(*AXES, "--policy", "fcfs", "--policy", "easy", "--out", out)
    assert said.startswith("8 combinations, 4 of them computed before")


def test_failed_combinations_are_rows_and_the_exit_code_and_tried_again(log, tmp_path):
    out, late = tmp_path / "r.csv", tmp_path / "late.swf"
    arguments = ("--log", log, "--log", late, "--procs", 16, "--out", out)
    code, _, message = run(*arguments)
    assert code == 1
    assert message.startswith("1 of 2 combinations failed; the first (log ")
    assert message.endswith("late.swf: No such file or directory")
    rows = table(out)
    assert [bool(r["error"]) for r in rows] == [False, True]
    assert (rows[1]["log"], rows[1]["n"]) == (str(late), "")
    late.write_bytes(log.read_bytes())
    code, said, _ = run(*arguments)
    assert code == 0
    assert said.startswith("2 combinations, 1 of them computed before")
    assert [r["error"] for r in table(out)] == ["", ""]


def test_what_failed_is_computed_again_though_nothing_has_changed(log, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr("penstock_lab.sim.sweep.one.replay", lambda *_: 1 // 0)
        assert run("--log", log, "--out", tmp_path / "r.csv")[0] == 1
    code, said, _ = run("--log", log, "--out", tmp_path / "r.csv")
    assert code == 0
    assert said.startswith("1 combinations, 0 of them computed before")


def test_two_processes_give_what_one_gives(log, tmp_path):
    """As a command, so that the processes are started from the command's and not from the test's."""
    arguments = [*map(str, AXES), "--log", str(log), "--policy", "easy", "--policy", "conservative", "--procs", "16"]
    for jobs, name in (("1", "one.csv"), ("2", "two.csv")):
        command = [sys.executable, "-m", "penstock", "simulate", "sweep", *arguments, "--processes", jobs]
        ended = subprocess.run(
            [*command, "--out", name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")  # no bar where there is no terminal
        assert ended.stdout.endswith(f"10 rows: {tmp_path / name}\n")
    one, two = (table(tmp_path / name) for name in ("one.csv", "two.csv"))
    for row in (*one, *two):
        del row["cpu_s"]
    assert one == two


def test_a_process_that_dies_is_a_row(log, tmp_path):
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from penstock_lab.sim.sweep import local\n"
        "from penstock_lab.sim.sweep.grid import Grid\n"
        "from penstock_lab.sim.sweep.parts import Parts\n"
        "if __name__ != '__main__':\n    local.compute = lambda one: os._exit(9)\n"
        "else:\n"
        "    found = Grid.of({'log': [sys.argv[1]], 'policy': ['easy', 'fcfs']}, False, str).combinations()\n"
        "    parts = Parts(Path('r.csv'))\n    parts.make()\n"
        "    local.compute_all(found, Path('r.csv'), 2)\n"
        "    print([row['error'][:32] for row in parts.rows(found)])\n"
    )
    (tmp_path / "main.py").write_text(code)
    ended = subprocess.run(
        [sys.executable, "main.py", str(log)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stdout == "['a process ended without a result', 'a process ended without a result']\n"


def test_compressed_csv(tmp_path):
    assert run(*AXES, "--out", tmp_path / "r.csv.gz")[0] == 0
    assert gzip.decompress((tmp_path / "r.csv.gz").read_bytes()).startswith(b"log,model,procs,")


def test_parquet(log, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    code, _, _ = run("--log", log, "--log", tmp_path / "none", "--procs", 16, "--out", tmp_path / "r.parquet")
    assert code == 1
    rows = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert [row["n"] for row in rows] == [60, None]
    assert list(rows[0]) == list(COLUMNS)
    assert isinstance(rows[0]["mean_wait_s"], float)


def test_parquet_without_pyarrow_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    code, _, message = run(*AXES, "--out", tmp_path / "r.parquet")
    assert code == 2
    assert "pip install 'penstock-lab[parquet]'" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--out is missing"),
        (("--out", "r.xlsx"), "--out must end with .csv, .csv.gz or .parquet, not 'r.xlsx'"),
        (("--out", "r.csv", "--processes", "0"), "--processes must be a whole number from 1"),
        (("--out", "r.csv", "--merge", "--share", "2"), "exclude one another"),
        (("--out", "r.csv", "--policy", "sjf"), "--policy must be one of fcfs"),
        (("--out", "r.csv", "--share", "2"), "--share 2 is for the tasks 0 to 1"),
        (("none.yaml", "--out", "r.csv"), "none.yaml: No such file"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    code, _, message = run(*AXES, *options)
    assert code == 2
    assert says in message
    assert "\n" not in message


def test_shares_of_an_array_are_the_whole_and_the_merge_makes_the_table(tmp_path, monkeypatch):
    out = tmp_path / "r.csv"
    code, _, message = run(*AXES, "--out", out, "--merge")
    assert code == 1
    assert message.endswith("not computed")
    for task in ("1", "0"):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
        before = out.read_bytes()
        code, said, _ = run(*AXES, "--out", out, "--share", "2")
        assert (code, said) == (0, "2 combinations, 0 of them computed before\n")
        assert out.read_bytes() == before
    assert run(*AXES, "--out", out, "--merge")[0] == 0
    assert [r["error"] for r in table(out)] == [""] * 4


@pytest.mark.parametrize("task", [None, "", "2", "x", "-1", "٣"])
def test_a_share_needs_a_task_of_the_array(task):
    with pytest.raises(UserError, match="SLURM_ARRAY_TASK_ID is"):
        share_of([], 2, {} if task is None else {"SLURM_ARRAY_TASK_ID": task})


# --- sbatch, as far as it can be seen without Slurm


def fake_sbatch(folder, script):
    path = folder / "bin" / "sbatch"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{script}")
    path.chmod(0o755)
    return str(path.parent)


def test_the_array_and_the_merge_are_submitted_as_argument_lists(log, tmp_path, monkeypatch):
    folder = tmp_path / "50% of it's"
    folder.mkdir()
    seen = tmp_path / "seen"
    monkeypatch.setenv(
        "PATH",
        fake_sbatch(
            tmp_path,
            f"with open({str(seen)!r}, 'a') as f:\n"
            "    f.write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
            "print('7;cluster' if any(a.startswith('--array') for a in sys.argv) else '8')\n",
        ),
    )
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    monkeypatch.setenv("SBATCH_PARTITION", "p")
    out = folder / "r.csv"
    options = ("--slurm-array", 3, "--processes", 2, "--sbatch=--time=10", "--sbatch=--partition=q")
    code, said, _ = run("--log", log, "--policy", "easy", "--policy", "fcfs", *options, "--out", out)
    assert (code, said) == (0, f"2 combinations: job array 7 of 2 tasks, then job 8: {out}\n")
    (array, environment), (merge, _) = (json.loads(row) for row in seen.read_text().splitlines())
    assert array[:2] == ["--parsable", "--array=0-1"]
    assert {"--cpus-per-task=2", "--time=10", "--partition=q"} <= set(array)
    assert f"--output={tmp_path}/50%% of it's/r.csv.parts/task-%a.log" in array
    assert merge[1] == "--dependency=afterany:7"
    assert {"--time=10", "--partition=q"} <= set(merge)
    assert "SLURM_CPUS_PER_TASK" not in environment
    assert environment["SBATCH_PARTITION"] == "p"
    # What a task runs is a shell line; the shell gives the command back as it was.
    line = array[-1].removeprefix("--wrap=")
    words = subprocess.run(
        ["/bin/sh", "-c", line.replace(sys.executable, "printf '%s\\n'", 1)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    file = str(Parts(out).folder / "grid.yaml")
    assert words == [
        "-P",
        "-m",
        "penstock",
        "simulate",
        "sweep",
        file,
        "--out",
        str(out),
        "--share",
        "2",
        "--processes",
        "2",
    ]
    assert len(read_grid(Parts(out).folder / "grid.yaml", {}, False).combinations()) == 2


def test_without_sbatch_and_when_it_refuses(log, tmp_path, monkeypatch):
    it = grid(log=[str(log)])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="needs Slurm's sbatch"):
        submit_array(it, tmp_path / "r.csv", 1, 1, [])
    monkeypatch.setenv(
        "PATH", fake_sbatch(tmp_path, "print('error: no\\nsuch partition', file=sys.stderr); sys.exit(1)")
    )
    with pytest.raises(PenstockError, match="sbatch refused: error: no such partition"):
        submit_array(it, tmp_path / "r.csv", 1, 1, [])
