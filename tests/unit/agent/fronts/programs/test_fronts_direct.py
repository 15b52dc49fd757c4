"""The short way of `penstock sbatch`: taken where nothing has changed, and as good as the long one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.config import SITE
from penstock.fronts.programs.known import SITE_FILE, keep_settings, known_settings
from penstock.sbatch.remembered import SubmittedJobs

COMMAND = [sys.executable, "-c", "from penstock.__main__ import main; main()"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "slurm.conf").write_text("ClusterName=here\n")
    return {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_CONF": str(tmp_path / "slurm.conf"),
        "PENSTOCK_AGENT__STATE_DIR": str(tmp_path / "own"),
    }


def test_what_is_kept_holds_until_something_changes(environ, tmp_path):
    settings = {"own": str(tmp_path / "own"), "socket": "s"}
    assert known_settings(environ) is None
    keep_settings(environ, settings)
    assert known_settings(environ) == settings
    for more in ({"PENSTOCK_AGENT__SERVE": "all"}, {"PENSTOCK_CONFIG": "/x"}, {"SLURM_CONF": "/y"}):
        assert known_settings({**environ, **more}) is None
    file = tmp_path / ".config" / "penstock" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("agent: {}\n")
    assert known_settings(environ) is None
    keep_settings(environ, settings)
    assert known_settings(environ) == settings
    (tmp_path / "own").chmod(0o777)
    assert known_settings(environ) is None


def test_what_is_damaged_is_not_known(environ, tmp_path):
    keep_settings(environ, {"own": str(tmp_path / "own")})
    (kept,) = (tmp_path / ".local" / "state" / "penstock").iterdir()
    for text in ("", "[]", '{"from": 1}', '{"settings": {"own": 3}}'):
        kept.write_text(text)
        assert known_settings(environ) is None


def test_the_sites_file_is_that_of_the_configuration():
    assert str(SITE) == SITE_FILE


def test_the_second_time_it_is_short_and_all_is_as_before(environ, tmp_path):
    program = tmp_path / "sbatch"
    program.write_text('#!/bin/sh\necho once >>"$HOME/calls"\necho "Submitted batch job $(wc -l <"$HOME/calls")"\n')
    program.chmod(0o755)
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH -J align\n")
    loads = """import sys; from penstock.__main__ import main
try: main()
finally: print('click' in sys.modules, file=sys.stderr)"""
    said = []
    for _ in range(2):
        words = [sys.executable, "-c", loads, "sbatch", "a.sh"]
        done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        said.append((done.returncode, done.stdout, done.stderr))
    # The short one ends at once, and loads less.
    assert said == [(0, "Submitted batch job 1\n", "True\n"), (0, "Submitted batch job 2\n", "")]
    known = [SubmittedJobs(tmp_path / "own", "here").get(job) for job in (1, 2)]
    assert [job and (job.name, job.stage, dict(job.order)) for job in known] == [
        ("align", "align", {"words": ["a.sh"], "workdir": str(tmp_path), "script": None})
    ] * 2
    deadline = time.monotonic() + 60
    while True:
        words = [*COMMAND, "audit", "--json"]
        audited = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
        records = [record for record in json.loads(audited)["records"] if record["verb"] == "sbatch"]
        if len(records) == 2:
            break
        assert time.monotonic() < deadline, audited
        time.sleep(0.2)
    assert {(record["code"], record["subject"]) for record in records} == {("handed-on", "align")}
    assert (tmp_path / "calls").read_text() == "once\n" * 2
