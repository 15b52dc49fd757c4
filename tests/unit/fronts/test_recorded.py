"""Every answer against what the real commands of three releases have said of the same queue."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock_fronts import sacct, scontrol, squeue
from penstock_fronts.rows import Table, parse_table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.squeue_format import LETTERS
from penstock_fronts.words import CommandAnswer, Through
from places import PROJECT

RECORDS = sorted((PROJECT / "tests" / "fixtures" / "shim").glob("*.json.gz"))


def table(record: dict[str, Any], kind: str, names: str | None = None) -> Table:
    look = record["looks"][kind]
    return parse_table(look["text"], look["separator"], names)


def said(record: dict[str, Any], program: str, words: list[str], environ: dict[str, str], date: str) -> CommandAnswer:
    release = tuple(int(part) for part in record["release"].split("."))
    site = ShimSite("shim", release, alone=True)
    users = {**record["users"], "root": 0, "0": 0}
    same = environ.get("SLURM_TIME_FORMAT", "standard") == "standard" and "TZ" not in environ
    asker = Asker(record["users"]["pst-alice"], environ, same, users.get, date, "2020-01-01T00:00:00")
    if program == "squeue":
        asked = squeue.read(words, environ, site)
        if asked.state_alone:
            return squeue.answer(asked, table(record, "states", "itT"), asker)
        return squeue.answer(asked, table(record, "tasks" if asked.array else "queue", LETTERS), asker)
    if program == "sacct":
        wanted = sacct.read(words, asker, site)
        return sacct.answer(wanted, table(record, "span" if wanted.ids is None else "numbers"), asker)
    shown = scontrol.read(words, environ, site)
    look = record["looks"]["lines" if shown.line else "records"]["text"]
    return scontrol.answer(shown, look, table(record, "tasks", LETTERS), asker)


def test_there_are_records_of_three_releases() -> None:
    assert [path.name for path in RECORDS] == ["22.05.json.gz", "24.11.json.gz", "26.05.json.gz"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:5])
def test_what_is_served_is_what_the_command_said(path: Path) -> None:
    record = json.loads(gzip.decompress(path.read_bytes()))
    served, different = 0, []
    for program, words, environ, out, err, code in record["cases"]:
        # `squeue -l` begins with the time of day, sacct counts how long a job has run.
        date = re.match(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}$", out, re.MULTILINE)
        try:
            ours = said(record, program, words, environ, date[0] if date else "")
        except Through:
            continue
        served += 1
        if (ours.out, ours.err, ours.code) != (out, err, code):
            different.append((program, words, environ, ours, out, err, code))
    assert different == []
    assert served >= 200


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:5])
def test_what_the_tools_ask_is_served(path: Path) -> None:
    record = json.loads(gzip.decompress(path.read_bytes()))
    for program, words in record["tools"]:
        said(record, program, words, {}, "x")
