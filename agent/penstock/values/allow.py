"""The allow-list: which jobs the agent may act on, by feature, user, partition, account and QOS. Pure.

A job is acted on if one rule admits it; a rule admits what agrees with everything that it names. No list at all admits
everything, an empty one nothing. What is outside is left as it is, as if the agent were away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from penstock.api import Reason

__all__ = ["FEATURES", "NOT_ALLOWED", "Feature", "Rule", "Subject", "refusal"]

Feature = Literal["workflows", "malleable", "select", "slots", "pool"]
FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)
"""What can be allowed or paused: workflows, resizing MPI jobs, placing and moving the tasks of bags, holding slots,
allocations of pools."""
NOT_ALLOWED: Final = "not-allowed"
"""The code of the reason."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule names; None: anything."""

    features: tuple[str, ...] | None = None
    users: tuple[str, ...] | None = None
    partitions: tuple[str, ...] | None = None
    accounts: tuple[str, ...] | None = None
    qos: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A job, or the jobs of a workflow, which must all be admitted. An empty set: not known (yet)."""

    feature: str
    users: frozenset[str] = field(default_factory=frozenset)
    partitions: frozenset[str] = field(default_factory=frozenset)
    accounts: frozenset[str] = field(default_factory=frozenset)
    qos: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(
        cls,
        feature: str,
        users: Iterable[str] = (),
        partitions: Iterable[str] = (),
        accounts: Iterable[str] = (),
        qos: Iterable[str] = (),
    ) -> Subject:
        """From what Slurm says: a job that waits in several partitions names them with commas, and what is empty is
        not known."""
        split = (name for names in partitions for name in names.split(","))
        known = [frozenset(filter(None, names)) for names in (users, split, accounts, qos)]
        return cls(feature, *known)


def refusal(rules: Sequence[Rule] | None, subject: Subject, *, strict: bool = True) -> Reason | None:
    """Why the agent may not act on the subject; None: it may.

    `strict`: what is not known of the subject is taken to be outside; else to be inside.
    """
    if rules is None:
        return None
    from penstock.api import Reason  # slow to load, and commands need the names of features alone

    about = [rule for rule in rules if rule.features is None or subject.feature in rule.features]
    if not about:
        return Reason(NOT_ALLOWED, f"`limits.allow` has no rule that lets the agent act on {subject.feature}")
    problems = [_problem(rule, subject, strict) for rule in about]
    if None in problems:
        return None
    told = "; and ".join(dict.fromkeys(problem for problem in problems if problem))
    return Reason(NOT_ALLOWED, f"outside of `limits.allow`: {told}")


def _problem(rule: Rule, subject: Subject, strict: bool) -> str | None:
    for what, admitted, has in (
        ("user", rule.users, subject.users),
        ("partition", rule.partitions, subject.partitions),
        ("account", rule.accounts, subject.accounts),
        ("QOS", rule.qos, subject.qos),
    ):
        if admitted is None:
            continue
        there = ", ".join(admitted) or "none"
        if not has and strict:
            return f"its {what} is not known, and must be one of {there}"
        if outside := sorted(has - set(admitted)):
            return f"{what} {', '.join(outside)} is not one of {there}"
    return None
