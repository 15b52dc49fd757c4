"""penstock off, penstock on: the way out, and back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.config import Config, find, load
from penstock.console.output import emit_json, plain
from penstock.console.times import Duration
from penstock.errors import AgentUnavailable, NotNow, NotPermitted, PenstockError
from penstock.host import logs
from penstock.ipc.client import ask, ask_agent
from penstock.state.ownership import owner

if TYPE_CHECKING:
    from penstock.shutdown.units import Unit

__all__ = ["off", "on"]

_WAIT: Final = 120.0
_LOOK: Final = 0.5
_GONE: Final = 40.0  # seconds that an agent may take to end
_HEADS: Final = {
    "left": "Left in Slurm:",
    "alone": "Goes on by itself:",
    "waits": "Waits for `penstock on`:",
}


@click.command()
@click.option("--why", default="", metavar="TEXT", help="Told wherever something waits for it.")
@click.option(
    "--timeout",
    "wait",
    type=Duration(0, 7 * 86400),
    default=_WAIT,
    metavar="TIME",
    help="How long to wait for what is being given back (bare: seconds).  [default: 2m]",
)
@click.option("--release", is_flag=True, help="Release stages that are kept back; their dependencies order them.")
@click.option("--drop-slots", is_flag=True, help="Give up the held slots that nobody uses.")
@click.option("--dry-run", is_flag=True, help="Say what there is, and change nothing.")
@click.option("--keep-units", is_flag=True, help="Leave the agent running; it answers, and begins nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--by", type=int, hidden=True, help="For whom (uid) root has this command run by the state's owner.")
@click.option("--unit", "units", multiple=True, hidden=True, help="A unit that was stopped for it.")
def off(
    why: str,
    wait: float,
    release: bool,
    drop_slots: bool,
    dry_run: bool,
    keep_units: bool,
    as_json: bool,
    by: int | None,
    units: tuple[str, ...],
) -> None:
    """Give everything back and stop, until `penstock on`.

    What Penstock holds in Slurm is given back, its agent ends, and nothing acts.

    Jobs are not harmed. Growths under way are taken back, programs are asked to give back nodes that other jobs hold
    for them, and jobs of workflows are made to do without an agent. Stages that are kept back in the queue are listed
    with what to type, and so is all else that is left.

    For the agent's user, root and operators. May be repeated, and needs no agent. Ends with 0 when nothing is left in
    Slurm, with 6 when something is.
    """
    config = load()
    logs.configure("error", config.log.format)
    if dry_run:
        told = _look(config)
        _finish({**told, "stopped": [], "type": [], "dry_run": True}, as_json)
        return
    asked = _Asked(why, release, drop_slots, os.geteuid() if by is None else by, units)
    told, stopped, todo = _turn_off(config, asked, wait, keep_units=keep_units, quiet=as_json)
    _finish({**told, "stopped": stopped, "type": todo, "dry_run": False}, as_json)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the options say; `by` whom (uid)."""

    why: str
    release: bool
    drop_slots: bool
    by: int
    units: tuple[str, ...] = ()

    @property
    def request(self) -> dict[str, Any]:
        """For the agent's door, which knows who asks."""
        return {"why": self.why, "release": self.release, "drop_slots": self.drop_slots}


# -- off ---------------------------------------------------------------------------------------------------------------


def _look(config: Config) -> dict[str, Any]:
    request = {"preview": True}
    try:
        told: dict[str, Any] = ask_agent(config, "left", request)
        return told
    except AgentUnavailable as e:
        if (whose := _other_owner(config, e)) is not None:
            return _as_owner(config, whose, ["off", "--dry-run", "--json"])
        # What is not needed where an agent answers, and slow to load.
        from penstock.admin.commands.off_alone import there_is_state
        from penstock.console.stand_in import answered

        if not there_is_state(config):
            return _nothing()
        alone: dict[str, Any] = answered(config, "left", request)
        return alone


def _nothing() -> dict[str, Any]:
    report = {"items": [], "pending": False}
    return {"off": None, "text": "", "unwritten": "", "settled": True, "problems": [], "report": report}


def _turn_off(
    config: Config, asked: _Asked, wait: float, *, keep_units: bool, quiet: bool
) -> tuple[dict[str, Any], list[str], list[str]]:
    """What is left, which units were stopped, and what is to be typed for the others."""
    from penstock.shutdown.units import running_as  # slow to load

    try:
        pid = int(ask_agent(config, "ping")["pid"])
    except AgentUnavailable as e:
        return _without_agent(config, asked, wait, e, keep_units=keep_units)
    unit = running_as(pid) if _is_here(config) else None
    units = [str(unit)] if unit is not None and not keep_units else []
    ask_agent(config, "off", {**asked.request, "units": units})
    told = _wait_for(config, wait, quiet=quiet)
    if keep_units or told["unwritten"]:  # an agent that ends would forget it
        return told, [], []
    return told, *_end(config, unit, pid)


def _is_here(config: Config) -> bool:
    """Whether the agent that answers runs on this host."""
    try:
        ask(config.socket_path, "ping")
    except PenstockError:
        return False
    return True


def _wait_for(config: Config, wait: float, *, quiet: bool) -> dict[str, Any]:
    deadline, said = time.monotonic() + wait, False
    try:
        while True:
            told: dict[str, Any] = ask_agent(config, "left")
            if told["settled"] or time.monotonic() >= deadline:
                return told
            if not said and not quiet and wait - (deadline - time.monotonic()) > 2 * _LOOK:
                said = True
                click.echo(f"penstock: waiting up to {wait:.0f} s for what is being given back", err=True)
            time.sleep(_LOOK)
    except KeyboardInterrupt:
        click.echo("penstock: it is off, and the agent goes on giving back; `penstock off` ends it then", err=True)
        raise


def _end(config: Config, unit: Unit | None, pid: int) -> tuple[list[str], list[str]]:
    """End the agent: by its unit where that is permitted, else by its door."""
    from penstock.shutdown.units import stop  # slow to load

    stopped: list[str] = []
    todo: list[str] = []
    if unit is not None and unit.mine:
        if why := stop(unit):
            todo.append(f"{' '.join(unit.command('disable', '--now'))}: {why}")
        else:
            stopped.append(unit.name)
    elif unit is not None and unit.enabled:
        todo.append(" ".join(unit.command("disable")))
    if unit is None or unit.name not in stopped:
        ask_agent(config, "end")
        stopped.append(f"agent {pid}")
    deadline = time.monotonic() + _GONE
    while _answers(config, pid):
        if time.monotonic() >= deadline:
            todo.append(f"kill {pid}")
            return [], todo
        time.sleep(_LOOK / 5)
    return stopped, todo


def _answers(config: Config, pid: int) -> bool:
    try:
        return int(ask_agent(config, "ping", timeout=5.0)["pid"]) == pid
    except PenstockError:
        return False


def _without_agent(
    config: Config, asked: _Asked, wait: float, unavailable: AgentUnavailable, *, keep_units: bool
) -> tuple[dict[str, Any], list[str], list[str]]:
    """By the state file itself. A unit whose agent does not answer (it waits for Slurm) has it: that goes first."""
    import asyncio

    from dmr.wire import clean
    from penstock.admin.commands.off_alone import drain_alone, there_is_state
    from penstock.core.off import Off
    from penstock.shutdown.units import SYSTEM, USER, Unit, installed, stop  # slow to load

    whose = _other_owner(config, unavailable)
    mine = SYSTEM if os.geteuid() == 0 else USER
    unit = None if keep_units else installed(mine)
    stopped: list[str] = []
    todo: list[str] = []
    if unit is not None:
        if why := stop(unit):
            todo.append(f"{' '.join(unit.command('disable', '--now'))}: {why}")
        else:
            stopped.append(unit.name)
    units = [str(unit)] if unit is not None else []
    if whose is not None:
        words = ["off", "--json", "--keep-units", "--timeout", f"{wait:g}", "--why", asked.why, "--by", str(asked.by)]
        words += ["--release"] * asked.release + ["--drop-slots"] * asked.drop_slots
        words += [word for text in units for word in ("--unit", text)]
        return _as_owner(config, whose, words), stopped, todo
    if not there_is_state(config):
        return _nothing(), stopped, todo
    known = tuple(str(Unit.read(text)) for text in (*units, *asked.units))
    order = Off(asked.by, time.time(), clean(asked.why), asked.release, asked.drop_slots, known)
    return asyncio.run(drain_alone(config, order, wait)), stopped, todo


# -- root, for the user whose state it is ------------------------------------------------------------------------------


def _other_owner(config: Config, unavailable: AgentUnavailable) -> int | None:
    """The user whose state it is, where that is not the caller and the caller is root. Raises what was raised before
    where the caller is neither."""
    folder = config.agent.state_dir
    whose = owner(folder)
    try:
        if not folder.exists() or whose == os.geteuid():
            return None
    except OSError:  # a folder above it is closed to the caller
        raise unavailable from None
    if os.geteuid() != 0 or whose is None:
        raise unavailable
    return whose


def _as_owner(config: Config, uid: int, words: Sequence[str]) -> dict[str, Any]:
    """This command as that user, who alone may write the state; what it printed."""
    import json
    import pwd

    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        raise NotPermitted(f"{config.agent.state_dir} belongs to user id {uid}, which is not known here") from None
    found = find()
    environment = {
        **{k: v for k, v in os.environ.items() if k != "XDG_STATE_HOME" and k != "XDG_CONFIG_HOME"},
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        **({"PENSTOCK_CONFIG": str(found)} if found is not None else {}),
    }
    isolated = ["-I"] if sys.flags.isolated else []
    done = subprocess.run(
        [sys.executable, *isolated, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        user=uid,
        group=user.pw_gid,
        extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
        check=False,
    )
    if done.returncode not in (0, NotNow.exit_code) or not done.stdout.strip():
        said = done.stderr.strip().removeprefix("penstock: ") or f"it ended with {done.returncode}"
        error = NotNow if done.returncode == NotNow.exit_code else PenstockError
        raise error(f"as user {user.pw_name}: {said}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


# -- what is printed ---------------------------------------------------------------------------------------------------


def _finish(told: Mapping[str, Any], as_json: bool) -> None:
    """Print it, and end with 6 where something is left."""
    report = told["report"]
    items = report["items"] if report else []
    unknown = report is None or bool(told["problems"])
    clear = not unknown and not any(item["place"] == "left" for item in items)
    if as_json:
        emit_json({**told, "nothing_left": clear})
    else:
        _print(told, items, unknown=unknown)
    if not clear and not told["dry_run"]:
        raise click.exceptions.Exit(NotNow.exit_code)


def _print(told: Mapping[str, Any], items: Sequence[Mapping[str, Any]], *, unknown: bool) -> None:
    click.echo(plain(told["text"]) if told["text"] else "Penstock is on." if told["dry_run"] else "Penstock is off.")
    if told["unwritten"]:
        click.echo(plain(f"penstock: {told['unwritten']}"), err=True)
        click.echo("penstock: so the agent is left running; type `penstock off` again when there is room", err=True)
    for problem in told["problems"]:
        click.echo(plain(f"penstock: {problem}"), err=True)
    for place, head in _HEADS.items():
        found = [item for item in items if item["place"] == place]
        if not found:
            continue
        click.echo(f"\n{head}")
        for item in found:
            still = " (being given back)" if item["pending"] and not told["dry_run"] else ""
            click.echo(plain(f"  {item['user']}: {item['text']}{still}"))
            for each in item["todo"]:
                note = f"   # {each['note']}" if each["note"] else ""
                click.echo(plain(f"      {each['command']}{note}"))
    if unknown:
        click.echo("What is left in Slurm is not known: it does not answer. Type `penstock off` again when it does.")
    elif not any(item["place"] == "left" for item in items):
        click.echo("Nothing of Penstock's is left in Slurm.")
    if told["stopped"]:
        click.echo(f"Stopped: {', '.join(told['stopped'])}")
    for text in told["type"]:
        click.echo(plain(f"Still to be done: {text}"), err=True)


# -- on ----------------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def on(as_json: bool) -> None:
    """Take up again what `penstock off` has ended.

    The units that it stopped are started.
    """
    import asyncio

    from penstock.core.off import Off
    from penstock.shutdown.units import Unit, start  # slow to load

    config = load()
    logs.configure("error", config.log.format)
    answers = True
    try:
        told = ask_agent(config, "on")["off"]
        order = None if told is None else Off.from_dict(told)
    except AgentUnavailable as e:
        answers = False
        if (whose := _other_owner(config, e)) is not None:
            stored = _as_owner(config, whose, ["on", "--json"])["off"]
            order = None if stored is None else Off.from_dict(stored)
        else:
            from penstock.admin.commands.off_alone import lift_alone, there_is_state

            order = asyncio.run(lift_alone(config)) if there_is_state(config) else None
    started: list[str] = []
    todo: list[str] = []
    for unit in () if order is None else map(Unit.read, order.units):
        if not unit.mine:
            todo.append(" ".join(unit.command(*(("enable", "--now") if unit.enabled else ("start",)))))
        elif why := start(unit):
            todo.append(f"{' '.join(unit.command('start'))}: {why}")
        else:
            started.append(unit.name)
    if as_json:
        emit_json({"off": None if order is None else order.to_dict(), "started": started, "type": todo})
        return
    click.echo("Penstock is on." if order is not None else "Penstock was not off.")
    if started:
        click.echo(f"Started: {', '.join(started)}")
    for text in todo:
        click.echo(plain(f"Still to be done: {text}"), err=True)
    if order is not None and not answers and not order.units:
        click.echo("No agent runs: start it as before, with `penstock agent`, or let `penstock tick` go on")
