"""QOS, associations and users of accounting's JSON: as rows of sacctmgr, which are read elsewhere (`limits`). Pure.

The rows hold no text of users: names of QOS, accounts and users are given by administrators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.slurm import limits
from penstock.slurm.privacy import OVERSEERS
from penstock_rest.values import amount, flags, member, text

__all__ = ["accrued", "association_rows", "oversees", "qos_rows"]

Json = Mapping[str, Any]
Reader = Callable[[Json], str]


def oversees(user: Json) -> bool:
    """Whether a user is an operator or administrator."""
    return bool(OVERSEERS & set(flags(user.get("administrator_level"))))


def accrued(qos: Json) -> float:
    """Of how many waiting jobs of a user age counts; infinite: of all."""
    found = amount(member(qos, "limits", "max", "accruing", "per", "user"))
    return math.inf if found is None else found


def _number(*path: str) -> Reader:
    def read(item: Json) -> str:
        found = amount(member(item, *path))
        return "" if found is None or not math.isfinite(found) else f"{found:g}"

    return read


def _tres(*path: str) -> Reader:
    def read(item: Json) -> str:
        found = member(item, *path)
        words = []
        for tres in found if isinstance(found, list) else ():
            kind, name = text(tres.get("type")), text(tres.get("name"))
            words.append(f"{kind}/{name}={tres['count']}" if name else f"{kind}={tres['count']}")
        return ",".join(words)

    return read


def _text(*path: str) -> Reader:
    return lambda item: text(member(item, *path))


_QOS: Final[Mapping[str, Reader]] = {
    "Name": _text("name"),
    "Flags": lambda item: ",".join(flags(item.get("flags"))).replace("_", ""),
    "LimitFactor": _number("limits", "factor"),
    "UsageFactor": _number("usage_factor"),
    "GrpTRES": _tres("limits", "max", "tres", "total"),
    "GrpTRESMins": _tres("limits", "max", "tres", "minutes", "total"),
    "GrpTRESRunMins": _tres("limits", "max", "tres", "minutes", "per", "qos"),
    "GrpJobs": _number("limits", "max", "active_jobs", "count"),
    "GrpSubmit": _number("limits", "max", "jobs", "count"),
    "GrpWall": _number("limits", "max", "wall_clock", "per", "qos"),
    "MaxTRES": _tres("limits", "max", "tres", "per", "job"),
    "MaxTRESPerNode": _tres("limits", "max", "tres", "per", "node"),
    "MaxTRESMins": _tres("limits", "max", "tres", "minutes", "per", "job"),
    "MaxWall": _number("limits", "max", "wall_clock", "per", "job"),
    "MaxTRESPU": _tres("limits", "max", "tres", "per", "user"),
    "MaxJobsPU": _number("limits", "max", "jobs", "active_jobs", "per", "user"),
    "MaxSubmitPU": _number("limits", "max", "jobs", "per", "user"),
    "MaxTRESRunMinsPU": _tres("limits", "max", "tres", "minutes", "per", "user"),
    "MaxTRESPA": _tres("limits", "max", "tres", "per", "account"),
    "MaxJobsPA": _number("limits", "max", "jobs", "active_jobs", "per", "account"),
    "MaxSubmitPA": _number("limits", "max", "jobs", "per", "account"),
    "MaxTRESRunMinsPA": _tres("limits", "max", "tres", "minutes", "per", "account"),
}
_ASSOCIATION: Final[Mapping[str, Reader]] = {
    "Cluster": _text("cluster"),
    "Account": _text("account"),
    "User": _text("user"),
    "Partition": _text("partition"),
    "ParentName": _text("parent_account"),
    "GrpTRES": _tres("max", "tres", "total"),
    "GrpTRESMins": _tres("max", "tres", "group", "minutes"),
    "GrpTRESRunMins": _tres("max", "tres", "group", "active"),
    "GrpJobs": _number("max", "jobs", "per", "count"),
    "GrpSubmit": _number("max", "jobs", "per", "submitted"),
    "GrpWall": _number("max", "per", "account", "wall_clock"),
    "MaxTRES": _tres("max", "tres", "per", "job"),
    "MaxTRESPerNode": _tres("max", "tres", "per", "node"),
    "MaxTRESMins": _tres("max", "tres", "minutes", "per", "job"),
    "MaxWall": _number("max", "jobs", "per", "wall_clock"),
    "MaxJobs": _number("max", "jobs", "active"),
    "MaxSubmit": _number("max", "jobs", "total"),
}


def qos_rows(found: Iterable[Json]) -> str:
    """As `sacctmgr -nP show qos format=QOS_FIELDS` would write them."""
    return _rows(found, [_QOS[name] for name in limits.QOS_FIELDS])


def association_rows(found: Iterable[Json]) -> str:
    """As `sacctmgr -nP show assoc format=ASSOCIATION_FIELDS` would write them."""
    return _rows(found, [_ASSOCIATION[name] for name in limits.ASSOCIATION_FIELDS])


def _rows(found: Iterable[Json], readers: Iterable[Reader]) -> str:
    columns = list(readers)
    return "".join("|".join(read(item) for read in columns) + "\n" for item in found)
