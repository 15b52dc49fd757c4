"""Which folders of the caller's PATH a user of the cluster gets."""

import os
import tempfile
from pathlib import Path

import pytest

from penstock_lab.cluster import programs


@pytest.fixture
def place():
    """A folder that everybody can enter, as those of a test need not be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_what_a_user_cannot_enter_is_left_out(place, monkeypatch):
    for name, mode in (("open", 0o755), ("closed", 0o700), ("groups", 0o710)):
        (place / name / "bin").mkdir(parents=True)
        (place / name).chmod(mode)
    folders = [str(place / name / "bin") for name in ("open", "closed", "groups")] + [str(place / "missing")]
    monkeypatch.setattr(programs, "PATH", os.pathsep.join(folders))
    gid = (place / "groups").stat().st_gid

    def given(uid: int, gid: int) -> list[str]:
        return programs.path_for(uid, gid).split(os.pathsep)

    assert given(54321, 54321) == [folders[0], folders[3]]
    assert given(54321, gid) == [folders[0], folders[2], folders[3]]
    assert given(0, 0) == folders
