"""/metrics for everybody on the host, who must not be able to take the agent's threads."""

from __future__ import annotations

import select
import socket
import threading
import urllib.request

import pytest

from browser import poll
from penstock.core.metrics import Metrics
from penstock.host import scrape


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setattr(scrape.Scraped, "patience", 3.0)
    server = Metrics().serve("127.0.0.1:0")
    yield server
    server.shutdown()
    server.server_close()


def test_silent_connections_take_few_threads_and_are_ended(served, capfd):
    threads = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", served.server_port), 60) for _ in range(40)]
    try:
        closed = len(idle) - served.most
        poll(lambda: len(select.select(idle, [], [], 0)[0]) >= closed, "all but a few to be turned away")
        assert threading.active_count() <= threads + 2 * served.most
        poll(lambda: len(served.gate) == 0, "those who say nothing to be sent away")
    finally:
        for one in idle:
            one.close()
    with urllib.request.urlopen(f"http://127.0.0.1:{served.server_port}/metrics", timeout=60) as answer:
        assert b"penstock_build_info" in answer.read()
    assert capfd.readouterr() == ("", "")


def test_no_thread_to_be_had_is_one_connection_less_and_no_more(served, monkeypatch):
    def none_left(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        for _ in range(2 * served.most):
            with socket.create_connection(("127.0.0.1", served.server_port), 60) as turned_away:
                assert turned_away.recv(1) == b""
    with urllib.request.urlopen(f"http://127.0.0.1:{served.server_port}/", timeout=60) as answer:
        assert answer.status == 200
