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
from penstock.messages.sources import join
from penstock.workflow.part import WorkflowPart

__all__ = ["MessagesPart"]


class MessagesPart(Part):
    """`workflows` says when a stage fails."""

    name: ClassVar[str] = "messages"

    def __init__(self, site: Site, workflows: WorkflowPart) -> None:
        self._site, self._workflows = site, workflows
        self.messenger = Messenger(site.store, site.clock, site.config())

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        channels_of(config.messages, shared=config.agent.serve == "all")

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self.messenger.configure(self._site.config(), slurm.mail_domain)
        join(self.messenger, self._site.executor, self._workflows.controller, self._site.clock)

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
