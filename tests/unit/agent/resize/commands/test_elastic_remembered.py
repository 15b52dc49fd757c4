"""What a user's elastic jobs are called."""

from __future__ import annotations

import time

from penstock.config import config_of
from penstock.resize.commands.remembered import remembered_elastic
from penstock.sbatch.remembered import Remembered


def test_each_keeps_its_name_in_the_users_own_folder(tmp_path):
    config = config_of({"agent": {"state_dir": str(tmp_path)}})
    assert remembered_elastic(config).get(38) is None
    remembered_elastic(config).add(Remembered(38, "survey", "survey", time.time()))
    found = remembered_elastic(config).get(38)
    assert found is not None and found.name == "survey"
    assert [path.name for path in (tmp_path / "elastic").rglob("38.json")] == ["38.json"]
