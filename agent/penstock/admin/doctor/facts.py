"""What can be known of a site and of this host. A `Trouble` in place of a fact says why it is not known. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.api import OwnerLimits, Partition, SiteConfig, plural
from penstock.config import Config
from penstock.core.findings import Finding, Folder, Trouble

__all__ = ["Agent", "AgentAddress", "Mpi", "Probe", "QueueSize", "Services", "SiteFacts"]


@dataclass(frozen=True, slots=True)
class QueueSize:
    """One look at the queue: how many jobs and nodes there are, and how many of the nodes are usable."""

    jobs: int
    nodes: int
    usable: int


@dataclass(frozen=True, slots=True)
class Agent:
    """Whether an agent answers at the socket, and why not. `ticked`: seconds since `penstock tick` ran last. `off`:
    since when and why all is off; empty: it is not."""

    answers: bool
    why: str = ""
    ticked: float | None = None
    off: str = ""


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """The name at which applications reach the agent, and the addresses that this host knows of it."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mpi:
    """What this Python has: mpi4py's version, the MPI library under it, and the mpiexec that would be used.

    `methods` are the ways to resize that the library is known to allow.
    """

    mpi4py: str
    library: str
    mpiexec: str | None
    methods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """What `python -m dmr.probe` has found: the ways to resize that work, and what was seen of those that do not."""

    methods: tuple[str, ...]
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Services:
    """What may start the agent here: systemd for users, whether that goes on after log-out (None: not known), the
    state of the unit `penstock-user` ("" when it is not installed), and cron."""

    user_manager: bool
    lingers: bool | None
    unit: str
    crontab: bool


@dataclass(frozen=True, slots=True)
class RestSpoken:
    """A slurmrestd that answers: the data version that is spoken, and what cannot be done through it here."""

    version: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartSeen:
    """A distribution with a part of the agent: its name, its version, the file that says what it brings, and why the
    agent does not take it in ("": it does). `unasked`: why its checks could not be made ("": they were)."""

    distribution: str
    version: str
    file: str
    why_not: str = ""
    unasked: str = ""


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Everything that the checks know."""

    config: Config
    config_path: str
    config_trouble: str
    user: str
    uid: int
    host: str
    python: str
    programs_missing: tuple[str, ...]
    site: SiteConfig | Trouble
    queue: QueueSize | Trouble
    partitions: tuple[Partition, ...] | Trouble
    submission: str | Trouble
    accounts: tuple[str, ...] | Trouble
    history: int | Trouble
    clusters: tuple[str, ...] | Trouble
    skew: float
    agent: Agent
    folder: Folder | Trouble
    state: str | Trouble
    policy: Trouble | None
    munge: Trouble | None
    key: Trouble | bool
    """Whether there is a key of the agent's; it is made when it is first needed."""
    address: AgentAddress | Trouble
    mpi: Mpi | Trouble
    probe: Probe | Trouble | None
    pyslurm: str | Trouble | None
    """The version that fits; None when it is not installed."""
    services: Services
    own: Folder | Trouble | None = None
    """Where this user's own things are kept if the state is that of a site's agent, whose user this is not."""
    limits: tuple[OwnerLimits, ...] | Trouble = ()
    """What the user may have, by account, in the default partition; none where Slurm holds nobody to limits."""
    view: str | Trouble | None = None
    """What the site's view has answered, by its socket; None: there is none, or it is not to be used."""
    rest: RestSpoken | Trouble | None = None
    """How slurmrestd is spoken to; None where it is not configured."""
    closed_folder: str = ""
    """The folder on the way to the agent's socket that others than its owner cannot enter; empty: there is none."""
    known_users: frozenset[str] | None = None
    """Those of `limits.allow` that this host knows; None: it could not be found out."""
    known_accounts: frozenset[str] | None = None
    known_qos: frozenset[str] | None = None
    """Those that accounting has; None: it was not asked (no rule names one), or does not say all."""
    parts: tuple[PartSeen, ...] | Trouble = ()
    """The distributions beside the core that bring a part."""
    kernel: str = ""
    """Why the compiled kernel does not serve; empty: it does."""
    part_findings: tuple[Finding, ...] = ()
    """What the installed parts find of what is theirs."""
    requests: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def requests_text(self) -> str:
        """How much Slurm was asked."""
        count = sum(self.requests.values())
        return f"{plural(count, 'request')} in {self.seconds:.1f} s"
