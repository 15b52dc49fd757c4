"""Parts: what the agent consists of, one for each of its features.

The agent itself looks at Slurm, acts by its executor, keeps the state file and answers at its doors. What it does with
that is its parts' business, and it knows none of them by name: `app.py` lists them. A part is a `Part` in a module
`part.py` of the feature's folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:  # commands that ask a part something do not pay for what only the agent needs
    from penstock.api import Decision, Geometry, SiteConfig, Snapshot
    from penstock.config import Config
    from penstock.core.callers import Callers
    from penstock.core.events import Event
    from penstock.core.executor import Executor
    from penstock.core.extensions import ExtensionPoint
    from penstock.core.families import Family, MetricSpec
    from penstock.core.findings import Finding, Within
    from penstock.core.observe import Observer
    from penstock.core.offitems import OffItem
    from penstock.core.pace import Pace
    from penstock.future.expected import SlotFinder
    from penstock.future.past import QueuePast
    from penstock.host.clock import Clock
    from penstock.slurm.base import Reader
    from penstock.state.filekind import FileKind
    from penstock.state.store import Store
    from penstock.values.waits import Distribution, Estimate, Observation

__all__ = ["Controller", "Operation", "Owned", "Part", "Site", "StatusShare", "WaitPredictor", "Waits"]

Operation = Callable[[int, Mapping[str, Any]], Awaitable[Any]]
"""Answers a request of the command line: who asks (uid) and the request -> the answer, as JSON-able values. Authorises
its caller first; raises PenstockError."""


class Controller(Protocol):
    """One concern of the agent: compares what should be with what is, and takes at most one step per subject."""

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Act on a usable snapshot; the decisions taken, with their reasons. One is dropped where its verb and its
        reasons' codes are those of the last one of that subject, even if the text differs (docs/parts.md)."""
        ...

    def next_wake(self, now: float) -> float | None:
        """When the next pass is needed at the latest; infinity for "as usual", None when nothing at all is due."""
        ...


class WaitPredictor(Protocol):
    """Predicts how long a job of a geometry waits, and learns from how long one has waited."""

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with for a job that is submitted now. May be random; learns nothing."""
        ...

    def expected(self, geometry: Geometry) -> float:
        """The wait (s) that is believed of it now, the same however often it is asked for."""
        ...

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """Learn from a wait; `estimate` is its prediction, None where there was none."""
        ...


class Waits(Protocol):
    """What is known of waits in the queue."""

    @property
    def model_store(self) -> WaitPredictor:
        """Predicts and learns."""
        ...

    async def prepare(self, geometries: Collection[Geometry]) -> bool:
        """These are about to be predicted; whether there is anything new of any of them."""
        ...

    def predict(self, geometry: Geometry) -> Estimate:
        """As the model store does, of a job as Slurm would complete it."""
        ...

    def around(self, geometry: Geometry, estimate: Estimate) -> Distribution:
        """The waits to reckon with, where that one is predicted."""
        ...

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """As the model store does."""
        ...

    def past(self, snapshot: Snapshot) -> QueuePast:
        """What is known of the queue's past, by a look at it."""
        ...

    async def known_past(self, snapshot: Snapshot) -> QueuePast:
        """The same, with what accounting tells of the agent's user where that is too little."""
        ...


class Owned(Protocol):
    """What belongs to a user."""

    @property
    def uid(self) -> int:
        """The user's number."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """What the agent gives each of its parts. `config` is the configuration in force now."""

    config: Callable[[], Config]
    reader: Reader
    """Asks Slurm; changes nothing."""
    observer: Observer
    """Has the last look at Slurm (`last`), and takes new ones."""
    executor: Executor
    """The only hand that changes Slurm."""
    store: Store
    """The state file."""
    clock: Clock
    callers: Callers
    """Who may ask for what."""
    waits: Waits
    wake: Callable[[str], None]
    """Asks for a pass soon, and says why."""
    want_look: Callable[[], None]
    """Asks for a newer look as soon as Slurm may be asked again."""
    tell: Callable[[Event], None]
    """Says what has happened to every part: the part of messages tells people."""

    def owner_of_job(self, number: int, live: Mapping[int, Owned], stored: Callable[[int], int | None]) -> int | None:
        """Whose a job is, of one that is `live`, or was, as it is `stored`. A number that Slurm has given again is that
        of the job which has it now."""
        if number in live:
            return live[number].uid
        uid, last = stored(number), self.observer.last
        now = last.jobs.get(number) if last is not None else None
        return uid if now is None or now.uid == uid else None


@dataclass(frozen=True, slots=True)
class StatusShare:
    """What a part adds to the answer to `status` for one user.

    `now` is what there is, by the key of the answer; `past` what there was. `jobs` are the numbers of the jobs that
    `now` tells of. `left_alone` are the user's jobs and workflows that the agent has a reason not to act on (which,
    the reason's code and text); it is read only where the configuration allows less than everything.
    """

    now: Mapping[str, Any] = field(default_factory=dict)
    past: Mapping[str, Any] = field(default_factory=dict)
    jobs: Collection[int] = ()
    left_alone: Iterable[tuple[str, str, str]] = ()


class Part:
    """One feature of the agent. A part overrides what it contributes; what it leaves is "nothing".

    Its life: it is made with a `Site` while Slurm may not answer yet, so it reads the state file and asks nothing.
    `begin` comes once, with what Slurm says of its own settings, before the first pass. Then the loop goes through
    `controllers()` in the order of the parts, pass after pass, the doors carry out `operations()`, and `background()`
    runs beside them; where there is but one pass, `flush` comes instead of that. `reconfigured` comes whenever the
    configuration was read again, `close` at the end.

    A part changes Slurm by `site.executor` alone, which checks each act against Slurm and writes it down. It may be
    killed between any two statements: what must outlive that goes to `site.store` before it is acted on.

    A whole part, which cancels nothing and tells how many jobs wait:

        class Queue(Part):
            name = "queue"

            def operations(self) -> Mapping[str, Operation]:
                return {"waiting": self.waiting}

            async def waiting(self, uid: int, _request: Mapping[str, Any]) -> object:
                await self._site.callers.require_above(uid)
                look = self._site.observer.last
                return sum(job.pending for job in look.jobs.values()) if look else None
    """

    name: ClassVar[str] = ""
    """As people say it, unique among the parts."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @staticmethod
    def check(config: Config) -> None:
        """Raises ConfigError for what will not do, though each key has a value that it may have."""

    @staticmethod
    def checks(config: Config, within: Within) -> Iterable[Finding]:
        """What `penstock doctor` finds of what is this part's; `within` makes the calls that may hang."""
        return ()

    @staticmethod
    def files() -> Iterable[FileKind]:
        """The files of its own that `penstock db` checks, copies and salvages, each by an option of its name."""
        return ()

    @staticmethod
    def free_slots(config: Config) -> SlotFinder | None:
        """What finds the free slots that `penstock dashboard` draws; None: it finds none."""
        return None

    @staticmethod
    def reserved_runs(config: Config, *, final: bool) -> list[dict[str, Any]]:
        """The caller's workflows in slots that are not over (`final`: all), as `penstock status` tells of them."""
        return []

    @staticmethod
    async def give_up_run(config: Config, reader: Reader, executor: Executor, name: str) -> None:
        """Cancels such a workflow, with its jobs and its slots. Raises NotFound."""

    @staticmethod
    def extension_points() -> Iterable[ExtensionPoint]:
        """The places where what it does can be extended."""
        return ()

    @staticmethod
    def metrics() -> Iterable[MetricSpec]:
        """What it may tell values of by `families`, for the documentation."""
        return ()

    def begin(self, slurm: SiteConfig) -> None:
        """Slurm has answered for the first time."""

    def controllers(self) -> Sequence[Controller]:
        """What takes its step in each pass, in order."""
        return ()

    def operations(self) -> Mapping[str, Operation]:
        """What users may ask of it at the agent's doors, by name. No two parts have one of the same name."""
        return {}

    def around(self, operations: Mapping[str, Operation]) -> Mapping[str, Operation]:
        """All operations of all parts, where it stands between some of them and who asks."""
        return operations

    async def status(self, uid: int, pace: Pace) -> StatusShare:
        """Its share of what `status` says to a user; root (0) is told everything. `pace`: work may be long."""
        return StatusShare()

    def owner(self, kind: str, number: int) -> int | None:
        """Whose (uid) the "workflow" or "job" of that number is, or was; None where it knows of none."""
        return None

    async def hand_back(self, snapshot: Snapshot, *, act: bool, drop: bool) -> list[OffItem]:
        """What it holds in Slurm, an item each, for `penstock off`. `act`: it settles first what is over, and with
        `drop` gives up what nobody uses."""
        return []

    def growing(self) -> Iterable[int]:
        """Jobs that may get more in the same second as another: what their owners may have is read together."""
        return ()

    def families(self) -> Iterable[Family]:
        """What it counts, for Prometheus. Read in another thread; nothing is asked and no file is read."""
        return ()

    def told(self, event: Event) -> None:
        """Something has happened that people may be told of (`Site.tell`)."""

    def reachable(self, environment: Mapping[str, str]) -> None:
        """The agent is about to answer programs, which find it by these variables."""

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What runs beside the loop until it is cancelled."""
        return ()

    async def flush(self) -> None:
        """The agent ends after its one pass (`penstock tick`): do now what would be done beside the passes, and wait
        for it no longer than a time limit of its own."""

    def reconfigured(self, config: Config) -> None:
        """The configuration was read again, and this is in force from now on."""

    async def close(self) -> None:
        """The agent ends. Jobs go on."""
