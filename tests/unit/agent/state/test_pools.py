"""Where pools are, for those who only name one: `plugins/pool/penstock_pool/folder.py` makes what is found here."""

from __future__ import annotations

import pytest

from penstock.config import config_of
from penstock.errors import AgentUnavailable, NotPermitted, StoreError, UserError
from penstock.state.pools import SchedulerAddress, pool_place, pool_places, pools_folder
from penstock_pool.folder import PoolFolder, pool_folder, pools


@pytest.fixture
def config(tmp_path):
    return config_of({"pool": {"folder": str(tmp_path / "pools")}})


@pytest.fixture
def made(config) -> PoolFolder:
    folder = pool_folder(config, "main")
    folder.path.mkdir(mode=0o700, parents=True)
    folder.key.write_text("a key")
    return folder


def test_a_place_is_the_folder_that_a_pool_has(config, made, tmp_path):
    assert pools_folder(config) == tmp_path / "pools"
    assert pool_place(config, "main").path == made.path
    assert [place.name for place in pool_places(config)] == [folder.name for folder in pools(config)] == ["main"]


def test_what_has_no_key_is_no_pool(config, made):
    made.key.unlink()
    assert [*pool_places(config)] == [*pools(config)] == []


@pytest.mark.parametrize("name", ["", ".", "a/b", "-x", "x" * 41])
def test_a_name_that_cannot_be_one(config, name):
    with pytest.raises(UserError, match="a name is 1 to 40 of"):
        pool_place(config, name)


def test_the_address_is_there_as_long_as_the_scheduler_is(config, made):
    place, address = pool_place(config, "main"), SchedulerAddress("tls://127.0.0.1:1", "here", 7, 0.5)
    assert place.address() is None
    made.publish(address)
    assert place.address() == address
    (made.path / "address.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        place.address()
    made.withdraw()
    assert place.address() is None


def test_a_pool_that_is_not_there_and_one_that_others_see(config, made):
    with pytest.raises(AgentUnavailable, match=r"no pool 'other' in .*; `penstock pool start --pool other` makes one"):
        pool_place(config, "other").address()
    made.path.chmod(0o755)
    with pytest.raises(NotPermitted, match="others can look into it"):
        pool_place(config, "main").address()
