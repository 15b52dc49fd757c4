"""The reading half of `CliBackend`: one command per look, checked before anything is believed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, Self, TypeVar

from penstock.api import (
    AccountingRecord,
    Job,
    JobState,
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
from penstock.errors import Infeasible, NoCluster, NotFound, PenstockError, SlurmUnavailable
from penstock.slurm import needs, records, site_settings
from penstock.slurm.asking import ACCOUNTING_PATIENCE, NO_ACCOUNTING, CliAsking, understood
from penstock.slurm.limit_queries import read_limits
from penstock.slurm.parse import is_plain_name, parse_tres
from penstock.slurm.privacy import OVERSEERS, Privacy, coordinators_from_text, privacy_from_config
from penstock.slurm.refusals import classify
from penstock.slurm.texts import texts_from_json
from penstock.values.documents import show
from penstock.values.lines import split_lines

__all__ = ["CliQueries", "checked_name"]

_MOST_NAMED = 1000  # jobs on one command line
_MANY = 2000  # rows
_DAYS = 2 * 86400.0
_LONG = 500_000  # characters

T = TypeVar("T")


class CliQueries(CliAsking):
    """What one user sees of a cluster through Slurm's commands."""

    _alone: str | None = None
    """The one cluster, where there is no accounting."""
    _partitions: dict[str, Partition] | None = None
    """As the last look had them."""

    # -- other clusters -----------------------------------------------------------------------------------------

    async def clusters(self) -> Sequence[str]:
        """See `Backend.clusters`. A cluster that accounting knows is named even while its controller is down."""
        done = await self._run(["sacctmgr", "-n", "-P", "show", "clusters", "format=cluster"], changing=False)
        if done.code != 0 and NO_ACCOUNTING in done.stderr:
            self._alone = (await self.site()).cluster
            return [self._alone]
        if done.code != 0:
            raise SlurmUnavailable(str(classify(done.stderr, changing=False)))
        return sorted(done.stdout.split())

    def on(self, cluster: str) -> Self:
        """See `Backend.on`. Requests of both are counted together; the time limit is the same."""
        if not is_plain_name(cluster) or cluster == "all":  # which `-M` would take for several
            raise NoCluster(f"{show(cluster)} cannot be the name of a cluster")
        view = type(self)(name=self.name, user=self._user, timeout=self._limit)
        view._runner = self._runner
        # Without accounting `-M` cannot even name the cluster at hand.
        view._cluster = None if cluster == self._alone else cluster
        return view

    # -- looking ------------------------------------------------------------------------------------------------

    async def site(self) -> SiteConfig:
        """See `Backend.site`. Compares the clocks as well: the answer begins with the controller's time."""
        text = await self._config()
        site = understood("scontrol show config", lambda: site_settings.site_from_text(text))
        if site.accounting and not self._cluster:
            site = replace(site, max_jobs_accrue=await self._accrue_limit())
        return replace(site, operator=await self._operates(text, bool(site.accounting)))

    async def _release(self) -> tuple[int, ...]:
        """The controller's release, as it says now."""
        text = await self._config()
        return understood("scontrol show config", lambda: site_settings.site_from_text(text)).version

    async def _accrue_limit(self) -> int | None:
        """The least MaxJobsAccruePU of any QOS; None where there is none, or nobody says."""
        argv = ("sacctmgr", "-nP", "show", "qos", "format=MaxJobsAccruePU")
        with contextlib.suppress(PenstockError):
            done = await self._run(argv, changing=False, limit=min(self._limit, ACCOUNTING_PATIENCE))
            return min((int(line) for line in done.stdout.splitlines() if line.isdigit()), default=None)
        return None

    async def _operates(self, config: str, accounting: bool) -> bool:
        """Whether this user is root, Slurm's own, or an operator in accounting."""
        if self._user in ("root", site_settings.slurm_user(config)):
            return True
        if not accounting:
            return False
        argv = ("sacctmgr", "-nP", "show", "user", self._user, "format=AdminLevel")
        with contextlib.suppress(PenstockError):
            done = await self._run(argv, changing=False, limit=min(self._limit, ACCOUNTING_PATIENCE))
            return done.code == 0 and done.stdout.strip() in OVERSEERS
        return False

    async def operators(self) -> frozenset[str]:
        """See `Backend.operators`."""
        argv = ("sacctmgr", "-nP", "show", "user", "format=User,AdminLevel")
        done = await self._run(argv, changing=False, limit=min(self._limit, ACCOUNTING_PATIENCE))
        if done.code != 0 and NO_ACCOUNTING in done.stderr:
            return frozenset()
        if done.code != 0:
            raise SlurmUnavailable(str(classify(done.stderr, changing=False)))
        rows = [line.strip().split("|") for line in done.stdout.splitlines()]
        return frozenset(row[0] for row in rows if len(row) == 2 and row[1] in OVERSEERS)

    async def privacy(self) -> Privacy:
        """What Slurm shows to whom, as far as the caller may see that: of who oversees and coordinates accounting says
        all to an Operator. Raises `SlurmUnavailable`, also where accounting has to say it, and does not."""
        text = await self._config()
        try:
            rule = privacy_from_config(text)
            if not rule.hides or not site_settings.site_from_text(text).accounting:
                return rule
            rows = await self._recorded("sacctmgr", "-nP", "show", "user", "withcoord", "format=User,AdminLevel,Coord")
            oversee, coordinators = coordinators_from_text(rows)
        except (KeyError, ValueError) as error:
            raise SlurmUnavailable(f"what PrivateData hides from whom cannot be read: {error}") from error
        return replace(rule, privileged=rule.privileged | oversee, coordinators=MappingProxyType(coordinators))

    async def memberships(self, cluster: str) -> Mapping[str, str]:
        """The accounts that the caller may submit under on a cluster, sorted, each with the QOS of a job that names
        none (empty: none, or not known); empty without an association.

        Raises `Infeasible` where there is no accounting, and as the other calls.
        """
        fields = "format=account,defaultqos,qos"
        argv = ("sacctmgr", "-nP", "show", "associations", f"user={self._user}", f"cluster={cluster}", fields)
        rows = [line.split("|") for line in (await self._recorded(*argv)).splitlines() if line.strip()]
        if any(len(row) != 3 for row in rows):
            raise SlurmUnavailable("sacctmgr show associations: a row without three fields")
        return {account: default or _usual(allowed) for account, default, allowed in sorted(rows)}

    async def defined(self, kind: Literal["accounts", "qos"]) -> frozenset[str]:
        """The names of all accounts, or of all QOS. Raises `Infeasible` where there is no accounting."""
        words = ("account", "format=account") if kind == "accounts" else ("qos", "format=name")
        rows = await self._recorded("sacctmgr", "-nP", "show", *words)
        return frozenset(line.strip() for line in split_lines(rows) if line.strip())

    async def limits(self, owners: Sequence[Owner]) -> Sequence[OwnerLimits]:
        """See `Reader.limits`."""

        async def cluster() -> str:
            return self._cluster or site_settings.site_from_text(await self._config()).cluster

        # Not of pyslurm, which does not say which QOS a partition has.
        return await read_limits(owners, self._read, self._recorded, lambda: CliQueries.partitions(self), cluster)

    async def charges(self, jobs: Collection[int]) -> Mapping[int, Mapping[str, float]]:
        """See `Reader.charges`."""
        if not jobs:
            return {}
        only = ["-j", ",".join(str(int(job)) for job in sorted(jobs))] if len(jobs) <= _MOST_NAMED else []
        try:
            rows = await self._rows(("JobID", "tres-alloc"), "-a", "-t", "all", *only)
        except NoCluster:
            raise
        except NotFound:
            return {}
        found = understood("squeue", lambda: {int(row[0]): parse_tres(row[1]) for row in rows})
        return {job: tres for job, tres in found.items() if job in jobs}

    async def jobs(self) -> Sequence[Job]:
        """See `Backend.jobs`."""
        await self._check_clock()
        return await self._queue()

    async def nodes(self) -> Sequence[Node]:
        """See `Backend.nodes`."""
        text = await self._read("scontrol", "-a", "-o", "show", "nodes")
        lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
        return understood("scontrol show nodes", lambda: [records.node_from_line(line) for line in lines])

    async def partitions(self) -> Sequence[Partition]:
        """See `Backend.partitions`."""
        text = await self._read("scontrol", "-a", "-o", "show", "partition")
        lines = [line for line in text.splitlines() if line.startswith("PartitionName=")]
        found = understood("scontrol show partition", lambda: [records.partition_from_line(line) for line in lines])
        self._partitions = {partition.name: partition for partition in found}
        return found

    async def reservations(self) -> Sequence[Reservation]:
        """See `Backend.reservations`."""
        text = await self._read("scontrol", "-a", "-o", "show", "reservations")
        none = "No reservations in the system"
        return understood(
            "scontrol show reservations",
            lambda: [records.reservation_from_line(line) for line in records.lines_of(text, "ReservationName", none)],
        )

    async def licenses(self) -> Sequence[License]:
        """See `Backend.licenses`."""
        text = await self._read("scontrol", "-o", "show", "licenses")
        none = "No licenses configured in Slurm"
        return understood(
            "scontrol show licenses",
            lambda: [records.license_from_line(line) for line in records.lines_of(text, "LicenseName", none)],
        )

    async def shares(self) -> Mapping[str, float]:
        """See `Backend.shares`. Accounts and users are named by administrators only, in characters that need no
        quoting."""
        argv = ["sshare", "-h", "-P", "-U", "-o", "Account,User,FairShare"]
        done = await self._run(argv, changing=False)
        if done.code != 0 and NO_ACCOUNTING in done.stderr:
            return {}
        if done.code != 0:
            raise SlurmUnavailable(str(classify(done.stderr, changing=False)))
        return understood("sshare", lambda: records.shares_from_text(done.stdout, self._user))

    async def steps(self, job: int) -> Sequence[Step]:
        """See `Backend.steps`."""
        try:
            # squeue -s takes its format from the arguments only; nothing that is asked for here is a user's text.
            mark = records.draw_mark()
            form = records.long_format(records.STEP_FIELDS, mark)
            text = await self._read("squeue", "--local", "-s", "-a", "-j", str(int(job)), "-O", form)
        except NoCluster:
            raise
        except NotFound:
            return []
        rows = understood("squeue -s", lambda: records.split_rows(text, records.STEP_FIELDS, mark))
        steps = understood("squeue -s", lambda: [records.step_from_row(row, job) for row in rows])
        return [step for step in steps if step is not None]

    async def holds_gres(self, job: int) -> bool:
        """See `Backend.holds_gres`. What is allocated is shown of GRES that accounting counts only."""
        rows = await self._rows(("JobID", *records.TRES_FIELDS), "-a", "-t", "all", "-j", str(int(job)))
        if not rows:
            raise NotFound(f"job {job} is not there")
        return any("gres" in cell for row in rows for cell in row[1:])

    async def node_needs(self, job: int) -> NodeNeeds:
        """See `Backend.node_needs`."""
        rows = await self._rows(("JobID", *needs.NEEDS_FIELDS), "-a", "-t", "all", "-j", str(int(job)))
        if not rows:
            raise NotFound(f"job {job} is not there")
        columns = rows[0][1:]
        if needs.named_per_node(columns):
            return needs.node_needs(columns, ())
        # The texts of the job's owner stand there, too; by them owners change what their own jobs ask for.
        shown = await self._read("scontrol", "-o", "-d", "show", "job", str(int(job)))
        return needs.node_needs(columns, needs.given_in(shown), tasks_per_gpu=needs.tasks_per_gpu_in(shown))

    async def texts(self, ids: Collection[int]) -> Mapping[int, JobTexts]:
        """See `Backend.texts`. squeue of 22.05 prints the whole queue whatever is asked for."""
        if not ids:
            return {}
        only = ["-j", ",".join(str(int(job)) for job in sorted(ids))] if len(ids) <= _MOST_NAMED else []
        try:
            text = await self._read("squeue", "--local", "-a", "-t", "all", *only, "--json")
        except NoCluster:
            raise
        except NotFound:
            return {}
        return understood("squeue --json", lambda: texts_from_json(text, set(ids)))

    async def find(self, name: str, uid: int | None = None) -> Sequence[int]:
        """See `Backend.find`. The name must be of letters, digits, `.`, `_` and `-`, as all names that we give are."""
        whose = "--me" if uid is None else f"--user={int(uid)}"
        rows = await self._rows(("JobID",), "-a", "-t", "all", whose, f"--name={checked_name(name)}")
        if not all(word.isascii() and word.isdigit() for (word,) in rows):
            raise SlurmUnavailable(f"squeue gave something that is not a list of job ids: {rows[:3]!r}")
        return sorted({int(word) for (word,) in rows})

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """See `Backend.history`. For `state` RESIZING see `records.accounting_from_rows`."""
        known = [record for record, _ in await self._accounting(ids, name, since)]
        found = {record.id: record for record in known if not ids or record.id in ids}
        if ids and len(found) < len(known):  # -j of an array names all its tasks
            found |= await self._arrays(ids, known)
        # Of a job that was requeued sacct leaves out the last row, when that does not touch the time asked for.
        again = [job for job, record in found.items() if record.state is JobState.REQUEUED]
        if again and not ids:
            found |= {record.id: record for record, _ in await self._accounting(again, None, None)}
        return list(found.values())

    # -- asking Slurm -------------------------------------------------------------------------------------------

    async def _queue(self, *filters: str) -> list[Job]:
        rows = await self._rows(records.JOB_FIELDS, "-a", "-t", "all", *filters)
        column = records.JOB_FIELDS.index("TimeLimit")
        if self._partitions is None and any(row[column] in ("Partition_Limit", "NOT_SET") for row in rows):
            await self.partitions()

        def parsed() -> list[Job]:
            return [records.job_from_row(row, self._default_limit) for row in rows]

        return await _beside(len(rows) > _MANY, "squeue", parsed)

    async def _look(self, job: int) -> Job | None:
        """One job as it is now; None when the controller does not know it."""
        try:
            found = await self._queue("-j", str(int(job)))
        except NoCluster:
            raise
        except NotFound:
            return None
        return next((item for item in found if item.id == job), None)

    async def _tasks(self, job: int) -> list[Job]:
        """The rows of a job: more than one for an array. `NotFound` when the controller does not know it."""
        rows = await self._queue("-j", str(int(job)))
        if not rows:
            raise NotFound(f"job {job} is not there")
        return rows

    async def _rows(self, fields: Sequence[str], *options: str) -> list[list[str]]:
        mark = records.draw_mark()
        # In the environment, which other users cannot read, and not among the arguments, which they can.
        # Without a limit of 0 squeue cuts the tasks of an array off after 64 characters.
        extra = {"SQUEUE_FORMAT2": records.long_format(fields, mark), "SLURM_BITSTR_LEN": "0"}
        text = await self._read("squeue", "--local", "--noconvert", *options, extra=extra)
        return await _beside(len(text) > _LONG, "squeue", lambda: records.split_rows(text, fields, mark))

    async def _accounting(
        self, ids: Collection[int], name: str | None, since: float | None
    ) -> list[tuple[AccountingRecord, tuple[str, ...]]]:
        """Records and the nodes of each job's last row. -D, as only the rows of all sizes tell when a job started."""
        fields = ",".join(records.ACCOUNTING_FIELDS)
        mark = records.draw_mark()
        argv = ["sacct", "-p", "-X", "-D", "--noconvert", "--local", f"--delimiter={mark}", f"--format={fields}"]
        if ids:
            argv += ["-a", f"--jobs={','.join(str(int(job)) for job in sorted(ids))}"]
        else:
            argv.append(f"--user={self._user}")
        if name is not None:
            argv.append(f"--name={checked_name(name)}")
        if since is not None:
            ago = max(0, int(self.now() - since) + 1)
            # 22.05 takes no time before the epoch, for which its zone may make it.
            argv += ["-S", f"now-{ago}" if since > _DAYS else "1970-01-02"]
        elif not ids:
            argv += ["-S", "1970-01-02"]
        text = await self._read(*argv)
        rows = understood("sacct", lambda: records.split_rows(text, records.ACCOUNTING_FIELDS, mark))
        # Of a cluster that it does not know sacct says what it says of one without such jobs: nothing.
        if not rows and self._cluster is not None and self._cluster not in await self.clusters():
            raise NoCluster(f"accounting knows no cluster {self._cluster!r}")
        return understood("sacct", lambda: records.accounting_from_rows(rows))

    async def _arrays(self, ids: Collection[int], known: Sequence[AccountingRecord]) -> dict[int, AccountingRecord]:
        """The records of those ids that are arrays, from those of their tasks."""
        text = await self._read(
            "sacct", "-n", "-P", "-X", "-D", "-a", "--local", f"--jobs={','.join(map(str, sorted(ids)))}",
            "--format=JobIDRaw,JobID",
        )  # fmt: skip
        array_of = understood("sacct", lambda: records.arrays_of(text))
        tasks: dict[int, list[AccountingRecord]] = {}
        for record in known:
            if (array := array_of.get(record.id, 0)) in ids:
                tasks.setdefault(array, []).append(record)
        return {array: records.of_array(array, found) for array, found in tasks.items()}

    # -- small things -------------------------------------------------------------------------------------------

    def _default_limit(self, partition: str) -> float | None:
        known = self._partitions or {}
        return next((known[name].default_time for name in partition.split(",") if name in known), None)


def _usual(allowed: str) -> str:
    """The QOS that a job gets which names none, from those that its association may use and has no default among."""
    names = allowed.split(",")
    return "normal" if "normal" in names else names[0] if len(names) == 1 else ""


def checked_name(name: str) -> str:
    """The name, if it is one that Slurm's options take as it is (a comma would make two of it)."""
    if not is_plain_name(name):
        raise Infeasible(f"a job name that Penstock gives is made of letters, digits and ._- only, not {show(name)}")
    return name


async def _beside(long: bool, what: str, parse: Callable[[], T]) -> T:
    """As `understood`; a long text in a thread of its own, as applications and users want answers meanwhile."""
    return await asyncio.to_thread(understood, what, parse) if long else understood(what, parse)
