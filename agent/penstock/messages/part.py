"""The part of messages: it tells people what happens to what is theirs."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, ClassVar

from penstock.api import SiteConfig
from penstock.config import Config
from penstock.core.events import Event
from penstock.core.families import Family
from penstock.core.parts import Part, Site
from penstock.messages import figures
from penstock.messages.channels import channels_of
from penstock.messages.messenger import Messenger

__all__ = ["MessagesPart"]


class MessagesPart(Part):
    """What it tells of it hears by `told`, from the parts that know of it."""

    name: ClassVar[str] = "messages"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.messenger = Messenger(site.store, site.clock, site.config())

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        channels_of(config.messages, shared=config.agent.serve == "all")

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self.messenger.configure(self._site.config(), slurm.mail_domain)

    def told(self, event: Event) -> None:
        """See `Part`."""
        self.messenger.tell(event)

    def families(self) -> Iterable[Family]:
        """See `Part`."""
        return figures.families(self.messenger)

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """See `Part`."""
        yield self.messenger.run()

    def reconfigured(self, config: Config) -> None:
        """See `Part`."""
        self.messenger.configure(config)

    async def close(self) -> None:
        """See `Part`."""
        await self.messenger.close()
