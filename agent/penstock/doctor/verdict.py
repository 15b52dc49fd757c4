"""The first thing that `penstock doctor` says: whether it gains anything here. Pure."""

from __future__ import annotations

from typing import Final

from penstock.doctor.facts import SiteFacts, Trouble
from penstock.doctor.features import DoctorReport, Feature, FeatureOutcome
from penstock.workflow.strategy import Rules

__all__ = ["verdict"]

_GROWS: Final = {"grow-companion": "a second job", "grow-merge": "nodes of its own"}
_DOES: Final = (FeatureOutcome.WORKS, FeatureOutcome.LIMITED)


def verdict(facts: SiteFacts, report: DoctorReport) -> str:
    """Whether submitting ahead and resizing gain anything here for this user, in one sentence."""
    if isinstance(facts.site, Trouble):
        return f"For {facts.user} here: nothing can be said, as Slurm does not answer."
    features = {feature.spec.id: feature for feature in report.features}
    return f"For {facts.user} here: submitting ahead {_ahead(facts, features)}; resizing {_resizing(features)}."


def _ahead(facts: SiteFacts, features: dict[str, Feature]) -> str:
    feature = features["ahead"]
    if feature.outcome not in _DOES or isinstance(facts.site, Trouble):
        return _hindered(feature)
    rules = Rules.of(facts.site)
    if rules.basic:
        return "gains, as jobs start in the order in which they were submitted"
    if rules.accrues and rules.weight_age != 0:
        return "gains, as jobs gain priority by age while they wait for others"
    if rules.whole_nodes:
        return "gains, as a stage waits for nodes while the one before it runs"
    return "gains next to nothing, as jobs gain no age while they wait for others"


def _resizing(features: dict[str, Feature]) -> str:
    ways = [way for name, way in _GROWS.items() if features[name].outcome in _DOES]
    shrinks = features["shrink"].outcome in _DOES
    if ways:
        return f"gains, as an MPI job can grow by {' or by '.join(ways)}{' and give nodes back' if shrinks else ''}"
    if shrinks:
        return f"lets MPI jobs give nodes back, but not grow ({', '.join(features['grow-companion'].because)})"
    return _hindered(features["grow-companion"])


def _hindered(feature: Feature) -> str:
    why = ", ".join(feature.because)
    return (
        f"gains nothing ({why})" if feature.outcome is FeatureOutcome.NO else f"may or may not gain ({why} not known)"
    )
