"""The checks of this host: the configuration, the state, the agent, and how messages reach it. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from penstock.admin.doctor.facts import SiteFacts
from penstock.admin.doctor.reach import check_reach
from penstock.core.findings import Finding, Folder, Trouble, failed, fine, note, unknown
from penstock.host.filesystems import is_network, is_volatile
from penstock.kernel.library import OFF
from penstock.texts import plural
from penstock.values.rest_address import RestAddress

__all__ = ["check_host"]

_LITTLE: Final = 200 * 2**20  # bytes
_LAST: Final = frozenset({"notify"})  # of what parts find: said after what the agent may act on
_RECENT: Final = 900.0  # seconds since the last `penstock tick`
_MUNGE: Final = (
    "install libmunge2 and start munged; if its socket is not in the usual place, set `dmr.munge_socket` to its path"
)


def check_host(facts: SiteFacts) -> Iterator[Finding]:
    """One finding per check, in the order in which one would look."""
    yield _config(facts)
    yield _identity(facts)
    yield _policy(facts)
    yield _folder(facts)
    yield _file_system(facts)
    yield _state(facts)
    yield _agent(facts)
    yield from check_reach(facts)
    yield _service(facts)
    yield _munge(facts)
    yield _key(facts)
    yield _address(facts)
    yield _view(facts)
    yield _pyslurm(facts)
    yield _rest(facts)
    yield _kernel(facts)
    yield _parts(facts)
    yield from (one for one in facts.part_findings if one.check not in _LAST)
    yield _limits(facts)
    yield from (one for one in facts.part_findings if one.check in _LAST)


def _config(facts: SiteFacts) -> Finding:
    if facts.config_trouble:
        return failed(
            "config",
            f"{facts.config_trouble} (the other checks assume the defaults)",
            "correct it, and run `penstock config check`",
        )
    return fine("config", facts.config_path or "no configuration file: the defaults apply")


def _identity(facts: SiteFacts) -> Finding:
    if facts.uid == 0:
        return note(
            "identity",
            "this is root, but the agent needs no root",
            "run it as a user, or as a service user with Operator rights (see the check `operator`)",
        )
    return fine("identity", facts.user)


def _policy(facts: SiteFacts) -> Finding:
    if facts.policy is not None:
        return failed("policy", facts.policy.why, "set `dmr.policy` to one of those, or install its package")
    return fine("policy", f"the policy `{facts.config.dmr.policy}` decides on resizes")


def _folder(facts: SiteFacts) -> Finding:
    if facts.own is not None:
        return _own_folder(facts.user, facts.own)
    change = "set `agent.state_dir` to a folder that this user can write to"
    if isinstance(facts.folder, Trouble):
        return failed("state-folder", facts.folder.why, change)
    folder = facts.folder
    if not folder.writable:
        why = "" if folder.made else ", where the state folder is to be made"
        return failed("state-folder", f"{facts.user} cannot write to {folder.path}{why}", change)
    if folder.made and folder.owner != facts.uid:
        return failed("state-folder", f"{folder.path} belongs to user id {folder.owner}, not to {facts.user}", change)
    if folder.made and folder.mode & 0o022:
        return failed(
            "state-folder",
            f"other users can write to {folder.path}, and could replace the agent's socket and key",
            f"chmod go-w {folder.path}",
        )
    if folder.free < _LITTLE:
        free = f"{folder.free // 2**20} MB"
        return note("state-folder", f"{folder.path}: {free} left", "make room: the agent holds while it cannot write")
    return fine("state-folder", folder.path if folder.made else f"will be made in {folder.path}")


def _own_folder(user: str, own: Folder | Trouble) -> Finding:
    """Of a user of a site's agent: the state folder is no concern of theirs."""
    change = "set XDG_STATE_HOME to a folder that this user can write to"
    if isinstance(own, Trouble):
        return failed("state-folder", own.why, change)
    if not own.writable:
        return failed("state-folder", f"{user} cannot write to {own.path}", change)
    where = f"is in {own.path}" if own.made else f"will be in a folder made in {own.path}"
    return fine("state-folder", f"the site's agent keeps the state; what belongs to {user} alone {where}")


def _file_system(facts: SiteFacts) -> Finding:
    if isinstance(facts.folder, Trouble):
        return unknown("file-system", facts.folder.why)
    folder = facts.folder
    where = f"{folder.path} is on {folder.kind} ({folder.mount})"
    if folder.shared:
        has = f"{folder.holder} holds it" if folder.holder else "nobody holds it now"
        return fine("file-system", f"{where}, which other hosts may see: a lease protects the state; {has}")
    if is_network(folder.kind):
        return note(
            "file-system",
            f"{where}, a network file system, but `agent.shared` is no: only one host may use the state",
            "remove `agent.shared` from the configuration: a lease then protects the state",
            "the agent then renews the lease on disk every few seconds",
        )
    if is_volatile(folder.kind):
        return note(
            "file-system",
            f"{where}, in memory: the journal and all that was learned are lost when the host restarts",
            "set `agent.state_dir` to a folder on a disk",
        )
    return fine("file-system", where)


def _state(facts: SiteFacts) -> Finding:
    if facts.own is not None:
        return fine("state", "the site's agent keeps the state, and nobody else reads it")
    if isinstance(facts.state, Trouble):
        return failed(
            "state", facts.state.why, "`penstock db check` says more; `penstock db backup` makes a copy to keep"
        )
    return fine("state", facts.state)


def _agent(facts: SiteFacts) -> Finding:
    agent = facts.agent
    if agent.off:
        return note("agent", agent.off, "`penstock on` lets it act again", "until then the agent starts nothing")
    if facts.own is not None and not agent.answers:
        change = "tell the administrators: it is a service of the site"
        return failed("agent", "the site's agent, which keeps state and runs workflows, does not answer", change)
    if facts.own is not None:
        return fine("agent", "the site's agent answers: it keeps state and runs workflows for all users")
    if agent.answers:
        return fine("agent", "an agent answers")
    if agent.ticked is not None and agent.ticked < _RECENT:
        return note(
            "agent",
            f"no agent runs, but `penstock tick` ran {agent.ticked:.0f} s ago: workflows go on, malleable jobs do not "
            "resize",
            "start `penstock agent` where a daemon may run",
        )
    change = "start `penstock agent` or its service (see `service`), or run `penstock tick` by cron"
    return note("agent", "no agent runs", change)


def _service(facts: SiteFacts) -> Finding:
    services = facts.services
    if facts.config.agent.serve == "all":
        return fine("service", "an agent for all users is a system service, not a user's")
    cron = [name for name, there in (("crontab", services.crontab), ("scrontab", _scron(facts))) if there]
    ticks = f"run `penstock tick` from your {' or '.join(cron)}" if cron else "run `penstock tick` again and again"
    if not services.user_manager and facts.agent.answers:
        return fine("service", "systemd --user does not answer here; the agent was started in another way")
    if not services.user_manager:
        return note(
            "service",
            "systemd --user does not answer here",
            f"{ticks}; or run `penstock agent` in a long job or a terminal",
            "with `penstock tick` alone, malleable jobs do not resize",
        )
    unit = f", unit penstock-user is {services.unit}" if services.unit else ", unit penstock-user is not installed"
    if services.lingers is False:
        return note(
            "service",
            f"systemd --user answers{unit}, but all its services end when {facts.user} logs out",
            f"loginctl enable-linger {facts.user} (some sites allow it to administrators only)",
            "the user's services then run on the login node all the time",
        )
    return fine("service", f"systemd --user answers{unit}")


def _scron(facts: SiteFacts) -> bool:
    return not isinstance(facts.site, Trouble) and facts.site.scron


def _munge(facts: SiteFacts) -> Finding:
    if facts.munge is None:
        return fine("munge", "a credential was made and read back")
    cost = "none where Slurm itself uses munge; elsewhere all hosts need the same munge key"
    return failed("munge", facts.munge.why, _MUNGE, cost)


def _key(facts: SiteFacts) -> Finding:
    if facts.config.agent.serve == "all":
        if facts.munge is not None:
            return failed("key", "`agent.serve: all` takes munge credentials only, and munge does not work", _MUNGE)
        return fine("key", "not used: `agent.serve: all` takes munge credentials")
    if isinstance(facts.key, Trouble):
        return failed("key", facts.key.why, "correct the file's permissions, or remove it: the agent makes a new one")
    local = not isinstance(facts.folder, Trouble) and not is_network(facts.folder.kind)
    there = "there" if facts.key else "made when the agent starts"
    if local:
        return note(
            "key",
            f"the key is {there}, in a folder that other hosts may not see: programs there could not sign requests",
            "set `agent.state_dir` to a folder that the compute nodes see (such as your home)"
            + ("" if facts.munge else ", or `unset DMR_KEY_FILE` in job scripts, so that munge signs"),
        )
    return fine("key", f"the key is {there}")


def _address(facts: SiteFacts) -> Finding:
    change = "set `dmr.advertise` to a name of this host that the compute nodes can reach"
    if isinstance(facts.address, Trouble):
        return failed("address", facts.address.why, change)
    name, addresses = facts.address.name, facts.address.addresses
    if all(ipaddress.ip_address(address).is_loopback for address in addresses):
        text = f"{name} resolves to {', '.join(addresses)} here: other hosts may not reach this one by that name"
        return note("address", text, change)
    return fine("address", f"programs find the agent at {name} ({', '.join(addresses)}), port of `dmr.listen`")


def _view(facts: SiteFacts) -> Finding:
    if isinstance(facts.view, Trouble):
        return note(
            "site-view",
            f"not used, so Slurm is asked directly: {facts.view.why}",
            "have it mended (`systemctl status penstock-site-view`), or set `slurm.view: off`",
        )
    if facts.view is not None:
        return fine("site-view", facts.view)
    off = facts.config.slurm.view == "off"
    text = "`slurm.view` is off" if off else "the site has none (penstock site-view)"
    return fine("site-view", f"{text}: Slurm is asked directly")


def _pyslurm(facts: SiteFacts) -> Finding:
    wanted = facts.config.slurm.backend
    change = "pip install the pyslurm release that fits the site's Slurm, or set `slurm.backend: cli`"
    cost = "building it takes minutes and gigabytes of memory; it is GPL-2.0-only"
    if isinstance(facts.pyslurm, str):
        used = "is used" if wanted in ("pyslurm", "auto") else "is installed; `slurm.backend: auto` would use it"
        return fine("pyslurm", f"pyslurm {facts.pyslurm} fits this Slurm and {used}")
    why = "pyslurm is not installed" if facts.pyslurm is None else facts.pyslurm.why
    return failed("pyslurm", why if wanted == "pyslurm" else f"{why}; the agent uses Slurm's commands", change, cost)


def _rest(facts: SiteFacts) -> Finding:
    section = facts.config.rest
    if facts.config.slurm.backend != "rest":
        return fine("rest", "slurmrestd is not configured (`slurm.backend`)")
    if facts.rest is None or isinstance(facts.rest, Trouble):
        why = facts.rest.why if isinstance(facts.rest, Trouble) else "it was not asked"
        return failed("rest", f"slurmrestd: {why}", "see `rest.url` and, for a token, `rest.token_file`")
    spoken = f"slurmrestd at {section.url} answers in {facts.rest.version}"
    if section.url is not None and RestAddress.parse(section.url).in_clear:
        return note("rest", f"{spoken}, and its token can be read on the way", "let `rest.url` begin with https://")
    if facts.rest.lacks:
        change = "have Slurm's commands on PATH, with `rest.commands: auto`, or do without these"
        return note("rest", f"{spoken}; not to be had: {', '.join(facts.rest.lacks)}", change)
    return fine("rest", f"{spoken}; Slurm's commands do what it cannot")


def _kernel(facts: SiteFacts) -> Finding:
    if facts.kernel:
        seen = f"Penstock counts drawn futures in pure Python, which takes some 30 times as long: {facts.kernel}"
        if facts.kernel.startswith(OFF):
            return note("kernel", seen, f"take {OFF} out of it")
        return note("kernel", seen, "install a C compiler (Debian: gcc libc6-dev), and then Penstock again")
    return fine("kernel", "Penstock counts drawn futures by its compiled kernel")


def _parts(facts: SiteFacts) -> Finding:
    if isinstance(facts.parts, Trouble):
        return failed("parts", facts.parts.why, "mend that file, or uninstall what it belongs to")
    refused = [f"{one.distribution} ({one.file}): {one.why_not}" for one in facts.parts if one.why_not]
    if refused:
        return failed("parts", "; ".join(refused), "the agent does not start before that is mended, or uninstalled")
    if unasked := [f"{one.distribution}: {one.unasked}" for one in facts.parts if one.unasked]:
        return note("parts", "; ".join(unasked), "ask who made it; the agent takes it in all the same")
    told = [f"{one.distribution} {one.version} ({one.file})" for one in facts.parts]
    return fine("parts", ", ".join(told) or "none is installed beside the core")


def _limits(facts: SiteFacts) -> Finding:
    limits = facts.config.limits
    caps = [
        f"{plural(cap, 'node')} an hour{of}"
        for cap, of in ((limits.nodes_per_hour, ""), (limits.nodes_per_hour_of_user, " for each user"))
        if cap is not None
    ]
    told = ", ".join([*caps, *([] if limits.allow is None else [f"rules of `limits.allow`: {len(limits.allow)}"])])
    if odd := list(_unknown_names(facts)):
        return note(
            "limits",
            f"{told}; there is no {', no '.join(odd)}, which `limits.allow` names",
            "correct the names: the agent leaves alone what no rule admits",
        )
    if limits.allow == ():
        return note("limits", "`limits.allow` is empty: the agent acts on nothing", "add rules, or remove the key")
    if limits.dry_run:
        text = ", ".join(["dry run: the agent only says what it would do to others' jobs", *([told] if told else [])])
        return note("limits", text, "set `limits.dry_run: false`, and reload the agent")
    return fine("limits", told or "none: the agent may act on all jobs that it serves")


def _unknown_names(facts: SiteFacts) -> Iterator[str]:
    """What the rules name and nobody knows, such as "user alcie, bbo"."""
    rules = facts.config.limits.rules or ()
    partitions = None if isinstance(facts.partitions, Trouble) else {place.name for place in facts.partitions}
    for kind, named, known in (
        ("user", [rule.users for rule in rules], facts.known_users),
        ("partition", [rule.partitions for rule in rules], partitions),
        ("account", [rule.accounts for rule in rules], facts.known_accounts),
        ("QOS", [rule.qos for rule in rules], facts.known_qos),
    ):
        odd = {name for names in named for name in names or ()}.difference(known if known is not None else ())
        if known is not None and odd:
            yield f"{kind} {', '.join(sorted(odd))}"
