"""The one line of sacct whose output a history is made of, and its records as jobs. Pure.

    TZ=UTC SLURM_TIME_FORMAT=%s sacct -a -X -D -p --noconvert --delimiter=@MARK@ -S SINCE -E UNTIL --format=FIELDS

-X: jobs without their steps; -D: every run of a requeued job; seconds since the epoch, so that no clock is put back;
a mark between the fields that nobody knew before, so that no job's name can pass for fields or rows; the name last.
Dumps made otherwise are read as well, if they have a heading, `JobIDRaw` and -p or -P.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from penstock.api import JobState
from penstock.slurm.parse import ParseError, parse_amount, parse_count, parse_job_state, parse_limit
from penstock_lab.history.records import Heading
from penstock_lab.history.rows import NEVER, NONE, Flag, Reason, Row
from penstock_lab.history.times import Times

__all__ = ["ENVIRONMENT", "FIELDS", "BadHeading", "Parser", "command"]

ENVIRONMENT: Final = MappingProxyType({"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"})
FIELDS: Final = (
    "JobIDRaw", "JobID", "Cluster", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start",
    "End", "ElapsedRaw", "TimelimitRaw", "NNodes", "AllocCPUS", "ReqCPUS", "ReqMem", "JobName",
)  # fmt: skip

_COLUMNS: Final = (
    ("jobidraw",), ("jobid",), ("cluster",), ("user",), ("account",), ("partition",), ("qos",), ("state",),
    ("submit",), ("eligible",), ("start",), ("end",), ("elapsedraw",), ("timelimitraw", "timelimit"),
    ("nnodes", "allocnodes"), ("alloccpus", "ncpus"), ("reqcpus",), ("reqmem",), ("jobname",),
)  # fmt: skip
_NEEDED: Final = {"jobidraw": "JobIDRaw", "state": "State", "submit": "Submit", "start": "Start", "end": "End"}
_SIZES: Final = {"nnodes", "allocnodes", "alloccpus", "ncpus", "reqcpus"}
_TELLING: Final = {
    "eligible": "no Eligible: waits count from the submission",
    "user": "no User: all jobs are taken for one user's",
    "jobname": "no JobName: jobs of the same name are not told from others",
    "timelimitraw": "no TimelimitRaw or Timelimit: users' limits are not known",
}
_CUT: Final = frozenset({JobState.REQUEUED, JobState.PREEMPTED, JobState.NODE_FAIL, JobState.BOOT_FAIL})
_OVER: Final = frozenset(state for state in JobState if state.ended) | {JobState.REQUEUED, JobState.UNKNOWN}
_MEMORY: Final = re.compile(r"([0-9.]+[KMGTPE]?)([nc]?)", re.ASCII)


def command(mark: str, since: str, until: str, cluster: str = "") -> list[str]:
    """The arguments of that line, for a span of time in sacct's own forms."""
    where = [f"--clusters={cluster}"] if cluster else []
    return [
        "sacct", "-a", "-X", "-D", "-p", "--noconvert", f"--delimiter={mark}", *where, "-S", since, "-E", until,
        f"--format={','.join(FIELDS)}",
    ]  # fmt: skip


class BadHeading(Exception):
    """A heading without the fields that a history needs."""


class Parser:
    """Reads the records of one dump. `clusters` are those whose jobs were read; `cluster` the only one wanted, if any.

    Raises ParseError for a record that cannot be read, BadHeading for a heading without what it needs.
    """

    def __init__(self, times: Times, cluster: str = "") -> None:
        self.clusters: dict[str, int] = {}
        self.notes: list[str] = []
        self._times = times
        self._cluster = cluster
        self._heading: Heading | None = None
        self._get: Callable[[Sequence[str]], tuple[str, ...]] = tuple
        self._has_partition = self._has_allocated = False

    def _learn(self, heading: Heading) -> None:
        fields = heading.fields
        missing = [name for field, name in _NEEDED.items() if field not in fields]
        if not _SIZES & set(fields):
            missing.append("NNodes or AllocCPUS")
        if missing:
            raise BadHeading(f"the heading lacks {', '.join(missing)}: `penstock history command` prints a whole one")
        # A column that is not there is read from one cell more, which is empty.
        places = [next((fields.index(name) for name in names if name in fields), len(fields)) for names in _COLUMNS]
        getter: Any = itemgetter(*places)
        self._get = getter
        self._heading = heading
        self._has_partition = "partition" in fields
        self._has_allocated = bool({"alloccpus", "ncpus"} & set(fields))
        for names in _COLUMNS:
            note = _TELLING.get(names[0])
            if note and note not in self.notes and not set(names) & set(fields):
                self.notes.append(note)

    def row(self, heading: Heading, cells: list[str]) -> Row | str:
        """The job, or a `Reason` for which it is none."""
        if heading is not self._heading:
            self._learn(heading)
        if not heading.closed:
            cells.append("")
        (
            raw, job, cluster, user, account, partition, qos, word, submitted, became, started, ended, elapsed, limited,
            nodes_text, allocated, asked, memory, name,
        ) = self._get(cells)  # fmt: skip
        if "." in job or "." in raw:
            return Reason.STEP
        if self._cluster and cluster != self._cluster:
            return Reason.ELSEWHERE
        self.clusters[cluster] = self.clusters.get(cluster, 0) + 1
        if not (raw.isdigit() and raw.isascii() and len(raw) < 19):
            raise ParseError("JobIDRaw is not a number", raw[:40])
        state = _state(word.partition(" ")[0])
        if state is not JobState.RESIZING and state not in _OVER:
            return Reason.NOT_ENDED
        if self._has_partition and not partition:
            return Reason.NOT_WRITTEN
        submit, eligible, start, end = self._at(submitted, became, started, ended, elapsed)
        if submit is None:
            return Reason.NO_SUBMIT
        if end is None:
            return Reason.NOT_ENDED if state is JobState.UNKNOWN else Reason.NO_END
        nodes = parse_count(nodes_text) if nodes_text else 0
        cpus = parse_count(allocated) if allocated else 0
        if start is not None and state is JobState.CANCELLED and not cpus and self._has_allocated:
            start = None  # some releases write when it was cancelled as its start
        cpus = cpus or (parse_count(asked) if asked else 0)
        if not nodes and not cpus:
            return Reason.NO_SIZE
        if start is None:
            if state not in (JobState.CANCELLED, JobState.DEADLINE, JobState.FAILED, JobState.BOOT_FAIL):
                return Reason.NO_START
            start = NEVER
        elif end < start:
            return Reason.DISORDER
        if end < submit:
            return Reason.DISORDER
        early = NEVER < start < submit
        start = submit if early else start
        # A job that was never eligible, or is said to have been so at an impossible time, waited from its submission.
        eligible = max(min(eligible or submit, end if start == NEVER else start), submit)
        flags = (Flag.ARRAY if "_" in job else 0) | (Flag.HETEROGENEOUS if "+" in job else 0)
        flags |= (Flag.CUT if state in _CUT else 0) | (Flag.EARLY if early else 0)
        return Row(
            int(raw),
            submit,
            eligible,
            start,
            end,
            int(parse_limit(limited) or NONE),
            nodes or 1,
            cpus or nodes,
            _memory(memory, nodes or 1, cpus or nodes) if memory else 0,
            user,
            account,
            partition,
            qos,
            name,
            state,
            int(flags),
            int(job.partition("+")[0]) if "+" in job else 0,
        )

    def _at(self, *texts: str) -> list[int | None]:
        *times, elapsed = texts
        found = [self._times.read(text) for text in times]
        if self._times.doubtful:
            self._times.doubtful = False
            found = self._times.settle(times, int(elapsed) if elapsed.isdigit() else None)
            self._times.doubtful = False
        return found


@lru_cache(256)
def _state(word: str) -> JobState:
    return parse_job_state(word)


@lru_cache(4096)
def _memory(text: str, nodes: int, cpus: int) -> int:
    """MB in all of `ReqMem`: in all, per node (4Gn) or processor (4Gc); a bare number is MB. 0 if it does not say."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        return 0
    try:
        amount = parse_amount(found[1], "mem")
    except ParseError:
        return 0
    return round(amount * {"n": nodes, "c": cpus}.get(found[2], 1))
