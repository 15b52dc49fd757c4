"""The file of a history: pseudonyms, what is refused, and that nothing half-written stays."""

from __future__ import annotations

import os
import stat
import zipfile

import pytest
from dumps import dump, imported, record

from penstock.errors import UserError
from penstock_lab.history.history import History
from penstock_lab.history.importing import Options, import_history
from penstock_lab.history.store import COLUMNS, Spill
from penstock_lab.papers.traces import traces

SECRET = {"User": "alice-the-user", "Account": "the-account", "Partition": "a-partition", "QOS": "some-qos"}
TEXT = dump(
    record(JobName="secret-name", Cluster="secret-cluster", **SECRET),
    record(JobIDRaw=8, User="", JobName="secret-name", Cluster="secret-cluster"),
    record(JobIDRaw=9, JobName="other-name", Cluster="secret-cluster"),
    record(JobIDRaw="secret-bad", Cluster="secret-cluster"),
)


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_anonymous_history_has_no_name_in_it(tmp_path):
    folder = tmp_path / "secret-folder"
    folder.mkdir()
    found, _ = imported(folder, TEXT, key=b"k" * 32, skip_bad=True)
    content = b"".join(members(found.path).values())
    for name in (*SECRET.values(), "secret", "other-name", "alice", "chem", "batch", "normal"):
        assert name.encode() not in content, name
    assert found.names("user")[1] == "" and found.names("user")[0].startswith("user-")
    assert found.column("name").tolist()[0] == found.column("name").tolist()[1] != found.column("name").tolist()[2]
    assert found.column("id").tolist() == [0, 1, 2]
    assert stat.S_IMODE(found.path.stat().st_mode) & 0o400


def test_pseudonyms_are_the_same_under_the_same_key_alone(tmp_path):
    names = []
    for key in (b"k" * 32, b"k" * 32, b"x" * 32):
        names.append(imported(tmp_path, TEXT, key=key, skip_bad=True)[0].names("user"))
    assert names[0] == names[1] and not set(names[0]) & set(names[2]) - {""}


def test_names_are_kept_unless_that_is_asked_for_but_never_those_of_jobs(tmp_path):
    found, _ = imported(tmp_path, TEXT, skip_bad=True)
    assert found.names("user") == ["alice-the-user", "", "alice"]
    assert b"secret-name" not in b"".join(members(found.path).values())
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600


def test_the_same_dump_gives_the_same_bytes_but_for_when(tmp_path):
    first = members(imported(tmp_path, TEXT, key=b"k" * 32, skip_bad=True)[0].path)
    second = members(imported(tmp_path, TEXT, key=b"k" * 32, skip_bad=True)[0].path)
    assert list(first) == ["history.json", *(f"columns/{name}.npy" for name in COLUMNS)]
    assert all(first[name] == second[name] for name in first if name != "history.json")


def test_what_fails_leaves_what_was_there(tmp_path, monkeypatch):
    found, _ = imported(tmp_path, TEXT, skip_bad=True)
    before = found.path.read_bytes()
    with pytest.raises(UserError, match="line 5"):
        imported(tmp_path, TEXT)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Spill, "_distinct", interrupted)
    with pytest.raises(KeyboardInterrupt):
        imported(tmp_path, TEXT, skip_bad=True)
    assert found.path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.txt", "site.history"]


def test_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "jobs.txt").write_text(TEXT)
    with pytest.raises(UserError, match="is not a folder"):
        import_history([tmp_path / "jobs.txt"], tmp_path / "no" / "site.history", Options())


def test_what_is_no_history_is_refused(tmp_path):
    other = tmp_path / "other"
    with pytest.raises(UserError, match="is not there; `penstock history import SOURCE --to FILE` makes one"):
        History(other)
    other.write_text(TEXT)
    with pytest.raises(UserError, match=r"is no history; `penstock history import .*other --to FILE` makes one"):
        History(other)
    for text, said in (("{}", "is no history"), ('{"form": "penstock history", "version": 9, "jobs": 1}', "version 9")):
        with zipfile.ZipFile(other, "w") as archive:
            archive.writestr("history.json", text)
        with pytest.raises(UserError, match=said):
            History(other)


def test_a_damaged_column_is_an_error_that_names_it(tmp_path):
    found, _ = imported(tmp_path, TEXT, skip_bad=True)
    content = bytearray(found.path.read_bytes())
    with zipfile.ZipFile(found.path) as archive:
        at = archive.getinfo("columns/submit.npy").header_offset + 90
    content[at] ^= 0xFF
    found.path.write_bytes(content)
    with pytest.raises(UserError, match=r"column submit is damaged"):
        History(found.path).column("submit")


def test_a_log_of_the_archive_is_what_its_records_say(tmp_path):
    line = "{} {} 60 {} 4 -1 1024 4 600 -1 {} 3 1 7 2 1 -1 -1\n"
    lines = [line.format(1, 0, 300, 1), line.format(2, 5, 0, 5), line.format(3, 9, 100, 0).replace(" 60 ", " -1 ")]
    source = tmp_path / "log.swf"
    source.write_text("; UnixStartTime: 1000\n; MaxProcs: 128\n" + "".join(lines))
    report = import_history([source], tmp_path / "log.history", Options())
    found = History(tmp_path / "log.history")
    assert found.column("submit").tolist() == [1000, 1005]
    assert found.column("start").tolist() == [60, -1] and found.column("end").tolist() == [360, 60]
    assert found.about["machine"] == {"cpus": 128, "nodes": 128, "cpus_per_node": 1}
    assert report.left["no wait"].first == f"{source} line 5"


def test_a_log_with_fractions_and_little_of_a_header(tmp_path):
    source = tmp_path / "log.swf"
    source.write_text("; MaxNodes: 8\n1 0.0 0.5 88.5 1 -1 -1 1 149.0 -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    report = import_history([source], tmp_path / "b.history", Options())
    small = History(tmp_path / "b.history")
    assert small.about["machine"]["cpus"] == 8 and small.column("end").tolist() == [89]
    assert report.notes == [f"{source} has no UnixStartTime: its times count from 1970"]


@pytest.mark.skipif("PENSTOCK_TRACES" not in os.environ, reason="PENSTOCK_TRACES names no folder with logs")
def test_the_logs_of_the_archive(tmp_path):
    for path in traces():
        report = import_history([path], tmp_path / "log.history", Options())
        found = History(tmp_path / "log.history")
        assert report.read == report.kept == found.jobs > 50_000
        assert found.path.stat().st_size < 20 * found.jobs
