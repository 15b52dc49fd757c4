"""What an srun in a job of a pool is asked for: options, copies, files. Pure."""

from __future__ import annotations

from penstock.slurm.minutes import minutes_of
from penstock.slurm.name_patterns import NO_TASK, filled
from penstock.slurm.option_table import VALUE, options_of
from penstock.slurm.option_words import exports_all, options_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "POOL_JOB",
    "STEPS",
    "StepAsk",
    "StepError",
    "StepWords",
    "copy_environment",
    "exported",
    "file_of",
    "read_ask",
    "read_words",
]

POOL_JOB = "PENSTOCK_POOL_JOB"
"""Of a job of a pool: its number ."""
STEPS = "PENSTOCK_POOL_STEPS"
"""Of such a job: a file that has a byte for each of its steps so far."""
_BAD_OPTION = 255
_KINDS, _LETTERS = options_of("srun")
_NOT_SERVED = ("multi-prog", "het-group", "pack-group", "pty", "container", "bcast", "async")
_ONLY_SAYS = ("help", "usage", "version")


class StepError(Exception):
    """What srun refuses, and the code that it ends with."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class StepWords:
    """`found`: names and values of the options; `command`: what is run."""

    def __init__(self, found: list[tuple[str, str | None]], command: list[str]) -> None:
        self.found = found
        self.command = command

    def has(self, *names: str) -> bool:
        """Whether any of these options is there."""
        return any(name in names for name, _ in self.found)

    def value(self, name: str) -> str | None:
        """The value that counts, which is the last one."""
        return next((value for found, value in reversed(self.found) if found == name), None)


def read_words(words: Sequence[str]) -> StepWords:
    """The words after srun, as getopt_long reads them there: up to the first that is no option. Raises StepError."""
    found: list[tuple[str, str | None]] = []
    left = list(words)
    for given, name, kind, value, _words in options_in(left, _KINDS, _LETTERS):
        if name not in _KINDS:
            fitting = any(known.startswith(name) for known in _KINDS)
            what = f"option '{given}' is ambiguous" if fitting else f"unrecognized option '{given}'"
            raise _bad(what if given.startswith("--") else f"invalid option -- '{name}'")
        if kind == VALUE and value is None:
            option = given if given.startswith("--") else f"-- '{given[1:]}'"
            raise _bad(f"option '{option}' requires an argument")
        found.append((name, value))
    return StepWords(found, left[1:] if left[:1] == ["--"] else left)


def _bad(text: str) -> StepError:
    return StepError(f'srun: {text}\nTry "srun --help" for more information', _BAD_OPTION)


class StepAsk:
    """`count` copies of `command`; `warnings` to say first. `limit` in seconds, None for none. `bad_exit`: the first
    that fails ends all; `patience` (s): so long after the first end the others are waited for, None: for ever."""

    def __init__(self, words: StepWords, count: int) -> None:
        self.words = words
        self.command = words.command
        self.count = count
        self.warnings: list[str] = []
        self.limit: float | None = None
        self.patience: float | None = None
        self.bad_exit = words.has("kill-on-bad-exit") and words.value("kill-on-bad-exit") != "0"
        self.label = words.has("label")

    @property
    def only_says(self) -> bool:
        """Whether it is asked for nothing but what it is."""
        return self.words.has(*_ONLY_SAYS)


def read_ask(words: Sequence[str], environ: Mapping[str, str]) -> StepAsk:
    """What is asked for, in a job with these variables. Raises StepError for what srun refuses, and what is not served
    in a pool."""
    read = read_words(words)
    ask = StepAsk(read, 1)
    if ask.only_says:
        return ask
    for option in _NOT_SERVED:
        if read.has(option):
            raise StepError(f"srun: error: --{option} is not known in a job of a pool")
    cpus = _count(read, "cpus-per-task") or int(environ.get("SRUN_CPUS_PER_TASK") or 1)
    per_node = _count(read, "ntasks-per-node") or _count(read, "tasks-per-node")
    count = _count(read, "ntasks") or per_node or int(environ.get("SLURM_NTASKS") or 1)
    nodes = (read.value("nodes") or "1").partition("-")[0]
    if nodes.isdigit() and int(nodes) > 1:
        if count > 1:
            raise StepError(f"srun: error: Only allocated 1 nodes asked for {nodes}")
        ask.warnings.append(f"srun: Warning: can't run 1 processes on {nodes} nodes, setting nnodes to 1")
    cores = int(environ.get("SLURM_CPUS_ON_NODE") or 1)
    if count * cpus > cores and not read.has("overcommit"):
        job = environ.get("SLURM_JOB_ID", "")
        raise StepError(f"srun: error: Unable to create step for job {job}: More processors requested than permitted")
    if not read.command:
        raise StepError("srun: fatal: No command given to execute.")
    ask.count = count
    if (text := read.value("time")) is not None:
        minutes = minutes_of(text)
        if minutes is None:
            raise StepError("srun: error: Invalid --time specification", _BAD_OPTION)
        ask.limit = minutes * 60 or None
    if (text := read.value("wait")) is not None and text.isdigit() and int(text):
        ask.patience = float(text)
    return ask


def _count(read: StepWords, option: str) -> int:
    value = read.value(option)
    if value is None:
        return 0
    if not value.isdigit() or not int(value):
        raise StepError(f'srun: error: Invalid numeric value "{value}" for --{option}.')
    return int(value)


def exported(environ: Mapping[str, str], export: str | None) -> dict[str, str]:
    """What of the job's environment the copies are given, by `--export`; Slurm's own variables always."""
    words = [word for word in (export or "ALL").split(",") if word]
    found = dict(environ)
    if words and (words[0].upper() == "NONE" or not exports_all(words)):
        found = {name: value for name, value in environ.items() if name.startswith("SLURM")}
        if words[0].upper() == "NONE":  # what comes after it counts no more
            return found
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found.setdefault(name, value)  # what is set already stays
        elif name in environ:
            found[name] = environ[name]
    return found


def copy_environment(ask: StepAsk, environ: Mapping[str, str], step: int, rank: int) -> dict[str, str]:
    """The variables of a step, for one of its copies; its own number (`SLURM_TASK_PID`) is not known yet."""
    count = str(ask.count)
    node = environ.get("SLURMD_NODENAME") or environ.get("SLURM_JOB_NODELIST", "")
    said = {
        "SLURM_GTIDS": ",".join(map(str, range(ask.count))),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_NPROCS": count,
        "SLURM_NTASKS": count,
        "SLURM_PROCID": str(rank),
        "SLURM_STEPID": str(step),
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NODELIST": node,
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NUM_TASKS": count,
        "SLURM_STEP_TASKS_PER_NODE": count,
        "SLURM_TASKS_PER_NODE": count,
    }
    if (cpus := ask.words.value("cpus-per-task")) is not None:
        said["SLURM_CPUS_PER_TASK"] = cpus
    if (per_node := ask.words.value("ntasks-per-node") or ask.words.value("tasks-per-node")) is not None:
        said["SLURM_NTASKS_PER_NODE"] = per_node
    if (name := ask.words.value("job-name")) is not None:
        said["SLURM_JOB_NAME"] = name
    return {**exported(environ, ask.words.value("export")), **said}


def file_of(pattern: str, environ: Mapping[str, str], step: int, rank: int) -> str:
    """The name of a file by srun's pattern (`man srun`, "filename pattern")."""
    job = environ.get("SLURM_JOB_ID", "")
    values = {
        "%": "%",
        "A": environ.get("SLURM_ARRAY_JOB_ID", job),
        "J": f"{job}.{step}",
        "N": environ.get("SLURMD_NODENAME", "").partition(".")[0],
        "a": environ.get("SLURM_ARRAY_TASK_ID", NO_TASK),
        "j": job,
        "n": "0",
        "s": str(step),
        "t": str(rank),
        "u": environ.get("USER", ""),
        "x": environ.get("SLURM_JOB_NAME", ""),
    }
    return filled(pattern, values)
