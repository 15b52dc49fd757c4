"""The one place where Slurm's words are read and written: host lists, times, limits, states, `key=value` lines.

What cannot be read raises `ParseError` (a ValueError that names the text) and nothing else. A job or node state that
this release does not know is no error: it becomes UNKNOWN, because Slurm adds states and Penstock must outlive that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from functools import lru_cache

from penstock.slurm.hostlist import HostListError, ParseError, asked_hosts, compress_hosts, expand_hosts
from penstock.slurm.states import NodeState, parse_job_state, parse_node_state

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
__all__ = [
    "HostListError",
    "NodeState",
    "ParseError",
    "array_tasks",
    "array_text",
    "asked_hosts",
    "compress_hosts",
    "expand_hosts",
    "format_minutes",
    "is_plain_name",
    "parse_amount",
    "parse_array_tasks",
    "parse_config",
    "parse_count",
    "parse_exit_code",
    "parse_job_state",
    "parse_limit",
    "parse_node_state",
    "parse_pairs",
    "parse_time",
    "parse_tres",
    "parse_version",
]

# A long queue says the same few times, limits and counts over and over.
_REMEMBERED = 4096
_NO_TIME = frozenset({"", "unknown", "n/a", "none", "(null)", "0"})
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII)
_EPOCH = re.compile(r"[0-9]{1,12}", re.ASCII)


@lru_cache(_REMEMBERED)
def parse_time(text: str, zone: tzinfo | None = None, fold: int = 0) -> float | None:
    """Seconds since the epoch from an epoch or ISO text; None for "not yet".

    A time that names no zone is in `zone`, or local time; `fold` 1 is the second of two that a clock shows alike.
    """
    text = text.strip()
    if text.lower() in _NO_TIME:
        return None
    if _EPOCH.fullmatch(text):
        return float(text)
    if not _ISO.fullmatch(text):
        raise ParseError("not a time", text)
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=zone, fold=fold)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ParseError("not a time", text) from None


_UNLIMITED = frozenset({"unlimited", "infinite"})
_UNSET_LIMIT = frozenset({"", "partition_limit", "not_set", "none", "n/a", "(null)"})
_LIMIT = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?", re.ASCII)


@lru_cache(_REMEMBERED)
def parse_limit(text: str, unset: float | None = None) -> float | None:
    """A duration in seconds: `1-02:03:04`, `1-02`, `02:03:04`, `MM:SS` or bare minutes. None means unlimited.

    `Partition_Limit`, `NOT_SET` and `NONE` say that the job or partition names no limit: they give `unset`.
    """
    word = text.strip().lower()
    if word in _UNLIMITED:
        return None
    if word in _UNSET_LIMIT:
        return unset
    match = _LIMIT.fullmatch(word)
    if match is None:
        raise ParseError("not a duration", text)
    days, first, second, third = (None if g is None else int(g) for g in match.groups())
    assert first is not None
    if days is not None:
        hours, minutes, seconds = first, second or 0, third or 0
    elif third is not None:
        hours, minutes, seconds = first, second or 0, third
    else:
        days, hours, minutes, seconds = 0, 0, first, second or 0
    return float((days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def format_minutes(seconds: float) -> str:
    """A limit as Slurm keeps it: whole minutes, rounded up, never 0 (which Slurm reads as unlimited)."""
    if math.isinf(seconds):
        return "UNLIMITED"
    return str(max(1, math.ceil(seconds / 60 - 1e-9)))


_COUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?([KMG]?)(?:-[0-9.]{1,15}[KMG]?)?", re.ASCII)


@lru_cache(_REMEMBERED)
def is_plain_name(text: str) -> bool:
    """Whether Slurm's options take a name as it is, of a job or a cluster: a comma would make two of it."""
    return _PLAIN_NAME.fullmatch(text) is not None


def parse_count(text: str) -> int:
    """A number of nodes or CPUs; `2-4` gives the least that is asked for, `2K` 2048 (Slurm shortens multiples)."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ParseError("not a count", text)
    number = float(f"{match[1]}.{match[2] or 0}")
    return round(number * (1 << 10 * " KMG".index(match[3] or " ")))


_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?", re.ASCII)


def parse_array_tasks(text: str) -> int:
    """How many tasks an array expression names: `0-5%2` 6, `1,3-9:2,20` 6. What follows `%` is how many may run."""
    return sum(len(span) for span in _spans(text))


def array_tasks(text: str) -> frozenset[int]:
    """The tasks that an array expression names: `1,3-9:2%2` 1, 3, 5, 7 and 9."""
    return frozenset(task for span in _spans(text) for task in span)


def _spans(text: str) -> Iterator[range]:
    for item in text.strip().partition("%")[0].split(","):
        match = _TASKS.fullmatch(item)
        if match is None:
            raise ParseError("not the tasks of an array", text)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first:
            raise ParseError("not the tasks of an array", text)
        yield range(first, last + 1, step)


def array_text(tasks: Iterable[int]) -> str:
    """Tasks as an array expression names them, ascending: 4, 2, 3, 9 as `2-4,9`."""
    spans: list[list[int]] = []
    for task in sorted(set(tasks)):
        if spans and task == spans[-1][1] + 1:
            spans[-1][1] = task
        else:
            spans.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


_EXIT = re.compile(r"([0-9]{1,9}):([0-9]{1,9})", re.ASCII)


def parse_exit_code(text: str) -> int:
    """sacct's `code:signal` as a shell would say it: the code, or 128 + the signal that ended the job."""
    match = _EXIT.fullmatch(text.strip())
    if match is None:
        raise ParseError("not an exit code", text)
    code, signal = int(match[1]), int(match[2])
    return 128 + signal if signal and not code else code


_TRES_AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTPE]?)", re.ASCII)


def parse_tres(text: str) -> dict[str, float]:
    """What `cpu=4,mem=2G,node=2,gres/gpu=1` counts for, by TRES; memory in MB. Empty for none."""
    if text.strip() in ("", "N/A", "(null)"):
        return {}
    found = {}
    for item in text.strip().split(","):
        name, _, amount = item.partition("=")
        found[name] = parse_amount(amount, name)
    return found


def parse_amount(text: str, tres: str = "") -> float:
    """A count of a TRES with the unit that Slurm may give it; memory in MB, of which 2048M and 2G are the same."""
    match = _TRES_AMOUNT.fullmatch(text)
    if match is None:
        raise ParseError("not an amount", text)
    if not match[2]:
        return float(match[1])
    return float(match[1]) * 1024.0 ** (" KMGTPE".index(match[2]) - (2 if tres == "mem" else 0))


_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/.*-]*(?:\[[0-9]+\])?)=", re.ASCII)


def parse_pairs(line: str) -> dict[str, str]:
    """The pairs of one line of `scontrol -o`. A value may hold blanks; the first pair of a name counts.

    Texts that people write (Reason, Comment, Extra) stand behind what Slurm writes, so they cannot change it. Job
    records are the exception (JobName is their second field): never read those this way.
    """
    line = line.strip()
    matches = list(_KEY.finditer(line))
    if line and (not matches or matches[0].start() != 0):
        raise ParseError("not a line of key=value pairs", line)
    pairs: dict[str, str] = {}
    for i, match in enumerate(matches):
        end = matches[i + 1].start() if i + 1 < len(matches) else len(line)
        pairs.setdefault(match[1], line[match.end() : end].strip())
    return pairs


def parse_config(text: str) -> dict[str, str]:
    """The settings in `scontrol show config`; `(null)` becomes the empty string."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition("=")
        if found and key.strip():
            value = value.strip()
            settings.setdefault(key.strip(), "" if value.startswith("(null") else value)
    return settings


def parse_version(text: str) -> tuple[int, ...]:
    """`22.05.8` as (22, 5, 8); what follows the numbers (`-rc1`) is dropped."""
    match = re.match(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}", text.strip(), re.ASCII)
    if match is None:
        raise ParseError("not a version", text)
    return tuple(int(part) for part in match[0].split("."))
