"""How much there is of a workflow, and what the owner of jobs that are in the queue may have of all together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from penstock.errors import NotNow, UserError
from penstock.values.fair import UserShare, work_of
from penstock.workflow.state import Own, StageRun

__all__ = ["MOST_OPEN", "MOST_TEXT", "OF_A_STAGE", "Measure", "check_room", "measured", "weight"]

MOST_OPEN = 1000
"""Workflows of one user: each is looked through in its turn."""
MOST_TEXT = 8_000_000
"""Characters of all of these, by their `weight`."""
OF_A_STAGE = 500
"""Characters that a stage counts besides its texts."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Of some stages: how many there are, how often one comes after another, how many jobs Slurm has never shown, and
    how many characters the agent keeps."""

    stages: int = 0
    dependencies: int = 0
    unseen: int = 0
    text: int = 0

    @property
    def work(self) -> int:
        """What it costs to look through it."""
        return work_of(self.stages, self.dependencies)


def weight(stages: Iterable[StageRun]) -> int:
    """How many characters the agent keeps for these stages that their owner has submitted, about."""
    return measured(stages).text


def _texts(own: Own) -> int:
    return sum(len(w) for w in (*own.order.words, own.order.workdir, own.order.script or "", own.base))


def measured(stages: Iterable[StageRun]) -> Measure:
    """The measure of these."""
    count = dependencies = unseen = text = 0
    for stage in stages:
        count += 1
        dependencies += len(stage.after)
        unseen += stage.submitted is None and not stage.phase.final
        text += OF_A_STAGE + (0 if stage.own is None else _texts(stage.own))
    return Measure(count, dependencies, unseen, text)


def check_room(known: Iterable[Measure], asked: Measure, share: UserShare, *, fresh: bool) -> None:
    """Raises NotNow where a user with these open workflows may not have so much more, and UserError where nobody may;
    `fresh`: as one more workflow."""
    there = tuple(known)
    if fresh and len(there) >= MOST_OPEN:
        raise NotNow(f"you have {MOST_OPEN} workflows that have not ended, the most possible: cancel some, or wait")
    for what, of, most, key in (
        ("stages", attrgetter("stages"), share.stages, "stages_of_user"),
        ("dependencies", attrgetter("dependencies"), share.dependencies, "dependencies_of_user"),
        ("jobs that Slurm has not shown yet", attrgetter("unseen"), share.unseen, "unseen_of_user"),
    ):
        more, have = of(asked), sum(of(measure) for measure in there)
        limit = f"at most {most} are possible (`limits.{key}` of the agent)"
        if more > most:
            raise UserError(f"these are {more} {what}: {limit}")
        if have + more > most:
            raise NotNow(
                f"your workflows that have not ended have {have} {what}, and would have {have + more}: {limit}. Cancel "
                "some workflows, wait, or submit less at once"
            )
    if sum(m.text for m in there) + asked.text > MOST_TEXT:
        raise NotNow(
            f"the scripts of your workflows that have not ended are longer than {MOST_TEXT} characters: cancel some "
            "workflows, or wait"
        )
