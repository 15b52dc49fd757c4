"""Messages to people: what is told, once, to whom, at which rate, and what the ways make of trouble."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import smtp_server
from click.testing import CliRunner
from factories import Doing

from penstock.api import JobSpec
from penstock.app import check
from penstock.cli import cli
from penstock.config import Config, MessagesSection, config_of, load
from penstock.core.events import Event, paused
from penstock.core.executor import Concern
from penstock.core.metrics import Metrics
from penstock.errors import ConfigError, SlurmUnavailable
from penstock.slurm.site_settings import site_from_text
from penstock.state.store import Store
from penstock.values.messages import MessageState
from penstock.workflow.documents import in_slots
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import StageSlot
from penstock_lab.agent_world import World, chain, virtual
from penstock_messages.channels import Command, Mail, Undelivered, Webhook, channels_of, read_secret
from penstock_messages.checks import ways_of
from penstock_messages.extending import CHANNELS
from penstock_messages.figures import families
from penstock_messages.messenger import Courier, Messenger
from penstock_messages.outbox import LADDER, MOST, OLDEST, Letter, Outbox
from penstock_planning.hold.notices import notices_of

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

ME = os.geteuid()
MY_NAME = pwd.getpwuid(ME).pw_name
EVENT = Event("k", "stage-failed", 1000.0, "stage a has failed", "Text.\n", ME, MY_NAME, {"job": 7})


def settings(**keys) -> MessagesSection:
    return config_of({"messages": keys}).messages


def letter(number: int, *, at: float = 0.0, channel: str = "mail", uid: int | None = 1) -> Letter:
    return Letter(number, channel, Event(f"k{number}", "stage-failed", at, "t", "x", uid, "u"))


# -- events ------------------------------------------------------------------------------------------------------------


def test_a_reserved_workflow_is_told_of_when_a_stage_fails_or_loses_its_slot():
    def told(why="", phase=StagePhase.QUEUED):
        flow = Workflow("r", (Stage("a", 1, 60.0, 60.0, "true"),))
        run = in_slots("r", flow, {"a": StageSlot("r-a", 4)}, 0.0)
        run = replace(run.put(0, replace(run.stages[0], job=7, phase=phase)), told={"a": why} if why else {})
        return [(e.kind, e.key) for e in notices_of(run, uid=1, user="u", now=2.0)]

    assert told() == told("it can begin earlier") == told("its reservation is gone", StagePhase.DONE) == []
    assert told("its reservation is gone") == [("deadline", "deadline reserved r/a hold 4")]
    assert told(phase=StagePhase.FAILED) == [("stage-failed", "stage-failed reserved r/a hold 4")]
    assert told("b, which it comes after, has failed", StagePhase.CANCELLED)[0][0] == "stage-failed"


# -- what goes out, and when -------------------------------------------------------------------------------------------


def test_one_message_at_a_time_by_each_way():
    box = Outbox(per_hour=100)
    for number in (1, 2):
        for channel in ("mail", "webhook"):
            assert box.add(letter(number * 10 + (channel == "mail"), channel=channel))
    first, other = box.take(["mail", "webhook"], 0.0), box.take(["mail", "webhook"], 0.0)
    assert {first.channel, other.channel} == {"mail", "webhook"}
    assert box.take(["mail", "webhook"], 0.0) is None
    assert box.settle(first, None, False, 1.0)[0] is MessageState.SENT
    assert box.take(["mail", "webhook"], 1.0).channel == first.channel
    assert len(box) == 3


def test_what_fails_is_tried_again_ever_later_and_then_given_up():
    box = Outbox(per_hour=100)
    box.add(letter(1))
    now, waits = 0.0, []
    while True:
        taken = box.take(["mail"], now)
        state, tried = box.settle(taken, "no", False, now)
        if state is not MessageState.OPEN:
            break
        assert box.take(["mail"], tried.due - 1.0) is None
        waits.append(tried.due - now)
        now = tried.due
    assert (state, tried.tries, tuple(waits), len(box)) == (MessageState.FAILED, len(LADDER) + 1, LADDER, 0)
    box.add(letter(2))
    assert box.settle(box.take(["mail"], now), "never", True, now)[0] is MessageState.FAILED


def test_each_recipient_gets_so_many_an_hour_and_the_others_wait_for_nobody():
    box = Outbox(per_hour=2)
    for number in range(4):
        box.add(letter(number, uid=1))
    box.add(letter(9, uid=2))
    sent = []
    while (taken := box.take(["mail"], 100.0)) is not None:
        box.settle(taken, None, False, 100.0)
        sent.append(taken.id)
    assert sent == [0, 1, 9]
    assert box.next_at(["mail"], 100.0) == 3700.0
    assert box.take(["mail"], 3699.0) is None and box.take(["mail"], 3700.0).id == 2


def test_a_clock_that_was_set_back_holds_nothing_up():
    box, ahead = Outbox(per_hour=2), 10 * OLDEST
    for number in range(3):
        box.add(letter(number, uid=1))
    for error in (None, "no"):
        box.settle(box.take(["mail"], ahead), error, False, ahead)
    assert box.take(["mail"], ahead) is None
    assert box.take(["mail"], 100.0).id == 2
    assert box.settle(box.under_way["mail"], None, False, 100.0)[0] is MessageState.SENT
    assert box.take(["mail"], 100.0).id == 1, "and what was to be tried again"


def test_what_is_too_old_or_one_too_many_is_dropped():
    box = Outbox(per_hour=1)
    assert all(box.add(letter(n)) for n in range(MOST))
    assert not box.add(letter(MOST))
    assert box.old(OLDEST) == []
    assert len(box.old(OLDEST + 1.0)) == MOST and len(box) == 0
    box.add(letter(1))
    assert box.next_at(["command"], 0.0) is None, "a way that is no more"


# -- once, also over a restart -----------------------------------------------------------------------------------------


class Told:
    """Stands in for the courier: answers at once, or not at all."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.error: Undelivered | None = None
        self.silent = False

    def __call__(self, channel, event, done) -> None:
        self.keys.append(event.key)
        if not self.silent:
            done(self.error)


ANY = {"messages": {"command": ["/bin/true"]}}


def messenger(store, told, clock, **messages) -> Messenger:
    config = config_of({"messages": {"command": ["/bin/true"], **messages}})
    return Messenger(store, clock, config, told)


class Clock:
    def __init__(self) -> None:
        self.at = 10_000.0

    def now(self) -> float:
        return self.at


def test_an_event_is_sent_once_however_often_it_is_found(tmp_path):
    store, told, clock = Store(tmp_path / "s.db"), Told(), Clock()
    for _life in range(2):
        me = messenger(store, told, clock)
        for _time in range(2):
            me.tell(Event("k", "paused", clock.now(), "t", "x"))
            me.step()
    assert told.keys == ["k"]
    assert [m["state"] for m in store.messages.latest()] == ["sent"]


def test_what_was_not_sent_is_sent_by_the_next_agent_and_what_was_on_its_way_is_not_repeated(tmp_path):
    store, told, clock = Store(tmp_path / "s.db"), Told(), Clock()
    told.error = Undelivered("no route")
    me = messenger(store, told, clock)
    me.tell(Event("a", "paused", clock.now(), "t", "x"))
    me.step()
    (row,) = store.messages.latest()
    assert (row["state"], row["tries"], row["outcome"]) == ("open", 1, "no route")
    clock.at += LADDER[0]
    told.silent, told.error = True, None
    messenger(store, told, clock).step()
    assert told.keys == ["a", "a"] and store.messages.latest()[0]["state"] == "sending"
    last = messenger(store, told, clock)  # the one before died meanwhile
    last.step()
    assert told.keys == ["a", "a"] and store.messages.latest()[0]["state"] == "unknown"
    assert last.outcomes == {("command", "failed"): 1}


def test_the_rate_outlives_the_agent(tmp_path):
    store, told, clock = Store(tmp_path / "s.db"), Told(), Clock()
    for key in "ab":
        me = messenger(store, told, clock, per_hour=1)
        me.tell(Event(key, "paused", clock.now(), "t", "x"))
        assert me.step() <= 60.0
    assert told.keys == ["a"]
    clock.at += 3600.0
    me.step()
    assert told.keys == ["a", "b"]


def test_only_what_is_wanted_is_told(tmp_path):
    store, told, clock = Store(tmp_path / "s.db"), Told(), Clock()
    me = messenger(store, told, clock, events=["stage-failed"])
    me.tell(paused(clock.now() + 600, "submit: no answer", 10, now=clock.now()))
    Messenger(store, clock, Config(), told).tell(EVENT)
    assert store.messages.latest() == []


def test_an_event_of_a_transaction_that_came_to_nothing_is_not_sent(tmp_path):
    store, told, clock = Store(tmp_path / "s.db"), Told(), Clock()
    me = messenger(store, told, clock)
    with pytest.raises(RuntimeError), store.together():
        me.tell(EVENT)
        raise RuntimeError
    me.step()
    assert told.keys == [] and len(me.outbox) == 0
    me.tell(EVENT)
    me.step()
    assert told.keys == ["k"]


@virtual
async def test_a_failed_stage_is_told_of_once_whenever_the_agent_dies(tmp_path):
    k, points = 0, 1
    while k < points:
        world = World(tmp_path / str(k), ANY)
        await world.boot(at=k)
        number = None
        while number is None:
            try:
                number = await world.submit(chain(5, 5, failing="a"), "perstage")
            except BaseException:
                await world.restart()
                runs = world.store.runs.latest()
                number = runs[0][0] if runs and runs[0][2] else None
        run = await world.finish(number)
        assert run.phase == "failed"
        (row,) = world.store.messages.latest()
        assert row["key"] == f"stage-failed workflow {number}/a job {run.stages[0].job}"
        assert row["event"]["user"] == MY_NAME
        points = max(points, world.fuse.points) if k == 0 else points
        k += 3


@virtual
async def test_a_users_failed_stage_and_an_automatic_pause_are_told_of(tmp_path):
    world = World(tmp_path, ANY)
    await world.boot()
    job = await world.bob.submit(JobSpec("s", "#!/bin/sh\nsleep 5\nexit 3\n", 1, 60))
    uid = world.engine.uid_of("bob")
    stages = [{"name": "s", "job": job, "after": []}]
    await world.workflows.registrations.register(uid, {"workflow": "w", "strategy": "perstage", "stages": stages})
    await world.until(lambda: world.store.messages.latest(), 200)
    (row,) = world.store.messages.latest()
    assert (row["event"]["uid"], row["event"]["details"]["job"]) == (uid, job)

    async def broken(_slurm) -> None:
        raise SlurmUnavailable("no answer")

    for n in range(10):
        with pytest.raises(SlurmUnavailable):
            await world.app.executor.act(Doing(broken, "release"), f"x {n}", {}, Concern("workflows", uid))
    assert [m["event"]["kind"] for m in world.store.messages.latest()] == ["stage-failed", "paused"]
    assert "release x 9: no answer" in world.store.messages.latest()[1]["event"]["text"]


# -- the ways ----------------------------------------------------------------------------------------------------------


class Hook(ThreadingHTTPServer):
    """A webhook; `answer` is what it says."""

    def __init__(self) -> None:
        self.answer = 200
        self.got: list[tuple[dict[str, str], dict]] = []
        self.hang = threading.Event()
        self.hang.set()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.hang.wait(30)
                hook.got.append((dict(self.headers), body))
                self.send_response(hook.answer)
                if hook.answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.hang.set()
    server.shutdown()
    server.server_close()
    thread.join()


def secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_webhook_gets_the_event_as_json(hook, tmp_path):
    url = f"http://127.0.0.1:{hook.server_port}/T0K3N"
    way = Webhook(secret(tmp_path / "url", url + "\n"), 10.0)
    way.deliver(EVENT)
    (headers, body), hook.got = hook.got[0], []
    assert headers["Content-Type"] == "application/json" and headers["Idempotency-Key"] == "k"
    assert body == {**EVENT.to_dict(), "host": socket.gethostname()}
    for answer, final in ((503, False), (429, False), (404, True), (302, True)):
        hook.answer = answer
        with pytest.raises(Undelivered, match=f"answered {answer}") as caught:
            way.deliver(EVENT)
        assert caught.value.final is final
    assert len(hook.got) == 4, "a redirection is not followed"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/T0K3N", "ftp://x/T0K3N", "T0K3N", "http://a b/T0K3N", "http://[T0K3N", "http://x:T0K3N/"],
)
def test_no_error_of_a_webhook_has_the_url_in_it(tmp_path, url):
    with pytest.raises(Undelivered) as caught:
        Webhook(secret(tmp_path / "url", url), 5.0).deliver(EVENT)
    assert "T0K3N" not in str(caught.value)


def test_a_webhook_that_does_not_answer_ends_with_its_time_limit(hook, tmp_path):
    hook.hang.clear()
    with pytest.raises(Undelivered, match="cannot be reached"):
        Webhook(secret(tmp_path / "url", f"http://127.0.0.1:{hook.server_port}/"), 0.2).deliver(EVENT)


def test_a_secret_that_others_can_read_is_not_used(tmp_path):
    file = secret(tmp_path / "url", "http://127.0.0.1/\n")
    assert read_secret(file) == ["http://127.0.0.1/"]
    file.chmod(0o640)
    with pytest.raises(Undelivered, match="chmod 600"):
        read_secret(file)
    for wrong in (secret(tmp_path / "empty", "\n"), tmp_path / "missing", tmp_path):
        with pytest.raises(Undelivered, match=r"is empty|cannot be read"):
            read_secret(wrong)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_command_gets_the_event_on_its_standard_input_and_no_shell(tmp_path):
    out = tmp_path / "out"
    way = Command([str(program(tmp_path / "tell", f'printf "%s\\n" "$@" > {out}.args; cat > {out}')), "$(id); x"], 20.0)
    way.deliver(EVENT)
    assert json.loads(out.read_text())["key"] == "k"
    assert Path(f"{out}.args").read_text() == "$(id); x\n"
    for words, said in ((["/bin/false"], "false ended with 1"), (["/no/such"], "such cannot be run")):
        with pytest.raises(Undelivered, match=said):
            Command(words, 20.0).deliver(EVENT)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    pid = tmp_path / "pid"
    way = Command([str(program(tmp_path / "hang", f"sleep 300 & echo $! > {pid}; wait"))], 2.0)
    with pytest.raises(Undelivered, match="took longer than 2 s"):
        way.deliver(EVENT)
    deadline = time.monotonic() + 30
    status = Path(f"/proc/{pid.read_text().strip()}/status")

    def gone() -> bool:
        try:
            return "Z (zombie)" in status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    while not gone():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sendmail_gets_the_mail_for_the_user_alone(tmp_path):
    out = tmp_path / "out"
    fake = program(tmp_path / "sendmail", f'printf "%s\\n" "$@" > {out}.args; cat > {out}')
    way = Mail(settings(mail="sendmail", sendmail=[str(fake)]), "site.example", shared=True)
    way.deliver(EVENT)
    assert Path(f"{out}.args").read_text().split() == ["-i", "--", f"{MY_NAME}@site.example"]
    text = out.read_text()
    assert "Subject: [penstock] stage a has failed\n" in text and "Auto-Submitted: auto-generated" in text
    assert text.endswith("\nText.\n")
    hostile = Event("k", "paused", 0.0, "t", "x", 1, "--oops")
    assert not way.takes(hostile)


def test_who_gets_which_mail():
    def to(event, *, shared, domain="", **keys):
        return Mail(settings(mail="sendmail", **keys), domain, shared=shared)._address(event)

    agents = Event("k", "paused", 0.0, "t", "x")
    users = Event("k", "stage-failed", 0.0, "t", "x", 1, "alice")
    assert to(users, shared=True, domain="d") == "alice@d"
    assert to(users, shared=True, mail_to="root@d") == "alice", "never to somebody else"
    assert to(users, shared=True, users=False) is None
    assert to(agents, shared=True, mail_to="root@d") == "root@d" and to(agents, shared=True) is None
    assert to(agents, shared=False) == MY_NAME
    assert to(users, shared=False, mail_to="me@home.example") == "me@home.example"
    ways = channels_of(settings(mail="sendmail", mail_domain="own"), "slurms", shared=True)
    assert ways["mail"]._address(users) == "alice@own"


def test_a_mail_server_gets_the_mail(tmp_path):
    with smtp_server.serving() as server:
        keys = {"mail": "smtp", "smtp": f"127.0.0.1:{server.port}", "smtp_security": "none"}
        Mail(settings(**keys), "d", shared=True).deliver(EVENT)
        ((sender, to, text),) = server.mails
        assert to == [f"{MY_NAME}@d"] and sender.startswith(MY_NAME)
        assert "Message-ID: <" in text and text.rstrip().endswith("Text.")
        for code, final in ((550, True), (451, False)):
            server.refuse = code
            with pytest.raises(Undelivered, match=str(code)) as caught:
                Mail(settings(**keys), "d", shared=True).deliver(EVENT)
            assert caught.value.final is final
        server.refuse = 0
        with pytest.raises(Undelivered):  # asked for encryption, which it does not offer: nothing is sent in the clear
            Mail(settings(**{**keys, "smtp_security": "starttls"}), "d", shared=True).deliver(EVENT)
        login = secret(tmp_path / "login", "me\nS3CR3T\n")
        with pytest.raises(Undelivered) as told:
            Mail(settings(**keys, smtp_login=str(login)), "d", shared=True).deliver(EVENT)
        assert "S3CR3T" not in str(told.value)
        assert len(server.mails) == 1


def test_a_mail_server_that_is_not_there_is_tried_again():
    keys = {"mail": "smtp", "smtp": "127.0.0.1:1", "smtp_security": "none", "timeout": 5}
    with pytest.raises(Undelivered, match=r"mail server 127\.0\.0\.1:1") as caught:
        Mail(settings(**keys), "d", shared=True).deliver(EVENT)
    assert not caught.value.final


def test_a_way_that_hangs_keeps_neither_the_loop_nor_the_other_ways(hook, tmp_path):
    hook.hang.clear()
    out = tmp_path / "out"
    tell = program(tmp_path / "tell", f"cat > {out}.new && mv {out}.new {out}")
    url = secret(tmp_path / "url", f"http://127.0.0.1:{hook.server_port}/")
    keys = {"webhook": str(url), "command": [str(tell)], "timeout": 30}

    async def run() -> Messenger:
        config = config_of({"messages": keys})
        me = Messenger(Store(tmp_path / "s.db"), Clock(), config, Courier())
        me.tell(EVENT)
        running = asyncio.ensure_future(me.run())
        async with asyncio.timeout(60):
            while me.outcomes["command", "sent"] == 0:
                await asyncio.sleep(0.01)
            assert out.exists() and me.outcomes["webhook", "sent"] == 0
            hook.hang.set()
            while me.outcomes["webhook", "sent"] == 0:
                await asyncio.sleep(0.01)
        running.cancel()
        await me.close()
        return me

    me = asyncio.run(run())
    assert [m["state"] for m in me._store.messages.latest()] == ["sent", "sent"]
    assert len(hook.got) == 1


# -- channels of a site's own ------------------------------------------------------------------------------------------

DIARY = """
from pathlib import Path
from penstock_messages.channels import Undelivered

class Diary:
    name = "diary"

    def __init__(self, file, kinds=()):
        if not file.startswith("/"):
            raise ValueError("a diary has an absolute path")
        self.file, self.kinds = Path(file), kinds

    def takes(self, event):
        if event.title == "a riddle":
            raise RuntimeError("S3CR3T")
        return not self.kinds or event.kind in self.kinds

    def deliver(self, event):
        if event.title == "too much":
            raise RuntimeError("S3CR3T")
        if not self.file.parent.exists():
            raise Undelivered("there is no such folder", final=True)
        with self.file.open("a") as out:
            out.write(event.key + "\\n")

class Mute:
    name = "mute"
    takes = True

class Other(Diary):
    name = "someone"
"""


@pytest.fixture
def diary(installed) -> None:
    names = {name: f"diary:{name.capitalize()}" for name in ("diary", "mute", "other")}
    installed({"penstock.channels": names}, {"diary.py": DIARY})


def sample(me: Messenger, name: str, **labels: str) -> float | None:
    metrics = Metrics()
    metrics.add(lambda: families(me))
    return metrics.registry.get_sample_value(f"penstock_{name}", labels)


def test_those_that_come_with_penstock_are_found_as_others_are(tmp_path):
    keys = {"mail": "sendmail", "webhook": str(tmp_path / "url"), "command": ["/bin/true"]}
    ways = channels_of(settings(**keys))
    assert [*ways] == [*CHANNELS.own]
    assert [(name, type(way)) for name, way in ways.items()] == [(n, CHANNELS.load(n)) for n in CHANNELS.own]
    assert channels_of(settings()) == {}


@pytest.mark.usefixtures("diary")
def test_a_channel_of_a_sites_own_gets_its_settings_and_the_events_it_takes(tmp_path):
    file = tmp_path / "diary.txt"
    config = config_of({"messages": {"channels": {"diary": {"file": str(file), "kinds": ["paused"]}}}})
    assert config.messages.configured
    me = Messenger(store := Store(tmp_path / "s.db"), clock := Clock(), config, Courier())
    assert sample(me, "notifications_total", channel="diary", outcome="sent") == 0

    async def run() -> None:
        for title in ("t", "a riddle", "too much"):
            me.tell(Event(title, "paused", clock.now(), title, "x"))
        me.tell(EVENT)
        await me.flush(30)

    asyncio.run(run())
    assert file.read_text() == "t\n"
    assert [(m["key"], m["state"], m["outcome"]) for m in store.messages.latest()] == [
        ("t", "sent", ""), ("too much", "open", "a fault: RuntimeError"),
    ]  # fmt: skip
    assert sample(me, "notifications_total", channel="diary", outcome="sent") == 1
    assert sample(me, "notifications_total", channel="mail", outcome="sent") == 0


@pytest.mark.usefixtures("diary")
def test_the_commands_know_such_a_channel_by_its_name(tmp_path):
    good, bad = {"file": str(tmp_path / "diary.txt")}, {"file": str(tmp_path / "missing" / "diary.txt")}
    with configured(tmp_path, channels={"diary": good}) as environment:
        assert CliRunner().invoke(cli, ["message", "test"], env=environment).output == "diary: sent\n"
        assert CliRunner().invoke(cli, ["config", "check"], env=environment).exit_code == 0
        assert "diary:" in CliRunner().invoke(cli, ["config", "show"], env=environment).output
    with configured(tmp_path, channels={"diary": bad}) as environment:
        done = CliRunner().invoke(cli, ["message", "test"], env=environment)
        assert (done.exit_code, done.output) == (1, "diary: there is no such folder\n")


@pytest.mark.usefixtures("diary")
@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("diary", {"file": "here"}, "'diary' cannot be loaded: ValueError('a diary has an absolute path')"),
        ("diary", {"fiel": "/here"}, "unexpected keyword argument 'fiel'"),
        ("mute", {}, "the channel 'mute' lacks what it must have: `deliver`"),
        ("other", {"file": "/here"}, "its `name` must be 'other'"),
        ("diray", {}, "no channel 'diray' is installed (installed: mail, webhook, command, diary, mute, other)"),
        ("webhook", {"path": "/x"}, "'webhook' comes with Penstock: set `messages.webhook` instead"),
    ],
)
def test_one_that_will_not_do_is_a_wrong_configuration_everywhere(tmp_path, name, keys, said):
    with configured(tmp_path, channels={name: keys}) as environment:
        config = load(Path(environment["PENSTOCK_CONFIG"]), {})
        done = CliRunner().invoke(cli, ["config", "check"], env=environment)
        for error in (done.exception, refused(lambda: channels_of(config.messages)), refused(lambda: check(config))):
            assert isinstance(error, ConfigError) and said in str(error)
        assert str(done.exception).startswith(f"{environment['PENSTOCK_CONFIG']}:")
        assert str(refused(lambda: check(config))).startswith("`messages.channels`: ")


def refused(call) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value


@pytest.mark.usefixtures("diary")
def test_a_reload_with_a_broken_channel_leaves_the_ways_as_they_are(tmp_path):
    good = config_of({"messages": {"channels": {"diary": {"file": "/here"}}}})
    me = Messenger(Store(tmp_path / "s.db"), Clock(), good, Told())
    with pytest.raises(ConfigError):
        me.configure(config_of({"messages": {"channels": {"nope": {}}, "per_hour": 1}}))
    assert [*me.channels] == ["diary"] and me.outbox.per_hour == 30


@pytest.mark.usefixtures("diary")
def test_the_doctor_names_it_or_says_what_is_wrong_with_it():
    def told(**channels):
        return ways_of(config_of({"messages": {"channels": channels}}))

    assert told(diary={"file": "/here"}) == "the channel diary"
    with pytest.raises(ConfigError, match="no channel 'nope'"):
        told(nope={})


# -- commands and configuration ----------------------------------------------------------------------------------------


@contextmanager
def configured(tmp_path: Path, **messages) -> Iterator[dict[str, str]]:
    file = tmp_path / "penstock.yaml"
    state = tmp_path / "state"
    file.write_text(json.dumps({"agent": {"state_dir": str(state)}, "messages": messages}))
    yield {"PENSTOCK_CONFIG": str(file), "COLUMNS": "200"}


def test_the_command_tries_every_way_and_says_what_became_of_it(hook, tmp_path):
    url = secret(tmp_path / "url", f"http://127.0.0.1:{hook.server_port}/")
    with configured(tmp_path, webhook=str(url), command=["/bin/false"]) as environment:
        done = CliRunner().invoke(cli, ["message", "test"], env=environment)
        assert done.exit_code == 1 and "webhook: sent" in done.output and "command: false ended with 1" in done.output
        assert hook.got[0][1]["kind"] == "test"
        told = json.loads(CliRunner().invoke(cli, ["message", "test", "--json"], env=environment).output)["tests"]
        assert [(t["channel"], t["sent"]) for t in told] == [("webhook", True), ("command", False)]
    with configured(tmp_path) as environment:
        done = CliRunner().invoke(cli, ["message", "test"], env=environment)
        assert "no way is configured" in str(done.exception)


def test_what_became_of_messages_is_listed(tmp_path):
    with configured(tmp_path) as environment:
        done = CliRunner().invoke(cli, ["message", "list"], env=environment)
        assert "no agent has run yet" in str(done.exception)
        (tmp_path / "state").mkdir()
        store, told, clock = Store(tmp_path / "state" / "penstock.db"), Told(), Clock()
        told.error = Undelivered("nobody there", final=True)
        me = messenger(store, told, clock)
        me.tell(EVENT)
        me.step()
        store.close()
        done = CliRunner().invoke(cli, ["message", "list"], env=environment)
        assert done.exit_code == 0, done.output
        assert "stage a has failed" in done.output and "nobody there" in done.output
        (row,) = json.loads(CliRunner().invoke(cli, ["message", "list", "--json"], env=environment).output)["messages"]
        assert (row["state"], row["tries"]) == ("failed", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mail: smtp", "needs `smtp: HOST:PORT`"),
        ("smtp: nowhere", "`messages.smtp`"),
        ("mail_to: 'a b'", "`messages.mail_to`"),
        ("mail_to: -oops", "`messages.mail_to`"),
        ("command: rm -rf", "`messages.command`"),
        ("command: []", "`messages.command`"),
        ("events: [all]", "`messages.events.0`"),
        ("timeout: 0", "`messages.timeout`"),
        ("webhok: /x", "did you mean `webhook`?"),
        ("channels: {chat: 5}", "`messages.channels.chat`"),
        ("channels: {'a chat': {}}", "`messages.channels.a chat"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path, text, said):
    file = tmp_path / "penstock.yaml"
    file.write_text(f"messages: {{{text}}}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert said in str(caught.value)


def test_slurms_mail_domain_is_read():
    plain = (
        "SLURM_VERSION = 22.05.8\nClusterName = c\nSelectType = select/linear\nPriorityType = priority/basic\n"
        "MinJobAge = 300 sec\nMailDomain = {}\n"
    )
    assert site_from_text(plain.format("hpc.example")).mail_domain == "hpc.example"
    assert site_from_text(plain.format("(null)")).mail_domain == ""


def test_the_state_file_stays_its_owners(tmp_path):
    Store(tmp_path / "s.db").close()
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600
