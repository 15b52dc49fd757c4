"""Sends what is to be told, beside the agent's passes: journaled first, delivered in threads, never in the loop's way.

An event is written into the state file under its key, once for each channel; a restart finds it there and neither
repeats what was sent nor forgets what was not. What was on its way when the agent was killed is not sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from penstock.config import Config, MessagesSection
from penstock.core.events import Event
from penstock.errors import StoreError
from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.state.store import Store
from penstock.values.messages import MessageState
from penstock_messages.channels import Channel, Undelivered, attempt, channels_of
from penstock_messages.outbox import Letter, Outbox

__all__ = ["Courier", "Messenger", "Post", "weekly"]

_log = get_logger(__name__)

_WEEK: Final = 7 * 86400.0
_REPORTED: Final = "messages.reported"
_REST: Final = 60.0
_PATIENCE: Final = 5.0

Post = Callable[[Channel, Event, Callable[[Undelivered | None], None]], None]
"""Begins to deliver an event by a channel and calls back, in the loop's thread, when that is over."""


class Courier:
    """A thread for each channel, made when it is first needed. They die with the process, whatever they wait for."""

    def __init__(self) -> None:
        self._queues: dict[str, SimpleQueue[tuple[Channel, Event, Callable[[Undelivered | None], None]]]] = {}

    def __call__(self, channel: Channel, event: Event, done: Callable[[Undelivered | None], None]) -> None:
        """See `Post`."""
        loop = asyncio.get_running_loop()

        def over(error: Undelivered | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(done, error)

        if channel.name not in self._queues:
            self._queues[channel.name] = SimpleQueue()
            target, name = self._work, f"messages-{channel.name}"
            threading.Thread(target=target, args=(channel.name,), name=name, daemon=True).start()
        self._queues[channel.name].put((channel, event, over))

    def _work(self, name: str) -> None:
        while True:
            channel, event, over = self._queues[name].get()
            over(attempt(channel, event))


class Messenger:
    """All messages of one agent. `outcomes` counts them by channel and how they ended (sent, failed, dropped)."""

    def __init__(self, store: Store, clock: Clock, config: Config, post: Post | None = None) -> None:
        self._store = store
        self._clock = clock
        self._post: Post = post or Courier()
        self._domain = ""
        self._changed = asyncio.Event()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.outbox = Outbox(config.messages.per_hour)
        self._settings: MessagesSection = config.messages
        self.channels: Mapping[str, Channel] = {}
        self.configure(config)
        now = clock.now()
        for number, channel, state, at, tries, due, event in store.messages.since(now - 3600.0):
            letter = Letter(number, channel, Event.from_dict(event), tries, due)
            if state == MessageState.SENT:
                self.outbox.remember(letter, at)
            elif state == MessageState.OPEN:
                self.outbox.add(letter)
            elif state == MessageState.SENDING:
                self._end(letter, MessageState.UNKNOWN, "the agent ended while it was being sent", now)

    def configure(self, config: Config, domain: str | None = None) -> None:
        """Take over the settings; `domain` is Slurm's MailDomain where it is known by now. Raises ConfigError."""
        self._domain = self._domain if domain is None else domain
        self.channels = channels_of(config.messages, self._domain, shared=config.agent.serve == "all")
        self._settings = config.messages
        self.outbox.per_hour = config.messages.per_hour
        self._changed.set()

    def wants(self, kind: str) -> bool:
        """Whether events of this kind are told to anybody."""
        return bool(self.channels) and kind in self._settings.events

    def tell(self, event: Event) -> None:
        """Write it down and send it soon, unless it was told before, or nobody wants it. Raises `StoreError`."""
        if not self.wants(event.kind):
            return
        for channel in self.channels.values():
            if not _takes(channel, event):
                continue
            number = self._store.messages.add(event.key, channel.name, event.to_dict(), event.at)
            if number is None:
                continue  # told before
            letter = Letter(number, channel.name, event)
            if not self.outbox.add(letter):
                self._end(letter, MessageState.DROPPED, "too many messages are waiting", self._clock.now())
            self._changed.set()

    def step(self) -> float:
        """Hand on what is due; the seconds until there is more to do. Raises `StoreError`."""
        now = self._clock.now()
        for letter in self.outbox.old(now):
            self._end(letter, MessageState.DROPPED, "it waited for a day", now)
        while (next_ := self.outbox.take(self.channels, now)) is not None:
            try:
                there = self._store.messages.settle(next_.id, MessageState.SENDING, next_.tries, next_.due, "", now)
            except StoreError:
                self.outbox.give_back(next_)
                raise
            if there:
                self._post(self.channels[next_.channel], next_.event, partial(self._settled, next_))
            else:  # what it tells of was not written down either, and will be found again
                self.outbox.forget(next_)
        then = self.outbox.next_at(self.channels, now)
        return _REST if then is None else min(_REST, max(then - now, 0.0))

    def _settled(self, letter: Letter, error: Undelivered | None) -> None:
        now = self._clock.now()
        why = None if error is None else str(error)
        state, tried = self.outbox.settle(letter, why, error is not None and error.final, now)
        told = {"key": letter.event.key, "by": letter.channel}
        try:
            if state is MessageState.OPEN:
                _log.warning("a message was not delivered", **told, why=why, again_in=tried.due - now)
                self._store.messages.settle(letter.id, state, tried.tries, tried.due, why or "", now)
            else:
                self._end(tried, state, why or "", now)
        except StoreError as problem:
            # It stays on its way there, and is not sent again.
            _log.error("a message's outcome cannot be written to the state file", **told, why=str(problem))
        self._changed.set()

    def _end(self, letter: Letter, state: MessageState, why: str, now: float) -> None:
        self.outcomes[letter.channel, "failed" if state is MessageState.UNKNOWN else state.value] += 1
        said = _log.info if state is MessageState.SENT else _log.warning
        said(f"message {state.value}", key=letter.event.key, by=letter.channel, **({"why": why} if why else {}))
        self._store.messages.settle(letter.id, state, letter.tries, letter.due, why, now)

    # -- in real time --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled. Trouble with the state file is waited out."""
        while True:
            self._changed.clear()
            try:
                await self._report()
                rest = self.step()
            except StoreError as error:
                _log.warning("messages wait: the state file cannot be used", why=str(error))
                rest = _REST
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(rest, 0.05))

    async def flush(self, seconds: float) -> None:
        """Deliver what can be now, for so long at most; for a single pass."""
        if self.channels:
            await self._report()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.step() <= 0 or self.outbox.under_way:
                    self._changed.clear()
                    await asyncio.wait_for(self._changed.wait(), seconds)

    async def close(self) -> None:
        """Wait a little for what is on its way, so that it is known what became of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while self.outbox.under_way:
                    self._changed.clear()
                    await self._changed.wait()

    async def _report(self) -> None:
        """The weekly report, once a week from the time on when messages were set up."""
        now = self._clock.now()
        if not self.wants("report"):
            return
        last = self._store.facts.instant(_REPORTED)
        if not 0 < last <= now:  # never yet, or the clock was set back
            self._store.facts.remember(_REPORTED, str(now))
        elif now - last >= _WEEK:
            # It may have to look through much: not in the loop's thread.
            event = await asyncio.to_thread(weekly, Path(self._store.path), max(last, now - 4 * _WEEK), now)
            with self._store.together():
                self.tell(event)
                self._store.facts.remember(_REPORTED, str(now))


def _takes(channel: Channel, event: Event) -> bool:
    try:
        return channel.takes(event)
    except Exception as error:
        # Of an extension: what the event tells of is being written down, and must be.
        _log.error("a channel for messages fails", by=channel.name, key=event.key, why=type(error).__name__)
        return False


def weekly(path: Path, since: float, until: float) -> Event:
    """The report of the state file as a message. Raises `StoreError`."""
    from penstock.report.period import as_text, report_of

    store = Store.read_only(path)
    try:
        found = report_of(store, since, until)
    finally:
        store.close()
    return Event(f"report {until:.0f}", "report", until, "the last week", as_text(found), details=found.to_dict())
