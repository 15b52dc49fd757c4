"""Job and node states as Slurm's releases write them. Part of `parse`; a state that is unknown here becomes UNKNOWN."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from penstock.api import ASLEEP, JobState

__all__ = ["LONG_STATES", "SHORT_STATES", "NodeState", "parse_job_state", "parse_node_state"]

log = logging.getLogger(__name__)

SHORT_STATES = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM",
    "COMPLETING": "CG", "CONFIGURING": "CF", "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REQUEUED": "RQ",
    "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REVOKED": "RV", "SIGNALING": "SI", "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
"""Slurm's states, long and short, as all releases have them. The first twelve are what a job is in; the others are
marks upon these."""
LONG_STATES = {short: name for name, short in SHORT_STATES.items()}
_SOME_HAVE = {"EXPEDITING": "EX", "LAUNCH_FAILED": "LF", "POWER_UP_NODE": "PO"}
# REQUEUE_HOLD is requeued and held: in the queue, with priority 0. A job is so that failed with --requeue=expedite, or
# ended with a code of RequeueExitHold.
_STATES = {state.value: state for state in JobState} | {
    "SPECIAL_EXIT": JobState.REQUEUE_HOLD,
    "EXPEDITING": JobState.PENDING,  # to start again as the first
    "RESV_DEL_HOLD": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    # Phases of a job that still holds its nodes.
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.COMPLETING,
    "STOPPED": JobState.SUSPENDED,
    "POWER_UP_NODE": JobState.CONFIGURING,
    # Another cluster of the federation has the job; it could not be started.
    "REVOKED": JobState.CANCELLED,
    "LAUNCH_FAILED": JobState.FAILED,
    "RECONFIG_FAIL": JobState.FAILED,
}
_STATES |= {short: _STATES[name] for name, short in (SHORT_STATES | _SOME_HAVE).items()}
# In a combined state these say what is going on now, the rest how it came about.
_PHASES = (
    JobState.COMPLETING,
    JobState.CONFIGURING,
    JobState.RESIZING,
    JobState.REQUEUE_HOLD,
    JobState.PENDING,
)
_NO_STATES = frozenset({"UPDATE_DB"})  # what slurmctld notes for itself beside a state


_reported: set[tuple[str, str]] = set()
_MOST_REPORTS = 100  # whatever comes, the log does not grow for ever


def _unknown(what: str, word: str) -> None:
    """Say once in this process's life that Slurm wrote a word that is not known here."""
    if (what, word) not in _reported and len(_reported) < _MOST_REPORTS:
        _reported.add((what, word))
        log.warning("unknown %s %r: newer than this Penstock? It counts as UNKNOWN", what, word[:60])


def parse_job_state(text: str) -> JobState:
    """A job state, long or compact, also `CANCELLED by 1000` and combinations (`CANCELLED+COMPLETING`)."""
    words = text.strip().split(maxsplit=1)
    if not words:
        return JobState.UNKNOWN
    parts = [part for part in re.split(r"[+,|]", words[0].upper()) if part not in _NO_STATES]
    for part in parts:
        if part not in _STATES:
            _unknown("job state", part)
    states = [_STATES.get(part, JobState.UNKNOWN) for part in parts]
    for phase in _PHASES:
        if phase in states:
            return phase
    return next((state for state in states if state is not JobState.UNKNOWN), JobState.UNKNOWN)


_NODE_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_NODE_BASES = frozenset({"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"})
_NODE_WORDS = {
    "ALLOC": ("ALLOCATED",),
    "MIX": ("MIXED",),
    "COMP": ("ALLOCATED", "COMPLETING"),
    "COMPLETING": ("ALLOCATED", "COMPLETING"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRAINED": ("IDLE", "DRAIN"),
    "FAILG": ("ALLOCATED", "FAIL"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "MAINT": ("MAINTENANCE",),
    "RESV": ("RESERVED",),
    "PLND": ("PLANNED",),
    "INVAL": ("INVALID_REG",),
    "INVALID": ("INVALID_REG",),
    "NO_RESPOND": ("NOT_RESPONDING",),
    "UNK": ("UNKNOWN",),
    "FUTR": ("FUTURE",),
    "BLOCK": ("BLOCKED",),
    "RESM": ("RESUME",),
    "CANC_R": ("REBOOT_CANCEL",),
    "CANCEL_REBOOT": ("REBOOT_CANCEL",),
    "EXT": ("EXTERNAL",),
    "NPC": ("PERFCTRS",),
    "ERR": ("ERROR",),
    "POW_DN": ("POWER_DOWN",),
    "POW_UP": ("POWER_UP",),
    "POWRING_DN": ("POWERING_DOWN",),
    "POWERED_DN": ("POWERED_DOWN",),
    "BOOT": ("REBOOT_ISSUED",),
    "REBOOT": ("REBOOT_REQUESTED",),
}
# Words of sinfo for nodes that are idle besides.
_IDLE_WORDS = frozenset({"BLOCKED", "MAINTENANCE", "PERFCTRS", "PLANNED", "RESERVED"})
_USABLE_BASES = frozenset({"IDLE", "ALLOCATED", "MIXED"})
_HARMLESS = frozenset({"BLOCKED", "CLOUD", "COMPLETING", "DYNAMIC", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "PLANNED"}) | {
    "POWER_UP",  # asked for: what is off says so besides
    "REBOOT_CANCEL",
    "RESUME",
}
_SET_APART = frozenset({"RESERVED", "MAINTENANCE"})
_SOUND = _HARMLESS | _SET_APART | ASLEEP
_SOUND_ASLEEP = _SOUND | {"NOT_RESPONDING"}  # it does not answer, and need not
_NODE_FLAGS = (
    _SOUND
    | frozenset(_NODE_MARKS.values())
    | {"DRAIN", "EXTERNAL", "FAIL", "INVALID_REG", "PERFCTRS", "POWER_DRAIN", "UNDRAIN"}
)


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's base state (IDLE, ALLOCATED, MIXED, DOWN, ...) and its flags (DRAIN, NOT_RESPONDING, ...)."""

    base: str
    flags: frozenset[str]

    @property
    def usable(self) -> bool:
        """Whether jobs of anybody run or may start on it, if it is asleep once Slurm has woken it. A flag that is not
        known to be harmless says no.

        RESERVED says no as well: only jobs in that reservation may start there.
        """
        return self.sound and not self.flags & _SET_APART

    @property
    def sound(self) -> bool:
        """The same whoever it is reserved for."""
        return self.base in _USABLE_BASES and self.flags <= (_SOUND_ASLEEP if self.flags & ASLEEP else _SOUND)

    def __str__(self) -> str:
        return "+".join((self.base, *sorted(self.flags)))


def parse_node_state(text: str) -> NodeState:
    """A node state from scontrol (`IDLE+DRAIN`, `DOWN*+DRAIN`) or sinfo (`idle*`, `mix-`, `alloc+`, `drained`)."""
    said: list[str] = []
    implied: list[str] = []
    flags: set[str] = set()
    words = text.strip().upper()
    if words.endswith("+"):
        flags.add("COMPLETING")
    for raw in words.split("+"):
        word = raw
        while word and word[-1] in _NODE_MARKS:
            flags.add(_NODE_MARKS[word[-1]])
            word = word[:-1]
        parts = _NODE_WORDS.get(word, (word,))
        for part in filter(None, parts):
            if part in _NODE_BASES:
                # scontrol names the base beside a flag, as in IDLE+COMPLETING; in sinfo's word it lies in the word.
                (said if len(parts) == 1 else implied).append(part)
                continue
            flags.add(part)
            if part not in _NODE_FLAGS:
                _unknown("node state", part)
    base, *others = said or implied or ["IDLE" if flags & _IDLE_WORDS else "UNKNOWN"]
    return NodeState(base, frozenset(flags.union(others) - {base}))
