"""The sections of the configuration: their keys, with defaults that are safe on a stranger's cluster.

Standard library only: a command that asks the agent should not pay for what checks a file. What a key takes is named by
its type, which `forms` defines for a file that is checked and `plain` for one that is plainly right.
"""

from __future__ import annotations

from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from penstock.config.features import (
    DmrSection,
    MalleableSection,
    MessagesSection,
    PoolSection,
    ProvisionSection,
    SelectSection,
    ShimSection,
)
from penstock.config.keys import key, section
from penstock.host.homes import own_state

if TYPE_CHECKING:
    from penstock.config.forms import (
        Address,
        Anchored,
        Ascending,
        Bytes,
        File,
        Finite,
        Name,
        Names,
        Peer,
        Seconds,
        Texts,
        Url,
        View,
        Words,
        YesOrNo,
    )
    from penstock.values.allow import Feature, Rule
    from penstock.values.fair import UserShare

__all__ = [
    "AgentSection",
    "AllowRule",
    "AsaSection",
    "AuditSection",
    "Config",
    "DmrSection",
    "LimitsSection",
    "LogSection",
    "MalleableSection",
    "MessagesSection",
    "MetricsSection",
    "PoolSection",
    "ProvisionSection",
    "RestSection",
    "SelectSection",
    "ShimSection",
    "SlurmSection",
    "WorkflowsSection",
    "keys_by_section",
]

_OWN_LOOK: Final = 5.0
_SHARED_LOOK: Final = 15.0


@section(frozen=True)
class AgentSection:
    """The daemon itself."""

    state_dir: Anchored = key(made=own_state, text="State file, socket and key live here.")
    socket: Anchored | None = key(None, text="Unix socket; default: agent.sock in the state folder.")
    serve: Literal["own", "all"] = key("own", text="Whose MPI jobs: the agent's own user's, or everybody's.")
    request_burst: int = key(200, ge=1, text="Requests that a user may make at once; then at the next key's rate.")
    requests_per_second: Finite = key(
        20.0, gt=0, text="Lasting rate of requests that are answered to each user, and to each job of MPI programs."
    )
    interval: Seconds = key(60.0, text="Seconds between passes while something is due.")
    idle_interval: Seconds = key(300.0, text="Seconds between passes when nothing is.")
    keep: Seconds = key(
        365 * 86400.0,
        text="How long ended workflows, decisions, resizes and waits are remembered; 0: for ever.",
    )
    shared: YesOrNo = key(
        "auto",
        text="Whether other hosts see the state folder, so that its holder needs a lease; auto: on a network "
        "file system, or where a host has had one.",
    )
    lease: Seconds = key(
        60.0,
        ge=1,
        text="How long a lease's holder may be silent before another host takes over; all hosts alike.",
    )
    listen: Address | None = key(
        None,
        text="HOST:PORT for commands on other hosts; unset: with a lease any port of all addresses, else none.",
    )
    seed: int | None = key(None, text="Seed of the random draws; only for demos and tests.")


@section(frozen=True)
class SlurmSection:
    """How Slurm is asked."""

    backend: str = key(
        "cli",
        text="Real Slurm by its commands (cli), by pyslurm or by slurmrestd (rest); auto: by pyslurm where a "
        "fitting one is there, else by the commands. Or one of an extension, such as penstock-lab's simulated Slurm "
        "(mock).",
    )
    mock_socket: File | None = key(None, text="Socket of the simulated Slurm.")
    min_interval: Seconds = key(10.0, text="Shortest time between two looks at the queue.")
    view: View = key(
        "auto",
        text="Looks by the site's view (penstock site-view): auto where its socket is, at a PATH, or off. "
        "Without an answer from it, Slurm itself is asked.",
    )
    view_user: Name = key("penstock-view", text="The user that the site's view runs as; root may, too.")
    timeout: Seconds = key(30.0, text="Time limit of one Slurm command.")
    request_burst: int = key(30, ge=4, text="Requests that may be made at once; then at the next key's rate.")
    requests_per_second: Finite = key(2.0, gt=0, text="Lasting rate of requests to Slurm.")
    submissions_per_hour: int = key(60, ge=2, text="Most jobs that are submitted in any hour to let running jobs grow.")
    user_submissions_burst: int = key(
        500, ge=1, text="Jobs that a user has asked for (stages, tasks, slots) which may be submitted at once."
    )
    user_submissions_per_hour: int = key(
        1200, ge=1, text="The lasting rate of these, once so many were submitted at once."
    )


@section(frozen=True)
class RestSection:
    """Slurm by slurmrestd (`slurm.backend: rest`)."""

    url: Url | None = key(None, text="Where slurmrestd answers: unix:/PATH, http://HOST:PORT or https://HOST:PORT.")
    token_file: File | None = key(
        None, text="File with the token (JWT) that is shown, kept renewed by somebody; only its reader's."
    )
    token_command: Words | None = key(
        None, text="Command that prints a new token, such as [scontrol, token, lifespan=3600]."
    )
    user: Name | None = key(None, text="As whom it is asked; default: the agent's own user.")
    ca: File | None = key(None, text="Certificates that HTTPS is checked with; unset: those of httpx.")
    commands: Literal["auto", "never"] = key(
        "auto",
        text="What slurmrestd cannot do: by Slurm's commands where they are there (auto), or not (never).",
    )
    default_partition: Name | None = key(
        None, text="The default partition, which slurmrestd tells from Slurm 26.05 on; unset: the only one."
    )
    settings: Texts = key(
        made=dict,
        text="Slurm's settings by their names in slurm.conf, such as SchedulerParameters, where neither "
        "slurmrestd (before 26.05) nor a command tells them.",
    )

    def __post_init__(self) -> None:
        if self.token_file is not None and self.token_command is not None:
            raise ValueError("token_file and token_command: only one of them")


@section(frozen=True)
class AsaSection:
    """The learner of waits (ASA paper)."""

    predictor: Literal[
        "share-mix", "asa-default", "asa-greedy", "asa-tuned", "share", "qbets", "slurm", "queue", "last", "median"
    ] = key(
        "share-mix",
        text="Who predicts waits; asa-* is the paper's algorithm under its three policies, slurm is Slurm's own "
        "estimate, queue our plan of the queue, corrected.",
    )
    watch_queue: bool = key(True, text="Learn from every job in the queue what it means for a new one.")
    ask_slurm: bool = key(True, text="Count with Slurm's own estimate, too (one request where one is due).")
    history: Seconds = key(30 * 86400.0, text="How far back accounting is read at the first start; 0: not at all.")
    shared: Literal["user", "site"] = key(
        "user", text="Who learns together, where one agent serves several users: each user, or the whole site."
    )
    told_to: Literal["operators", "everybody"] = key(
        "operators",
        text="Where one agent serves several users, who is told what to expect by portals: its operators, or "
        "everybody, who can then see how long others' jobs wait, not whose.",
    )
    alternatives: Ascending | None = key(
        None, text="Waits in seconds to choose among, ascending; default: the paper's 53, and 0 and 1."
    )
    gamma: Literal["constant", "inverse-sqrt", "harmonic"] = key(
        "constant", text="The learning rate's course over the rounds of Algorithm 1."
    )

    def __post_init__(self) -> None:
        for predictor, name, on in (("queue", "watch_queue", self.watch_queue), ("slurm", "ask_slurm", self.ask_slurm)):
            if self.predictor == predictor and not on:
                raise ValueError(f"predictor {predictor} needs `{name}: true`")


@section(frozen=True)
class WorkflowsSection:
    """How workflows are run."""

    strategy: str = key("auto", text="The strategy where `penstock submit` names none.")
    grace: Seconds = key(300.0, text="How long a job that was started too early may wait for its parents.")
    core_hour_weight: Finite = key(
        60.0, ge=0, text="Seconds of makespan that one core-hour is worth to the strategy `packed`."
    )
    age_while_dependent: bool = key(
        False,
        text="Stages may gain priority by age while they depend on others, although jobs here do not by "
        "themselves (strategy `seed`). Only for administrators: in the site's file, which only root can write.",
    )


@section(frozen=True)
class AllowRule:
    """What one rule of `limits.allow` admits: jobs that agree with all that it names."""

    features: tuple[Feature, ...] | None = key(None, text="Only these.")
    users: Names | None = key(None, text="Only jobs of these users.")
    partitions: Names | None = key(None, text="Only jobs in these partitions.")
    accounts: Names | None = key(None, text="Only jobs of these accounts.")
    qos: Names | None = key(None, text="Only jobs in these QOS.")


@section(frozen=True)
class LimitsSection:
    """What the agent may act on, and how much."""

    allow: tuple[AllowRule, ...] | None = key(
        None, text="What the agent may act on: what agrees with one of these rules. Unset: with all jobs."
    )
    nodes_per_hour: int | None = key(None, ge=0, text="Most nodes that resizes move within any hour; unset: no cap.")
    nodes_per_hour_of_user: int | None = key(None, ge=0, text="The same for the jobs of one user.")
    dry_run: bool = key(
        False, text="Only say what would be done to jobs of other users than the agent's own, and do nothing."
    )

    stages_of_user: int = key(
        10_000, ge=1, text="Most stages in workflows of one user that have not ended, of jobs that users submit."
    )
    dependencies_of_user: int = key(100_000, ge=1, text="How often these stages may come after another, in all.")
    unseen_of_user: int = key(2_000, ge=1, text="Most jobs of these stages that Slurm has not shown yet.")
    work_of_user: int = key(
        10_000,
        ge=1,
        text="Stages (eight dependencies count as one) that a pass looks through for one user; the rest follows "
        "in the next passes.",
    )
    changes_of_user: int = key(50, ge=1, text="Most changes to workflow jobs of one user in a pass.")
    first: tuple[Peer, ...] = key(
        (),
        text="Accounts of this host and addresses of others, such as [prometheus, 192.0.2.7], that come first "
        "where too many connections are open: they have a place whenever another account has one. Root and the "
        "agent's own user always do.",
    )
    lookups: int = key(500, ge=1, text="Most jobs that accounting is asked for in a pass, of all users.")

    @property
    def share(self) -> UserShare:
        """What one user may have of the agent."""
        from penstock.values.fair import UserShare  # for the agent alone

        return UserShare(
            self.stages_of_user,
            self.dependencies_of_user,
            self.unseen_of_user,
            self.work_of_user,
            self.changes_of_user,
            self.lookups,
        )

    @property
    def rules(self) -> tuple[Rule, ...] | None:
        """The allow-list."""
        from penstock.values.allow import Rule  # for the agent alone

        return (
            None
            if self.allow is None
            else tuple(Rule(rule.features, rule.users, rule.partitions, rule.accounts, rule.qos) for rule in self.allow)
        )


@section(frozen=True)
class AuditSection:
    """The record of who asked for what and what was done (docs/audit.md)."""

    file_size: Bytes = key(16 * 2**20, ge=64 * 1024, text="Bytes after which a new audit file is begun.")
    files: int = key(20, ge=2, le=10_000, text="How many audit files are kept; the oldest is removed.")


@section(frozen=True)
class MetricsSection:
    """Prometheus metrics."""

    listen: Address | None = key(None, text="HOST:PORT of /metrics; unset: none.")


@section(frozen=True)
class LogSection:
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


@section(frozen=True)
class Config:
    """The whole configuration."""

    agent: AgentSection = field(default_factory=AgentSection)
    slurm: SlurmSection = field(default_factory=SlurmSection)
    rest: RestSection = field(default_factory=RestSection)
    asa: AsaSection = field(default_factory=AsaSection)
    workflows: WorkflowsSection = field(default_factory=WorkflowsSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    provision: ProvisionSection = field(default_factory=ProvisionSection)
    dmr: DmrSection = field(default_factory=DmrSection)
    malleable: MalleableSection = field(default_factory=MalleableSection)
    select: SelectSection = field(default_factory=SelectSection)
    pool: PoolSection = field(default_factory=PoolSection)
    shim: ShimSection = field(default_factory=ShimSection)
    messages: MessagesSection = field(default_factory=MessagesSection)
    audit: AuditSection = field(default_factory=AuditSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    log: LogSection = field(default_factory=LogSection)

    @property
    def socket_path(self) -> Path:
        """The agent's Unix socket."""
        return self.agent.socket or self.agent.state_dir / "agent.sock"

    @property
    def look_age(self) -> float:
        """How old the looks may be that front programs are answered from, in seconds."""
        return self.shim.look_age or (_SHARED_LOOK if self.agent.serve == "all" else _OWN_LOOK)


def keys_by_section() -> dict[str, tuple[str, ...]]:
    """The names of the keys, by that of their section."""
    return {one.name: tuple(key.name for key in fields(globals()[str(one.type)])) for one in fields(Config)}
