"""Users of a site whose agent serves everybody: its state is not theirs, and theirs is not in its folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from factories import hand

from penstock.config import Config, config_of
from penstock.errors import NotPermitted, StateRefused, StoreError
from penstock.state.ownership import is_readable, ledger_path, own_folder
from penstock.state.store import Store
from penstock_lab.mock.backend import virtual_cluster
from penstock_planning.hold.ledger import Ledger, open_ledger
from penstock_planning.hold.requests import load_key
from penstock_planning.hold.reservations import Reservations

SERVICE, ALICE = 65533, 65534
_RUN = """
import json, os, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
from click.testing import CliRunner
from penstock.cli import cli
from penstock.errors import PenstockError
told = []
for words in json.loads(sys.argv[2]):
    done = CliRunner().invoke(cli, words)
    known = isinstance(done.exception, PenstockError)
    code = done.exception.exit_code if known else done.exit_code
    ended = done.exception is None or isinstance(done.exception, SystemExit)
    said = str(done.exception) if known else "" if ended else repr(done.exception)
    told.append([code, done.output, said])
print(json.dumps(told))
"""


class Site:
    """`state` belongs to the service user, who has a state file there, and `home` to Alice."""

    def __init__(self, folder: Path, mode: int) -> None:
        folder.chmod(0o755)
        self.folder, self.state, self.home = folder, folder / "state", folder / "home"
        self.state.mkdir()
        Store(self.state / "penstock.db").close()
        self.home.mkdir()
        for path, uid in ((self.state, SERVICE), (self.state / "penstock.db", SERVICE), (self.home, ALICE)):
            os.chown(path, uid, uid)
        self.state.chmod(mode)
        self.file = folder / "penstock.yaml"
        self.own = self.home / ".local" / "state" / "penstock"
        agent = f"{{serve: all, state_dir: {self.state}, socket: {folder}/agent.sock}}"
        self.file.write_text(f"agent: {agent}\nslurm: {{backend: mock, mock_socket: {folder}/none.sock}}\n")

    def run(self, uid: int, *commands: str) -> list[tuple[int, str, str]]:
        """Exit code, output and error of each command."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PENSTOCK_"))}
        environ |= {"HOME": str(self.home), "PENSTOCK_CONFIG": str(self.file)}
        words = [sys.executable, "-c", _RUN, str(uid), json.dumps([command.split() for command in commands])]
        done = subprocess.run(words, env=environ, cwd=self.home, capture_output=True, text=True, timeout=120)
        if uid and "ModuleNotFoundError" in done.stderr:
            pytest.skip("other users cannot read this program")
        assert done.returncode == 0, done.stderr
        return [(code, output, said) for code, output, said in json.loads(done.stdout)]

    def left(self) -> set[str]:
        return {path.name for path in self.state.iterdir()} - {"penstock.db-wal", "penstock.db-shm"}


@pytest.fixture(params=[0o700, 0o711], ids=oct)
def site(request):
    if os.geteuid() != 0:
        pytest.skip("only root can make folders of others")
    folder = Path(tempfile.mkdtemp(prefix="penstock-site-"))  # pytest's own are closed to others
    yield Site(folder, request.param)
    shutil.rmtree(folder)


def test_what_is_a_users_own_is_in_a_folder_of_the_users(site):
    budget, ledger, holds, ticked, bags, pools, checked, vacuumed = site.run(
        ALICE,
        "ledger -A physics --budget 5 --json",
        "ledger --json",
        "hold list --json",
        "hold tick --json",
        "bags --json",
        "pool status",
        "db check --ledger --json",
        "db vacuum --ledger --json",
    )
    assert budget[0] == ledger[0] == 0, (budget, ledger)
    (account,) = json.loads(ledger[1])["accounts"]
    assert (account["name"], account["budget"]) == ("physics", 5)
    assert (site.own / "ledger.db").stat().st_uid == ALICE
    assert (site.own / "ledger.db").stat().st_mode & 0o777 == 0o600
    assert holds[0] == bags[0] == 0, (holds, bags)
    assert json.loads(holds[1]) == {"format": 1, "holds": []}
    assert json.loads(ticked[1]) == {"format": 1, "holds": [], "changes": []}
    assert json.loads(bags[1]) == {"format": 1, "bags": []}
    assert f"there is no pool 'main' in {site.own}/pools" in pools[2]
    assert checked[0] == vacuumed[0] == 0, (checked, vacuumed)
    assert json.loads(vacuumed[1])["path"] == str(site.own / "ledger.db")
    assert site.left() == {"penstock.db"}


def test_the_agents_own_state_is_said_to_be_anothers(site):
    db = f"{site.state}/penstock.db cannot be read: it is the state of user {SERVICE}, not of "
    (copied := site.home / "there.db").write_text("")
    for code, output, said in site.run(
        ALICE, "db check", "db vacuum", "db backup x.db", f"db backup {copied} --force", "report", "message list"
    ):
        assert (code, output) == (4, ""), said
        assert said.startswith(db)
    (survey, outlook) = site.run(ALICE, "waits", "waits -N 2 -t 30m")
    assert survey == outlook
    assert survey[0] == 4
    assert survey[2].startswith(f"no agent answers, and {db}")
    assert copied.read_text() == ""
    assert [path.name for path in site.home.iterdir()] == ["there.db"]


def test_to_look_makes_no_ledger(site):
    for uid in (ALICE, 0):
        ledger, holds, ticked = site.run(uid, "ledger --json", "hold list --json", "hold tick --json")
        assert json.loads(ledger[1]) == {"format": 1, "accounts": [], "entries": []}
        assert json.loads(holds[1]) == {"format": 1, "holds": []}
        assert json.loads(ticked[1]) == {"format": 1, "holds": [], "changes": []}
    assert site.left() == {"penstock.db"}
    assert not site.own.exists()


def test_who_may_not_sign_requests_can_hold_slots_otherwise(tmp_path, monkeypatch):
    key = tmp_path / "request.key"
    key.write_text("k" * 32)
    key.chmod(0o640)
    asked = {"requests": str(tmp_path), "request_key": str(key), "ledger": str(tmp_path / "ledger.db")}
    config = config_of({"agent": {"state_dir": str(tmp_path)}, "provision": asked})

    def may_request() -> bool:
        cluster = virtual_cluster()
        with closing(Reservations(config, cluster, hand(cluster))) as reservations:
            return reservations.may_request

    def not_yours(_path: Path) -> bytes:
        raise PermissionError

    assert may_request()
    monkeypatch.setattr(Path, "read_bytes", not_yours)
    assert not may_request()
    with pytest.raises(NotPermitted, match=r"`provision\.request_key`: you may not read "):
        load_key(key)


def test_root_looks_at_anothers_ledger_and_does_not_write_there(site):
    refused = f"belongs to user {SERVICE}, not to root: do it as that user"
    before = site.run(0, "ledger -A physics --budget 5", "hold cancel 1")
    assert [(code, said.endswith(refused)) for code, _out, said in before] == [(4, True)] * 2
    assert site.left() == {"penstock.db"}

    site.run(SERVICE, "ledger -A physics --budget 7")
    assert {"ledger.db"} <= site.left() <= {"ledger.db", "ledger.db-wal", "ledger.db-shm", "penstock.db"}
    looked, *acts = site.run(0, "ledger --json", "ledger -A physics --budget 5", "hold list", "hold cancel 1")
    assert json.loads(looked[1])["accounts"][0]["budget"] == 7
    assert [(code, said.endswith(refused)) for code, _out, said in acts] == [(4, True)] * 3
    assert {path.stat().st_uid for path in site.state.glob("ledger.db*")} == {SERVICE}
    (still,) = site.run(SERVICE, "ledger -A physics --budget 8 --json")
    assert json.loads(still[1])["accounts"][0]["budget"] == 8


def test_the_doctor_knows_a_user_of_a_sites_agent(site):
    ((code, output, said),) = site.run(ALICE, "doctor --json")
    assert (code, said) == (1, "")
    found = json.loads(output)
    checks = {check["id"]: check for check in found["checks"]}
    assert checks["agent"]["seen"].startswith("the site's agent, which keeps state")
    assert checks["state"]["level"] == checks["state-folder"]["level"] == "ok"
    assert str(site.home) in checks["state-folder"]["seen"]
    assert str(site.home) in checks["pool-folder"]["seen"]


def test_keys_that_name_folders_come_first(site):
    with site.file.open("a") as file:
        file.write(f"provision: {{ledger: {site.state}/ledger.db}}\npool: {{folder: {site.home}/pools}}\n")
    ledger, budget, pools = site.run(ALICE, "ledger", "ledger -A a --budget 1", "pool status")
    if site.state.stat().st_mode & 0o001:
        assert ledger[0] == 0, "who may look there sees that there is none"
    else:
        assert (ledger[0], f"{site.state}/ledger.db cannot be read: it is the state of user" in ledger[2]) == (4, True)
    assert (budget[0], f"{site.state}/ledger.db: it is the state of user {SERVICE}" in budget[2]) == (4, True)
    assert f"in {site.home}/pools" in pools[2]


# -- one's own ---------------------------------------------------------------------------------------------------------


def at(folder: Path, **provision: str) -> Config:
    return config_of({"agent": {"state_dir": str(folder)}, "provision": provision})


def test_a_state_folder_of_ones_own_is_where_all_is_there_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    mine = tmp_path / "deep" / "state"
    assert own_folder(at(mine)) == mine, "it would be made"
    mine.mkdir(parents=True)
    assert own_folder(at(mine)) == mine
    monkeypatch.setattr(os, "geteuid", lambda: ALICE)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    for others in (mine, mine / "not" / "there", mine / "file"):
        (mine / "file").touch()
        assert own_folder(at(others)) == tmp_path / "xdg" / "penstock"


def test_ones_own_file_that_cannot_be_read_is_no_matter_of_rights(tmp_path, monkeypatch):
    (tmp_path / "it").touch()
    assert is_readable(tmp_path / "it")
    assert not is_readable(tmp_path / "other")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(StoreError, match="it cannot be read: Permission denied"):
        is_readable(tmp_path / "it")


def test_a_copy_of_a_ledger_has_what_it_holds_and_is_none_of_another_version(tmp_path):
    config = at(tmp_path / "state")
    assert Ledger.copy_of(ledger_path(config)).accounts() == []
    assert not (tmp_path / "state").exists()
    kept = open_ledger(config)
    kept.set_budget("a", 3.0)
    copy = Ledger.copy_of(ledger_path(config))
    copy.set_budget("b", 1.0)
    assert [(a.name, a.budget) for a in copy.accounts()] == [("a", 3.0), ("b", 1.0)]
    assert [a.name for a in kept.accounts()] == ["a"], "what is done to the copy is done to nothing else"
    kept._db.execute("PRAGMA user_version=2")
    with pytest.raises(StateRefused, match=r"older Penstock .* install Penstock of commit fd8d5927 .* first"):
        Ledger.copy_of(ledger_path(config))
    assert kept._db.execute("PRAGMA user_version").fetchone()[0] == 2
    kept._db.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="is of version 99"):
        Ledger.copy_of(ledger_path(config))
    kept.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_makes_no_ledger_beside_the_state_of_another(tmp_path):
    """Even where its folder is named by a key of its own."""
    config = at(tmp_path / "state", ledger=str(tmp_path / "books" / "ledger.db"))
    (tmp_path / "books").mkdir()
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", SERVICE, SERVICE)
    with pytest.raises(NotPermitted):
        open_ledger(config)
    os.chown(tmp_path / "state", 0, 0)
    open_ledger(config).close()
