"""Lists of squeue and sacct with a pool's jobs. What is expected is what Slurm 22.05 says of jobs with such times."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pooled_jobs import array, job

from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import Through
from penstock_pool.jobs import sacct, squeue
from penstock_pool.jobs.amounts import UNITS, amount
from penstock_pool.jobs.rows import JobOwner, sacct_table, squeue_table, wait_code
from penstock_pool.machine import Machine
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, Use
from penstock_pool.placement import Pack

OWNER = JobOwner(7, "alice", 8, "users", "site")
SITE = ShimSite("site", (99,), alone=True, past_ids=10**12)
DAY = datetime(2026, 11, 25)
NOON = DAY.replace(hour=12).timestamp()
FIRST = 5_000_000_000


def asker(**environ: str) -> Asker:
    return Asker(7, environ, uid_of=lambda name: 7 if name in ("alice", "7") else -1, date="DATE", midnight="X")


@pytest.fixture
def machine() -> Machine:
    """1 ran from 10:00 to 10:30, 2 since 10:40, 3 was cancelled at 11:00, 4 waits for a place, 5 is held, 6 may begin
    at 15:00."""
    it = Machine(Pack())
    ten = DAY.replace(hour=10).timestamp()
    it.join(PoolMember("a", "n1", "1", Capacity(1.0)), ten)
    it.submit([job("one", account="Acc", partition="penstock", qos="high", wckey="w")], ten)
    it.place(ten)
    it.ended("a", 1, 1, AttemptOutcome.COMPLETE, 0, "", Use(1.0, 1.0, 3 * 2**20), ten + 1800)
    it.join(PoolMember("b", "n10", "2", Capacity(1.0)), ten + 1800)
    it.leave("a", ten + 1800)
    it.submit([job("two", limit=600.0, partition="short")], ten + 2400)
    it.place(ten + 2400)
    it.submit([job("three"), job("four"), job("five", held=True), job("six", begin=NOON + 3 * 3600)], ten + 3000)
    it.place(ten + 3000)
    it.cancel([3], ten + 3600)
    return it


def told(it: Machine, words: str, now: float = NOON, *, beside: bool = True, **environ: str) -> str:
    asked = sacct.read(words.split(), asker(**environ), SITE, now)
    entries = [e for e in it.entries.values() if asked.ids is None or (FIRST + e.id, None) in asked.ids]
    table = sacct_table(iter(entries), it.queue, OWNER, now, asked.unit, asked.keeps)
    return sacct.answer(asked, table, asker(**environ), beside=beside).out


def jobs(it: Machine, words: str, now: float = NOON) -> str:
    """The numbers in the pool of those that are told of."""
    return "".join(line[-1] for line in told(it, f"-X -P -o jobid {words}", now).splitlines())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        # Without a state: what could run before the end of the span, and had not ended before its beginning.
        ("", "1234"),
        ("-S now-1hour", "234"),
        ("-S 11:30", "24"),
        ("-S 10:30", "1234"),
        ("-S 112526", "1234"),
        ("-S 11/26/25 -E 11/25", ""),
        ("-S today -E 10:40", "1"),
        ("-S 2026-11-25 -E 2026-11-25T10:55", "1234"),
        ("-E now-2hours", ""),
        ("-E tomorrow", "12346"),
        # With one: at this moment, from -S on for a moment, or in a span.
        ("-s R", "2"),
        ("-s running,PD", "24"),
        ("-s CD", ""),
        ("-s CD -S midnight", ""),
        ("-s cd -S midnight -E now", "1"),
        ("-s CD,CA,F -S midnight -E now", "13"),
        ("-s COMPLETED -S 10:31 -E now", ""),
        ("-s R -S 10:10 -E 10:20", "1"),
        ("-s PD -S 10:55", "34"),
        ("-s PD -S 10:55 -E 10:56", "34"),
        ("-s PD -S midnight -E now", "1234"),
        ("-s RQ -S midnight -E now", ""),
        # By number also those that may not run yet.
        (f"-j {FIRST + 1},{FIRST + 5}", "15"),
        (f"-j {FIRST + 1},{FIRST + 5} -S 11:00", "5"),
        (f"-j {FIRST + 1},{FIRST + 2} -s CD", "1"),
        (f"-j {FIRST + 1},{FIRST + 5} -u bob", ""),
        # By what they are.
        ("-u bob", ""),
        ("-u bob,alice", "1234"),
        ("-u 7", "1234"),
        ("-a", "1234"),
        ("-a -u bob", ""),
        ("-u bob -a", "1234"),
        ("-u -1", "1234"),
        ("-g users", "1234"),
        ("-g 9", ""),
        ("-r penstock,short", "12"),
        ("-A ACC", "1"),
        ("-q high -W w", "1"),
        ("-q high -r short", ""),
        ("--name one,four", "14"),
        ("-N n[1-9]", "1"),
        ("-N n10", "2"),
        ("-M site -D -v", "1234"),
        ("-M all", "1234"),
        ("-M other", ""),
        ("-L", "1234"),
    ],
)
def test_which_jobs_sacct_tells_of(machine: Machine, words: str, found: str):
    assert jobs(machine, words) == found


def test_a_job_counts_from_its_submission_and_to_its_last_second(machine: Machine):
    machine.submit([job("seven")], NOON)
    assert jobs(machine, "--name seven", NOON + 0.1) == "7"
    assert jobs(machine, "-S 10:30 -E now --name one", NOON) == "1"
    assert jobs(machine, "-S 10:30:01 -E now --name one", NOON) == ""


def test_amounts_are_in_the_unit_that_is_asked_for(machine: Machine):
    machine.entries[1].task = replace(machine.entries[1].task, memory=1536 * 2**20)
    row = "-P -o reqmem,maxrss,reqtres --name one "
    mem = "billing=1,cpu=1,mem={},node=1"
    for unit, asked, used in (
        ("", "1.50G", "3M"), ("--noconvert", "1536M", "3145728"), ("--units=K", "1572864K", "3072K"),
        ("--units=g", "1.50G", "0.00G"), ("--units=M --noconvert", "1536M", "3M"),
    ):  # fmt: skip
        assert told(machine, row + unit).splitlines() == [f"{asked}||{mem.format(asked)}", f"|{used}|"]


def test_the_long_list_is_as_wide_as_slurms(machine: Machine):
    long = told(machine, "-l -n --name one")
    assert {len(line) for line in long.splitlines()} == {734}
    assert told(machine, "-l -P --name one", beside=False).startswith("JobID|JobIDRaw|JobName|Partition|MaxVMSize|")


def test_what_only_helps_is_slurms(machine: Machine):
    for words in ("-h", "-e", "-V", "--usage", "--helpstate"):
        assert told(machine, words) == ""
    for words in ("--help", "--usage", "-V", "--helpFormat"):
        assert listed(machine, words) == ""


@pytest.mark.parametrize("words", ["--json", "-S bogus", "-s nonsense", "-s CG", "--units=x", "-B", "-T", "-k 5", "x"])
def test_what_is_left_to_slurm_says_why(machine: Machine, words: str):
    with pytest.raises(Through):
        told(machine, words)


def listed(it: Machine, words: str, *, beside: bool = True, **environ: str) -> str:
    asked = squeue.read(words.split(), environ, SITE)
    table = squeue_table(iter(it.entries.values()), it.queue, OWNER, NOON, asked.unit)
    return squeue.answer(asked, table, asker(**environ), beside=beside).out


@pytest.mark.parametrize(
    ("words", "order"),
    [
        ("", "4562"),  # partition, state
        ("-t all", "345612"),
        ("-t all -S i", "123456"),
        ("-t all -S -i", "654321"),
        ("-S -t,i", "2456"),
        ("-S -j", "2645"),
        ("-S +l,-i", "2654"),
        ("-t all -S S,i", "123645"),
        ("-t all -S -S,i", "632145"),
        ("-t all -S -M,i", "213456"),
        ("-S N,-i", "6542"),
        ("-t all -S -N,i", "213456"),
        ("-S p,u,i", "2456"),
        ("-S cluster,-V,i", "4562"),
        ("-w n10", "2"),
        ("-w n[1-5]", ""),
        ("-t all -w n1,n10 -S i", "12"),
        ("-P", "4562"),
        ("-R some", ""),
        ("-L matlab", ""),
        ("-u bob", ""),
        ("-M site", "4562"),
        ("-M other", ""),
        ("--start", "645"),
        ("--start -S i", "456"),
        ("--start -t R", "2"),
    ],
)
def test_which_jobs_squeue_lists_in_which_order(machine: Machine, words: str, order: str):
    assert "".join(line[-1] for line in listed(machine, f"-o %A {words}").splitlines()) == order


def test_variables_of_squeue(machine: Machine):
    assert listed(machine, "-o %A", SQUEUE_SORT="-i").split()[0] == str(FIRST + 6)
    assert listed(machine, "--start", SQUEUE_STATES="R", SQUEUE_FORMAT="%i").split()[0] == str(FIRST + 2)
    with pytest.raises(Through):
        listed(machine, "", SQUEUE_LICENSES="x")


def test_what_stands_before_a_list(machine: Machine):
    assert listed(machine, "-l -M site", beside=False).startswith("DATE\nCLUSTER: site\n             JOBID PARTITION")
    assert listed(machine, "-h -l -M site -t R", beside=False).startswith("        5000000002")
    assert listed(machine, "--start -l", beside=False).split()[:7] == (
        ["DATE", "JOBID", "PARTITION", "NAME", "USER", "ST", "START_TIME"]
    )


def test_fields_without_a_letter(machine: Machine):
    machine.submit(array(1), NOON)
    words = "-t all -S i -O cpus-per-task:2,NumTasks:2,cluster:5,Requeue:2,StdOut:40,tres-alloc:25,gres:4,restartcnt:2"
    first, *_, last = listed(machine, words).splitlines()
    assert first.split() == [
        "1",
        "1",
        "site",
        "1",
        "/home/a/slurm-5000000001.out",
        "cpu=1,node=1,billing=1",
        "N/A",
        "0",
    ]
    assert last.split()[4] == "/home/a/slurm-5000000007_10.out"
    assert listed(machine, "-O eligibletime -t R").strip() == "2026-11-25T10:40:00"


@pytest.mark.parametrize("words", ["--json", "-S q", "-s", "-M a,b", "-M all", "--array-unique", "-O nonsense", "x"])
def test_what_squeue_leaves_out_says_why(machine: Machine, words: str):
    with pytest.raises(Through):
        listed(machine, words)


@given(st.text(alphabet="PtpiMSNnlLjm,+-cluster bTeVq", max_size=12))
def test_any_sort_is_one_or_goes_through(text: str):
    it = Machine(Pack())
    it.submit([job("a"), job("b", limit=60.0)], 1.0)
    try:
        asked = squeue.read([f"--sort={text}", "-o%A", "-h"], {}, SITE)
    except Through:
        return
    table = squeue_table(iter(it.entries.values()), it.queue, OWNER, 2.0)
    assert len(squeue.answer(asked, table, asker(), beside=True).out.splitlines()) == 2


@given(st.integers(1, 2**62), st.sampled_from(["", *UNITS[:3]]))
def test_an_amount_that_is_not_asked_for_in_a_unit_is_exact(number: int, unit: str):
    text = amount(number, unit)
    size = float(text.rstrip(UNITS)) * 1024.0 ** (UNITS.find(text[-1]) + 1)
    assert size == pytest.approx(number * 1024.0 ** (UNITS.find(unit or "x") + 1))
    assert amount(number, unit, "") == f"{number}{unit}"


# What `man squeue` of 22.05 lists for -o, besides %all; a portal asks for any of them, Open OnDemand for all.
_MANUAL = "a A b B c C d D e E f F g G h H i I j J k K l L m M n N o O p P q Q r R s S t T u U v V w W x X y Y z Z"
_WORD = st.builds(
    "%{}{}{}{}".format, st.sampled_from(["", "."]), st.sampled_from(["", 6, 30]), st.sampled_from(_MANUAL.split()),
    st.sampled_from(["", "|", " x", ","]),
)  # fmt: skip


@given(st.lists(_WORD, min_size=1))
def test_every_format_of_squeues_manual_is_answered(words: list[str]):
    it = Machine(Pack())
    it.submit([job("a")], 1.0)
    asked = squeue.read(["--noconvert", "-o", "".join(words)], {}, SITE)
    table = squeue_table(iter(it.entries.values()), it.queue, OWNER, 2.0)
    heading, row, end = squeue.answer(asked, table, asker(), beside=False).out.split("\n")
    assert end == "" and row.count("|") == heading.count("|") == "".join(words).count("|")


def test_what_a_job_asks_for_of_its_node_is_told_by_its_letter(machine: Machine):
    machine.submit([replace(job("gpus"), gpus=2)], NOON, larger=True)
    assert listed(machine, "-h -t PD -S -i -o %b|%s|%i").split()[0] == f"gres:gpu:2||{FIRST + 7}"
    assert listed(machine, "-t R -o %b|%s|%i", beside=False) == f"TRES_PER_NODE||JOBID\nN/A||{FIRST + 2}\n"


_ACCOUNTED = """
Account AdminComment AllocCPUS AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead AveDiskWrite AvePages
AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy ConsumedEnergyRaw Container CPUTime CPUTimeRAW
DBIndex DerivedExitCode Elapsed ElapsedRaw Eligible End ExitCode Flags GID Group JobID JobIDRaw JobName Layout
MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode
MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU MinCPUNode
MinCPUTask NCPUS NNodes NodeList NTasks Partition Priority QOS QOSRAW Reason ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax
ReqCPUFreqMin ReqCPUS ReqMem ReqNodes ReqTRES Reserved ResvCPU ResvCPURAW Start State Submit SubmitLine Suspended
SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode
TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve
TRESUsageOutMax TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask
TRESUsageOutTot UID User UserCPU WCKey WCKeyID WorkDir
"""
"""What `sacct --helpformat` of 22.05.8 says."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_word_that_sacct_names_is_answered(machine: Machine, data: st.DataObject):
    names = data.draw(st.lists(st.sampled_from(_ACCOUNTED.split()), min_size=1))
    shapes = [data.draw(st.sampled_from([str, str.lower, str.upper]))(name) for name in names]
    widths = [data.draw(st.sampled_from(["", "%20", "%-25"])) for _ in names]
    format_ = ",".join(map("".join, zip(shapes, widths, strict=True)))
    lines = told(machine, f"-X -P -j {FIRST + 1} -o {format_}", beside=False).split("\n")
    assert {line.count("|") for line in lines[:-1]} == {len(names) - 1}


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (AttemptOutcome.COMPLETE, 0, 0),
        (AttemptOutcome.FAILED, 7, 7),
        (AttemptOutcome.FAILED, -9, 1),
        (AttemptOutcome.TIMEOUT, -15, 1),
        (AttemptOutcome.TIMEOUT, 0, 1),
        (AttemptOutcome.MEMORY, 137, 1),
    ],
)
def test_sbatch_that_waits_ends_as_with_slurm(outcome: AttemptOutcome, code: int, said: int):
    it = Machine(Pack())
    it.join(PoolMember("a", "n1", "1", Capacity(1.0)), 1.0)
    it.submit([job("a")], 1.0)
    it.submit([job("b")], 1.0)
    it.place(1.0)
    it.ended("a", 1, 1, outcome, code, "", Use(1.0, 1.0, 1), 2.0)
    it.cancel([2], 2.0)
    assert [wait_code(entry) for entry in it.entries.values()] == [said, 0]
