"""What `penstock doctor` finds of messages to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import config_of
from penstock.core.findings import Finding, Level, Trouble
from penstock.errors import ConfigError, PenstockError, UserError
from penstock_messages import checks
from penstock_messages.checks import message_checks, ways_of


def within(call):
    """As doctor makes its calls; it waits for them, as nothing hangs here."""
    try:
        return call()
    except PenstockError as error:
        return Trouble(str(error))


def found(within=within, serve="own", **messages) -> Finding:
    (one,) = message_checks(config_of({"agent": {"serve": serve}, "messages": messages}), within)
    assert one.check == "notify"
    return one


def secret(path: Path, mode: int) -> str:
    path.write_text("http://127.0.0.1:1/")
    path.chmod(mode)
    return str(path)


def test_the_ways_of_messages_are_looked_at_without_sending(tmp_path):
    def told(**messages):
        return ways_of(config_of({"messages": messages}))

    assert told() is None
    ways = told(
        webhook=secret(tmp_path / "url", 0o600), mail="sendmail", sendmail=["/bin/true"], command=["/bin/false"]
    )
    assert ways == "a webhook, mail by /bin/true, /bin/false"
    for wrong in ({"webhook": secret(tmp_path / "url", 0o644)}, {"command": ["/no/such"]}):
        with pytest.raises(UserError, match=r"chmod 600|cannot be run"):
            told(**wrong)


def test_what_is_configured_is_told_and_so_is_what_cannot_work(tmp_path):
    assert (found(command=["/bin/true"]).level, found(command=["/bin/true"]).seen) == (Level.OK, "/bin/true")
    nobody = found()
    assert nobody.level is Level.NO and "nobody is told when a stage fails" in nobody.seen
    broken = found(webhook=secret(tmp_path / "url", 0o644))
    assert broken.level is Level.NO and "chmod 600" in broken.seen and "penstock message test" in broken.change
    with pytest.raises(ConfigError, match="no channel 'nope'"):
        ways_of(config_of({"messages": {"channels": {"nope": {}}}}))
    assert "no channel 'nope'" in found(channels={"nope": {}}).seen


def test_the_secrets_of_a_sites_agent_are_not_its_users_to_read(monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "own_folder", lambda _config: tmp_path)
    sent = "the site's agent sends messages"
    assert found(serve="all", webhook="/no/such").seen == sent
    assert found(lambda _call: Trouble("no answer within 1 s"), serve="all", webhook="/no/such").seen == sent
    assert found(serve="all").level is Level.NO, "it sends none"
    assert "cannot be read" in found(serve="own", webhook="/no/such").seen
    monkeypatch.setattr(checks, "own_folder", lambda config: config.agent.state_dir)
    assert "cannot be read" in found(serve="all", webhook="/no/such").seen, "its own user can"
