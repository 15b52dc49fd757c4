"""Reading, filtering and writing logs, sound and damaged; and the command over them."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock_lab.sim.replay import replay
from penstock_lab.sim.swf import SwfReader, load, machine_procs
from penstock_lab.sim.swfout import Fate, write_outcome

HEADER = "; Version: 2.2\n; Computer: made up\n"


def line(number=1, submit=0, run=10, procs=1, requested=1, limit=20, cpu="3.5"):
    return f"{number} {submit} 7 {run} {procs} {cpu} -1 {requested} {limit} -1 1 5 6 7 2 -1 -1 -1\n"


@pytest.fixture
def log(tmp_path):
    def make(*lines, header=HEADER, name="a.swf"):
        path = tmp_path / name
        data = "".join((header, *lines)).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return make


def jobs(log):
    t = log.trace
    return list(zip(t.ids, t.submit, t.run, t.procs, t.estimate, strict=True))


@pytest.mark.parametrize("name", ["a.swf", "a.swf.gz"])
def test_a_log_is_read_plain_or_compressed_and_its_header_kept(log, name):
    path = log(line(3, 5), "\n", "; a comment between\n", line(4, 6).replace("\n", "\r\n"), name=name)
    reader = SwfReader(path)
    assert [(r.line, r.number, r.submit) for r in reader] == [(3, 3, 5), (6, 4, 6)]
    assert reader.header == HEADER.splitlines()
    assert reader.records == 2


def test_compression_is_seen_in_the_data_not_in_the_name(log):
    path = log(line(), name="a.swf.gz")
    assert len(load(path.rename(path.with_name("b.swf")), 4).trace) == 1


def test_strong_filter(log):
    path = log(
        line(1),
        line(2, procs=-1, requested=3),
        line(3, procs=2, requested=-1),
        line(4, procs=0, requested=-1),
        line(5, procs=5, requested=1),
        line(6, procs=1, requested=5),
        line(7, run=0),
        line(8, run=-1),
        line(9, limit=-1),
        line(10, limit=0),
        line(11, submit=-1),
        line(12, run=30, limit=20),
    )
    kept = load(path, 4, "strong", "user")
    assert jobs(kept) == [(1, 0, 10, 1, 20), (2, 0, 10, 3, 20), (3, 0, 10, 2, 20), (12, 0, 20, 1, 20)]
    assert (kept.records, kept.dropped, kept.bad) == (12, 8, 0)
    assert jobs(load(path, 4, "strong", "actual"))[-1] == (12, 0, 20, 1, 20)
    assert jobs(load(path, 4, "strong", "actual"))[0] == (1, 0, 10, 1, 10)


def test_singh_filter_keeps_every_record_that_ran(log):
    path = log(line(1), line(2, run=0), line(3, limit=-1), line(4, run=30, limit=20), line(5, procs=2, requested=9))
    kept = load(path, 4, "singh", "actual")
    assert jobs(kept) == [(1, 0, 10, 1, 10), (3, 0, 10, 1, 10), (4, 0, 30, 1, 30), (5, 0, 10, 2, 10)]


def test_singh_has_no_requested_times_and_no_jobs_wider_than_the_machine(log):
    path = log(line(1), line(2, procs=5))
    with pytest.raises(UserError, match="needs --estimates actual"):
        load(path, 8, "singh", "user")
    with pytest.raises(UserError, match="line 4: job 2 needs 5 processors, the machine has 4"):
        load(path, 4, "singh", "actual", skip_bad=True)


def test_singh_cannot_replay_a_record_without_processors(log):
    path = log(line(1), line(2, procs=-1, requested=-1))
    with pytest.raises(UserError, match="line 4: job 2 has no number of processors"):
        load(path, 4, "singh", "actual")
    kept = load(path, 4, "singh", "actual", skip_bad=True)
    assert (kept.records, kept.dropped, kept.bad) == (1, 0, 1)


def test_jobs_out_of_order_are_put_in_order(log):
    assert [j[0] for j in jobs(load(log(line(9, 5), line(2, 3), line(4, 5)), 4))] == [2, 9, 4]


BAD = [
    ("1 2 3\n", "3 fields where a job has 18"),
    (line().replace(" 7 2 ", " 7 2 2 "), "19 fields where a job has 18"),
    (line(submit="x"), r"field 2 \(submit time\) is 'x', not a number"),
    (line(procs="1.5"), r"field 5 \(allocated processors\) is '1.5', not a whole number"),
    (line(run="1e30"), "a time has more than 15 digits"),
    (line(run="nan"), r"field 4 \(run time\) is 'nan'"),
    (line(number="1_0"), r"field 1 \(job number\)"),
    (line(limit="9" * 5000), r"field 9 \(requested time\) is '9{40}', not a number of at most 15 digits"),
    (line(cpu="1.2.3"), r"field 6 \(average CPU time\) is '1.2.3', not a number"),
    (line(submit="١"), r"field 2 \(submit time\) is '١'"),
    (line().replace(" ", "\0", 1), "17 fields"),
    (line(1), "job number 1 was there before"),
]


@pytest.mark.parametrize(("bad", "says"), BAD)
def test_a_damaged_line_is_named_or_counted(log, bad, says):
    path = log(line(1), bad, line(3))
    with pytest.raises(UserError, match=rf"a\.swf line 4: .*{says}") as e:
        load(path, 4)
    assert "\n" not in str(e.value)
    kept = load(path, 4, skip_bad=True)
    assert [j[0] for j in jobs(kept)] == [1, 3]
    assert (kept.records, kept.bad) == (2, 1)
    assert "line 4" in kept.first_bad


def test_whole_numbers_may_be_written_as_floats(log):
    assert jobs(load(log(line(1, "5.0", "10.00")), 4)) == [(1, 5, 10, 1, 20)]


BATSIM = """\
1 0.0 0.0 88.5 1 -1 -1 1 149.0 -1 1 -1 -1 -1 -1 -1 -1 -1
2 4.709 0.0 265.8 2 -1 -1 2 399.0 -1 1 -1 -1 -1 -1 -1 -1 -1
3 16.0039 -0.0 6.61 8 -1 -1 8 67.0 -1 1 -1 -1 -1 -1 -1 -1 -1
"""


def test_a_log_with_fractions_as_batsim_writes_it(log):
    assert jobs(load(log(BATSIM), 8)) == [(1, 0, 89, 1, 149), (2, 4, 266, 2, 399), (3, 16, 7, 8, 67)]


@given(st.just(0.0) | st.floats(1e-9, 1e9), st.floats(1e-9, 1e6), st.integers(0, 16))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_fractions_are_rounded_to_whole_seconds(log, submit, run, digits):
    run_text = f"{run:.{digits}f}" if float(f"{run:.{digits}f}") > 0 else f"{run:.3e}"
    (job,) = jobs(load(log(line(1, repr(submit), run_text, limit=run_text)), 4))
    assert job == (1, math.floor(submit), math.ceil(float(run_text)), 1, math.ceil(float(run_text)))


def test_further_fields_are_left_alone(log, tmp_path):
    wide = [line(i, i).replace("\n", " 4 x -1\n") for i in range(1, 4)]
    path = log(*wide, line(4, 4))
    assert [j[0] for j in jobs(load(path, 4))] == [1, 2, 3, 4]
    write_outcome(tmp_path / "out.swf", path, {i: Fate(0, 10, 1, None) for i in range(1, 5)}, 4)
    assert all(len(record.raw.split()) == 18 for record in SwfReader(tmp_path / "out.swf"))
    other = line(5, 5).replace("\n", " 4 x\n")
    with pytest.raises(UserError, match="line 4: 20 fields where a job has 18"):
        load(log(wide[0], other), 4)


@pytest.mark.parametrize(
    ("header", "procs"), [("; MaxProcs: 12\n; MaxNodes: 3\n", 12), ("; MaxNodes: 3\n", 3), ("; MaxProcs: 0\n", None)]
)
def test_the_header_says_how_large_the_machine_is(log, header, procs):
    path = log(line(1), header=header)
    ended = run(path)
    if procs is None:
        assert (ended.returncode, "give --procs" in ended.stderr) == (2, True)
        return
    assert machine_procs(path) == procs
    shown = run(path, "--procs", procs).stdout
    assert ended.stdout == f"processors             {procs}, as the log's header says\n{shown}"


def test_a_log_without_jobs_to_replay_says_what_would_be(log):
    with pytest.raises(UserError, match=r"; --estimates actual --filter singh takes their run times$"):
        load(log(line(1, limit=-1), line(2, limit=0)), 4)
    with pytest.raises(UserError, match=r": each needs more processors, 6 or more$"):
        load(log(line(1, procs=9), line(2, procs=6)), 4)
    with pytest.raises(UserError, match=r"for 4 processors\)$"):
        load(log(line(1, run=0)), 4)


def test_numbers_that_fall_back_and_repeat_later_are_found(log):
    kept = load(log(line(5), line(2), line(9), line(9), line(2), line(5), line(3)), 4, skip_bad=True)
    assert sorted(j[0] for j in jobs(kept)) == [2, 3, 5, 9]
    assert kept.bad == 3


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_is_damaged_as_a_whole_is_one_message(log, tmp_path, skip_bad):
    whole = log(*(line(i, i) for i in range(1, 3000)), name="a.swf.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "flipped.gz").write_bytes(whole[:2000] + bytes(64) + whole[2064:])
    (tmp_path / "empty.swf").write_bytes(b"")
    (tmp_path / "header.swf").write_text(HEADER)
    (tmp_path / "endless.swf").write_bytes(b"1 " * 100_000)
    for name, says in {
        "cut.gz": r"the compressed data ends after line \d+; the file is cut off",
        "flipped.gz": "the compressed data is damaged",
        "empty.swf": "is empty",
        "header.swf": "no job to replay",
        "endless.swf": "line 1 is longer than 65536 bytes",
        "absent.swf": "No such file",
        ".": "directory",
    }.items():
        if name == "flipped.gz" and not skip_bad:
            says += "|line"  # what the damaged data unpacks to may be noticed first
        with pytest.raises(UserError, match=says) as e:
            load(tmp_path / name, 4, skip_bad=skip_bad)
        assert "\n" not in str(e.value)


def test_not_utf8_is_one_message(log, tmp_path):
    path = tmp_path / "latin.swf"
    path.write_bytes("; Müller\n".encode("latin-1") + line().encode())
    with pytest.raises(UserError, match="line 1: not UTF-8"):
        load(path, 4)
    assert load(path, 4, skip_bad=True).bad == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=400), st.booleans(), st.integers(0, 400), st.booleans())
def test_nothing_but_usererror_comes_out_of_garbage(tmp_path, garbage, compressed, at, skip_bad):
    sound = (HEADER + line(1) + line(2, 4) + line(3, 9)).encode()
    data = sound[:at] + garbage + sound[at:]
    path = tmp_path / "fuzz"
    packed = gzip.compress(data)
    path.write_bytes(packed[: len(packed) - len(garbage) % 9] if compressed else data)
    _replay_or_refuse(path, skip_bad)


fields = st.one_of(
    st.integers(-2, 20).map(str), st.from_regex(r"\A-?[0-9]{1,16}(\.[0-9]{0,2})?\Z"), st.text(max_size=3)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(fields, min_size=17, max_size=19), max_size=6), st.booleans())
def test_nothing_but_usererror_comes_out_of_strange_numbers(tmp_path, rows, skip_bad):
    path = tmp_path / "fuzz"
    path.write_text("".join(" ".join(row) + "\n" for row in rows), errors="replace")
    _replay_or_refuse(path, skip_bad)


def _replay_or_refuse(path, skip_bad):
    for keep, estimates in (("strong", "user"), ("singh", "actual")):
        try:
            trace = load(path, 4, keep, estimates, skip_bad).trace
            for policy in ("fcfs", "easy", "conservative", "replan"):
                replay(trace, 4, policy)
        except UserError as e:
            assert len(str(e).splitlines()) == 1


@pytest.mark.parametrize("name", ["out.swf", "out.swf.gz"])
def test_what_is_written_is_a_log_with_the_simulated_waits(log, tmp_path, name):
    source = log(line(1), "damaged\n", line(2, run=0), line(3, 4, run=30, procs=-1, requested=2), line(1))
    fates = {1: Fate(0, 10, 1, None), 3: Fate(41, 20, 2, None)}
    write_outcome(tmp_path / name, source, fates, 4, notes=["simulated"])
    reader = SwfReader(tmp_path / name)
    written = [record.raw.split() for record in reader]
    assert reader.header == [*HEADER.splitlines(), "; Note: simulated"]
    assert written == [
        line(1).replace(" 7 ", " 0 ", 1).encode().split(),
        b"3 4 41 20 2 3.5 -1 2 20 -1 1 5 6 7 2 -1 -1 -1".split(),
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.swf", name]


def test_what_cannot_be_written_is_one_message(log, tmp_path):
    with pytest.raises(UserError, match=r"none/out\.swf cannot be written"):
        write_outcome(tmp_path / "none" / "out.swf", log(line()), {1: Fate(0, 10, 1, None)}, 4)


def run(*arguments):
    """`penstock simulate swf` as main() runs it, wherever it is registered."""
    code = (
        "import sys\n"
        "from penstock_lab.cli.simulate import simulate\n"
        "from penstock.errors import PenstockError\n"
        "try:\n    simulate(standalone_mode=False)\n"
        "except PenstockError as e:\n    print(e, file=sys.stderr); sys.exit(e.exit_code)\n"
    )
    command = [sys.executable, "-c", code, "swf", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=60, check=False)


def test_the_command_prints_the_figures_and_writes_the_log(log, tmp_path):
    path = log(line(1, procs=4), line(2, 3), "bad\n")
    arguments = (path, "--procs", "4", "--policy", "conservative", "--skip-bad", "--out", tmp_path / "waits.swf")
    told = json.loads(run(*arguments, "--json").stdout)
    assert (told["n"], told["records"], told["bad_lines"], told["mean_wait_s"]) == (2, 2, 1, 3.5)
    assert (told["policy"], told["estimates"], told["filter"], told["ties"]) == (
        "conservative",
        "user",
        "strong",
        "pyss",
    )
    assert told["mean_bounded_slowdown"] == pytest.approx((1 + 1.7) / 2)
    assert told["utilisation"] == pytest.approx(50 / 80)
    assert [r.raw.split()[2] for r in SwfReader(tmp_path / "waits.swf")] == [b"0", b"7"]
    shown = run(*arguments)
    assert "mean wait              3.5000 s" in shown.stdout
    assert told["sha256"] in shown.stdout
    assert shown.stderr.startswith("1 bad lines left out; the first: ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "a.swf does not say how many processors its machine has (; MaxProcs:): give --procs"),
        (("--procs", "0"), "--procs must be a whole number from 1"),
        (("--procs", "many"), "not 'many'"),
        (("--procs", "9" * 30), "--procs must be"),
        (("--procs", "4", "--policy", "sjf"), "--policy must be one of fcfs, easy, conservative, replan, not 'sjf'"),
        (("--procs", "4", "--ties", "x"), "--ties must be one of pyss, batch"),
        (("--procs", "4", "--filter", "x"), "--filter must be one of strong, singh"),
        (("--procs", "4", "--estimates", "x"), "--estimates must be one of actual, user"),
        (("--procs", "4", "--filter", "singh"), "--filter singh needs --estimates actual"),
        (("--procs", "4", "--out", "/nowhere/x.swf"), "/nowhere, where --out should go, is not a folder"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(log, options, says):
    ended = run(log(line()), *options)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_log_that_is_read_is_not_replaced(log):
    path = log(line(1), line(2))
    before = path.read_bytes()
    ended = run(path, "--procs", "4", "--out", path)
    assert (ended.returncode, ended.stderr) == (2, f"--out would replace {path}, which is read: give it another name\n")
    assert path.read_bytes() == before


def test_a_log_that_ends_within_a_line_says_so(log):
    path = log(line(1), line(2)[:30])
    with pytest.raises(
        UserError, match=r"line 4: .* fields where a job has 18; the file ends in this line and may be cut"
    ):
        load(path, 4)
    kept = load(path, 4, skip_bad=True)
    assert (len(kept.trace), kept.bad) == (1, 1)


def test_a_log_may_come_through_a_pipe_but_then_not_be_written_again(log, tmp_path):
    path = log(*(line(i) for i in range(1, 50)), name="a.swf.gz")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", str(path), str(pipe)]) as feeder:
        assert len(load(pipe, 4).trace) == 49
    assert feeder.returncode == 0
    ended = run(pipe, "--procs", "4", "--out", tmp_path / "out.swf")
    assert ended.returncode == 2
    assert "is not a file: --out needs one" in ended.stderr


def test_memory_is_bounded_by_the_jobs_that_are_kept(tmp_path):
    """300,000 records, 16 MB of text. Of a machine of 4 processors 1 in 100 is kept, of one of 16 all."""
    path = tmp_path / "large.swf.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(HEADER)
        file.writelines(line(i, i, procs=9 if i % 100 else 1, requested=1) for i in range(300_000))
    assert growth(path, 4) == (3000, pytest.approx(0, abs=4e6))
    # 40 bytes a job, and while a column grows it is there twice.
    assert growth(path, 16) == (300_000, pytest.approx(12e6, abs=12e6))


def growth(path, procs):
    """(jobs, bytes by which the process has grown at the most) of loading a log in a process of its own."""
    code = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from penstock_lab.sim.swf import load\n"
        # ru_maxrss would be that of the process that started this one, where that is larger
        "peak = lambda: 1024 * int(re.search('VmHWM:\\\\s+(\\\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "before = peak()\n"
        "jobs = len(load(Path(sys.argv[1]), int(sys.argv[2])).trace)\n"
        "print(jobs, peak() - before)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(procs)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    jobs, grown = said.split()
    return int(jobs), int(grown)


def test_a_line_of_long_numbers_that_is_too_short_is_refused_at_once(tmp_path):
    """For minutes, once: numbers without a point could be read in many ways, and together in far too many."""
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 128\n" + "1 0 5 " + "9" * 13 + (" " + "9" * 13) * 13 + "\n")
    with pytest.raises(UserError, match="17 fields where a job has 18"):
        load(path, 128)


@pytest.mark.parametrize(("text", "procs"), [("128", 128), ("128 \t(of 130)", 128), ("1,024", None), ("128x", None)])
def test_how_many_processors_the_machine_has(tmp_path, text, procs):
    path = tmp_path / "log.swf"
    path.write_text(f"; MaxProcs: {text}\n")
    if procs is not None:
        assert machine_procs(path) == procs
        return
    with pytest.raises(UserError, match="give --procs"):
        machine_procs(path)
