"""What follows from the checks for each thing that Penstock does. Pure.

A feature works if the checks that it needs are fine, is limited if one of those that help it is not (or if a needed one
comes with a note), does not work if a needed one failed, and is unknown if one could not be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.admin.doctor.facts import SiteFacts
from penstock.admin.doctor.host import check_host
from penstock.admin.doctor.mpi import check_mpi
from penstock.admin.doctor.site import check_site
from penstock.config import Config
from penstock.core.findings import Finding, Level, Trouble, unknown
from penstock.values.beside import MESSAGES, PLANNING, POOL

__all__ = ["FEATURES", "DoctorReport", "Feature", "FeatureOutcome", "Spec", "examine"]

_PAGE: Final = "docs/doctor.md"


class FeatureOutcome(StrEnum):
    """What a feature does on this site."""

    WORKS = "works"
    LIMITED = "limited"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Spec:
    """A feature: the checks that it `needs`, and those without which it does less (`helps`); `right` is whose rights
    it takes: a plain "user" or an "operator".

    `served` are the checks that it needs instead where the agent of a site does it for its users.
    `extra`: it takes something that is installed or set on purpose, so nobody misses it who did not ask for it.
    `comes_with` is the distribution that it is of, "" for the core; where that is not installed nobody is told of it.
    `one_of` are features of which one has to work, too. `wanted` says whether a configuration asks for it.
    """

    id: str
    title: str
    right: str
    needs: tuple[str, ...]
    helps: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    served: tuple[str, ...] | None = None
    extra: bool = False
    comes_with: str = ""
    wanted: Callable[[Config], bool] = lambda config: False

    @property
    def docs(self) -> str:
        """Where the feature is explained."""
        return f"{_PAGE}#features"


_LOOK: Final = ("config", "programs", "controller", "release", "queue")
_SUBMIT: Final = (*_LOOK, "partitions", "association", "submission")
_KEEP: Final = ("state-folder", "state")
_TALK: Final = ("config", "policy", "address", "key", *_KEEP)
_RESIZE: Final = (*_LOOK, "accounting", *_TALK)
_MPI: Final = ("mpi", "mpi-probe")


def _always(_config: Config) -> bool:
    return True


FEATURES: Final[Sequence[Spec]] = (
    Spec(
        "observe",
        "observe the queue",
        "user",
        _LOOK,
        ("private-data", "clock", "partitions", "site-view"),
        wanted=_always,
    ),
    Spec(
        "agent",
        "run the agent, keep state",
        "user",
        ("config", "parts", *_KEEP),
        ("identity", "file-system", "agent", "service", "limits"),
        served=("config", "agent"),
        wanted=_always,
    ),
    Spec(
        "workflows",
        "workflows, also by sbatch",
        "user",
        (*_SUBMIT, *_KEEP),
        ("accounting",),
        served=(*_SUBMIT, "agent"),
        wanted=_always,
    ),
    Spec(
        "ahead",
        "submit stages ahead",
        "user",
        (*_SUBMIT, *_KEEP),
        ("aging", "accounting", "clock", "kernel"),
        served=(*_SUBMIT, "agent"),
        wanted=_always,
    ),
    Spec(
        "serve-all",
        "one agent for all users",
        "operator",
        (*_LOOK, "operator", "munge", "accounting", "socket", *_KEEP),
        ("file-system", "metrics"),
        served=("config", "agent"),
        extra=True,
        wanted=lambda config: config.agent.serve == "all",
    ),
    Spec(
        "messages",
        "messages from MPI programs",
        "user",
        _TALK,
        ("clock",),
        served=("config", "key", "agent"),
        wanted=lambda config: config.agent.serve == "all" or config.malleable.backend != "auto",
    ),
    Spec(
        "notify",
        "messages to people",
        "user",
        ("config", "notify", *_KEEP),
        served=("config", "notify", "agent"),
        extra=True,
        comes_with=MESSAGES,
        wanted=lambda config: config.messages.configured,
    ),
    Spec("shrink", "shrink MPI jobs", "user", (*_RESIZE, "job-shrink"), ("time-limits", *_MPI)),
    Spec(
        "grow-merge",
        "grow MPI jobs by merge",
        "user",
        (
            *_RESIZE,
            "submission",
            "resizers",
            "growth-limits",
            "merge-release",
            "job-expansion",
            "extern-step",
            "job-shrink",
        ),
        ("merge-gres", *_MPI),
        wanted=lambda config: config.malleable.backend == "merge",
    ),
    Spec(
        "grow-companion",
        "grow MPI jobs by companion",
        "user",
        (*_RESIZE, "submission", "companion", "growth-limits"),
        _MPI,
        wanted=lambda config: config.malleable.backend == "companion",
    ),
    Spec("restart", "resize by restart", "user", (*_RESIZE, "job-shrink"), _MPI),
    Spec("announce", "announced sizes", "user", _RESIZE, _MPI, one_of=("grow-merge", "grow-companion")),
    Spec("hold-job", "hold slots by an idle job", "user", (*_SUBMIT, *_KEEP), ("accounting",), comes_with=PLANNING),
    Spec(
        "hold-reservation", "hold slots by reservation", "operator", (*_LOOK, "operator", *_KEEP), comes_with=PLANNING
    ),
    Spec(
        "hold-request",
        "hold slots by signed request",
        "user",
        (*_LOOK, "request-key", *_KEEP),
        extra=True,
        comes_with=PLANNING,
        wanted=lambda config: config.provision.requests is not None,
    ),
    Spec("select", "select a partition or cluster", "user", _SUBMIT, ("clusters", "accounting"), comes_with=PLANNING),
    Spec(
        "pool",
        "pools of tasks",
        "user",
        ("config", "pool-packages", "pool-folder"),
        extra=True,
        comes_with=POOL,
        wanted=lambda config: config.pool.folder is not None or config.pool.host is not None,
    ),
    Spec(
        "pyslurm",
        "ask Slurm through pyslurm",
        "user",
        ("config", "pyslurm"),
        extra=True,
        wanted=lambda config: config.slurm.backend == "pyslurm",
    ),
    Spec(
        "rest",
        "ask Slurm through slurmrestd",
        "user",
        ("config", "rest"),
        extra=True,
        wanted=lambda config: config.slurm.backend == "rest",
    ),
)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature on this site: what it does, because of which checks, and whether the configuration asks for it."""

    spec: Spec
    outcome: FeatureOutcome
    because: tuple[str, ...]
    wanted: bool


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All checks by their names, and all features."""

    checks: Mapping[str, Finding]
    features: tuple[Feature, ...]

    @property
    def healthy(self) -> bool:
        """Whether every feature that the configuration asks for works, be it in a limited way."""
        return all(f.outcome in (FeatureOutcome.WORKS, FeatureOutcome.LIMITED) for f in self.features if f.wanted)

    @property
    def worth_telling(self) -> Set[str]:
        """The checks that limit what somebody may miss, and what a part of the site's own finds to be not well."""
        told = [feature for feature in self.features if feature.wanted or not feature.spec.extra]
        theirs = {name for name, found in self.checks.items() if found.outside and found.level is not Level.OK}
        return theirs.union(check for feature in told for check in feature.because)

    @property
    def blocking(self) -> frozenset[str]:
        """The checks because of which it is not."""
        broken = [f for f in self.features if f.wanted and f.outcome in (FeatureOutcome.NO, FeatureOutcome.UNKNOWN)]
        return frozenset(check for feature in broken for check in feature.because)


def examine(facts: SiteFacts) -> DoctorReport:
    """Make every check, and say what follows."""
    found = (*check_host(facts), *check_site(facts), *check_mpi(facts))
    checks = {finding.check: finding for finding in found}
    parts = () if isinstance(facts.parts, Trouble) else facts.parts
    there = {one.distribution: one.why_not or one.unasked for one in parts}
    features: dict[str, Feature] = {}
    for spec in FEATURES:
        if not spec.comes_with or spec.comes_with in there:
            for name in (*spec.needs, *spec.helps):
                if name not in checks:  # it is of a part that is refused, or has failed
                    checks[name] = unknown(name, f"not asked: {there.get(spec.comes_with)}")
            features[spec.id] = _judge(spec, checks, features, facts)
    return DoctorReport(checks, tuple(features.values()))


def _judge(spec: Spec, checks: Mapping[str, Finding], before: Mapping[str, Feature], facts: SiteFacts) -> Feature:
    needs = spec.needs if facts.own is None or spec.served is None else spec.served

    def those(names: Sequence[str], *levels: Level) -> tuple[str, ...]:
        return tuple(name for name in names if checks[name].level in levels)

    limits = (*those(needs, Level.NOTE), *those(spec.helps, Level.NOTE, Level.NO))
    found = [
        (FeatureOutcome.NO, those(needs, Level.NO)),
        (FeatureOutcome.UNKNOWN, those(needs, Level.UNKNOWN)),
        (FeatureOutcome.LIMITED, limits),
    ]
    others = [before[name] for name in spec.one_of]
    if others and not any(other.outcome in (FeatureOutcome.WORKS, FeatureOutcome.LIMITED) for other in others):
        outcome = (
            FeatureOutcome.UNKNOWN if any(o.outcome is FeatureOutcome.UNKNOWN for o in others) else FeatureOutcome.NO
        )
        found.insert(0, (outcome, tuple(check for other in others for check in other.because)))
    outcome, because = next(((o, b) for o, b in found if b), (FeatureOutcome.WORKS, ()))
    return Feature(spec, outcome, tuple(dict.fromkeys(because)), spec.wanted(facts.config))
