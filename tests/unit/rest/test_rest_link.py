"""The way to slurmrestd where it goes wrong: cut answers, HTML, no JSON, tokens that are not taken, nobody there."""

import asyncio
import base64
import json
import logging
import sys
import time

import pytest

from penstock.config import config_of
from penstock.core.backends import make_backend, rest_extension
from penstock.core.extensions import BACKENDS
from penstock.errors import (
    ConfigError,
    Infeasible,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    SlurmUnavailable,
)
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock.values.rest_address import RestAddress
from penstock_rest.backend import RestBackend
from penstock_rest.errors import RestRefusal, error_of
from penstock_rest.extension import extension, why_no_commands
from penstock_rest.link import RestLink
from penstock_rest.tokens import CommandTokens, FileTokens, read_token

HTML = b"<html><body>502 Bad Gateway</body></html>"


def jwt(**claims):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'HS256'})}.{part(claims)}.c2lnbmF0dXJl"


def answer(document, status=200, kind="application/json", cut=0):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return head + body[: len(body) - cut]


class Server:
    """Answers requests at a Unix socket by a function of the path, which gives bytes, or None for no answer at all."""

    def __init__(self, path, respond):
        self.path, self.respond, self.seen = path, respond, []

    async def __aenter__(self):
        self.server = await asyncio.start_unix_server(self.serve, self.path)
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split("\r\n")[0].split(" ")
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                self.seen.append((method, target, fields, body))
                said = self.respond(method, target, fields)
                if said is None:
                    await asyncio.sleep(30)
                writer.write(said)
                await writer.drain()
                if b"Content-Length" not in said or said.endswith(b"CUT"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def link_to(path, tokens=None):
    return RestLink(RestAddress.parse(f"unix:{path}"), "alice", tokens)


def asked(tmp_path, respond, *, changing=False, tokens=None, limit=5.0):
    """What one request comes to, and what the server saw."""

    async def run():
        async with Server(tmp_path / "s", respond) as server:
            link = link_to(tmp_path / "s", tokens)
            try:
                found = await link.ask("GET", "/slurm/v0.0.42/jobs/", limit=limit, changing=changing)
            except Exception as error:
                found = error
            await link.close()
            return found, server.seen

    return asyncio.run(run())


def test_an_answer_without_errors(tmp_path):
    found, seen = asked(tmp_path, lambda *_: answer({"jobs": [], "errors": []}))
    assert found == {"jobs": [], "errors": []}
    assert seen[0][2]["x-slurm-user-name"] == "alice"


@pytest.mark.parametrize(
    "said",
    [
        answer({"jobs": [1, 2, 3]}, cut=4) + b"CUT",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{",
        answer(HTML, 502, "text/html"),
        answer(HTML, 200, "text/html"),
        answer(b"[]"),
        answer(b"", 500),
        answer({"jobs": []}, 500),
        b"",
    ],
    ids=["cut", "cut without length", "html 502", "html 200", "a list", "empty 500", "500 without a reason", "nothing"],
)
def test_what_is_no_answer(tmp_path, said):
    found, _ = asked(tmp_path, lambda *_: said)
    assert isinstance(found, SlurmUnavailable), found
    found, _ = asked(tmp_path, lambda *_: said, changing=True)
    assert isinstance(found, OutcomeUnknown), found


def test_no_answer_in_time(tmp_path):
    started = time.monotonic()
    found, _ = asked(tmp_path, lambda *_: None, limit=0.3)
    assert isinstance(found, SlurmUnavailable) and "within 0.3 s" in str(found)
    found, _ = asked(tmp_path, lambda *_: None, limit=0.3, changing=True)
    assert isinstance(found, OutcomeUnknown)
    assert time.monotonic() - started < 5


def test_nobody_there_has_changed_nothing(tmp_path):
    async def run(address):
        link = RestLink(RestAddress.parse(address), "alice")
        with pytest.raises(SlurmUnavailable, match="nothing answers at"):
            await link.ask("POST", "/x", limit=5, changing=True)
        await link.close()

    asyncio.run(run(f"unix:{tmp_path / 'none'}"))
    asyncio.run(run("http://127.0.0.1:1"))


def test_no_change_goes_over_a_connection_that_was_used_before(tmp_path):
    async def run():
        connections = 0

        class Counting(Server):
            async def serve(self, reader, writer):
                nonlocal connections
                connections += 1
                await super().serve(reader, writer)

        async with Counting(tmp_path / "s", lambda *_: answer({"errors": []})):
            link = link_to(tmp_path / "s")
            for _ in range(3):
                await link.ask("GET", "/x", limit=5, changing=False)
            looks = connections
            for _ in range(3):
                await link.ask("POST", "/x", limit=5, changing=True)
            await link.close()
            return looks, connections - looks

    assert asyncio.run(run()) == (1, 3)


# -- tokens ------------------------------------------------------------------------------------------------------


def test_a_token_is_in_the_header_and_nowhere_else(tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    secret = jwt(sun="alice", exp=time.time() + 3600)
    (tmp_path / "token").write_text(f"SLURM_JWT={secret}\n")
    (tmp_path / "token").chmod(0o600)
    tokens = FileTokens(tmp_path / "token")
    found, seen = asked(tmp_path, lambda *_: answer({"errors": []}), tokens=tokens)
    assert seen[0][2]["x-slurm-user-token"] == secret.lower()
    found, _ = asked(tmp_path, lambda *_: answer(HTML, 403, "text/html"), tokens=tokens)
    said = f"{found!r} {caplog.text} {capfd.readouterr()} {tokens!r}"
    assert secret not in said and secret.split(".")[2] not in said


def test_a_token_that_is_refused_is_renewed_once(tmp_path):
    made = tmp_path / "made"
    script = f"import pathlib; p = pathlib.Path({str(made)!r}); n = len(p.read_text()) if p.exists() else 0; "
    old, new = jwt(sun="alice", exp=time.time() + 3600, n=0), jwt(sun="alice", exp=time.time() + 3600, n=1)
    script += f"p.write_text('x' * (n + 1)); print('SLURM_JWT=' + ({old!r} if n == 0 else {new!r}))"
    tokens = CommandTokens([sys.executable, "-c", script])
    expired = {"errors": [{"error_number": 1007, "error": "Protocol authentication error", "description": ""}]}

    def respond(method, target, fields):
        return answer({"errors": []}) if fields["x-slurm-user-token"] == new.lower() else answer(expired, 500)

    found, seen = asked(tmp_path, respond, changing=True, tokens=tokens)
    assert found == {"errors": []} and len(seen) == 2 and made.read_text() == "xx"
    found, seen = asked(tmp_path, lambda *_: answer(expired, 500), changing=True, tokens=tokens)
    assert isinstance(found, RestRefusal) and len(seen) == 2
    found, seen = asked(tmp_path, lambda *_: answer(b"Authentication failure", 401, "text/plain"), tokens=tokens)
    assert isinstance(found, RestRefusal) and len(seen) == 2


def test_a_token_that_accounting_may_have_refused_is_renewed_once_a_minute(tmp_path):
    """As slurmrestd says it of a slurmdbd that does not accept a token, and of one that is away."""
    count = tmp_path / "count"
    token = jwt(sun="alice", exp=time.time() + 3600)
    script = f"open({str(count)!r}, 'a').write('x'); print({token!r}[:-len(open({str(count)!r}).read())])"
    tokens = CommandTokens([sys.executable, "-c", script])
    away = {"error_number": 7000, "error": "Unable to connect to database", "description": "Failed to open connection"}

    async def run():
        async with Server(tmp_path / "s", lambda *_: answer({"errors": [away]}, 502)) as server:
            link = link_to(tmp_path / "s", tokens)
            found = []
            for _ in range(2):
                with pytest.raises(RestRefusal) as refused:
                    await link.ask("GET", "/slurmdb/v0.0.42/jobs/", limit=5.0, changing=False)
                found.append(refused.value)
            await link.close()
            return found, len(server.seen)

    found, requests = asyncio.run(run())
    assert requests == 3 and count.read_text() == "xx", "the second time it is known that a new token does not help"
    error = error_of(found[0], changing=False)
    assert isinstance(error, SlurmUnavailable) and "or slurmdbd does not accept the token" in str(error)
    count.unlink()
    tokens = CommandTokens([sys.executable, "-c", script])
    done, seen = asked(tmp_path, respond_by(count, away), tokens=tokens)
    assert done == {"errors": []} and len(seen) == 2


def respond_by(count, error):
    """Accounting that takes the second token alone."""
    return lambda *_: answer({"errors": []}) if count.read_text() == "xx" else answer({"errors": [error]}, 502)


def test_a_slurmrestd_that_takes_no_tokens_is_named():
    error = error_of(RestRefusal(401, "Authentication failure"), changing=False)
    assert isinstance(error, NotPermitted) and "SLURM_JWT=daemon" in str(error)


def test_tokens_are_renewed_before_they_end(tmp_path):
    counter, now = tmp_path / "n", [1000.0]
    script = f"import sys; open({str(counter)!r}, 'a').write('x'); print(sys.argv[1])"

    def tokens_of(life):
        counter.write_text("")
        token = jwt(sun="alice", exp=now[0] + life)
        return CommandTokens([sys.executable, "-c", script, token], clock=lambda: now[0])

    async def run(tokens, *moments):
        for moment in moments:
            now[0] = moment
            await tokens.current()
        return len(counter.read_text())

    assert asyncio.run(run(tokens_of(3600), 1000, 2000, 4530)) == 1
    now[0] = 1000.0
    assert asyncio.run(run(tokens_of(3600), 1000, 4545)) == 2
    now[0] = 1000.0
    assert asyncio.run(run(tokens_of(10), 1000, 1004)) == 1
    with pytest.raises(NotPermitted, match="has expired"):
        asyncio.run(run(tokens_of(10), 5000))


def test_what_is_no_token(tmp_path):
    for text in ("", "hello", "a.b", "SLURM_JWT=\n", "x" * 20000, "aa.$$.bb", "aa.YWJj.bb"):
        with pytest.raises(NotPermitted) as caught:
            read_token(text, "the file")
        assert not text or text not in str(caught.value)
    assert read_token(jwt(sun="bob", exp=5), "x").user == "bob"
    assert read_token(jwt(), "x").ends is None
    file = tmp_path / "t"
    file.write_text(jwt(exp=time.time() - 5))
    file.chmod(0o600)
    with pytest.raises(NotPermitted, match="has expired"):
        asyncio.run(FileTokens(file).current())
    file.chmod(0o644)
    with pytest.raises(NotPermitted, match="chmod 600"):
        asyncio.run(FileTokens(file).current())
    with pytest.raises(SlurmUnavailable, match="token_file"):
        asyncio.run(FileTokens(tmp_path / "none").current())
    with pytest.raises(SlurmUnavailable, match="ended with 1: no"):
        asyncio.run(CommandTokens([sys.executable, "-c", "import sys; sys.exit('no')"]).current())
    with pytest.raises(SlurmUnavailable, match="no token within"):
        asyncio.run(CommandTokens([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.2).current())
    with pytest.raises(ConfigError, match="nosuch"):
        asyncio.run(CommandTokens(["/nosuch"]).current())


# -- the backend over it -----------------------------------------------------------------------------------------


def backend_over(path, **options):
    return RestBackend(
        link=link_to(path),
        commands=False,
        user="alice",
        timeout=5.0,
        budget=RequestBudget(BudgetLimits(1000, 1000.0, 1000)),
        **options,
    )


def over(tmp_path, respond, use):
    async def run():
        async with Server(tmp_path / "s", respond) as server:
            backend = backend_over(tmp_path / "s")
            try:
                return await use(backend), server.seen, backend
            finally:
                await backend.close()

    return asyncio.run(run())


NOT_THERE = answer({"errors": [{"error": "Unable to find requested URL", "error_number": 9007}]}, 404)
PONG = answer({"meta": {"slurm": {"release": "24.11.5", "cluster": "c"}}, "errors": []})


def offering(*versions, then=None):
    def respond(method, target, fields):
        if not any(f"/{version}/" in target for version in versions):
            return NOT_THERE
        return PONG if "ping" in target or then is None else then

    return respond


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (("v0.0.39",), "v0.0.39"),
        (("v0.0.40", "v0.0.41", "v0.0.42"), "v0.0.42"),
        (("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"), "v0.0.45"),
        (("v0.0.44", "v0.0.45", "v0.0.46", "v0.0.47"), "v0.0.45"),
    ],
)
def test_the_newest_that_both_know_is_spoken(tmp_path, offered, spoken):
    licenses = answer({"licenses": [], "errors": []})
    found, seen, backend = over(tmp_path, offering(*offered, then=licenses), lambda b: b.licenses())
    assert found == [] and backend.data_version == spoken and seen[-1][1] == f"/slurm/{spoken}/licenses/"


def test_a_server_that_offers_nothing_we_know(tmp_path):
    def respond(method, target, fields):
        if target == "/openapi/v3":
            return answer({"paths": {"/slurm/v0.0.38/jobs": {}, "/slurmdb/v0.0.37/jobs": {}}})
        return NOT_THERE

    with pytest.raises(SlurmUnavailable, match=r"offers v0\.0\.37, v0\.0\.38, .*v0\.0\.39 to v0\.0\.45: .*23\.02"):
        over(tmp_path, respond, lambda b: b.jobs())
    with pytest.raises(SlurmUnavailable, match="offers no data version"):
        over(tmp_path, lambda *_: NOT_THERE, lambda b: b.jobs())


@pytest.mark.parametrize(
    ("said", "look", "change"),
    [
        ("Invalid job id specified", NotFound, NotFound),
        ("Access/permission denied", NotPermitted, NotPermitted),
        ("Requested node configuration is not available", SlurmUnavailable, Infeasible),
        ("Unable to contact slurm controller (connect failure)", SlurmUnavailable, SlurmUnavailable),
        ("Socket timed out on send/recv operation", SlurmUnavailable, OutcomeUnknown),
        ("Protocol authentication error", NotPermitted, NotPermitted),
        ("A word that nobody has heard", SlurmUnavailable, OutcomeUnknown),
    ],
)
def test_slurms_errors_are_ours(tmp_path, said, look, change):
    refusal = answer({"errors": [{"error": said, "error_number": 2017, "description": "Invalid data"}]}, 500)
    for use, error in ((lambda b: b.nodes(), look), (lambda b: b.update(7, time_limit=60.0), change)):
        with pytest.raises(error) as caught:
            over(tmp_path, offering("v0.0.42", then=refusal), use)
        assert caught.type is error and said in str(caught.value)


def test_a_signal_that_nobody_heard_is_not_forbidden(tmp_path):
    """slurmrestd says so when slurmctld is down."""
    error = {"error": "Operation not permitted", "error_number": 1, "description": "Signal request failed"}
    with pytest.raises(OutcomeUnknown, match="Signal request failed"):
        over(tmp_path, offering("v0.0.42", then=answer({"errors": [error]}, 500)), lambda b: b.cancel(7))


def test_a_server_that_has_become_another_one_is_asked_anew(tmp_path):
    offered = ["v0.0.42"]
    licenses = answer({"licenses": [], "errors": []})

    def respond(method, target, fields):
        return offering(*offered, then=licenses)(method, target, fields)

    async def use(backend):
        await backend.licenses()
        offered[:] = ["v0.0.44"]
        with pytest.raises(SlurmUnavailable):
            await backend.licenses()
        await backend.licenses()

    _, _, backend = over(tmp_path, respond, use)
    assert backend.data_version == "v0.0.44"


def test_what_needs_a_command_says_so(tmp_path):
    async def use(backend):
        for call in (
            lambda: backend.on("far").jobs(),
            lambda: backend.shares(),
            lambda: backend.requeue(7),
            lambda: backend.unreserve("r"),
        ):
            with pytest.raises(NotPermitted, match=r"slurmrestd cannot do what `s\w+.*rest\.commands"):
                await call()

    over(tmp_path, offering("v0.0.39"), use)


def test_requests_are_counted_and_a_silent_server_is_left_in_peace(tmp_path):
    async def run():
        backend = backend_over(tmp_path / "none")
        for _ in range(20):
            with pytest.raises(SlurmUnavailable):
                await backend.jobs()
        await backend.close()
        return backend

    backend = asyncio.run(run())
    assert 1 <= backend.requests["rest ping"] < 10
    assert backend.meter.outcomes["rest ping", "unanswered"] == backend.requests["rest ping"]
    assert backend.meter.purposes.total() == backend.requests.total(), "for whatever it was"


@pytest.mark.parametrize("text", ["", "unix:", "unix:relative", "ftp://x", "http://", "http://a b", "http://x:99999"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="must be"):
        RestAddress.parse(text)


def test_addresses():
    assert str(RestAddress.parse("unix:/run/x.sock").socket) == "/run/x.sock"
    assert RestAddress.parse("https://slurm.example.org:6820/").base == "https://slurm.example.org:6820"
    assert RestAddress.parse("http://slurm.example.org:6820").in_clear
    for text in ("https://slurm.example.org", "http://127.0.0.1:6820", "http://localhost:1", "unix:/x"):
        assert not RestAddress.parse(text).in_clear


# -- the configuration -------------------------------------------------------------------------------------------


def configured(**rest):
    return config_of({"slurm": {"backend": "rest"}, "rest": rest})


def test_the_backend_that_the_configuration_names(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match=r"needs `rest\.url`"):
        make_backend(configured())
    backend = make_backend(configured(url="unix:/run/x", user="portal", settings={"PriorityWeightAge": 5}))
    assert isinstance(backend, RestBackend) and backend.whoami() == "portal"
    assert "portal" in why_no_commands(configured(user="portal"))
    assert "not on PATH" in why_no_commands(configured())
    assert "never" in why_no_commands(configured(commands="never"))
    for wrong in ({"url": "ftp://x"}, {"token_file": "/t", "token_command": ["x"]}, {"settings": {"A": [1]}}):
        with pytest.raises(ConfigError, match="rest"):
            configured(**wrong)


@pytest.mark.parametrize("lacks", ["find_spec", "entry_points"])
def test_without_its_distribution_or_httpx_it_says_what_to_install(monkeypatch, lacks):
    monkeypatch.setattr(f"penstock.core.backends.{lacks}", lambda *_sought, **_by: None if lacks == "find_spec" else ())
    assert rest_extension() is None
    said = r"^`slurm\.backend: rest`, but httpx is not installed \(`pip install penstock\[rest\]`\)$"
    with pytest.raises(ConfigError, match=said):
        BACKENDS.load("rest")(configured(url="unix:/run/x"))


def test_doctor_is_told_how_slurmrestd_is_spoken_to_and_of_other_backends_nothing():
    assert rest_extension() is extension
    assert asyncio.run(extension.spoken(CliBackend())) is None
