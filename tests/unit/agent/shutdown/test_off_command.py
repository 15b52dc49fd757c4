"""penstock off and on as commands: with an agent, without one, repeated, killed in between, what others say then."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from conftest import COMMAND, AgentSite
from penstock.admin.commands.off import _other_owner
from penstock.config import config_of
from penstock.core.off import off_in
from penstock.errors import AgentUnavailable
from penstock.ipc.client import ask
from penstock.shutdown.units import Unit, known_unit, running_as
from penstock.state.store import Store
from places import PROJECT

PRERM = PROJECT / "deploy" / "debian" / "prerm"
FLOW = """
name: slow
stages:
  - {name: a, nodes: 1, time: 60, expect: 15, run: sleep 15}
  - {name: b, nodes: 1, time: 60, expect: 1, run: "true", after: a}
"""


def fresh(site: AgentSite) -> AgentSite:
    """A site whose agent runs, with a state of its own, on."""
    if site.process is not None and site.process.poll() is None:
        site.stop()
    shutil.rmtree(site.folder / "agent", ignore_errors=True)
    site.start()
    (site.folder / "w.yaml").write_text(FLOW)
    return site


def said(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout


def test_off_ends_the_agent_and_on_takes_its_work_up_again(site: AgentSite) -> None:
    agent = fresh(site)
    said(agent.run("submit", "w.yaml", "--strategy", "perstage"))
    agent.until(lambda: any(n.startswith("a.") for n in agent.names()), "the first job")
    looked = json.loads(said(agent.run("off", "--dry-run", "--json")))
    assert looked["off"] is None and [i["place"] for i in looked["report"]["items"]] == ["alone", "waits"]
    assert agent.answers(), "a dry run changes nothing"
    assert ask(agent.socket, "left")["off"] is None

    told = said(agent.run("off", "--why", "maintenance"))
    assert "turned off at" in told and "maintenance" in told and "Nothing of Penstock's is left in Slurm." in told
    assert "not submitted yet: b" in told and f"Stopped: agent {agent.process.pid}" in told
    assert agent.process.wait(30) == 0, "an end that systemd does not take for a failure"

    # What others say, and do not do.
    status = agent.run("status")
    assert "Penstock was turned off at" in status.stderr and "maintenance" in status.stderr and "slow" in said(status)
    refused = agent.run("submit", "w.yaml", "--tick")
    assert (
        refused.returncode == 6 and "Penstock was turned off at" in refused.stderr and "penstock on" in refused.stderr
    )
    plain = agent.run("submit", "w.yaml")
    assert plain.returncode == 6 and "Penstock was turned off at" in plain.stderr and "penstock on" in plain.stderr
    ticked = agent.run("tick")
    assert (ticked.returncode, ticked.stdout, ticked.stderr) == (0, "", "")
    assert "Penstock was turned off at" in said(agent.run("tick", "-v"))
    (check,) = [c for c in json.loads(agent.run("doctor", "--json").stdout)["checks"] if c["id"] == "agent"]
    assert "Penstock was turned off at" in check["seen"] and "penstock on" in check["change"]

    # Again, without an agent: harmless, and the first order stays.
    again = json.loads(said(agent.run("off", "--json")))
    assert again["off"]["why"] == "maintenance" and again["nothing_left"]

    # Started by hand it answers, and begins nothing.
    agent.start()
    assert ask(agent.socket, "status")["problems"][0].startswith("Penstock was turned off at")
    passes = time.monotonic() + 3
    agent.until(lambda: time.monotonic() > passes, "some passes")
    assert [n for n in agent.names() if n.startswith("b.")] == []
    assert "Penstock is on." in said(agent.run("on"))
    agent.until(lambda: ask(agent.socket, "status")["workflows"][-1]["phase"] == "completed", "the workflow's end")
    assert sorted(n.split(".")[0] for n in agent.names() if n.endswith(".slow")) == ["a", "b"]
    assert "was not off" in said(agent.run("on"))


def test_what_is_submitted_while_all_is_off_is_told_so(site: AgentSite) -> None:
    """Not that no agent answers: who is told that starts one."""
    agent = fresh(site)
    said(agent.run("off"))
    for words in (["submit", "w.yaml"], ["submit", "w.yaml", "--tick"]):
        refused = agent.run(*words)
        assert (refused.returncode, refused.stdout) == (6, ""), refused.stderr
        assert "Penstock was turned off at" in refused.stderr and "penstock on" in refused.stderr
    said(agent.run("on"))


@pytest.mark.long
def test_off_and_on_without_an_agent_and_killed_in_between(site: AgentSite) -> None:
    agent = fresh(site)
    said(agent.run("submit", "w.yaml", "--strategy", "perstage"))
    agent.stop(signal.SIGKILL)
    for delay in (0.3, 1.0, 1.6):  # somewhere between its first line and its last
        begun = subprocess.Popen([*COMMAND, "off"], env=agent.environment, cwd=agent.folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + delay
        agent.until(lambda at=deadline: time.monotonic() > at, "the moment")
        begun.kill()
        begun.wait(10)
    assert "Nothing of Penstock's is left in Slurm." in said(agent.run("off", "--why", "gone"))
    with closing(Store.read_only(agent.folder / "agent" / "penstock.db")) as store:
        off = off_in(store)
    assert off is not None and off.by == os.geteuid()
    told = said(agent.run("on"))
    assert "Penstock is on." in told and "penstock agent" in told
    agent.start()
    agent.until(lambda: ask(agent.socket, "status")["workflows"][-1]["phase"] == "completed", "the workflow's end")


@pytest.mark.long
def test_where_there_never_was_anything_there_is_nothing_to_do(site: AgentSite, tmp_path: Path) -> None:
    state = tmp_path / "none"
    for words in (["off"], ["off", "--dry-run"], ["on"]):
        done = site.run(*words, PENSTOCK_AGENT__STATE_DIR=str(state))
        said(done)
    assert not state.exists(), "nothing is made for it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts in the name of another user")
@pytest.mark.long
def test_root_turns_off_the_state_of_a_service_user_in_its_name(site: AgentSite) -> None:
    """Without an agent, and here without an answer of Slurm: the order lasts, and what is left is not known."""
    state = site.folder / "service"
    state.mkdir()
    with closing(Store(state / "penstock.db")):
        pass
    for path in (state, state / "penstock.db"):
        os.chown(path, 65534, 65534)
    more = {"PENSTOCK_AGENT__STATE_DIR": str(state), "PENSTOCK_SLURM__MOCK_SOCKET": str(site.folder / "none.sock")}
    config = site.config.stat().st_mode
    site.config.chmod(0o644)
    done = site.run("off", "--timeout", "1", "--why", "it goes", **more)
    assert done.returncode == 6 and "by root: it goes" in done.stdout and "is not known" in done.stdout, done.stderr
    assert {path.stat().st_uid for path in state.iterdir()} == {65534}, "its owner can still open it"
    assert site.run("off", "--dry-run", **more).returncode == 6
    assert "Penstock is on." in said(site.run("on", **more))
    site.config.chmod(config)


def test_wrong_words_are_told(site: AgentSite) -> None:
    for words in (["--timeout", "never"], ["--timeout", "-1"]):
        done = site.run("off", *words)
        assert done.returncode == 2 and "--timeout" in done.stderr, done.stderr


# -- units -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("0::/system.slice/penstock.service\n", ("system", "penstock.service")),
        (
            "0::/user.slice/user-5.slice/user@5.service/app.slice/penstock-user.service\n",
            ("user", "penstock-user.service"),
        ),
        ("12:pids:/system.slice/penstock.service\n0::/\n", ("system", "penstock.service")),
        ("0::/user.slice/user-5.slice/session-3.scope\n", None),
        ("0::/system.slice/ssh.service\n", None),
        ("0::/user.slice/user-5.slice/user@5.service/app.slice/org.gnome.Terminal.service\n", None),
    ],
)
def test_the_unit_of_a_process_is_read_from_its_control_group(tmp_path, lines, found):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(lines)
    unit = running_as(7, tmp_path)
    assert (None if unit is None else (unit.manager, unit.name)) == found
    assert running_as(8, tmp_path) is None


@pytest.mark.parametrize(
    "text", ["system sshd.service enabled", "root penstock.service enabled", "system penstock.service", 7]
)
def test_only_units_of_penstock_are_kept_as_root_will_start_them(text):
    assert not known_unit(text)
    with pytest.raises(ValueError, match="not a unit"):
        Unit.read(str(text))
    assert Unit.read("user penstock-user.service enabled") == Unit("user", "penstock-user.service", True)


# -- the package's removal ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["well", "fails", "missing"])
@pytest.mark.parametrize("what", ["remove", "upgrade"])
def test_removing_the_package_turns_it_off_and_never_waits_for_long(tmp_path, how, what):
    """With the paths that it names below a folder, and stand-ins for the programs that it runs."""
    state = tmp_path / "penstock.db"
    state.write_text("a state")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, text in {
        "penstock": f'echo "$PENSTOCK_CONFIG $*" >>{tmp_path}/called; exit {0 if how == "well" else 6}',
        "systemctl": f'echo "systemctl $*" >>{tmp_path}/called',
    }.items():
        if name != "penstock" or how != "missing":
            (bin_ / name).write_text(f"#!/bin/sh\n{text}\n")
            (bin_ / name).chmod(0o755)
    script = PRERM.read_text().replace("/var/lib/penstock/penstock.db", str(state))
    assert script != PRERM.read_text()
    environment = {"PATH": f"{bin_}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", script, "prerm", what], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_text() if (tmp_path / "called").exists() else ""
    asked = "/etc/penstock/penstock.yaml off --timeout 60 --why the package is removed\n"
    assert (asked in called) is (what == "remove" and how != "missing")
    assert ("systemctl disable penstock.service" in called) is (what == "remove")
    assert ("install.md" in done.stderr) is (what == "remove" and how != "well")


def test_the_removal_gives_up_on_a_command_that_hangs():
    (limit,) = [line for line in PRERM.read_text().splitlines() if "timeout --kill" in line]
    assert "timeout --kill-after=10 180" in limit


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_state_in_a_folder_that_is_closed_to_the_caller_is_said_to_have_no_agent_that_answers(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    config = config_of({"agent": {"state_dir": str(closed / "state")}})
    os.seteuid(65534)
    try:
        with pytest.raises(AgentUnavailable, match="nobody answers"):
            _other_owner(config, AgentUnavailable("nobody answers"))
    finally:
        os.seteuid(0)
