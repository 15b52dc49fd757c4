"""Tasks of a pool as Slurm's commands write jobs: rows of squeue and sacct, records of `scontrol show job`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.slurm.states import SHORT_STATES
from penstock_fronts.rows import Table
from penstock_fronts.sacct import WIDTHS
from penstock_fronts.squeue_format import HEADINGS, LETTERS
from penstock_pool.filenames import error_name, input_name, output_name
from penstock_pool.jobqueue import JobQueue, job_number
from penstock_pool.jobs.amounts import amount
from penstock_pool.machine import TaskEntry
from penstock_pool.model import AttemptOutcome, TaskPhase
from penstock_pool.terms import JobTerms, WaitReason

__all__ = ["FURTHER", "JobOwner", "JobTimes", "record", "sacct_table", "squeue_table", "state_of", "wait_code"]

_NOTHING: Final = "(null)"
FURTHER: Final = {
    "admin_comment": "ADMIN_COMMENT", "allocnodes": "ALLOC_NODES", "batchflag": "BATCH_FLAG", "cluster": "CLUSTER",
    "container": "CONTAINER", "cpus-per-task": "CPUS_PER_TASK", "deadline": "DEADLINE",
    "eligibletime": "ELIGIBLE_TIME", "gres": "TRES_PER_NODE", "network": "NETWORK", "numtasks": "TASKS",
    "pendingtime": "PENDING_TIME", "preempttime": "PREEMPT_TIME", "reboot": "REBOOT", "requeue": "REQUEUE",
    "restartcnt": "RESTART_COUNT", "s": "", "stderr": "STDERR", "stdin": "STDIN", "stdout": "STDOUT",
    "system_comment": "SYSTEM_COMMENT", "tres-alloc": "TRES_ALLOC", "tres-per-node": "TRES_PER_NODE",
}  # fmt: skip
"""Fields of squeue's `-O` that have no letter, and of a letter that not every release knows, with their headings."""
_SACCT: Final = tuple(sorted(WIDTHS, key=str.lower))
_REASONS: Final = {
    AttemptOutcome.FAILED: "NonZeroExitCode",
    AttemptOutcome.TIMEOUT: "TimeLimit",
    AttemptOutcome.MEMORY: "OutOfMemory",
    AttemptOutcome.LOST: "NodeDown",
}
_FAILURES: Final = {
    AttemptOutcome.TIMEOUT: "TIMEOUT",
    AttemptOutcome.MEMORY: "OUT_OF_MEMORY",
    AttemptOutcome.LOST: "NODE_FAIL",
}
_MEMORY_SIGNAL: Final = 125
_NOT_YET: Final = frozenset([WaitReason.DEPENDENCY, WaitReason.NEVER, WaitReason.HELD])


@dataclass(frozen=True, slots=True)
class JobOwner:
    """Whose the jobs are, and on which cluster."""

    uid: int
    user: str
    gid: int
    group: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class JobTimes:
    """When things happened to a job, in whole seconds since 1970; None: not yet. What is cancelled before it begins
    begins then, as in Slurm's accounting. `state` is Slurm's long word."""

    state: str
    submitted: int
    eligible: int | None
    began: int | None
    ended: int | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A job with what is worked out of it once."""

    entry: TaskEntry
    terms: JobTerms
    number: int
    base: int
    state: str
    reason: str
    now: float

    @property
    def shown(self) -> str:
        """Its number as squeue writes it."""
        array = self.terms.array
        return str(self.number) if array is None else f"{self.base}_{array.index}"

    @property
    def began(self) -> float | None:
        return None if self.entry.phase is TaskPhase.WAITING else self.entry.started

    @property
    def start(self) -> float | None:
        """When it has begun, or may at the earliest as it was submitted; of what never has, when it was cancelled."""
        if self.reason == WaitReason.BEGIN:
            return self.terms.begin
        return self.ended if self.began is None else self.began

    @property
    def ended(self) -> float | None:
        return self.entry.ended if self.entry.phase.final else None

    @property
    def eligible(self) -> float | None:
        """Since when, or from when on, nothing but a place is lacking."""
        if self.entry.eligible is not None:
            return self.entry.eligible
        if self.entry.phase is TaskPhase.WAITING:
            never = self.reason in _NOT_YET
        else:
            never = self.entry.attempt == 0 and (self.entry.held or bool(self.terms.after))
        return None if never else max(self.terms.begin, self.entry.submitted)

    @property
    def times(self) -> JobTimes:
        ran = self.began if self.entry.attempt > 0 else self.ended
        eligible, began, ended = (None if at is None else int(at) for at in (self.eligible, ran, self.ended))
        return JobTimes(self.state, int(self.entry.submitted), eligible, began, ended)

    @property
    def end(self) -> float | None:
        """When it has ended, or will at the latest."""
        if self.ended is None and self.began is not None and self.terms.limit is not None:
            return self.began + self.terms.limit
        return self.ended

    @property
    def seconds(self) -> int:
        """For how long it has run."""
        if self.began is None or self.entry.attempt == 0:
            return 0
        return max(int((self.now if self.ended is None else self.ended) - self.began), 0)

    @property
    def cpus(self) -> int:
        return self.terms.ntasks * self.terms.cpus

    @property
    def node(self) -> str:
        return "" if self.began is None else self.entry.node


def state_of(entry: TaskEntry) -> str:
    """Slurm's long word for its state."""
    match entry.phase:
        case TaskPhase.WAITING:
            return "PENDING"
        case TaskPhase.RUNNING:
            return "COMPLETING" if entry.cancelled else "RUNNING"
        case TaskPhase.COMPLETE:
            return "COMPLETED"
        case TaskPhase.CANCELLED:
            return "CANCELLED"
        case TaskPhase.FAILED:
            return _FAILURES.get(entry.last or AttemptOutcome.FAILED, "FAILED")


def wait_code(entry: TaskEntry) -> int:
    """What `sbatch --wait` ends with: the script's own code; 1 where a signal, a limit or a lost node ended it, 0
    where it was cancelled before it began."""
    if entry.phase is TaskPhase.COMPLETE or (entry.phase is TaskPhase.CANCELLED and not entry.attempt):
        return 0
    own = entry.last in (None, AttemptOutcome.FAILED, AttemptOutcome.COMPLETE)
    return entry.code if own and entry.code is not None and entry.code >= 0 else 1


def _seen(entry: TaskEntry, queue: JobQueue, now: float) -> _Seen:
    terms = entry.task.job
    assert terms is not None
    base = job_number(queue.base(entry), terms)
    reason = str(WaitReason.NONE)
    if entry.phase is TaskPhase.WAITING:
        kept = queue.kept.get(entry.id, WaitReason.RESOURCES)
        reason = str(WaitReason.RESOURCES if kept is WaitReason.NONE else kept)
    elif entry.phase is TaskPhase.FAILED and entry.last is not None:
        reason = _REASONS.get(entry.last, reason)
    return _Seen(entry, terms, job_number(entry.id, terms), base, state_of(entry), reason, now)


def squeue_table(
    entries: Iterator[TaskEntry], queue: JobQueue, owner: JobOwner, now: float, shown: str | None = None
) -> Table:
    """What squeue has of these jobs; memory is `shown` as `amount` says."""
    seen = (_seen(entry, queue, now) for entry in entries)
    return Table({**HEADINGS, **FURTHER}, tuple(_squeue_row(job, queue, owner, shown) for job in seen))


def _squeue_row(job: _Seen, queue: JobQueue, owner: JobOwner, shown: str | None) -> Mapping[str, str]:
    terms, entry = job.terms, job.entry
    left = "UNLIMITED" if terms.limit is None else _span(max(int(terms.limit) - job.seconds, 0))
    told = job.state in ("PENDING", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")
    row = dict.fromkeys((*LETTERS, *FURTHER), _NOTHING) | _further(job, owner)
    return row | {
        "a": terms.account or _NOTHING,
        "A": str(job.number),
        "B": job.node or "n/a",
        "c": str(job.cpus),
        "C": str(job.cpus),
        "d": "0",
        "D": "1",
        "e": _moment(job.end, "N/A"),
        "E": (queue.dependency(entry, job.now) if entry.phase is TaskPhase.WAITING else "") or _NOTHING,
        "F": str(job.base),
        "g": owner.group,
        "G": str(owner.gid),
        "h": "OK",
        "H": "*",
        "i": job.shown,
        "I": "*",
        "j": terms.name,
        "J": "*",
        "k": terms.comment or _NOTHING,
        "K": "N/A" if terms.array is None else str(terms.array.index),
        "l": "UNLIMITED" if terms.limit is None else _span(int(terms.limit)),
        "L": left,
        "m": _megabytes(entry.task.memory, shown),
        "M": _span(job.seconds),
        "n": "",
        "N": job.node,
        "o": terms.command or _NOTHING,
        "O": "0",
        "p": "0.00000000023283",
        "P": terms.partition,
        "q": terms.qos or _NOTHING,
        "Q": "1",
        "r": job.reason,
        "R": f"({job.reason})" if told else job.node,
        "S": _moment(job.start, "N/A"),
        "t": SHORT_STATES[job.state],
        "T": job.state,
        "u": owner.user,
        "U": str(owner.uid),
        "V": _moment(entry.submitted, "N/A"),
        "w": terms.wckey or _NOTHING,
        "x": "",
        "X": "N/A",
        "y": "0",
        "z": "*:*:*",
        "Z": entry.task.workdir,
    }


def _further(job: _Seen, owner: JobOwner) -> dict[str, str]:
    terms, entry = job.terms, job.entry
    names = (terms, entry.id, entry.task.workdir, job.node, owner.user)
    output = output_name(*names)
    gpus = f"gres:gpu:{entry.task.gpus}" if entry.task.gpus else "N/A"
    waited = (job.now if job.began is None else job.began) - entry.submitted
    return {
        "allocnodes": terms.host or "localhost",
        "batchflag": "1",
        "cluster": owner.cluster,
        "cpus-per-task": str(terms.cpus),
        "deadline": "N/A",
        "eligibletime": _moment(job.eligible, "N/A"),
        "gres": gpus,
        "numtasks": str(terms.ntasks),
        "pendingtime": str(max(int(waited), 0)),
        "preempttime": "N/A",
        "reboot": "0",
        "requeue": str(int(terms.requeue)),
        "restartcnt": str(entry.lost),
        "s": "",  # what a plug-in of node selection says; none says anything
        "stderr": error_name(*names) or output,
        "stdin": input_name(*names),
        "stdout": output,
        "tres-alloc": f"cpu={job.cpus},node=1,billing={job.cpus}",
        "tres-per-node": gpus,
    }


def sacct_table(
    entries: Iterator[TaskEntry],
    queue: JobQueue,
    owner: JobOwner,
    now: float,
    shown: str | None = None,
    keeps: Callable[[JobTimes, Mapping[str, str]], bool] = lambda _times, _row: True,
) -> Table:
    """What sacct has of these jobs, each with the step of its script: of those that `keeps` lets pass by their times
    and their rows. Memory is `shown` as `amount` says."""
    rows: list[Mapping[str, str]] = []
    for entry in entries:
        job = _seen(entry, queue, now)
        row = _sacct_row(job, owner, shown)
        if not keeps(job.times, row):
            continue
        rows.append(row)
        if entry.attempt and entry.phase is not TaskPhase.WAITING:
            rows.append(_sacct_step(job, owner, shown))
    return Table({name: name for name in _SACCT}, tuple(rows))


def _sacct_row(job: _Seen, owner: JobOwner, shown: str | None) -> Mapping[str, str]:
    terms, entry = job.terms, job.entry
    began = job.began is not None and entry.attempt > 0
    waits = entry.phase is TaskPhase.WAITING
    memory = _megabytes(entry.task.memory, shown)
    tres = f"billing={job.cpus},cpu={job.cpus},node=1"
    asked = f"billing={job.cpus},cpu={job.cpus}" + (f",mem={memory}" if entry.task.memory else "") + ",node=1"
    limit = terms.limit
    state = f"CANCELLED by {owner.uid}" if job.state == "CANCELLED" else job.state
    return dict.fromkeys(_SACCT, "") | {
        "Account": terms.account,
        "AllocCPUS": str(job.cpus),
        "AllocNodes": "1" if began else "0",
        "AllocTRES": tres if began else "",
        "Cluster": owner.cluster,
        "Comment": terms.comment,
        "ConsumedEnergy": "" if began else "0",
        "CPUTime": _clock(job.seconds * job.cpus),
        "CPUTimeRAW": str(job.seconds * job.cpus),
        "DerivedExitCode": "0:0",
        "Elapsed": _clock(job.seconds),
        "ElapsedRaw": str(job.seconds),
        "Eligible": _moment(job.eligible, "Unknown"),
        "End": _moment(job.ended, "Unknown"),
        "ExitCode": _exit(job),
        "GID": str(owner.gid),
        "Group": owner.group,
        "JobID": job.shown,
        "JobIDRaw": str(job.number),
        "JobName": terms.name,
        "NCPUS": str(job.cpus),
        "NNodes": "1",
        "NodeList": entry.node if began else "None assigned",
        "Partition": terms.partition,
        "Priority": "1",
        "QOS": terms.qos,
        "Reason": job.reason if waits else "None",
        "ReqCPUFreqGov": "Unknown",
        "ReqCPUFreqMax": "Unknown",
        "ReqCPUFreqMin": "Unknown",
        "ReqCPUS": str(job.cpus),
        "ReqMem": memory if entry.task.memory else "",
        "ReqNodes": "1",
        "ReqTRES": asked,
        "Start": _moment(job.began if began else job.ended, "Unknown"),
        "State": state,
        "Submit": _moment(entry.submitted, "Unknown"),
        "SubmitLine": terms.line,
        "Suspended": "00:00:00",
        "SystemCPU": "00:00:00",
        "Timelimit": "UNLIMITED" if limit is None else _clock(int(limit)),
        "TimelimitRaw": "UNLIMITED" if limit is None else str(int(limit // 60)),
        "TotalCPU": _processor(entry.use.cpu),
        "UID": str(owner.uid),
        "User": owner.user,
        "UserCPU": _processor(entry.use.cpu),
        "WCKey": terms.wckey,
        "WorkDir": entry.task.workdir,
    }


def _sacct_step(job: _Seen, owner: JobOwner, shown: str | None) -> Mapping[str, str]:
    entry = job.entry
    state, code = job.state, _exit(job)
    if state in ("TIMEOUT", "CANCELLED"):
        state, code = "CANCELLED", "0:15"
    memory = amount(entry.use.memory, "", shown) if entry.use.memory else ""
    return dict.fromkeys(_SACCT, "") | {
        "Account": job.terms.account,
        "AllocCPUS": str(job.cpus),
        "AllocNodes": "1",
        "AllocTRES": f"cpu={job.cpus},node=1",
        "AveCPUFreq": "0",
        "AveCPU": _clock(int(entry.use.cpu)),
        "AveRSS": memory,
        "Cluster": owner.cluster,
        "ConsumedEnergy": "0",
        "CPUTime": _clock(job.seconds * job.cpus),
        "CPUTimeRAW": str(job.seconds * job.cpus),
        "Elapsed": _clock(job.seconds),
        "ElapsedRaw": str(job.seconds),
        "Eligible": _moment(entry.started, "Unknown"),
        "End": _moment(job.ended, "Unknown"),
        "ExitCode": code,
        "JobID": f"{job.shown}.batch",
        "JobIDRaw": f"{job.number}.batch",
        "JobName": "batch",
        "MaxRSS": memory,
        "MaxRSSNode": entry.node,
        "MaxRSSTask": "0",
        "NCPUS": str(job.cpus),
        "NNodes": "1",
        "NodeList": entry.node,
        "NTasks": "1",
        "ReqCPUFreqGov": "0",
        "ReqCPUFreqMax": "0",
        "ReqCPUFreqMin": "0",
        "ReqCPUS": str(job.cpus),
        "Start": _moment(entry.started, "Unknown"),
        "State": state,
        "Submit": _moment(entry.started, "Unknown"),
        "SystemCPU": "00:00:00",
        "TotalCPU": _processor(entry.use.cpu),
        "UserCPU": _processor(entry.use.cpu),
    }


def record(entry: TaskEntry, queue: JobQueue, owner: JobOwner, now: float, *, line: bool) -> str:
    """What `scontrol show job` says of it; on one `line` (`-o`)."""
    job = _seen(entry, queue, now)
    terms, task = job.terms, entry.task
    array = f" ArrayJobId={job.base} ArrayTaskId={terms.array.index}" if terms.array is not None else ""
    names = (terms, entry.id, task.workdir, job.node, owner.user)
    output = output_name(*names)
    dependency = queue.dependency(entry, now) if entry.phase is TaskPhase.WAITING else ""
    limit = "UNLIMITED" if terms.limit is None else _clock(int(terms.limit))
    memory = _megabytes(task.memory)
    lines = [
        f"JobId={job.number}{array} JobName={terms.name}",
        f"UserId={owner.user}({owner.uid}) GroupId={owner.group}({owner.gid}) MCS_label=N/A",
        f"Priority=1 Nice=0 Account={terms.account or _NOTHING} QOS={terms.qos or _NOTHING}",
        f"JobState={job.state} Reason={job.reason} Dependency={dependency or _NOTHING}",
        f"Requeue={int(terms.requeue)} Restarts={entry.lost} BatchFlag=1 Reboot=0 ExitCode={_exit(job)}",
        f"RunTime={_clock(job.seconds)} TimeLimit={limit} TimeMin=N/A",
        f"SubmitTime={_moment(entry.submitted, 'Unknown')} EligibleTime={_moment(job.eligible, 'Unknown')}",
        "AccrueTime=Unknown",
        f"StartTime={_moment(job.start, 'Unknown')} EndTime={_moment(job.end, 'Unknown')} Deadline=N/A",
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={_moment(now, 'Unknown')} Scheduler=Main",
        f"Partition={terms.partition or _NOTHING} AllocNode:Sid={terms.host or 'localhost'}:0",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={job.node}",
        *([f"BatchHost={job.node}"] if job.node else []),
        f"NumNodes=1 NumCPUs={job.cpus} NumTasks={terms.ntasks} CPUs/Task={terms.cpus} ReqB:S:C:T=0:0:*:*",
        f"TRES=cpu={job.cpus}{f',mem={memory}' if task.memory else ''},node=1,billing={job.cpus}",
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        f"MinCPUsNode={job.cpus} MinMemoryNode={memory} MinTmpDiskNode=0",
        "Features=(null) DelayBoot=00:00:00",
        "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)",
        f"Command={terms.command or _NOTHING}",
        f"WorkDir={task.workdir}",
        *([f"Comment={terms.comment} "] if terms.comment else []),
        f"StdErr={error_name(*names) or output}",
        f"StdIn={input_name(*names)}",
        f"StdOut={output}",
        "Power=",
    ]
    return (" ".join(lines) + "\n") if line else ("\n   ".join(lines) + "\n\n")


def _exit(job: _Seen) -> str:
    entry = job.entry
    if not entry.phase.final or job.state in ("CANCELLED", "TIMEOUT", "NODE_FAIL"):
        return "0:0"
    if job.state == "OUT_OF_MEMORY":
        return f"0:{_MEMORY_SIGNAL}"
    code = entry.code or 0
    return f"{code}:0" if code >= 0 else f"0:{-code}"


def _moment(at: float | None, none: str) -> str:
    return none if at is None else datetime.fromtimestamp(int(at)).isoformat()


def _span(seconds: int) -> str:
    """As squeue writes it: 1-02:03:04, 2:03:04, 3:04."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _clock(seconds: int) -> str:
    """As sacct writes it: 1-02:03:04, 02:03:04."""
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def _processor(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return _clock(whole)
    return f"{whole // 60:02}:{whole % 60:02}.{int(seconds * 1000) % 1000:03}"


def _megabytes(memory: int | None, shown: str | None = None) -> str:
    return amount((memory or 0) // 2**20, "M", shown)
