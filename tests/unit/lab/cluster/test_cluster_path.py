"""Which folders of the caller's PATH a user of the cluster gets."""

import os

from penstock_lab.cluster import programs


def test_what_a_user_cannot_enter_is_left_out(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    for place in tmp_path.parents:
        if place.stat().st_uid == os.geteuid() and "pytest" in place.name:
            place.chmod(0o755)
    for name, mode in (("open", 0o755), ("closed", 0o700), ("groups", 0o710)):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name).chmod(mode)
    folders = [str(tmp_path / name / "bin") for name in ("open", "closed", "groups")] + [str(tmp_path / "missing")]
    monkeypatch.setattr(programs, "PATH", os.pathsep.join(folders))
    gid = (tmp_path / "groups").stat().st_gid

    def given(uid: int, gid: int) -> list[str]:
        return programs.path_for(uid, gid).split(os.pathsep)

    assert given(54321, 54321) == [folders[0], folders[3]]
    assert given(54321, gid) == [folders[0], folders[2], folders[3]]
    assert given(0, 0) == folders
