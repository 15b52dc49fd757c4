"""The checks of Slurm: does it answer, is what it says understood, and which settings stand in the way? Pure.

Which settings matter, and why, is known where they are acted on (`malleable.ways`, `workflow.strategy`); here it is
only asked for, and said together with what a change would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from penstock.admin.doctor.facts import SiteFacts
from penstock.admin.doctor.limits import check_limits
from penstock.api import SiteConfig, plural
from penstock.core.findings import Finding, Trouble, failed, fine, note, unknown
from penstock.values.merging import obstacles_to_merge
from penstock.workflow.strategies.auto import by_rules
from penstock.workflow.strategy import Rules, Tie

__all__ = ["check_site"]

# The oldest release that the project's tests run on.
_OLDEST: Final = (22, 5)
_LATE: Final = 5.0
_RECONFIGURE: Final = "then `scontrol reconfigure`"

_COSTS: Final[Mapping[str, tuple[str, str]]] = {
    "merge-release": (
        "nothing to change: jobs grow by companion; if merging works with this release on a test cluster, name the "
        "release in `malleable.merge_releases`",
        "one merge crashes slurmctld on some releases; companions do not have this risk",
    ),
    "job-expansion": (
        f"add permit_job_expansion to SchedulerParameters in slurm.conf, {_RECONFIGURE}",
        "users may then grow their own jobs with Slurm's commands, too; nobody's limits change",
    ),
    "extern-step": (
        "remove Contain and X11 from PrologFlags",
        "pam_slurm_adopt and X11 forwarding need them, so most sites keep them: growing by companion works with them",
    ),
    "job-shrink": (
        f"remove disable_job_shrink from SchedulerParameters in slurm.conf, {_RECONFIGURE}",
        "users may then give back nodes of their running jobs, which frees nodes earlier",
    ),
    "merge-gres": (
        "nothing to change: jobs with GRES grow by companion",
        "a companion counts as a second job of the user",
    ),
}


def check_site(facts: SiteFacts) -> Iterator[Finding]:
    """One finding per check, in the order in which one would look."""
    yield _programs(facts)
    yield _controller(facts)
    for check, judge in _OF_THE_SITE.items():
        if isinstance(facts.site, Trouble):
            yield unknown(check, "slurmctld did not answer, or its answer was not understood")
        else:
            yield judge(facts, facts.site)
    yield _queue(facts)
    yield _partitions(facts)
    yield _submission(facts)
    yield _companion(facts)
    yield from check_limits(facts)
    yield _clusters(facts)


def _programs(facts: SiteFacts) -> Finding:
    if facts.config.slurm.backend == "mock":
        return fine("programs", "a simulated Slurm needs none")
    if facts.config.slurm.backend == "rest":
        return fine("programs", "slurmrestd is asked; the check `rest` says what commands add")
    if facts.programs_missing:
        return failed(
            "programs",
            f"not on PATH: {', '.join(facts.programs_missing)}",
            "install Slurm's client programs (Debian: slurm-client), or add their folder to PATH, also for the agent",
        )
    return fine("programs", "Slurm's programs are on PATH")


def _controller(facts: SiteFacts) -> Finding:
    site = facts.site
    if isinstance(site, Trouble):
        return failed(
            "controller",
            f"slurmctld: {site.why}",
            "run `scontrol show config` here by hand; if slurm.conf is not in its usual place, set SLURM_CONF",
        )
    return fine("controller", f"cluster {site.cluster} answers: {facts.requests_text}")


def _release(facts: SiteFacts, site: SiteConfig) -> Finding:
    if site.version[:2] < _OLDEST:
        oldest = ".".join(f"{part:02d}" for part in _OLDEST)
        text = f"Slurm {site.release} is older than {oldest}, the oldest release that Penstock is tested with"
        return note("release", text, "upgrade Slurm")
    return fine("release", f"Slurm {site.release}")


def _clock(facts: SiteFacts, site: SiteConfig) -> Finding:
    if abs(facts.skew) > _LATE:
        way = "behind" if facts.skew > 0 else "ahead of"
        return note(
            "clock",
            f"this host's clock is {abs(facts.skew):.0f} s {way} slurmctld's; the agent corrects its times",
            "run an NTP client: munge and the agent refuse messages that are more than five minutes old",
        )
    return fine("clock", "this host's clock and slurmctld's agree")


def _queue(facts: SiteFacts) -> Finding:
    if isinstance(facts.queue, Trouble):
        return _asked("queue", facts.queue, "squeue, scontrol show nodes", "run `squeue` here by hand")
    seen = facts.queue
    jobs, nodes = plural(seen.jobs, "job"), plural(seen.nodes, "node")
    return fine("queue", f"the agent can read the queue: {jobs}, {nodes} ({seen.usable} usable)")


def _private(facts: SiteFacts, site: SiteConfig) -> Finding:
    hidden = sorted(site.private & {"jobs", "nodes", "reservations"})
    if hidden and not site.operator:
        return note(
            "private-data",
            f"PrivateData={','.join(hidden)}: {facts.user} sees only part of the queue, so plans, predicted waits and "
            "decisions to grow are based on that part",
            f"remove {', '.join(hidden)} from PrivateData, or give the agent's user Operator rights",
            "users then see each other's job names and sizes",
        )
    return fine("private-data", "the whole queue is visible")


def _partitions(facts: SiteFacts) -> Finding:
    if isinstance(facts.partitions, Trouble):
        return _asked("partitions", facts.partitions, "scontrol show partition", "run it here by hand")
    up = [partition.name for partition in facts.partitions if partition.up]
    if not up:
        return failed("partitions", "no partition is up", "scontrol update partition=NAME State=UP")
    if not any(partition.default for partition in facts.partitions):
        return note("partitions", f"up: {', '.join(up)}, but none is the default", "name a partition in every workflow")
    return fine("partitions", f"up: {', '.join(up)}")


def _submission(facts: SiteFacts) -> Finding:
    if isinstance(facts.submission, Trouble):
        return _asked(
            "submission",
            facts.submission,
            "sbatch --test-only -N1 -t1",
            "the text is Slurm's own; ask the site for an association, an account or a partition that takes your jobs",
        )
    return fine("submission", f"Slurm would take a job of one node: {facts.submission}")


def _accounting(facts: SiteFacts, site: SiteConfig) -> Finding:
    if site.accounting is False:
        return failed(
            "accounting",
            "no slurmdbd: Slurm then refuses a second change to a resized job, the agent cannot learn waits from "
            "past jobs, and only root and SlurmUser are operators",
            "set AccountingStorageType=accounting_storage/slurmdbd in slurm.conf",
            "slurmdbd and a MariaDB or MySQL database have to be maintained",
        )
    if isinstance(facts.history, Trouble):
        return _asked("accounting", facts.history, "sacct", "check that slurmdbd runs: `sacctmgr show cluster`")
    return fine("accounting", "slurmdbd answers")


def _association(facts: SiteFacts, site: SiteConfig) -> Finding:
    if site.accounting is False:
        return fine("association", "not needed without accounting")
    if isinstance(facts.accounts, Trouble):
        return unknown("association", f"sacctmgr show associations: {facts.accounts.why}")
    if facts.accounts:
        return fine("association", f"accounts of {facts.user}: {', '.join(facts.accounts)}")
    command = f"sacctmgr add user {facts.user} account=ACCOUNT cluster={site.cluster}"
    text = f"{facts.user} has no account on cluster {site.cluster}"
    if site.enforced:
        enforced = ",".join(sorted(site.enforced))
        return failed("association", f"{text}, and AccountingStorageEnforce={enforced} requires one", command)
    return note("association", f"{text}; jobs run without one, but fair-share does not count them", command)


def _operator(facts: SiteFacts, site: SiteConfig) -> Finding:
    if site.operator:
        return fine("operator", f"{facts.user} may change jobs of others, raise priorities and make reservations")
    grant = f"sacctmgr modify user {facts.user} set AdminLevel=Operator"
    cost = "an operator may change and cancel everybody's jobs, so choose a service user, not a person"
    if site.accounting is False:
        grant = "set up accounting first (see the check `accounting`), then give the agent's user AdminLevel=Operator"
        cost = ""
    text = f"{facts.user} is no operator, so may change own jobs only, make no reservations and raise no priorities"
    return failed("operator", text, grant, cost)


def _aging(facts: SiteFacts, site: SiteConfig) -> Finding:
    rules = Rules.of(site, age_while_dependent=facts.config.workflows.age_while_dependent)
    strategy, reasons = by_rules(rules)
    seen = f"workflows run as `{strategy.name}`: {'; '.join(reason.text for reason in reasons)}"
    if rules.accrues or strategy.tie is not Tie.AFTEROK:
        return fine("aging", seen)
    return note(
        "aging",
        seen,
        f"add ACCRUE_ALWAYS to PriorityFlags in slurm.conf, {_RECONFIGURE}",
        "all users' jobs then gain age while they are held or depend on others, beyond any limit on accruing jobs",
    )


def _merge(code: str) -> Callable[[SiteFacts, SiteConfig], Finding]:
    """One obstacle to the merge, asked of those who know."""

    def judge(facts: SiteFacts, site: SiteConfig) -> Finding:
        added = facts.config.malleable.merge_releases
        found = next((o for o in obstacles_to_merge(site, gres=True, added=added) if o.code == code), None)
        if found is None:
            return fine(code, _NO_OBSTACLE[code])
        change, cost = _COSTS[code]
        if code == "merge-gres":
            return note(code, f"jobs without GRES can be merged; {found.text}", change, cost)
        return failed(code, found.text, change, cost)

    return judge


_NO_OBSTACLE: Final[Mapping[str, str]] = {
    "merge-release": "merging works on this release",
    "job-expansion": "SchedulerParameters has permit_job_expansion",
    "extern-step": "PrologFlags gives jobs no extern step",
    "job-shrink": "jobs may give back nodes",
    "merge-gres": "nodes can be merged into jobs with GRES, too",
}


def _companion(facts: SiteFacts) -> Finding:
    if facts.config.agent.serve == "all":
        return fine(
            "companion",
            "the application's launcher (dmr.launch) submits companions as its own user from a compute node, which "
            "must be allowed to submit jobs; the agent cancels them as Operator; each counts as a job of the user",
        )
    return fine("companion", "companions need no setting of Slurm; each counts as a job of the user")


def _clusters(facts: SiteFacts) -> Finding:
    if isinstance(facts.clusters, Trouble):
        return _asked("clusters", facts.clusters, "sacctmgr show clusters", "tasks are placed on this cluster only")
    return fine("clusters", f"tasks can go to {', '.join(facts.clusters)}")


def _asked(check: str, trouble: Trouble, command: str, change: str) -> Finding:
    """A request that Slurm refused; unknown where it was never made."""
    if not trouble.asked:
        return unknown(check, trouble.why)
    return failed(check, f"{command}: {trouble.why}", change)


_OF_THE_SITE: Final[Mapping[str, Callable[[SiteFacts, SiteConfig], Finding]]] = {
    "release": _release,
    "clock": _clock,
    "private-data": _private,
    "accounting": _accounting,
    "association": _association,
    "operator": _operator,
    "aging": _aging,
    **{code: _merge(code) for code in _NO_OBSTACLE},
}
