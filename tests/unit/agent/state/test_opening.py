"""The state file, opened by commands that only look."""

from __future__ import annotations

from contextlib import closing

import pytest

from penstock.config import config_of
from penstock.errors import StoreError
from penstock.state.opening import open_state
from penstock.state.store import Store


def test_it_is_there_to_be_looked_at_once_an_agent_has_run(tmp_path):
    config = config_of({"agent": {"state_dir": str(tmp_path)}})
    with pytest.raises(StoreError, match=r"there is no state file .*penstock\.db: no agent has run yet"):
        open_state(config)
    Store(tmp_path / "penstock.db").close()
    with closing(open_state(config)) as store:
        assert [*store.messages.latest(10)] == []
