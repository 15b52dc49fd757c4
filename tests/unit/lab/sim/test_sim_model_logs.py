"""Logs of workload models: written, read back, and the command over them."""

from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from penstock.errors import PenstockError, UserError
from penstock_lab.cli.simulate import simulate
from penstock_lab.sim.estimates import parse_estimates
from penstock_lab.sim.swf import SwfReader, load
from penstock_lab.sim.swfout import Fate, write_workload
from penstock_lab.sim.workloads import MODELS, generate


def run(*arguments):
    """`penstock simulate …` in this process: (exit code, output, message)."""
    result = CliRunner().invoke(simulate, [str(a) for a in arguments], standalone_mode=False)
    if isinstance(result.exception, PenstockError):
        return result.exception.exit_code, result.output, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return 0, result.output, ""


@pytest.mark.parametrize("name", ["a.swf", "a.swf.gz"])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_written_is_what_is_read(tmp_path, model, name):
    made = generate(model, 700, 64, 11, 0.7)
    made.trace.estimate = parse_estimates("f:3").of(made.trace, 11)
    write_workload(tmp_path / name, made, 64)
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    read = load(tmp_path / name, 64, "strong", "user")
    assert read.trace == made.trace
    assert (read.records, read.dropped, read.bad) == (700, 0, 0)


def test_the_header_says_what_it_is_and_repeated_runs_name_the_one_before(tmp_path):
    made = generate("feitelson", 300, 64, 2)
    write_workload(tmp_path / "a.swf", made, 64, notes=["for a test"])
    reader = SwfReader(tmp_path / "a.swf")
    fields = [[int(f) for f in record.raw.split()] for record in reader]
    assert "; MaxProcs: 64" in reader.header
    assert "; MaxJobs: 300" in reader.header
    assert reader.header[-2:] == [
        "; Note: model feitelson: 300 jobs for 64 processors, the model's own load, seed 2",
        "; Note: for a test",
    ]
    again = [f for f in fields if f[16] != -1]
    assert len(again) > 30
    for f in again:
        before = fields[f[16] - 1]
        assert (before[3], before[4], before[13]) == (f[3], f[4], f[13])
        assert f[17] == 0
    assert all(f[17] == -1 for f in fields if f[16] == -1)


def test_what_became_of_the_jobs_can_be_written_with_them(tmp_path):
    made = generate("lublin", 2, 8, 1)
    size = made.trace.procs[0]
    write_workload(tmp_path / "a.swf", made, 8, [Fate(7, 3, size, 5), Fate(-1, -1, 1, 0)])
    rows = [record.raw.split() for record in SwfReader(tmp_path / "a.swf")]
    assert [row[2:5] + row[10:11] for row in rows] == [
        [b"7", b"3", b"%d" % size, b"5"],
        [b"-1", b"-1", b"1", b"0"],
    ]


def test_the_command_writes_a_log_that_can_be_replayed(tmp_path):
    out = tmp_path / "m.swf.gz"
    asked = ("--jobs", 400, "--procs", 64, "--load", "0.75", "--seed", 3, "--estimates", "times:2")
    code, said, _ = run("model", "lublin", *asked, "--out", out, "--json")
    told = json.loads(said)
    assert code == 0
    assert (told["jobs"], told["procs"], told["seed"], told["estimates"]) == (400, 64, 3, "times:2")
    assert told["load"] == pytest.approx(0.75, rel=1e-3)
    first = out.read_bytes()
    log = load(out, 64)
    assert len(log.trace) == 400
    assert all(e == 2 * r for e, r in zip(log.trace.estimate, log.trace.run, strict=True))
    assert told["mean_run_s"] == sum(log.trace.run) / 400
    code, said, _ = run("model", "lublin", *asked, "--out", out)
    assert said.startswith("400 jobs for 64 processors over ")
    assert out.read_bytes() == first
    assert run("swf", out, "--procs", 64)[0] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("downey", "--out", "x.swf"), "the models are feitelson, lublin, not 'downey'"),
        (("lublin",), "--out is missing"),
        (("lublin", "--out", "/nowhere/x.swf"), "/nowhere, where --out should go, is not a folder"),
        (("lublin", "--out", "x.swf", "--jobs", "0"), "--jobs must be a whole number from 1"),
        (("lublin", "--out", "x.swf", "--procs", "1e6"), "--procs must be a whole number"),
        (
            ("lublin", "--out", "x.swf", "--load", "0"),
            "--load must be greater than 0 and at most 100, such as 0.8, not",
        ),
        (("lublin", "--out", "x.swf", "--load", "1e300"), "--load must be greater than 0 and at most 100"),
        (("lublin", "--out", "x.swf", "--load", "80%"), "--load must be greater than 0"),
        (("lublin", "--out", "x.swf", "--seed", "-1"), "--seed must be a whole number from 0"),
        (("lublin", "--out", "x.swf", "--estimates", "user"), "a model has no users to ask"),
        (("lublin", "--out", "x.swf", "--estimates", "x2"), "estimates are actual, user, times:F or f:F"),
        (("lublin", "--out", "x.swf", "--kinds", "x"), "--kinds must be one of both, batch, interactive, untyped"),
        (("feitelson", "--out", "x.swf", "--kinds", "batch"), "kinds of jobs are for the model lublin, not feitelson"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    code, _, message = run("model", *options)
    assert code == 2
    assert says in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_an_empty_compressed_log_is_one_message(tmp_path):
    (tmp_path / "e.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(UserError, match="no job to replay"):
        load(tmp_path / "e.gz", 4)
