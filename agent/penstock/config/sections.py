"""The sections of the configuration: their keys, with defaults that are safe on a stranger's cluster.

Standard library only: a command that asks the agent should not pay for what checks a file. What a key takes is named by
its type, which `forms` defines for a file that is checked and `plain` for one that is plainly right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.host.homes import own_state
from penstock.values.allow import Feature, Rule
from penstock.values.fair import UserShare

if TYPE_CHECKING:
    from penstock.config.forms import (
        Address,
        Anchored,
        Ascending,
        Bytes,
        Channels,
        Domain,
        File,
        Finite,
        Hosts,
        LookAge,
        MailAddress,
        Name,
        Names,
        Partition,
        Peer,
        Period,
        Release,
        Seconds,
        Texts,
        Url,
        View,
        Words,
        YesOrNo,
    )

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


def key(default: object = None, *, made: Callable[[], Any] | None = None, text: str = "", **bounds: float) -> Any:  # noqa: ANN401
    """A key: its default or what makes it, its description, the bounds of its value (`gt`, `ge`, `lt`, `le`)."""
    about = {"description": text, **bounds}
    return field(default_factory=made, metadata=about) if made else field(default=default, metadata=about)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
        for predictor, key, on in (("queue", "watch_queue", self.watch_queue), ("slurm", "ask_slurm", self.ask_slurm)):
            if self.predictor == predictor and not on:
                raise ValueError(f"predictor {predictor} needs `{key}: true`")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class AllowRule:
    """What one rule of `limits.allow` admits: jobs that agree with all that it names."""

    features: tuple[Feature, ...] | None = key(None, text="Only these.")
    users: Names | None = key(None, text="Only jobs of these users.")
    partitions: Names | None = key(None, text="Only jobs in these partitions.")
    accounts: Names | None = key(None, text="Only jobs of these accounts.")
    qos: Names | None = key(None, text="Only jobs in these QOS.")


@dataclass(frozen=True)
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
        return (
            None
            if self.allow is None
            else tuple(Rule(rule.features, rule.users, rule.partitions, rule.accounts, rule.qos) for rule in self.allow)
        )


@dataclass(frozen=True)
class ProvisionSection:
    """Slots, prices and reservations (Singh 2008)."""

    pricing: str = key("paper", text="Rules of what slots cost (entry point penstock.pricing).")
    limits: Literal["open", "careful", "strict"] = key(
        "open",
        text="What may be held: open anything; careful half the machine, 5 minutes ahead, 20 a user; strict a "
        "tenth, an hour ahead, 3 a user.",
    )
    margin: Seconds = key(60.0, text="Seconds that are reserved beyond a slot's end, against ResvOverRun.")
    earlier: Finite = key(
        0.0, ge=0, text="Service units that ending an hour earlier is worth, in penalties for exchanged slots."
    )
    ledger: File | None = key(
        None,
        text="The ledger. Default: ledger.db in the state folder, or, where that is another user's, in the "
        "caller's own state folder.",
    )
    sites: File | None = key(None, text="The file of sites (penstock plan --site); unset: none.")
    requests: File | None = key(None, text="Folder for signed requests for reservations; unset: none.")
    request_key: File | None = key(None, text="File with the key that signs them, at least 16 bytes.")


@dataclass(frozen=True)
class DmrSection:
    """Malleable MPI jobs (DMR paper)."""

    listen: Address = key("0.0.0.0:0", text="HOST:PORT for applications; port 0 picks one and keeps it.")
    advertise: str | None = key(None, text="Host name given to applications; default: this host's name.")
    hosts: Hosts = key(
        (),
        text="All hosts on which the agent may run, by the names at which applications reach them; where it "
        "does not answer they look for it on the others, at the same port.",
    )
    munge_socket: File | None = key(None, text="munged's socket where it is not the default one.")
    policy: str = key("throughput", text="Name of the resize policy (entry point penstock.policies).")
    grant_timeout: Seconds = key(40.0, text="How long a resizer may wait for its nodes (paper: 40 s).")
    accept_timeout: Seconds = key(120.0, text="How long an application may leave granted nodes unused.")
    cooldown: Seconds = key(
        30.0,
        text="Shortest time between two resizes of one job that it did not ask for; growths that it refuses or "
        "does not take up double it, to an hour at most.",
    )


@dataclass(frozen=True)
class MalleableSection:
    """How malleable jobs grow, and how long that takes."""

    backend: Literal["auto", "merge", "companion"] = key(
        "auto",
        text="Added nodes are held by a second job of the same user (companion), or become the job's own "
        "(merge); auto: companion where the application can, else merge. Nothing is merged where that is unsafe.",
    )
    merge_releases: tuple[Release, ...] = key(
        (),
        text="More releases of Slurm on which merging was tried, such as 25.05.3. On a release on which nobody "
        "has, it may end slurmctld: try it on a test cluster first (docs/malleable-sites.md).",
    )
    extend: bool | None = key(
        None,
        text="Whether an Operator raises the time limit of a job that has given back nodes and needs longer for "
        "that; unset: only for the agent's own user's jobs (`agent.serve: own`).",
    )
    resize_timeout: Seconds = key(600.0, text="How long an application may take to resize.")
    restart_timeout: Seconds = key(3600.0, text="The same, where it saves its state and is started anew.")
    resize_cost: Seconds = key(15.0, text="How long a resize takes, until some have been measured.")
    put_back_after: Seconds = key(
        600.0, text="How long a moldable job with a checkpoint runs at least before it is put back,"
    )
    put_back_gain: Seconds = key(
        600.0, text="how much sooner it must end with another size, and at least a quarter of what is left,"
    )
    put_back_grace: Seconds = key(300.0, text="and how long its checkpoint may take.")


@dataclass(frozen=True)
class SelectSection:
    """Resource selection (Ha et al.)."""

    site: File | None = key(None, text="What Slurm does not know of its nodes, such as their clocks (YAML).")
    gain: Seconds = key(300.0, text="A task that waits moves if it is done so much sooner elsewhere,")
    gain_share: Finite = key(0.2, ge=0, lt=1, text="and by this share of what is left.")


@dataclass(frozen=True)
class PoolSection:
    """Pools of tasks over many allocations (ASA paper, section 3.1)."""

    folder: File | None = key(
        None,
        text="Folder of the user's pools, shared by all nodes; default: pools in the state folder, or, where "
        "that is another user's, in the caller's own state folder.",
    )
    host: str | None = key(None, text="This host's address, at which members reach a pool's scheduler.")
    placement: str = key("pack", text="Which task goes where (entry point penstock.placement).")
    share: Finite = key(
        1.0,
        gt=0,
        le=1,
        text="Measured CPU use of a member up to which tasks of another workflow are put beside others.",
    )
    output_limit: Bytes = key(
        16 * 2**20, text="How much (bytes) of what one attempt writes to each of its two outputs is kept."
    )
    keep: Seconds = key(
        7 * 86400.0,
        text="How long a pool remembers a task that has ended, its name and its output; 0: for ever.",
    )
    keep_tasks: int = key(100_000, ge=0, text="How many ended tasks a pool remembers at most: the last ones.")
    partition: Partition = key(
        "penstock",
        text="With front programs on PATH: jobs for a partition of this name become tasks of pool main, for "
        "NAME after it and a dash those of pool NAME; empty: no partition does that.",
    )
    below: Period | None = key(
        None,
        text="With front programs on PATH: jobs with a time limit of at most so much become tasks of pool main "
        "while that runs, where they can; unset: none for that reason.",
    )


@dataclass(frozen=True)
class ShimSection:
    """What front programs on PATH are answered (docs/shim.md)."""

    look_age: LookAge | None = key(
        None,
        text="How old the look may be that squeue, sacct and scontrol are answered from; unset: 5 s, and 15 s "
        "where `agent.serve` is all.",
    )


@dataclass(frozen=True)
class MessagesSection:
    """What the agent tells people by itself, and how (docs/messages.md). Nothing, unless a way is set."""

    events: tuple[Literal["stage-failed", "deadline", "paused", "report"], ...] = key(
        ("stage-failed", "deadline", "paused", "report"),
        text="Of what: failed stages, late reserved workflows, automatic pauses, the weekly report.",
    )
    mail: Literal["off", "sendmail", "smtp"] = key("off", text="How mail goes out.")
    mail_to: MailAddress | None = key(
        None,
        text="Who gets what concerns the agent itself; default: nobody, or the user whose own agent it is.",
    )
    mail_from: MailAddress | None = key(None, text="Sender; default: the agent's user at this host.")
    mail_domain: Domain | None = key(
        None, text="A user's address is USER@this; default: Slurm's MailDomain, else USER alone."
    )
    users: bool = key(True, text="Whether users get mail of what concerns their own workflows.")
    sendmail: Words = key(("/usr/sbin/sendmail",), text="The program, and arguments before its own.")
    smtp: Address | None = key(None, text="HOST:PORT of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = key(
        "starttls", text="How the way to the mail server is encrypted."
    )
    smtp_login: File | None = key(None, text="File with the user name and, on a second line, the password.")
    webhook: File | None = key(None, text="File (0600: it is a key) with the URL that gets events as JSON.")
    command: Words | None = key(None, text="Program and arguments; gets an event as JSON on standard input.")
    channels: Channels = key(
        made=dict, text="Channels of your own (entry point penstock.channels), each name with its settings."
    )
    timeout: Seconds = key(10.0, gt=0, text="Time limit of one delivery by mail, webhook or command.")
    per_hour: int = key(30, ge=1, text="Most messages to each recipient in any hour; others wait.")

    @property
    def configured(self) -> bool:
        """Whether any way is set."""
        return self.mail != "off" or self.webhook is not None or self.command is not None or bool(self.channels)

    def __post_init__(self) -> None:
        if self.mail == "smtp" and self.smtp is None:
            raise ValueError("`mail: smtp` needs `smtp: HOST:PORT`")


@dataclass(frozen=True)
class AuditSection:
    """The record of who asked for what and what was done (docs/audit.md)."""

    file_size: Bytes = key(16 * 2**20, ge=64 * 1024, text="Bytes after which a new audit file is begun.")
    files: int = key(20, ge=2, le=10_000, text="How many audit files are kept; the oldest is removed.")


@dataclass(frozen=True)
class MetricsSection:
    """Prometheus metrics."""

    listen: Address | None = key(None, text="HOST:PORT of /metrics; unset: none.")


@dataclass(frozen=True)
class LogSection:
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


@dataclass(frozen=True)
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
