"""Slurm's words: host lists, times, limits, states, pairs. Garbage gives ParseError or UNKNOWN, never anything else."""

import contextlib
import math
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.api import JobState
from penstock.slurm import states
from penstock.slurm.hostlist import MAX_HOSTS
from penstock.slurm.parse import (
    HostListError,
    NodeState,
    ParseError,
    asked_hosts,
    compress_hosts,
    expand_hosts,
    format_minutes,
    parse_array_tasks,
    parse_config,
    parse_count,
    parse_exit_code,
    parse_job_state,
    parse_limit,
    parse_node_state,
    parse_pairs,
    parse_time,
    parse_version,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,07-09],x5", ("n1", "n2", "n3", "n07", "n08", "n09", "x5")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("r[0-1]n[1-2]", ("r0n1", "r0n2", "r1n1", "r1n2")),
        ("a[1,3]-ib,b", ("a1-ib", "a3-ib", "b")),
        ("n1,n[1-2]", ("n1", "n2")),
    ],
)
def test_host_lists_expand(text, names):
    assert expand_hosts(text) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n3", "n1", "n2", "n2"), "n[1-3]"),
        (("n1", "n2", "n3", "n07", "n08", "n09", "x5"), "n[1-3,07-09],x5"),
        (("n9", "n10", "n12"), "n[9-10,12]"),
        (("n09", "n9", "n10"), "n[9,09-10]"),
        (("login", "n1"), "login,n1"),
    ],
)
def test_host_lists_compress(names, text):
    assert compress_hosts(names) == text
    assert set(expand_hosts(text)) == set(names)


@pytest.mark.parametrize("text", ["n1,n[2-3]", "n1,,n[2-3],", ",n1 n[2,3]", " n1 ,\tn[2, 3] ,"])
def test_host_lists_that_people_write(text):
    assert asked_hosts(text) == ("n1", "n2", "n3") and asked_hosts(",") == asked_hosts("") == ()
    with pytest.raises(HostListError):
        asked_hosts("n1,n[2-")


@pytest.mark.parametrize(
    "text",
    ["n[1", "n1]", "n[[1-2]]", "n[2-1]", "n[a-b]", "n[]", "a,,b", ",", "a b", "n[1-999999999]", "n[1-400]x[1-400]"],
)
def test_what_is_no_host_list(text):
    with pytest.raises(HostListError) as caught:
        expand_hosts(text)
    assert isinstance(caught.value, ValueError)
    assert caught.value.text in text and len(str(caught.value)) < 200


host = st.from_regex(r"[a-z][a-z.-]{0,3}[0-9]{0,4}(-ib)?", fullmatch=True)


@given(st.sets(host | st.from_regex(r"n[0-9]{1,3}", fullmatch=True), max_size=40))
def test_host_lists_go_there_and_back(names):
    text = compress_hosts(names)
    assert set(expand_hosts(text)) == names
    assert compress_hosts(expand_hosts(text)) == text


@given(st.text(alphabet="n0123456789[],-ab \n", max_size=30) | st.text(max_size=30))
@example("٣[٣-٤]")
def test_garbage_is_a_parse_error_at_most(text):
    for parse in (expand_hosts, parse_time, parse_limit, parse_count, parse_exit_code, parse_pairs, parse_version):
        try:
            result = parse(text)
        except ParseError as error:
            assert error.text == "" or error.text in text
        else:
            if parse is expand_hosts:
                assert len(result) <= MAX_HOSTS
    assert isinstance(parse_job_state(text), JobState)
    assert isinstance(parse_node_state(text), NodeState)
    assert isinstance(parse_config(text), dict)
    with contextlib.suppress(HostListError):
        compress_hosts([text])


@pytest.mark.parametrize("text", ["Unknown", "N/A", "None", "(null)", "", "0", "NONE"])
def test_times_that_are_not_yet(text):
    assert parse_time(text) is None


def test_times():
    assert parse_time("1795247649") == 1795247649.0
    assert parse_time("2026-11-21T07:54:09+00:00") == 1795247649.0
    assert parse_time("2026-11-21T07:54:09Z") == 1795247649.0
    for text in ("yesterday", "2026-13-01T00:00:00", "2026-11-21T25:00:00", "12345678901234", "-1", "2026W01"):
        with pytest.raises(ParseError):
            parse_time(text)


@given(st.integers(1, 4_000_000_000))
def test_local_times_go_there_and_back(seconds):
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))
    found = parse_time(text)
    # Where clocks go back one hour an ISO time without a zone means two instants.
    assert found is not None and time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(found)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784),
        ("1-02", 93600),
        ("1-02:03", 93780),
        ("02:03:04", 7384),
        ("05:30", 330),
        ("5:00", 300),
        ("90", 5400),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("Partition_Limit", 77),
        ("NOT_SET", 77),
        ("NONE", 77),
    ],
)
def test_limits(text, seconds):
    assert parse_limit(text, 77.0) == seconds


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_limits_go_there_and_back(days, hours, minutes, seconds):
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_limit(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == total
    assert parse_limit(f"{days * 24 + hours:02}:{minutes:02}:{seconds:02}") == total


@given(st.floats(0.001, 1e8))
def test_a_limit_for_slurm_is_never_shorter_nor_a_minute_longer(seconds):
    given = parse_limit(format_minutes(seconds))
    assert given is not None and seconds - 1e-6 <= given < seconds + 60.01


def test_limits_for_slurm():
    assert (format_minutes(60), format_minutes(61), format_minutes(1), format_minutes(math.inf)) == (
        "1",
        "2",
        "1",
        "UNLIMITED",
    )


def test_counts_exit_codes_and_versions():
    assert [parse_count(t) for t in ("8", "2-4", "2K", "1.50K", "1M")] == [8, 2, 2048, 1536, 1048576]
    assert [parse_exit_code(t) for t in ("0:0", "3:0", "0:15", "1:9")] == [0, 3, 143, 1]
    assert [parse_version(t) for t in ("22.05.8", "24.11.0-rc1", "26.05")] == [(22, 5, 8), (24, 11, 0), (26, 5)]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        *((state.value, state) for state in JobState),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("CA", JobState.CANCELLED),
        ("OOM", JobState.OUT_OF_MEMORY),
        ("CANCELLED,COMPLETING", JobState.COMPLETING),
        ("RUNNING+CONFIGURING", JobState.CONFIGURING),
        ("PENDING,REQUEUED", JobState.PENDING),
        ("RH", JobState.REQUEUE_HOLD),
        ("PENDING+REQUEUE_HOLD", JobState.REQUEUE_HOLD),
        ("SPECIAL_EXIT", JobState.REQUEUE_HOLD),
        ("PENDING,EXPEDITING", JobState.PENDING),
        ("REVOKED", JobState.CANCELLED),
        ("RV", JobState.CANCELLED),
        ("LAUNCH_FAILED", JobState.FAILED),
        ("PENDING+LAUNCH_FAILED", JobState.PENDING),
        ("RECONFIG_FAIL", JobState.FAILED),
        ("COMPLETED+UPDATE_DB", JobState.COMPLETED),
        ("NOVEL_STATE", JobState.UNKNOWN),
        ("NOVEL+RUNNING", JobState.RUNNING),
        ("", JobState.UNKNOWN),
    ],
)
def test_job_states(text, state):
    assert parse_job_state(text) is state


def test_an_unknown_state_is_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(states, "_reported", set())  # other tests make up enough of them
    for _ in range(3):
        assert parse_job_state("RUNNING+TELEPORTING") is JobState.RUNNING
        assert parse_job_state("TELEPORTING") is JobState.UNKNOWN
        assert str(parse_node_state("IDLE+HAUNTED")) == "IDLE+HAUNTED"
        assert str(parse_node_state("HAUNTED*")) == "UNKNOWN+HAUNTED+NOT_RESPONDING"
    assert [record.args[:2] for record in caplog.records] == [("job state", "TELEPORTING"), ("node state", "HAUNTED")]
    for text in (
        "DOWN*+DRAIN",
        "drng*",
        "IDLE+MAINTENANCE+RESERVED",
        "mix-",
        "IDLE+DYNAMIC_NORM",
        "ALLOCATED+COMPLETING",
    ):
        parse_node_state(text)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("text", "count"),
    [("7", 1), ("0-5%2", 6), ("1,3-9:2,20", 6), ("0-999", 1000), ("0-999:2%10", 500), ("1-2:5", 1)],
)
def test_tasks_of_an_array(text, count):
    assert parse_array_tasks(text) == count


@pytest.mark.parametrize("text", ["", "1,2,...", "9-1", "1-", "x", "1-9:0", "1;2", "-1", "1,,2"])
def test_what_is_no_array(text):
    with pytest.raises(ParseError):
        parse_array_tasks(text)


@pytest.mark.parametrize(
    ("text", "shown", "usable"),
    [
        ("IDLE", "IDLE", True),
        ("mixed", "MIXED", True),
        ("mix-", "MIXED+PLANNED", True),
        ("ALLOCATED+COMPLETING", "ALLOCATED+COMPLETING", True),
        ("comp", "ALLOCATED+COMPLETING", True),
        ("IDLE+CLOUD", "IDLE+CLOUD", True),
        ("IDLE+DRAIN", "IDLE+DRAIN", False),
        ("drained", "IDLE+DRAIN", False),
        ("drng*", "ALLOCATED+DRAIN+NOT_RESPONDING", False),
        ("idle*", "IDLE+NOT_RESPONDING", False),
        ("IDLE~", "IDLE+POWERED_DOWN", True),
        ("alloc+", "ALLOCATED+COMPLETING", True),
        ("ALLOCATED+NOT_RESPONDING+POWERING_UP", "ALLOCATED+NOT_RESPONDING+POWERING_UP", True),
        ("DOWN+CLOUD+POWERED_DOWN", "DOWN+CLOUD+POWERED_DOWN", False),
        ("DOWN*+DRAIN", "DOWN+DRAIN+NOT_RESPONDING", False),
        ("maint", "IDLE+MAINTENANCE", False),
        ("IDLE+RESERVED", "IDLE+RESERVED", False),
        ("IDLE+MAINTENANCE+RESERVED", "IDLE+MAINTENANCE+RESERVED", False),
        ("FUTURE", "FUTURE", False),
        ("IDLE+NEW_FLAG", "IDLE+NEW_FLAG", False),
        ("NOVEL", "UNKNOWN+NOVEL", False),
        ("", "UNKNOWN", False),
    ],
)
def test_node_states(text, shown, usable):
    state = parse_node_state(text)
    assert (str(state), state.usable) == (shown, usable)


def test_pairs():
    line = (
        "NodeName=n1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* OS=Linux 6.1 #1 SMP TRES=cpu=2,mem=1M Empty= Reason=x y State=IDLE"
    )
    pairs = parse_pairs("State=DOWN " + line)
    assert pairs["State"] == "DOWN"  # the first counts: what people write comes last
    assert pairs["OS"] == "Linux 6.1 #1 SMP"
    assert (pairs["TRES"], pairs["Empty"], pairs["ReqB:S:C:T"], pairs["Reason"]) == (
        "cpu=2,mem=1M",
        "",
        "0:0:*:*",
        "x y",
    )
    assert parse_pairs("") == {}
    with pytest.raises(ParseError):
        parse_pairs("slurm_load_node error: no answer")
