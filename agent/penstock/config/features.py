"""The sections of the configuration that are of one feature each; see `sections`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.config.keys import key, section

if TYPE_CHECKING:
    from penstock.config.forms import (
        Address,
        Bytes,
        Channels,
        Domain,
        File,
        Finite,
        Hosts,
        LookAge,
        MailAddress,
        Partition,
        Period,
        Release,
        Seconds,
        Words,
    )

__all__ = [
    "DmrSection",
    "MalleableSection",
    "MessagesSection",
    "PoolSection",
    "ProvisionSection",
    "SelectSection",
    "ShimSection",
]


@section(frozen=True)
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


@section(frozen=True)
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


@section(frozen=True)
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


@section(frozen=True)
class SelectSection:
    """Resource selection (Ha et al.)."""

    site: File | None = key(None, text="What Slurm does not know of its nodes, such as their clocks (YAML).")
    gain: Seconds = key(300.0, text="A task that waits moves if it is done so much sooner elsewhere,")
    gain_share: Finite = key(0.2, ge=0, lt=1, text="and by this share of what is left.")


@section(frozen=True)
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


@section(frozen=True)
class ShimSection:
    """What front programs on PATH are answered (docs/shim.md)."""

    look_age: LookAge | None = key(
        None,
        text="How old the look may be that squeue, sacct and scontrol are answered from; unset: 5 s, and 15 s "
        "where `agent.serve` is all.",
    )


@section(frozen=True)
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
