"""What real slurmrestds answered, in every data version that they offer, as Penstock's values.

`record_rest.py` beside the fixtures recorded, at the same moment, what the backend of the commands made of the cluster.
"""

import gzip
import json
import re
from functools import cache

import pytest

from penstock.api import JobState
from penstock.errors import Infeasible
from penstock.slurm.limits import associations_from_rows, qos_from_rows
from penstock.slurm.parse import ParseError
from penstock.slurm.records import accounting_from_rows
from penstock.slurm.site_settings import site_from_settings
from penstock_rest import records as rest
from penstock_rest.accounting import association_rows, oversees, qos_rows
from penstock_rest.errors import complaint, judged
from penstock_rest.site import UNTOLD, settings_of
from penstock_rest.values import items
from places import FIXTURES

RELEASES = {"24.11": ("v0.0.40", "v0.0.41", "v0.0.42"), "26.05": ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")}
VERSIONS = [(release, version) for release, versions in RELEASES.items() for version in versions]


@cache
def recorded(release):
    with gzip.open(FIXTURES / "slurm" / release / "rest.json.gz") as file:
        return json.load(file)


@pytest.fixture(params=VERSIONS, ids="-".join)
def answers(request):
    release, version = request.param
    return recorded(release)["answers"][version], recorded(release)["values"]


def texts(made):
    return sorted(str(item) for item in made)


def test_all_versions_were_recorded():
    for release, versions in RELEASES.items():
        assert sorted(recorded(release)["answers"]) == sorted(versions)


def test_jobs(answers):
    said, values = answers
    made = rest.understood(rest.job_from_json, items(said["jobs"], "jobs"), lambda _: 600.0)
    assert len(made) > 6 and texts(made) == values["jobs"]


def test_nodes(answers):
    said, values = answers
    assert texts(rest.understood(rest.node_from_json, items(said["nodes"], "nodes"))) == values["nodes"]


def test_partitions(answers):
    said, values = answers
    tells = said["ping"]["meta"]["plugin"]["data_parser"].endswith("45")
    made = rest.understood(
        rest.partition_from_json, items(said["partitions"], "partitions"), None if tells else "batch"
    )
    assert texts(made) == values["partitions"]
    assert [p.name for p in made if p.default] == ["batch"]


def test_reservations_and_licenses(answers):
    said, values = answers
    made = rest.understood(rest.reservation_from_json, items(said["reservations"], "reservations"), 0.0)
    assert texts(made) == values["reservations"]
    made = rest.understood(rest.license_from_json, items(said["licenses"], "licenses"))
    assert texts(made) == values["licenses"]


def test_shares(answers):
    said, values = answers
    shares = rest.shares_from_json(said["shares"], "pst-alice")
    assert sorted(shares) == values["shares"] and all(0 <= share <= 1 for share in shares.values())


def test_history(answers):
    said, values = answers
    rows = rest.understood(rest.accounting_row, items(said["history"], "jobs"))
    made = {record.id: record for record, _ in accounting_from_rows(rows)}
    told = {int(re.search(r"id=(\d+)", text)[1]): text for text in values["history"]}
    # sacct leaves out what never became eligible; both know the others.
    assert told and {job: str(made[job]) for job in told} == told
    (failed,) = [record for record in made.values() if record.state is JobState.FAILED]
    assert failed.exit_code == 3
    assert any(rest.array_of(job) for job in items(said["history"], "jobs"))


def test_texts_of_users_are_nothing_else(answers):
    said, _ = answers
    found = {t.job: t for t in rest.understood(rest.texts_from_json, items(said["jobs"], "jobs"))}
    (hostile,) = [text for text in found.values() if "root" in text.comment]
    assert (hostile.name, hostile.comment, hostile.workdir) == ("na me", "x\n77|5|root", "/tmp")


def test_what_jobs_ask_for(answers):
    said, _ = answers
    for job in items(said["jobs"], "jobs"):
        assert not rest.asks_for_gres(job)
        needs = rest.needs_from_json(job)
        assert (needs.gres, needs.constraint) == (None, None)


def test_accounting(answers):
    said, _ = answers
    assert "normal" in qos_from_rows(qos_rows(items(said["qos"], "qos")))
    found = associations_from_rows(association_rows(items(said["associations"], "associations")), "sc")
    assert ("penstock", "pst-alice", "") in [association.key for association in found]
    assert {user["name"] for user in items(said["users"], "users") if oversees(user)} >= {"pst-operator"}


def test_an_unknown_job(answers):
    said, _ = answers
    assert complaint(said["unknown_job"]).startswith("Invalid job id specified")
    assert type(judged(complaint(said["unknown_job"]), changing=True)).__name__ == "NotFound"


def test_what_a_job_submit_plug_in_refuses_is_final():
    """As slurmrestd 24.11.5 answers; the words of the plug-in are not in it."""
    said = {
        "errors": [
            {
                "description": "Batch job submission failed",
                "error_number": -1,
                "error": "Unspecified error",
                "source": "slurm_submit_batch_job()",
            }
        ]
    }
    assert type(judged(complaint(said), changing=True)) is Infeasible
    assert "plug-in" in complaint(said)


def test_settings_that_are_told():
    said = recorded("26.05")["answers"]["v0.0.45"]
    release = said["ping"]["meta"]["slurm"]["release"]
    site = site_from_settings({**UNTOLD, "SLURM_VERSION": release, **settings_of(said["conf"])})
    assert list(site.version) == recorded("26.05")["values"]["version"] and site.cluster == "sc"
    assert site.permits_expansion and site.enforced == frozenset() and site.accounting and site.max_array == 1001


def test_a_newer_one_with_words_that_nobody_knows():
    job = dict(items(recorded("26.05")["answers"]["v0.0.45"]["jobs"], "jobs")[0])
    strange = {**job, "job_state": ["TELEPORTING"], "new_field": {"a": 1}, "state_reason": "Unheard"}
    (made,) = rest.understood(rest.job_from_json, [strange], lambda _: None)
    assert made.state is JobState.UNKNOWN and not made.state.ended and made.reason == "Unheard"
    for wrong in ({"job_id": None}, {"user_id": "x"}, {"job_state": 5}, {"nodes": ["n1"]}, {"time_limit": "long"}):
        with pytest.raises(ParseError):
            rest.understood(rest.job_from_json, [{**job, **wrong}], lambda _: None)
    with pytest.raises(ParseError):
        rest.understood(rest.job_from_json, [{}], lambda _: None)
