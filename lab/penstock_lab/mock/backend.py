"""The simulated Slurm as a `Backend`, and the virtual clock that drives it.

A driver of an agent alternates: let the agent make a pass, then jump to what happens next.

    backend = virtual_cluster(ClusterConfig(nodes=8), user="alice")
    clock = backend.clock
    while not finished():
        due = await agent.tick()                                # seconds until the agent wants to look again
        clock.advance_to(min(clock.now() + due, clock.next_event() or math.inf))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.api import (
    AccountingRecord,
    Allocation,
    Job,
    JobSpec,
    JobTexts,
    License,
    Node,
    NodeNeeds,
    Owner,
    OwnerLimits,
    Partition,
    Reservation,
    ReservationSpec,
    SiteConfig,
    StartEstimate,
    Step,
)
from penstock.errors import NoCluster, NotNow
from penstock_lab.mock import views
from penstock_lab.mock.clock import Driver, VirtualClock
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig

__all__ = ["MockBackend", "Site", "VirtualClock", "virtual_cluster", "virtual_site"]

Site = dict[str, tuple[Engine, Driver]]
"""The clusters of a site by name."""


class MockBackend:
    """One user's view of a simulated cluster (`Backend`). `as_user` gives another user's view of the same cluster.

    In virtual time `allocate` grants what can start at this instant; else it withdraws the request and raises NotNow at
    once, whatever the patience, because a coroutine that waits would hold up the driver that moves the clock.
    """

    def __init__(
        self,
        engine: Engine,
        user: str,
        clock: Driver | None = None,
        *,
        name: str | None = None,
        site: Site | None = None,
    ) -> None:
        self.name = engine.config.cluster if name is None else name
        self._user = user
        driver: Driver = clock or VirtualClock(engine.now)
        if isinstance(driver, VirtualClock):
            driver.attach(engine)
        self._site: Site = {self.name: (engine, driver)} if site is None else site
        self._time = driver

    @property
    def engine(self) -> Engine:
        """The simulated cluster; NotFound when the site has none of this name."""
        return self._cluster[0]

    @property
    def driver(self) -> Driver:
        """Who moves its time."""
        return self._cluster[1]

    @property
    def _cluster(self) -> tuple[Engine, Driver]:
        try:
            return self._site[self.name]
        except KeyError:
            raise NoCluster(f"No cluster {self.name!r} known by database.") from None

    @property
    def _controller(self) -> Controller:
        return Controller(self.engine)

    @property
    def clock(self) -> VirtualClock:
        """The virtual clock; TypeError when this cluster runs in real time."""
        if not isinstance(self.driver, VirtualClock):
            raise TypeError("this cluster runs in real time")
        return self.driver

    def as_user(self, user: str) -> MockBackend:
        """The same cluster as another user sees it."""
        return MockBackend(self.engine, user, self.driver, name=self.name, site=self._site)

    def now(self) -> float:
        """The cluster's clock."""
        return self._time.now()

    def whoami(self) -> str:
        """Who asks."""
        return self._user

    async def site(self) -> SiteConfig:
        """The cluster's settings."""
        config = self.engine.config
        return replace(config.site(), operator=self._user == "root" or self._user in config.operators)

    async def operators(self) -> frozenset[str]:
        """See `Backend.operators`."""
        return frozenset(self.engine.config.operators)

    async def jobs(self) -> Sequence[Job]:
        """Every job in the controller's memory."""
        await self.driver.pause(self.engine.config.query_latency)
        self.driver.settle()
        return views.jobs(self.engine)

    async def nodes(self) -> Sequence[Node]:
        """Every node."""
        await self.driver.pause(self.engine.config.query_latency)
        self.driver.settle()
        return views.nodes(self.engine)

    async def partitions(self) -> Sequence[Partition]:
        """Every partition."""
        return views.partitions(self.engine)

    async def reservations(self) -> Sequence[Reservation]:
        """Every reservation."""
        self.driver.settle()
        return views.reservations(self.engine)

    async def licenses(self) -> Sequence[License]:
        """Every licence."""
        self.driver.settle()
        return self.engine.licenses.view()

    async def shares(self) -> Mapping[str, float]:
        """Fair-share factors; every user may use every account here."""
        self.driver.settle()
        return self.engine.shares()

    async def limits(self, owners: Sequence[Owner]) -> Sequence[OwnerLimits]:
        """See `Reader.limits`."""
        self.driver.settle()
        places = {partition.name: partition for partition in views.partitions(self.engine)}
        return [self.engine.enforcement.of(owner, places.get(owner.partition)) for owner in owners]

    async def charges(self, jobs: Collection[int]) -> Mapping[int, Mapping[str, float]]:
        """See `Reader.charges`."""
        self.driver.settle()
        views_of = {job.id: job for job in views.jobs(self.engine) if job.id in jobs}
        return {n: {"cpu": float(job.num_cpus), "node": float(job.num_nodes)} for n, job in views_of.items()}

    async def clusters(self) -> Sequence[str]:
        """The clusters of the site."""
        return sorted(self._site)

    def on(self, cluster: str) -> MockBackend:
        """Another cluster of the site as the same user sees it."""
        engine, driver = self._site.get(cluster) or next(iter(self._site.values()))
        return MockBackend(engine, self._user, driver, name=cluster, site=self._site)

    async def texts(self, ids: Collection[int]) -> Mapping[int, JobTexts]:
        """What users wrote."""
        self.driver.settle()
        return self._controller.texts(ids)

    async def estimate(self, spec: JobSpec) -> StartEstimate:
        """When a job would start."""
        self.driver.settle()
        return self._controller.estimate(self._user, spec)

    async def steps(self, job: int) -> Sequence[Step]:
        """The running steps of a job."""
        await self.driver.pause(self.engine.config.query_latency)
        self.driver.settle()
        steps = self._controller.steps(job)
        return [*steps, *self.driver.steps(job)] if job in self.engine.jobs else []

    async def holds_gres(self, job: int) -> bool:
        """None are simulated."""
        self.engine.job(job)
        return False

    async def node_needs(self, job: int) -> NodeNeeds:
        """All nodes are alike."""
        self.engine.job(job)
        return NodeNeeds()

    async def find(self, name: str, uid: int | None = None) -> Sequence[int]:
        """The caller's jobs of this name, or those of user `uid`."""
        self.driver.settle()
        return self._controller.find(self.engine.uid_of(self._user) if uid is None else uid, name)

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """Accounting; it never lags here."""
        self.driver.settle()
        return self._controller.history(self._user, ids, name, since)

    async def submit(self, spec: JobSpec) -> int:
        """Submit a batch job."""
        self.driver.settle()
        number = self._controller.submit(self._user, spec)
        self.driver.settle()
        return number

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """Nodes without a script; see the class for what patience means in virtual time.

        A coroutine that is cancelled withdraws its request, as an interrupted salloc does.
        """
        self.driver.settle()
        number = self._controller.allocate(self._user, spec)
        self.driver.settle()
        granted = False
        try:
            granted = await self.driver.granted(self.engine, number, patience)
        finally:
            if not granted:
                self._controller.cancel(self._user, number)
                self.driver.settle()
        if not granted:
            raise NotNow(f"no {spec.nodes} nodes were granted within {patience:g} s")
        return number

    async def merge(self, resizer: int, into: int) -> None:
        """Move the resizer's nodes."""
        await self.driver.pause(self.engine.config.merge_latency)
        self.driver.settle()
        self._controller.merge(self._user, resizer, into)
        self.driver.settle()

    async def shrink(self, job: int, keep: Collection[str]) -> None:
        """Take nodes from a running job."""
        await self.driver.pause(self.engine.config.shrink_latency)
        self.driver.settle()
        self._controller.shrink(self._user, job, keep)
        self.driver.settle()

    async def cancel(self, job: int, tasks: Collection[int] = ()) -> None:
        """Cancel a job, or tasks of an array."""
        self.driver.settle()
        self._controller.cancel(self._user, job, tasks)
        self.driver.settle()

    async def hold(self, job: int) -> None:
        """Keep a job from starting."""
        self.driver.settle()
        self._controller.hold(self._user, job)
        self.driver.settle()

    async def requeue(self, job: int) -> None:
        """Put a job back into the queue."""
        self.driver.settle()
        self._controller.requeue(self._user, job)
        self.driver.settle()

    async def reserve(self, spec: ReservationSpec) -> Reservation:
        """Create a reservation."""
        self.driver.settle()
        reservation = self._controller.reserve(self._user, spec)
        self.driver.settle()
        return reservation

    async def move_reservation(
        self, name: str, start: float, duration: float, nodelist: Collection[str]
    ) -> Reservation:
        """Have a reservation begin at another time."""
        self.driver.settle()
        moved = self._controller.move_reservation(self._user, name, start, duration, list(nodelist))
        self.driver.settle()
        return moved

    async def unreserve(self, name: str) -> None:
        """Delete a reservation."""
        self.driver.settle()
        self._controller.unreserve(self._user, name)
        self.driver.settle()

    async def release(self, job: int) -> None:
        """Release a held job."""
        self.driver.settle()
        self._controller.release(self._user, job)
        self.driver.settle()

    async def signal(self, job: int, number: int) -> None:
        """To a running job's batch script."""
        self.driver.settle()
        self._controller.signal(self._user, job, number)
        self.driver.settle()

    async def update(
        self,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
        nodelist: Collection[str] | None = None,
        reset_age: bool = False,
        nice: int | None = None,
        nodes: int | None = None,
        reservation: str | None = None,
    ) -> None:
        """Change a job."""
        self.driver.settle()
        self._controller.update(
            self._user,
            job,
            time_limit=time_limit,
            dependency=dependency,
            priority=priority,
            begin=begin,
            nodelist=nodelist,
            reset_age=reset_age,
            nice=nice,
            nodes=nodes,
            reservation=reservation,
        )
        self.driver.settle()

    async def close(self) -> None:
        """Nothing to release: the cluster may have other users."""


def virtual_cluster(config: ClusterConfig | None = None, user: str = "alice", start: float = 0.0) -> MockBackend:
    """A simulated cluster, with the siblings that it names, under a virtual clock of its own, seen as `user`."""
    config = config or ClusterConfig()
    return virtual_site([config, *config.siblings], user, start)


def virtual_site(configs: Sequence[ClusterConfig], user: str = "alice", start: float = 0.0) -> MockBackend:
    """Several simulated clusters under one virtual clock; the first of them as `user` sees it (`on` gives the others).

    ValueError when two have one name.
    """
    clock = VirtualClock(start)
    site: Site = {config.cluster: (Engine(config, start), clock) for config in configs}
    if len(site) < len(configs):
        raise ValueError("the clusters of a site need different names")
    for engine, _clock in site.values():
        clock.attach(engine)
    return MockBackend(site[configs[0].cluster][0], user, clock, site=site)
