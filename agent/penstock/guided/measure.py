"""How much there is of a guided workflow, and what its owner may have of all of them together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from penstock.errors import NotNow, UserError
from penstock.fair import Share, work_of
from penstock.guided.absorbing import ask_again
from penstock.guided.state import GuidedStage

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
    how many characters the agent keeps. `instants` (ascending) are when something of them is due."""

    stages: int = 0
    dependencies: int = 0
    unseen: int = 0
    text: int = 0
    instants: tuple[float, ...] = ()

    @property
    def work(self) -> int:
        """What it costs to look through it."""
        return work_of(self.stages, self.dependencies)


def weight(stages: Iterable[GuidedStage]) -> int:
    """How many characters the agent keeps for these stages, about."""
    return sum(
        OF_A_STAGE + sum(len(w) for w in (*s.order.words, s.order.workdir, s.order.script or "", s.base, *s.after))
        for s in stages
    )


def measured(stages: Iterable[GuidedStage]) -> Measure:
    """The measure of these."""
    known = tuple(stages)
    instants = set()
    for stage in known:
        if stage.start is not None and stage.expect is not None:
            instants.add(stage.start + stage.expect + 1.0)
        if stage.released is None and stage.due is not None and not stage.phase.final:
            instants.add(stage.due)
        if not stage.phase.final and (again := ask_again(stage)) is not None:
            instants.add(again)
    return Measure(
        len(known),
        sum(len(stage.after) for stage in known),
        sum(stage.submitted is None and not stage.phase.final for stage in known),
        weight(known),
        tuple(sorted(instants)),
    )


def check_room(known: Iterable[Measure], asked: Measure, share: Share, *, fresh: bool) -> None:
    """Raises NotNow where a user with these open workflows may not have so much more, and UserError where nobody may;
    `fresh`: as one more workflow."""
    there = tuple(known)
    if fresh and len(there) >= MOST_OPEN:
        raise NotNow(f"{MOST_OPEN} workflows of yours have not ended: cancel some, or wait")
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
                f"your workflows that have not ended have {have} {what}, with these {have + more}: {limit}; cancel "
                "some workflows, wait, or submit less at once"
            )
    if sum(m.text for m in there) + asked.text > MOST_TEXT:
        raise NotNow(
            f"the scripts of your workflows that have not ended are longer than {MOST_TEXT} characters: cancel some "
            "workflows, or wait"
        )
