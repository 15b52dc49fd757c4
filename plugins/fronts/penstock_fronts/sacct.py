"""What sacct says, from a look at accounting. Pure.

Looks are of two kinds, as sacct has two ways of choosing: jobs by their numbers, whatever became of them; or what a
user had in a span of time up to now. A look has all fields of all jobs and steps as `sacct -p` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock_fronts.rows import Table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import CommandAnswer, Option, Through, parse_words

__all__ = ["WIDTHS", "AccountingColumn", "SacctAsk", "answer", "asked", "options_of", "read"]

_LETTERS: Final = "aA:bBcC:DeE:f:F:g:hi:I:j:k:K:lLM:nN:o:pPq:r:R:s:S:Ttu:UvVW:x:X"
_LONGS: Final = {
    "allusers": ("a", 0), "accounts": ("A", 1), "allocations": ("X", 0), "array": ("array", 0),
    "autocomplete": ("autocomplete", 1), "brief": ("b", 0), "batch-script": ("B", 0), "completion": ("c", 0),
    "constraints": ("C", 1), "delimiter": ("delimiter", 1), "duplicates": ("D", 0), "federation": ("federation", 0),
    "helpformat": ("e", 0), "help-fields": ("e", 0), "helpreason": ("helpreason", 0), "helpstate": ("helpstate", 0),
    "endtime": ("E", 1), "env-vars": ("env-vars", 0), "expand-patterns": ("expand-patterns", 0), "file": ("f", 1),
    "flags": ("F", 1), "gid": ("g", 1), "group": ("g", 1), "help": ("h", 0), "local": ("local", 0), "name": ("name", 1),
    "nnodes": ("i", 1), "ncpus": ("I", 1), "jobs": ("j", 1), "timelimit-min": ("k", 1), "timelimit-max": ("K", 1),
    "long": ("l", 0), "allclusters": ("L", 0), "cluster": ("M", 1), "clusters": ("M", 1), "nodelist": ("N", 1),
    "noconvert": ("noconvert", 0), "units": ("units", 1), "noheader": ("n", 0), "fields": ("o", 1),
    "format": ("o", 1), "parsable": ("p", 0), "parsable2": ("P", 0), "qos": ("q", 1), "partition": ("r", 1),
    "reason": ("R", 1), "state": ("s", 1), "starttime": ("S", 1), "truncate": ("T", 0), "uid": ("u", 1),
    "use-local-uid": ("use-local-uid", 0), "usage": ("U", 0), "user": ("u", 1), "verbose": ("v", 0),
    "version": ("V", 0), "wckeys": ("W", 1), "whole-hetjob": ("whole-hetjob", 2), "associations": ("x", 1),
    "json": ("json", 2), "yaml": ("yaml", 2),
}  # fmt: skip
_BRIEF: Final = "jobid,state,exitcode"
_USUAL: Final = "jobid,jobname,partition,account,alloccpus,state,exitcode"
_STRANGE: Final = frozenset(["SLURM_CLUSTERS", "SLURM_BITSTR_LEN"])
_KNOWN: Final = frozenset(["SACCT_FORMAT", "SACCT_LOCAL"])

# The width of each field, negative where it begins at the left. These say the same of a job when its steps are left
# out. Fields in neither list are left to sacct.
_WIDTHS: Final = {
    "Account": 10, "AdminComment": 15, "AllocCPUS": 10, "AllocNodes": 10, "AllocTRES": 10, "AssocID": 7, "Cluster": 10,
    "Comment": 14, "Constraints": 19, "CPUTime": 10, "CPUTimeRAW": 10, "DerivedExitCode": 15, "Elapsed": 10,
    "ElapsedRaw": 10, "Eligible": 19, "End": 19, "ExitCode": 8, "Flags": 19, "GID": 6, "Group": 9, "JobID": -12,
    "JobIDRaw": -12, "JobName": 10, "NCPUS": 10, "NNodes": 8, "NodeList": 15, "Partition": 10, "Priority": 10,
    "QOS": 10, "QOSRAW": 6, "Reason": 22, "ReqCPUS": 8, "ReqMem": 10, "ReqNodes": 8, "ReqTRES": 10, "Reservation": 20,
    "Start": 19, "State": 10, "Submit": 19, "SubmitLine": 20, "Timelimit": 10, "TimelimitRaw": 10, "UID": 6, "User": 9,
    "WCKey": 10, "WorkDir": 20,
}  # fmt: skip
# Those of steps, which a job has where its steps are shown.
_STEP_WIDTHS: Final = {
    "AveCPU": 10, "AveRSS": 10, "AveVMSize": 10, "AvePages": 10, "AveDiskRead": 14, "AveDiskWrite": 14, "MaxRSS": 10,
    "MaxRSSNode": 10, "MaxVMSize": 10, "MaxVMSizeNode": 14, "MaxPages": 8, "MaxDiskRead": 12, "MaxDiskWrite": 12,
    "MinCPU": 10, "NTasks": 8, "SystemCPU": 10, "TotalCPU": 10, "UserCPU": 10,
}  # fmt: skip
WIDTHS: Final = _WIDTHS | _STEP_WIDTHS | {
    "AveCPUFreq": 10, "BlockID": 16, "ConsumedEnergy": 14, "ConsumedEnergyRaw": 17, "Container": 19, "DBIndex": -10,
    "Layout": 9, "McsLabel": 12, "MinCPUNode": 10, "MinCPUTask": 10, "ReqCPUFreq": 10, "Reserved": 10,
    "ReservationId": 8, "ResvCPU": 10, "ResvCPURAW": 10, "Suspended": 10, "SystemComment": 15,
    "TRESUsageOutMin": 15, "TRESUsageOutMinNode": 19, "TRESUsageOutMinTask": 19, "WCKeyID": 10,
    "MaxDiskReadNode": 15, "MaxDiskReadTask": 15, "MaxDiskWriteNode": 16,
    "MaxDiskWriteTask": 16, "MaxPagesNode": 12, "MaxPagesTask": 14, "MaxRSSTask": 10, "MaxVMSizeTask": 14,
    "ReqCPUFreqGov": 13, "ReqCPUFreqMax": 13, "ReqCPUFreqMin": 13,
    "TRESUsageInAve": 14, "TRESUsageInMax": 14, "TRESUsageInMaxNode": 18, "TRESUsageInMaxTask": 18,
    "TRESUsageInMin": 14, "TRESUsageInMinNode": 18, "TRESUsageInMinTask": 18, "TRESUsageInTot": 14,
    "TRESUsageOutAve": 15, "TRESUsageOutMax": 15, "TRESUsageOutMaxNode": 19, "TRESUsageOutMaxTask": 19,
    "TRESUsageOutTot": 15,
}  # fmt: skip
"""Those of all that Slurm 22.05 has."""
_NUMBERS: Final = frozenset(
    ["AllocCPUS", "AssocID", "CPUTimeRAW", "ElapsedRaw", "GID", "NCPUS", "NNodes", "NTasks", "Priority", "QOSRAW",
     "ReqCPUS", "UID", "CPUTime", "Elapsed"]
)  # fmt: skip
"""Never cut; durations neither."""
_DATES: Final = frozenset(["Eligible", "End", "Start", "Submit"])
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_GIVEN: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", re.ASCII)
_ID: Final = re.compile(r"[1-9][0-9]{0,9}(_(0|[1-9][0-9]{0,8}))?", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_WIDEST: Final = 4096


@dataclass(frozen=True, slots=True)
class AccountingColumn:
    """A field as it was asked for: the beginning of its name, and its width; None: the usual one."""

    name: str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class SacctAsk:
    """What a sacct command asks for: jobs `ids`, or (None) what the caller has had since `start`, an ISO date and time
    (None: since midnight), of these `names`. `ending` and `parsable` are `-p` and `-P` or `-p`. `bare`: the look has
    steps without their jobs. `widths` are those of further fields that are served."""

    columns: Sequence[AccountingColumn]
    header: bool = True
    parsable: bool = False
    ending: bool = False
    delimiter: str = "|"
    steps: bool = True
    ids: Sequence[str] | None = None
    start: str | None = None
    names: frozenset[str] | None = None
    bare: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)


def read(words: Sequence[str], asker: Asker, site: ShimSite) -> SacctAsk:
    """What the command asks for. Raises `Through`."""
    options = options_of(words)
    if asker.uid == 0:
        raise Through("root is shown the jobs of all")
    return asked(options, asker, site)


def options_of(words: Sequence[str]) -> list[Option]:
    """The command's options. Raises `Through`."""
    options, others = parse_words(words, _LETTERS, _LONGS)
    if others:
        raise Through("words that are no options")
    return options


def asked(options: Sequence[Option], asker: Asker, site: ShimSite) -> SacctAsk:
    """What these options ask for, with the asker's variables. Raises `Through`."""
    strange = next((n for n in asker.environ if n.startswith("SACCT_") and n not in _KNOWN), None)
    if strange is not None or not asker.environ.keys().isdisjoint(_STRANGE):
        raise Through("a variable is set that changes what sacct says")
    if site.federated:
        raise Through("sacct may ask other clusters of a federation")
    shown: list[str] = []
    ids: list[str] = []
    names: set[str] = set()
    flags: set[str] = set()
    parsable = ending = False
    delimiter, start, end = "|", None, None
    for option in options:
        value = option.value or ""
        match option.name:
            case "j":
                ids += _ids(value, site.past_ids)
            case "o":
                shown.append(value)
            case "p" | "P":
                parsable, ending = True, option.name == "p"
            case "delimiter":
                delimiter = value
            case "S":
                start = _start(value)
            case "E":
                end = value
            case "name":
                names |= _names(value)
            case "u":
                _is_self(value, asker)
                flags.add("u")
            case "M" if value == "all" and site.alone:
                pass
            case "L" if site.alone:
                pass
            case "X" | "t" | "n" | "b" | "local":
                flags.add(option.name)
            case _:
                raise Through(f"an option that is not served: {option.name}")
    if end not in (None, "now"):
        raise Through("a span that has ended")
    if ids and (start is not None or end is not None or "u" in flags):
        raise Through("jobs by number and by something else")
    if "b" in flags:
        shown.append(_BRIEF)
    return SacctAsk(
        _columns(shown or [asker.environ.get("SACCT_FORMAT", _USUAL)]),
        header="n" not in flags,
        parsable=parsable,
        ending=ending,
        delimiter=delimiter,
        steps=not flags & {"X", "t"},
        ids=ids or None,
        start=start,
        names=frozenset(names) or None,
    )


def _ids(text: str, past: int) -> list[str]:
    parts = text.split(",")
    for part in parts:
        if _ID.fullmatch(part) is None or int(part.partition("_")[0]) >= past:
            raise Through(f"not the number of a job: {part[:40]}")
    return parts


def _start(text: str) -> str:
    match = _GIVEN.fullmatch(text)
    if match is None:
        raise Through(f"a time that is not served: {text[:40]}")
    return text if match[1] else text + ":00"


def _names(text: str) -> set[str]:
    parts = text.split(",")
    if not all(_NAME.fullmatch(part) for part in parts):
        raise Through("a name that accounting may read otherwise")
    return {part.lower() for part in parts}


def _is_self(text: str, asker: Asker) -> None:
    if text != str(asker.uid) and asker.uid_of(text) != asker.uid:
        raise Through("jobs of others")


def _columns(given: Sequence[str]) -> list[AccountingColumn]:
    columns = []
    for part in ",".join(given).split(","):
        name, percent, width = part.lstrip(" \t\n\v\f\r").partition("%")
        if not name and not percent:
            break  # sacct reads no further
        if percent and not _NUMBER.fullmatch(width):
            raise Through(f"a width that is not served: {width[:40]}")
        if percent and not 0 < abs(int(width[:8])) <= _WIDEST:
            raise Through(f"a width that is not served: {width[:40]}")
        columns.append(AccountingColumn(name, int(width) if percent else None))
    if not columns:
        raise Through("no fields")
    return columns


def answer(ask: SacctAsk, look: Table, asker: Asker) -> CommandAnswer:
    """What sacct prints. Raises `Through`."""
    columns = _resolved(ask, list(look.header))
    if not asker.same_zone and (ask.start is not None or any(name in _DATES for name, _ in columns)):
        raise Through("times in another zone, or in a format of the caller's")
    lines = []
    if ask.header:
        lines.append(_line(ask, [_heading(name, width, ask) for name, width in columns]))
        if not ask.parsable:
            lines.append("".join("-" * abs(width) + " " for _, width in columns) + "\n")
    for job in _chosen(ask, look.rows, asker):
        for row in job if ask.steps else job[:1]:
            lines.append(_line(ask, [_cell(name, width, row[name], ask) for name, width in columns]))
    return CommandAnswer("".join(lines))


def _resolved(ask: SacctAsk, known: Sequence[str]) -> list[tuple[str, int]]:
    """Each column with its field and width. A field that is asked for twice has the width of the last time."""
    widths: dict[str, int] = {}
    names = []
    for column in ask.columns:
        start = column.name.lower()
        if "all".startswith(start):
            raise Through("all fields, which differ by release")
        name = next((name for name in known if name.lower().startswith(start)), None)
        usual = {**_WIDTHS, **(_STEP_WIDTHS if ask.steps else {}), **ask.widths}
        if name is None or name not in usual:
            raise Through(f"a field that is not served: {column.name[:40]}")
        widths[name] = column.width if column.width is not None else widths.get(name, usual[name])
        names.append(name)
    return [(name, widths[name]) for name in names]


def _line(ask: SacctAsk, cells: Sequence[str]) -> str:
    if not ask.parsable:
        return "".join(cell + " " for cell in cells) + "\n"
    return ask.delimiter.join(cells) + (ask.delimiter if ask.ending else "") + "\n"


def _heading(name: str, width: int, ask: SacctAsk) -> str:
    return name if ask.parsable else _fit(name, width)


def _cell(name: str, width: int, value: str, ask: SacctAsk) -> str:
    if name in _DATES and abs(width) < len(value):
        raise Through("a date that does not fit, which releases write differently")
    if ask.parsable:
        return value
    if name in _NUMBERS:
        return value.rjust(width) if width > 0 else value.ljust(-width)
    if name in _DATES:
        return _fit(value, width)
    raw = value.encode(errors="surrogateescape")
    if len(raw) > abs(width):
        raw = raw[: abs(width) - 1] + b"+"
    return _fit(raw.decode(errors="surrogateescape"), width)


def _fit(value: str, width: int) -> str:
    raw = value.encode(errors="surrogateescape")[: abs(width)]
    return (raw.rjust(width) if width > 0 else raw.ljust(-width)).decode(errors="surrogateescape")


def _chosen(ask: SacctAsk, rows: Sequence[Mapping[str, str]], asker: Asker) -> Iterator[Sequence[Mapping[str, str]]]:
    jobs = [[row] for row in rows] if ask.bare else _jobs(rows)
    if ask.ids is not None:
        jobs = _of_ids(ask.ids, jobs)
    else:
        since = ask.start or asker.midnight
        jobs = [job for job in jobs if not _DATE.fullmatch(job[0]["End"]) or job[0]["End"] >= since]
    for job in jobs:
        if ask.names is None or _named(job[0]["JobName"], ask.names):
            yield job


def _jobs(rows: Sequence[Mapping[str, str]]) -> list[list[Mapping[str, str]]]:
    """Each job with its steps after it."""
    jobs: list[list[Mapping[str, str]]] = []
    for row in rows:
        if "." not in row["JobIDRaw"]:
            jobs.append([row])
        elif not jobs or not row["JobIDRaw"].startswith(jobs[-1][0]["JobIDRaw"] + "."):
            raise Through("a step that follows another job")
        else:
            jobs[-1].append(row)
    return jobs


def _of_ids(ids: Sequence[str], jobs: Sequence[list[Mapping[str, str]]]) -> list[list[Mapping[str, str]]]:
    wanted, seen, found = set(ids), set(), []
    for job in jobs:
        name, raw = job[0]["JobID"], job[0]["JobIDRaw"]
        array, _, task = name.partition("_")
        if "+" in name and wanted & {raw, name.partition("+")[0]}:
            raise Through("a job of several parts")
        mine = wanted & {name, raw, array}
        if task.startswith("[") and any(one.startswith(array + "_") for one in wanted):
            raise Through("tasks of an array that wait together")
        if mine:
            found.append(job)
            seen |= mine
    if wanted - seen:
        missing = sorted(wanted - seen)
        numbers = frozenset(int(one.partition("_")[0]) for one in missing)
        raise Through(f"jobs that the look does not show: {', '.join(missing[:5])}", numbers)
    return found


def _named(name: str, wanted: frozenset[str]) -> bool:
    """Whether accounting, which is asked for names in small letters, takes it for one of these."""
    if name in wanted:
        return True
    # Databases differ in what else is the same to them: other letters, accents, blanks at the end.
    folded = name.lower().rstrip()
    if not name.isascii() or folded in wanted:
        raise Through("a name that accounting may take for one that was asked for")
    return False
