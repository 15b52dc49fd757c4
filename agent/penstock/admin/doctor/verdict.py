"""The first thing that `penstock doctor` says: whether Penstock helps here. Pure."""

from __future__ import annotations

from typing import Final

from penstock.admin.doctor.facts import SiteFacts
from penstock.admin.doctor.features import DoctorReport, Feature, FeatureOutcome
from penstock.core.findings import Trouble
from penstock.workflow.strategy import Rules

__all__ = ["verdict"]

_GROWS: Final = {
    "grow-companion": "by a second job that holds the added nodes",
    "grow-merge": "by nodes that are merged into it",
}
_DOES: Final = (FeatureOutcome.WORKS, FeatureOutcome.LIMITED)


def verdict(facts: SiteFacts, report: DoctorReport) -> str:
    """Whether submitting ahead and resizing help this user here, in one line."""
    if isinstance(facts.site, Trouble):
        return f"For {facts.user} here: nothing is known, because Slurm does not answer."
    features = {feature.spec.id: feature for feature in report.features}
    return f"For {facts.user} here: submitting ahead {_ahead(facts, features)}. Resizing {_resizing(features)}."


def _ahead(facts: SiteFacts, features: dict[str, Feature]) -> str:
    feature = features["ahead"]
    if feature.outcome not in _DOES or isinstance(facts.site, Trouble):
        return _hindered(feature)
    rules = Rules.of(facts.site, age_while_dependent=facts.config.workflows.age_while_dependent)
    if rules.basic:
        return "helps, because jobs start in the order in which they were submitted"
    if rules.accrues and rules.weight_age != 0:
        return "helps, because jobs gain priority by age while they wait for others"
    if rules.may_age:
        return "helps, because stages are made to gain priority by age while they wait for others"
    if rules.whole_nodes:
        return "helps, because a stage waits for nodes while the one before it runs"
    return "hardly helps, because jobs gain no age while they wait for others"


def _resizing(features: dict[str, Feature]) -> str:
    ways = [way for name, way in _GROWS.items() if features[name].outcome in _DOES]
    shrinks = features["shrink"].outcome in _DOES
    if ways:
        return f"helps, because an MPI job can grow {' or '.join(ways)}{', and give nodes back' if shrinks else ''}"
    if shrinks:
        return f"lets MPI jobs give nodes back, but not grow (see {', '.join(features['grow-companion'].because)})"
    return _hindered(features["grow-companion"])


def _hindered(feature: Feature) -> str:
    why = ", ".join(feature.because)
    if feature.outcome is FeatureOutcome.NO:
        return f"does not work (see {why})"
    return f"may or may not help (not known: {why})"
