"""What sacct prints, trap by trap: each is a record as a real Slurm writes it, or as its documentation tells."""

from __future__ import annotations

import gzip
import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from dumps import NOON, USUAL, dump, heading, imported, job, record

from penstock.errors import UserError
from penstock_lab.history.importing import Options, import_history
from penstock_lab.history.rows import Flag, Reason
from penstock_lab.history.sacct import FIELDS

ZONE = ZoneInfo("Europe/Berlin")


def test_a_usual_job(tmp_path):
    assert job(tmp_path, dump(record())) == {
        "id": 7, "submit": NOON, "eligible": 0, "start": 60, "end": 360, "limit": 600, "nodes": 2, "cpus": 8,
        "memory": 4096, "flags": 0,
    }  # fmt: skip


def test_steps_are_no_jobs(tmp_path):
    steps = [record(JobIDRaw=f"7.{step}", Partition="", User="") for step in ("batch", "extern", "0")]
    found, report = imported(tmp_path, dump(record(), *steps))
    assert found.jobs == 1 and report.read == 4
    assert report.left[Reason.STEP].count == 3
    assert report.left[Reason.STEP].first == f"{tmp_path / 'jobs.txt'} line 3"


def test_every_run_of_a_requeued_job_is_one_and_those_that_were_cut_are_marked(tmp_path):
    first = record(State="REQUEUED", End=NOON + 100)
    last = record(Submit=NOON + 100, Eligible=NOON + 220, Start=NOON + 400, End=NOON + 900)
    found, report = imported(tmp_path, dump(first, last))
    assert found.column("flags").tolist() == [Flag.CUT, 0]
    assert found.column("eligible").tolist() == [0, 120]
    assert not report.left


def test_the_same_run_in_two_dumps_counts_once(tmp_path):
    found, report = imported(tmp_path, dump(record(), record(JobIDRaw=6)) + dump(record(), record(JobIDRaw=8)))
    assert sorted(found.column("id").tolist()) == [6, 7, 8]
    assert report.left[Reason.TWICE].count == 1 and "line 5" in report.left[Reason.TWICE].first


def test_tasks_of_an_array_are_jobs_and_what_was_never_split_is_one(tmp_path):
    tasks = [record(JobIDRaw=11, JobID="4_1"), record(JobIDRaw=4, JobID="4_2")]
    never = record(
        JobIDRaw=13, JobID="13_[5-9%2]", State="CANCELLED by 1000", Start="Unknown", AllocCPUS=0, End=NOON + 30
    )
    found, report = imported(tmp_path, dump(*tasks, never))
    assert found.jobs == 3 and report.never_ran == 1
    assert found.column("flags").tolist() == [Flag.ARRAY] * 3
    assert found.column("start").tolist()[2] == -1 and found.column("end").tolist()[2] == 30


def test_the_components_of_a_heterogeneous_job_are_one(tmp_path):
    parts = [record(JobIDRaw=5, JobID="5+0", NNodes=1, AllocCPUS=2), record(JobIDRaw=6, JobID="5+1", NNodes=2)]
    found, report = imported(tmp_path, dump(*parts, record(JobIDRaw=7)))
    assert found.column("nodes").tolist() == [3, 2] and found.column("cpus").tolist() == [10, 8]
    assert found.column("flags").tolist() == [Flag.HETEROGENEOUS, 0]
    assert report.joined == {"a component of a heterogeneous job": 1} and report.read == 3


def test_the_sizes_of_a_resized_job_are_one(tmp_path):
    sizes = [
        record(State="RESIZING", NNodes=1, AllocCPUS=4, End=NOON + 100),
        record(State="RESIZING", Submit=NOON, Start=NOON + 100, End=NOON + 200, NNodes=4),
        record(Start=NOON + 200, End=NOON + 300),
    ]
    found, report = imported(tmp_path, dump(*sizes))
    assert (found.column("start")[0], found.column("end")[0], found.column("nodes")[0]) == (60, 300, 1)
    assert found.column("flags")[0] == Flag.RESIZED and report.joined == {"another size of a resized job": 2}


OTHERS = [record(JobIDRaw=n, Submit=NOON + n * 15, Start=NOON + n * 15 + 5) for n in (8, 10)]
SIZES = {  # as `sacct -D` tells of a job that shrank from 4 nodes to 3 and to 1
    "22.05, 26.05": [
        record(State="RESIZING", NNodes=4, End=NOON + 120),
        record(State="RESIZING", Submit=NOON + 120, Start=NOON + 120, End=NOON + 240, NNodes=3),
        record(Submit=NOON + 240, Eligible=NOON + 240, Start=NOON + 240, NNodes=1),
    ],
    "24.11": [
        record(State="RESIZING", NNodes=4, End=NOON + 120),
        record(State="RESIZING", Submit=NOON + 120, End=NOON + 240, NNodes=3),
        record(Submit=NOON + 240, Eligible=NOON + 240, NNodes=1),
    ],
}


@pytest.mark.parametrize("release", SIZES)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_sizes_are_one_job_wherever_they_stand(tmp_path, release, order):
    rows = [SIZES[release][i] for i in order]
    found, report = imported(tmp_path, dump(rows[0], OTHERS[0], rows[1], OTHERS[1], rows[2]))
    at = found.column("id").tolist().index(7)
    columns = ("submit", "eligible", "start", "end", "nodes", "flags")
    assert [int(found.column(name)[at]) for name in columns] == [NOON, 0, 60, 360, 4, Flag.RESIZED]
    assert found.jobs == 3 and report.joined == {"another size of a resized job": 2} and not report.left


def test_the_runs_of_a_job_that_was_resized_and_requeued(tmp_path):
    """Rows of a real 22.05, with the number of a resizer that was merged before."""
    merged = record(State="RESIZING", Submit=NOON - 9000, Start=NOON - 9000, End=NOON - 8000, NNodes=0, AllocCPUS=0)
    cut = record(State="REQUEUED", Submit=NOON + 120, Start=NOON + 120, End=NOON + 200, NNodes=3)
    last = record(Submit=NOON + 200, Eligible=NOON + 320, Start=NOON + 330, End=NOON + 400)
    found, report = imported(tmp_path, dump(last, cut, merged, SIZES["24.11"][0]))
    assert found.column("submit").tolist() == [NOON, NOON + 200] and found.column("end").tolist() == [200, 200]
    assert found.column("flags").tolist() == [Flag.RESIZED | Flag.CUT, 0]
    assert {why: left.count for why, left in report.left.items()} == {Reason.HALF_RESIZED: 1}


def test_components_are_one_job_wherever_they_stand(tmp_path):
    parts = [record(JobIDRaw=5 + i, JobID=f"5+{i}", NNodes=1 + i, AllocCPUS=2) for i in range(3)]
    again = [
        record(JobIDRaw=5 + i, JobID=f"5+{i}", Submit=NOON + 900, Start=NOON + 960, End=NOON + 990) for i in (0, 1)
    ]
    found, report = imported(tmp_path, dump(parts[1], again[1], record(JobIDRaw=9), parts[2], again[0], parts[0]))
    assert (found.column("id") * 100 + found.column("nodes")).tolist() in ([506, 902, 504], [902, 506, 504])
    assert report.joined == {"a component of a heterogeneous job": 3} and not report.left


def test_a_resized_job_in_two_dumps_counts_once(tmp_path):
    found, report = imported(tmp_path, dump(*SIZES["24.11"], *SIZES["24.11"]))
    assert found.jobs == 1 and found.column("end").tolist() == [360]
    assert report.left[Reason.TWICE].count == 3


def test_a_resized_job_without_its_last_size_is_left_out(tmp_path):
    found, report = imported(tmp_path, dump(record(State="RESIZING"), record(JobIDRaw=8)))
    assert found.column("id").tolist() == [8] and report.left[Reason.HALF_RESIZED].count == 1


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"State": "RUNNING", "End": "Unknown"}, Reason.NOT_ENDED),
        ({"State": "PENDING", "Start": "Unknown", "End": "Unknown"}, Reason.NOT_ENDED),
        ({"Submit": "Unknown"}, Reason.NO_SUBMIT),
        ({"Start": "None"}, Reason.NO_START),
        ({"End": "Unknown"}, Reason.NO_END),
        ({"End": NOON + 10}, Reason.DISORDER),
        ({"Start": NOON - 5}, Reason.DISORDER),
        ({"Partition": ""}, Reason.NOT_WRITTEN),
        ({"NNodes": "", "AllocCPUS": "", "ReqCPUS": ""}, Reason.NO_SIZE),
        ({"NNodes": 3_000_000_000}, Reason.TOO_FAR),
    ],
)
def test_what_cannot_be_a_job_is_left_out_with_its_reason_and_place(tmp_path, cells, reason):
    found, report = imported(tmp_path, dump(record(JobIDRaw=1), record(**cells)))
    assert found.column("id").tolist() == [1]
    assert {why: left.count for why, left in report.left.items()} == {reason: 1}
    assert report.left[reason].first.endswith("line 3")


@pytest.mark.parametrize("start", ["Unknown", "None", str(NOON + 90)])
def test_a_job_that_was_cancelled_while_it_waited_never_started(tmp_path, start):
    """Some releases write the time of the cancellation as its start; it has no processors then."""
    cells = {"State": "CANCELLED by 1000", "Start": start, "End": NOON + 90, "AllocCPUS": 0, "Eligible": "Unknown"}
    found = job(tmp_path, dump(record(**cells)))
    assert (found["start"], found["end"], found["eligible"], found["cpus"]) == (-1, 90, 0, 8)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"Start": "1970-01-01T01:00:00"}, Reason.NO_START),
        ({"End": "1970-01-01T00:00:00Z"}, Reason.NO_END),
        ({"Submit": "1969-12-31T19:00:00"}, Reason.NO_SUBMIT),
        ({"Start": "7200"}, Reason.NO_START),
    ],
)
def test_1970_is_no_time(tmp_path, cells, reason):
    """Some programs write it where no time is set, each in its own zone."""
    found, report = imported(tmp_path, dump(record(JobIDRaw=1), record(**cells)), zone=ZONE)
    assert found.column("id").tolist() == [1] and list(report.left) == [reason]


def test_a_job_that_never_started_may_have_1970_as_its_start(tmp_path):
    cells = {"State": "CANCELLED", "Start": "1970-01-01T01:00:00", "End": NOON + 90, "Eligible": "1970-01-01T01:00:00"}
    found = job(tmp_path, dump(record(**cells)), zone=ZONE)
    assert (found["start"], found["eligible"], found["end"]) == (-1, 0, 90)


def test_a_job_that_was_cancelled_while_it_ran_did(tmp_path):
    assert job(tmp_path, dump(record(State="CANCELLED by 1000")))["start"] == 60


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 600), ("1-02:03:04", 93784), ("00:10:00", 600), ("UNLIMITED", 0), ("Partition_Limit", 0), ("", 0)],
)
def test_limits(tmp_path, text, seconds):
    assert job(tmp_path, dump(record(TimelimitRaw=text)))["limit"] == seconds


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("4G", 4096), ("4Gn", 8192), ("100Mc", 800), ("62.50G", 64000), ("512", 512), ("0", 0), ("", 0), ("?", 0)],
)
def test_memory_in_all_per_node_and_per_processor(tmp_path, text, megabytes):
    assert job(tmp_path, dump(record(ReqMem=text)))["memory"] == megabytes


@pytest.mark.parametrize("name", ["odd|name,with;all 'q'\tx", "line\nbreak\n9999|bob|x", "", "\udcff\udcfe", "JobID|x"])
def test_any_name_of_a_job(tmp_path, name):
    found, report = imported(tmp_path, dump(record(JobName=name), record(JobIDRaw=8, JobName=name), record(JobIDRaw=9)))
    names = found.column("name").tolist()
    assert names[0] == names[1] != names[2] and not report.left


def test_a_name_cannot_forge_a_record(tmp_path):
    forged = "x\n" + record(mark="|", JobIDRaw=99).rstrip("\n")
    found, _ = imported(tmp_path, dump(record(JobName=forged)))
    assert found.column("id").tolist() == [7]


LINE = "|".join(USUAL[name] for name in FIELDS) + "\n"
PLAIN = "|".join(FIELDS) + "\n"


def test_a_dump_made_by_another_line_is_read_as_well(tmp_path):
    assert job(tmp_path, PLAIN + LINE)["end"] == 360
    assert job(tmp_path, "Welcome to BIG\n\n" + PLAIN.lower() + LINE.replace("\n", "\r\n"))["end"] == 360


def test_a_separator_in_a_name_is_refused_where_it_cannot_be_told(tmp_path):
    text = PLAIN + LINE + LINE.replace("relax", "re|lax")
    with pytest.raises(UserError, match=r"jobs.txt line 3: 20 fields where the heading has 19 \('\|'"):
        imported(tmp_path, text)
    _, report = imported(tmp_path, text, skip_bad=True)
    assert report.left[Reason.UNREADABLE].count == 1 and report.kept == 1


def test_a_newline_in_a_name_in_the_middle_is_put_together(tmp_path):
    fields = ("JobIDRaw", "JobName", *FIELDS[1:-1])
    text = "|".join(fields) + "\n" + "|".join(dict(USUAL, JobName="a\nb")[name] for name in fields) + "\n" + "7|"
    with pytest.raises(UserError, match=r"line 4: 2 fields where the heading has 19; the dump ends here"):
        imported(tmp_path, text)
    found, report = imported(tmp_path, text, skip_bad=True)
    assert found.jobs == 1 and report.left[Reason.UNREADABLE].count == 1


def test_the_line_behind_one_that_is_cut_off_is_not_lost_with_it(tmp_path):
    text = PLAIN + LINE[:40] + "\n" + LINE + LINE.replace("7|7|", "8|8|")
    found, report = imported(tmp_path, text, skip_bad=True)
    assert found.column("id").tolist() == [7, 8] and report.left[Reason.UNREADABLE].first.startswith(
        f"{tmp_path / 'jobs.txt'} line 2: "
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("hello\n", "no heading of sacct"),
        ("JobID           JobName  Partition\n------- -----\n", "table for people, in which fields are cut off"),
        ("JobIDRaw|State|Submit|Start\n1|COMPLETED|5|6\n", "line 2: the heading lacks End, NNodes or AllocCPUS"),
        (heading(), "no job is left to keep: there are no records"),
        (dump(record(State="RUNNING", End="Unknown")), "of 1 records 1 are left out as 'has not ended yet'"),
        (dump(record(JobIDRaw="7x")), "line 2: JobIDRaw is not a number"),
        (dump(record(NNodes="12+")), "line 2: .*the field is cut off: make the dump with -p or -P"),
        (dump(record(Submit="yesterday")), "line 2: not a time: 'yesterday'"),
        (dump(record(TimelimitRaw="soon")), "line 2: not a duration: 'soon'"),
        (dump(record()[:-30]), "the dump ends here and may be cut off"),
    ],
)
def test_a_mistake_is_said_in_one_line_that_names_the_place(tmp_path, text, said):
    with pytest.raises(UserError, match=said) as error:
        imported(tmp_path, text)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.txt"]


def test_a_heading_alone_and_a_line_that_nothing_says(tmp_path):
    text = "JobIDRaw|State|Submit|Start|End|NNodes\n" + "".join(
        f"{number}|COMPLETED|{NOON}|{NOON + number}|{NOON + 100}|2\n" for number in (1, 2)
    )
    found, report = imported(tmp_path, text)
    assert found.column("start").tolist() == [1, 2] and found.names("user") == [""]
    assert len(report.notes) == 4 and any("no Eligible" in note for note in report.notes)


def test_several_clusters_need_a_choice(tmp_path):
    text = dump(record(), record(JobIDRaw=8, Cluster="small"))
    with pytest.raises(UserError, match=r"several clusters \(big: 1, small: 1\): choose one by --cluster"):
        imported(tmp_path, text)
    found, report = imported(tmp_path, text, cluster="small")
    assert found.column("id").tolist() == [8] and report.left[Reason.ELSEWHERE].count == 1


def test_local_times_are_read_in_the_zone_that_is_named(tmp_path):
    cells = {name: datetime.fromtimestamp(NOON, ZONE).strftime("%Y-%m-%dT%H:%M:%S") for name in ("Submit", "Eligible")}
    cells |= {"Start": "2025-01-15T13:01:00", "End": "2025-01-15T13:06:00"}
    found, report = imported(tmp_path, dump(record(**cells)), zone=ZONE)
    assert found.column("submit").tolist() == [NOON] and found.column("end").tolist() == [360]
    assert any("Europe/Berlin" in note for note in report.notes)


@pytest.mark.parametrize(
    ("start", "end", "ran", "delays"),
    [
        # At 3:00 on 2025-10-26 the clock went back to 2:00; submitted at 1:50, which is 23:50 UTC.
        ("02:10:00", "02:20:00", 4200, (1200, 5400)),  # the first and the second time
        ("02:10:00", "02:20:00", 600, (1200, 1800)),  # both the first
        ("02:50:00", "02:05:00", 900, (3600, 4500)),  # the clock was put back in between
        ("02:10:00", "03:10:00", 7200, (1200, 8400)),
        ("02:10:00", "03:10:00", 3600, (4800, 8400)),
    ],
)
def test_the_hour_that_comes_twice_is_settled_by_how_long_the_job_ran(tmp_path, start, end, ran, delays):
    day = "2025-10-26T"
    cells = {"Submit": f"{day}01:50:00", "Eligible": f"{day}01:50:00", "Start": day + start, "End": day + end}
    found = job(tmp_path, dump(record(ElapsedRaw=ran, **cells)), zone=ZONE)
    assert found["submit"] == datetime(2025, 10, 25, 23, 50, tzinfo=UTC).timestamp()
    assert (found["start"], found["end"]) == delays


def test_the_hour_that_is_left_out_in_spring_breaks_nothing(tmp_path):
    day = "2025-03-30T"
    cells = {
        "Submit": f"{day}01:50:00",
        "Eligible": f"{day}01:50:00",
        "Start": f"{day}01:59:00",
        "End": f"{day}03:05:00",
    }
    assert job(tmp_path, dump(record(ElapsedRaw=360, **cells)), zone=ZONE)["end"] == 900


def test_dumps_and_compressed_ones_one_behind_the_other(tmp_path):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt.gz"
    one.write_text(dump(record()))
    other = "@ffffffffffffffff@"
    with gzip.open(two, "wt") as file:
        file.write(heading(other) + record(other, JobIDRaw=8, State="RUNNING", End="Unknown") + record(other))
    report = import_history([one, two], tmp_path / "site.history", Options())
    assert report.kept == 1 and report.left[Reason.TWICE].first == f"{two} line 3"
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(two.read_bytes()[:-20])
    with pytest.raises(UserError, match="the file is cut off"):
        import_history([damaged], tmp_path / "other.history", Options())
    assert not (tmp_path / "other.history").exists()
