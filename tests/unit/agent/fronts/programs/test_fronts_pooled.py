"""Which submissions go to a pool, and how a command line is parted by whose jobs it names."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.fronts.programs.divide import FIRST_JOB, divided
from penstock.fronts.programs.pools import DOOR
from penstock.fronts.programs.rules import pool_of
from penstock.slurm.minutes import minutes_of
from penstock.slurm.option_words import read_words, script_words
from penstock.slurm.parse import ParseError, parse_limit
from penstock_pool.terms import FIRST_JOB as FIRST_OF_POOLS

P = 5_000_000_001
SETTINGS = {"pool_partition": "penstock", "pool_below": "10"}


def test_both_places_know_the_same_first_number():
    assert FIRST_JOB == FIRST_OF_POOLS


@pytest.mark.parametrize(
    ("words", "environ", "lines", "pool", "only"),
    [
        ("-p penstock", {}, [], "main", True),
        ("-p penstock-other", {}, [], "other", True),
        ("", {"SBATCH_PARTITION": "penstock"}, [], "main", True),
        ("", {}, ["#SBATCH -p penstock"], "main", True),
        ("-p batch", {"SBATCH_PARTITION": "penstock"}, ["#SBATCH -p penstock"], None, None),
        ("--comment=penstock-pool", {}, [], "main", False),
        ("", {}, ["#SBATCH --comment='mine penstock-pool=x'"], "x", False),
        ("--comment=penstock-pools", {}, [], None, None),
        ("-t 10", {}, [], "main", False),
        ("-t 11", {}, [], None, None),
        ("-t 0", {}, [], None, None),
        ("", {"SBATCH_TIMELIMIT": "0:30"}, ["#SBATCH -t 1-0"], "main", False),
        ("", {}, [], None, None),
    ],
)
def test_a_rule_names_the_pool(words, environ, lines, pool, only):
    found = pool_of(read_words(words.split()), script_words(lines), environ, SETTINGS)
    assert (None if found is None else (found.pool, found.only)) == (None if pool is None else (pool, only))


def test_without_rules_nothing_goes_to_a_pool():
    for words in ("-p penstock", "-t 1"):
        assert pool_of(read_words(words.split()), script_words([]), {}, {}) is None


@pytest.mark.parametrize(
    ("program", "words", "ours", "theirs", "jobs"),
    [
        ("squeue", f"-h -j 12,{P} -o %i", f"-h -j {P} -o %i", "-h -j 12 -o %i", [P]),
        ("squeue", f"-hj{P}", f"-hj{P}", None, [P]),
        ("squeue", f"--jobs={P},{P + 1}_3", f"--jobs={P},{P + 1}_3", None, [P, P + 1]),
        ("squeue", "-j 12 -h", None, "-j 12 -h", []),
        ("sacct", f"-X -j 5 -j {P}", f"-X -j {P}", "-X -j 5", [P]),
        ("sacct", f"-j {P}.batch", f"-j {P}.batch", None, [P]),
        ("scancel", f"5 {P}_2 -s 9", f"{P}_2 -s 9", "5 -s 9", [P]),
        ("scancel", f"-n {P} 7", None, f"-n {P} 7", []),
        ("scontrol", f"hold 1,{P}", f"hold {P}", "hold 1", [P]),
        ("scontrol", f"update job={P} x=1", f"update job={P} x=1", None, [P]),
        ("scontrol", f"show job {P}", f"show job {P}", None, [P]),
    ],
)
def test_a_command_line_is_parted(program, words, ours, theirs, jobs):
    found = divided(program, words.split())
    assert found.ours == (None if ours is None else ours.split())
    assert found.theirs == (None if theirs is None else theirs.split())
    assert (found.jobs, found.listing) == (jobs, False)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("squeue", "-u a -t all"),
        ("squeue", "-j -h"),
        ("sacct", "--name x"),
        ("scancel", "--me"),
        ("scontrol", "show job"),
    ],
)
def test_without_a_number_it_is_about_all(program, words):
    found = divided(program, words.split())
    assert (found.ours, found.theirs, found.listing) == (words.split(), words.split(), True)


@given(
    st.sampled_from(["squeue", "sacct", "scancel", "scontrol"]),
    st.lists(st.sampled_from(["-j", "-h", "-o", "%i", f"{P}", "12", f"12,{P}", "--jobs=4", "show", "--", "x"])),
)
def test_each_job_is_named_to_whom_it_belongs(program, words):
    found = divided(program, words)
    if found.listing:
        assert not found.jobs
        return
    ours = [int(word) for word in ",".join(found.ours or []).split(",") if word.isdigit()]
    theirs = [] if found.theirs is None else ",".join(found.theirs).split(",")
    assert found.ours is None or sorted(found.jobs) == sorted(job for job in ours if job >= FIRST_JOB)
    assert (found.ours is None) == (not found.jobs)
    assert program in ("scancel", "scontrol") or str(P) not in theirs


@given(st.one_of(st.from_regex(r"([0-9]{1,3}-)?[0-9]{1,4}(:[0-9]{1,2}){0,2}", fullmatch=True), st.text(max_size=8)))
def test_limits_are_read_as_elsewhere(text):
    try:
        seconds = parse_limit(text)
    except ParseError:
        return
    minutes = minutes_of(text)
    if minutes is not None:
        assert seconds is not None
        assert minutes == pytest.approx(seconds / 60)


ASKS = """
import signal, sys
from penstock.fronts.programs.pools import FrontPool, NoPool, ask_pool
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as a front program does
try:
    ask_pool(FrontPool("main", sys.argv[1]), {"op": "submit", "script": "x" * 5_000_000}, 0.0)
except NoPool as e:
    print("no pool:", e)
sys.exit(signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL)
"""


def test_a_scheduler_that_is_killed_while_it_is_asked_does_not_end_who_asks(tmp_path: Path):
    pytest.importorskip("cryptography")
    from penstock_pool.folder import PoolFolder

    folder = PoolFolder("main", tmp_path / "main")
    folder.make()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.certificate, folder.key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        (folder.path / DOOR).write_text(json.dumps({"host": "127.0.0.1", "port": server.getsockname()[1]}))

        def shake_hands_and_go() -> None:
            plain, _peer = server.accept()
            with context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(1)

        peer = threading.Thread(target=shake_hands_and_go)
        peer.start()
        asked = subprocess.run(
            [sys.executable, "-c", ASKS, str(folder.path)], capture_output=True, text=True, timeout=60
        )
        peer.join()
    assert asked.returncode != -signal.SIGPIPE, "it was ended by a broken pipe"
    assert (asked.returncode, asked.stdout[:8]) == (0, "no pool:"), asked.stderr
