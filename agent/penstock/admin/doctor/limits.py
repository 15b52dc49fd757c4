"""The checks of what Slurm lets users have: who may ask for nodes for a job, how far it may grow, for how long. Pure.

Whether a job may grow is asked of those who decide it (`ownlimits`), for a job of one node and nothing else running:
what is in use at the moment says nothing of tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.admin.doctor.facts import SiteFacts
from penstock.api import Limit, LimitHolder, OwnerLimits, SiteConfig
from penstock.core.findings import Finding, Trouble, failed, fine, note, unknown
from penstock.core.ownlimits import Growth, RunningUse, binding, obstacle, said

__all__ = ["check_limits"]

_SMALL: Final = RunningUse({"node": 1.0, "cpu": 1.0}, elapsed=0.0, time_limit=60.0)
_MINUTE: Final = 60.0
_RAISE: Final = "sacctmgr modify qos|account|user NAME set LIMIT=VALUE (-1: none), or another QOS for those jobs"
_COST: Final = "everybody under that limit may then use more in ordinary jobs, too"
_ON_TIME: Final = ("MaxWall", "GrpWall")


def check_limits(facts: SiteFacts) -> Iterator[Finding]:
    """One finding per check."""
    site = facts.site
    if isinstance(site, Trouble):
        for check in ("resizers", "growth-limits", "time-limits"):
            yield unknown(check, "slurmctld did not answer, or its answer was not understood")
        return
    yield _resizers(facts, site)
    yield _growth(facts, site)
    yield _times(facts, site)


def _resizers(facts: SiteFacts, site: SiteConfig) -> Finding:
    """Whether the nodes that are to be merged into a job can be asked for, and who is charged with them."""
    check, user = "resizers", facts.user
    if not site.enforced:
        return fine(check, "Slurm requires no association of those who request nodes")
    if isinstance(facts.accounts, Trouble):
        return unknown(check, f"sacctmgr show associations: {facts.accounts.why}")
    if facts.config.agent.serve != "all":
        if facts.accounts:
            return fine(check, f"a job's owner requests its nodes; accounts of {user}: {', '.join(facts.accounts)}")
        text = f"{user} has no association, so Slurm refuses every request for nodes"
        return failed(check, text, f"sacctmgr add user {user} account=ACCOUNT cluster={site.cluster}")
    may = ", ".join(facts.accounts) or "none"
    return failed(
        check,
        f"to merge nodes into a job, {user} requests them under the account of the job's owner. {user} may use {may}: "
        f"Slurm refuses all other accounts, and charges what it grants to {user} instead of the owner",
        "leave `malleable.backend` at auto or companion: the owner's own launcher then requests the nodes",
        "a companion counts as a second job of its owner",
    )


def _growth(facts: SiteFacts, site: SiteConfig) -> Finding:
    """How far a job may grow under each account of the user."""
    check = "growth-limits"
    if not {"limits", "safe"} & site.enforced:
        return _by_partitions(facts, check)
    if isinstance(facts.limits, Trouble):
        return unknown(check, f"the limits of {facts.user}: {facts.limits.why}")
    if not facts.limits:
        return unknown(check, f"{facts.user} has no association, so the limits are not known")
    free = [_alone(known) for known in facts.limits]
    hindered = [(known, obstacle(known, _SMALL, Growth(1, _MINUTE), site.enforced)) for known in free]
    texts = [f"under account {known.owner.account}: {reason.text}" for known, reason in hindered if reason is not None]
    if len(texts) == len(free) and facts.config.agent.serve != "all":
        return failed(check, f"no job may grow: {'; '.join(texts)}", _RAISE, _COST)
    texts += [text for known, reason in hindered if reason is None and (text := _bounds(known))]
    others = "; jobs of other users grow within their owners' limits: run `penstock doctor` as one of them"
    others = others if facts.config.agent.serve == "all" else ""
    if texts:
        return note(check, f"{'; '.join(texts)}{others}", _RAISE, _COST)
    return fine(check, f"no limit keeps a job of {facts.user} from growing{others}")


def _by_partitions(facts: SiteFacts, check: str) -> Finding:
    """Where nobody is held to limits of QOS and associations."""
    if isinstance(facts.partitions, Trouble):
        return unknown(check, facts.partitions.why)
    small = [p for p in facts.partitions if p.up and p.max_nodes is not None]
    if small:
        names = ", ".join(f"{partition.name} {partition.max_nodes}" for partition in small)
        change = "raise MaxNodes of the partition in slurm.conf, or use another partition"
        return note(check, f"a job and its companions together get at most MaxNodes of the partition: {names}", change)
    return fine(check, "Slurm enforces no limits of QOS or associations")


def _bounds(known: OwnerLimits) -> str:
    """The limits on the size of a job under this account, in words; empty for none."""
    words = [said(holder, limit) for holder, limit in binding(known) if limit.name not in (*_ON_TIME, "MaxTRESPerNode")]
    if known.partition is not None and known.partition.max_nodes is not None:
        words.append(f"partition {known.partition.name} has MaxNodes {known.partition.max_nodes}")
    return f"jobs under account {known.owner.account} grow within: {', '.join(words)}" if words else ""


def _times(facts: SiteFacts, site: SiteConfig) -> Finding:
    """How far time limits may be raised for a job that shrinks."""
    check = "time-limits"
    if not site.operator:
        return fine(check, f"{facts.user} is no operator, so the agent raises no time limits")
    places = () if isinstance(facts.partitions, Trouble) else facts.partitions
    longest = [f"{place.name} {_time(place.max_time)}" for place in places if place.max_time is not None]
    most = f", up to MaxTime of the partition ({', '.join(longest)})" if longest else ""
    known = () if isinstance(facts.limits, Trouble) or not {"limits", "safe"} & site.enforced else facts.limits
    words = [said(holder, limit) for one in known for holder, limit in binding(one) if limit.name in _ON_TIME]
    if words:
        text = f"the agent raises time limits only within the owner's own: {', '.join(dict.fromkeys(words))}"
        return note(check, text, _RAISE, _COST)
    return fine(check, f"the agent may raise the time limit of a job that shrinks{most}")


def _time(seconds: float) -> str:
    return f"{seconds / _MINUTE:g} min"


def _alone(known: OwnerLimits) -> OwnerLimits:
    """The same limits with nothing in use but by one small job."""

    def emptied(holders: tuple[LimitHolder, ...]) -> tuple[LimitHolder, ...]:
        return tuple(
            replace(
                holder,
                limits=tuple(replace(one, used=None if one.used is None else _by_one(one)) for one in holder.limits),
            )
            for holder in holders
        )

    return replace(known, qos=emptied(known.qos), associations=emptied(known.associations))


def _by_one(limit: Limit) -> float:
    if limit.name.endswith("Wall") or "Mins" in limit.name:
        return 0.0
    return _SMALL.tres.get(limit.tres, 0.0) if limit.tres else 1.0
