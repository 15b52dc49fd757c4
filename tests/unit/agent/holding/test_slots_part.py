"""What the part of held slots says to those who ask for no agent."""

from __future__ import annotations

import pytest

from penstock.config import config_of
from penstock.core.findings import Level, Trouble
from penstock.errors import PenstockError
from penstock.holding.part import SlotsPart


def within(call):
    try:
        return call()
    except PenstockError as error:
        return Trouble(str(error))


@pytest.mark.parametrize(
    ("set_", "key", "mode", "level"),
    [
        (False, None, None, Level.NO),
        (True, None, None, Level.NO),
        (True, b"0123456789abcdef", 0o604, Level.NO),
        (True, b"0123456789abcdef", 0o600, Level.OK),
    ],
)
def test_doctor_is_told_whether_requests_can_be_signed(tmp_path, set_, key, mode, level):
    path = tmp_path / "key"
    if key is not None:
        path.write_bytes(key)
        path.chmod(mode)
    config = config_of({"provision": {"requests": str(tmp_path), "request_key": str(path)} if set_ else {}})
    (finding,) = SlotsPart.checks(config, within)
    assert (finding.check, finding.level) == ("request-key", level)
    assert bool(finding.change) is (level is Level.NO)
