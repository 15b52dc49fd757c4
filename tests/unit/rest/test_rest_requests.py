"""What is asked of slurmrestd, and how its scalars are read in every form."""

import math

import pytest

from penstock.api import FAR, Allocation, JobSpec, Origin, ReservationSpec
from penstock.errors import Infeasible
from penstock.slurm.parse import ParseError
from penstock_rest import requests, values
from penstock_rest.requests import Unsaid
from penstock_rest.site import UNTOLD, settings_of
from penstock_rest.versions import KNOWN, DataVersion, unfit

NEW, OLD = DataVersion(42), DataVersion(39)
NOW = 1_700_000_000.0


def described(version=NEW, **more):
    spec = JobSpec("job", more.pop("script", "#!/bin/sh\n"), more.pop("nodes", 2), 61.0, **more)
    return requests.description(spec, version, "/tmp", {"A": "b=c\nd"}, NOW)


def test_a_plain_job():
    job = described()
    assert (job["minimum_nodes"], job["maximum_nodes"], job["minimum_cpus"]) == (2, 2, 2)
    assert job["time_limit"] == {"set": True, "infinite": False, "number": 2}
    assert job["flags"] == ["NO_KILL_INVALID_DEPENDENCY"] and job["requeue"] is False
    assert job["environment"] == ["A=b=c\nd"] and job["current_working_directory"] == "/tmp"
    assert not {"hold", "dependency", "tasks", "begin_time", "required_nodes", "account"} & set(job)
    assert described(min_nodes=1)["minimum_nodes"] == 1


def test_all_that_a_job_may_ask_for():
    job = described(
        partition="p",
        dependency="afterok:1",
        begin=FAR,
        hold=True,
        array="0-3%2",
        licenses="m:1",
        nodelist=("n1", "n2"),
        exclude=("n3",),
        memory="2G",
        gpus="2",
        gres="gpu:1,shard:2",
        ntasks="4",
        cpus="3",
        constraint="fast",
        error="e",
        output="o",
    )
    assert (job["tasks"], job["cpus_per_task"], job["minimum_cpus"]) == (4, 3, 12)
    assert job["memory_per_node"]["number"] == 2048 and job["begin_time"]["number"] > 4_000_000_000
    assert (job["tres_per_job"], job["tres_per_node"]) == ("gres/gpu:2", "gres/gpu:1,gres/shard:2")
    assert (job["required_nodes"], job["excluded_nodes"]) == (["n1", "n2"], ["n3"])
    assert (job["hold"], job["array"], job["constraints"]) == (True, "0-3%2", "fast")
    assert described(OLD, gres="gpu:1")["tres_per_node"] == "gres:gpu:1"


def test_options_of_the_script_and_of_the_job():
    script = "#!/bin/sh\n#SBATCH -J other -c 2 --mem=1G\n#SBATCH --comment='a b' --nice\ntrue\n#SBATCH --nice=9\n"
    job = described(script=script, options=("--mem=4G", "--time=1", "--ntasks-per-node=2"), comment=None)
    assert (job["name"], job["cpus_per_task"], job["comment"], job["nice"]) == ("job", 2, "a b", 100)
    assert (job["memory_per_node"]["number"], job["time_limit"]["number"]) == (4096, 2)
    assert job["tasks_per_node"] == 2 and described(script=script, memory="8G")["memory_per_node"]["number"] == 8192
    for words in (("--exclusive",), ("--signal=B:USR1@10",), ("--export=NONE",), ("--newer=1",)):
        with pytest.raises(Unsaid, match="option --"):
            described(options=words)
    described(origin=Origin("/", {}))
    assert requests.handed_on({"A": "1", "SBATCH_WAIT": "1", "SLURM_CONF": "x"}) == {"A": "1", "SLURM_CONF": "x"}
    with pytest.raises(Unsaid, match="SBATCH_PARTITION"):
        requests.handed_on({"SBATCH_PARTITION": "p"})
    with pytest.raises(Unsaid, match="UTF-8"):
        described(comment="caf\udce9")


@pytest.mark.parametrize(
    "wrong",
    [
        {"begin": "whenever"},
        {"memory": "much"},
        {"ntasks": "few"},
        {"comment": "a\0b"},
        {"options": ("word",)},
        {"script": "#!/bin/sh\n#SBATCH --comment='open\n"},
    ],
)
def test_what_sbatch_would_refuse(wrong):
    with pytest.raises(Infeasible):
        described(**wrong)


@pytest.mark.parametrize("script", ["", "true\n", "#!/bin/sh\r\ntrue\r\n", "#!/bin/sh\n\0"])
def test_what_is_no_script(script):
    with pytest.raises(Infeasible):
        requests.checked_script(script)


def test_allocations_and_reservations():
    job = requests.allocation(Allocation("a", 2, 60.0, expands=7, last=True, exclusive=True), NEW, "/", NOW)
    assert job["dependency"] == "expand:7" and job["nice"] == 2147483645
    assert job["begin_time"]["number"] == NOW + 1 and job["shared"] == ["none"]
    made = requests.reservation(ReservationSpec("r", NOW + 0.5, 61.0, 2, users=("a",), flags=("FLEX", "PURGE_COMP=10")))
    assert made["flags"] == ["FLEX", "PURGE_COMP"] and made["purge_completed"]["time"]["number"] == 600
    assert (made["start_time"]["number"], made["duration"]["number"]) == (NOW, 2)
    assert made["node_count"]["number"] == 2 and "accounts" not in made and "partition" not in made
    assert requests.shifted("r", NOW, 60.0, ["n1"])["node_list"] == ["n1"]


SET = {"set": True, "infinite": False, "number": 7}
NOT = {"set": False, "infinite": False, "number": 0}
ENDLESS = {"set": False, "infinite": True, "number": 0}


@pytest.mark.parametrize(
    ("value", "found"),
    [(7, 7.0), (SET, 7.0), (NOT, None), (None, None), (4294967294, None), ("Infinity", math.inf), (ENDLESS, math.inf)],
)
def test_numbers(value, found):
    assert values.amount(value) == found


def test_scalars():
    assert values.limit(ENDLESS, -1.0) is None and values.limit(NOT, -1.0) == -1.0 and values.limit(SET, 0.0) == 420.0
    assert values.moment({**SET, "number": 0}) is None and values.moment(0) is None and values.moment(5) == 5.0
    assert values.state(["RUNNING", "COMPLETING"]) == "RUNNING+COMPLETING" and values.state("RUNNING") == "RUNNING"
    assert values.count(ENDLESS, 3) == 3 and values.member({"a": {"b": 1}}, "a", "b") == 1
    assert values.member({"a": []}, "a", "b") is None
    for wrong in (lambda: values.amount("x"), lambda: values.text(5), lambda: values.flags(5)):
        with pytest.raises(ParseError):
            wrong()
    for document in ({}, {"jobs": {}}, {"jobs": [1]}):
        with pytest.raises(ParseError):
            values.items(document, "jobs")


def test_versions():
    assert [version.name for version in KNOWN[::6]] == ["v0.0.45", "v0.0.39"]
    assert "a newer Penstock" in unfit(["/slurm/v0.0.46/jobs/"]) and "cli" in unfit(["v0.0.38"])


def test_settings():
    told = {"MinJobAge": 300, "PrologFlags": ["ALLOC", "CONTAIN"], "X": None, "Y": {"a": 1}, "Z": SET, "B": True}
    assert settings_of({"conf": told}) == {
        "MinJobAge": "300", "PrologFlags": "ALLOC,CONTAIN", "X": "", "Z": "7", "B": "Yes",
    }  # fmt: skip
    with pytest.raises(ParseError):
        settings_of({"errors": []})
    assert "permit_job_expansion" not in UNTOLD["SchedulerParameters"]
