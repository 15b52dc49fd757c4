"""The dashboard over HTTP: who gets in, how, and what they are told; with a feed that stands still."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from browser import poll
from dashboard_scene import NASTY, SLOTS, Scene
from penstock.errors import UserError
from penstock_dashboard import server as module
from penstock_dashboard.feed import Feed
from penstock_dashboard.server import Dashboard, listen_address

METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class Site:
    """A dashboard that is served, and a client of it with or without its cookie."""

    def __init__(self, **options):
        self.feed = Feed(Scene(time.time(), NASTY), slots=SLOTS)
        self.feed.look()
        self.server = Dashboard(("127.0.0.1", 0), self.feed.latest, **options)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.port = self.server.server_port
        self.cookie = f"{self.server.cookie}={self.server.session}"

    def ask(self, path, method="GET", cookie=True, **headers):
        """(status, headers, body) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {k.replace("_", "-"): v for k, v in headers.items()}
        if cookie:
            sent.setdefault("Cookie", self.cookie)
        try:
            connection.request(method, path, headers=sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def down(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site():
    it = Site()
    yield it
    it.down()


def test_the_address_lets_one_in_and_the_cookie_from_then_on(site):
    status, headers, body = site.ask(f"/?token={site.server.token}", cookie=False)
    assert status == 200
    assert b"<title>Penstock</title>" in body
    name, *rest = headers["Set-Cookie"].split("; ")
    assert sorted(rest) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert name == site.cookie
    assert site.server.token not in name
    for path in ("/", "/app.js", "/style.css", "/icon.svg", "/data.json"):
        assert site.ask(path, cookie=False, Cookie=f"other=1; {name}")[0] == 200


@pytest.mark.parametrize("path", ["/", "/data.json", "/app.js", "/nothing"])
@pytest.mark.parametrize(
    "headers", [{}, {"Cookie": "penstock-1=x"}, {"Cookie": "\x00=;;="}, {"Authorization": "Bearer x"}]
)
def test_without_it_nobody_is_told_anything(site, path, headers):
    status, answered, body = site.ask(path, cookie=False, **headers)
    assert status == 403
    assert b"penstock dashboard" in body
    assert "Set-Cookie" not in answered


@pytest.mark.parametrize("token", ["", "x", "%00", "é"])
def test_a_wrong_word_does_not_let_one_in(site, token):
    assert site.ask(f"/?token={token.encode().hex() if token == 'é' else token}", cookie=False)[0] == 403
    assert site.ask(f"/data.json?token={site.server.token}", cookie=False)[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "", "[::1]"]
)
def test_another_name_than_loopbacks_is_refused_whatever_else_is_right(site, host):
    status, _, body = site.ask("/data.json", Host=host)
    assert status == 421
    assert b"carol" not in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8787", "LOCALHOST:1", "127.0.0.1:65535"])
def test_the_port_may_be_that_of_a_tunnel(site, host):
    assert site.ask("/data.json", Host=host)[0] == 200


@pytest.mark.parametrize("method", METHODS)
def test_nothing_can_be_done_but_looking(site, method):
    status, headers, _ = site.ask("/data.json", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_request_that_is_none_gets_a_short_answer(site):
    for line in (
        b"FROB / HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 70000 + b"\r\n",
    ):
        with socket.create_connection(("127.0.0.1", site.port), 60) as connection:
            connection.sendall(line)
            answer = connection.makefile("rb").read(100_000)
        assert answer.split()[1][:1] in (b"4", b"5"), answer
        assert b"Content-Security-Policy" in answer
        assert len(answer) < 2000


def test_head_is_get_without_the_body(site):
    status, headers, body = site.ask("/app.js", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == len(site.ask("/app.js")[2])


@pytest.mark.parametrize(
    "path",
    ["/../server.py", "/%2e%2e/server.py", "//etc/passwd", "/page/app.js", "/__init__.py", "/index.html", "/app.js/"],
)
def test_only_the_files_of_the_page_are_served(site, path):
    assert site.ask(path)[0] == 404


def test_every_answer_carries_a_strict_policy_and_is_kept_nowhere(site):
    answers = [
        site.ask("/"), site.ask("/data.json"), site.ask("/app.js"), site.ask("/nothing"),
        site.ask("/", cookie=False), site.ask("/", "POST"), site.ask("/", Host="x"),
    ]  # fmt: skip
    for _, headers, _ in answers:
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert (
            policy["default-src"]
            == policy["frame-ancestors"]
            == policy["form-action"]
            == policy["base-uri"]
            == "'none'"
        )
        assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Python" not in headers["Server"]


def test_the_page_has_nothing_that_its_policy_forbids(site):
    for path in site.server.files:
        text = site.ask(path)[2].decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        if path in ("/", "/icon.svg"):
            assert "style=" not in text
            assert " onclick" not in text
        if path.endswith(".js"):
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
                assert word not in text


def test_the_data_comes_packed_once_and_then_only_when_it_is_new(site):
    status, headers, body = site.ask("/data.json", Accept_Encoding="gzip")
    assert (status, headers["Content-Encoding"], headers["Content-Type"]) == (200, "gzip", "application/json")
    plain = site.ask("/data.json")[2]
    assert json.loads(gzip.decompress(body)) == json.loads(plain)
    assert NASTY in json.dumps(json.loads(plain)).replace('\\"', '"')
    assert site.ask("/data.json", If_None_Match=headers["ETag"])[::2] == (304, b"")
    assert abs(float(site.ask("/data.json", If_None_Match=headers["ETag"])[1]["Penstock-Now"]) - time.time()) < 60
    assert site.ask("/data.json", If_None_Match='"other"')[0] == 200


def test_connections_that_ask_nothing_make_room_and_are_ended(monkeypatch):
    monkeypatch.setattr(module.Dashboard, "most", 8)
    monkeypatch.setattr(module.Dashboard, "patience", 8.0)
    site, idle = Site(), []
    try:
        for _ in range(3 * module.Dashboard.most):
            one = socket.create_connection(("127.0.0.1", site.port), 60)
            one.sendall(b"GET /data.json HT")
            idle.append(one)
        poll(lambda: len(site.server.gate) == module.Dashboard.most, "all places to be taken")
        poll(lambda: site.server.turned_away == 2 * module.Dashboard.most, "the others to be turned away")
        assert site.ask("/data.json")[0] == 200
        assert poll(lambda: len(site.server.gate) == 0, "the slow ones to be sent away")
    finally:
        for one in idle:
            one.close()
        site.down()


def test_a_page_that_stays_open_keeps_no_other_out(monkeypatch):
    """Browsers keep connections for the next request."""
    monkeypatch.setattr(module.Dashboard, "most", 4)
    site, kept = Site(), []
    try:
        for _ in range(8):
            one = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
            one.request("GET", "/data.json", headers={"Cookie": site.cookie})
            answer = one.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
            kept.append(one)
        assert len(site.server.gate) <= 4
        kept[-1].request("GET", "/data.json", headers={"Cookie": site.cookie})
        assert kept[-1].getresponse().status == 200, "of those at rest the one that rested longest has left"
    finally:
        for one in kept:
            one.close()
        site.down()


TRY = """
import socket, sys
lines = ["GET /data.json HTTP/1.1", "Host: localhost", f"Cookie: {sys.argv[2]}", "Connection: close", "", ""]
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as one:
    try:
        one.sendall("\\r\\n".join(lines).encode())
        print(len(one.makefile("rb").read()))
    except ConnectionError:
        print(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_users_connection_is_not_even_read():
    def tried(site, uid):
        words = [sys.executable, "-I", "-c", TRY, str(site.port), site.cookie]
        done = subprocess.run(
            words, user=uid, group=uid, extra_groups=[], capture_output=True, text=True, cwd="/", check=True
        )
        return int(done.stdout)

    site = Site(allowed=65533)
    try:
        assert tried(site, 65534) == 0, "although the cookie is the right one"
        assert tried(site, 65533) > 1000
        assert tried(site, 0) > 1000, "root sees everything anyway"
    finally:
        site.down()


def test_where_the_kernel_does_not_show_connections_the_cookie_is_what_counts(site, monkeypatch):
    monkeypatch.setattr(module, "owner_of", lambda _connection: None)
    assert site.ask("/data.json")[0] == 200
    assert site.ask("/data.json", cookie=False)[0] == 403


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:8787", ("127.0.0.1", 8787)),
        ("127.7.7.7:65535", ("127.7.7.7", 65535)),
    ],
)
def test_addresses_of_loopback(text, address):
    assert listen_address(text) == address


@pytest.mark.parametrize(
    "text", ["0.0.0.0:8787", "::1:80", "[::]:80", "login1:80", ":80", "192.168.0.1:1", "127.0.0.1.x:1"]
)
def test_an_address_that_others_can_reach_is_refused_with_the_way_out(text):
    with pytest.raises(UserError, match=r"--listen: .* is not 127\.0\.0\.1.*ssh -N -L \d+:127\.0\.0\.1:\d+"):
        listen_address(text)


@pytest.mark.parametrize(
    "text", ["8787", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:-1", ""]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UserError, match=r"--listen: must be 127\.0\.0\.1:PORT"):
        listen_address(text)


def test_a_port_that_is_taken_is_said(site):
    with pytest.raises(UserError, match=f"--listen: cannot listen at 127.0.0.1:{site.port}: Address already in use"):
        Dashboard(("127.0.0.1", site.port), site.feed.latest)
