"""May the owner of a job have what the agent is about to do for it? Pure.

What the owner could not have had by an own request is refused: a job that grows, or may run for longer, is judged as if
it and its companions were one job of that size for that time, submitted by its owner. Limits per job are compared with
all of it; limits per user, per account and of groups with what is in use already and what would be added. As in Slurm,
of each limit the QOS that goes first counts, then the other one, then the associations, whose group limits hold on
every level (resource_limits.html). Where a limit or its use is not known, nothing is taken for granted.

    known = (await reader.limits([owner]))[0]
    now_held = held(job, companions, await reader.charges([job.id, *ids]), now)
    reason = obstacle(known, now_held, Growth(nodes=2, seconds=600.0), site.enforced)    # None: allowed
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from penstock.api import Job, Limit, LimitHolder, Owner, OwnerLimits, Reason, plural

__all__ = [
    "Extension",
    "Growth",
    "Joining",
    "RunningUse",
    "Shape",
    "Wish",
    "after",
    "binding",
    "held",
    "obstacle",
    "owner_of",
    "said",
]

_SLACK = 1.0  # seconds by which clocks and sums of times may differ
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class RunningUse:
    """A running job and its companions as one: what they count for by TRES ("node" and "cpu" at least), how long the
    job has run (s), and its time limit (s, None: unlimited). `whole`: TRES that are not named are not held; else
    nothing is known of those."""

    tres: Mapping[str, float]
    elapsed: float
    time_limit: float | None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Growth:
    """The wish for `nodes` more for `seconds` from now on, each with `cpus` (None: as many as the job has on a node).

    `jobs` are how many jobs of the owner's it takes: one, a companion, or none where the nodes become the job's own.
    """

    nodes: int
    seconds: float
    cpus: float | None = None
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Extension:
    """The wish for another time limit, in seconds from the job's start; Slurm rounds it up to whole minutes."""

    time_limit: float


@dataclass(frozen=True, slots=True)
class Joining:
    """The wish to have `nodes` that another job of the owner's holds already: it counts in shared limits as before."""

    nodes: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The wish of a job that waits for this size: `nodes` in all, and a time limit (s), which Slurm rounds up to
    whole minutes.

    `judged`: Slurm judges the job by its owner's limits when it starts. It does not do that for what an Operator has
    set: of the wall time it judges nothing more, of what many jobs share not all (run on 22.05.8, tests/behaviour).
    """

    nodes: int
    time_limit: float
    judged: bool = True


Wish = Growth | Extension | Joining | Shape


def owner_of(job: Job) -> Owner:
    """Whose limits hold for a job."""
    return Owner(job.user, job.account, job.partition, job.qos)


def held(
    job: Job, companions: Collection[Job], charges: Mapping[int, Mapping[str, float]] | None, now: float
) -> RunningUse:
    """The job with its companions, as they are in one look; `charges` are what `Reader.charges` says of them, None
    where that was not asked for."""
    tres: dict[str, float] = {}
    whole = True
    for one in (job, *companions):
        seen = None if charges is None else charges.get(one.id)
        whole = whole and seen is not None
        for name, amount in {**(seen or {}), "node": float(one.num_nodes), "cpu": float(one.num_cpus)}.items():
            tres[name] = tres.get(name, 0.0) + amount
    return RunningUse(tres, max(now - (now if job.start is None else job.start), 0.0), job.time_limit, whole)


def obstacle(known: OwnerLimits, job: RunningUse, wish: Wish, enforced: Collection[str]) -> Reason | None:
    """Why the owner of the job may not have what is wished for; None: nothing is in the way.

    `enforced` is the site's AccountingStorageEnforce (`SiteConfig.enforced`): where it does not name limits, Slurm
    holds nobody to those of QOS and associations, and only the partition's are looked at.
    """
    extra = _Extra.of(job, wish, _usage_factor(known))
    if extra is None:
        return None
    found = _of_partition(known, extra)
    if found is not None:
        return found
    if enforced and known.associated is False:
        owner = known.owner
        text = f"user {owner.user} has no association with account {owner.account or '(none)'}"
        return Reason("no-association", f"{text}, so Slurm refuses every request of theirs")
    if not {"limits", "safe"} & set(enforced):
        return None
    for holder, limit in binding(known):
        if (reason := _against(holder, limit, extra, job)) is not None:
            return reason
    return _not_known(known.unknown) if known.unknown else None


def after(known: Sequence[OwnerLimits], owner: Owner, job: RunningUse, growth: Wish) -> list[OwnerLimits]:
    """The limits of all these owners as they will be when `growth` has been granted to this one: so that many can be
    judged by one look, and not all of them get the same last node."""
    mine = next((one for one in known if one.owner == owner), None)
    extra = None if mine is None else _Extra.of(job, growth, _usage_factor(mine))
    if extra is None or mine is None or extra.shared is not Sharing.IN_USE:
        return list(known)
    touched = {(holder.kind, holder.name) for holder in (*mine.qos, *mine.associations)}

    def holder_after(holder: LimitHolder, of: Owner) -> LimitHolder:
        if (holder.kind, holder.name) not in touched:
            return holder
        limits = tuple(_used_more(limit, extra) if _shares(limit, of, owner) else limit for limit in holder.limits)
        return replace(holder, limits=limits)

    return [
        replace(
            one,
            qos=tuple(holder_after(holder, one.owner) for holder in one.qos),
            associations=tuple(holder_after(holder, one.owner) for holder in one.associations),
        )
        for one in known
    ]


# -- what is added -----------------------------------------------------------------------------------------------------


class Sharing(Enum):
    """How what a job is to get stands to limits that many jobs share."""

    IN_USE = auto()  # it counts beside what is in use
    ALONE = auto()  # Slurm counts the others, when the job starts
    FORGETS = auto()  # the same, but some limits Slurm would forget then: none of these may be there
    NOT = auto()  # it is counted already


@dataclass(frozen=True, slots=True)
class _Extra:
    """What a wish comes to: the TRES that are `added` and the `total` then, TRES-minutes that are added (`minutes`),
    how long the job will have run (`time`, s), how much of that is to come (`ahead`, s), and how many `jobs` it takes.

    `shared`: how it stands to limits that many jobs share.
    """

    added: Mapping[str, float]
    total: Mapping[str, float]
    minutes: Mapping[str, float]
    time: float
    ahead: float
    jobs: int
    asked: str
    shared: Sharing = Sharing.IN_USE

    @staticmethod
    def of(job: RunningUse, wish: Wish, factor: float) -> _Extra | None:
        """What the wish adds to what is held; None: nothing. `factor` is the QOS's UsageFactor."""
        if isinstance(wish, Extension):
            limit = _MINUTE * math.ceil(wish.time_limit / _MINUTE - 1e-9)
            if job.time_limit is None or limit <= job.time_limit:
                return None
            more = (limit - job.time_limit) / _MINUTE * factor
            minutes = {name: amount * more for name, amount in job.tres.items()}
            asked = f"a time limit of {_time(limit)} was requested"
            return _Extra({}, job.tres, minutes, limit, limit - job.elapsed, 0, asked)
        if wish.nodes <= 0:
            return None
        nodes = max(job.tres.get("node", 1.0), 1.0)
        each = {name: amount / nodes for name, amount in job.tres.items()}
        each["node"] = 1.0
        if isinstance(wish, Shape):
            limit = _MINUTE * math.ceil(wish.time_limit / _MINUTE - 1e-9)
            total = {name: amount * wish.nodes for name, amount in each.items()}
            minutes = {name: amount * limit / _MINUTE * factor for name, amount in total.items()}
            asked = f"{_nodes(wish.nodes)} for {_time(limit)} were requested"
            shared = Sharing.ALONE if wish.judged else Sharing.FORGETS
            return _Extra(total, total, minutes, limit, limit, 0, asked, shared)
        if isinstance(wish, Joining):
            added = {name: amount * wish.nodes for name, amount in each.items()}
            total = {name: job.tres.get(name, 0.0) + amount for name, amount in added.items()}
            asked = f"{_nodes(wish.nodes)} more were to become its own"
            return _Extra(added, total, {}, 0.0, 0.0, 0, asked, Sharing.NOT)
        each["cpu"] = math.ceil(each.get("cpu", 0.0) - 1e-9) if wish.cpus is None else wish.cpus
        added = {name: amount * wish.nodes for name, amount in each.items()}
        seconds = max(wish.seconds, 0.0)
        return _Extra(
            added=added,
            total={name: job.tres.get(name, 0.0) + amount for name, amount in added.items()},
            minutes={name: amount * seconds / _MINUTE * factor for name, amount in added.items()},
            time=job.elapsed + seconds,
            ahead=seconds,
            jobs=wish.jobs,
            asked=f"requested: {_nodes(wish.nodes)} more for {_time(seconds)}",
        )


def _usage_factor(known: OwnerLimits) -> float:
    """By what Slurm multiplies the minutes that a job takes; never less than they are."""
    return max((1.0, *(holder.usage for holder in known.qos)))


def _of_partition(known: OwnerLimits, extra: _Extra) -> Reason | None:
    partition = known.partition
    if partition is None:
        return _not_known(known.unknown or "its partition is not there")
    # Flags of a QOS that let its jobs pass by limits of the partition.
    free = {flag.lower() for holder in known.qos for flag in holder.flags}
    name, nodes, most = f"partition {partition.name}", extra.total.get("node", 0.0), partition.max_nodes
    if extra.added and not partition.min_nodes <= nodes and "partitionminnodes" not in free:
        text = f"{name} has MinNodes {partition.min_nodes}, and it would have {nodes:g}: {extra.asked}"
        return Reason("partition-min-nodes", text)
    if extra.added and most is not None and nodes > most and "partitionmaxnodes" not in free:
        text = f"{name} has MaxNodes {most}, and it would have {nodes:g}: {extra.asked}"
        return Reason("partition-max-nodes", text)
    longest = partition.max_time
    if longest is not None and extra.time > longest + _SLACK and "partitiontimelimit" not in free:
        text = f"{name} has MaxTime {_time(longest)}, and it would run for {_time(extra.time)}: {extra.asked}"
        return Reason("partition-max-time", text)
    return None


# -- limits of QOS and associations ------------------------------------------------------------------------------------


def binding(known: OwnerLimits) -> Iterator[tuple[LimitHolder, Limit]]:
    """The limits that count, with those of associations multiplied by the QOS's LimitFactor."""
    settled: set[tuple[str, str]] = set()
    factor = next((holder.factor for holder in known.qos if holder.factor != 1.0), 1.0)
    for holder in known.qos:
        yield from ((holder, limit) for limit in holder.limits if (limit.name, limit.tres) not in settled)
        settled |= {(limit.name, limit.tres) for limit in holder.limits}
    own = True  # the first is the user's own association, from which all but group limits count
    for holder in known.associations:
        for limit in holder.limits:
            if (limit.name, limit.tres) in settled or not (own or limit.name.startswith("Grp")):
                continue
            yield holder, _factored(limit, factor)
        own = False


def _factored(limit: Limit, factor: float) -> Limit:
    """The limit times LimitFactor, where Slurm multiplies it; where it may not, at most as it is."""
    if not limit.tres:
        return limit
    exact = limit.name in ("GrpTRES", "MaxTRESPerJob")
    return replace(limit, value=math.floor(limit.value * (factor if exact else min(factor, 1.0))))


def _against(holder: LimitHolder, limit: Limit, extra: _Extra, job: RunningUse) -> Reason | None:
    """What the limit has against it."""
    if limit.tres and limit.tres not in job.tres and not job.whole:
        return _not_known(f"how much {limit.tres} the job holds, which {said(holder, limit)} counts")
    more = _more(limit, extra)
    if more is None:
        return None
    if limit.per_job:
        slack = _SLACK if limit.name == "MaxWall" else 0.0
        if more <= limit.value + slack:
            return None
        text = f"{said(holder, limit)}, and it would have {_amount(limit, more)}: {extra.asked}"
        return Reason(_code(limit), text)
    if more <= 0.0 or extra.shared is Sharing.NOT:
        return None
    if extra.shared is Sharing.FORGETS and _forgotten(limit):
        text = f"{said(holder, limit)}, which Slurm no longer holds a job to whose size an operator has set"
        return Reason("shared-limit", f"{text}: {extra.asked}")
    if extra.shared is not Sharing.IN_USE:
        if more <= limit.value:
            return None
        return Reason(_code(limit), f"{said(holder, limit)}, and it alone needs {_amount(limit, more)}: {extra.asked}")
    if limit.used is None:
        return _not_known(f"how much is used of {said(holder, limit)}")
    if limit.used + more <= limit.value:
        return None
    text = f"{said(holder, limit)}, of which {_amount(limit, limit.used)} is used, and {_amount(limit, more)} more is"
    return Reason(_code(limit), f"{text} needed: {extra.asked}")


def _more(limit: Limit, extra: _Extra) -> float | None:
    """What to compare with the limit: all of it where it counts each job alone, what is added where it counts many;
    None where the limit is about something else."""
    name, tres = limit.name, limit.tres
    if name == "MaxWall":
        return extra.time
    if name == "MaxTRESPerJob":
        return extra.total.get(tres, 0.0) if extra.added else None
    if name == "MaxTRESPerNode":
        nodes = extra.added.get("node", 0.0)
        return extra.added.get(tres, 0.0) / nodes if nodes else None
    if name == "MaxTRESMinsPerJob":
        return extra.total.get(tres, 0.0) * extra.time / _MINUTE
    if name == "GrpWall":
        return extra.ahead
    if "Mins" in name:  # GrpTRESMins, GrpTRESRunMins, MaxTRESRunMinsPerUser…
        return extra.minutes.get(tres, 0.0)
    if "TRES" in name:  # GrpTRES, MaxTRESPerUser, MaxTRESPerAccount
        return extra.added.get(tres, 0.0)
    return float(extra.jobs)  # GrpJobs, MaxJobs, MaxSubmitJobs…


def _forgotten(limit: Limit) -> bool:
    """Whether Slurm no longer holds a job to this limit whose nodes, processors and time limit an operator has set."""
    set_by_operator = "TRES" in limit.name and "Mins" not in limit.name and limit.tres in ("node", "cpu")
    return set_by_operator or limit.name == "GrpWall"


def _used_more(limit: Limit, extra: _Extra) -> Limit:
    more = _more(limit, extra)
    return limit if limit.per_job or limit.used is None or more is None else replace(limit, used=limit.used + more)


def _shares(limit: Limit, one: Owner, other: Owner) -> bool:
    """Whether the use of a limit, which both have of the same QOS or association, is the use of both."""
    if limit.name.endswith("PerUser"):
        return one.user == other.user
    return one.account == other.account if limit.name.endswith("PerAccount") else True


# -- words -------------------------------------------------------------------------------------------------------------


def _not_known(what: str) -> Reason:
    return Reason("limits-unknown", f"not all limits of its owner are known: {what}")


def _code(limit: Limit) -> str:
    """MaxTRESPerUser as max-tres-per-user."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=TRES)(?=[A-Z])", "-", limit.name).lower()


def said(holder: LimitHolder, limit: Limit) -> str:
    """Whose limit it is, and how much: "QOS normal has MaxTRESPerUser node=4"."""
    return f"{holder.name} has {limit.name} {_amount(limit, limit.value)}"


def _amount(limit: Limit, value: float) -> str:
    if limit.name in ("MaxWall", "GrpWall"):
        return _time(value)
    return f"{limit.tres}={value:g}" if limit.tres else f"{value:g}"


def _time(seconds: float) -> str:
    return f"{seconds / _MINUTE:g} min" if seconds % _MINUTE == 0 else f"{seconds:.0f} s"


def _nodes(count: int) -> str:
    return plural(count, "node")
