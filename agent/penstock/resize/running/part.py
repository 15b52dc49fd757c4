"""The part of malleable jobs: they grow and shrink while they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from penstock.api import JointPolicy, ResizePolicy, SiteConfig
from penstock.config import Config
from penstock.core.extensions import POLICIES
from penstock.core.families import Family
from penstock.core.pace import Pace
from penstock.core.parts import Controller, Operation, Part, Site, StatusShare
from penstock.host.logs import get_logger
from penstock.ipc.limits import RateLimit
from penstock.resize.running import figures
from penstock.resize.running.caps import Caps
from penstock.resize.running.controller import MalleableController
from penstock.resize.running.programs import Programs
from penstock.resize.running.requests import MalleableRequests
from penstock.resize.running.settings import MalleableSettings
from penstock.resize.running.words import Deadlines
from penstock.values.merging import obstacle_to_merge

__all__ = ["MalleablePart", "make_policy"]

_log = get_logger(__name__)


def make_policy(name: str) -> ResizePolicy | JointPolicy:
    """The resize policy of that name."""
    policy: ResizePolicy | JointPolicy = POLICIES.make(name)
    return policy


class MalleablePart(Part):
    """`programs` hears what they say."""

    name: ClassVar[str] = "malleable"

    def __init__(self, site: Site) -> None:
        self._site, config = site, site.config()
        settings = MalleableSettings(
            make_policy(config.dmr.policy),
            _limits(config),
            config.malleable.backend,
            all=config.agent.serve == "all",
            caps=_caps(config),
            merge_releases=config.malleable.merge_releases,
            extend=_extends(config),
        )
        self.controller = MalleableController(site, settings)
        self._limits = (RateLimit(1, 1), RateLimit(1, 1))  # of each of a user's jobs, and of all of them together
        self._set_limits(config)
        heard = (self.controller, site.observer, site.clock, site.callers.serves, site.want_look)
        self.programs = Programs(*heard, *self._limits)
        self._requests = MalleableRequests(self.controller, site)

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        make_policy(config.dmr.policy)

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self.controller.settings.site = slurm
        malleable = self._site.config().malleable
        obstacle = obstacle_to_merge(slurm, gres=False, added=malleable.merge_releases)
        _log.info("how jobs grow here", backend=malleable.backend, no_merge=obstacle, operator=slurm.operator)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self.controller,)

    def operations(self) -> Mapping[str, Operation]:
        """See `Part`."""
        return self._requests.operations()

    async def status(self, uid: int, pace: Pace) -> StatusShare:
        """See `Part`."""
        return self._requests.status(uid)

    def owner(self, kind: str, number: int) -> int | None:
        """See `Part`."""
        stored = self._site.store.malleable.owner
        return self._site.owner_of_job(number, self.controller.jobs, stored) if kind == "job" else None

    def growing(self) -> Iterable[int]:
        """See `Part`."""
        for number, me in self.controller.jobs.items():
            yield number
            yield from (companion.job for companion in me.companions)

    def families(self) -> Iterable[Family]:
        """See `Part`."""
        return figures.families(self.controller)

    def reconfigured(self, config: Config) -> None:
        """See `Part`."""
        self._set_limits(config)
        settings = self.controller.settings
        settings.policy, settings.limits = make_policy(config.dmr.policy), _limits(config)
        settings.preference = config.malleable.backend
        settings.caps, settings.extend = _caps(config), _extends(config)

    def _set_limits(self, config: Config) -> None:
        for limit, factor in zip(self._limits, (1, 10), strict=True):
            limit.configure(config.agent, factor)

    async def close(self) -> None:
        """See `Part`."""
        await self.controller.close()


def _caps(config: Config) -> Caps:
    return Caps(config.limits.nodes_per_hour, config.limits.nodes_per_hour_of_user)


def _extends(config: Config) -> bool:
    """Whether time limits may be raised, if the agent's user is an operator at all."""
    own = config.agent.serve == "own"
    return own if config.malleable.extend is None else config.malleable.extend


def _limits(config: Config) -> Deadlines:
    dmr = config.dmr
    return Deadlines(
        grant=dmr.grant_timeout,
        accept=dmr.accept_timeout,
        cooldown=dmr.cooldown,
        resize=config.malleable.resize_timeout,
        restart=config.malleable.restart_timeout,
        cost=config.malleable.resize_cost,
    )
