"""A bag against every candidate: viable or why not, what a job of it would wait, and when further ones would start."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from penstock.api import Owner, OwnerLimits
from penstock.config import Config
from penstock.errors import Infeasible, PenstockError
from penstock.future.drawn import OwnJob
from penstock.values.allow import Rule, Subject, refusal
from penstock_planning.broker.clusters import ClusterView
from penstock_planning.broker.partitions import Candidate, candidates
from penstock_planning.broker.shape import JobShape, at_most, beyond, hindrance, shape
from penstock_planning.broker.site import SiteFile
from penstock_planning.broker.starts import Further, Starts, calibrated, foreseen, outlasting, planned
from penstock_planning.broker.tasks import Bag
from penstock_planning.broker.tq import Expectations, expectations
from penstock_planning.select.correction import Corrections
from penstock_planning.select.matchmaking import unmet
from penstock_planning.select.ranking import NO_WAIT, Wait
from penstock_planning.select.rework import Preemptions, expected_rework
from penstock_planning.select.spread import Lane

__all__ = ["Assessed", "ClusterMarket", "assess", "open_market"]

_ASKED: Final = 12
"""Candidates that Slurm is asked about for one bag: each is a request."""


@dataclass(frozen=True, slots=True)
class Assessed:
    """A candidate for a bag. `why`: not viable. `starts` (s from now) are those of further jobs, `own` those of the
    bag's jobs that wait there already. `slurm` and `week` are what Slurm and the paper's way say of the wait (s).
    `rework` is what preemption is expected to cost (s), by `preemptions`, `scatter` how far run times fall from what is
    predicted (`Lane`). `drawn`: each of `starts` as it may come (s, ascending), where they were drawn. `qos` is the
    first of the bag's that lets its jobs run there; None: Slurm's default. `share` is the fair-share factor (0 to 1)
    under which they wait; None where none counts."""

    candidate: Candidate
    view: ClusterView
    shape: JobShape
    why: str | None = None
    wait: Wait = NO_WAIT
    starts: tuple[float, ...] = ()
    own: Mapping[int, Sequence[float]] = field(default_factory=dict)
    slurm: float | None = None
    week: float | None = None
    preemptions: Preemptions | None = None
    rework: float = 0.0
    scatter: float = 0.0
    drawn: Sequence[Sequence[float]] = ()
    qos: str | None = None
    share: float | None = None

    @property
    def lane(self) -> Lane:
        """For a bag; what it shares with others is not said."""
        run = self.shape.run + self.rework
        return Lane(self.candidate.name, self.fed(self.starts), run, self.shape.per, {}, self.scatter)

    def fed(self, starts: Sequence[float]) -> Sequence[float]:
        """The starts (s from now), later where the link is busy: each of them begins as if it had it for itself once
        those before it have fetched their input, one after the other since the first began."""
        if self.candidate.link is None or not self.shape.fetch:
            return starts
        each = self.shape.fetch - self.candidate.link.latency
        return [max(start, starts[0] + number * each) for number, start in enumerate(starts)]

    def starts_at(self, quantile: float) -> Sequence[float]:
        """As late as the starts may be with that probability (s from now)."""
        if self.drawn:
            return [each[min(int(quantile * len(each)), len(each) - 1)] for each in self.drawn]
        return calibrated(self.starts, self.wait.at(quantile), self.starts[0])


@dataclass(frozen=True, slots=True)
class ClusterMarket:
    """All that is known at one time: the clusters, their candidates, and what is expected of their waits."""

    views: Mapping[str, ClusterView]
    candidates: Sequence[Candidate]
    waits: Mapping[str, Expectations]
    problems: Sequence[str]
    rules: Sequence[Rule] | None = None

    def refusal(self, account: str, qos: str, candidate: Candidate, user: str) -> str | None:
        """Why the site does not want bags to be sent or moved there (`limits.allow`)."""
        subject = Subject.of("select", [user], [candidate.partition.name], [account], [qos])
        found = refusal(self.rules, subject)
        return None if found is None else found.text

    def close(self) -> None:
        """Close what was opened."""
        for each in self.waits.values():
            each.close()


async def open_market(
    config: Config,
    views: Sequence[ClusterView],
    problems: Sequence[str],
    known: SiteFile,
    *,
    clock: str = "base",
    fallback: float | None = None,
) -> ClusterMarket:
    """Every partition of these clusters."""
    found = await asyncio.gather(*(expectations(config, view) for view in views))
    return ClusterMarket(
        {view.cluster: view for view in views},
        [
            candidate
            for view in views
            for candidate in candidates(
                view.site,
                list(view.snapshot.partitions.values()),
                view.snapshot.nodes,
                view.snapshot.reservations,
                known,
                clock=clock,
                fallback=fallback,
            )
        ],
        {view.cluster: waits for view, (waits, _) in zip(views, found, strict=True)},
        [*problems, *(problem for _, problem in found if problem is not None)],
        config.limits.rules,
    )


async def assess(
    market: ClusterMarket,
    bag: Bag,
    count: int,
    corrections: Corrections,
    *,
    own: Mapping[str, Collection[int]] | None = None,
    ask: bool = True,
) -> list[Assessed]:
    """The bag against every candidate, under the first QOS of it that lets its jobs run there. `count` tasks are to be
    placed anew; `own` are the ids of the bag's jobs by cluster; `ask`: also ask Slurm."""
    found = []
    limits = {name: await _limits_of(market, view, bag) for name, view in market.views.items()}
    questions = iter(range(_ASKED if ask else 0))
    for plain in market.candidates:
        view, waits = market.views[plain.cluster], market.waits[plain.cluster]
        allowed = await _allowed(market, bag, plain, corrections, limits[plain.cluster], questions)
        candidate, made = allowed.candidate, allowed.shape
        if allowed.why is not None:
            found.append(Assessed(candidate, view, made, allowed.why))
            continue
        job, jobs = OwnJob(made.units, made.limit, made.run), max(-(-count // made.per), 1)
        further = Further(job, jobs, (own or {}).get(candidate.cluster, ()))
        plan = foreseen(view.snapshot, candidate, further, waits.past) or planned(view.snapshot, candidate, further)
        weighed = _weighed(allowed.bag, candidate, view, waits, made, plan, allowed.slurm)
        found.append(replace(weighed, scatter=allowed.scatter, qos=allowed.bag.options.get("qos")))
    return found


async def _limits_of(market: ClusterMarket, view: ClusterView, bag: Bag) -> dict[tuple[str, str], OwnerLimits]:
    """What limits the user's jobs of this bag by QOS and associations, by partition and QOS, in one request; nothing
    where no limits are enforced, or where they cannot be read: Slurm is asked before anything is submitted."""
    usual, site = market.waits[view.cluster].usual, view.site
    if not {"limits", "safe"} & site.enforced:
        return {}
    account, default = _owned(bag.options, usual)
    user = view.backend.whoami()
    places = {c.partition.name for c in market.candidates if c.cluster == view.cluster}
    owners = [Owner(user, account, place, qos) for place in sorted(places) for qos in bag.qos or (default,)]
    try:
        found = await view.backend.limits(owners)
    except PenstockError:
        return {}
    return {(one.owner.partition, one.owner.qos): one for one in found}


class _Allowed(NamedTuple):
    """A bag under one QOS, its jobs on a candidate with what was learned of run times there (`scatter` as in
    `Assessed`), what Slurm says of their wait (s; None: not asked, or it does not say), and why none ever could run."""

    bag: Bag
    candidate: Candidate
    scatter: float
    shape: JobShape
    slurm: float | None
    why: str | None


async def _allowed(
    market: ClusterMarket,
    bag: Bag,
    plain: Candidate,
    corrections: Corrections,
    limits: Mapping[tuple[str, str], OwnerLimits],
    questions: Iterator[int],
) -> _Allowed:
    """The bag under the first QOS of it that lets its jobs run there. Slurm is asked while there are `questions`."""
    factor = corrections.factor(bag.task.name, plain.name)
    scatter = corrections.scatter(bag.task.name, plain.name) or 0.0
    candidate = replace(plain, resource=replace(plain.resource, correction=plain.resource.correction * factor))
    lacking = unmet(bag.task, candidate.resource)
    view, waits = market.views[candidate.cluster], market.waits[candidate.cluster]
    refused: list[str] = []
    for some in bag.ways:
        owned = account, qos = _owned(some.options, waits.usual)
        made, slurm = shape(some, candidate), None
        why = hindrance(some, candidate, made, lacking, owned)
        known = limits.get((candidate.partition.name, qos))
        if known is not None:
            made = at_most(some, made, known)
            why = why or beyond(known, made, candidate.rig.cpus, view.site.enforced)
        why = why or market.refusal(account, qos, candidate, view.backend.whoami())
        if why is None and next(questions, None) is not None:
            try:
                slurm = await waits.slurm(candidate, made, some.options)
            except Infeasible as e:
                why = f"Slurm refuses it: {e}"
        if why is None:
            return _Allowed(some, candidate, scatter, made, slurm, None)
        refused.append(why)
    return _Allowed(some, candidate, scatter, made, None, "; ".join(dict.fromkeys(refused)))


def _owned(options: Mapping[str, str], usual: Mapping[str, str]) -> tuple[str, str]:
    """Under which account and QOS jobs with these options are."""
    account, qos = (options.get(key) or usual.get(key, "") for key in ("account", "qos"))
    return account, qos


def _weighed(
    bag: Bag,
    candidate: Candidate,
    view: ClusterView,
    waits: Expectations,
    made: JobShape,
    plan: Starts,
    slurm: float | None,
) -> Assessed:
    first = plan.further[0] if plan.further else None
    if first is None:
        return Assessed(candidate, view, made, "no job of this size ever fits there")
    wait = waits.wait(candidate, made, bag.options, slurm, first)
    preemptions = waits.preemptions(candidate)
    rework = 0.0
    if preemptions is not None:  # who is put back waits as long again as one that is submitted now
        rework = expected_rework(made.run, preemptions.rate, wait.expected, bag.checkpoint)
        if rework == math.inf:
            often = f"every {1 / preemptions.rate:.0f} s"
            return Assessed(candidate, view, made, f"jobs there are preempted {often}: it would hardly ever be done")
    further, own = plan.further, plan.own
    if not plan.drawn:
        further = calibrated(further, wait.expected, first)
        own = {
            job: outlasting(calibrated(starts, wait.expected, first), starts, plan.waited[job])
            for job, starts in own.items()
        }
    return Assessed(
        candidate,
        view,
        made,
        None,
        wait,
        tuple(further),
        own,
        slurm,
        waits.last_week(candidate, made),
        preemptions,
        rework,
        drawn=plan.drawn,
        share=waits.share(bag.options),
    )
