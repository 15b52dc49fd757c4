"""The epilog removes what this job's user has left of this job, and ends with 0 whatever happens."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock_pool.allocation import scratch_prefix
from places import PROJECT

SCRIPT = PROJECT / "plugins" / "slurm" / "penstock-cleanup.sh"
NOBODY, SOMEBODY = 65534, 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for several users")


@pytest.fixture
def place():
    """A folder as /tmp is, with the script that looks there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # which others can reach, unlike pytest's
        yield furnished(Path(folder))


def furnished(place: Path) -> Path:
    place.chmod(0o1777)
    text = SCRIPT.read_text()
    assert 'FOLDERS="/tmp"' in text
    script = place / "cleanup"
    script.write_text(text.replace('FOLDERS="/tmp"', f'FOLDERS="/nowhere {place}"'))
    script.chmod(0o755)
    return place


def left_behind(place: Path, job: str = "77", owner: int | None = None) -> Path:
    """What a member leaves that was killed outright."""
    begin = [sys.executable, "-c", "import os; print(os.getpid())"]
    dead = subprocess.run(begin, capture_output=True, text=True, check=True).stdout.strip()
    name = scratch_prefix(job).replace(f"-{os.getpid()}-", f"-{dead}-")
    folder = Path(tempfile.mkdtemp(prefix=name, dir=place))
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_text("x")
    if owner is not None:
        for path in (folder, folder / "inside", folder / "inside" / "file"):
            os.chown(path, owner, owner)
    return folder


def clean(place: Path, job: str = "77", user: int | None = None, **more: str) -> None:
    uid = str(os.geteuid() if user is None else user)
    environment = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": uid, "SLURM_JOB_GID": uid, **more}
    done = subprocess.run([place / "cleanup"], env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_member_names_its_folder_so(monkeypatch):
    pytest.importorskip("distributed")
    from penstock_pool import worker
    from penstock_pool.folder import PoolFolder
    from penstock_pool.model import Capacity

    class Asked(Exception):
        pass

    def folder(prefix: str, **_more: object) -> None:
        raise Asked(prefix)

    monkeypatch.setattr(worker.tempfile, "TemporaryDirectory", folder)
    terms = worker.Terms(Capacity(1.0, 1), "77", None, None, 1.0, 1)

    with pytest.raises(Asked, match=f"^penstock-pool-77-{os.getpid()}-$"):
        asyncio.run(worker.work(PoolFolder("main", Path("/nowhere")), terms))


def test_what_this_job_has_left_goes(place):
    mine, other_job, longer = left_behind(place), left_behind(place, "78"), left_behind(place, "777")
    clean(place)
    assert not mine.exists()
    assert other_job.exists() and longer.exists()


def test_the_folder_of_a_living_member_stays(place):
    alive = Path(tempfile.mkdtemp(prefix=scratch_prefix("77"), dir=place))
    clean(place)
    assert alive.exists()


@needs_root
def test_only_what_belongs_to_the_user(place):
    mine, theirs = left_behind(place, owner=NOBODY), left_behind(place, owner=SOMEBODY)
    roots, elsewhere = left_behind(place), left_behind(place, "1", owner=NOBODY)
    link = place / "penstock-pool-77-1-link"
    link.symlink_to(elsewhere)
    os.lchown(link, NOBODY, NOBODY)
    plain = place / "penstock-pool-77-1-file"
    plain.touch()
    os.chown(plain, NOBODY, NOBODY)
    odd = place / "penstock-pool-77-1 -rf; * $(id) "
    odd.mkdir()
    os.chown(odd, NOBODY, NOBODY)
    clean(place, user=NOBODY)
    assert not mine.exists() and not odd.exists()
    assert theirs.exists() and roots.exists() and elsewhere.exists() and plain.exists()
    assert link.is_symlink()


@needs_root
def test_it_has_no_more_rights_than_the_user(place):
    mine = left_behind(place, owner=NOBODY)
    kept = mine / "kept"
    kept.mkdir(mode=0o700)
    (kept / "file").touch()  # root's, in the user's folder
    clean(place, user=NOBODY)
    assert (kept / "file").exists() and not (mine / "inside").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "*"},
        {"SLURM_JOB_ID": "77/../78"},
        {"SLURM_JOB_UID": ""},
        {"SLURM_JOB_UID": "-1"},
        {"SLURM_JOB_UID": "99999999999999999999"},
        {"SLURM_JOB_UID": "$(id -u)"},
    ],
)
def test_without_sound_numbers_it_does_nothing(place, more):
    mine = left_behind(place)
    clean(place, **more)
    assert mine.exists()


@needs_root
def test_a_group_that_is_not_told(place):
    mine = left_behind(place, owner=NOBODY)
    clean(place, user=NOBODY, SLURM_JOB_GID="")
    assert not mine.exists()
