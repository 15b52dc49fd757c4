"""The agent's configuration: typed, with defaults that are safe on a stranger's cluster.

Read from the first of `PENSTOCK_CONFIG`, `$XDG_CONFIG_HOME/penstock/config.yaml`, `/etc/penstock/penstock.yaml` that
exists (none is fine); single keys are overridden by `PENSTOCK_SECTION__KEY`. Durations are seconds, or text such as
"90s", "5m", "1-00:00:00"; sizes are bytes, or "16 MiB", "2 GB". Paths may begin with `~`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from penstock.api import release_name
from penstock.errors import ConfigError, UserError
from penstock.host.homes import home, own_state
from penstock.values import merging
from penstock.values.allow import Feature, Rule
from penstock.values.documents import MAX_BYTES, parse_yaml, show
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.values.fair import UserShare
from penstock.values.rest_address import RestAddress
from penstock.values.units import AMOUNT_FORMS, parse_amount

__all__ = ["DEFAULT", "SITE", "Config", "find", "load", "origins", "own_file", "schema"]

_ADMINISTRATORS: Final = ("workflows", "age_while_dependent")
"""A key that only administrators may set."""
DEFAULT: Final = "default"
"""Where a value comes from that nobody has given."""
_OWN_LOOK: Final = 5.0
_SHARED_LOOK: Final = 15.0
SITE: Final = Path("/etc/penstock/penstock.yaml")
"""The file of those who have none of their own."""


def _duration(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be {DURATION_FORMS}")
    if not isinstance(value, str):
        return value
    seconds = parse_duration(value, zero=True)  # what 0 means is the key's own affair
    if seconds is None:
        raise ValueError(f"must be {DURATION_FORMS}")
    return seconds


def _ascending(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if values is not None and (not values or any(a >= b for a, b in zip((0.0, *values), values, strict=False))):
        raise ValueError("must be seconds above 0 in ascending order")
    return values


def _address(value: str | None) -> str | None:
    if value is None:
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT with a port up to 65535")
    return value


def _view(value: str) -> str:
    if value not in ("auto", "off") and not Path(value).is_absolute():
        raise ValueError("must be auto, off, or the absolute path of a socket")
    return value


def _host(value: str) -> str:
    address = value.count(":") > 1 and set(value) <= set("0123456789abcdefABCDEF:.")
    if not address and (":" in value or not value.isascii() or not value.replace("-", "").replace(".", "").isalnum()):
        raise ValueError("must be the name or the address of a host, without a port (`listen` has it)")
    return value


def _rest_address(value: str) -> str:
    RestAddress.parse(value)
    return value


def _yes_or_no(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value  # what YAML makes of these words


def _bytes(value: object) -> object:
    if not isinstance(value, str) or value.strip().isdecimal():
        return value
    try:
        return int(parse_amount(value))
    except ValueError as e:
        raise ValueError(str(e).replace(AMOUNT_FORMS, "bytes, or text such as 16 MiB or 2 GB")) from e


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as e:
        raise ValueError("begins with the home of a user who is not known here") from e


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path, as commands and jobs look for it from other folders")
    return path


Seconds = Annotated[
    float,
    BeforeValidator(_duration),
    Field(ge=0, allow_inf_nan=False),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["90s", "5m", "2h"]}]}),
]
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["16 MiB", "2 GB"]}]}),
]
Names = Annotated[tuple[Annotated[str, Field(pattern=r"^[^\s,]+$", max_length=200)], ...], Field(max_length=1000)]
Words = Annotated[tuple[Annotated[str, Field(pattern=r"^[^\x00]+$")], ...], Field(min_length=1, max_length=100)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
# An account, or an address.
Peer = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9_.:-]*$", max_length=100)]
# A name whose keys are all commented out has none.
Settings = Annotated[dict[str, Any], BeforeValidator(lambda keys: {} if keys is None else keys)]
MailAddress = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9.-]+)?$", max_length=254)]
Release = Annotated[
    tuple[int, ...],
    PlainValidator(merging.added),
    PlainSerializer(release_name),
    WithJsonSchema({"type": "string", "examples": ["25.05.3"]}),
]
View = Annotated[str, AfterValidator(_view)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Address = Annotated[str, AfterValidator(_address)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], Field(max_length=8)]
File = Annotated[Path, AfterValidator(_at_home)]
Anchored = Annotated[File, AfterValidator(_absolute)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AgentSection(_Section):
    """The daemon itself."""

    state_dir: Anchored = Field(default_factory=own_state, description="State file, socket and key live here.")
    socket: Anchored | None = Field(None, description="Unix socket; default: agent.sock in the state folder.")
    serve: Literal["own", "all"] = Field("own", description="Whose MPI jobs: the agent's own user's, or everybody's.")
    request_burst: int = Field(
        200, ge=1, description="Requests that a user may make at once; then at the next key's rate."
    )
    requests_per_second: Annotated[Finite, Field(gt=0)] = Field(
        20.0, description="Lasting rate of requests that are answered to each user, and to each job of MPI programs."
    )
    interval: Seconds = Field(60.0, description="Seconds between passes while something is due.")
    idle_interval: Seconds = Field(300.0, description="Seconds between passes when nothing is.")
    keep: Seconds = Field(
        365 * 86400.0,
        description="How long ended workflows, decisions, resizes and waits are remembered; 0: for ever.",
    )
    shared: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_yes_or_no)] = Field(
        "auto",
        description="Whether other hosts see the state folder, so that its holder needs a lease; auto: on a network "
        "file system, or where a host has had one.",
    )
    lease: Annotated[Seconds, Field(ge=1)] = Field(
        60.0,
        description="How long a lease's holder may be silent before another host takes over; all hosts alike.",
    )
    listen: Address | None = Field(
        None,
        description="HOST:PORT for commands on other hosts; unset: with a lease any port of all addresses, else none.",
    )
    seed: int | None = Field(None, description="Seed of the random draws; only for demos and tests.")


class SlurmSection(_Section):
    """How Slurm is asked."""

    backend: str = Field(
        "cli",
        description="Real Slurm by its commands (cli), by pyslurm or by slurmrestd (rest); auto: by pyslurm where a "
        "fitting one is there, else by the commands. Or one of an extension, such as penstock-lab's simulated Slurm "
        "(mock).",
    )
    mock_socket: File | None = Field(None, description="Socket of the simulated Slurm.")
    min_interval: Seconds = Field(10.0, description="Shortest time between two looks at the queue.")
    view: View = Field(
        "auto",
        description="Looks by the site's view (penstock site-view): auto where its socket is, at a PATH, or off. "
        "Without an answer from it, Slurm itself is asked.",
    )
    view_user: Name = Field("penstock-view", description="The user that the site's view runs as; root may, too.")
    timeout: Seconds = Field(30.0, description="Time limit of one Slurm command.")
    request_burst: int = Field(30, ge=4, description="Requests that may be made at once; then at the next key's rate.")
    requests_per_second: Annotated[Finite, Field(gt=0)] = Field(2.0, description="Lasting rate of requests to Slurm.")
    submissions_per_hour: int = Field(
        60, ge=2, description="Most jobs that are submitted in any hour to let running jobs grow."
    )
    user_submissions_burst: int = Field(
        500, ge=1, description="Jobs that a user has asked for (stages, tasks, slots) which may be submitted at once."
    )
    user_submissions_per_hour: int = Field(
        1200, ge=1, description="The lasting rate of these, once so many were submitted at once."
    )


class RestSection(_Section):
    """Slurm by slurmrestd (`slurm.backend: rest`)."""

    url: Annotated[str, AfterValidator(_rest_address)] | None = Field(
        None, description="Where slurmrestd answers: unix:/PATH, http://HOST:PORT or https://HOST:PORT."
    )
    token_file: File | None = Field(
        None, description="File with the token (JWT) that is shown, kept renewed by somebody; only its reader's."
    )
    token_command: Words | None = Field(
        None, description="Command that prints a new token, such as [scontrol, token, lifespan=3600]."
    )
    user: Name | None = Field(None, description="As whom it is asked; default: the agent's own user.")
    ca: File | None = Field(None, description="Certificates that HTTPS is checked with; unset: those of httpx.")
    commands: Literal["auto", "never"] = Field(
        "auto",
        description="What slurmrestd cannot do: by Slurm's commands where they are there (auto), or not (never).",
    )
    default_partition: Name | None = Field(
        None, description="The default partition, which slurmrestd tells from Slurm 26.05 on; unset: the only one."
    )
    settings: Settings = Field(
        {},
        description="Slurm's settings by their names in slurm.conf, such as SchedulerParameters, where neither "
        "slurmrestd (before 26.05) nor a command tells them.",
    )

    @field_validator("settings")
    @classmethod
    def _settings_are_texts(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, said in value.items():
            if not isinstance(said, str | int) or isinstance(said, bool):
                raise ValueError(f"{name} must be text, as slurm.conf has it")
        return {name: str(said) for name, said in value.items()}

    @model_validator(mode="after")
    def _one_token(self) -> RestSection:
        if self.token_file is not None and self.token_command is not None:
            raise ValueError("token_file and token_command: only one of them")
        return self


class AsaSection(_Section):
    """The learner of waits (ASA paper)."""

    predictor: Literal[
        "share-mix", "asa-default", "asa-greedy", "asa-tuned", "share", "qbets", "slurm", "queue", "last", "median"
    ] = Field(
        "share-mix",
        description="Who predicts waits; asa-* is the paper's algorithm under its three policies, slurm is Slurm's own "
        "estimate, queue our plan of the queue, corrected.",
    )
    watch_queue: bool = Field(True, description="Learn from every job in the queue what it means for a new one.")
    ask_slurm: bool = Field(True, description="Count with Slurm's own estimate, too (one request where one is due).")
    history: Seconds = Field(
        30 * 86400.0, description="How far back accounting is read at the first start; 0: not at all."
    )
    shared: Literal["user", "site"] = Field(
        "user", description="Who learns together, where one agent serves several users: each user, or the whole site."
    )
    told_to: Literal["operators", "everybody"] = Field(
        "operators",
        description="Where one agent serves several users, who is told what to expect by portals: its operators, or "
        "everybody, who can then see how long others' jobs wait, not whose.",
    )
    alternatives: Annotated[tuple[Finite, ...] | None, AfterValidator(_ascending)] = Field(
        None, description="Waits in seconds to choose among, ascending; default: the paper's 53, and 0 and 1."
    )
    gamma: Literal["constant", "inverse-sqrt", "harmonic"] = Field(
        "constant", description="The learning rate's course over the rounds of Algorithm 1."
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> AsaSection:
        for predictor, key, on in (("queue", "watch_queue", self.watch_queue), ("slurm", "ask_slurm", self.ask_slurm)):
            if self.predictor == predictor and not on:
                raise ValueError(f"predictor {predictor} needs `{key}: true`")
        return self


class WorkflowsSection(_Section):
    """How workflows are run."""

    strategy: str = Field("auto", description="The strategy where `penstock submit` names none.")
    grace: Seconds = Field(300.0, description="How long a job that was started too early may wait for its parents.")
    core_hour_weight: Annotated[Finite, Field(ge=0)] = Field(
        60.0, description="Seconds of makespan that one core-hour is worth to the strategy `packed`."
    )
    age_while_dependent: bool = Field(
        False,
        description="Stages may gain priority by age while they depend on others, although jobs here do not by "
        "themselves (strategy `seed`). Only for administrators: in the site's file, which only root can write.",
    )


class AllowRule(_Section):
    """What one rule of `limits.allow` admits: jobs that agree with all that it names."""

    features: tuple[Feature, ...] | None = Field(None, description="Only these.")
    users: Names | None = Field(None, description="Only jobs of these users.")
    partitions: Names | None = Field(None, description="Only jobs in these partitions.")
    accounts: Names | None = Field(None, description="Only jobs of these accounts.")
    qos: Names | None = Field(None, description="Only jobs in these QOS.")


class LimitsSection(_Section):
    """What the agent may act on, and how much."""

    allow: tuple[AllowRule, ...] | None = Field(
        None, description="What the agent may act on: what agrees with one of these rules. Unset: with all jobs."
    )
    nodes_per_hour: int | None = Field(
        None, ge=0, description="Most nodes that resizes move within any hour; unset: no cap."
    )
    nodes_per_hour_of_user: int | None = Field(None, ge=0, description="The same for the jobs of one user.")
    dry_run: bool = Field(
        False, description="Only say what would be done to jobs of other users than the agent's own, and do nothing."
    )

    stages_of_user: int = Field(
        10_000, ge=1, description="Most stages in workflows of one user that have not ended, of jobs that users submit."
    )
    dependencies_of_user: int = Field(
        100_000, ge=1, description="How often these stages may come after another, in all."
    )
    unseen_of_user: int = Field(2_000, ge=1, description="Most jobs of these stages that Slurm has not shown yet.")
    work_of_user: int = Field(
        10_000,
        ge=1,
        description="Stages (eight dependencies count as one) that a pass looks through for one user; the rest follows "
        "in the next passes.",
    )
    changes_of_user: int = Field(50, ge=1, description="Most changes to workflow jobs of one user in a pass.")
    first: tuple[Peer, ...] = Field(
        (),
        description="Accounts of this host and addresses of others, such as [prometheus, 192.0.2.7], that come first "
        "where too many connections are open: they have a place whenever another account has one. Root and the "
        "agent's own user always do.",
    )
    lookups: int = Field(500, ge=1, description="Most jobs that accounting is asked for in a pass, of all users.")

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
        return None if self.allow is None else tuple(Rule(**rule.model_dump()) for rule in self.allow)


class ProvisionSection(_Section):
    """Slots, prices and reservations (Singh 2008)."""

    pricing: str = Field("paper", description="Rules of what slots cost (entry point penstock.pricing).")
    limits: Literal["open", "careful", "strict"] = Field(
        "open",
        description="What may be held: open anything; careful half the machine, 5 minutes ahead, 20 a user; strict a "
        "tenth, an hour ahead, 3 a user.",
    )
    margin: Seconds = Field(60.0, description="Seconds that are reserved beyond a slot's end, against ResvOverRun.")
    earlier: Annotated[Finite, Field(ge=0)] = Field(
        0.0, description="Service units that ending an hour earlier is worth, in penalties for exchanged slots."
    )
    ledger: File | None = Field(
        None,
        description="The ledger. Default: ledger.db in the state folder, or, where that is another user's, in the "
        "caller's own state folder.",
    )
    sites: File | None = Field(None, description="The file of sites (penstock plan --site); unset: none.")
    requests: File | None = Field(None, description="Folder for signed requests for reservations; unset: none.")
    request_key: File | None = Field(None, description="File with the key that signs them, at least 16 bytes.")


class DmrSection(_Section):
    """Malleable MPI jobs (DMR paper)."""

    listen: Address = Field("0.0.0.0:0", description="HOST:PORT for applications; port 0 picks one and keeps it.")
    advertise: str | None = Field(None, description="Host name given to applications; default: this host's name.")
    hosts: Hosts = Field(
        (),
        description="All hosts on which the agent may run, by the names at which applications reach them; where it "
        "does not answer they look for it on the others, at the same port.",
    )
    munge_socket: File | None = Field(None, description="munged's socket where it is not the default one.")
    policy: str = Field("throughput", description="Name of the resize policy (entry point penstock.policies).")
    grant_timeout: Seconds = Field(40.0, description="How long a resizer may wait for its nodes (paper: 40 s).")
    accept_timeout: Seconds = Field(120.0, description="How long an application may leave granted nodes unused.")
    cooldown: Seconds = Field(
        30.0,
        description="Shortest time between two resizes of one job that it did not ask for; growths that it refuses or "
        "does not take up double it, to an hour at most.",
    )


class MalleableSection(_Section):
    """How malleable jobs grow, and how long that takes."""

    backend: Literal["auto", "merge", "companion"] = Field(
        "auto",
        description="Added nodes are held by a second job of the same user (companion), or become the job's own "
        "(merge); auto: companion where the application can, else merge. Nothing is merged where that is unsafe.",
    )
    merge_releases: tuple[Release, ...] = Field(
        (),
        description="More releases of Slurm on which merging was tried, such as 25.05.3. On a release on which nobody "
        "has, it may end slurmctld: try it on a test cluster first (docs/malleable-sites.md).",
    )
    extend: bool | None = Field(
        None,
        description="Whether an Operator raises the time limit of a job that has given back nodes and needs longer for "
        "that; unset: only for the agent's own user's jobs (`agent.serve: own`).",
    )
    resize_timeout: Seconds = Field(600.0, description="How long an application may take to resize.")
    restart_timeout: Seconds = Field(3600.0, description="The same, where it saves its state and is started anew.")
    resize_cost: Seconds = Field(15.0, description="How long a resize takes, until some have been measured.")
    put_back_after: Seconds = Field(
        600.0, description="How long a moldable job with a checkpoint runs at least before it is put back,"
    )
    put_back_gain: Seconds = Field(
        600.0, description="how much sooner it must end with another size, and at least a quarter of what is left,"
    )
    put_back_grace: Seconds = Field(300.0, description="and how long its checkpoint may take.")


class SelectSection(_Section):
    """Resource selection (Ha et al.)."""

    site: File | None = Field(None, description="What Slurm does not know of its nodes, such as their clocks (YAML).")
    gain: Seconds = Field(300.0, description="A task that waits moves if it is done so much sooner elsewhere,")
    gain_share: Annotated[Finite, Field(ge=0, lt=1)] = Field(0.2, description="and by this share of what is left.")


class PoolSection(_Section):
    """Pools of tasks over many allocations (ASA paper, section 3.1)."""

    folder: File | None = Field(
        None,
        description="Folder of the user's pools, shared by all nodes; default: pools in the state folder, or, where "
        "that is another user's, in the caller's own state folder.",
    )
    host: str | None = Field(None, description="This host's address, at which members reach a pool's scheduler.")
    placement: str = Field("pack", description="Which task goes where (entry point penstock.placement).")
    share: Annotated[Finite, Field(gt=0, le=1)] = Field(
        1.0, description="Measured CPU use of a member up to which tasks of another workflow are put beside others."
    )
    output_limit: Bytes = Field(
        16 * 2**20, description="How much (bytes) of what one attempt writes to each of its two outputs is kept."
    )
    keep: Seconds = Field(
        7 * 86400.0,
        description="How long a pool remembers a task that has ended, its name and its output; 0: for ever.",
    )
    keep_tasks: int = Field(100_000, ge=0, description="How many ended tasks a pool remembers at most: the last ones.")
    partition: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,60}$")] = Field(
        "penstock",
        description="With front programs on PATH: jobs for a partition of this name become tasks of pool main, for "
        "NAME after it and a dash those of pool NAME; empty: no partition does that.",
    )
    below: Annotated[Seconds, Field(gt=0)] | None = Field(
        None,
        description="With front programs on PATH: jobs with a time limit of at most so much become tasks of pool main "
        "while that runs, where they can; unset: none for that reason.",
    )


class ShimSection(_Section):
    """What front programs on PATH are answered (docs/shim.md)."""

    look_age: Annotated[Seconds, Field(gt=0, le=60)] | None = Field(
        None,
        description="How old the look may be that squeue, sacct and scontrol are answered from; unset: 5 s, and 15 s "
        "where `agent.serve` is all.",
    )


class MessagesSection(_Section):
    """What the agent tells people by itself, and how (docs/messages.md). Nothing, unless a way is set."""

    events: tuple[Literal["stage-failed", "deadline", "paused", "report"], ...] = Field(
        ("stage-failed", "deadline", "paused", "report"),
        description="Of what: failed stages, late reserved workflows, automatic pauses, the weekly report.",
    )
    mail: Literal["off", "sendmail", "smtp"] = Field("off", description="How mail goes out.")
    mail_to: MailAddress | None = Field(
        None,
        description="Who gets what concerns the agent itself; default: nobody, or the user whose own agent it is.",
    )
    mail_from: MailAddress | None = Field(None, description="Sender; default: the agent's user at this host.")
    mail_domain: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$", max_length=253)] | None = Field(
        None, description="A user's address is USER@this; default: Slurm's MailDomain, else USER alone."
    )
    users: bool = Field(True, description="Whether users get mail of what concerns their own workflows.")
    sendmail: Words = Field(("/usr/sbin/sendmail",), description="The program, and arguments before its own.")
    smtp: Address | None = Field(None, description="HOST:PORT of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="How the way to the mail server is encrypted."
    )
    smtp_login: File | None = Field(None, description="File with the user name and, on a second line, the password.")
    webhook: File | None = Field(None, description="File (0600: it is a key) with the URL that gets events as JSON.")
    command: Words | None = Field(None, description="Program and arguments; gets an event as JSON on standard input.")
    channels: dict[Name, Settings] = Field(
        {}, description="Channels of your own (entry point penstock.channels), each name with its settings."
    )
    timeout: Annotated[Seconds, Field(gt=0)] = Field(
        10.0, description="Time limit of one delivery by mail, webhook or command."
    )
    per_hour: int = Field(30, ge=1, description="Most messages to each recipient in any hour; others wait.")

    @property
    def configured(self) -> bool:
        """Whether any way is set."""
        return self.mail != "off" or self.webhook is not None or self.command is not None or bool(self.channels)

    @model_validator(mode="after")
    def _has_a_server(self) -> MessagesSection:
        if self.mail == "smtp" and self.smtp is None:
            raise ValueError("`mail: smtp` needs `smtp: HOST:PORT`")
        return self


class AuditSection(_Section):
    """The record of who asked for what and what was done (docs/audit.md)."""

    file_size: Annotated[Bytes, Field(ge=64 * 1024)] = Field(
        16 * 2**20, description="Bytes after which a new audit file is begun."
    )
    files: int = Field(20, ge=2, le=10_000, description="How many audit files are kept; the oldest is removed.")


class MetricsSection(_Section):
    """Prometheus metrics."""

    listen: Address | None = Field(None, description="HOST:PORT of /metrics; unset: none.")


class LogSection(_Section):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Config(_Section):
    """The whole configuration."""

    agent: AgentSection = Field(default_factory=lambda: AgentSection.model_validate({}))
    slurm: SlurmSection = Field(default_factory=lambda: SlurmSection.model_validate({}))
    rest: RestSection = Field(default_factory=lambda: RestSection.model_validate({}))
    asa: AsaSection = Field(default_factory=lambda: AsaSection.model_validate({}))
    workflows: WorkflowsSection = Field(default_factory=lambda: WorkflowsSection.model_validate({}))
    limits: LimitsSection = Field(default_factory=lambda: LimitsSection.model_validate({}))
    provision: ProvisionSection = Field(default_factory=lambda: ProvisionSection.model_validate({}))
    dmr: DmrSection = Field(default_factory=lambda: DmrSection.model_validate({}))
    malleable: MalleableSection = Field(default_factory=lambda: MalleableSection.model_validate({}))
    select: SelectSection = Field(default_factory=lambda: SelectSection.model_validate({}))
    pool: PoolSection = Field(default_factory=lambda: PoolSection.model_validate({}))
    shim: ShimSection = Field(default_factory=lambda: ShimSection.model_validate({}))
    messages: MessagesSection = Field(default_factory=lambda: MessagesSection.model_validate({}))
    audit: AuditSection = Field(default_factory=lambda: AuditSection.model_validate({}))
    metrics: MetricsSection = Field(default_factory=lambda: MetricsSection.model_validate({}))
    log: LogSection = Field(default_factory=lambda: LogSection.model_validate({}))

    @property
    def socket_path(self) -> Path:
        """The agent's Unix socket."""
        return self.agent.socket or self.agent.state_dir / "agent.sock"

    @property
    def look_age(self) -> float:
        """How old the looks may be that front programs are answered from, in seconds."""
        return self.shim.look_age or (_SHARED_LOOK if self.agent.serve == "all" else _OWN_LOOK)


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file that applies, if any."""
    if named := environ.get("PENSTOCK_CONFIG"):
        return Path(named)
    candidates = [SITE]
    with contextlib.suppress(ConfigError):  # who has no home has no file in it
        candidates.insert(0, own_file(environ))
    for candidate in candidates:
        # A service user that root's shell runs a command as may not look into root's home: nothing is there for it.
        with contextlib.suppress(PermissionError):
            if candidate.exists():
                return candidate
    return None


def own_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a user's own configuration file is, or would be. Raises ConfigError where there is no home for it."""
    return Path(environ.get("XDG_CONFIG_HOME") or home() / ".config") / "penstock" / "config.yaml"


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration from a file and the environment.

    Raises `ConfigError` naming the file and key, with the nearest known key where one is unknown.
    """
    path = path or find(environ)
    data: dict[str, Any] = {}
    if path is not None:
        try:
            with path.open("rb") as file:
                loaded = parse_yaml(file.read(MAX_BYTES + 1), "configuration")
        except (OSError, ValueError) as e:
            raise ConfigError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
        except UserError as e:
            raise ConfigError(f"{path}: cannot be read: {e}") from e
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigError(f"{path}: must be a mapping of sections, such as `agent:`")
        # A section whose keys are all commented out is an empty one.
        data = {section: {} if keys is None else keys for section, keys in (loaded or {}).items()}
    variables: dict[tuple[str, ...], str] = {}
    for (section, name), variable in _variables(environ).items():
        inner = data.setdefault(section, {})
        if isinstance(inner, dict):
            inner[name] = _list_or_text(variable, environ[variable])
            variables[section, name] = variable
            variables[section,] = variable if section not in Config.model_fields else variables.get((section,), "")
    from_site = _taken_from_site(data, path)
    try:
        config = Config.model_validate(data)
    except ValidationError as e:
        location = tuple(str(part) for part in e.errors()[0]["loc"])
        where = variables.get(location[:2]) or variables.get(location[:1]) or path or "configuration"
        raise ConfigError(f"{where}: {_say(e)}") from e
    allowed = from_site or (_ADMINISTRATORS not in variables and path is not None and _roots(path))
    if config.workflows.age_while_dependent and not allowed:
        raise ConfigError(
            f"{variables.get(_ADMINISTRATORS) or path}: {'.'.join(_ADMINISTRATORS)}: only an administrator can allow "
            f"this: in {SITE}, or another file that belongs to root and that nobody else can write"
        )
    return config


def _taken_from_site(data: dict[str, Any], path: Path | None) -> bool:
    """Take what an administrator has said in the site's file into that of somebody who has one of their own and does
    not say otherwise; whether there was anything to take."""
    section, key = _ADMINISTRATORS
    mine = data.get(section)
    if path is None or path == SITE or not isinstance(mine, dict | None) or key in (mine or {}) or not _roots(SITE):
        return False
    try:
        site = parse_yaml(_text(SITE).encode(), "configuration")
    except (ConfigError, UserError):
        return False  # whoever reads it for all it says will be told
    theirs = site.get(section) if isinstance(site, dict) else None
    if not isinstance(theirs, dict) or key not in theirs:
        return False
    data.setdefault(section, {})[key] = theirs[key]
    return True


def _roots(path: Path) -> bool:
    """Whether the file is there, belongs to root, and nobody else can write it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def origins(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> dict[tuple[str, str], str]:
    """Where the value of each (section, key) comes from: `DEFAULT`, `FILE:LINE`, or the name of a variable.

    For a configuration that `load` takes; raises `ConfigError` as that does.
    """
    path = path or find(environ)
    known = {
        (section, key): DEFAULT
        for section, field in Config.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        for key in field.annotation.model_fields
    }
    if path is not None:
        tree = yaml.compose(_text(path), Loader=yaml.SafeLoader)
        for section, keys in tree.value if isinstance(tree, yaml.MappingNode) else ():
            for key, _value in keys.value if isinstance(keys, yaml.MappingNode) else ():
                known[section.value, key.value] = f"{path}:{key.start_mark.line + 1}"
    return known | _variables(environ)


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration file, for editors and for tools that write one."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: cannot be read: {' '.join(str(e).split())}") from e


def _variables(environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The variables that set single keys, by (section, key)."""
    found = {}
    for variable in environ:
        if variable.startswith("PENSTOCK_") and "__" in variable:
            section, _, name = variable.removeprefix("PENSTOCK_").lower().partition("__")
            found[section, name] = variable
    return found


def _list_or_text(variable: str, value: str) -> object:
    if value[:1] + value[-1:] not in ("[]", "{}"):  # "[::1]:0" is an address
        return value
    try:
        return parse_yaml(value, "list")
    except UserError as e:
        raise ConfigError(f"{variable}: is not a list such as [1, 2, 3]: {show(value)}") from e


def _say(error: ValidationError) -> str:
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _known(location[:-1]), n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        return f"`{'.'.join(location)}` is not a known key{hint}"
    text = first["msg"].removeprefix("Value error, ")
    return f"`{'.'.join(location)}`: {text[:1].lower()}{text[1:]}, not {show(first['input'])}"


def _known(sections: list[str]) -> list[str]:
    model: type[BaseModel] = Config
    for name in sections:
        if name.isdecimal():  # the place in a list
            continue
        inner = model.model_fields[name].annotation if name in model.model_fields else None
        if inner == tuple[AllowRule, ...] | None:
            inner = AllowRule
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
