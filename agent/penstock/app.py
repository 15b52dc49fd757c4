"""The composition root: lists the parts, joins them to what they share, starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from penstock import __version__
from penstock.api import SiteConfig, Snapshot
from penstock.audit.auditor import Auditor
from penstock.audit.opening import agent_auditor
from penstock.config import Config, load
from penstock.core import figures
from penstock.core.allowance import carry_on
from penstock.core.asked import AskedCounter
from penstock.core.backends import make_backend
from penstock.core.callers import Callers
from penstock.core.events import Event
from penstock.core.executor import FRESH, Executor
from penstock.core.installed import beside_own, installed_parts, with_parts
from penstock.core.loop import Loop
from penstock.core.metrics import Metrics
from penstock.core.numbering import Numbering
from penstock.core.observe import Observer
from penstock.core.parts import Operation, Part, Site
from penstock.core.pausing import PauseRequests
from penstock.core.reloading import taken_over
from penstock.core.requests import AgentRequests
from penstock.errors import LeaseLost, PenstockError, SlurmUnavailable
from penstock.host import logs, sdnotify
from penstock.host.clock import Clock
from penstock.host.descriptors import raise_limit
from penstock.host.logs import get_logger
from penstock.host.owners import first_peers
from penstock.host.scrape import Scraped
from penstock.ipc.audited import RequestAudit
from penstock.ipc.doors import DoorsPart
from penstock.ipc.inbox import Inbox
from penstock.resize.running.part import MalleablePart
from penstock.resize.waiting.part import MoldablePart
from penstock.shutdown.part import OffPart
from penstock.site.viewing import shared_look
from penstock.slurm.base import Backend
from penstock.slurm.budget import Metered
from penstock.state.leadership import Leadership, Lock, hold_state
from penstock.state.lease.holder import Lease
from penstock.state.retention import Retention
from penstock.state.store import Store
from penstock.statefile.statefile import open_checked, open_checked_acts
from penstock.values.backoff import backoff
from penstock.waits.live.predictor import Predictions
from penstock.waits.part import WaitsPart
from penstock.workflow.part import WorkflowPart

__all__ = ["PARTS", "App", "check", "serve"]

PARTS: Final = (
    WaitsPart,
    WorkflowPart,
    MalleablePart,
    MoldablePart,
    DoorsPart,
    OffPart,
)
"""What the core of the agent consists of, in the order in which each begins and takes its step. What is installed
beside it comes before the last."""

_log = get_logger(__name__)
_PATIENCE_AT_STOP: Final = 3.0
_ANSWERED_WITHIN: Final = 0.2  # seconds
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
P = TypeVar("P", bound=Part)


def check(config: Config) -> None:
    """Raises ConfigError for what will not do, though each key has a value that it may have."""
    if config.slurm.backend != "auto":  # which takes what there is
        make_backend(config)
    for kind in beside_own(PARTS):
        kind.check(config)


class App:
    """One agent: its objects, joined. `clock` and `backend` may be a simulation's, which keeps no audit trail."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        clock: Clock,
        store: Store,
        config_path: Path | None = None,
        leadership: Leadership | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        self.config = config
        self.auditor = auditor or Auditor(None, clock.now)
        self.leadership = leadership or Lock()
        self._config_path = config_path
        self.backend = backend
        self.clock = clock
        self.store = store
        self.metrics = Metrics()
        if isinstance(backend, Metered):
            self.metrics.add(partial(figures.of_backend, backend))
            backend.budget.may_change = self.leadership.check
        self.observer = Observer(
            backend, clock, min_interval=config.slurm.min_interval, stale_after=_stale_after(config)
        )
        self.observer.check = Numbering(store).check
        self.executor = Executor(
            store, clock, backend, look=self._fresh_look, may_act=self.leadership.check, audit=self.auditor
        )
        self.executor.verdicts.others = self._may_come_next
        self.executor.tell = self._told
        self._set_pause_control(config)
        self.callers = Callers(backend.operators, clock, self._serves)
        self.request_audit = RequestAudit(self.auditor, clock, self.owner_of)
        self.leave: Callable[[], None] | None = None  # ends the process, where it is the agent's
        self.operations: Mapping[str, Operation] = {}
        self.loop: Loop | None = None
        self.scraped: Scraped | None = None
        self._acts: Store | None = None  # what is left of the submissions, which the user's commands share
        self.serving = False
        predictions = Predictions(config, backend, store, clock)
        self._site = self._site_with(predictions)
        self.parts = self._made(self._site, predictions)
        self._tell()

    def _site_with(self, predictions: Predictions) -> Site:
        return Site(
            config=lambda: self.config,
            reader=self.backend,
            observer=self.observer,
            executor=self.executor,
            store=self.store,
            clock=self.clock,
            callers=self.callers,
            waits=predictions,
            wake=self.wake,
            want_look=self.want_look,
            tell=self._told,
        )

    def _made(self, site: Site, predictions: Predictions) -> tuple[Part, ...]:
        workflows, malleable = WorkflowPart(site), MalleablePart(site)
        advertise = self.leadership.advertise if isinstance(self.leadership, Lease) else None
        return (
            WaitsPart(site, predictions),
            workflows,
            malleable,
            MoldablePart(site),
            DoorsPart(site, malleable.programs, self.request_audit, advertise),
            *(kind(site) for kind in installed_parts()),
            OffPart(site, workflows, malleable, lambda: self.parts, self._turned, self._end),
        )

    def part(self, kind: type[P]) -> P:
        """The part of that kind."""
        return next(part for part in self.parts if isinstance(part, kind))

    def _tell(self) -> None:
        """What is counted, for Prometheus."""
        add = self.metrics.add
        add(partial(figures.of_observer, self.observer))
        add(partial(figures.of_executor, self.executor))
        add(partial(figures.of_store, self.store))
        add(partial(figures.of_audit, self.auditor))
        for part in self.parts:
            add(part.families)

    def _told(self, event: Event) -> None:
        for part in self.parts:
            part.told(event)

    def _may_come_next(self) -> Iterable[int]:
        """Jobs that may get more in the same second as another: what their owners may have is read together."""
        for part in self.parts:
            yield from part.growing()

    async def _fresh_look(self) -> Snapshot:
        return await self.observer.look(FRESH)

    def wake(self, why: str) -> None:
        """Ask the loop for a pass soon."""
        if self.loop is not None:
            self.loop.wake(why)

    def want_look(self) -> None:
        """Ask for a newer picture as soon as Slurm may be asked again."""
        if self.loop is not None:
            self.loop.want_look()

    def owner_of(self, subject: str) -> int | None:
        """Whose a workflow or a job ("workflow 3", "job 7/grow") is, or was; None where no part knows of it."""
        kind, _, number = subject.partition("/")[0].partition(" ")
        if not _NUMBER.fullmatch(number):
            return None
        found = (part.owner(kind, int(number)) for part in self.parts)
        return next((uid for uid in found if uid is not None), None)

    async def start(self, *, without: Iterable[type[Part]] = ()) -> None:
        """Learn the site, then begin what depends on it. Raises `SlurmUnavailable` when Slurm does not answer.

        Parts that it is started `without` take no step: malleable jobs, say, need an agent that they can reach.
        """
        slurm = await self.backend.site()
        metered = self.backend if isinstance(self.backend, Metered) else None
        if metered is not None:
            self._acts = open_checked_acts(self.config)
            carry_on(metered.budget, self._acts, self.clock)
        self._settle_interrupted()
        self.begin(slurm)
        left_out = tuple(without)
        stepping = [part for part in self.parts if not isinstance(part, left_out)]
        self.loop = Loop(
            self.observer,
            [
                self.executor,
                Inbox(self.store, self.operations, self.request_audit),
                *(controller for part in stepping for controller in part.controllers()),
                self.auditor,
                Retention(self.store, self.clock, lambda: self.config.agent.keep),
                *([] if metered is None else [AskedCounter(self.store, self.clock, metered.meter)]),
            ],
            self.store,
            self.clock,
            self.metrics,
            interval=self.config.agent.interval,
            idle_interval=self.config.agent.idle_interval,
            why_not=self.leadership.why_not,
        )
        accrues = self.part(WorkflowPart).rules.accrues
        _log.info("site", cluster=slurm.cluster, slurm=".".join(map(str, slurm.version)), accrues=accrues)

    def begin(self, slurm: SiteConfig) -> None:
        """From now on `operations` answer; nothing acts yet."""
        self.observer.shared = shared_look(self.config, slurm.cluster)
        for part in self.parts:
            part.begin(slurm)
        self.operations = self._operations(slurm.cluster)

    def _settle_interrupted(self) -> None:
        """What was under way when the agent before this one died. Whoever owns the subject reads back what became of
        it: stages by name, resizes by their phase."""
        for intent in self.store.intents.unsettled():
            _log.warning("was under way when the agent died", verb=intent.verb, subject=intent.subject)
            owner = self.owner_of(intent.subject)
            self.auditor.interrupted(intent.verb, intent.subject, owner, intent.payload, intent.id, intent.opened)
            self.store.intents.settle(intent.id, "interrupted", "read back after the restart", self.clock.now())

    def _operations(self, cluster: str) -> Mapping[str, Operation]:
        """What may be asked at the doors, of the agent and of its parts."""
        shares = [part.status for part in self.parts]
        agent = AgentRequests(self._site, self.owner_of, shares, self.troubles, cluster)
        return with_parts(agent.operations() | PauseRequests(self._site).operations(), self.parts)

    async def open_doors(self) -> None:
        """Answer commands and programs."""
        await self.part(DoorsPart).open(self.operations, self._reachable)

    def _reachable(self, environment: Mapping[str, str]) -> None:
        for part in self.parts:
            part.reachable(environment)

    def troubles(self) -> list[str]:
        """What keeps the agent from doing anything, or from writing it down."""
        loop = self.loop.trouble if self.loop is not None else ""
        found = (self.leadership.why_not() or "", loop, self.auditor.trouble)
        return [text for text in dict.fromkeys(found) if text]

    def _serves(self, uid: int) -> bool:
        return self.config.agent.serve == "all" or uid == os.geteuid()

    def _set_pause_control(self, config: Config) -> None:
        control = self.executor.pause_control
        control.rules, control.dry_run = config.limits.rules, config.limits.dry_run

    def reload(self) -> None:
        """Take over what can change while running; a wrong file leaves everything as it was."""
        if self.serving:
            sdnotify.reloading()
        ok = False
        try:
            self._take_over(load(self._config_path))
            ok = True
        except PenstockError as e:
            _log.error("reload refused, the old configuration stays", why=str(e))
        finally:  # whatever happens, as systemd waits for it
            self.metrics.reloaded(ok)
            self._tell_ready()

    def _take_over(self, read: Config) -> None:
        check(read)
        config, waiting = taken_over(self.config, read)
        logs.configure(config.log.level, config.log.format)
        self._set_pause_control(config)
        self.observer.min_interval, self.observer.stale_after = config.slurm.min_interval, _stale_after(config)
        for part in self.parts:
            part.reconfigured(config)
        if self.scraped is not None:
            self.scraped.first = first_peers(config.limits.first)
        if self.loop is not None:
            self.loop.interval, self.loop.idle_interval = config.agent.interval, config.agent.idle_interval
        if waiting:
            _log.warning("these settings change with a restart only", settings=", ".join(waiting))
        self.config = config
        self.auditor.life("reload", "")
        _log.info("reloaded")
        self.wake("reloaded")

    def _turned(self, why: str) -> None:
        """It was turned off or on."""
        off = self.executor.pause_control.off
        _log.warning("turned off" if off else "turned on", why=str(off) if off else why)
        self._tell_ready()
        self.wake(why)

    def _end(self) -> bool:
        """End the agent when this has been answered; false where it is none that can end."""
        if self.leave is None:
            return False
        asyncio.get_running_loop().call_later(_ANSWERED_WITHIN, self.leave)
        return True

    def _tell_ready(self) -> None:
        # Not while Slurm is waited for: the watchdog would begin to count, and no pass feeds it.
        if self.serving:
            sdnotify.notify(f"READY=1\nSTATUS={self.executor.pause_control.off or 'serving'}")

    async def run(self, stop: asyncio.Event) -> None:
        """Answer and act until that is set."""
        assert self.loop is not None
        self.serving = True
        self._tell_ready()
        if (off := self.executor.pause_control.off) is not None:
            _log.warning("nothing is begun, and what is held is given back", why=str(off))
        # However rarely it is to look, it is alive.
        self.loop.longest_rest = sdnotify.watchdog() / 2
        beside = [asyncio.ensure_future(work) for part in self.parts for work in part.background()]
        passes = asyncio.ensure_future(self.loop.run())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({passes, stopped}, return_when=asyncio.FIRST_COMPLETED)
        sdnotify.notify("STOPPING=1\nSTATUS=stopping")
        self.loop.stop()
        for work in (stopped, *beside):
            work.cancel()
        # A Slurm command may hang for its whole time limit; what it was about is read back at the next start.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(passes, _PATIENCE_AT_STOP)
        _log.info("stopped", passes=self.loop.passes)

    async def close(self) -> None:
        """Stop listening, stop waiting for grants, close the store. Jobs go on."""
        for part in reversed(self.parts):
            await part.close()
        await self.backend.close()
        if self._acts is not None:
            self._acts.close()
        self.auditor.close()
        self.store.close()


async def serve(config: Config, config_path: Path | None = None) -> None:
    """Run the daemon until SIGTERM or SIGINT. `config_path` is what a reload reads; None: where `load` looks."""
    check(config)
    leadership = hold_state(config, "agent", config_path=config_path)
    if os.geteuid() == 0:
        _log.warning(
            "this agent runs as root, which it has no need to be: a fault in it, or in an extension, would be root's; "
            "run it as a user, or as a service user with AdminLevel=Operator"
        )
    try:
        await _serve(config, config_path, leadership)
        if leadership.lost:
            raise LeaseLost(leadership.lost)
    finally:
        leadership.close()


async def _serve(config: Config, config_path: Path | None, leadership: Leadership) -> None:
    raise_limit()
    backend = make_backend(config)
    # Slurm's times are compared with ours, so the clock is the controller's.
    store = open_checked(config, leadership)
    app = App(config, backend, backend, store, config_path, leadership, agent_auditor(config, store, backend.now))
    app.auditor.start(f"penstock {__version__}, process {os.getpid()}")
    running = asyncio.get_running_loop()
    stop = asyncio.Event()

    def leave() -> None:
        running.call_soon_threadsafe(stop.set)

    leadership.on_lost = app.leave = leave
    if leadership.lost:
        stop.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    running.add_signal_handler(signal.SIGHUP, app.reload)
    try:
        if config.metrics.listen:  # also while Slurm is waited for
            app.scraped = app.metrics.serve(config.metrics.listen)
            app.scraped.first = first_peers(config.limits.first)
        await _start_patiently(app, stop)
        if app.loop is None:
            return
        await app.open_doors()
        _log.info("ready", version=__version__, pid=os.getpid(), socket=str(config.socket_path))
        await app.run(stop)
    finally:
        app.auditor.stop()
        await app.close()


async def _start_patiently(app: App, stop: asyncio.Event) -> None:
    """Wait for Slurm as long as it takes: an agent that starts at boot may be earlier than slurmctld."""
    failures = 0
    stopped = asyncio.ensure_future(stop.wait())
    while not stop.is_set():
        starting = asyncio.ensure_future(app.start())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            break
        try:
            starting.result()
            break
        except SlurmUnavailable as e:
            delay = backoff(1.0, failures, 60.0)
            failures += 1
            _log.warning("slurm does not answer yet", why=str(e), again_in=delay)
            sdnotify.notify(f"STATUS=waiting for Slurm: {e}".replace("\n", " "))
            await asyncio.wait({stopped}, timeout=delay)
    stopped.cancel()


def _stale_after(config: Config) -> float:
    return 2 * max(config.agent.interval, config.slurm.min_interval)
