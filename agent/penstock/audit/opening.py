"""The audit trails of this user: that of an agent, and that of the user's own commands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.audit.auditor import AgentLog, Auditor, AuditSink
from penstock.audit.chain import ChainHead
from penstock.audit.journal import SystemLog
from penstock.audit.record import Door, Record, RecordKind, RecordOutcome
from penstock.audit.trail import Trail
from penstock.config import Config
from penstock.errors import AuditUnwritable, PenstockError
from penstock.host.logins import login
from penstock.state.leadership import make_folder
from penstock.state.ownership import acts_path
from penstock.state.store import Store

__all__ = ["HEAD", "agent_auditor", "known_head", "own_auditor", "own_trail_folder", "tell_of_command"]

HEAD: Final = "audit.head"
"""The fact in the state file that holds how far the chain was when it was anchored last."""


def agent_auditor(config: Config, store: Store, now: Callable[[], float]) -> Auditor:
    """For whoever holds the state: an agent, or a tick."""
    folder = config.agent.state_dir
    trail = _trail(config, folder, now, known_head(store))
    log = SystemLog(trail.path)
    listener: AuditSink = log if log.way else AgentLog()
    return Auditor(trail, now, listener, on_anchor=lambda head: store.facts.remember(HEAD, str(head)))


def known_head(store: Store) -> ChainHead | None:
    """How far the chain is at least, as the state file has it. Raises StoreError."""
    try:
        return ChainHead.parse(store.facts.get(HEAD) or "")
    except ValueError:
        return None


def own_trail_folder(config: Config) -> Path:
    """Where what this user's own commands do is recorded. Raises ConfigError where that place is not known."""
    return acts_path(config).parent


def own_auditor(config: Config, now: Callable[[], float]) -> Auditor:
    """For a command that acts as this user. Raises ConfigError or StoreError where its folder cannot be used."""
    trail = _own_trail(config, now)
    return Auditor(trail, now, SystemLog(trail.path), door=Door.COMMAND)


def tell_of_command(
    config: Config, verb: str, outcome: RecordOutcome, code: str, text: str, job: int | None, subject: str
) -> str:
    """Record what a command has done to Slurm as this user; why it could not be recorded, or empty."""
    uid = os.geteuid()
    record = Record(
        time.time(), RecordKind.ACT, verb, outcome, code, Door.COMMAND, uid, login(uid), uid, job, subject, text=text
    )
    try:
        trail = _own_trail(config, time.time)
        log = SystemLog(trail.path)
        try:
            for written in trail.append([record]):
                log.record(written.record, written.head)
        except AuditUnwritable:
            log.record(record, None)
            raise
        finally:
            trail.close()
            log.close()
    except PenstockError as e:
        return str(e)
    return ""


def _own_trail(config: Config, now: Callable[[], float]) -> Trail:
    folder = own_trail_folder(config)
    make_folder(folder)
    return _trail(config, folder, now, None)


def _trail(config: Config, folder: Path, now: Callable[[], float], known: ChainHead | None) -> Trail:
    return Trail(folder, size=config.audit.file_size, keep=config.audit.files, now=now, known=known)
