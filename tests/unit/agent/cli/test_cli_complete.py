"""Completion in the shell, as click's own classes for bash and zsh ask for it."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, ZshComplete

from penstock.cli import cli

ANSWER = {
    "workflows": [
        {"id": 1, "name": "mosaic", "stages": [{"name": "merge", "phase": "complete", "job": 11}]},
        {
            "id": 2,
            "name": "mosaic",
            "stages": [
                {"name": "project", "phase": "running", "job": 21},
                {"name": "plot", "phase": "waiting", "job": None},
            ],
        },
        {"id": 12, "name": "other", "stages": []},
    ],
    "malleable": [{"job": 210}],
}


def serve(path: Path, reply: bytes | None) -> socket.socket:
    """An agent that gives this reply to every request; None: none at all."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def answer() -> None:
        kept = []
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            kept.append(connection)
            connection.recv(4096)
            if reply is not None:
                connection.sendall(reply)

    threading.Thread(target=answer, daemon=True).start()
    return server


@pytest.fixture
def door(tmp_path, monkeypatch):
    path = tmp_path / "agent.sock"
    monkeypatch.setenv("PENSTOCK_AGENT__SOCKET", str(path))
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(tmp_path))
    return path


@pytest.fixture
def answering(door):
    with serve(door, json.dumps({"ok": True, "result": ANSWER}).encode() + b"\n"):
        yield


def offered(*words: str, kind: type[BashComplete] = BashComplete) -> list[str]:
    """What completes the last word."""
    completion = kind(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize("command", ["status", "cancel", "retry", "logs"])
@pytest.mark.parametrize("kind", [BashComplete, ZshComplete])
def test_workflows_are_offered_by_number_and_name(answering, command, kind):
    assert offered(command, "", kind=kind) == ["1", "mosaic", "2", "12", "other"]
    assert offered(command, "1") == ["1", "12"]
    assert offered(command, "w") == ["w1", "w2", "w12"]
    assert offered(command, "mo") == ["mosaic"]


@pytest.mark.parametrize("which", ["2", "w2", "mosaic"])
def test_stages_are_those_of_the_workflow_before_them(answering, which):
    assert offered("logs", which, "p") == ["project", "plot"]
    assert offered("retry", "1", "") == ["merge"]
    assert offered("logs", "nobody", "") == []


def test_jobs_and_subjects(answering):
    assert offered("audit", "--job", "2") == ["21", "210"]
    assert offered("explain", "w1") == ["w1", "w12"]
    assert offered("explain", "mo") == ["mosaic"]
    assert offered("explain", "1") == ["11"]


def test_commands_are_offered_with_what_they_do_and_options_too(door):
    completion = ZshComplete(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    (item,) = completion.get_completions([], "sub")
    assert (item.value, item.help) == ("submit", "Hand a workflow file to the agent: YAML, or WfFormat 1.5 or 1.6.")
    assert offered("--v") == ["--version"]
    assert "--json" in offered("cancel", "--")


@pytest.mark.parametrize("reply", [b"", b"no JSON\n", b'{"ok": false, "error": "NotPermitted", "message": "no"}\n'])
def test_where_no_agent_answers_nothing_is_offered_and_nothing_said(door, capfd, reply):
    assert offered("cancel", "") == []
    with serve(door, reply):
        assert offered("cancel", "") == []
    assert capfd.readouterr() == ("", "")


def test_an_agent_that_does_not_answer_is_not_waited_for(door, capfd):
    with serve(door, None):
        begin = time.monotonic()
        assert offered("status", "") == []
        assert time.monotonic() - begin < 5.0
    assert capfd.readouterr() == ("", "")


def test_a_wrong_configuration_is_no_message_in_the_middle_of_a_line(door, monkeypatch, capfd):
    monkeypatch.setenv("PENSTOCK_AGENT__INTERVAL", "soon")
    assert offered("status", "") == []
    assert capfd.readouterr() == ("", "")
