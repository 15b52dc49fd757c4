"""The reading half of `RestBackend`: one request per look, checked before anything is believed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from penstock.api import (
    AccountingRecord,
    Job,
    JobTexts,
    License,
    Node,
    NodeNeeds,
    Owner,
    OwnerLimits,
    Partition,
    Reservation,
    SiteConfig,
    Step,
)
from penstock.errors import (
    Infeasible,
    NoCluster,
    NotFound,
    SlurmUnavailable,
)
from penstock.slurm import records, site_settings
from penstock.slurm.base import NotOffered
from penstock.slurm.limit_queries import read_limits
from penstock.slurm.parse import parse_tres
from penstock.slurm.queries import checked_name
from penstock_rest import records as rest
from penstock_rest.accounting import accrued, association_rows, oversees, qos_rows
from penstock_rest.asking import RestAsking, Words, without_accounting
from penstock_rest.site import UNTOLD, settings_of
from penstock_rest.values import flags, items, member, text

__all__ = ["RestQueries"]

_MANY = 2000  # jobs
_MOST_NAMED = 400  # jobs in one request
_FEW = 4  # jobs that are asked for one by one
_EPOCH = 2_000_000.0  # seconds; of moments before the first million its parser of times makes nothing

T = TypeVar("T")


class RestQueries(RestAsking):
    """What one user sees of a cluster through slurmrestd."""

    # -- other clusters -----------------------------------------------------------------------------------------

    async def clusters(self) -> Sequence[str]:
        """See `Backend.clusters`."""
        try:
            found = await self._accounting_of("clusters", "clusters/")
        except (Infeasible, SlurmUnavailable) as error:
            if not without_accounting(error):
                raise
            self._alone = await self._here()
            return [self._alone]
        return sorted(self._read_as("clusters", lambda: [text(item["name"]) for item in items(found, "clusters")]))

    async def _here(self) -> str:
        """The name of this cluster."""
        await self._agreed()
        return text(member(self._meta, "slurm", "cluster"))

    # -- looking ------------------------------------------------------------------------------------------------

    async def site(self) -> SiteConfig:
        """See `Backend.site`. By the commands where they are there, as they say more."""
        if self._commands:
            await self._agreed()
            return await super().site()
        await self._compare_clocks()
        told: Mapping[str, str] = {}
        if (await self._agreed()).settings:
            told = settings_of(await self._answer("conf", "GET", "slurm", "conf"))
        accounting = await self._has_accounting()
        release = text(member(self._meta, "slurm", "release"))
        made = {
            **UNTOLD,
            "SLURM_VERSION": release,
            "ClusterName": await self._here(),
            "AccountingStorageType": "accounting_storage/slurmdbd" if accounting else "",
            **self._settings,
            **told,
        }
        site = self._read_as("the settings", lambda: site_settings.site_from_settings(made))
        user = {text(member(made, "SlurmUser")).partition("(")[0], "root"}
        operator = self._user in user or (accounting and self._user in await self.operators())
        accrue = await self._least_accrue() if accounting else None
        return replace(site, operator=operator, max_jobs_accrue=accrue)

    async def _has_accounting(self) -> bool:
        try:
            await self._accounting_of("clusters", "clusters/")
        except (Infeasible, SlurmUnavailable) as error:
            if not without_accounting(error):
                raise
            return False
        return True

    async def _least_accrue(self) -> int | None:
        found = self._items("qos", await self._accounting_of("qos", "qos/"), "qos")
        return min((int(limit) for item in found if math.isfinite(limit := accrued(item))), default=None)

    async def _release(self) -> tuple[int, ...]:
        """The controller's release, as it says now; slurmrestd's own may be another."""
        if not self._commands:
            raise NotOffered("slurmrestd does not say which release slurmctld is, and some end by a merge")
        return await super()._release()

    async def operators(self) -> frozenset[str]:
        """See `Backend.operators`."""
        try:
            found = await self._accounting_of("users", "users/")
        except (Infeasible, SlurmUnavailable) as error:
            if not without_accounting(error):
                raise
            return frozenset()
        return self._read_as(
            "users", lambda: frozenset(text(item["name"]) for item in items(found, "users") if oversees(item))
        )

    async def memberships(self, cluster: str) -> Mapping[str, str]:
        """See `CliQueries.memberships`."""
        query = {"user": self._user, "cluster": cluster}
        answer = await self._accounting_of("associations", "associations/", query)
        found = self._items("associations", answer, "associations")
        rows = [item for item in found if item.get("user") == self._user and item.get("cluster") == cluster]
        accounts = {}
        for item in rows:
            allowed = list(flags(item.get("qos")))
            default = text(member(item, "default", "qos"))
            usual = "normal" if "normal" in allowed else allowed[0] if len(allowed) == 1 else ""
            accounts[text(item.get("account"))] = (default if not default.isdigit() else "") or usual
        return dict(sorted(accounts.items()))

    async def limits(self, owners: Sequence[Owner]) -> Sequence[OwnerLimits]:
        """See `Reader.limits`. slurmrestd does not show what slurmctld counts, so without commands it is what
        accounting has, whose use is not known."""
        if self._commands:
            return await super().limits(owners)

        async def nothing_shown(*_: str) -> str:
            return "No associations currently cached"

        async def recorded(*argv: str) -> str:
            if "qos" in argv:
                return qos_rows(self._items("qos", await self._accounting_of("qos", "qos/"), "qos"))
            query = {"cluster": await self._here()}
            found = await self._accounting_of("associations", "associations/", query)
            return association_rows(self._items("associations", found, "associations"))

        return await read_limits(owners, nothing_shown, recorded, self.partitions, self._here)

    async def charges(self, jobs: Collection[int]) -> Mapping[int, Mapping[str, float]]:
        """See `Reader.charges`."""
        found = await self._some(jobs)
        return self._read_as("jobs", lambda: {int(job["job_id"]): parse_tres(rest.tres_of(job)) for job in found})

    async def jobs(self) -> Sequence[Job]:
        """See `Backend.jobs`."""
        await self._check_clock()
        found = await self._raw_jobs()
        if self._partitions is None:
            await self.partitions()
        make = rest.job_from_json
        if len(found) > _MANY:  # as in `CliQueries`: others want answers meanwhile
            return await asyncio.to_thread(
                lambda: self._read_as("jobs", lambda: rest.understood(make, found, self._default_limit))
            )
        return self._read_as("jobs", lambda: rest.understood(make, found, self._default_limit))

    async def nodes(self) -> Sequence[Node]:
        """See `Backend.nodes`."""
        found = await self._answer("nodes", "GET", "slurm", "nodes/")
        return self._read_as("nodes", lambda: rest.understood(rest.node_from_json, items(found, "nodes")))

    async def partitions(self) -> Sequence[Partition]:
        """See `Backend.partitions`. Before v0.0.45 it is not said which is the default one: that is the only one there
        is, or the configured one, or what the commands say."""
        version = await self._agreed()
        if self._commands and version.number < 45 and self._default_partition is None:
            return await super().partitions()
        answer = await self._answer("partitions", "GET", "slurm", "partitions/")

        def read() -> list[Partition]:
            found = items(answer, "partitions")
            only = text(found[0].get("name")) if len(found) == 1 else None
            return rest.understood(rest.partition_from_json, found, self._default_partition or only)

        found = self._read_as("partitions", read)
        self._partitions = {partition.name: partition for partition in found}
        return found

    async def reservations(self) -> Sequence[Reservation]:
        """See `Backend.reservations`."""
        found = await self._answer("reservations", "GET", "slurm", "reservations/")
        make, now = rest.reservation_from_json, self.now()
        return self._read_as("reservations", lambda: rest.understood(make, items(found, "reservations"), now))

    async def licenses(self) -> Sequence[License]:
        """See `Backend.licenses`."""
        found = await self._answer("licenses", "GET", "slurm", "licenses/")
        return self._read_as("licenses", lambda: rest.understood(rest.license_from_json, items(found, "licenses")))

    async def shares(self) -> Mapping[str, float]:
        """See `Backend.shares`."""
        if (await self._agreed()).number < 40:
            return await super().shares()
        try:
            found = await self._answer("shares", "GET", "slurm", "shares", query={"users": self._user})
        except (Infeasible, SlurmUnavailable) as error:
            if without_accounting(error):
                return {}
            raise
        return self._read_as("shares", lambda: rest.shares_from_json(found, self._user))

    async def steps(self, job: int) -> Sequence[Step]:
        """See `Backend.steps`. By the commands where they are there: slurmrestd knows steps from accounting alone,
        which may lag by a moment."""
        if self._commands:
            return await super().steps(job)
        seen = await self._look(job)
        if seen is None or seen.state.ended:
            return []
        found = await self._accounting_of("steps", f"job/{int(job)}")
        return self._read_as(
            "steps",
            lambda: [
                step
                for item in items(found, "jobs")
                if item.get("job_id") == job
                for step in rest.steps_from_json(item)
            ],
        )

    async def holds_gres(self, job: int) -> bool:
        """See `Backend.holds_gres`."""
        return any(rest.asks_for_gres(item) for item in await self._known(job))

    async def node_needs(self, job: int) -> NodeNeeds:
        """See `Backend.node_needs`."""
        found = await self._known(job)
        return self._read_as("job", lambda: rest.needs_from_json(found[0]))

    async def texts(self, ids: Collection[int]) -> Mapping[int, JobTexts]:
        """See `Backend.texts`."""
        found = await self._some(ids)
        made = self._read_as("jobs", lambda: rest.understood(rest.texts_from_json, found))
        return {texts.job: texts for texts in made}

    async def find(self, name: str, uid: int | None = None) -> Sequence[int]:
        """See `Backend.find`. slurmrestd cannot filter by name."""
        checked_name(name)
        found = await self._raw_jobs("find")

        def own(job: Mapping[str, Any]) -> bool:
            whose = job.get("user_name") == self._user if uid is None else job.get("user_id") == uid
            return whose and job.get("name") == name

        return self._read_as("jobs", lambda: sorted({int(job["job_id"]) for job in found if own(job)}))

    # -- accounting ---------------------------------------------------------------------------------------------

    async def _accounting(
        self, ids: Collection[int], name: str | None, since: float | None
    ) -> list[tuple[AccountingRecord, tuple[str, ...]]]:
        found = await self._accounted(ids, name, since)
        return self._read_as(
            "history", lambda: records.accounting_from_rows(rest.understood(rest.accounting_row, found))
        )

    async def _accounted(self, ids: Collection[int], name: str | None, since: float | None) -> list[Mapping[str, Any]]:
        query: dict[str, Words] = {"show_duplicates": "true", "skip_steps": "true", "cluster": await self._here()}
        query["disable_truncate_usage_time"] = "true"  # else a job that runs ends now, and began at `since`
        if not ids:
            query["users"] = self._user
        if name is not None:
            query["job_name"] = checked_name(name)
        if since is not None:
            query["start_time"] = f"uts{max(int(since), int(_EPOCH))}"
        elif not ids:
            query["start_time"] = f"uts{int(_EPOCH)}"
        named = [str(int(job)) for job in sorted(ids)]
        found: list[Mapping[str, Any]] = []
        for first in range(0, max(len(named), 1), _MOST_NAMED):
            # Each by itself: of a list with commas it makes nothing (24.11).
            some: dict[str, Words] = {"step": named[first : first + _MOST_NAMED]} if named else {}
            answer = await self._accounting_of("history", "jobs/", {**query, **some})
            found += self._items("history", answer, "jobs")
        # The database compares names without regard to case.
        return [job for job in found if name is None or job.get("name") == name]

    async def _arrays(self, ids: Collection[int], known: Sequence[AccountingRecord]) -> dict[int, AccountingRecord]:
        found = await self._accounted(ids, None, None)
        array_of = {int(job["job_id"]): rest.array_of(job) for job in found}
        tasks: dict[int, list[AccountingRecord]] = {}
        for record in known:
            if (array := array_of.get(record.id)) is not None and array in ids:
                tasks.setdefault(array, []).append(record)
        return {array: records.of_array(array, found) for array, found in tasks.items()}

    async def _accounting_of(
        self, label: str, path: str, query: Mapping[str, Words] | None = None
    ) -> Mapping[str, Any]:
        return await self._answer(label, "GET", "slurmdb", path, query=query)

    # -- jobs ---------------------------------------------------------------------------------------------------

    async def _raw_jobs(self, label: str = "jobs") -> list[Mapping[str, Any]]:
        answer = await self._answer(label, "GET", "slurm", "jobs/")
        return self._items("jobs", answer, "jobs")

    async def _rows_of(self, job: int) -> list[Mapping[str, Any]]:
        """The objects of a job, several for an array; none when the controller does not know it."""
        try:
            answer = await self._answer("job", "GET", "slurm", f"job/{int(job)}")
        except NoCluster:
            raise
        except NotFound:
            return []
        return self._items("job", answer, "jobs")

    async def _known(self, job: int) -> list[Mapping[str, Any]]:
        found = [item for item in await self._rows_of(job) if item.get("job_id") == job]
        if not found:
            raise NotFound(f"job {job} is not there")
        return found

    async def _some(self, jobs: Collection[int]) -> list[Mapping[str, Any]]:
        """The objects of those of these jobs that the controller knows."""
        if not jobs:
            return []
        if len(jobs) > _FEW:
            found = await self._raw_jobs()
        else:
            found = [item for job in sorted(jobs) for item in await self._rows_of(job)]
        wanted = set(jobs)
        return list({item["job_id"]: item for item in found if item.get("job_id") in wanted}.values())

    async def _queue(self, *filters: str) -> list[Job]:
        if filters[:1] != ("-j",):
            return list(await self.jobs())
        return [job for number in filters[1].split(",") for job in await self._made(int(number))]

    async def _made(self, job: int) -> list[Job]:
        if self._partitions is None:
            await self.partitions()
        found = await self._rows_of(job)
        return self._read_as("job", lambda: rest.understood(rest.job_from_json, found, self._default_limit))

    async def _look(self, job: int) -> Job | None:
        """One job as it is now; None when the controller does not know it."""
        return next((item for item in await self._made(job) if item.id == job), None)
