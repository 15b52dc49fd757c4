"""What all jobs have in common, whoever submitted them: when accounting is asked about one, and whether one ever ran.

Pure."""

from __future__ import annotations

from typing import Final

from penstock.api import JobState
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.turn import Turn
from penstock.workflow.state import StageRun

__all__ = ["UNSEEN_PAUSE", "UNSEEN_TRIES", "ask_again", "look_up", "ran"]

# Ends that a job can meet without having run; Slurm then gives the moment of the end as its start.
_WITHOUT_RUNNING: Final = frozenset({JobState.CANCELLED, JobState.DEADLINE, JobState.BOOT_FAIL})
UNSEEN_PAUSE: Final = 15.0
"""Of a job that nobody but its owner has ever spoken of accounting is asked at once, then after so long (s), twice
that, and so on; it may be behind the queue for a while."""
UNSEEN_TRIES: Final = 5
"""How often accounting is asked of a job that nobody but its owner has ever spoken of, or that is to be cancelled."""
# One that was seen has an end that accounting will know: it is asked ever more rarely, about the agent's own less so.
_SEEN_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 3600.0
_LONGEST_OF_OWN: Final = 60.0


def look_up(turn: Turn, stage: StageRun) -> None:
    """The job is not in the queue: have accounting asked, if that is due."""
    assert stage.job is not None
    turn.note(stage.name, "not-seen", f"job {stage.job} is not in the queue: accounting is asked how it ended")
    due = ask_again(stage)
    # Where the clock was set back, nobody can tell how long ago it was.
    if due is None or not (stage.asked_at or 0.0) <= turn.now < due:
        turn.lookups.add(stage.job)


def ask_again(stage: StageRun) -> float | None:
    """When accounting is to be asked (again) what became of a job that is not in the queue; None: now."""
    if stage.asked_at is None:
        return None
    unseen = stage.own is not None and stage.submitted is None
    first, longest = (
        (UNSEEN_PAUSE if unseen else _SEEN_PAUSE),
        (_LONGEST_OF_OWN if stage.own is None else _LONGEST_PAUSE),
    )
    return stage.asked_at + min(longest, first * 2.0 ** min(stage.asked - 1, 20))


def ran(stage: StageRun, state: JobState, start: float | None, end: float | None) -> bool:
    """Whether a job that has ended like this had begun."""
    return not (
        state in _WITHOUT_RUNNING
        and stage.phase is not StagePhase.RUNNING
        and (start is None or end is None or start >= end)
    )
