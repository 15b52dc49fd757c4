"""sbatch's options: which there are, which take a value, and what a script's `#SBATCH` lines say. Pure.

Read as getopt_long reads them in sbatch: long options with `=` or the next word, shortened to an unambiguous
beginning; bundles of short ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import JobSpec
from penstock.errors import UserError
from penstock.slurm.option_table import (
    AT_WILL,
    KINDS,
    LETTERS,
    NO_VALUE,
    VALUE,
    head_lines,
    meant,
    script_directives,
    untranslated,
)

__all__ = [
    "AT_WILL",
    "DECIDED",
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
    "untranslated",
]

DECIDED: Final = frozenset({"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT", "SLURM_CLUSTERS"})
"""Variables that sbatch itself reads, and which are not handed on to it: by these it would wait for the job, make other
jobs of it or send it elsewhere."""


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """An option of sbatch by its full name; `value` None where it has none (yet: sbatch will complain)."""

    name: str
    value: str | None = None

    @property
    def word(self) -> str:
        """The option as one word of a command line."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


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


def script_words(lines: Iterable[str]) -> list[tuple[int, list[str]]]:
    """The words of a script's `#SBATCH` lines, with the lines' numbers. Raises UserError for a line with an open
    quote."""
    found = []
    for number, words in script_directives(lines):
        if words is None:
            raise UserError(f"line {number}: #SBATCH cannot be read: a quote is not closed")
        found.append((number, words))
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
