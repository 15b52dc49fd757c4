"""sbatch's options: which there are, which take a value, and what a script's `#SBATCH` lines say. Pure.

Read as getopt_long reads them in sbatch: long options with `=` or the next word, shortened to an unambiguous
beginning; bundles of short ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import JobSpec
from penstock.errors import UserError

__all__ = [
    "AT_WILL",
    "KINDS",
    "LETTERS",
    "NO_VALUE",
    "VALUE",
    "SbatchOption",
    "asked_words",
    "head_lines",
    "meant",
    "read_options",
    "restricts_export",
    "script_words",
]

# sbatch's options from 22.05 to 26.05 (slurm_opt.c): name[/short letter]. What a newer release adds is taken for one
# whose value, if any, comes with "=".
_FLAGS: Final = (
    "consolidate-segments contiguous external help/h hold/H ignore-pbs no-requeue overcommit/O oversubscribe/s "
    "parsable quiet/Q reboot spread-job spread-segments stepmgr test-only usage use-min-nodes verbose/v version/V "
    "wait/W"
)
_WITH_VALUE_AT_WILL: Final = "exclusive get-user-env nice no-kill/k oom-kill-step propagate requeue resv-ports"
_WITH_VALUE: Final = (
    "account/A acctg-freq array/a autocomplete batch bb bbf begin/b chdir/D cluster cluster-constraint clusters/M "
    "comment constraint/C container container-id context core-spec/S cores-per-socket cpu-freq cpus-per-gpu "
    "cpus-per-task/c deadline delay-boot dependency/d distribution/m error/e exclude/x export export-file extra "
    "extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint "
    "input/i job-name/J kill-on-invalid-dep licenses/L mail-type mail-user mcs-label mem mem-bind mem-per-cpu "
    "mem-per-gpu mem-update mincpus network nodefile/F nodelist/w nodes/N ntasks/n ntasks-per-core ntasks-per-gpu "
    "ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output/o partition/p power prefer priority profile "
    "qos/q reservation resources runtime segment signal sockets-per-node switches tasks-per-node thread-spec "
    "threads-per-core time/t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap"
)
NO_VALUE, AT_WILL, VALUE = 0, 1, 2
_THEIRS: Final = re.compile(r"#SBATCH(.*)", re.DOTALL)


def _tables() -> tuple[dict[str, int], dict[str, str]]:
    kinds: dict[str, int] = {}
    letters: dict[str, str] = {}
    for kind, words in ((NO_VALUE, _FLAGS), (AT_WILL, _WITH_VALUE_AT_WILL), (VALUE, _WITH_VALUE)):
        for word in words.split():
            name, _, letter = word.partition("/")
            kinds[name] = kind
            if letter:
                letters[letter] = name
    return kinds, letters


KINDS, LETTERS = _tables()
"""By their full names whether options take a value, and the full names of the short ones."""


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """An option of sbatch by its full name; `value` None where it has none (yet: sbatch will complain)."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """The option as one word of a command line."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


def meant(given: str) -> tuple[str, int]:
    """The full name of a long option, and whether it takes a value."""
    if given in KINDS:
        return given, KINDS[given]
    fitting = [name for name in KINDS if given and name.startswith(given)]
    if len(fitting) == 1:
        return fitting[0], KINDS[fitting[0]]
    kinds = {KINDS[name] for name in fitting}
    return given, kinds.pop() if len(kinds) == 1 else NO_VALUE


def read_options(words: Sequence[str]) -> tuple[SbatchOption, ...]:
    """The options that these words are, in their order. Raises UserError for a word that is none, and for an option
    that lacks its value."""
    found: list[SbatchOption] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--") and word != "--":
            given, equals, value = word[2:].partition("=")
            name, kind = meant(given)
            if equals:
                found.append(SbatchOption(name, value))
            else:
                found.append(SbatchOption(name, _next(left, word) if kind == VALUE else None))
        elif word.startswith("-") and word not in ("-", "--"):
            found += _short(word, left)
        else:
            raise UserError(f"{word[:60]!r} is no option of sbatch (they begin with -)")
    return tuple(found)


def _short(word: str, left: list[str]) -> list[SbatchOption]:
    found = []
    for place, letter in enumerate(word[1:], start=1):
        if letter not in LETTERS:
            raise UserError(f"-{letter} is no option of sbatch")
        name = LETTERS[letter]
        kind, attached = KINDS[name], word[place + 1 :]
        if kind == NO_VALUE:
            found.append(SbatchOption(name))
            continue
        value = attached or (_next(left, f"-{letter}") if kind == VALUE else None)
        return [*found, SbatchOption(name, value)]
    return found


def _next(left: list[str], option: str) -> str:
    if not left:
        raise UserError(f"{option} needs a value")
    return left.pop(0)


def head_lines(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    """The lines of a script that may hold directives, with their numbers: all before the first that is neither empty
    nor a comment."""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            return
        yield number, line.rstrip("\r\n")


def script_words(lines: Iterable[str]) -> list[tuple[int, list[str]]]:
    """The words of a script's `#SBATCH` lines, with the lines' numbers. Raises UserError for a line with an open
    quote."""
    found = []
    for number, line in head_lines(lines):
        match = _THEIRS.fullmatch(line)
        if match is None:
            continue
        try:
            found.append((number, shlex.split(match[1], comments=True)))
        except ValueError as e:
            raise UserError(f"line {number}: #SBATCH cannot be read: {e}") from e
    return found


def restricts_export(options: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether not all of sbatch's environment reaches the job, by these options or the variable that does for one."""
    said = [option for option in read_options(options) if option.name in ("export", "export-file")]
    values = [option.value or "" for option in said if option.name == "export"]
    value = values[-1] if values else environment.get("SBATCH_EXPORT", "ALL")
    return any(option.name == "export-file" for option in said) or value.split(",")[0].upper() != "ALL"


_ASKED: Final = {
    "memory": "mem",
    "gpus": "gpus",
    "gres": "gres",
    "ntasks": "ntasks",
    "cpus": "cpus-per-task",
    "constraint": "constraint",
    "output": "output",
    "error": "error",
    "array": "array",
    "licenses": "licenses",
}


def asked_words(spec: JobSpec) -> list[str]:
    """sbatch's options for what a job asks for besides nodes, time and where it runs; `spec.options` in front."""
    named = [f"--{option}={value}" for name, option in _ASKED.items() if (value := getattr(spec, name))]
    return [*spec.options, *named]
