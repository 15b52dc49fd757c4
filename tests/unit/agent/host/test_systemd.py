"""The units, as systemd itself judges them, and what the agent tells systemd."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outside import need_program
from penstock.config import Config
from penstock.errors import ConfigError, LeaseLost, SlurmUnavailable, StateHeld, StateRefused, StoreError, UserError
from penstock.host import sdnotify
from penstock.site import VIEW_SOCKET
from penstock_lab.agent_world import World, virtual
from penstock_lab.mock import control
from penstock_lab.mock.model import ClusterConfig
from places import PROJECT

UNITS = PROJECT / "systemd"


# -- the units ---------------------------------------------------------------------------------------------------------


def analyze(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [need_program("systemd-analyze", "systemd"), "--no-pager", *words]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.parametrize(
    ("name", "manager"),
    [
        ("penstock.service", "--system"),
        ("penstock-site-view.service", "--system"),
        ("penstock-user.service", "--user"),
    ],
)
def test_systemd_finds_no_fault_with_the_units(tmp_path, name, manager):
    # It looks for the program, which is not installed here.
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", (UNITS / name).read_text())
    (tmp_path / name).write_text(text)
    done = analyze("verify", "--man=no", manager, str(tmp_path / name), folder=tmp_path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["penstock.service", "penstock-site-view.service"])
def test_the_system_units_are_exposed_by_no_more_than_2(tmp_path, name):
    done = analyze("security", "--offline=true", "--threshold=20", str(UNITS / name), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"Overall exposure level for {name}: [01]\.\d", done.stdout)


def settings(name: str) -> dict[str, str]:
    lines = (line for line in (UNITS / name).read_text().splitlines() if not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_what_the_agent_counts_on_is_in_the_units():
    system, user = settings("penstock.service"), settings("penstock-user.service")
    for unit in (system, user):
        assert (unit["Type"], unit["WatchdogSec"]) == ("notify", "15min")
        final = {error.exit_code for error in (UserError, StateRefused, ConfigError)}
        assert {int(code) for code in unit["RestartPreventExitStatus"].split()} == final
        # What passes: another agent (also one that has taken over), no Slurm, a full disk.
        passing = {error.exit_code for error in (StateHeld, SlurmUnavailable, StoreError, LeaseLost)}
        assert not passing & final
    assert system["User"] == "penstock" and "PrivateUsers" not in system
    view = settings("penstock-site-view.service")
    assert (view["User"], view["RuntimeDirectory"]) == (Config().slurm.view_user, Path(VIEW_SOCKET).parent.name)
    assert view["Type"] == "notify" and {UserError.exit_code, ConfigError.exit_code} == {
        int(code) for code in view["RestartPreventExitStatus"].split()
    }
    # Slurm hands these on to the jobs that are submitted.
    assert not {"UMask", "LimitNOFILE"} & user.keys()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users and folders of others")
def test_the_user_of_the_view_is_made(tmp_path):
    (tmp_path / "etc").mkdir()
    file = str(UNITS / "penstock-site-view.sysusers")
    words = [need_program("systemd-sysusers", "systemd"), f"--root={tmp_path}", file]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    name, *_, home, shell = (tmp_path / "etc/passwd").read_text().strip().split(":")
    assert (name, home, shell) == (Config().slurm.view_user, "/", "/usr/sbin/nologin")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users and folders of others")
def test_the_service_user_and_its_folders_are_made(tmp_path):
    (tmp_path / "etc").mkdir()
    for program, more, file in (
        ("systemd-sysusers", [], "penstock.sysusers"),
        ("systemd-tmpfiles", ["--create"], "penstock.tmpfiles"),
    ):
        words = [need_program(program, "systemd"), *more, f"--root={tmp_path}", str(UNITS / file)]
        subprocess.run(words, check=True, capture_output=True, timeout=60)
    (line,) = (tmp_path / "etc/passwd").read_text().splitlines()
    name, _, uid, _gid, _, home, shell = line.split(":")
    assert (name, home, shell) == ("penstock", "/var/lib/penstock", "/usr/sbin/nologin")
    state = (tmp_path / "var/lib/penstock").stat()
    assert (str(state.st_uid), oct(state.st_mode)) == (uid, "0o40700")
    assert oct((tmp_path / "etc/penstock").stat().st_mode) == "0o40755"


# -- the protocol ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_a_message_reaches_either_kind_of_socket(tmp_path, monkeypatch, abstract):
    name = f"penstock-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name if abstract else name)
        sdnotify.notify("READY=1")
        assert manager.recv(100) == b"READY=1"
    sdnotify.notify("READY=1")  # nobody listens any more: no matter
    monkeypatch.delenv("NOTIFY_SOCKET")
    sdnotify.notify("READY=1")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, math.inf),
        ({"WATCHDOG_USEC": "900000000"}, 900.0),
        ({"WATCHDOG_USEC": "900000000", "WATCHDOG_PID": str(os.getpid())}, 900.0),
        ({"WATCHDOG_USEC": "900000000", "WATCHDOG_PID": "1"}, math.inf),
        ({"WATCHDOG_USEC": "0"}, math.inf),
        ({"WATCHDOG_USEC": "soon"}, math.inf),
    ],
)
def test_the_watchdog_is_heard_of_from_the_environment(environ, seconds):
    assert sdnotify.watchdog(environ) == seconds


@pytest.mark.usefixtures("quick_and_quiet")
@virtual
async def test_the_watchdog_is_fed_by_finished_passes_and_nothing_else(tmp_path):
    world = World(tmp_path)
    await world.boot()
    loop, said = world.app.loop, []
    patch = pytest.MonkeyPatch()
    patch.setattr(sdnotify, "notify", said.append)
    running = asyncio.ensure_future(loop.run())
    try:
        while not said:
            await asyncio.sleep(0)
        assert (said, loop.passes) == (["WATCHDOG=1"], 1)
        world.store.close()  # as when the disk is full: no pass can be recorded
        loop.wake("test")
        end = time.monotonic() + 20
        while world.store.errors == 0:
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert (said, loop.passes) == (["WATCHDOG=1"], 1)
    finally:
        running.cancel()
        patch.undo()


@virtual
async def test_somebody_who_watches_is_not_kept_waiting_by_long_intervals(tmp_path):
    world = World(tmp_path, {"agent": {"interval": 7200, "idle_interval": 7200}})
    await world.boot()
    loop = world.app.loop
    await loop.one_pass()
    assert loop.next_pass() == world.now + 7200
    loop.longest_rest = 450.0
    assert loop.next_pass() == world.now + 450
    assert world.app.observer.last.usable


class Manager:
    """systemd's end of NOTIFY_SOCKET: the messages, in order."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.heard: list[str] = []

    def until(self, line: str, seconds: float = 60.0) -> str:
        """Wait for a message with a line that begins so; the whole message."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            try:
                message = self.socket.recv(4096).decode()
            except TimeoutError:
                raise AssertionError(f"no {line} after {self.heard}") from None
            self.heard.append(message)
            if any(part.startswith(line) for part in message.splitlines()):
                return message


@pytest.fixture
def manager(site, monkeypatch) -> Iterator[Manager]:
    path = site.folder / "notify"
    it = Manager(path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    yield it
    it.socket.close()
    path.unlink()


def count(heard: list[str], line: str) -> int:
    return sum(line in message.splitlines() for message in heard)


def test_the_agent_tells_systemd_how_it_is(site, manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    # Nothing to do and long intervals: the passes come for the watchdog alone.
    site.configure(agent={"interval": 3600, "idle_interval": 3600})
    site.start()
    manager.until("READY=1")
    assert count(manager.heard, "WATCHDOG=1") == 0, "ready before the first pass"
    for _ in range(3):
        manager.until("WATCHDOG=1", 20)

    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    site.process.send_signal(signal.SIGHUP)
    reloading = manager.until("RELOADING=1")
    at = int(re.search(r"(?m)^MONOTONIC_USEC=(\d+)$", reloading)[1])
    assert before <= at <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    manager.until("READY=1")
    good = site.config.read_text()
    site.config.write_text("agent: {interval: never}")
    site.process.send_signal(signal.SIGHUP)
    manager.until("RELOADING=1")
    manager.until("READY=1")  # the old configuration stays
    site.config.write_text(good)

    site.process.terminate()
    manager.until("STOPPING=1")
    assert site.process.wait(30) == 0
    assert count(manager.heard, "READY=1") == 3
    assert manager.heard[-1].startswith("STOPPING=1")


def test_a_wrong_configuration_ends_with_78_and_is_never_ready(site, manager):
    site.config.write_text("agent: {intervall: 1}")
    done = site.run("agent", NOTIFY_SOCKET=os.environ["NOTIFY_SOCKET"])
    assert done.returncode == 78
    assert "did you mean `interval`" in done.stderr
    manager.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        manager.socket.recv(100)


def test_it_is_not_ready_while_slurm_is_waited_for(site, manager):
    later = site.folder / "later"
    site.configure(slurm={"mock_socket": str(later / "mock.sock")})
    with site.log.open("ab") as log:
        command = [sys.executable, "-c", "from penstock.cli import main; main()", "agent"]
        site.process = subprocess.Popen(command, env=site.environment, stdout=log, stderr=log)
    manager.until("STATUS=waiting for Slurm: ")
    site.process.send_signal(signal.SIGHUP)
    site.until(lambda: "reloaded" in site.said(), "the reload")
    cluster = control.start(later, ClusterConfig(nodes=2))
    try:
        manager.until("READY=1")
        manager.until("WATCHDOG=1")
        assert site.stop() == 0
        manager.until("STOPPING=1")
        assert (count(manager.heard, "READY=1"), count(manager.heard[:-1], "RELOADING=1")) == (1, 0)
    finally:
        cluster.stop()
