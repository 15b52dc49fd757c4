"""What `scontrol show assoc_mgr` and `sacctmgr show qos|assoc` say about limits, as values.

slurmctld (assoc_mgr) is asked first: its limits are those that it holds jobs to, and it alone knows what is in use. But
it shows limits per user and per account of a QOS only to whom they apply already, shows no flags, and leaves out
associations that the caller may not see (PrivateData). For all of that there is accounting (sacctmgr), which does not
know what is in use. A field that this release does not know is left out; a value that cannot be read is a `ParseError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.api import HolderKind, Limit, LimitHolder, Owner, OwnerLimits, Partition
from penstock.slurm.parse import ParseError, parse_amount, parse_limit, parse_pairs

__all__ = [
    "ASSOCIATION_FIELDS",
    "QOS_FIELDS",
    "Association",
    "Qos",
    "associations_from_rows",
    "associations_from_text",
    "join",
    "qos_from_rows",
    "qos_from_text",
    "whole",
]

# Slurm's many names of one limit, in assoc_mgr's answers and sacctmgr's headings, and the one that `set` takes.
_NAMES = {
    "MaxWallPJ": "MaxWall",
    "MaxTRESPJ": "MaxTRESPerJob",
    "MaxTRES": "MaxTRESPerJob",
    "MaxTRESPN": "MaxTRESPerNode",
    "MaxTRESMinsPJ": "MaxTRESMinsPerJob",
    "MaxTRESMins": "MaxTRESMinsPerJob",
    "MaxTRESPU": "MaxTRESPerUser",
    "MaxTRESPA": "MaxTRESPerAccount",
    "MaxTRESRunMinsPU": "MaxTRESRunMinsPerUser",
    "MaxTRESRunMinsPA": "MaxTRESRunMinsPerAccount",
    "MaxJobsPU": "MaxJobsPerUser",
    "MaxJobsPA": "MaxJobsPerAccount",
    "MaxSubmitJobsPU": "MaxSubmitJobsPerUser",
    "MaxSubmitPU": "MaxSubmitJobsPerUser",
    "MaxSubmitJobsPA": "MaxSubmitJobsPerAccount",
    "MaxSubmitPA": "MaxSubmitJobsPerAccount",
    "MaxSubmit": "MaxSubmitJobs",
    "GrpSubmit": "GrpSubmitJobs",
}
_KNOWN = frozenset(_NAMES.values()) | {
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "GrpJobs",
    "GrpSubmitJobs",
    "GrpWall",
    "MaxJobs",
    "MaxSubmitJobs",
    "MaxWall",
    "MaxTRESPerNode",
}
_TIMES = frozenset({"MaxWall", "GrpWall"})
_LIMITS = (
    *("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpJobs", "GrpSubmit", "GrpWall"),
    *("MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall"),
)
QOS_FIELDS = (
    *("Name", "Flags", "LimitFactor", "UsageFactor", *_LIMITS),
    *("MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESRunMinsPU"),
    *("MaxTRESPA", "MaxJobsPA", "MaxSubmitPA", "MaxTRESRunMinsPA"),
)
ASSOCIATION_FIELDS = ("Cluster", "Account", "User", "Partition", "ParentName", *_LIMITS, "MaxJobs", "MaxSubmit")

Limits = Mapping[tuple[str, str], Limit]
"""By name and TRES."""


@dataclass(frozen=True, slots=True)
class Association:
    """An association's row: of a user, or with `user` empty of an account; `parent` is the account above that."""

    account: str
    user: str
    partition: str
    parent: str
    limits: Limits
    uid: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others."""
        return self.account, self.user, self.partition

    @property
    def name(self) -> str:
        """What it is, for people."""
        if not self.user:
            return f"account {self.account}"
        where = f" in partition {self.partition}" if self.partition else ""
        return f"user {self.user} of account {self.account}{where}"


@dataclass(frozen=True, slots=True)
class Qos:
    """A QOS: its limits, those with what a user or an account uses by uid and name, and what accounting says of it."""

    name: str
    limits: Limits
    users: Mapping[str, Limits]
    accounts: Mapping[str, Limits]
    flags: frozenset[str] = frozenset()
    factor: float = 1.0
    usage: float = 1.0


# -- reading ---------------------------------------------------------------------------------------------------------

_USED = re.compile(r"(.*?)\((.*)\)", re.ASCII)
_NONE = frozenset({"", "N", "UNLIMITED", "INFINITE", "(null)"})


def _pair(text: str, time: bool, tres: str) -> tuple[float | None, float | None]:
    """The limit and what is used of it, from `4(1)`, `N(1)`, `4` and ``."""
    found = _USED.fullmatch(text)
    value, used = (found[1], found[2]) if found else (text, "")
    # Times are minutes in slurmctld's answers, D-HH:MM:SS in accounting's.
    limit = None if value in _NONE else parse_limit(value) if time else parse_amount(value, tres)
    return limit, (parse_amount(used) * (60.0 if time else 1.0) if used else None)


def _limits(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Limit]:
    """The limits among these pairs of a field and its value."""
    found: dict[tuple[str, str], Limit] = {}
    promised: dict[str, float] = {}
    for field, text in pairs:
        name = _NAMES.get(field, field)
        if name not in _KNOWN or text in _NONE:
            continue
        items = [item.partition("=")[::2] for item in text.split(",")] if "TRES" in name else [("", text)]
        for tres, value in items:
            amount, used = _pair(value, name in _TIMES, tres)
            if amount is not None:
                found[name, tres] = Limit(name, amount, tres, used)
            if name == "GrpTRESRunMins":
                promised[tres] = used or 0.0
    for place, limit in found.items():
        if limit.name == "GrpTRESMins" and limit.used is not None:
            found[place] = replace(limit, used=limit.used + promised.get(limit.tres, 0.0))
    return found


_ID = re.compile(r"(.*)\(([0-9]+)\)", re.ASCII)


def _named(text: str) -> tuple[str, str]:
    """`alice(1000)` as name and number; what has no number is its own."""
    found = _ID.fullmatch(text)
    return (found[1], found[2]) if found else (text, text)


def associations_from_text(text: str) -> list[Association]:
    """The associations in `scontrol -o show assoc_mgr`."""
    found = []
    for line in text.splitlines():
        if not line.startswith("ClusterName="):
            continue
        pairs = parse_pairs(line)
        try:
            user, uid = _named(pairs["UserName"])
            found.append(
                Association(
                    account=pairs["Account"],
                    user=user,
                    partition=pairs["Partition"],
                    parent=_named(pairs["ParentAccount"])[0],
                    limits=_limits(pairs.items()),
                    uid=uid,
                )
            )
        except KeyError as error:
            raise ParseError(f"an association without {error.args[0]}", line) from None
    return found


_HOLDER = re.compile(r"(\S+)=\{([^{}]*)\}", re.ASCII)


def qos_from_text(text: str) -> dict[str, Qos]:
    """The QOS in `scontrol -o show assoc_mgr`, by name, without flags."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("QOS="):
            continue
        head, _, rest = line.partition(" Account Limits=")
        accounts, _, users = rest.partition(" User Limits=")
        pairs = parse_pairs(head)
        name = _named(pairs["QOS"])[0]
        found[name] = Qos(
            name=name,
            limits=_limits(pairs.items()),
            users={_named(who)[1]: _limits(parse_pairs(said).items()) for who, said in _HOLDER.findall(users)},
            accounts={who: _limits(parse_pairs(said).items()) for who, said in _HOLDER.findall(accounts)},
        )
    return found


def _cells(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """Rows of `sacctmgr -nP`, whose names only administrators give; ParseError for a row with other fields."""
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    for row in rows:
        if len(row) != len(fields):
            raise ParseError(f"not {len(fields)} fields", "|".join(row))
    return [dict(zip(fields, row, strict=True)) for row in rows]


def qos_from_rows(text: str) -> dict[str, Qos]:
    """The QOS in `sacctmgr -nP show qos format=QOS_FIELDS`, by name."""
    found = {}
    for cells in _cells(text, QOS_FIELDS):
        found[cells["Name"]] = Qos(
            name=cells["Name"],
            limits=_limits(cells.items()),
            users={},
            accounts={},
            flags=frozenset(flag for flag in cells["Flags"].split(",") if flag),
            factor=parse_amount(cells["LimitFactor"]) if cells["LimitFactor"] else 1.0,
            usage=parse_amount(cells["UsageFactor"]) if cells["UsageFactor"] else 1.0,
        )
    return found


def associations_from_rows(text: str, cluster: str) -> list[Association]:
    """The associations of a cluster in `sacctmgr -nP show assoc format=ASSOCIATION_FIELDS`."""
    return [
        Association(
            account=cells["Account"],
            user=cells["User"],
            partition=cells["Partition"],
            parent=cells["ParentName"],
            limits=_limits(cells.items()),
        )
        for cells in _cells(text, ASSOCIATION_FIELDS)
        if cells["Cluster"] == cluster
    ]


# -- joining ---------------------------------------------------------------------------------------------------------


def whole(owner: Owner, rows: Sequence[Association]) -> bool:
    """Whether the rows hold the owner's own association and all above it."""
    own, chain = _chain(owner, rows)
    return own is not None and _rooted(chain)


def join(
    owner: Owner,
    partition: Partition | None,
    seen: Sequence[Association],
    recorded: Sequence[Association] | str,
    qos: Mapping[str, Qos],
    table: Mapping[str, Qos] | str,
) -> OwnerLimits:
    """What is known of one owner. `seen` and `qos` are slurmctld's, `recorded` and `table` accounting's; a text in
    their place says why accounting does not say. Of what slurmctld has not shown nobody knows the use."""
    visible, chain = _chain(owner, seen)
    own = visible
    if not whole(owner, seen) and not isinstance(recorded, str):
        own, behind = _chain(owner, recorded)
        ours = {association.key: association for association in chain}
        chain = [ours.get(association.key, association) for association in behind]
    holders = tuple(LimitHolder(HolderKind.ASSOCIATION, a.name, tuple(a.limits.values())) for a in chain)
    found = [
        _qos(name, owner, visible, qos.get(name), table)
        for name in dict.fromkeys((partition.own_qos if partition else "", owner.qos))
        if name
    ]
    if len(found) == 2 and "overpartqos" in {flag.lower() for flag in found[1].flags}:
        found.reverse()
    unknown = [_missing(owner, own, chain, recorded), *(holder.unknown for holder in found)]
    if partition is None:
        unknown.append(f"there is no partition {owner.partition!r}")
    return OwnerLimits(
        owner=owner,
        partition=partition,
        qos=tuple(found),
        associations=holders,
        associated=True if own is not None else None if isinstance(recorded, str) else False,
        unknown="; ".join(dict.fromkeys(text for text in unknown if text)),
    )


def _missing(
    owner: Owner, own: Association | None, chain: Sequence[Association], recorded: Sequence[Association] | str
) -> str:
    """Which associations are not known; empty: none of them."""
    if own is None:
        why = f"no association of user {owner.user} with account {owner.account or '(none)'} is shown"
    elif not _rooted(chain):
        why = f"not all accounts above {owner.account} are shown"
    else:
        return ""
    return f"{why}, and {recorded}" if isinstance(recorded, str) and recorded else why


def _chain(owner: Owner, rows: Sequence[Association]) -> tuple[Association | None, list[Association]]:
    """The user's own association and the list from that up to the root, as far as the rows go."""
    mine = [a for a in rows if (a.user, a.account) == (owner.user, owner.account)]
    own = next((a for a in mine if a.partition == owner.partition), next((a for a in mine if not a.partition), None))
    accounts = {a.account: a for a in rows if not a.user}
    chain, name, passed = ([] if own is None else [own]), owner.account, set[str]()
    while name in accounts and name not in passed:
        passed.add(name)
        chain.append(accounts[name])
        name = accounts[name].parent
    return own, chain


def _rooted(chain: Sequence[Association]) -> bool:
    """Whether the last of these is the account above all others."""
    return bool(chain) and not chain[-1].user and not chain[-1].parent


def _qos(
    name: str, owner: Owner, own: Association | None, seen: Qos | None, table: Mapping[str, Qos] | str
) -> LimitHolder:
    """A QOS as it limits this owner; `own` is the user's association if slurmctld has shown it."""
    told = None if isinstance(table, str) else table.get(name)
    title = f"QOS {name}"
    unknown = ""
    if told is None:
        why = table if isinstance(table, str) else "accounting does not show it"
        unknown = f"of {title} not all limits are known: {why}"
    limits = dict(told.limits) if told else {}
    if seen is not None:
        # What slurmctld says of the QOS itself, or of the user or the account in it, is all there is of that kind;
        # whom it does not name uses nothing, provided that the caller is shown such things at all.
        parts = [("", seen.limits)]
        parts += [(suffix, whose[who]) for suffix, whose, who in _whose(seen, owner, own) if who in whose]
        for suffix, said in parts:
            limits = {key: limit for key, limit in limits.items() if _suffix(limit.name) != suffix} | dict(said)
        if own is not None:
            limits = {k: v if v.per_job or v.used is not None else replace(v, used=0.0) for k, v in limits.items()}
    about = told or Qos(name, {}, {}, {})
    return LimitHolder(HolderKind.QOS, title, tuple(limits.values()), about.flags, about.factor, about.usage, unknown)


def _whose(seen: Qos, owner: Owner, own: Association | None) -> list[tuple[str, Mapping[str, Limits], str]]:
    return [("PerUser", seen.users, own.uid if own else ""), ("PerAccount", seen.accounts, owner.account)]


def _suffix(name: str) -> str:
    """Of whom a QOS's limit counts what is in use: of each user, of each account, or of all together."""
    return next((suffix for suffix in ("PerUser", "PerAccount") if name.endswith(suffix)), "")
