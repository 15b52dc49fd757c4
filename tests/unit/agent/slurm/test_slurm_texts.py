"""Users' texts from every form of JSON that Slurm 22.05, 24.11 and 26.05 write."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm.parse import ParseError
from penstock.slurm.texts import texts_from_json
from places import FIXTURES

FOLDER = FIXTURES / "slurm"
FORGED = "x\n77|5|@0123@root"
RECORDED = sorted(FOLDER.glob("*/squeue_*.json"))


def test_all_data_versions_of_these_releases_are_there():
    names = [f"{path.parent.name} {path.stem.removeprefix('squeue_')}" for path in RECORDED]
    newer = [f"26.05 v0.0.{n}" for n in range(42, 46)]
    assert names == ["22.05 only", *(f"24.11 v0.0.{n}" for n in range(40, 43)), *newer]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_data_version_says_the_same(path):
    facts = json.loads((path.parent / "facts.json").read_text())
    wanted = {facts["licensed"], facts["array"], 4_000_000}
    found = texts_from_json(path.read_text(), wanted)
    assert set(found) == wanted - {4_000_000}
    hostile = found[facts["licensed"]]
    assert (hostile.job, hostile.name, hostile.comment) == (facts["licensed"], FORGED, "\x1f" + FORGED)
    assert (hostile.workdir, found[facts["array"]].comment) == ("/tmp", "")
    assert texts_from_json(path.read_text(), ()) == {}


@given(st.text(), st.text(), st.text(st.characters(exclude_characters="{")), st.text())
def test_any_text_is_told_as_it_is_whatever_stands_around(name, comment, before, after):
    job = {"job_id": 7, "name": name, "comment": comment, "current_working_directory": "/", "command": None}
    document = json.dumps({"jobs": [job, {**job, "job_id": 8}]})
    (texts,) = texts_from_json(f"{before}\n{document}\n{after}", {7}).values()
    assert (texts.job, texts.name, texts.comment, texts.workdir, texts.command) == (7, name, comment, "/", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm_load_jobs error: Unable to contact slurm controller",
        '{"jobs": [',
        '{"jobs": 5}',
        '{"jobs": [5]}',
        '{"jobs": [{}]}',
        '{"jobs": [{"job_id": 7, "name": {"set": true}}]}',
        '{"jobs": [{"job_id": 7.0, "name": "x"}]}',
        '{"errors": []}',
        "[]",
    ],
)
def test_what_is_no_queue_is_no_answer(text):
    with pytest.raises(ParseError):
        texts_from_json(text, {7})
