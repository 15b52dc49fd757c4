"""What a stage asks Slurm for besides nodes and time, as sbatch takes it: from the keys of a workflow file, its raw
options, and the `#SBATCH` lines of a script. Pure.

What would take the job out of the agent's hand (a dependency, a begin time, a name of its own) is refused, with the
reason. In a script's lines that only say what the agent says itself (a job's name, `--requeue`) it is left out, as
sbatch itself leaves out what its command line says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from penstock.errors import UserError
from penstock.slurm.hostlist import ParseError, asked_hosts
from penstock.slurm.option_table import column
from penstock.slurm.option_words import untranslated
from penstock.slurm.sbatch_options import Option, option_word, read_options, script_words

__all__ = [
    "FIELDS",
    "NO_ASKS",
    "Asks",
    "ScriptSays",
    "asks_from_dict",
    "asks_to_dict",
    "in_one_job",
    "megabytes",
    "script_says",
    "why_apart",
    "with_raw",
]

_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_UNITS: Final = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}  # MB, which sbatch means without one
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Asks:
    """In sbatch's own syntax; "" leaves the choice to Slurm. `memory` is per node (`--mem`), `cpus` per task.

    `partition` may be several with commas between; "" is the workflow's. `exclude` are nodes that it must not have, as
    a list of hosts. `options` are all others, each as one word (`--name=value`).
    """

    memory: str = ""
    gpus: str = ""
    gres: str = ""
    ntasks: str = ""
    cpus: str = ""
    constraint: str = ""
    output: str = ""
    error: str = ""
    array: str = ""
    licenses: str = ""
    exclude: str = ""
    partition: str = ""
    options: tuple[str, ...] = ()

    @property
    def choosy(self) -> bool:
        """Whether not every node of a partition may do for it."""
        return bool(self.memory or self.gpus or self.gres or self.constraint or self.exclude or self.options)

    def check(self, where: str) -> None:
        """Raises UserError that names the key (`where` is the stage's) for what sbatch cannot take, or may not be."""
        for name in _TEXTS:
            value = getattr(self, name)
            if _CONTROL.search(value):
                raise UserError(f"{where}.{name}: must be one line of text, not {value[:60]!r}")
        if self.memory and not _MEMORY.fullmatch(self.memory):
            raise UserError(
                f"{where}.memory: must be memory per node as sbatch's --mem takes it, such as 4000 (MB) or 16G, "
                f"not {self.memory[:60]!r}"
            )
        try:
            asked_hosts(self.exclude)
        except ParseError as error:
            raise UserError(f"{where}.sbatch: --exclude: {error}") from error
        for name in ("ntasks", "cpus"):
            value = getattr(self, name)
            if value and not _COUNT.fullmatch(value):
                raise UserError(f"{where}.{name}: must be a whole number of at least 1, not {value[:60]!r}")
        for word in self.options:
            try:
                for option in read_options([word]):
                    _check_raw(option)
                    if option[0] in FIELDS:
                        raise UserError(f"--{option[0]} is kept as {FIELDS[option[0]]!r}")
            except UserError as error:
                raise UserError(f"{where}.sbatch: {error}") from error


NO_ASKS: Final = Asks()
_TEXTS: Final = tuple(f.name for f in fields(Asks) if f.name != "options")

FIELDS: Final = {option: key for option, key in column("stage").items() if key in _TEXTS}
"""sbatch's options that are keys of a stage, by their names."""

_KEYS: Final = {option: key for option, key in column("stage").items() if key not in _TEXTS}
"""sbatch's options that the agent decides by, with the keys that say them."""

_NAMED: Final = "the agent finds a job by the name that it gives it"
_TOLD: Final = "sbatch's words are read by the agent"
_RUNS: Final = "the agent decides when a job runs again: use `retries`"
_REFUSED: Final[Mapping[str, str]] = {
    "dependency": "the agent ties jobs to those before them: use `after`",
    "begin": "the agent decides when a job may begin",
    "hold": "a job that is held by somebody else is never let go; `penstock pause` keeps back all",
    "job-name": _NAMED,
    "parsable": _TOLD,
    "quiet": _TOLD,
    "verbose": _TOLD,
    "help": _TOLD,
    "usage": _TOLD,
    "version": _TOLD,
    "autocomplete": _TOLD,
    "test-only": "nothing would be submitted",
    "wait": "the agent waits itself, and does not stand still meanwhile",
    "wrap": "the stage's command is in `run`",
    "requeue": _RUNS,
    "no-requeue": _RUNS,
    "kill-on-invalid-dep": "the agent decides what becomes of the stages after one that failed",
    "clusters": "the agent sees one cluster",
    "cluster": "the agent sees one cluster",
    "cluster-constraint": "the agent sees one cluster",
    "nodelist": "the agent itself asks for nodes by name; `constraint` and `exclude` say which may do",
    "nodefile": "the agent itself asks for nodes by name; `constraint` and `exclude` say which may do",
    "uid": "the job is submitted as the user of the agent",
    "gid": "the job is submitted as the user of the agent",
    "time-min": "the agent reckons with the time that was asked for: use `time`",
    "deadline": "Slurm would take the job out of the queue",
    "ignore-pbs": "the agent's scripts have no #PBS lines",
    "external": "the job needs a script",
}
_LEFT_OUT: Final = frozenset(
    {"job-name", "parsable", "quiet", "verbose", "requeue", "no-requeue", "ignore-pbs", "wait"}
)
"""What a script's lines may say without effect, since the agent's command line says otherwise."""


@dataclass(frozen=True, slots=True)
class ScriptSays:
    """What a script's `#SBATCH` lines ask for: `asks`, and by key (`nodes`, `time`, `partition`, `workdir` …) what the
    agent decides by. `left_out` are the options that have no effect here."""

    asks: Asks = NO_ASKS
    said: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def script_says(lines: Sequence[str]) -> ScriptSays:
    """What the `#SBATCH` lines of a script ask for. Raises UserError that begins with the line's number."""
    asks, said, left_out = NO_ASKS, dict[str, str](), dict[str, None]()
    unread = untranslated(lines)
    for number, words in script_words(lines):
        try:
            for option in read_options(words):
                if option[0] in _LEFT_OUT:
                    left_out[f"--{option[0]}"] = None
                elif option[0] in _KEYS:
                    said[_KEYS[option[0]]] = _valued(option)
                else:
                    asks = _with(asks, option)
        except UserError as error:
            raise UserError(f"line {number}: #SBATCH: {error}") from error
    if unread is not None and "--ignore-pbs" not in left_out:
        raise UserError(unread)
    return ScriptSays(asks, said, tuple(left_out))


def with_raw(asks: Asks, words: Sequence[str]) -> Asks:
    """The same with these options of sbatch, which count before what is there. Raises UserError."""
    for option in read_options(words):
        asks = _with(asks, option)
    return asks


def _with(asks: Asks, option: Option) -> Asks:
    name, _value = option
    if name in FIELDS:
        named: dict[str, Any] = {FIELDS[name]: _valued(option)}
        return replace(asks, **named)
    _check_raw(option)
    # One option of a kind: the last one counts, as with sbatch.
    others = tuple(word for word in asks.options if read_options([word])[0][0] != name)
    return replace(asks, options=(*others, option_word(option)))


def _valued(option: Option) -> str:
    name, value = option
    if not value:
        raise UserError(f"--{name} needs a value")
    return value


def _check_raw(option: Option) -> None:
    name, value = option
    if name in _KEYS:
        raise UserError(f"--{name} has a key of its own, {_KEYS[name]!r}")
    if name in _REFUSED:
        raise UserError(f"--{name} cannot be asked for here: {_REFUSED[name]}")
    if value is not None and _CONTROL.search(value):
        raise UserError(f"--{name} must be one line of text")


# -- several stages in one job -----------------------------------------------------------------------------------------

_MOST: Final = ("memory", "cpus")
"""Of what one job of several stages has as much as the stage that needs most."""


def why_apart(stages: Sequence[tuple[str, Asks]]) -> str | None:
    """Why these stages, by their names, cannot be one job; None: they can."""
    (first, one), *rest = stages
    if rest and (arrays := [name for name, asks in stages if asks.array]):
        return f"{arrays[0]} is an array, which is a job of its own"
    for name, asks in rest:
        for key in (*_TEXTS, "options"):
            if key not in _MOST and getattr(asks, key) != getattr(one, key):
                what = "sbatch" if key == "options" else key
                return f"{first} and {name} differ in {what!r}, which one job can have only once"
    return None


def in_one_job(stages: Sequence[Asks]) -> Asks:
    """What one job for all of these asks for, where `why_apart` says nothing against it."""
    return replace(
        stages[0],
        memory=max((asks.memory for asks in stages), key=megabytes),
        cpus=max((asks.cpus for asks in stages), key=lambda text: int(text or 0)),
    )


def megabytes(text: str) -> float:
    """So much memory (MB), -1: no amount; 0 means to sbatch all that a node has, and is infinite here."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        return -1.0
    return float(match[1]) * _UNITS[match[2].upper()] or float("inf")


# -- written down ------------------------------------------------------------------------------------------------------


def asks_to_dict(asks: Asks) -> dict[str, Any]:
    """As JSON-able values: only what is asked for."""
    found: dict[str, Any] = {name: value for name in _TEXTS if (value := getattr(asks, name))}
    return {**found, "options": list(asks.options)} if asks.options else found


def asks_from_dict(data: Mapping[str, Any]) -> Asks:
    """What `asks_to_dict` gave, or somebody who says so. Raises TypeError."""
    options = data.get("options", [])
    texts = {key: value for key, value in data.items() if key != "options"}
    if not all(isinstance(value, str) for value in texts.values()):
        raise TypeError("what a stage asks for must be texts")
    if not isinstance(options, list | tuple) or not all(isinstance(word, str) for word in options):
        raise TypeError("a stage's options must be a list of texts")
    return Asks(**texts, options=tuple(options))
