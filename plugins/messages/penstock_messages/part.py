"""The part of messages: it tells people what happens to what is theirs."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.core.parts import Part, Site
from penstock_messages.extending import CHANNELS

if TYPE_CHECKING:  # commands ask this class, too, and do not pay for what only the agent needs
    from penstock.api import SiteConfig
    from penstock.config import Config
    from penstock.core.events import Event
    from penstock.core.extensions import ExtensionPoint
    from penstock.core.families import Family, MetricSpec
    from penstock.core.findings import Finding, Within

__all__ = ["MessagesPart"]

_BEYOND: Final = 5.0  # s that a tick waits longer for a message than a command or a server may take


class MessagesPart(Part):
    """What it tells of it hears by `told`, from the parts that know of it."""

    name: ClassVar[str] = "messages"

    def __init__(self, site: Site) -> None:
        from penstock_messages.messenger import Messenger  # slow to load

        super().__init__(site)
        self.messenger = Messenger(site.store, site.clock, site.config())

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        from penstock_messages.channels import channels_of  # slow to load

        channels_of(config.messages, shared=config.agent.serve == "all")

    @staticmethod
    def checks(config: Config, within: Within) -> Iterable[Finding]:
        """See `Part`."""
        from penstock_messages.checks import message_checks  # slow to load

        return message_checks(config, within)

    @staticmethod
    def extension_points() -> Iterable[ExtensionPoint]:
        """See `Part`."""
        return (CHANNELS,)

    @staticmethod
    def metrics() -> Iterable[MetricSpec]:
        """See `Part`."""
        from penstock_messages import figures  # slow to load

        return figures.METRICS.values()

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self.messenger.configure(self._site.config(), slurm.mail_domain)

    def told(self, event: Event) -> None:
        """See `Part`."""
        self.messenger.tell(event)

    def families(self) -> Iterable[Family]:
        """See `Part`."""
        from penstock_messages import figures  # slow to load

        return figures.families(self.messenger)

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """See `Part`."""
        yield self.messenger.run()

    async def flush(self) -> None:
        """See `Part`."""
        await self.messenger.flush(self._site.config().messages.timeout + _BEYOND)

    def reconfigured(self, config: Config) -> None:
        """See `Part`."""
        self.messenger.configure(config)

    async def close(self) -> None:
        """See `Part`."""
        await self.messenger.close()
