"""Slurm's own settings as Penstock's values, by what `scontrol show config` says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.api import SiteConfig
from penstock.slurm.parse import ParseError, parse_config, parse_count, parse_time, parse_version

__all__ = ["WHOLE", "clock_from_config", "items_of", "site_from_settings", "site_from_text", "slurm_user"]

WHOLE: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
"""A whole number that is not too long to be one."""


def site_from_text(text: str) -> SiteConfig:
    """The settings in `scontrol show config`."""
    return site_from_settings(parse_config(text))


def site_from_settings(settings: Mapping[str, str]) -> SiteConfig:
    """The settings, by the names that `scontrol show config` gives them."""
    try:
        return SiteConfig(
            version=parse_version(settings["SLURM_VERSION"]),
            cluster=settings["ClusterName"],
            select_type=settings["SelectType"],
            scheduler_parameters=items_of(settings.get("SchedulerParameters", "")),
            prolog_flags=items_of(settings.get("PrologFlags", "").upper()),
            priority_type=settings["PriorityType"],
            priority_flags=items_of(settings.get("PriorityFlags", "").upper()),
            min_job_age=float(parse_count(settings["MinJobAge"].removesuffix("sec"))),
            priority_weight_age=_weight(settings.get("PriorityWeightAge", "")),
            max_array=int(size) if WHOLE.fullmatch(size := settings.get("MaxArraySize", "")) else 1001,
            accounting=settings.get("AccountingStorageType", "") == "accounting_storage/slurmdbd",
            enforced=items_of(settings.get("AccountingStorageEnforce", "").lower()) - {"none"},
            private=items_of(settings.get("PrivateData", "").lower()) - {"none"},
            controller_parameters=items_of(settings.get("SlurmctldParameters", "").lower()),
            mail_domain=_domain(settings.get("MailDomain", "")),
            scron="enable" in items_of(settings.get("ScronParameters", "").lower()),
            wakes_in=_resume(settings.get("ResumeTimeout", "")),
            next_job=int(number) if WHOLE.fullmatch(number := settings.get("NEXT_JOB_ID", "")) else None,
        )
    except KeyError as error:
        raise ParseError(f"a configuration without {error.args[0]}", str(dict(settings))) from None


def slurm_user(text: str) -> str:
    """The user that slurmctld runs as, from `scontrol show config`."""
    return parse_config(text).get("SlurmUser", "").partition("(")[0]


def _resume(text: str) -> float:
    """Seconds of a ResumeTimeout such as "600 sec"; Slurm's default where it is not said."""
    match = re.match(r"\d{1,9}\b", text)
    return 60.0 if match is None else float(match[0])


def _domain(text: str) -> str:
    """A mail domain; "(null)" and what is none is empty."""
    return text if re.fullmatch(r"[A-Za-z0-9.-]+", text) else ""


def _weight(text: str) -> int | None:
    """A priority weight; None where it is not shown (priority/basic)."""
    return int(text) if WHOLE.fullmatch(text) else None


def clock_from_config(text: str) -> float | None:
    """The controller's clock when it wrote `scontrol show config`; None where the answer does not say."""
    first = text.lstrip().partition("\n")[0]
    try:
        return parse_time(first.rpartition(" ")[2]) if first.startswith("Configuration data as of") else None
    except ParseError:
        return None


def items_of(value: str) -> frozenset[str]:
    """What a list with commas names."""
    return frozenset(item.strip() for item in value.split(",") if item.strip())
