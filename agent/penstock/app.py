"""The composition root: builds every object, joins them, starts and stops them; the only module that knows all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from penstock import __version__
from penstock.api import Geometry, JointPolicy, ResizePolicy, Snapshot
from penstock.audit.auditor import Auditor
from penstock.audit.opening import agent_auditor
from penstock.audit.record import Door
from penstock.autoalloc.feeds import PoolFeeds
from penstock.config import Config, load
from penstock.core import figures
from penstock.core.allowance import carry_on
from penstock.core.asked import AskedCounter
from penstock.core.backends import make_backend
from penstock.core.executor import FRESH, Executor
from penstock.core.extensions import PLACEMENTS, POLICIES
from penstock.core.loop import Loop
from penstock.core.metrics import Metrics
from penstock.core.numbering import Numbering
from penstock.core.observe import Observer
from penstock.core.reloading import taken_over
from penstock.core.viewing import shared_look
from penstock.errors import ConfigError, LeaseLost, PenstockError, SlurmUnavailable, UserError
from penstock.holding.passes import Slots
from penstock.holding.reservations import pricing_rules
from penstock.host import logs, sdnotify
from penstock.host.clock import Clock
from penstock.host.descriptors import raise_limit
from penstock.host.listening import bare, cannot_listen
from penstock.host.logs import get_logger
from penstock.host.owners import first_peers
from penstock.host.scrape import Scraped
from penstock.ipc import figures as door_figures
from penstock.ipc.address import advertised_host, name_for, other_addresses
from penstock.ipc.audited import RequestAudit
from penstock.ipc.auth import Verifier, make_key
from penstock.ipc.far import FarDoor
from penstock.ipc.glances import glances
from penstock.ipc.handlers import LocalDoor, LocalOp, RemoteDoor
from penstock.ipc.inbox import Inbox
from penstock.ipc.limits import RateLimit
from penstock.ipc.operations import operations, owner_of
from penstock.ipc.operators import Operators
from penstock.ipc.server import Server
from penstock.malleable import figures as malleable_figures
from penstock.malleable.caps import Caps
from penstock.malleable.controller import MalleableController
from penstock.malleable.settings import MalleableSettings
from penstock.malleable.words import Deadlines
from penstock.messages import figures as message_figures
from penstock.messages.channels import channels_of
from penstock.messages.messenger import Messenger
from penstock.messages.sources import join, tell_reserved
from penstock.moldable.controller import MoldableController
from penstock.off.doors import way_out
from penstock.off.drain import Drain
from penstock.predictions.glance import WaitGlance
from penstock.predictions.outlook import WaitOutlook
from penstock.predictions.predictor import Predictions
from penstock.shim import figures as shim_figures
from penstock.shim.door import ShimDoor
from penstock.slurm.base import Backend
from penstock.slurm.budget import Metered
from penstock.slurm.raw_looks import HasRunner, RawLooks
from penstock.state.environments import Environments
from penstock.state.leadership import Leadership, Lock, hold_state
from penstock.state.lease.holder import Lease
from penstock.state.retention import Retention
from penstock.state.store import Store
from penstock.upkeep.statefile import open_checked, open_checked_acts
from penstock.values.backoff import backoff
from penstock.values.merging import obstacle_to_merge
from penstock.workflow import figures as workflow_figures
from penstock.workflow.controller import WorkflowController
from penstock.workflow.registry import strategy_named
from penstock.workflow.runner import Runner
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Rules
from penstock.workflow.trying import Trial

__all__ = ["App", "check", "make_policy", "serve"]

_log = get_logger(__name__)
# What is answered to a user's commands, to each of a user's jobs, to all jobs of a user together, to front programs.
_FACTORS = (1, 1, 10, 10)
_PATIENCE_AT_STOP = 3.0
_ANSWERED_WITHIN = 0.2  # seconds
_ANYWHERE = "0.0.0.0:0"


def make_policy(name: str) -> ResizePolicy | JointPolicy:
    """The resize policy of that name."""
    policy: ResizePolicy | JointPolicy = POLICIES.make(name)
    return policy


def check(config: Config) -> None:
    """Raises ConfigError for what will not do, though each key has a value that it may have."""
    if config.slurm.backend != "auto":  # which takes what there is
        make_backend(config)
    make_policy(config.dmr.policy)
    pricing_rules(config)
    PLACEMENTS.make(config.pool.placement)
    channels_of(config.messages, shared=config.agent.serve == "all")
    try:
        strategy_named(config.workflows.strategy)
    except UserError as e:
        raise ConfigError(f"`workflows.strategy`: {str(e).removeprefix('strategy: ')}") from e


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
        self.shared = isinstance(self.leadership, Lease)
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
        self._set_pause_control(config)
        self.messenger = Messenger(store, clock, config)
        self.predictions = Predictions(config, backend, store, clock)
        self.malleable = MalleableController(
            backend,
            self.observer,
            self.executor,
            store,
            clock,
            MalleableSettings(
                make_policy(config.dmr.policy),
                _limits(config),
                config.malleable.backend,
                all=config.agent.serve == "all",
                caps=_caps(config),
                merge_releases=config.malleable.merge_releases,
                extend=_extends(config),
            ),
            self.wake,
            self.want_look,
            self._expected_wait,
        )
        known = (self.observer, self.executor, store, clock)
        self.moldable = MoldableController(*known, lambda: self.config.malleable, self.want_look)
        self.owner_of = owner_of(store, self.observer, self.malleable, self.moldable)
        self.request_audit = RequestAudit(self.auditor, clock, self.owner_of)
        self.workflows: WorkflowController | None = None
        self.inbox: Inbox | None = None
        self.drain: Drain | None = None
        self.leave: Callable[[], None] | None = None  # ends the process, where it is the agent's
        self.operations: Mapping[str, LocalOp] = {}
        self.loop: Loop | None = None
        self.feeds: PoolFeeds | None = None
        self.server: Server | None = None
        self.scraped: Scraped | None = None
        self.local: LocalDoor | None = None
        self.remote: RemoteDoor | None = None
        self.far: FarDoor | None = None
        self.front: ShimDoor | None = None
        self.verifier: Verifier | None = None
        self._limits = [RateLimit(1, 1) for _ in _FACTORS]
        self._acts: Store | None = None  # what is left of the submissions, which the user's commands share
        self.serving = False
        self._tell()

    def _tell(self) -> None:
        """What the parts count, for Prometheus. Some come later than this."""
        add = self.metrics.add
        add(partial(figures.of_observer, self.observer))
        add(partial(figures.of_executor, self.executor))
        add(partial(figures.of_store, self.store))
        add(partial(figures.of_audit, self.auditor))
        add(lambda: workflow_figures.families(self.workflows.book if self.workflows else None))
        add(partial(malleable_figures.families, self.malleable))
        add(lambda: door_figures.families(self.server, self.local, self.remote, self.far))
        add(lambda: shim_figures.families(self.front))
        add(partial(message_figures.families, self.messenger))

    def _may_come_next(self) -> Iterable[int]:
        """Jobs that may get more in the same second as another: what their owners may have is read together."""
        for number, me in self.malleable.jobs.items():
            yield number
            yield from (companion.job for companion in me.companions)
        yield from self.moldable.jobs

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

    async def _expected_wait(self, geometry: Geometry) -> float:
        await self.predictions.prepare([geometry])
        return self.predictions.model_store.predict(geometry).seconds

    async def start(self, *, resizes: bool = True) -> None:
        """Learn the site, then build what depends on it. Raises `SlurmUnavailable` when Slurm does not answer.

        Without `resizes` malleable jobs are left alone: they need an agent that they can reach.
        """
        site = await self.backend.site()
        if isinstance(self.backend, Metered):
            self._acts = open_checked_acts(self.config)
            carry_on(self.backend.budget, self._acts, self.clock, before=self.store)
        for intent in self.store.open_intents():
            # Whoever owns the subject reads back what became of it: stages by name, resizes by their phase.
            _log.warning("was under way when the agent died", verb=intent.verb, subject=intent.subject)
            owner = self.owner_of(intent.subject)
            self.auditor.interrupted(intent.verb, intent.subject, owner, intent.payload, intent.id, intent.opened)
            self.store.settle(intent.id, "interrupted", "read back after the restart", self.clock.now())
        rules = Rules.of(site, age_while_dependent=self.config.workflows.age_while_dependent)
        self.workflows = WorkflowController(
            self.backend,
            self.observer,
            self.executor,
            self.store,
            self.clock,
            Runner(
                accrues=rules.accrues,
                grace=self.config.workflows.grace,
                whole_nodes=rules.whole_nodes,
                # A begin time is then what a job ages from, whatever else it waits for.
                ages_from_release="limits" not in site.enforced,
                remembers=site.min_job_age,
                may_age=rules.may_age,
            ),
            self.predictions.model_store,
            self.wake,
            self.predictions.prepare,
            rules,
            self.config.workflows.core_hour_weight,
            self.config.limits.share,
            None if self.store.path == ":memory:" else Environments(Path(self.store.path).parent),
            self.predictions.recorder.past,
        )
        self.observer.shared = shared_look(self.config, site.cluster)
        self.predictions.start(site.cluster)
        self.messenger.configure(self.config, site.mail_domain)
        join(self.messenger, self.executor, self.workflows, self.clock)
        parts = (self.workflows, self.malleable)
        asked = (self.store, self.observer, self.executor, self.clock, *parts, self.moldable)
        predictions = self.predictions
        outlook = WaitOutlook(
            self.store,
            predictions.model_store,
            self.observer,
            predictions.prepare,
            lambda: predictions.forecast.judged,
        )
        trial = Trial(self.store, self.observer, predictions.recorder.past, rules)
        operators = Operators(self.backend.operators, self.clock, self._serves)
        drained = (self.backend, self.executor, self.store, self.clock, *parts)
        self.drain = Drain(lambda: self.config, *drained, accrues=rules.accrues)
        known_operations = operations(
            *asked,
            outlook,
            trial,
            serves=self._serves,
            operators=operators,
            wake=self.wake,
            troubles=self.troubles,
        )
        glance = WaitGlance(
            self.store,
            predictions.model_store,
            self.observer,
            self.clock,
            lambda: predictions.forecast.judged,
            predictions.forecast.times_and_waits,
        )
        known_operations |= glances(glance, self._serves, operators, lambda: self.config.asa.told_to)
        if isinstance(self.backend, HasRunner):
            known_operations |= self._front_programs(self.backend).operations()
        pause_control, doors = self.executor.pause_control, (operators, self.clock, self._turned, self._end)
        self.operations = way_out(known_operations, pause_control, self.drain, self.observer, *doors)
        self.inbox = Inbox(self.store, self.operations, self.request_audit)
        self.malleable.settings.site = site
        obstacle = obstacle_to_merge(site, gres=False, added=self.config.malleable.merge_releases)
        _log.info(
            "how jobs grow here", backend=self.config.malleable.backend, no_merge=obstacle, operator=site.operator
        )
        self.feeds = PoolFeeds(self.config, self.backend, self.executor, self.predictions, self.clock, self.wake)
        self.loop = Loop(
            self.observer,
            [
                self.executor,
                self.inbox,
                self.predictions.forecast,
                self.predictions.recorder,
                self.predictions.starts,
                self.workflows,
                *([self.malleable] if resizes else []),
                self.moldable,
                self.feeds,
                Slots(self.config, self.backend, self.executor, self.clock, self.told_of_reserved),
                self.auditor,
                self.drain,
                Retention(self.store, self.clock, lambda: self.config.agent.keep),
                *(
                    [AskedCounter(self.store, self.clock, self.backend.meter)]
                    if isinstance(self.backend, Metered)
                    else []
                ),
            ],
            self.store,
            self.clock,
            self.metrics,
            interval=self.config.agent.interval,
            idle_interval=self.config.agent.idle_interval,
            why_not=self.leadership.why_not,
        )
        _log.info("site", cluster=site.cluster, slurm=".".join(map(str, site.version)), accrues=rules.accrues)

    def _front_programs(self, backend: HasRunner) -> ShimDoor:
        """What answers them; it hears of what the agent does to jobs."""
        looks = RawLooks(backend.runner, self.config.slurm.timeout)
        shared = self.config.agent.serve == "all"
        door = ShimDoor(looks, self.config.look_age, shared=shared, environment=backend.runner.environment)
        self.executor.on_act = door.touch
        self.front = door
        return door

    async def open_doors(self) -> None:
        """Listen on the Unix socket and on TCP, and tell stages how MPI jobs find the agent."""
        assert self.workflows is not None
        state_dir = self.config.agent.state_dir
        key_path = state_dir / "dmr.key"
        munge_socket = str(self.config.dmr.munge_socket) if self.config.dmr.munge_socket else None
        self.verifier = Verifier(make_key(key_path), munge_socket)
        known = (self.malleable, self.observer, self.verifier, self.clock)
        self._set_limits(self.config)
        of_command, of_job, of_user, of_front = self._limits
        self.remote = RemoteDoor(*known, self._serves, self.want_look, of_job, of_user, self.request_audit)
        self.local = LocalDoor(self.operations, of_command, self.request_audit, of_front)
        self.server = Server(self.local.answer, self.remote.hear, first_peers(self.config.limits.first))
        host, _, port = self.config.dmr.listen.rpartition(":")
        # Running applications know the port: after a restart the agent must be where it was.
        wanted = int(port) or int(self.store.fact("dmr.port") or 0)
        bound = await self._listen(host, [wanted] if int(port) or not wanted else [wanted, 0])
        self.store.remember("dmr.port", str(bound))
        address = f"{advertised_host(self.config)}:{bound}"
        self.workflows.carrier.environment = {"DMR_AGENT": address, "DMR_PYTHON": sys.executable}
        if others := other_addresses(self.config, bound):
            self.workflows.carrier.environment["DMR_AGENT_OTHERS"] = others
        if munge_socket is not None:
            self.workflows.carrier.environment["DMR_MUNGE_SOCKET"] = munge_socket
        if self.config.agent.serve == "own":
            self.workflows.carrier.environment["DMR_KEY_FILE"] = str(key_path)
        # Last: whoever submits a job as soon as commands are answered hears of the address above.
        if self.shared:
            await self._open_far_door(self.local, self.verifier)
        try:
            await self.server.listen_unix(self.config.socket_path)
        except ConfigError as e:
            # Some network file systems have no sockets; the commands of this host then come by the other door, too.
            if not self.shared or self.config.agent.socket is not None:
                raise
            _log.warning("no socket for commands of this host, which will be answered over TCP", why=str(e))

    async def _open_far_door(self, local: LocalDoor, verifier: Verifier) -> None:
        """Answer commands of other hosts, and let the lease say where."""
        assert self.server is not None
        host, _, port = (self.config.agent.listen or _ANYWHERE).rpartition(":")
        try:
            refused = partial(self.request_audit.turned_away, Door.FAR, None)
            self.far = FarDoor(local.answer_far, verifier, refused)
            bound = await self.server.listen_far(bare(host), int(port), self.far)
        except (OSError, ValueError) as e:
            raise cannot_listen("agent.listen", f"{host}:{port}", e) from e
        self.leadership.advertise(f"{name_for(host, self.config)}:{bound}")

    def troubles(self) -> list[str]:
        """What keeps the agent from doing anything, or from writing it down."""
        loop = self.loop.trouble if self.loop is not None else ""
        found = (self.leadership.why_not() or "", loop, self.auditor.trouble)
        return [text for text in dict.fromkeys(found) if text]

    async def _listen(self, host: str, ports: list[int]) -> int:
        """Listen at the first of these ports that is free; 0 lets the system choose."""
        assert self.server is not None
        for port in ports:
            try:
                return await self.server.listen_tcp(bare(host), port)
            except (OSError, ValueError) as e:  # a name that cannot be one is a ValueError
                failure = e
                _log.warning("cannot listen for applications", host=host, port=port, why=str(e))
        raise cannot_listen("dmr.listen", f"{host}:{ports[0]}", failure) from failure

    def _set_limits(self, config: Config) -> None:
        for limit, factor in zip(self._limits, _FACTORS, strict=True):
            limit.burst, limit.rate = factor * config.agent.request_burst, factor * config.agent.requests_per_second

    def _serves(self, uid: int) -> bool:
        return self.config.agent.serve == "all" or uid == os.geteuid()

    def _set_pause_control(self, config: Config) -> None:
        self.executor.pause_control.rules, self.executor.pause_control.dry_run = (
            config.limits.rules,
            config.limits.dry_run,
        )

    def told_of_reserved(self, runs: Iterable[WorkflowRun]) -> None:
        """Tell what went wrong with reserved workflows, as the ledger has them."""
        tell_reserved(self.messenger, runs, self.clock.now())

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
        policy = make_policy(config.dmr.policy)
        logs.configure(config.log.level, config.log.format)
        settings = self.malleable.settings
        settings.policy, settings.limits, settings.preference = policy, _limits(config), config.malleable.backend
        settings.caps, settings.extend = _caps(config), _extends(config)
        self._set_pause_control(config)
        if self.workflows is not None:
            self.workflows.share = config.limits.share
        self.observer.min_interval, self.observer.stale_after = config.slurm.min_interval, _stale_after(config)
        self._set_limits(config)
        self.messenger.configure(config)
        first = first_peers(config.limits.first)
        if self.server is not None:
            self.server.put_first(first)
        if self.scraped is not None:
            self.scraped.first = first
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

    async def close(self) -> None:
        """Stop listening, stop waiting for grants, close the store. Jobs go on."""
        if self.server is not None:
            await self.server.close()
        if self.verifier is not None:
            self.verifier.close()
        await self.malleable.close()
        await self.predictions.forecast.close()
        self.predictions.recorder.close()
        await self.predictions.starts.close()
        await self.messenger.close()
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
        if app.loop is None or app.feeds is None:
            return
        await app.open_doors()
        _log.info("ready", version=__version__, pid=os.getpid(), socket=str(config.socket_path))
        app.serving = True
        sdnotify.notify(f"READY=1\nSTATUS={app.executor.pause_control.off or 'serving'}")
        if app.executor.pause_control.off is not None:
            _log.warning("nothing is begun, and what is held is given back", why=str(app.executor.pause_control.off))
        # However rarely it is to look, it is alive.
        app.loop.longest_rest = sdnotify.watchdog() / 2
        history = asyncio.ensure_future(app.predictions.learn_history())
        messages = asyncio.ensure_future(app.messenger.run())
        feeds = asyncio.ensure_future(app.feeds.watch())
        passes = asyncio.ensure_future(app.loop.run())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({passes, stopped}, return_when=asyncio.FIRST_COMPLETED)
        sdnotify.notify("STOPPING=1\nSTATUS=stopping")
        app.loop.stop()
        stopped.cancel()
        history.cancel()
        messages.cancel()
        feeds.cancel()
        # A Slurm command may hang for its whole time limit; what it was about is read back at the next start.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(passes, _PATIENCE_AT_STOP)
        _log.info("stopped", passes=app.loop.passes)
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
