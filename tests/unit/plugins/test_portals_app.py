"""The app for Open OnDemand over a running agent, the widget and form.js, and the agent's odd answers."""

from __future__ import annotations

import ast
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser import CHECKS, browser
from penstock_portals.asking import AgentRefusal, AgentSilent, ask, find_socket
from penstock_portals.page import application_at
from portal import PORTALS, Portal

WIDGET = (PORTALS / "ondemand" / "dashboard" / "_penstock_waits.html.erb").read_text()
FORM = (PORTALS / "ondemand" / "form.js").read_text()
FIELDS = """
<label for="batch_connect_session_context_auto_queues">Queue</label>
<select id="batch_connect_session_context_auto_queues"><option>main</option><option>gone</option></select>
<label for="batch_connect_session_context_bc_num_hours">Hours</label>
<input id="batch_connect_session_context_bc_num_hours" value="1">
"""


def rendered(erb: str) -> str:
    """What the dashboard makes of it: its comments are left out, and its script stands in a script tag."""
    text = re.sub(r"<%#.*?%>", "", erb)
    text = text.replace("<%= javascript_tag nonce: true do %>", "<script>").replace("<% end %>", "</script>")
    assert "<%" not in text
    return text


def page(body: str) -> str:
    return f"<!DOCTYPE html><html lang=en><head><title>t</title></head><body><h1>t</h1>{body}</body></html>"


@pytest.fixture
def portal(agent, tmp_path) -> Iterator[Portal]:
    pages = {"dashboard.html": page(rendered(WIDGET)), "form.html": page(f"{FIELDS}<script>{FORM}</script>")}
    it = Portal(tmp_path, {"PENSTOCK_AGENT__SOCKET": str(agent.socket)}, pages)
    agent.until(lambda: it.json("/api/partitions")[1].get("partitions"), "the agent's first look")
    yield it
    it.down()


@pytest.fixture
def alone(tmp_path) -> Iterator[Portal]:
    it = Portal(tmp_path, {"PENSTOCK_AGENT__SOCKET": str(tmp_path / "none.sock")})
    yield it
    it.down()


def test_a_form_is_told_what_to_expect(portal):
    status, told = portal.json("/api/waits?nodes=2&time=30m")
    assert status == 200 and told["text"] == "starts at once" and told["sooner"] == []
    assert (told["partition"], told["nodes"], told["time_limit"]) == ("main", 2, 1800)
    assert "less than a minute ago" in told["look"] and told["age"] < 60
    status, told = portal.json("/api/partitions")
    assert [(one["partition"], one["limit"], one["text"]) for one in told["partitions"]] == [
        ("main", "1 h", "starts at once")
    ]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("/api/waits?nodes=many", "nodes: must be a whole number of 1 or more, such as 2"),
        ("/api/waits?nodes=99", "nodes: partition main gives a job 4 at most, not 99"),
        ("/api/waits?partition=nowhere", "partition: there is no 'nowhere' (partitions: main)"),
        ("/api/waits?partition=%3Cb%3E", "there is no '<b>'"),
        ("/api/partitions?nodes=1", "this takes no fields; /api/waits does"),
        ("/?time=soon", "time: must be a time limit such as 30m, 4h"),
    ],
)
def test_a_bad_question_is_400_and_says_what_would_be_right(portal, where, said):
    status, headers, text = portal.get(where)
    assert status == 400
    if where.startswith("/api"):
        assert headers["Content-Type"].startswith("application/json") and said in json.loads(text)["error"]
    else:
        assert said in text


def test_only_what_is_there_and_only_to_look_at(portal):
    assert portal.get("/api/other")[0] == 404
    status, headers, _ = portal.get("/api/waits", method="POST")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    status, headers, text = portal.get("", method="HEAD")
    assert status == 200 and text == "" and int(headers["Content-Length"]) > 1000
    assert headers["Cache-Control"] == "no-store" and "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_page_has_a_table_by_size_and_limit_and_says_what_is_not_known(portal):
    status, _, text = portal.get()
    assert status == 200
    assert "Partition main: expected wait by nodes and time limit" in text
    assert re.findall(r'<th scope="row">(\d+)</th>', text) == ["1", "2", "4"]
    assert re.findall(r'<th scope="col">([^<]+)</th>', text) == ["Nodes", "1 h", "4 h", "12 h", "24 h"]
    assert "By time of day" in text and "Not known yet:" in text
    _, _, text = portal.get("/?partition=%3Cscript%3Ealert(1)%3C/script%3E&nodes=%221%22")
    assert "<script" not in text and "nodes: must be a whole number" in text
    _, _, text = portal.get("/?partition=%3Cscript%3E&nodes=1")
    assert "<script" not in text and "&lt;script&gt;" in text


def test_without_an_agent_it_says_so_and_not_more(alone):
    status, told = alone.json("/api/waits?nodes=1")
    assert status == 503 and "Expected waits are not known now: no agent answers at" in told["error"]
    status, _, text = alone.get()
    assert status == 503 and 'role="alert"' in text and "no agent answers" in text


def test_in_a_browser_page_widget_and_form_say_it(portal):
    with browser() as tab:
        tab.open(portal.url)
        tab.js(CHECKS)
        assert tab.js("checks.doubledIds()") == [] and tab.js("checks.headingsInOrder()")
        assert tab.js("checks.poorContrast()") == []
        assert tab.js("getComputedStyle(document.querySelector('table')).borderCollapse") == "collapse", "its own style"
        tab.js("document.querySelector('[name=nodes]').value = '2'")
        tab.js("document.querySelector('form').requestSubmit()")
        tab.until("document.body?.innerText.includes('2 nodes for 1 h in main: starts at once')")
        assert all(one.startswith((portal.host, "data:")) for one in tab.requests()), tab.requests()

        tab.open(f"{portal.host}/dashboard.html")
        tab.until("document.body?.innerText.includes('main, 1 node for 1 h: starts at once')")
        assert tab.js("document.getElementById('penstock-waits-look').getAttribute('role')") == "status"

        tab.open(f"{portal.host}/form.html")
        tab.js(CHECKS)
        tab.until("document.body?.innerText.includes('Expected wait: starts at once.')")
        tab.js("checks.set('batch_connect_session_context_auto_queues', 'gone', 'change')")
        tab.until("document.body?.innerText.includes(\"partition: there is no 'gone'\")")


@given(
    st.dictionaries(
        st.sampled_from(["QUERY_STRING", "PATH_INFO", "REQUEST_METHOD", "SCRIPT_NAME", "HTTP_HOST"]),
        st.text(max_size=30)
        | st.sampled_from(["GET", "/", "/api/waits", "/api/partitions", "nodes=1&time=1h", "\xff"]),
    )
)
def test_whatever_is_asked_is_answered(environ):
    answers = []
    body = b"".join(application_at("/nowhere/agent.sock")(environ, lambda *told: answers.append(told)))
    ((status, headers),) = answers
    assert status[:3] in ("400", "404", "405", "503")
    assert int(dict(headers)["Content-Length"]) == len(body) or environ.get("REQUEST_METHOD") == "HEAD"


# -- the agent's socket ------------------------------------------------------------------------------------------------


@pytest.fixture
def door(tmp_path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "agent.sock"))
        listening.listen()
        yield listening


def answer(door: socket.socket, reply: bytes, last: float = 0.0) -> str:
    """Have the next who asks get this, and after `last` seconds the end; the path of the door."""

    def serve() -> None:
        connection, _ = door.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(reply)
            if last:
                connection.settimeout(last)
                try:
                    connection.recv(1)
                except OSError:
                    return

    threading.Thread(target=serve, daemon=True).start()
    return str(door.getsockname())


@pytest.mark.parametrize("reply", [b"", b"{", b"no\n", b"[1]\n", b'{"ok": true}\n', b'{"ok": true, "result": [1]}\n'])
def test_what_is_no_answer_is_none(door, reply):
    with pytest.raises(AgentSilent):
        ask(answer(door, reply), {"op": "expect"}, 5.0)


def test_a_refusal_has_its_reason(door):
    with pytest.raises(AgentRefusal, match="not yours") as refused:
        ask(answer(door, b'{"ok": false, "error": "NotPermitted", "message": "not yours"}\n'), {"op": "x"}, 5.0)
    assert refused.value.kind == "NotPermitted"


def test_an_agent_that_takes_too_long_is_waited_for_no_longer(door):
    begun = time.monotonic()
    with pytest.raises(AgentSilent):
        ask(answer(door, b'{"ok": tr', last=30.0), {"op": "expect"}, 0.2)
    assert time.monotonic() - begun < 20


def test_the_socket_is_the_named_one_or_ones_own_agents_or_the_sites(tmp_path):
    own = tmp_path / "penstock" / "agent.sock"
    assert find_socket({"PENSTOCK_AGENT__SOCKET": "/a/b", "HOME": "/h"}) == "/a/b"
    assert find_socket({"PENSTOCK_AGENT__STATE_DIR": "/a"}) == "/a/agent.sock"
    assert find_socket({"XDG_STATE_HOME": str(tmp_path)}) == "/run/penstock/agent.sock"
    own.parent.mkdir()
    own.touch()
    assert find_socket({"XDG_STATE_HOME": str(tmp_path)}) == str(own)


def test_the_app_is_standard_library_only_and_runs_with_python_3_9():
    files = [*(PORTALS / "penstock_portals").glob("*.py"), PORTALS / "ondemand" / "app" / "passenger_wsgi.py"]
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 9))
    words = f"import sys; sys.path.insert(0, {str(PORTALS)!r}); import penstock_portals.page, penstock_portals.shared"
    done = subprocess.run(["/usr/bin/python3", "-IS", "-c", words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_manifest_is_one():
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load(Path(PORTALS / "ondemand" / "app" / "manifest.yml").read_text())
    assert {"name", "description", "category", "icon"} <= manifest.keys()
