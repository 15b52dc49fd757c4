"""What sbatch is asked for, as tasks of a pool: options, `SBATCH_*` variables and `#SBATCH` lines. Pure.

What a pool cannot keep to is refused, never left out silently; what has no meaning there (how tasks lie on sockets,
say) is passed over. Texts and exit codes are sbatch's own where it has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from penstock.slurm.moments import parse_moment
from penstock.slurm.option_table import VARIABLES, column
from penstock.slurm.option_words import SbatchWords, job_name, read_words, script_words, untranslated
from penstock.slurm.parse import ParseError, array_tasks, parse_limit
from penstock.values.gres import asked_gres
from penstock.values.lines import split_lines
from penstock_pool.model import PoolTask
from penstock_pool.signals import signal_number
from penstock_pool.terms import AfterJob, ArrayPlace, JobTerms

__all__ = ["JobRequest", "NotForPools", "SbatchError", "export_of", "read_dependency", "read_order", "script_content"]

_MOST_TASKS: Final = 10_000
_KNOWN: Final = frozenset(column("pool"))
_NO_SCRIPT: Final = (
    "This does not look like a batch script.  The first",
    "line must start with #! followed by the path to an interpreter.",
    "For instance: #!/bin/sh",
)
_DOS: Final = (
    "Batch script contains DOS line breaks (\\r\\n)",
    "instead of expected UNIX line breaks (\\n).",
)
_WRAPPED: Final = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
_LARGEST_SCRIPT: Final = 4 * 2**20
_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_SIGNAL: Final = re.compile(r"(?:([RB]+):)?([A-Za-z0-9+]+)(?:@([0-9]{1,5}))?", re.ASCII)
_WARNING: Final = 60.0
_CONDITIONS: Final = ("after", "afterany", "afterok", "afternotok", "aftercorr")
_JOB: Final = re.compile(r"([0-9]{1,11})(?:_(?:([0-9]{1,9})|\*))?(?:\+([0-9]{1,6}))?", re.ASCII)
_NODES: Final = re.compile(r"1(-[0-9]+)?", re.ASCII)


class SbatchError(Exception):
    """What sbatch refuses, in its words; lines without its name before them."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class NotForPools(SbatchError):
    """What Slurm might do, and a pool does not."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What the front program hands over. `script`: its content, None for `--wrap`; `key` is new for each submission;
    `host`, `workdir`, `umask` and `environ` are those of who submits, `fronts` the folder of front programs."""

    words: Sequence[str]
    script: bytes | None
    environ: Mapping[str, str]
    workdir: str
    umask: int
    key: str
    host: str = ""
    fronts: str = ""


def script_content(request: JobRequest) -> bytes:
    """The script that is run. Raises SbatchError for what sbatch takes for none."""
    wrapped = read_words(request.words).value("wrap")
    if request.script is None:
        return _WRAPPED.format(wrapped or "").encode(errors="surrogateescape")
    if wrapped is not None:
        raise SbatchError("Script arguments not permitted with --wrap option")
    if len(request.script) > _LARGEST_SCRIPT:
        raise SbatchError("Batch job submission failed: Pathname of a file, directory or other parameter too long")
    if not request.script.strip():
        raise SbatchError("Batch script is empty!")
    if not request.script.startswith(b"#!"):
        raise SbatchError(*_NO_SCRIPT)
    if b"\r\n" in request.script:
        raise SbatchError(*_DOS)
    return request.script


def export_of(request: JobRequest) -> str | None:
    """The value of `--export` that counts."""
    return _said(read_words(request.words), script_words(_lines(request)), request.environ).get("export")


def read_order(request: JobRequest, first: int, script: str, environment: str, now: float) -> list[PoolTask]:
    """The tasks of a submission, of an array one each. `first`, `script` and `environment` go into their terms; `now`
    in seconds since 1970. Raises SbatchError."""
    line = read_words(request.words)
    lines = _lines(request)
    head = script_words(lines)
    if line.several or head.several:
        raise NotForPools("a job of several components cannot be a task of a pool")
    if head.script is not None:
        raise SbatchError(f"Invalid directive found in batch script: {head.script}")
    said = _said(line, head, request.environ)
    if "ignore-pbs" not in said and (unread := untranslated(lines)) is not None:
        raise NotForPools(unread)
    for option in said:
        if option not in _KNOWN:
            raise NotForPools(f"a task of a pool cannot have --{option}")
    if (said.get("mail-type") or "NONE").upper() != "NONE":
        raise NotForPools("a pool sends no mail: --mail-type")
    return _tasks(request, said, line, head, first, script, environment, now)


def _lines(request: JobRequest) -> list[str]:
    return [] if request.script is None else split_lines(request.script.decode(errors="surrogateescape"))


def _said(line: SbatchWords, head: SbatchWords, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Each option with the value that counts: the command line's, else that of a variable, else the script's."""
    said: dict[str, str | None] = dict(head.found)
    said.update({option: environ[name] for name, option in VARIABLES.items() if name in environ})
    said.update(dict(line.found))
    return said


def _tasks(
    request: JobRequest,
    said: Mapping[str, str | None],
    line: SbatchWords,
    head: SbatchWords,
    first: int,
    script: str,
    environment: str,
    now: float,
) -> list[PoolTask]:
    nodes = said.get("nodes") or "1"
    if _NODES.fullmatch(nodes) is None:
        raise NotForPools(f"a task of a pool is on one node: --nodes={nodes}")
    per_node = said.get("ntasks-per-node") or said.get("tasks-per-node")
    ntasks = _count(said, "ntasks", _whole("ntasks-per-node", per_node) if per_node else 1)
    cpus = _count(said, "cpus-per-task", 1)
    limit = _limit(said.get("time"))
    number, before, batch = _signal(said.get("signal"))
    try:
        after, one = read_dependency(said.get("dependency") or "")
    except ValueError as e:
        raise SbatchError(f"{e}", "Batch job submission failed: Job dependency problem") from None
    workdir = said.get("chdir") or request.workdir
    name = job_name(line, head, request.environ)
    command = line.script or ""
    words = line.rest[1:] if line.rest[:1] == ["--"] else line.rest
    terms = JobTerms(
        first=first,
        name=name,
        script=script,
        environment=environment,
        stdin=said.get("input") or "",
        stdout=said.get("output") or "",
        stderr=said.get("error") or "",
        append=(said.get("open-mode") or "").startswith("a"),
        umask=request.umask,
        limit=limit,
        signal=number,
        before=before,
        batch=batch,
        held="hold" in said,
        begin=_begin(said.get("begin"), now),
        after=after,
        one=one,
        kill_invalid=(said.get("kill-on-invalid-dep") or "no").lower() == "yes",
        requeue="no-requeue" not in said,
        ntasks=ntasks,
        cpus=cpus,
        cpus_said="cpus-per-task" in said,
        ntasks_said=bool(per_node) or "ntasks" in said,
        per_node=_whole("ntasks-per-node", per_node) if per_node else 0,
        memory_per_cpu="mem-per-cpu" in said and "mem" not in said,
        fronts=request.fronts,
        submitted_in=request.workdir,
        host=request.host,
        account=said.get("account") or "",
        partition=said.get("partition") or "",
        qos=said.get("qos") or "",
        comment=said.get("comment") or "",
        command=command,
        wckey=said.get("wckey") or "",
        line=" ".join(["sbatch", *request.words]),
    )
    return [
        PoolTask(
            argv=(command or name, *words[1:]),
            name=f"{request.key}.{place.position}" if place is not None else request.key,
            cores=float(ntasks * cpus),
            memory=_memory(said, ntasks * cpus),
            gpus=_gpus(said, ntasks),
            seconds=limit,
            workdir=_inside(request.workdir, workdir),
            retries=0,
            job=terms if place is None else replace(terms, array=place),
        )
        for place in _places(said.get("array"))
    ]


def _inside(folder: str, path: str) -> str:
    return path if path.startswith("/") else f"{folder.rstrip('/')}/{path}"


def _places(text: str | None) -> list[ArrayPlace | None]:
    if text is None:
        return [None]
    tasks, _, most = text.partition("%")
    try:
        indices = sorted(array_tasks(tasks.strip("[]")))
    except ParseError:
        indices = []
    if not indices or (most and not most.isdecimal()):
        raise SbatchError("Batch job submission failed: Invalid job array specification")
    if len(indices) > _MOST_TASKS:
        raise SbatchError("Batch job submission failed: Invalid job array specification")
    steps = {b - a for a, b in pairwise(indices)}
    step = steps.pop() if len(steps) == 1 else 1
    whole = (indices[0], indices[-1], len(indices), step, int(most or 0))
    return [ArrayPlace(position, index, *whole) for position, index in enumerate(indices)]


def _count(said: Mapping[str, str | None], option: str, usual: int) -> int:
    value = said.get(option)
    return usual if value is None else _whole(option, value)


def _whole(option: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 100_000:
        raise SbatchError(f'Invalid numeric value "{value}" for --{option}.')
    return int(value)


def _limit(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_limit(text)
    except ParseError:
        raise SbatchError("Invalid --time specification") from None
    # Slurm counts in minutes, and 0 means none.
    return None if not seconds else max(seconds + (-seconds) % 60, 60.0)


def _memory(said: Mapping[str, str | None], cores: int) -> int | None:
    for option, times in (("mem", 1), ("mem-per-cpu", cores)):
        value = said.get(option)
        if value is None:
            continue
        match = _MEMORY.fullmatch(value)
        if match is None:
            raise SbatchError(f"Invalid --{option} specification")
        return int(match[1]) * 1024 ** (1 + "KMGT".index((match[2] or "M").upper())) * times or None
    return None


def _gpus(said: Mapping[str, str | None], ntasks: int) -> int:
    for option, times in (("gres", 1), ("gpus", 1), ("gpus-per-node", 1), ("gpus-per-task", ntasks)):
        value = said.get(option)
        if value is None or value.upper() == "NONE":
            continue
        text = value if option == "gres" else ",".join(f"gpu:{word}" for word in value.split(","))
        try:
            asked = asked_gres(text)
        except ValueError:
            raise SbatchError(f"Invalid --{option} specification: {value}") from None
        if any(item.name != "gpu" for item in asked):
            raise NotForPools(f"of generic resources pools know GPUs alone: --{option}={value}")
        return sum(item.number for item in asked) * times
    return 0


def _signal(text: str | None) -> tuple[int, float, bool]:
    if text is None:
        return 0, 0.0, False
    match = _SIGNAL.fullmatch(text)
    number = None if match is None else signal_number(match[2])
    if match is None or not number:
        raise SbatchError(f"Invalid --signal specification: {text}")
    return number, float(match[3] or _WARNING), "B" in (match[1] or "")


def read_dependency(text: str) -> tuple[tuple[AfterJob, ...], bool]:
    """The conditions of `--dependency` on jobs, of the pool's and of Slurm's, and whether one of them is enough. Raises
    ValueError for what Slurm would not take, or a pool does not know."""
    if not text.strip():
        return (), False
    one = "?" in text
    if one and "," in text:
        raise ValueError("all of them, or one of them: , and ? do not go together")
    found = []
    for part in re.split(r"[,?]", text):
        kind, colon, jobs = part.strip().partition(":")
        kind = kind.lower()
        if kind == "singleton" and not colon:
            found.append(AfterJob(kind))
            continue
        if _JOB.fullmatch(kind):  # a bare number
            kind, jobs = "afterany", part.strip()
        if kind not in _CONDITIONS or not jobs:
            raise ValueError(f"no dependency of a pool's job: {part[:60]}")
        for word in jobs.split(":"):
            match = _JOB.fullmatch(word)
            if match is None or (match[3] is not None and kind != "after"):
                raise ValueError(f"no job: {word[:60]}")
            task = None if match[2] is None else int(match[2])
            found.append(AfterJob(kind, int(match[1]), task, 60.0 * int(match[3] or 0)))
    return tuple(found), one


def _begin(text: str | None, now: float) -> float:
    if text is None:
        return 0.0
    try:
        at = parse_moment(text, now, past=False)
    except ParseError:
        at = 0.0
    if not at:
        raise SbatchError("Invalid --begin specification")
    return at
